//! Handles changes of either side of an exception port.

use twinpath_attach::mirror::Event;
use twinpath_attach::mirror::table::Link;
use twinpath_attach::path::device;
use twinpath_observe::report;
use twinpath_worker::Event as WorkerEvent;

use super::links::state;
use super::sides::Action;
use super::start::{hold_port, kernel_addresses};
use super::{Bridge, Carrier, Location};
use crate::engine::Side;

impl Bridge {
    /// Closes queues that the workers return. If a queue of the kernel's interface is returned without a
    /// request, the interface is gone.
    pub(super) fn take_events(&mut self) {
        let mut gone = false;
        for worker in &mut self.workers {
            worker.events.drain();
            while let Some(event) = worker.events.take() {
                if let WorkerEvent::Detached(queue) = event {
                    gone |= Side::of(queue.id()) == Side::Kernel;
                    worker.close(queue);
                }
            }
        }
        if gone && self.kernel.place != Location::Nowhere && !self.kernel.handle.exists() {
            self.kernel_removed();
        }
    }

    pub(super) fn kernel_says(&mut self, event: Event) {
        match event {
            Event::Link(link) if self.port.ifindex == Some(link.ifindex) => self.settle(),
            Event::Link(link) if self.is_kernel(link.ifindex) => self.settle(),
            Event::Link(link) if self.port.ifindex.is_none() && link.name == self.port.name => {
                self.port_is_back(&link);
            }
            Event::Link(link) if self.kernel.place == Location::Elsewhere => self.kernel_may_be_back(&link),
            Event::Renamed { ifindex, to, .. } if self.port.ifindex == Some(ifindex) => {
                tracing::info!("{} is now called {to}", self.port.name);
                self.port.name = to;
            }
            Event::Renamed { ifindex, to, .. } if self.is_kernel(ifindex) => {
                tracing::info!("{} is now called {to}", self.kernel.name);
                self.kernel.name = to;
            }
            Event::LinkGone { ifindex, .. } if self.port.ifindex == Some(ifindex) => {
                self.port_is_gone(ifindex)
            }
            Event::LinkGone { ifindex, .. } if self.is_kernel(ifindex) => {
                if self.kernel.handle.exists() {
                    self.kernel_moved();
                } else {
                    self.kernel_removed();
                }
            }
            // The name that an interface could not get may be free now.
            Event::LinkGone { .. } | Event::Renamed { .. } if self.kernel.place == Location::Nowhere => {
                self.make_kernel();
            }
            Event::Addresses { ifindex } if self.port.ifindex == Some(ifindex) => {
                self.warn_of_addresses(ifindex)
            }
            _ => {}
        }
    }

    fn is_kernel(&self, ifindex: u32) -> bool {
        self.kernel.place == Location::Home && self.kernel.ifindex == ifindex
    }

    fn warn_of_addresses(&self, ifindex: u32) {
        for (address, prefix) in kernel_addresses(self.mirror.tables(), ifindex) {
            let (port, kernel) = (&self.port.name, &self.kernel.name);
            tracing::warn!("{address}/{prefix} on {port} is out of reach there: move it to {kernel}");
        }
    }

    fn port_is_gone(&mut self, ifindex: u32) {
        tracing::warn!("{} is gone: {} has no carrier until it is back", self.port.name, self.kernel.name);
        if let Err(error) = self.exclusive.release() {
            tracing::error!("{error}");
        }
        self.port.ifindex = None;
        (self.port.carrier, self.port.fails_open) = (Carrier::Workers, false);
        self.port.sockets.clear();
        for worker in &mut self.workers {
            worker.detach(ifindex);
        }
        self.settle();
    }

    fn port_is_back(&mut self, link: &Link) {
        let held = hold_port(&mut self.exclusive, link, self.plan.queues);
        match held.and_then(|()| self.attach_port(link)) {
            Ok(()) => tracing::info!("{} is back", link.name),
            Err(error) => {
                // The kernel's stack gets the device; otherwise nobody would have it.
                let _ = self.exclusive.release();
                tracing::error!("{} is back, but not in use: {error}", link.name);
            }
        }
        self.settle();
    }

    /// The kernel's interface continues to work in another namespace: the queues are descriptors.
    fn kernel_moved(&mut self) {
        tracing::warn!(
            "{} was moved to another network namespace: frames go on; what is changed there (MTU, address, up or down) is \
             no longer mirrored to {}, whose carrier still is",
            self.kernel.name,
            self.port.name
        );
        self.kernel.place = Location::Elsewhere;
        self.settle();
    }

    /// A link that appeared, or changed, may be the kernel's interface that was moved back.
    fn kernel_may_be_back(&mut self, link: &Link) {
        let ours =
            self.kernel.handle.name().is_ok_and(|name| name == link.name) && self.kernel.handle.is_here();
        if ours {
            tracing::info!("{} is back in this network namespace", link.name);
            self.kernel.name.clone_from(&link.name);
            (self.kernel.ifindex, self.kernel.place) = (link.ifindex, Location::Home);
            self.settle();
        }
    }

