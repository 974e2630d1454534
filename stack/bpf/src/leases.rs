//! The programs for leases on kernel UDP sockets. One puts the sockets' datagrams into direct rings while they have
//! a lease (`bpf/lease.c`; the holder's end is `twinpath_rings::lease`). The other shows how the kernel sends for
//! them.

use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::thread;

use aya::maps::of_maps::ArrayOfMaps;
use aya::maps::{Array, Map, MapData, MapError, PerCpuArray, SkStorage};
use aya::programs::{SchedClassifier, TcAttachType};
use aya::{Ebpf, EbpfLoader, include_bytes_aligned};
use twinpath_claims::Table;

use crate::hosts::Hosts;
use crate::layouts::{LEASES_LIMIT, Lessee, PROCESSES_LIMIT, direct, slot};
use crate::made::array;
use crate::maps::{Maps, failed, typed, wrote};
use crate::program::{loaded, program};
use crate::tc::{TcLink, attach_passable};
use crate::withdrawal::Withdrawal;
use crate::{SteerError, TcAttach};

static LEASE: &[u8] = include_bytes_aligned!("../object/lease.o");

const INGRESS: &str = "twinpath_lease";
const EGRESS: &str = "twinpath_sample";

/// Maximum number of leases of one process.
pub const LEASES_MAX: u32 = LEASES_LIMIT;

/// Maximum number of processes that one program serves.
pub const PROCESSES_MAX: u32 = PROCESSES_LIMIT;

/// Slots of each ring.
pub const LEASE_SLOTS: u32 = 256;

/// A lease that a socket was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assigned {
    /// The process whose ring it is.
    pub process: u32,
    /// The lease's number there.
    pub number: u32,
    /// Distinguishes it from earlier and later leases with the same number; not 0.
    pub lent: u32,
}

/// A map of maps, by process.
type ByProcess = ArrayOfMaps<MapData, MapData>;

/// The memory of the rings of a process: their states, and their slots.
struct Rings {
    maps: [MapData; 2],
    /// Whether the program finds them.
    is_in_force: bool,
}

/// The programs for the sockets of processes on one interface. Dropping it detaches them: every frame then goes to
/// the kernel.
pub struct Leases {
    links: Vec<TcLink>,
    object: Ebpf,
    maps: Maps,
    lessees: SkStorage<MapData, Lessee>,
    withdrawal: Withdrawal,
    /// Where the program finds the states and the slots of a process's rings, and a placeholder for a process that
    /// has gone.
    by_process: [ByProcess; 2],
    none: [MapData; 2],
    rings: Vec<Option<Rings>>,
    lent_to: Array<MapData, u32>,
    put_for: PerCpuArray<MapData, u64>,
    samples: MapData,
    hosts: Hosts,
    /// The mark of frames that are handed over, the lease that they belong to, and how many arrived and were
    /// passed.
    mark: u32,
    handing: Array<MapData, Lessee>,
    handed: PerCpuArray<MapData, [u64; 2]>,
    turns_around: bool,
    capacity: u32,
}

/// Frames that were handed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handed {
    /// Frames that arrived again.
    pub came: u64,
    /// Of those, the frames that were passed to their socket through the kernel.
    pub passed: u64,
}

impl std::fmt::Debug for Leases {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leases").field("capacity", &self.capacity).finish_non_exhaustive()
    }
}

