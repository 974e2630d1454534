use super::*;
use crate::mailbox::mailbox;

/// Never has anything to do.
struct Nothing;

impl Engine for Nothing {
    type Command = ();
    type Event = ();

    fn start(&mut self, _: Instant, _: &mut Io<'_, ()>) -> Result<(), Errno> {
        Ok(())
    }

    fn receive(&mut self, _: Instant, _: usize, _: &mut Burst, _: &mut Io<'_, ()>) {}

    fn ready(&mut self, _: Instant, _: u32, _: bool, _: &mut Io<'_, ()>) {}

    fn run(&mut self, _: Instant, _: &mut Io<'_, ()>) -> bool {
        false
    }

    fn next_deadline(&self) -> Instant {
        Instant::NEVER
    }

    fn command(&mut self, _: Instant, (): (), _: &mut Io<'_, ()>) {}
}

#[test]
fn a_signal_that_comes_after_its_message_was_taken_ends_one_sleep_and_no_more() {
    let (commands, inbox) = mailbox(4).expect("eventfd");
    let (outbox, _events) = mailbox(4).expect("eventfd");
    let config = WorkerConfig { idle: IdleConfig::default() };
    let (pool, counters) = (Pool::new(64).expect("memory"), Arc::new(WorkerCounters::default()));
    let mut worker = Worker::new(&config, Nothing, pool, inbox, outbox, counters).expect("descriptors");
    commands.signal_late();
    worker.sleep(clock::now(), Instant::NEVER);
    assert!(worker.sleeper.look().is_empty(), "the next sleep lasts");
}
