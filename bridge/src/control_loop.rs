//! The control loop of an exception port: its events, the requests that it answers, and its end.

use std::os::unix::net::UnixStream;

use twinpath_attach::mirror::Event;
use twinpath_host::machine::Answer;
use twinpath_host::{Controlled, Supervised, notify, stop_all};
use twinpath_observe::command::Request;
use twinpath_observe::report::Report;
use twinpath_sys::race;
use twinpath_time::Duration;

use super::{Bridge, BridgeError};

/// The answer to a request to reload the configuration.
const NO_RELOAD: &str = "there is no file to read again: a bridge is told everything on its command line; restart it with what is to change";

/// The answer to a request that would need the client's connection.
const NO_CONNECTIONS: &str = "a bridge has no connections of its own: end it with a signal";

/// An event of the control loop.
pub(super) enum Woken {
    Mirror(Event),
    Stuck,
}

impl Controlled for Bridge {
    type Event = Woken;
    type Error = BridgeError;

    const NAME: &'static str = "the exception port";
    const TAKES_CONNECTIONS: bool = false;

    fn workers(&mut self) -> impl Iterator<Item = &mut dyn Supervised> {
        self.workers.iter_mut().map(|worker| worker as &mut dyn Supervised)
    }

    async fn next(&mut self) -> Result<Woken, BridgeError> {
        race!(async { Ok(Woken::Mirror(self.mirror.next().await?)) }, async {
            self.stuck.is_due().await;
            Ok(Woken::Stuck)
        },)
    }

    async fn happened(&mut self, event: Woken) -> bool {
        match event {
            Woken::Mirror(event) => self.kernel_says(event),
            Woken::Stuck => self.look_at_stuck(),
        }
        true
    }

    async fn read_workers(&mut self) {
        self.take_events();
    }

    async fn request(&mut self, request: Request, answer: Answer) {
        // The client may have closed its connection.
        drop(answer.send(self.answer(&request)));
    }

    async fn connection(&mut self, _: Request, stream: UnixStream) {
        drop(stream);
    }

    fn report(&mut self) -> Report {
        self.report_all()
    }

    fn scrape(&mut self) -> Report {
        self.report_all()
    }

    async fn reload(&mut self) -> Result<Vec<String>, String> {
        notify::reloading();
        tracing::error!("not reloaded: {NO_RELOAD}");
        notify::ready();
        Err(NO_RELOAD.to_owned())
    }

    async fn end(&mut self, _within: Option<Duration>) -> bool {
        false
    }

    async fn finish_turn(&mut self) -> Result<bool, BridgeError> {
        Ok(true)
    }
}

impl Bridge {
    fn answer(&mut self, request: &Request) -> Result<serde_json::Value, String> {
        match request {
            Request::Show(topic) => topic.of(&self.report()),
            Request::Sockets | Request::StandBy | Request::Drain(_) => Err(NO_CONNECTIONS.to_owned()),
            Request::Reload => Err(NO_RELOAD.to_owned()),
            Request::Port(_) => Err(twinpath_observe::command::NO_SWITCH.to_owned()),
            Request::Connections(_) => Err(twinpath_observe::command::NO_SERVICES.to_owned()),
            Request::Measure => Err("a bridge measures what waking up costs at its start only".to_owned()),
            Request::Capture(_) => {
                Err("a bridge has no captures: tcpdump on the device sees all it carries".to_owned())
            }
            Request::Set(change) => {
                let (mode, goal) = (change.mode, change.goal());
                for worker in change.meant(&mut self.workers)? {
                    worker.set(mode, goal);
                    change.turn_times.into_iter().for_each(|on| worker.time_turns(on));
                }
                Ok(serde_json::json!({}))
            }
        }
    }

    /// Ends the workers; then the kernel has the device again.
    pub(super) fn stop(mut self) -> Vec<String> {
        self.look_at_stuck();
        let left = stop_all(self.workers);
        drop((self.port, self.exclusive));
        left
    }
}
