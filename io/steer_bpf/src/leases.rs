//! The program that puts the datagrams of kernel UDP sockets into direct rings, while these sockets have a lease
//! (`bpf/lease.c`; the holder's end is `twinpath_rings::lease`), and the one that shows how the kernel sends for them.

use std::os::fd::{AsFd, BorrowedFd};

use aya::maps::{Map, MapData, MapError, SkStorage};
use aya::programs::{SchedClassifier, TcAttachType};
use aya::{Ebpf, EbpfLoader, include_bytes_aligned};
use twinpath_steer::Table;

use crate::maps::{Maps, wrote};
use crate::steering::{loaded, program};
use crate::tc::{TcLink, attach_passable};
use crate::withdrawal::Withdrawal;
use crate::{SteerError, TcAttach};

static LEASE: &[u8] = include_bytes_aligned!("../object/lease.o");

const INGRESS: &str = "twinpath_lease";
const EGRESS: &str = "twinpath_sample";

/// Leases of one object: `LEASES_LIMIT` of bpf/lease.c.
pub const LEASES_MAX: u32 = 64;

/// Slots of the ring of each.
pub const LEASE_SLOTS: u32 = 256;

/// The programs for the sockets of one process on one interface. Dropping it detaches them: every frame is the kernel's then.
pub struct Leases {
    links: Vec<TcLink>,
    object: Ebpf,
    maps: Maps,
    lessees: SkStorage<MapData, u64>,
    withdrawal: Withdrawal,
    /// The states of the rings, and their slots.
    rings: [MapData; 2],
    samples: MapData,
    capacity: u32,
}

impl std::fmt::Debug for Leases {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leases").field("capacity", &self.capacity).finish_non_exhaustive()
    }
}

impl Leases {
    /// Loads the program for up to `capacity` sockets. Nothing is attached or claimed yet.
    ///
    /// # Errors
    /// [`SteerError::Queue`] for more than [`LEASES_MAX`]; [`SteerError::Object`], [`SteerError::Program`].
    pub fn load(capacity: u32) -> Result<Self, SteerError> {
        if capacity > LEASES_MAX {
            return Err(SteerError::Queue { queue: capacity, max: LEASES_MAX });
        }
        let capacity = capacity.max(1);
        let slot_mask = LEASE_SLOTS - 1;
        let mut loader = EbpfLoader::new();
        loader.override_global("slot_mask", &slot_mask, true);
        loader.override_global("leases_max", &capacity, true);
        loader.map_max_entries("direct", capacity);
        loader.map_max_entries("slots", capacity * LEASE_SLOTS);
        loader.map_max_entries("samples", capacity);
        let mut object = loader.load(LEASE).map_err(|error| SteerError::Object(Box::new(error)))?;
        for name in [INGRESS, EGRESS] {
            loaded(name, program::<SchedClassifier>(&mut object, name)?.load())?;
        }
        let maps = Maps::take(&mut object)?;
        let lessees = match object.take_map("lessees") {
            Some(Map::SkStorage(map)) => map,
            _ => return Err(SteerError::Missing("lessees")),
        };
        let duplicate = lessees.fd().as_fd().try_clone_to_owned();
        let opened = |error| SteerError::Map { map: "lessees", action: "opening", error: Box::new(error) };
        let withdrawal = Withdrawal::new(duplicate.map_err(|error| opened(MapError::IoError(error)))?);
        let lessees = SkStorage::try_from(Map::SkStorage(lessees)).map_err(opened)?;
        let mut array = |name| match object.take_map(name) {
            Some(Map::Array(map)) => Ok(map),
            _ => Err(SteerError::Missing(name)),
        };
        let rings = [array("direct")?, array("slots")?];
        let samples = array("samples")?;
        Ok(Self { links: Vec::new(), object, maps, lessees, withdrawal, rings, samples, capacity })
    }

    /// Sockets that it can be for.
    #[must_use]
    pub const fn capacity(&self) -> u32 {
        self.capacity
    }

    /// The memory of the rings, to be mapped: the states of all, one after the other, and [`LEASE_SLOTS`] slots for each.
    #[must_use]
    pub fn rings(&self) -> [BorrowedFd<'_>; 2] {
        self.rings.each_ref().map(|map| map.fd().as_fd())
    }

