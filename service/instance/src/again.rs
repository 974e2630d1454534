//! Attaches an interface again: after it has come back, after its queues have changed, or once claims are
//! permitted again.

use twinpath_attach::mirror::table::Link;
use twinpath_attach::path::facts;
use twinpath_attach::{learn_facts, tidy};
use twinpath_config::Path;

use super::{Instance, InstanceError};
use crate::hold::hold_frames;

impl Instance {
    /// The number of queues that workers have yet to return.
    pub(super) fn leaving(&self) -> usize {
        self.workers.iter().map(|worker| worker.leaving()).sum()
    }

    /// Attaches if that is due, once the workers have returned every former queue and it is closed: the kernel
    /// gives a queue to one socket at a time.
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
            learn_facts(&self.mirror, link, self.plan.ethertype().is_none(), self.plan.attach);
        match self.choose_path(&[]) {
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
        match self.attach_best().await {
            Ok(()) if self.interface.choice.path == Path::Kernel => tracing::error!("{}", self.rest()),
            Ok(()) => tracing::info!("interface {} is back on {}", link.name, self.interface.choice.path),
            Err(error) => {
                tracing::error!("{error}; {}", self.rest());
                self.interface.choice.path = Path::Kernel;
                self.interface.choice.why = error.to_string();
            }
        }
    }

    /// Claims the EtherTypes again, because the interface that has come back may have another index.
    fn hold_frames_again(&mut self, ifindex: u32) -> Result<(), InstanceError> {
        // The former claim is dropped first, because an EtherType can be claimed only once.
        self.interface.frame_claims.clear();
        self.interface.frame_claims = hold_frames(&self.plan.services, &self.plan.interface, ifindex)?;
        Ok(())
    }

    /// On the XDP path every queue has a socket, so a change of their number needs another attachment. Until
    /// then the kernel serves a queue without a socket.
    pub(super) async fn look_at_queues(&mut self) {
        if !std::mem::take(&mut self.interface.queues_due) {
            return;
        }
        let Some(ifindex) = self.interface.ifindex else { return };
        let Some(link) = self.mirror.tables().link(ifindex).cloned() else { return };
        let attachment = self.interface.attachment.as_ref();
        let Some(attachment) = attachment.filter(|attachment| attachment.path().is_xdp()) else { return };
        let Some((rx_queues, _)) = facts::queues(&link.name) else { return };
        if rx_queues == attachment.queues() {
            return;
        }
        tracing::info!("{} has {rx_queues} receive queues now: attaching anew", link.name);
        self.detach(ifindex);
        self.interface.attach_due = true;
    }
}