impl Leases {
    /// Loads the program for `processes` processes with up to `capacity` sockets each. Nothing is attached or
    /// claimed yet, and no process has rings. `takes_datagrams`: rings also take coalesced datagrams, each by itself, whose
    /// checksums are left to hardware; otherwise they are the kernel's.
    ///
    /// # Errors
    /// [`SteerError::Queue`] for more than [`LEASES_MAX`] or [`PROCESSES_MAX`]; [`SteerError::Object`], [`SteerError::Program`].
    pub fn load(processes: u32, capacity: u32, takes_datagrams: bool) -> Result<Self, SteerError> {
        for (asked, max) in [(capacity, LEASES_MAX), (processes, PROCESSES_MAX)] {
            if asked > max {
                return Err(SteerError::Queue { queue: asked, max });
            }
        }
        let (capacity, processes) = (capacity.max(1), processes.max(1));
        let slot_mask = LEASE_SLOTS - 1;
        let mut loader = EbpfLoader::new();
        loader.override_global("slot_mask", &slot_mask, true);
        loader.override_global("leases_max", &capacity, true);
        loader.override_global("processes_max", &processes, true);
        let mark = drawn_mark();
        loader.override_global("handing_mark", &mark, true);
        let takes_datagrams = u32::from(takes_datagrams);
        loader.override_global("takes_datagrams", &takes_datagrams, true);
        for name in ["rings_of", "slots_of", "put_for"] {
            loader.map_max_entries(name, processes);
        }
        loader.map_max_entries("lent_to", processes * capacity);
        loader.map_max_entries("samples", capacity);
        let mut object = loader.load(LEASE).map_err(|error| SteerError::Object(Box::new(error)))?;
        for name in [INGRESS, EGRESS] {
            let classifier = program::<SchedClassifier>(&mut object, name)?;
            loaded(name, || classifier.load())?;
        }
        let maps = Maps::take(&mut object, false)?;
        let lessees = match object.take_map("lessees") {
            Some(Map::SkStorage(map)) => map,
            _ => return Err(SteerError::Missing("lessees")),
        };
        let duplicate = lessees.fd().as_fd().try_clone_to_owned();
        let opened = |error| SteerError::Map { map: "lessees", action: "opening", error: Box::new(error) };
        let withdrawal = Withdrawal::new(duplicate.map_err(|error| opened(MapError::IoError(error)))?);
        let lessees = SkStorage::try_from(Map::SkStorage(lessees)).map_err(opened)?;
        let by_process = [typed(&mut object, "rings_of")?, typed(&mut object, "slots_of")?];
        let (lent_to, put_for) = (typed(&mut object, "lent_to")?, typed(&mut object, "put_for")?);
        let (handing, handed) = (typed(&mut object, "handing")?, typed(&mut object, "handed")?);
        let hosts = Hosts::take(&mut object)?;
        let mut array = |name| match object.take_map(name) {
            Some(Map::Array(map)) => Ok(map),
            _ => Err(SteerError::Missing(name)),
        };
        let none = [array("no_rings")?, array("no_slots")?];
        let samples = array("samples")?;
        let rings = (0..processes).map(|_| None).collect();
        Ok(Self {
            links: Vec::new(),
            object,
            maps,
            lessees,
            withdrawal,
            by_process,
            none,
            rings,
            lent_to,
            put_for,
            samples,
            hosts,
            mark,
            handing,
            handed,
            turns_around: false,
            capacity,
        })
    }

    /// Makes memory for the rings of one more process; [`Self::apply_and_settle`] puts it in force. Returns the
    /// number of the process; `None` if the maximum number is reached.
    ///
    /// # Errors
    /// [`SteerError::Map`]: no memory.
    pub fn admit(&mut self) -> Result<Option<u32>, SteerError> {
        let Some(at) = self.rings.iter().position(Option::is_none) else { return Ok(None) };
        let states = array("rings_of", direct::LEN as u32, self.capacity)?;
        let slots = array("slots_of", slot::LEN as u32, self.capacity * LEASE_SLOTS)?;
        self.rings[at] = Some(Rings { maps: [states, slots], is_in_force: false });
        Ok(Some(at as u32))
    }

    /// The process has gone. When this returns, no more frames are put into its rings, and another process may get
    /// its number. The table of the other processes' claims, if given, comes into force at the same time: the
    /// kernel waits for running programs after either change, and so these waits overlap.
    pub fn release(&mut self, process: u32, table: Option<&Table>) {
        for number in 0..self.capacity {
            self.free(process, number);
        }
        let Some(rings) = self.rings.get_mut(process as usize) else { return };
        // Without rings in force, none of its claims was in force.
        let was_put = match rings {
            Some(rings) if rings.is_in_force => {
                let maps = &mut self.maps;
                put(&mut self.by_process, process, &self.none, || {
                    // It fails only if the kernel has no memory; then frames find the leases free.
                    let _ = table.map(|table| maps.apply(table));
                    Ok(())
                })
            }
            _ => Ok(()),
        };
        // No other process gets the number while the former memory may still be found.
        if was_put.is_ok() {
            *rings = None;
        }
    }

    /// Maximum number of sockets of a process.
    #[must_use]
    pub const fn capacity(&self) -> u32 {
        self.capacity
    }

    /// The memory of the rings of a process, to be mapped: the states of all rings, one after the other, and
    /// [`LEASE_SLOTS`] slots for each. `None`: there is no such process.
    #[must_use]
    pub fn rings(&self, process: u32) -> Option<[BorrowedFd<'_>; 2]> {
        let rings = self.rings.get(process as usize)?.as_ref()?;
        Some(rings.maps.each_ref().map(|map| map.fd().as_fd()))
    }

