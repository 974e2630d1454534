//! A switch in its control loop: what wakes it, what is asked of it, and its end.

use std::os::unix::net::UnixStream;

use futures_util::future::select_all;
use twinpath_command::Request;
use twinpath_host::{Controlled, WorkerHandle, flush, notify};
use twinpath_machine::Answer;
use twinpath_mirror::Event;
use twinpath_report::Report;
use twinpath_switch_engine::SwitchEngine;

use super::home::HomeAt;
use super::port::On;
use super::{SwitchError, Switching};

/// Why its configuration is not read again.
const NO_RELOAD: &str = "a switch cannot read its configuration again yet: restart it with what is to change";

/// Why it gives no client its connection.
const NO_CONNECTIONS: &str = "a switch has no connections of its own: end it with a signal";

/// What woke the loop.
pub(super) enum Woken {
    Kernel(HomeAt, Event),
    /// A memory port, by its place.
    Memory(usize),
    /// More of the MAC table can be swept.
    Sweep,
}

impl Controlled for Switching {
    type Engine = SwitchEngine;
    type Event = Woken;
    type Error = SwitchError;

    const NAME: &'static str = "the switch";
    const TAKES_CONNECTIONS: bool = false;

    fn workers(&self) -> impl Iterator<Item = &WorkerHandle<SwitchEngine>> {
        self.workers.iter()
    }

    fn worker_mut(&mut self, number: usize) -> &mut WorkerHandle<SwitchEngine> {
        &mut self.workers[number]
    }

    fn flush(&mut self) -> bool {
        flush(&mut self.workers)
    }

    async fn next(&mut self) -> Result<Woken, SwitchError> {
        let memories = self.ports.iter().enumerate().filter_map(|(at, port)| match &port.on {
            On::Memory(memory) => Some(Box::pin(async move {
                memory.is_due().await;
                at
            })),
            _ => None,
        });
        let memories: Vec<_> = memories.collect();
        let memory = async {
            if memories.is_empty() {
                return std::future::pending().await;
            }
            select_all(memories).await.0
        };
        let sweep = async {
            if self.sweep_from.is_none() {
                std::future::pending::<()>().await;
            }
            tokio::task::yield_now().await;
        };
        Ok(tokio::select! {
            event = self.homes.next() => {
                let (home, event) = event?;
                Woken::Kernel(home, event)
            }
            at = memory => Woken::Memory(at),
            () = sweep => Woken::Sweep,
        })
    }

    async fn happened(&mut self, event: Woken) -> bool {
        match event {
            Woken::Kernel(home, event) => self.kernel_says(home, event),
            Woken::Memory(at) => self.look_at_memory(at),
            Woken::Sweep => self.sweep(),
        }
        true
    }

    async fn read_workers(&mut self) {
        self.take_events();
    }

    async fn request(&mut self, request: Request, answer: Answer) {
        // The client may be gone by now.
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

    async fn reload(&mut self) {
        notify::reloading();
        tracing::error!("not reloaded: {NO_RELOAD}");
        notify::ready();
    }

    async fn end(&mut self) -> bool {
        false
    }

    async fn finish_turn(&mut self) -> Result<bool, SwitchError> {
        Ok(true)
    }
}

impl Switching {
    fn answer(&mut self, request: &Request) -> Result<serde_json::Value, String> {
        match request {
            Request::Show(topic) => topic.of(&self.report_all()),
            Request::Sockets | Request::StandBy | Request::Drain(_) => Err(NO_CONNECTIONS.to_owned()),
            Request::Reload | Request::Port(_) => Err(NO_RELOAD.to_owned()),
            Request::Measure => Err("a switch measures what waking up costs at its start only".to_owned()),
            Request::Capture(_) => Err("a switch has no captures yet".to_owned()),
            Request::Set(change) => {
                let (mode, goal) = (change.mode, change.goal());
                change.meant(&mut self.workers)?.iter_mut().for_each(|worker| worker.set(mode, goal));
                let modes = self.workers.iter().map(|worker| (worker.number(), worker.mode()));
                Ok(twinpath_command::with_notes(change.notes(modes)))
            }
        }
    }

    /// Ends the worker; then the kernel has the interfaces again.
    pub(super) fn stop(mut self) {
        self.workers.drain(..).for_each(WorkerHandle::stop);
        self.ports.iter_mut().for_each(super::port::Port::release);
    }
}