    fn kernel_removed(&mut self) {
        for worker in &mut self.workers {
            worker.detach(self.kernel.ifindex);
        }
        self.kernel.place = Location::Nowhere;
        self.choose_carrier();
        tracing::warn!("{} was removed by somebody else: making it again", self.kernel.name);
        self.make_kernel();
    }

    fn make_kernel(&mut self) {
        match self.make_kernel_again() {
            Ok(()) => {
                let name = &self.kernel.name;
                tracing::warn!(
                    "{name} is there again, without addresses: the former ones went with it; add them anew"
                );
                self.settle();
            }
            Err(error) => tracing::error!("cannot make {} again: {error}", self.kernel.name),
        }
    }

    /// Reads both links and applies the changes that follow, until there are none.
    pub(super) fn settle(&mut self) {
        // Each round is either the last one, or follows a change made during the previous one.
        for _ in 0..8 {
            self.seen = [self.link(Side::Port), self.link(Side::Kernel)];
            let [port, kernel] =
                [Side::Port, Side::Kernel].map(|side| self.seen[side as usize].as_ref().and_then(state));
            let actions = self.sides.step(port, kernel);
            if actions.is_empty() {
                break;
            }
            for action in actions {
                self.act(action);
            }
        }
        self.choose_carrier();
        for side in [Side::Port, Side::Kernel] {
            self.devices[side as usize] = match &self.seen[side as usize] {
                Some(link) => report::Device { carrier: link.running, ..device::look(&link.name) },
                None => report::Device::default(),
            };
        }
    }

    /// Lets frames cross within the kernel if that is requested and possible, always or while a worker is
    /// stuck. The same words decide which frames a worker's socket takes, so no frame crosses twice.
    fn choose_carrier(&mut self) {
        if self.exclusive.ifindex().is_none() {
            return;
        }
        let (kernel, is_home) = (self.kernel.ifindex, self.kernel.place == Location::Home);
        let crossing = match self.plan.carrier {
            Carrier::Kernel if is_home => self.exclusive.cross_to(kernel).map(|()| (Carrier::Kernel, true)),
            Carrier::Workers if is_home && !self.plan.fail_open.is_zero() => {
                self.exclusive.cross_when_stuck(kernel).map(|()| (Carrier::Workers, true))
            }
            _ => self.exclusive.cross_no_more().map(|()| (Carrier::Workers, false)),
        };
        let (carrier, fails_open) = crossing.unwrap_or_else(|error| {
            // An event reports that an interface has just gone, and it is handled then.
            tracing::warn!("frames cannot cross within the kernel: {error}; workers carry them");
            if let Err(error) = self.exclusive.cross_no_more() {
                tracing::error!("{error}");
            }
            (Carrier::Workers, false)
        });
        let former = (self.port.carrier, self.port.fails_open);
        (self.port.carrier, self.port.fails_open) = (carrier, fails_open);
        if former.0 != carrier {
            tracing::debug!("{} carries frames of {}", carrier, self.port.name);
        }
        // If the kernel never could do it, `show` and the first log lines have said so.
        if former.1 && !fails_open {
            let (port, why) = (&self.port.name, self.why_not_open());
            tracing::warn!("workers carry frames of {port}, and nobody does while one is stuck: {why}");
        }
    }

    fn link(&self, side: Side) -> Option<Link> {
        match side {
            Side::Port => self.links.get(self.port.ifindex?),
            Side::Kernel if self.kernel.place == Location::Home => self.links.get(self.kernel.ifindex),
            Side::Kernel => None,
        }
    }

    fn act(&mut self, action: Action) {
        let mut next = Some(action);
        while let Some(action) = next.take() {
            let outcome = match action {
                Action::Mtu(side, mtu) => self.links.set_mtu(self.ifindex(side), mtu),
                Action::Address(side, mac) => self.links.set_mac(self.ifindex(side), mac),
                Action::Up(side, up) => self.links.set_up(self.ifindex(side), up),
                Action::Carrier(carrier) => {
                    // This fails only for an interface that is gone, which an event reports.
                    let _ = self.kernel.handle.set_carrier(carrier);
                    Ok(())
                }
            };
            let Err(error) = outcome else { continue };
            let side = match action {
                Action::Mtu(side, _) | Action::Address(side, _) | Action::Up(side, _) => side,
                Action::Carrier(_) => Side::Kernel,
            };
            let now = self.link(side);
            // A link that is gone takes no change, and an event reports that.
            if now.is_some() {
                tracing::warn!("{} refuses {}: {error}", self.name_of(side), in_words(action));
            }
            next = self.sides.refused(action, now.as_ref().and_then(state));
        }
    }

    fn ifindex(&self, side: Side) -> u32 {
        match side {
            Side::Port => self.port.ifindex.unwrap_or(0),
            Side::Kernel => self.kernel.ifindex,
        }
    }
}

fn in_words(action: Action) -> String {
    match action {
        Action::Mtu(_, mtu) => format!("an MTU of {mtu}"),
        Action::Address(_, mac) => format!("the address {mac}"),
        Action::Up(_, up) => format!("to be set {}", if up { "up" } else { "down" }),
        Action::Carrier(_) => "a change of carrier".to_owned(),
    }
}
