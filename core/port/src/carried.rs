//! Several ports on one queue: the contract of such a queue, and the table of its ports.
//!
//! With a queue for each of 1,000 ports, each would cost a look per turn and the memory of a ring. So one queue can
//! carry many ports. Its slots say to which port a frame belongs. From there on
//! [`Meta::port`](twinpath_frame::Meta::port) says it, also for frames that are sent. A queue of a single port has
//! none of this.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::port::{Capabilities, LinkState, PortCounters, PortId};

/// Port numbers are below this. A queue that carries several ports is not itself a port; its number is this one or
/// higher.
pub const PORTS_MAX: usize = 4095;

/// One of the ports of a queue that carries several.
#[derive(Clone, Debug)]
pub struct CarriedPort {
    /// Its number, below [`PORTS_MAX`].
    pub port: u16,
    /// Kernel index of its interface, not 0.
    pub ifindex: u32,
    /// What it sends. The queue's own capabilities bound what it receives.
    pub capabilities: Capabilities,
    /// Whether frames may bypass the queueing discipline and programs at tc egress, because the interface has no
    /// queue of its own (veth).
    pub bypass_qdisc: bool,
    /// Sockets that the queue keeps even after the port is removed. Each sends for one port while the shared
    /// sockets have no room because another port's frames are stuck in the kernel.
    pub spares: Vec<Arc<OwnedFd>>,
    /// Its counters; the queue's own count only frames that belong to no port.
    pub counters: Arc<PortCounters>,
}

/// A queue that carries several ports. The worker adds and removes ports while the queue is attached; control
/// prepares each one before, and takes it down after.
///
/// As [`PortQueue`](crate::PortQueue), with these differences: `receive` sets `Meta::port` of each frame to the
/// port on which it arrived. `transmit` sends each frame through the port that `Meta::port` names, in order, and
/// drops a frame whose port is not carried (`port_down`). Events of one port are counted by the port's counters.
pub trait Carrier {
    /// The ports that it carries.
    fn ports(&self) -> &CarriedPorts;

    /// Carries this port from now on.
    ///
    /// # Errors
    /// Returns the port if the queue has no room for it, or already carries a port with this number or interface.
    fn add(&mut self, port: CarriedPort) -> Result<(), CarriedPort>;

    /// Stops carrying this port. Frames of it that are still in the ring are dropped.
    fn remove(&mut self, port: u16) -> Option<CarriedPort>;

    /// Sets the state of a port's interface. Returns what the port sends from now on; `None` if it is not carried.
    fn port_changed(&mut self, port: u16, link: LinkState) -> Option<Capabilities>;
}

/// The ports of a queue, found by their number and by their interface. All memory is allocated at the start.
#[derive(Debug)]
pub struct CarriedPorts {
    ports: Vec<CarriedPort>,
    /// Index in `ports` plus one, by port number; 0: not carried.
    by_port: Box<[u16]>,
    /// The same, by interface: open addressing, at most half full.
    by_ifindex: Box<[(u32, u16)]>,
    most: usize,
}

impl CarriedPorts {
    /// Room for at most `most` ports, up to [`PORTS_MAX`].
    #[must_use]
    pub fn new(most: usize) -> Self {
        let most = most.min(PORTS_MAX);
        Self {
            ports: Vec::with_capacity(most),
            by_port: vec![0; PORTS_MAX].into_boxed_slice(),
            by_ifindex: vec![(0, 0); (2 * most).next_power_of_two()].into_boxed_slice(),
            most,
        }
    }

    /// All of them, in no particular order.
    #[must_use]
    pub fn all(&self) -> &[CarriedPort] {
        &self.ports
    }

    /// The port of that number.
    #[inline]
    #[must_use]
    pub fn get(&self, port: u16) -> Option<&CarriedPort> {
        self.ports.get(self.place_of(port)?)
    }

    /// The port on that interface.
    #[inline]
    #[must_use]
    pub fn on_interface(&self, ifindex: u32) -> Option<&CarriedPort> {
        let (found, place) = self.by_ifindex[self.slot_of(ifindex)];
        let place = usize::from(place).checked_sub(1).filter(|_| found == ifindex)?;
        self.ports.get(place)
    }

