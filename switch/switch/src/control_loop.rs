//! The control loop of a switch: what wakes it, which commands it takes, and how it ends.

use std::io::Write as _;
use std::os::unix::net::UnixStream;

use twinpath_host::machine::Answer;
use twinpath_host::{Controlled, Supervised, stop_all};
use twinpath_observe::command::{Capture, Request, Topic};
use twinpath_observe::report::Report;
use twinpath_observe::together::first_of;
use twinpath_sys::event_loop::{sleep_until, yield_now};
use twinpath_sys::race;
use twinpath_time::{Duration, Instant};

use super::{SwitchError, Switching};
use crate::homes::{Heard, HomeAt, HomeError};
use crate::offload::Learned;
use crate::openflow_control::OpenFlow;

/// Why it gives no client its connection.
const NO_CONNECTIONS: &str = "a switch has no connections of its own: end it with a signal";

/// What woke the loop.
pub(super) enum Woken {
    Heard(HomeAt, Heard),
    /// Controllers, or a deadline of OpenFlow.
    OpenFlow,
    /// Entries of learned addresses are to be looked after.
    Learned,
    /// A port for another process, by its place.
    Port(usize),
    /// More of the MAC table can be swept.
    Sweep,
    /// The thread of that capture has ended.
    CaptureEnded(u32),
}

impl Controlled for Switching {
    type Event = Woken;
    type Error = SwitchError;

    const NAME: &'static str = "the switch";
    const TAKES_CONNECTIONS: bool = true;

    fn workers(&mut self) -> impl Iterator<Item = &mut dyn Supervised> {
        self.workers.iter_mut().map(|worker| worker as &mut dyn Supervised)
    }

    async fn next(&mut self) -> Result<Woken, SwitchError> {
        let ports = self.ports.iter().enumerate().filter_map(|(at, port)| Some((at, port.on.due()?)));
        let due = first_of(ports.map(async |(at, due)| {
            due.await;
            at
        }));
        let sweep = async {
            if self.sweep_from.is_none() {
                std::future::pending::<()>().await;
            }
            yield_now().await;
        };
        let openflow = async {
            match &mut self.openflow {
                Some(openflow) => openflow.wait().await,
                None => std::future::pending().await,
            }
        };
        let learned = self.learned.as_ref().map_or(Instant::NEVER, Learned::deadline);
        race!(
            async {
                sleep_until(learned).await;
                Ok(Woken::Learned)
            },
            async {
                openflow.await;
                Ok(Woken::OpenFlow)
            },
            async {
                let (home, heard) = self.homes.next().await.map_err(HomeError::from)?;
                Ok(Woken::Heard(home, heard))
            },
            async { Ok(Woken::Port(due.await)) },
            async {
                sweep.await;
                Ok(Woken::Sweep)
            },
            async {
                match self.ended.1.recv().await {
                    Some(id) => Ok(Woken::CaptureEnded(id)),
                    None => std::future::pending().await,
                }
            },
        )
    }

    async fn happened(&mut self, event: Woken) -> bool {
        match event {
            Woken::Heard(home, Heard::Kernel(event)) => self.kernel_says(home, event),
            Woken::Heard(home, Heard::Stuck) => self.worker_is_stuck(home),
            Woken::Heard(_, Heard::Xdp) => self.ports_changed = true,
            Woken::OpenFlow => self.with_openflow(OpenFlow::turn),
            Woken::Learned => {
                self.with_learned(|learned, now, snapshot| learned.look_after(now, snapshot));
            }
            Woken::Port(at) => self.step(at),
            Woken::Sweep => self.sweep(),
            Woken::CaptureEnded(id) => {
                self.captures.ended(id, &mut self.workers);
                self.captures_changed();
            }
        }
        true
    }

    async fn read_workers(&mut self) {
        self.take_events();
    }

    async fn request(&mut self, request: Request, answer: Answer) {
        match request {
            Request::Port(change) => self.change_port(&change, answer).await,
            Request::Reload => {
                let outcome = self.read_again().await;
                self.answer_later(outcome, answer);
            }
            // The client may be gone by now.
            request => drop(answer.send(self.answer(&request))),
        }
    }

    async fn connection(&mut self, request: Request, mut stream: UnixStream) {
        let outcome = match request {
            Request::Capture(wish) => self.capture(&wish, &stream),
            _ => Err(NO_CONNECTIONS.to_owned()),
        };
        if let Err(sentence) = outcome {
            // A line fits into the buffer of a connection that nothing was written to, unless the client has gone.
            let _ = stream.write_all(&twinpath_observe::command::refusal(&sentence));
        }
    }

