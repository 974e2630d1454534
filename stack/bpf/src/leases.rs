//! The program that puts the datagrams of kernel UDP sockets into direct rings, while these sockets have a lease
//! (`bpf/lease.c`; the holder's end is `twinpath_rings::lease`), and the one that shows how the kernel sends for them.

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
use crate::steering::{loaded, program};
use crate::tc::{TcLink, attach_passable};
use crate::withdrawal::Withdrawal;
use crate::{SteerError, TcAttach};

static LEASE: &[u8] = include_bytes_aligned!("../object/lease.o");

const INGRESS: &str = "twinpath_lease";
const EGRESS: &str = "twinpath_sample";

/// Leases of one process.
pub const LEASES_MAX: u32 = LEASES_LIMIT;

/// Processes that one program is for.
pub const PROCESSES_MAX: u32 = PROCESSES_LIMIT;

/// Slots of the ring of each.
pub const LEASE_SLOTS: u32 = 256;

/// A lease that a socket was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Assigned {
    /// The process whose ring it is.
    pub process: u32,
    /// The lease's number there.
    pub number: u32,
    /// What tells it from those that had the number before and will have it after; not 0.
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

/// The programs for the sockets of processes on one interface. Dropping it detaches them: every frame is the kernel's then.
pub struct Leases {
    links: Vec<TcLink>,
    object: Ebpf,
    maps: Maps,
    lessees: SkStorage<MapData, Lessee>,
    withdrawal: Withdrawal,
    /// Where the program finds the states of a process's rings, and their slots; and what is there for a process that has gone.
    by_process: [ByProcess; 2],
    none: [MapData; 2],
    rings: Vec<Option<Rings>>,
    lent_to: Array<MapData, u32>,
    put_for: PerCpuArray<MapData, u64>,
    samples: MapData,
    hosts: Hosts,
    /// The mark of frames that are handed over; which lease they are of; and how many have come, and were passed.
    mark: u32,
    handing: Array<MapData, Lessee>,
    handed: PerCpuArray<MapData, [u64; 2]>,
    turns_around: bool,
    capacity: u32,
}

/// Frames that were handed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handed {
    /// Those that have come back.
    pub came: u64,
    /// Those of them that the kernel was given for their socket.
    pub passed: u64,
}

impl std::fmt::Debug for Leases {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leases").field("capacity", &self.capacity).finish_non_exhaustive()
    }
}