    /// The memory of the samples of what the kernel sends (`twinpath_rings::sample`), to be mapped: one for each lease.
    #[must_use]
    pub fn samples(&self) -> BorrowedFd<'_> {
        self.samples.fd().as_fd()
    }

    /// Makes the rules equal the table: frames that match one of its claims on UDP ports may be put into rings.
    /// Waits for running programs to end, which may take tens of milliseconds.
    ///
    /// # Errors
    /// [`SteerError::Map`].
    pub fn apply(&mut self, table: &Table) -> Result<(), SteerError> {
        self.maps.apply(table)
    }

    /// As [`Self::apply`], for a table that claims less, but never waits. If another change is still under way, the
    /// former table stays until the next change. A frame that it still claims then finds the lease free
    /// ([`Self::free`]).
    ///
    /// # Errors
    /// [`SteerError::Map`].
    pub fn apply_unless_waits(&mut self, table: &Table) -> Result<(), SteerError> {
        self.maps.apply_unless_waits(table)
    }

    /// As [`Self::apply`], after [`Self::assign`]. When it returns, all frames of that socket which found no lease,
    /// or no claim, are in the socket's receive buffer. They were passed without being counted for its ring, so
    /// nobody may open the ring before. The table may be in force already, because another socket has the same
    /// port. Also puts the rings of a newly admitted process in force.
    ///
    /// # Errors
    /// [`SteerError::Map`].
    pub fn apply_and_settle(&mut self, table: &Table) -> Result<(), SteerError> {
        let is_new = |rings: &Option<Rings>| rings.as_ref().is_some_and(|rings| !rings.is_in_force);
        let Some(process) = self.rings.iter().position(is_new) else {
            return self.maps.apply_and_settle(table);
        };
        let Some(rings) = &mut self.rings[process] else { return Ok(()) };
        let maps = &mut self.maps;
        put(&mut self.by_process, process as u32, &rings.maps, || maps.apply_and_settle(table))?;
        rings.is_in_force = true;
        Ok(())
    }

    /// Attaches the program that fills rings at tc ingress, in front of all others. It changes nothing while no
    /// ring is open. A classic filter whose process was killed does nothing, because its leases expire.
    ///
    /// # Errors
    /// [`SteerError::NoInterface`], [`SteerError::Tcx`], [`SteerError::Clsact`], [`SteerError::NotFirst`].
    pub fn attach(&mut self, ifindex: u32, how: TcAttach) -> Result<(), SteerError> {
        self.attach_at(INGRESS, TcAttachType::Ingress, ifindex, how)
    }

    /// Attaches the program at tc egress, if it is not there yet. It takes samples of what the kernel sends, and
    /// loops back frames that are handed over. Attach it only if one of these is needed, because every outgoing
    /// frame passes it.
    ///
    /// # Errors
    /// As [`Self::attach`].
    pub fn attach_egress(&mut self, ifindex: u32, how: TcAttach) -> Result<(), SteerError> {
        if !self.turns_around {
            self.attach_at(EGRESS, TcAttachType::Egress, ifindex, how)?;
            self.turns_around = true;
        }
        Ok(())
    }

    /// The mark (SO_MARK) of frames that are handed over. Frames sent with it on the interface arrive there again,
    /// and are passed only to the socket of [`Self::begin_handing`].
    #[must_use]
    pub const fn handing_mark(&self) -> u32 {
        self.mark
    }

    /// From now on, frames that are handed over belong to this lease.
    ///
    /// # Errors
    /// [`SteerError::Map`].
    pub fn begin_handing(&mut self, of: Assigned) -> Result<(), SteerError> {
        self.handing.set(0, lessee(of), 0).map_err(wrote("handing"))
    }

    /// The frames handed over so far.
    #[must_use]
    pub fn handed(&self) -> Handed {
        self.handed.get(&0, 0).map_or_else(
            |_| Handed::default(),
            |cpus| {
                cpus.iter().fold(Handed::default(), |sum, [came, passed]| Handed {
                    came: sum.came.wrapping_add(*came),
                    passed: sum.passed.wrapping_add(*passed),
                })
            },
        )
    }

    /// Sets the addresses of this host on all interfaces, and the broadcast addresses. The kernel decides about
    /// frames from them.
    ///
    /// # Errors
    /// [`SteerError::Map`]: some of the former ones may be in force yet.
    pub fn set_hosts(&mut self, hosts: &[IpAddr]) -> Result<(), SteerError> {
        self.hosts.set(hosts)
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

    /// The links that keep the programs attached, for another process; `None` if they end with this one, or are not
    /// attached.
    #[must_use]
    pub fn links(&self) -> Option<Vec<BorrowedFd<'_>>> {
        if self.links.is_empty() { None } else { self.links.iter().map(TcLink::passable).collect() }
    }

    /// Gives a UDP socket a lease that no other socket has, in place of a former one. The lease ends when its
    /// number is given out with another `lent`.
    ///
    /// # Errors
    /// [`SteerError::Queue`], [`SteerError::Map`].
    pub fn assign(&mut self, socket: BorrowedFd<'_>, to: Assigned) -> Result<(), SteerError> {
        self.note(socket, to)?;
        self.give(to)
    }

    /// The first half of [`Self::assign`], and all that it needs the descriptor for: the socket is to have that lease.
    ///
    /// # Errors
    /// [`SteerError::Map`].
    pub fn note(&mut self, socket: BorrowedFd<'_>, to: Assigned) -> Result<(), SteerError> {
        self.lessees.insert(&socket, lessee(to), 0).map_err(wrote("lessees"))
    }

    /// The second half: it has it.
    ///
    /// # Errors
    /// [`SteerError::Queue`], [`SteerError::Map`].
    pub fn give(&mut self, to: Assigned) -> Result<(), SteerError> {
        let place = self.place(to.process, to.number)?;
        self.lent_to.set(place, to.lent, 0).map_err(wrote("lent_to"))
    }

    /// From now on, no socket has the lease with this number.
    pub fn free(&mut self, process: u32, number: u32) {
        if let Ok(place) = self.place(process, number) {
            // It fails only beyond the end.
            let _ = self.lent_to.set(place, 0, 0);
        }
    }

    fn place(&self, process: u32, number: u32) -> Result<u32, SteerError> {
        for (asked, max) in [(number, self.capacity), (process, self.rings.len() as u32)] {
            if asked >= max {
                return Err(SteerError::Queue { queue: asked, max });
            }
        }
        Ok(process * self.capacity + number)
    }

    /// The lease that a socket was given last. `None` if it has been taken back.
    #[must_use]
    pub fn assigned(&self, socket: BorrowedFd<'_>) -> Option<Assigned> {
        // It fails only for a socket without a lease, and for a descriptor that is not a socket, to which no lease
        // can be assigned either.
        let Lessee { number, process, lent } = self.lessees.get(&socket, 0).ok()?;
        Some(Assigned { process: process.into(), number: number.into(), lent })
    }

    /// Frames put into the rings with this number of this process number so far, whichever process had them.
    #[must_use]
    pub fn put_for(&self, process: u32) -> u64 {
        self.put_for.get(&process, 0).map_or(0, |cpus| cpus.iter().sum())
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

/// In the programs' format: there are few processes, and few leases of each.
const fn lessee(of: Assigned) -> Lessee {
    Lessee { number: of.number as u16, process: of.process as u16, lent: of.lent }
}

/// A random mark that nobody else has: the kernel supplies the keys of this state. Not 0, the mark of unmarked
/// frames.
fn drawn_mark() -> u32 {
    (RandomState::new().hash_one(0u8) as u32).max(1)
}

/// Puts a process's maps where the program finds them, and does another job at the same time. The kernel waits for
/// running programs each time, so all wait in parallel.
fn put(
    by_process: &mut [ByProcess; 2],
    process: u32,
    maps: &[MapData; 2],
    beside: impl FnOnce() -> Result<(), SteerError>,
) -> Result<(), SteerError> {
    thread::scope(|scope| {
        let names = ["rings_of", "slots_of"];
        let mut begun = Vec::new();
        for ((outer, map), name) in by_process.iter_mut().zip(maps).zip(names) {
            let set = move || outer.set(process, map, 0).map_err(wrote(name));
            let thread = thread::Builder::new().spawn_scoped(scope, set);
            begun.push(thread.map_err(|error| failed(name, "writing", error)));
        }
        let mut outcome = beside();
        for thread in begun {
            let ended = thread.and_then(|thread| {
                let panicked = |_| failed(names[0], "writing", std::io::ErrorKind::Other.into());
                thread.join().map_err(panicked)?
            });
            outcome = outcome.and(ended);
        }
        outcome
    })
}
