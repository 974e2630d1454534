use super::*;
use crate::mailbox::mailbox;

#[derive(Default)]
struct Does {
    /// It always has something to do, and found it on an fd of its own.
    busy: bool,
    found: bool,
    /// It could not put everything to rest: there is something to do at once.
    restless: bool,
    rested: bool,
}

impl Engine for Does {
    type Command = ();
    type Event = ();

    fn start(&mut self, _: Instant, _: &mut Io<'_, ()>) -> Result<(), Errno> {
        Ok(())
    }

    fn receive(&mut self, _: Instant, _: usize, _: &mut Burst, _: &mut Io<'_, ()>) {}

    fn ready(&mut self, _: Instant, _: u32, _: bool, _: &mut Io<'_, ()>) {}

    fn run(&mut self, _: Instant, _: &mut Io<'_, ()>) -> bool {
        self.busy
    }

    fn spins(&self) -> bool {
        true
    }

    fn found(&self) -> bool {
        self.found
    }

    fn next_deadline(&self) -> Instant {
        if self.restless && self.rested { Instant::ZERO } else { Instant::NEVER }
    }

    fn rest(&mut self, _: &mut Io<'_, ()>) {
        self.rested = true;
    }

    fn command(&mut self, _: Instant, (): (), _: &mut Io<'_, ()>) {}
}

fn worker(engine: Does) -> (Worker<Does>, Sender<Command<()>>) {
    let (commands, inbox) = mailbox(4).expect("eventfd");
    let (outbox, _events) = mailbox(4).expect("eventfd");
    let config = WorkerConfig { idle: IdleConfig::default() };
    let (pool, counters) = (Pool::new(64).expect("memory"), Arc::new(WorkerCounters::default()));
    (Worker::new(&config, engine, pool, inbox, outbox, counters).expect("descriptors"), commands)
}

#[test]
fn a_signal_that_comes_after_its_message_was_taken_ends_one_sleep_and_no_more() {
    let (mut worker, commands) = worker(Does::default());
    commands.signal_late();
    worker.sleep(clock::now(), Instant::NEVER);
    assert!(worker.sleeper.look().is_empty(), "the next sleep lasts");
}

#[test]
fn only_what_came_is_an_arrival_to_the_idle_policy() {
    for (busy, found, arrivals) in [(true, true, 10), (true, false, 0), (false, false, 0)] {
        let (mut worker, _commands) = worker(Does { busy, found, ..Does::default() });
        for turn in 1..=10 {
            assert_eq!(worker.turn(Instant::from_nanos(turn * 1_000_000)), busy);
        }
        assert_eq!(worker.idle.summary().1.packets, arrivals);
    }
}

#[test]
fn what_cannot_be_put_to_rest_is_not_slept_over() {
    let (mut worker, _commands) = worker(Does { restless: true, ..Does::default() });
    worker.sleep(clock::now(), Instant::NEVER);
    assert_eq!((worker.counters.sleeps.get(), worker.counters.woken_by_packet.get()), (1, 0));
}