    /// The memory of the samples of what the kernel sends (`twinpath_rings::sample`), to be mapped: one for each lease.
    #[must_use]
    pub fn samples(&self) -> BorrowedFd<'_> {
        self.samples.fd().as_fd()
    }

    /// Makes the rules equal the table: frames that one of its claims on UDP ports matches may be put into rings. Waits for
    /// running programs to end, which may take tens of milliseconds.
    ///
    /// # Errors
    /// [`SteerError::Map`].
    pub fn apply(&mut self, table: &Table) -> Result<(), SteerError> {
        self.maps.apply(table)
    }

    /// As [`Self::apply`], after [`Self::assign`]. When it returns, frames of that socket which found no lease, or no claim, are in the
    /// socket's receive buffer: they were passed without being counted for its ring, so nobody may open that before. The table may be
    /// in force already, as another socket has the same port.
    ///
    /// # Errors
    /// [`SteerError::Map`].
    pub fn apply_and_settle(&mut self, table: &Table) -> Result<(), SteerError> {
        self.maps.apply_and_settle(table)
    }

    /// Attaches the program that fills rings in front of all others, at tc ingress. It changes nothing as long as no ring is open. A
    /// classic filter whose process was killed does nothing, as its leases lapse.
    ///
    /// # Errors
    /// [`SteerError::NoInterface`], [`SteerError::Tcx`], [`SteerError::Clsact`], [`SteerError::NotFirst`].
    pub fn attach(&mut self, ifindex: u32, how: TcAttach) -> Result<(), SteerError> {
        self.attach_at(INGRESS, TcAttachType::Ingress, ifindex, how)
    }

    /// Attaches the program that takes samples of what the kernel sends, at tc egress: only for holders that ask for them, as every frame
    /// that leaves passes it.
    ///
    /// # Errors
    /// As [`Self::attach`].
    pub fn attach_samples(&mut self, ifindex: u32, how: TcAttach) -> Result<(), SteerError> {
        self.attach_at(EGRESS, TcAttachType::Egress, ifindex, how)
    }

    fn attach_at(
        &mut self,
        name: &'static str,
        hook: TcAttachType,
        ifindex: u32,
        how: TcAttach,
    ) -> Result<(), SteerError> {
        let program = program(&mut self.object, name)?;
        self.links.push(attach_passable(program, name, ifindex, hook, how)?);
        Ok(())
    }

    /// What keeps the programs attached, for another process; `None` if they end with this one, or are not attached.
    #[must_use]
    pub fn links(&self) -> Option<Vec<BorrowedFd<'_>>> {
        if self.links.is_empty() { None } else { self.links.iter().map(TcLink::passable).collect() }
    }

    /// Gives a UDP socket the lease of this number, below the capacity, which no other socket has, in place of one that it may have had.
    /// `lent`: what `twinpath_rings::lease::set_lent` writes into the ring's state; the lease ends with another number there.
    ///
    /// # Errors
    /// [`SteerError::Queue`], [`SteerError::Map`].
    pub fn assign(&mut self, socket: BorrowedFd<'_>, number: u32, lent: u32) -> Result<(), SteerError> {
        if number >= self.capacity {
            return Err(SteerError::Queue { queue: number, max: self.capacity });
        }
        let lessee = u64::from(lent) << 32 | u64::from(number);
        self.lessees.insert(&socket, lessee.to_le(), 0).map_err(wrote("lessees"))
    }

    /// The lease that a socket was given last: its number, and `lent` as it was then. `None` if it has been taken back.
    #[must_use]
    pub fn assigned(&self, socket: BorrowedFd<'_>) -> Option<(u32, u32)> {
        // It only fails for a socket without one, and for what is no socket, which no lease can be assigned to either.
        let lessee = u64::from_le(self.lessees.get(&socket, 0).ok()?);
        Some((lessee as u32, (lessee >> 32) as u32))
    }

    /// Takes leases from sockets.
    #[must_use]
    pub const fn withdrawal(&self) -> &Withdrawal {
        &self.withdrawal
    }

    /// Number of frames per verdict, by its stable name, summed over all CPUs: `claimed` are those that were put into rings.
    ///
    /// # Errors
    /// [`SteerError::Map`].
    pub fn counters(&self) -> Result<Vec<(&'static str, u64)>, SteerError> {
        self.maps.counters()
    }

    /// The program at ingress, for test runs.
    #[doc(hidden)]
    pub fn program(&mut self) -> Result<&SchedClassifier, SteerError> {
        program::<SchedClassifier>(&mut self.object, INGRESS).map(|program| &*program)
    }
}
