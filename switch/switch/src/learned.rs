//! The part of a switch without tables that handles frames which the kernel forwards between learned addresses.

use crate::engine::{SAMPLES_MAX, Sample, SwitchCommand};
use twinpath_forwarding::learning::Snapshot;
use twinpath_host::WorkerHandle;
use twinpath_sys::clock;
use twinpath_time::Instant;
use twinpath_worker::Command;

use super::Switching;
use crate::homes::HomeOffload;
use crate::offload::Learned;

impl Switching {
    /// Does something with them, if there are any.
    pub(super) fn with_learned(&mut self, what: impl FnOnce(&mut Learned, Instant, &Snapshot)) {
        if let Some(learned) = &mut self.learned {
            what(learned, clock::now(), &self.snapshots.current);
        }
    }

    /// A worker has forwarded a frame. Its memory goes back to it.
    pub(super) fn sampled(&mut self, worker: usize, mut sample: Box<Sample>) {
        let mut is_new = false;
        self.with_learned(|learned, now, snapshot| {
            is_new = learned.sampled(now, snapshot, sample.in_port as u16, sample.head(), sample.vlan);
        });
        sample.was_useless = !is_new;
        self.workers[worker].tell(Command::Engine(SwitchCommand::LendSample(sample)));
    }

    /// After other events: ports may have changed, and what has workers forward all frames.
    pub(super) fn finish_learned(&mut self) {
        if self.learned.is_none() {
            return;
        }
        if std::mem::take(&mut self.ports_changed) {
            self.tell_learned_of_ports();
        }
        let is_suspended = self.captures.any()
            || !self.snapshots.is_settled()
            // The bridge that carries the frames of a stuck worker learns for itself, and does not report it.
            || self.workers.iter().any(WorkerHandle::is_stuck);
        self.with_learned(|learned, now, snapshot| learned.suspend(is_suspended, now, snapshot));
    }

    fn tell_learned_of_ports(&mut self) {
        let offloads = self.homes.take_offloads();
        let ports: Vec<_> = self.ports.iter().filter(|port| !port.removed).collect();
        let ports: Vec<_> = ports.iter().map(|port| (port.number.into(), self.kernel_port(port))).collect();
        let Some(learned) = &mut self.learned else { return };
        let (now, snapshot) = (clock::now(), &self.snapshots.current);
        for HomeOffload { home, offload, .. } in offloads {
            learned.add(home, offload);
        }
        learned.set_ports(&ports, now, snapshot);
        if learned.begins() {
            for worker in &mut self.workers {
                for _ in 0..SAMPLES_MAX {
                    worker.tell(Command::Engine(SwitchCommand::LendSample(Box::default())));
                }
            }
        }
    }
}
