//! Handles the kernel's announcements about the interface.

use twinpath_attach::mirror::Event;
use twinpath_attach::mirror::table::Link;
use twinpath_config::Path;
use twinpath_lifecycle::Event as PhaseEvent;
use twinpath_serve::ServeCommand;
use twinpath_worker::Command;

use super::Instance;

impl Instance {
    pub(super) async fn kernel_says(&mut self, event: Event) {
        match event {
            Event::Egress(update) => {
                if let Some(attachment) = &mut self.interface.attachment
                    && let Err(error) = attachment.egress_changed(&update)
                {
                    tracing::warn!("workers answer a peer alone: {error}");
                }
                for worker in &mut self.workers {
                    worker.tell_services(ServeCommand::Egress(update));
                }
            }
            Event::TooBig(too_big) => {
                // Anybody can send such messages, and most are about other connections of this host: no worker wakes.
                let flows = self.connections.flows();
                let worker = flows.and_then(|flows| flows.worker_of(too_big.local, too_big.remote));
                if let Some(worker) = worker.and_then(|worker| self.workers.get_mut(worker as usize)) {
                    worker.tell_services(ServeCommand::TooBig(too_big));
                }
            }
            Event::Link(link) if self.interface.ifindex == Some(link.ifindex) => {
                // The kernel announces a changed offload in the same way.
                (self.interface.device_due, self.interface.queues_due) = (true, true);
                self.tell_link(false);
                self.look_at_foreign_programs();
                self.retarget();
                self.look_at_bypassed();
                self.addresses_changed();
            }
            Event::SourceCheck { ifindex } if ifindex.is_none() || ifindex == self.interface.ifindex => {
                self.look_at_bypassed();
            }
            Event::TrafficControl { ifindex } if self.interface.ifindex == Some(ifindex) => {
                self.stay_in_front();
            }
            Event::Link(link) if self.interface.ifindex.is_none() && link.name == self.interface.name => {
                self.come_back(link.ifindex);
            }
            Event::LinkGone { ifindex, .. } if self.interface.ifindex == Some(ifindex) => {
                self.go_away().await;
                self.addresses_changed();
            }
            Event::Renamed { ifindex, to, .. } if self.interface.ifindex == Some(ifindex) => {
                tracing::info!("interface {} is now called {to}", self.interface.name);
                self.interface.name = to;
            }
            Event::Routes if self.interface.may_keep => {
                for worker in &mut self.workers {
                    worker.tell_services(ServeCommand::Routes);
                }
            }
            // An event of any link counts: a packet that arrives on the interface may be for the address of
            // another one.
            Event::Addresses { .. } | Event::Link(_) | Event::LinkGone { .. } => self.addresses_changed(),
            _ => {}
        }
    }

    /// The addresses of the interface, or others at which the kernel accepts packets that arrive there, may
    /// have changed: updates the claims.
    pub(super) fn retarget(&mut self) {
        let addresses = self.claimed_addresses();
        let Some(ifindex) = self.interface.ifindex else { return };
        let Some(mac) = self.mirror.tables().link(ifindex).and_then(|link| link.mac) else { return };
        let Some(attachment) = &mut self.interface.attachment else { return };
        let target = attachment.target();
        if target.mac == mac && target.addresses == addresses {
            return;
        }
        if let Err(error) = attachment.retarget(mac, addresses) {
            tracing::error!("claims on {} stay as they were: {error}", self.interface.name);
        }
    }

    /// The interface was removed or moved to another namespace, and its programs are gone. The kernel path
    /// continues.
    async fn go_away(&mut self) {
        let rest = self.rest();
        tracing::warn!("interface {} is gone; {rest}", self.interface.name);
        self.on(PhaseEvent::InterfaceGone).await;
        // Also if the programs were off already, to be attached again soon.
        self.move_connections();
        self.interface.ifindex = None;
        self.interface.choice.path = Path::Kernel;
        "the interface is gone".clone_into(&mut self.interface.choice.why);
    }

    /// A phrase for logs: what still works without a fast path.
    pub(super) fn rest(&self) -> &'static str {
        match self.plan.ethertype() {
            Some(_) => "frames are not served until it is back: the kernel has no socket for them",
            None => "serving goes on through the kernel",
        }
    }

    /// Takes the programs off. `for_good`: not to attach again at once, so that connections on the fast path go on
    /// in the kernel.
    pub(super) fn detach(&mut self, ifindex: u32, for_good: bool) {
        self.reflexes.add(self.interface.attachment.as_ref());
        // The programs come off first, so that the kernel serves, and no frame is steered to a socket that is
        // about to close.
        (self.interface.attachment, self.interface.stuck_said) = (None, None);
        self.mirror.serve_on([]);
        if for_good {
            self.move_connections();
        }
        for worker in &mut self.workers {
            worker.detach(ifindex);
        }
    }

    /// An interface with the same name has appeared.
    fn come_back(&mut self, ifindex: u32) {
        self.interface.ifindex = Some(ifindex);
        self.events.push_back(PhaseEvent::InterfaceBack);
        self.addresses_changed();
    }

    /// Tells the workers the changes of the interface; with `anew` its whole state, for queues that have just
    /// been attached.
    pub(super) fn tell_link(&mut self, anew: bool) {
        let Some(ifindex) = self.interface.ifindex else { return };
        let Some(link) = self.mirror.tables().link(ifindex).map(Link::for_ports) else { return };
        if self.interface.link_told.replace(link) == Some(link) && !anew {
            return;
        }
        if let Some(attachment) = &self.interface.attachment {
            attachment.mtu_changed(link.mtu);
        }
        for worker in &mut self.workers {
            worker.tell(Command::LinkChanged { ifindex, link });
        }
    }
}