    /// Adds a port.
    ///
    /// # Errors
    /// Returns the port if there is no room, its number is too high, or its number or interface is taken.
    pub fn add(&mut self, port: CarriedPort) -> Result<(), CarriedPort> {
        let number = usize::from(port.port);
        let is_taken = self.get(port.port).is_some() || self.on_interface(port.ifindex).is_some();
        if is_taken || number >= PORTS_MAX || port.ifindex == 0 || self.ports.len() == self.most {
            return Err(port);
        }
        self.ports.push(port);
        self.index(self.ports.len() - 1);
        Ok(())
    }

    /// Removes a port.
    pub fn remove(&mut self, port: u16) -> Option<CarriedPort> {
        let removed = self.ports.swap_remove(self.place_of(port)?);
        self.by_port[usize::from(port)] = 0;
        // Removing from a table with open addressing would leave gaps at which a search stops, so the table is
        // rewritten.
        self.by_ifindex.fill((0, 0));
        (0..self.ports.len()).for_each(|place| self.index(place));
        Some(removed)
    }

    /// What the port sends from now on; `None` if there is no such port.
    pub fn set_capabilities(&mut self, port: u16, capabilities: Capabilities) -> Option<Capabilities> {
        let place = self.place_of(port)?;
        self.ports[place].capabilities = capabilities;
        Some(capabilities)
    }

    #[inline]
    fn place_of(&self, port: u16) -> Option<usize> {
        usize::from(*self.by_port.get(usize::from(port))?).checked_sub(1)
    }

    /// Adds the port at `place` to both indexes.
    fn index(&mut self, place: usize) {
        let CarriedPort { port, ifindex, .. } = self.ports[place];
        // Fewer than `PORTS_MAX`, which fits.
        let entry = place as u16 + 1;
        self.by_port[usize::from(port)] = entry;
        self.by_ifindex[self.slot_of(ifindex)] = (ifindex, entry);
    }

    /// The slot that has this interface, or else the empty one where it belongs.
    #[inline]
    fn slot_of(&self, ifindex: u32) -> usize {
        let mask = self.by_ifindex.len() - 1;
        let mut slot = ifindex as usize & mask;
        // Half of the slots are empty, so it ends.
        while self.by_ifindex[slot].1 != 0 && self.by_ifindex[slot].0 != ifindex {
            slot = (slot + 1) & mask;
        }
        slot
    }
}

impl CarriedPort {
    /// Its name on queue `queue` of its carrier.
    #[must_use]
    pub const fn id(&self, queue: u16) -> PortId {
        PortId { port: self.port, queue }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn port(port: u16, ifindex: u32) -> CarriedPort {
        CarriedPort {
            port,
            ifindex,
            capabilities: Capabilities::default(),
            bypass_qdisc: false,
            spares: Vec::new(),
            counters: Arc::default(),
        }
    }

    #[test]
    fn ports_are_found_by_number_and_interface_as_in_a_plain_map() {
        let mut random = fastrand::Rng::with_seed(4);
        let mut ports = CarriedPorts::new(64);
        let mut model = BTreeMap::<u16, u32>::new();
        for _ in 0..20_000 {
            // Interfaces that collide in the table; interface indices grow without bound.
            let (number, ifindex) = (random.u16(0..100), 1 + 128 * random.u32(0..80) + random.u32(0..2));
            if random.bool() {
                let fits = model.len() < 64
                    && !model.contains_key(&number)
                    && !model.values().any(|known| *known == ifindex);
                assert_eq!(ports.add(port(number, ifindex)).is_ok(), fits);
                if fits {
                    model.insert(number, ifindex);
                }
            } else {
                assert_eq!(ports.remove(number).map(|it| it.ifindex), model.remove(&number));
            }
            assert_eq!(ports.get(number).map(|it| it.ifindex), model.get(&number).copied());
            let by_interface = model.iter().find(|(_, known)| **known == ifindex).map(|(number, _)| *number);
            assert_eq!(ports.on_interface(ifindex).map(|it| it.port), by_interface);
            assert_eq!(ports.all().len(), model.len());
        }
    }

    #[test]
    fn what_is_no_port_is_refused() {
        let mut ports = CarriedPorts::new(usize::MAX);
        assert!(ports.add(port(PORTS_MAX as u16, 1)).is_err() && ports.add(port(1, 0)).is_err());
        assert!(ports.on_interface(0).is_none() && ports.get(u16::MAX).is_none());
        for number in 0..PORTS_MAX as u16 {
            assert!(ports.add(port(number, u32::from(number) + 1)).is_ok());
        }
        assert_eq!(ports.on_interface(PORTS_MAX as u32).map(|it| it.port), Some(PORTS_MAX as u16 - 1));
    }
}