impl Leases {
    /// Loads the program for so many processes with up to `capacity` sockets each. Nothing is attached or claimed yet, and no process
    /// has rings.
    ///
    /// # Errors
    /// [`SteerError::Queue`] for more than [`LEASES_MAX`] or [`PROCESSES_MAX`]; [`SteerError::Object`], [`SteerError::Program`].
    pub fn load(processes: u32, capacity: u32) -> Result<Self, SteerError> {
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
        let maps = Maps::take(&mut object)?;
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

    /// Makes memory for the rings of one more process; [`Self::apply_and_settle`] puts it in force. The number of the process; `None`
    /// if there are as many as there can be.
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

    /// The process has gone: no frame is put into its rings any more when this returns, and another process may have its number. The
    /// table of the other processes' claims, if there is one, comes into force at the same time: the kernel waits for running programs
    /// after either change, and so these waits overlap.
    pub fn release(&mut self, process: u32, table: Option<&Table>) {
        for number in 0..self.capacity {
            self.free(process, number);
        }
        let Some(rings) = self.rings.get_mut(process as usize) else { return };
        // Without rings in force none of its claims was.
        let was_put = match rings {
            Some(rings) if rings.is_in_force => {
                let maps = &mut self.maps;
                put(&mut self.by_process, process, &self.none, || {
                    // It only fails if the kernel has no memory: then frames find the leases free.
                    let _ = table.map(|table| maps.apply(table));
                    Ok(())
                })
            }
            _ => Ok(()),
        };
        // Where the former memory may still be found, no other process gets the number.
        if was_put.is_ok() {
            *rings = None;
        }
    }

    /// Sockets of a process that it can be for.
    #[must_use]
    pub const fn capacity(&self) -> u32 {
        self.capacity
    }

    /// The memory of the rings of a process, to be mapped: the states of all, one after the other, and [`LEASE_SLOTS`] slots for
    /// each. `None`: there is no such process.
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

    /// Makes the rules equal the table: frames that one of its claims on UDP ports matches may be put into rings. Waits for
    /// running programs to end, which may take tens of milliseconds.
    ///
    /// # Errors
    /// [`SteerError::Map`].
    pub fn apply(&mut self, table: &Table) -> Result<(), SteerError> {
        self.maps.apply(table)
    }

    /// As [`Self::apply`], for a table that claims less, and never waits. If another change is still under way, the former table stays
    /// until the next one: the program looks for the lease of a frame that it claims, and finds it free ([`Self::free`]).
    ///
    /// # Errors
    /// [`SteerError::Map`].
    pub fn apply_unless_waits(&mut self, table: &Table) -> Result<(), SteerError> {
        self.maps.apply_unless_waits(table)
    }

    /// As [`Self::apply`], after [`Self::assign`]. When it returns, frames of that socket which found no lease, or no claim, are in the
    /// socket's receive buffer: they were passed without being counted for its ring, so nobody may open that before. The table may be
    /// in force already, as another socket has the same port. It puts the rings of a process in force that was admitted before.
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

    /// Attaches the program that fills rings in front of all others, at tc ingress. It changes nothing as long as no ring is open. A
    /// classic filter whose process was killed does nothing, as its leases lapse.
    ///
    /// # Errors
    /// [`SteerError::NoInterface`], [`SteerError::Tcx`], [`SteerError::Clsact`], [`SteerError::NotFirst`].
    pub fn attach(&mut self, ifindex: u32, how: TcAttach) -> Result<(), SteerError> {
        self.attach_at(INGRESS, TcAttachType::Ingress, ifindex, how)
    }

    /// Attaches the program at tc egress, if it is not there yet: it takes samples of what the kernel sends, and turns around what is
    /// handed over. Only where one of these is needed, as every frame that leaves passes it.
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

    /// The mark (SO_MARK) of frames that are handed over: those that are sent with it on the interface arrive there, and are passed to the
    /// socket of [`Self::begin_handing`] alone.
    #[must_use]
    pub const fn handing_mark(&self) -> u32 {
        self.mark
    }

    /// Frames that are handed over are of this lease from now on.
    ///
    /// # Errors
    /// [`SteerError::Map`].
    pub fn begin_handing(&mut self, of: Assigned) -> Result<(), SteerError> {
        self.handing.set(0, lessee(of), 0).map_err(wrote("handing"))
    }

    /// What was handed over so far.
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

    /// The addresses of this host on all interfaces from now on, and those of broadcasts: frames from them are the kernel's to judge.
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

    /// What keeps the programs attached, for another process; `None` if they end with this one, or are not attached.
    #[must_use]
    pub fn links(&self) -> Option<Vec<BorrowedFd<'_>>> {
        if self.links.is_empty() { None } else { self.links.iter().map(TcLink::passable).collect() }
    }

    /// Gives a UDP socket a lease which no other socket has, in place of one that it may have had. The lease ends with another
    /// `lent` of that number.
    ///
    /// # Errors
    /// [`SteerError::Queue`], [`SteerError::Map`].
    pub fn assign(&mut self, socket: BorrowedFd<'_>, to: Assigned) -> Result<(), SteerError> {
        let place = self.place(to.process, to.number)?;
        self.lent_to.set(place, to.lent, 0).map_err(wrote("lent_to"))?;
        self.lessees.insert(&socket, lessee(to), 0).map_err(wrote("lessees"))
    }

    /// No socket has the lease of this number from now on.
    pub fn free(&mut self, process: u32, number: u32) {
        if let Ok(place) = self.place(process, number) {
            // It only fails beyond the end.
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
        // It only fails for a socket without one, and for what is no socket, which no lease can be assigned to either.
        let Lessee { number, process, lent } = self.lessees.get(&socket, 0).ok()?;
        Some(Assigned { process: process.into(), number: number.into(), lent })
    }

    /// Frames that were put into rings of a number of a process so far, by whichever process had it.
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

/// As the programs know it: there are few processes, and few leases of each.
const fn lessee(of: Assigned) -> Lessee {
    Lessee { number: of.number as u16, process: of.process as u16, lent: of.lent }
}

/// A mark that nobody else has: the kernel draws the keys of such a state. Not 0, which frames have that nobody has marked.
fn drawn_mark() -> u32 {
    (RandomState::new().hash_one(0u8) as u32).max(1)
}

/// Puts maps where the program finds those of a process, and does something beside it. The kernel waits for running programs each
/// time: all wait at once.
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