    fn report(&mut self) -> Report {
        self.record_forwarded();
        self.report_all()
    }

    fn scrape(&mut self) -> Report {
        self.record_forwarded();
        self.report_all()
    }

    async fn reload(&mut self) -> Result<Vec<String>, String> {
        self.read_again().await.map(|changed| changed.lines)
    }

    async fn end(&mut self, _within: Option<Duration>) -> bool {
        false
    }

    async fn finish_turn(&mut self) -> Result<bool, SwitchError> {
        self.look_at_stuck();
        self.answer_complete();
        self.finish_openflow();
        self.finish_learned();
        Ok(true)
    }
}

impl Switching {
    fn captures_changed(&mut self) {
        let is_captured = self.captures.any();
        self.with_openflow(|openflow, _| openflow.set_captured(is_captured));
        self.finish_learned();
    }

    /// Counts what the kernel has forwarded, and notes the source addresses of those frames.
    fn record_forwarded(&mut self) {
        self.with_openflow(|openflow, _| openflow.record());
        self.with_learned(|learned, now, snapshot| {
            learned.record(now);
            learned.tell(now, snapshot);
        });
    }

    fn answer(&mut self, request: &Request) -> Result<serde_json::Value, String> {
        self.record_forwarded();
        match request {
            Request::Show(Topic::Macs) => {
                let macs = self.report_macs();
                Topic::Macs.of(&Report { macs, ..self.report_all() })
            }
            Request::Show(Topic::Flows) => {
                let flows = self.openflow.as_ref().map(OpenFlow::flows).unwrap_or_default();
                Topic::Flows.of(&Report { flows, ..self.report_all() })
            }
            Request::Show(Topic::Groups) => {
                let groups = self.openflow.as_ref().map(OpenFlow::groups).unwrap_or_default();
                Topic::Groups.of(&Report { groups, ..self.report_all() })
            }
            Request::Show(Topic::Meters) => {
                let meters = self.openflow.as_ref().map(OpenFlow::meters).unwrap_or_default();
                Topic::Meters.of(&Report { meters, ..self.report_all() })
            }
            Request::Show(topic) => topic.of(&self.report_all()),
            Request::Sockets | Request::StandBy | Request::Drain(_) | Request::Capture(_) => {
                Err(NO_CONNECTIONS.to_owned())
            }
            Request::Reload | Request::Port(_) => Err("it is answered when it is complete".to_owned()),
            Request::Connections(_) => Err(twinpath_observe::command::NO_SERVICES.to_owned()),
            Request::Measure => Err("a switch measures what waking up costs at its start only".to_owned()),
            Request::Set(change) => {
                let (mode, goal) = (change.mode, change.goal());
                for worker in change.meant(&mut self.workers)? {
                    worker.set(mode, goal);
                    change.turn_times.into_iter().for_each(|on| worker.time_turns(on));
                }
                let modes = self.workers.iter().map(|worker| (worker.number(), worker.mode()));
                Ok(twinpath_observe::command::with_notes(change.notes(modes)))
            }
        }
    }

    /// Starts a capture of a port.
    fn capture(&mut self, wish: &Capture, stream: &UnixStream) -> Result<(), String> {
        let port = self.ports.iter().find(|port| port.name.to_string() == wish.interface);
        let Some(port) = port else {
            let names: Vec<_> = self.ports.iter().map(|port| port.name.to_string()).collect();
            return Err(format!("the switch has no port {}; there is {}", wish.interface, names.join(", ")));
        };
        let (number, tell) = (port.number, self.ended.0.clone());
        let ended = move |id| {
            let _ = tell.try_send(id);
        };
        let begun = self.captures.begin(wish, Some(number), stream, &mut self.workers, |_| (), ended);
        self.captures_changed();
        begun
    }

    /// Ends the workers; the kernel then has the interfaces again. Stuck workers are not waited for, as they end with
    /// the process. Their names are returned.
    pub(super) fn stop(mut self) -> Vec<String> {
        self.look_at_stuck();
        // First, so that each frame is carried once.
        self.homes.let_all_go();
        self.captures.end_all();
        let left = stop_all(self.workers.drain(..));
        for at in 0..self.ports.len() {
            self.end_thread(at);
            self.ports[at].on.release();
        }
        left
    }
}
