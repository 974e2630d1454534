//! The control loop of an instance: its events, the requests that it answers, and its end.

use std::os::unix::net::UnixStream;

use twinpath_attach::mirror::Event;
use twinpath_attach::path::Announced;
use twinpath_host::machine::Answer;
use twinpath_host::{Controlled, Supervised, flush, until_readable};
use twinpath_lifecycle::Event as PhaseEvent;
use twinpath_observe::command::{self as command, Request, Topic};
use twinpath_observe::report::Report;
use twinpath_sys::event_loop::sleep_until;
use twinpath_sys::{clock, race};
use twinpath_time::{Duration, Instant};
use twinpath_worker::Command;
use twinpath_worker::idle::Mode;

use super::{Instance, InstanceError, Message, foreign};
use crate::serving::StandIn;

/// How often to check whether the workers are at rest, so that the cost of waking up can be measured again when
/// that is due.
const REST_INTERVAL: Duration = Duration::from_secs(60);

/// An event of the control loop.
pub(super) enum Woken {
    Mirror(Event),
    Announced(Announced),
    Stuck,
    Message(Message),
    Look,
    Rest,
    Deadline,
    Progress,
    Moves,
    ListingLate,
}

/// How often it looks whether all connections have moved. A turn of a worker moves 16, in a millisecond.
const MOVES_INTERVAL: Duration = Duration::from_millis(10);

impl Controlled for Instance {
    type Event = Woken;
    type Error = InstanceError;

    const NAME: &'static str = "the instance";
    const TAKES_CONNECTIONS: bool = true;

    fn workers(&mut self) -> impl Iterator<Item = &mut dyn Supervised> {
        self.workers.iter_mut().map(|worker| &mut **worker as &mut dyn Supervised)
    }

    fn flush(&mut self) -> bool {
        self.flush_outboxes()
    }

    async fn next(&mut self) -> Result<Woken, InstanceError> {
        let (deadline, progress) = (self.lifecycle.deadline(), self.followers.due());
        let look_at = foreign::look_due(&self.interface);
        let moves = self.moves_awaited.map_or(Instant::NEVER, |_| clock::now() + MOVES_INTERVAL);
        let woken = async |due: Instant, woken| {
            sleep_until(due).await;
            Ok(woken)
        };
        race!(
            async { Ok(Woken::Mirror(self.mirror.next().await?)) },
            async {
                match self.announcements.next().await {
                    Ok(announced) => Ok(Woken::Announced(announced)),
                    Err(never) => match never {},
                }
            },
            async {
                until_readable(self.interface.stuck_said.as_ref()).await;
                Ok(Woken::Stuck)
            },
            async {
                stand_in_due(self.stand_in.as_ref()).await;
                Ok(Woken::Stuck)
            },
            async {
                match self.messages.recv().await {
                    Some(message) => Ok(Woken::Message(message)),
                    None => std::future::pending().await,
                }
            },
            woken(look_at, Woken::Look),
            woken(self.rest_at, Woken::Rest),
            woken(deadline, Woken::Deadline),
            woken(progress.unwrap_or(Instant::NEVER), Woken::Progress),
            woken(moves, Woken::Moves),
            woken(self.listings.due(), Woken::ListingLate),
        )
    }

    async fn happened(&mut self, event: Woken) -> bool {
        match event {
            Woken::Mirror(event) => self.kernel_says(event).await,
            Woken::Announced(Announced::Policies) => self.look_at_bypassed(),
            Woken::Announced(Announced::Device) => self.interface.queues_due = true,
            Woken::Stuck => self.look_at_stuck(),
            Woken::Message(message) => self.message(message).await,
            Woken::Look => self.stay_in_front(),
            Woken::Rest => {
                self.rest_at = clock::now() + REST_INTERVAL;
                self.measure_if_due();
            }
            Woken::Deadline => {
                self.look_at_cut();
                self.on(PhaseEvent::Deadline).await;
            }
            Woken::Progress => self.tell_followers(),
            // It looks after each event.
            Woken::Moves => {}
            Woken::ListingLate => self.listing_late(),
        }
        true
    }

    async fn read_workers(&mut self) {
        self.take_events();
    }

    async fn request(&mut self, request: Request, answer: Answer) {
        match request {
            Request::Measure => self.measure(Some(answer)),
            Request::Connections(which) => self.list(&which, answer),
            Request::Reload => {
                let changed = self.read_again().await;
                drop(answer.send(changed.map(|changed| serde_json::json!({ "changed": changed }))));
            }
            // The client may have closed its connection.
            request => drop(answer.send(self.answer(&request))),
        }
    }

