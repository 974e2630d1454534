//! Attaching the interface again: once it is back, once its queues are others, or once nothing speaks against claims any more.

use twinpath_attach::{learn_facts, tidy};
use twinpath_config::Path;
use twinpath_hold::hold_frames;
use twinpath_mirror::table::Link;
use twinpath_path::choose::choose_without;
use twinpath_path::facts;

use super::{Instance, InstanceError};

impl Instance {
    /// Queues that workers have yet to give back.
    pub(super) fn leaving(&self) -> usize {
        self.workers.iter().map(|worker| worker.leaving()).sum()
    }

    /// Attaches, if that is due, once every former queue has come back and is closed: the kernel gives a queue to one
    /// socket at a time.
    pub(super) async fn attach_when_drained(&mut self) {
        if !self.interface.attach_due || self.leaving() > 0 || self.stands_aside() {
            return;
        }
        self.interface.attach_due = false;
        let link = self.interface.ifindex.and_then(|ifindex| self.mirror.tables().link(ifindex)).cloned();
        if let Some(link) = link {
            self.attach_again(&link).await;
        }
    }

    async fn attach_again(&mut self, link: &Link) {
        tidy(link);
        self.interface.facts =
            learn_facts(&self.mirror, link, self.plan.ethertype().is_none(), self.plan.attach).await;
        match choose_without(&self.interface.facts, self.plan.path, &self.interface.fallback.ruled_out) {
            // The pools were sized at start, for another path.
            Ok(choice) if choice.path.is_xdp() && !self.pools_for_xdp => {
                self.interface.choice = choice;
                self.interface.choice.path = Path::Packet;
                "the frame memory taken at start suits the packet path only; restart to change that"
                    .clone_into(&mut self.interface.choice.why);
            }
            Ok(choice) => self.interface.choice = choice,
            Err(refusal) => {
                tracing::error!("{refusal}; {}", self.rest());
                self.interface.choice.path = Path::Kernel;
                self.interface.choice.why = refusal.to_string();
            }
        }
        if self.interface.choice.path == Path::Kernel || self.is_held_back() {
            return;
        }
        if let Err(held) = self.hold_frames_again(link.ifindex) {
            tracing::error!("{held}");
            self.interface.choice.path = Path::Kernel;
            self.interface.choice.why = held.to_string();
            return;
        }
        match self.attach().await {
            Ok(()) => tracing::info!("interface {} is back on {}", link.name, self.interface.choice.path),
            Err(error) => {
                tracing::error!("cannot attach to {}: {error}; {}", link.name, self.rest());
                self.interface.choice.path = Path::Kernel;
                self.interface.choice.why = format!("attaching failed: {error}");
            }
        }
    }

    /// Holds the frames on the interface as it is now: its index may be another one.
    fn hold_frames_again(&mut self, ifindex: u32) -> Result<(), InstanceError> {
        // First let go: no process can hold them twice.
        self.interface.frame_claims.clear();
        self.interface.frame_claims = hold_frames(&self.plan.services, &self.plan.interface, ifindex)?;
        Ok(())
    }

    /// On the XDP path every queue has a socket: if their number changed, attach anew. Until then the kernel serves a queue without one.
    pub(super) async fn look_at_queues(&mut self) {
        if !std::mem::take(&mut self.interface.queues_due) {
            return;
        }
        let Some(ifindex) = self.interface.ifindex else { return };
        let Some(link) = self.mirror.tables().link(ifindex).cloned() else { return };
        let attachment = self.interface.attachment.as_ref();
        let Some(attachment) = attachment.filter(|attachment| attachment.path().is_xdp()) else { return };
        let Some((rx_queues, _)) = facts::queues(&link.name).await else { return };
        if rx_queues == attachment.queues() {
            return;
        }
        tracing::info!("{} has {rx_queues} receive queues now: attaching anew", link.name);
        self.detach(ifindex);
        self.interface.attach_due = true;
    }
}
