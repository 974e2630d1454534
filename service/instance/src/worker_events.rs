//! Reads the events of the workers.

use twinpath_lifecycle::Event;
use twinpath_port::PortId;
use twinpath_serve::{Panicked, ServeEvent};
use twinpath_worker::Event as WorkerEvent;

use super::Instance;
use crate::serving::WorkerHandle;

impl Instance {
    /// Handles all events that the workers, and the stand-in, have sent.
    pub(super) fn take_events(&mut self) {
        for at in 0..=self.workers.len() {
            if let Some(worker) = self.worker_at(at) {
                worker.events.drain();
            }
            while let Some((worker, event)) =
                self.worker_at(at).and_then(|it| it.events.take().map(|event| (it, event)))
            {
                match event {
                    WorkerEvent::Detached(queue) => worker.close(queue),
                    WorkerEvent::Attached(id) => self.steer_to(id),
                    WorkerEvent::Untapped(tap) => drop(tap),
                    // In an instance with services, all queues are of one port.
                    WorkerEvent::PortRemoved(_) => {}
                    WorkerEvent::Engine(ServeEvent::Resolve { peer, local }) => {
                        self.mirror.ask(peer, Some(local))
                    }
                    WorkerEvent::Engine(ServeEvent::Reclaim(addresses)) => drop(addresses),
                    WorkerEvent::Engine(ServeEvent::Begun) => {
                        self.begun += usize::from(at < self.workers.len());
                    }
                    WorkerEvent::Engine(ServeEvent::Prepared { number, outcome, .. }) => {
                        self.reloads.prepared(number, at, outcome);
                    }
                    WorkerEvent::Engine(ServeEvent::Switched { .. }) => self.reloads.switched(),
                    WorkerEvent::Engine(ServeEvent::Listed(listing)) => self.listed(at, &listing),
                    WorkerEvent::Engine(ServeEvent::Left { part, .. }) => self.left(at, part),
                    WorkerEvent::Engine(ServeEvent::ListenersClosed) => {
                        self.events.push_back(Event::ListenersClosed);
                    }
                    WorkerEvent::Engine(ServeEvent::Drained) => {
                        self.events.push_back(Event::ServiceDrained);
                    }
                    WorkerEvent::Engine(ServeEvent::Panicked(Panicked { callback, why, count })) => {
                        tracing::error!(
                            "worker {at}: the service panicked in `{callback}`: {why}; what it was called for is dropped or closed, and \
                             counted as handler_failed ({count} so far since this was last said)"
                        );
                    }
                }
            }
        }
    }

    fn steer_to(&mut self, id: PortId) {
        let Some(attachment) = &mut self.interface.attachment else { return };
        if let Err(error) = attachment.serving(id) {
            tracing::error!("queue {} of {} stays with the kernel: {error}", id.queue, self.interface.name);
        }
    }

    /// The worker with this number; the stand-in's number follows those of the workers.
    fn worker_at(&mut self, at: usize) -> Option<&mut WorkerHandle> {
        match self.workers.get_mut(at) {
            None => self.stand_in.as_mut().map(|stand_in| &mut stand_in.worker),
            worker => worker,
        }
    }
}