    async fn connection(&mut self, request: Request, stream: UnixStream) {
        match request {
            Request::Capture(wish) => self.capture(&wish, stream),
            Request::Drain(command::Drain { timeout_ms }) => {
                let timeout = timeout_ms.map(|timeout| Duration::from_millis(timeout.into()));
                self.drain_by_command(timeout, stream).await;
            }
            Request::StandBy => self.standby_asks(stream).await,
            _ => {
                self.asking = Some(stream);
                self.on(PhaseEvent::SocketsAsked).await;
            }
        }
    }

    fn report(&mut self) -> Report {
        let (neighbours, config) = (self.mirror.report(), self.report_config());
        Report { neighbours, config, ..self.report_without_neighbours() }
    }

    fn scrape(&mut self) -> Report {
        self.look_at_foreign_programs();
        self.report_without_neighbours()
    }

    async fn reload(&mut self) -> Result<Vec<String>, String> {
        self.read_again().await
    }

    async fn end(&mut self, within: Option<Duration>) -> bool {
        self.stop_within(within).await
    }

    async fn finish_turn(&mut self) -> Result<bool, InstanceError> {
        self.look_at_device().await;
        self.look_at_queues().await;
        if self.lifecycle.awaits_queues() && self.leaving() == 0 && !self.is_moving() {
            self.events.push_back(PhaseEvent::QueuesReturned);
        }
        self.handle_events().await;
        match self.error.take() {
            Some(error) if self.lifecycle.is_ended() => Err(error),
            _ => Ok(!self.lifecycle.is_ended()),
        }
    }
}

async fn stand_in_due(stand_in: Option<&StandIn>) {
    match stand_in {
        Some(stand_in) => stand_in.is_due().await,
        None => std::future::pending().await,
    }
}

impl Instance {
    /// Handles the message of a task or thread.
    async fn message(&mut self, message: Message) {
        match message {
            Message::Measured(costs) => self.measured(*costs),
            Message::First(first) => self.first_is(first).await,
            Message::Unserved(found) => self.unserved(found),
            Message::Event(event) => self.on(event).await,
            Message::CaptureEnded(id) => {
                self.captures.ended(id, self.workers.iter_mut().map(|worker| &mut **worker));
                self.show_replies();
            }
        }
    }

    /// Sends the messages that wait for room in the workers' mailboxes. Returns whether none waits any more.
    pub(super) fn flush_outboxes(&mut self) -> bool {
        flush(self.everyone_mut().map(|worker| &mut **worker as &mut dyn Supervised))
    }

    fn answer(&mut self, request: &Request) -> Result<serde_json::Value, String> {
        // The kernel does not announce XDP programs that are attached by links.
        self.look_at_foreign_programs();
        match request {
            Request::Show(Topic::Config) => {
                Topic::Config.of(&Report { config: self.report_config(), ..Report::default() })
            }
            Request::Show(topic) if topic.has_neighbours() => topic.of(&self.report()),
            Request::Show(topic) => topic.of(&self.report_without_neighbours()),
            Request::Sockets | Request::StandBy | Request::Drain(_) => {
                Err("it is not answered here".to_owned())
            }
            Request::Measure | Request::Reload | Request::Connections(_) => {
                Err("it is answered when it has ended".to_owned())
            }
            Request::Port(_) => Err(command::NO_SWITCH.to_owned()),
            Request::Capture(_) => Err("a capture is not answered in a line".to_owned()),
            Request::Set(change) => {
                let (mode, goal) = (change.mode, change.goal());
                for worker in change.meant(&mut self.workers)? {
                    worker.set(mode, goal);
                    change.turn_times.into_iter().for_each(|on| worker.time_turns(on));
                }
                let modes = self.workers.iter().map(|worker| worker.mode()).enumerate();
                Ok(command::with_notes(change.notes(modes)))
            }
        }
    }

    /// Measures the cost of waking up on another thread, while the control loop continues.
    fn measure(&mut self, answer: Option<Answer>) {
        let tell = self.tell.clone();
        // The loop may have ended when the measurement ends.
        self.machine
            .measure(answer, move |costs| drop(tell.blocking_send(Message::Measured(Box::new(costs)))));
    }

    fn measure_if_due(&mut self) {
        let busy_turns = self.workers.iter().map(|worker| worker.counters.turns_busy.get()).sum();
        let at_rest = self
            .workers
            .iter()
            .all(|worker| worker.mode() != Mode::Poll && worker.counters.request_held.get() == 0);
        if self.machine.is_due(busy_turns, at_rest) {
            self.measure(None);
        }
    }

    fn measured(&mut self, costs: twinpath_worker::costs::Costs) {
        if self.machine.learnt(costs) {
            let (machine, hold) = (self.machine.figures(), self.machine.may_hold());
            for worker in &mut self.workers {
                worker.tell(Command::SetMachine(machine, hold));
            }
        }
    }
}
