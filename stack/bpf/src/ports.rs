//! Makes interfaces ports of a switch: its workers receive all of their frames, and the kernel's own stack none.

use std::collections::BTreeMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use aya::maps::xdp::{DevMapHash, XdpMapError};
use aya::maps::{HashMap, Map, MapData, MapError};
use aya::programs::xdp::{XdpLink, XdpMode as HookMode};
use aya::programs::{SchedClassifier, Xdp};
use aya::{Ebpf, include_bytes_aligned};
use twinpath_time::{Duration, Instant};

use crate::SteerError;
use crate::exclusive::{attach_both, load, refuse_if_held};
use crate::keep_lease::{Lease, OwnPid};
use crate::layouts::{FAILS_OPEN, PortWords};
use crate::maps::{gone, typed, wrote};
use crate::names::{PORT_INGRESS as INGRESS, interface_name};
use crate::offload::{KeptEntry, Offload, PortPlaces, Sizes};
use crate::pins::Pins;
use crate::program::{loaded, program};
use crate::served::serve;
use crate::steering::{XdpMode, attach_filter, refused, xdp_links};
use crate::stuck::StuckRecords;
use crate::tc::{TcAttach, TcLink, replace};

static PORTS: &[u8] = include_bytes_aligned!("../object/ports.o");

const EGRESS: &str = "twinpath_port_out";
const XDP: &str = "twinpath_port_xdp";
/// Used in place of these two if flows are to survive the process.
const KEEPING: [&str; 2] = ["twinpath_port_in_keeping", "twinpath_port_out_keeping"];
/// The programs that do the work of these two while the process serves, by their indexes in the array of tail
/// calls.
const SERVE: [&str; 2] = ["twinpath_serve_in", "twinpath_serve_out"];
/// One program for each worker, with the worker's number at the end.
const LISTEN: &str = "twinpath_port";

/// What the kernel does with the frames of a port that no worker gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unserved {
    /// It drops them.
    Dropped,
    /// Its own stack gets them: the bridge to which the interface belongs carries them.
    Kernel,
}

/// How flows survive the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeepPlan {
    /// The folder of the network namespace, [`Keep::home`](crate::Keep::home).
    pub folder: PathBuf,
    /// How long they survive.
    pub keep: Duration,
    /// The time.
    pub now: Instant,
}

/// The state that makes flows survive.
struct Keeping {
    pins: Pins,
    lease: Lease,
    /// Entries that a former process has left.
    kept: Vec<KeptEntry>,
}

/// The programs and maps of the ports of one network namespace. Every call that attaches is made in that namespace.
/// Dropping this returns all interfaces to the kernel.
pub struct PortPrograms {
    /// The array of tail calls. When its last descriptor is closed, all ports immediately belong to the kernel
    /// again.
    _served: OwnedFd,
    object: Ebpf,
    ports: HashMap<MapData, u32, PortWords>,
    offload: Option<Offload>,
    stuck: StuckRecords,
    /// The interfaces to which the XDP program may send frames, and its view of ports; `None` without entries.
    xdp: Option<(DevMapHash<MapData>, PortPlaces)>,
    /// The names of the programs at tc.
    attached: [&'static str; 2],
    /// The interfaces that are ports, and their links.
    held: BTreeMap<u32, Held>,
    /// Last, so that links are closed before pins are removed.
    keeping: Option<Keeping>,
}

/// The links that keep an interface a port.
struct Held {
    _tc: [TcLink; 2],
    xdp: Option<XdpLink>,
}

impl std::fmt::Debug for PortPrograms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PortPrograms").field("ifindexes", &self.held.keys()).finish_non_exhaustive()
    }
}

impl PortPrograms {
    /// Loads the programs for up to `workers` workers. No interface is a port yet. Frames sent with `mark`
    /// (SO_MARK, not 0) will leave; the mark is removed. A worker is stuck when a frame has waited for it for
    /// longer than `fail_open`; with 0, no worker ever counts as stuck. `offloaded` is the maximum number of
    /// entries by which the kernel forwards frames itself; with 0, frames are not examined, and
    /// [`Self::take_offload`] has none.
    ///
    /// # Errors
    /// [`SteerError::Object`], [`SteerError::Map`]; [`SteerError::Queue`] for more than [`FILTERS_MAX`](crate::FILTERS_MAX) workers.
    pub fn load(mark: u32, workers: u32, fail_open: Duration, offloaded: u32) -> Result<Self, SteerError> {
        let sizes = if offloaded > 0 { Some(Sizes::of(offloaded, false)?) } else { None };
        let (object, stuck) = load(PORTS, mark, workers, fail_open, sizes.as_ref(), None)?;
        Self::of(object, stuck, sizes, [INGRESS, EGRESS])
    }

    /// The same with flows that survive the process (`bpf/keep.h`). The remains of a former process in the folder
    /// are taken over: entries by which the kernel forwards frames are in force until the end of its lease, and
    /// [`Self::hold`] takes interfaces over without a gap. Call [`Self::has_started`] when that is done for all.
    /// Until then, the remains stay if this is dropped.
    ///
    /// # Errors
    /// As [`Self::load`]; [`SteerError::Pin`], [`SteerError::Lease`].
    pub fn load_keeping(
        mark: u32,
        workers: u32,
        fail_open: Duration,
        offloaded: u32,
        plan: &KeepPlan,
    ) -> Result<Self, SteerError> {
        let sizes = Sizes::of(offloaded, true)?;
        let (pins, pid) = (Pins::open(&plan.folder, sizes, plan.now)?, OwnPid::get()?);
        let (object, stuck) = load(PORTS, mark, workers, fail_open, Some(&sizes), Some((&pins, &pid)))?;
        let mut programs = Self::of(object, stuck, Some(sizes), KEEPING)?;
        let mut kept = Vec::new();
        if let (Some(ends), Some(offload)) = (pins.adopted(), &mut programs.offload) {
            // Before anything of this process can begin a new lease.
            kept = offload.keep_until(ends, plan.now)?;
        }
        let lease = Lease::begin(&mut programs.object, plan.keep, sizes)?;
        programs.keeping = Some(Keeping { pins, lease, kept });
        Ok(programs)
    }

    fn of(
        mut object: Ebpf,
        stuck: StuckRecords,
        sizes: Option<Sizes>,
        attached: [&'static str; 2],
    ) -> Result<Self, SteerError> {
        let Some(Map::HashMap(ports)) = object.take_map("ports") else {
            return Err(SteerError::Missing("ports"));
        };
        let Some(Map::Array(places)) = object.take_map("port_words") else {
            return Err(SteerError::Missing("port_words"));
        };
        let take = |sizes| Offload::take(&mut object, [&ports, &places], sizes);
        let offload = sizes.map(take).transpose()?;
        let ports = HashMap::try_from(Map::HashMap(ports)).map_err(wrote("ports"))?;
        let devices = sizes.is_some().then(|| typed(&mut object, "devices")).transpose()?;
        let places = PortPlaces::new(places)?;
        let served = serve(&mut object, &attached, &SERVE)?;
        let xdp = devices.map(|devices| (devices, places));
        let held = BTreeMap::new();
        Ok(Self { _served: served, object, ports, offload, stuck, xdp, attached, held, keeping: None })
    }

    /// Attaches the filter to the packet socket of a worker. The socket, which may be bound to all interfaces, then
    /// receives only the frames of all ports, or a fan-out group's share of them.
    ///
    /// # Errors
    /// [`SteerError::Queue`], [`SteerError::OtherPath`], [`SteerError::Program`], [`SteerError::Filter`].
    pub fn attach_socket_filter(&mut self, worker: u32, socket: BorrowedFd<'_>) -> Result<(), SteerError> {
        attach_filter(&mut self.object, (LISTEN, &format!("{LISTEN}_{worker}")), worker, socket)
    }

    /// Makes an interface a port: [`Self::prepare`], directly followed by [`Self::claim`].
    ///
    /// # Errors
    /// The errors of both.
    pub fn hold(&mut self, ifindex: u32, unserved: Unserved, how: TcAttach) -> Result<(), SteerError> {
        self.prepare(ifindex, how)?;
        self.claim(ifindex, unserved)
    }

    /// Attaches the programs to an interface that is to be a port, at tc in front of all others. The kernel has its
    /// frames until [`Self::claim`]; only an interface left by a former process is a port immediately. Without BPF
    /// links at tc, the programs outlive a process that is killed, and then do nothing.
    ///
    /// # Errors
    /// [`SteerError::TcxHeld`] if another twinpath instance, or this one, uses the interface; [`SteerError::Program`],
    /// [`SteerError::NoInterface`], [`SteerError::Tcx`], [`SteerError::Clsact`], [`SteerError::Map`].
    pub fn prepare(&mut self, ifindex: u32, how: TcAttach) -> Result<(), SteerError> {
        let interface = interface_name(ifindex)?;
        if self.take_over(ifindex, &interface)? {
            return Ok(());
        }
        refuse_if_held(ifindex, &interface)?;
        let mut links = attach_both(&mut self.object, self.attached, ifindex, how)?;
        if let Some(Keeping { pins, .. }) = &self.keeping {
            let [ingress, egress] = links;
            links = pins.pin(ifindex, [ingress.into_link()?, egress.into_link()?])?.map(TcLink::Tcx);
        }
        self.has_links(ifindex, links)
    }

    /// Gives the frames of a prepared interface to workers, from now on.
    ///
    /// # Errors
    /// [`SteerError::Map`].
    pub fn claim(&mut self, ifindex: u32, unserved: Unserved) -> Result<(), SteerError> {
        if !self.held.contains_key(&ifindex) {
            return Ok(());
        }
        let flags = if unserved == Unserved::Kernel { FAILS_OPEN } else { 0 };
        // An interface left by a former process is a port already.
        let former = self.ports.get(&ifindex, 0).unwrap_or_default();
        self.ports.insert(ifindex, PortWords { flags, ..former }, 0).map_err(wrote("ports"))
    }

    /// The interface is a port, and XDP programs of other ports may send frames to it.
    fn has_links(&mut self, ifindex: u32, links: [TcLink; 2]) -> Result<(), SteerError> {
        if let Some((devices, _)) = &mut self.xdp {
            let put = devices.insert(ifindex, ifindex, None, 0).map_err(|error| match error {
                XdpMapError::MapError(error) => error,
                error => MapError::IoError(std::io::Error::other(error)),
            });
            put.map_err(wrote("devices"))?;
        }
        self.held.insert(ifindex, Held { _tc: links, xdp: None });
        Ok(())
    }

    /// Makes the driver of a port look for an entry for each frame, before the kernel builds a socket buffer.
    /// Frames without an entry take their usual way. What XDP cannot see is assumed to be absent: a tag that the
    /// device has removed from the frame, a checksum that is still to be computed. So it is for a port whose
    /// senders leave neither to the device. On a veth pair, the other end stops segmenting while the program is
    /// there. It is detached with the port, and with the process.
    ///
    /// # Errors
    /// [`SteerError::XdpHeld`] naming the program that is there, [`SteerError::XdpWithoutLink`], [`SteerError::Xdp`],
    /// [`SteerError::Program`]; the port stays what it is.
    pub fn attach_xdp(&mut self, ifindex: u32) -> Result<(), SteerError> {
        xdp_links()?;
        let driver: &mut Xdp = program(&mut self.object, XDP)?;
        if driver.fd().is_err() {
            loaded(XDP, || driver.load())?;
        }
        let failed = |error| refused(ifindex, XdpMode::Native, error);
        let link = driver
            .attach_to_if_index(ifindex, HookMode::Driver)
            .and_then(|id| driver.take_link(id))
            .map_err(failed)?;
        if let Some(held) = self.held.get_mut(&ifindex) {
            held.xdp = Some(link);
        }
        Ok(())
    }

    /// Takes over an interface left by a former process, if there is one. The kernel continues to forward flows
    /// meanwhile: one program replaces the other, with the same maps.
    fn take_over(&mut self, ifindex: u32, interface: &str) -> Result<bool, SteerError> {
        let Some(Keeping { pins, .. }) = &self.keeping else { return Ok(false) };
        let Some(links) = pins.links(ifindex, interface) else {
            pins.remove(ifindex)?;
            return Ok(false);
        };
        let mut taken = Vec::new();
        for (name, link) in self.attached.into_iter().zip(links) {
            let refused = |error| SteerError::Tcx { interface: interface.to_owned(), error: Box::new(error) };
            let classifier: &mut SchedClassifier = program(&mut self.object, name)?;
            taken.push(replace(classifier, link).map_err(refused)?);
        }
        let links = <[TcLink; 2]>::try_from(taken).map_err(|_| SteerError::Missing("link"))?;
        self.has_links(ifindex, links)?;
        Ok(true)
    }

    /// All interfaces that are to be ports are held: the other remains of a former process are removed. Returns its
    /// entries that are in force; they belong to the [`Offload`].
    ///
    /// # Errors
    /// [`SteerError::Pin`], [`SteerError::Map`].
    pub fn has_started(&mut self) -> Result<Vec<KeptEntry>, SteerError> {
        let Some(Keeping { pins, kept, .. }) = &mut self.keeping else { return Ok(Vec::new()) };
        for ifindex in pins.interfaces() {
            if !self.held.contains_key(&ifindex) {
                gone(self.ports.remove(&ifindex), "ports")?;
                pins.remove(ifindex)?;
            }
        }
        if let Some(offload) = &mut self.offload {
            offload.take_alone(kept.iter().map(|kept| kept.entry.number))?;
        }
        pins.stay();
        let mut kept = std::mem::take(kept);
        // Interfaces that were ports before keep their numbers.
        let held = self.held.keys().filter_map(|ifindex| Some((*ifindex, self.ports.get(ifindex, 0).ok()?)));
        let by_number: BTreeMap<u16, u32> = held.map(|(ifindex, words)| (words.number, ifindex)).collect();
        for kept in &mut kept {
            kept.from = by_number.get(&kept.in_port()).copied();
        }
        // Numbers may belong to others now: a port without any of these entries has no number until it is given
        // one.
        for ifindex in
            self.held.keys().filter(|ifindex| !kept.iter().any(|kept| kept.from == Some(**ifindex)))
        {
            let Ok(PortWords { flags, .. }) = self.ports.get(ifindex, 0) else { continue };
            let words = PortWords { flags, ..PortWords::default() };
            self.ports.insert(*ifindex, words, 0).map_err(wrote("ports"))?;
        }
        if let Some(Keeping { lease, .. }) = &self.keeping {
            lease.takes_over();
        }
        Ok(kept)
    }

    /// The folder of the state that survives the process.
    #[must_use]
    pub fn folder(&self) -> Option<&Path> {
        self.keeping.as_ref().map(|keeping| keeping.pins.folder())
    }

    /// The process ends: flows survive from now on.
    pub fn leave(&self, now: Instant) {
        if let Some(Keeping { lease, .. }) = &self.keeping {
            lease.ends_now(now);
        }
    }

    /// Returns an interface, which may be gone already, to the kernel. Frames given to workers before are still in
    /// their rings.
    ///
    /// # Errors
    /// [`SteerError::Map`]; the interface is returned nevertheless.
    pub fn release(&mut self, ifindex: u32) -> Result<(), SteerError> {
        let Some(held) = self.held.remove(&ifindex) else { return Ok(()) };
        let mut removed = gone(self.ports.remove(&ifindex), "ports");
        if let Some((devices, places)) = &mut self.xdp {
            removed = removed.and(gone(devices.remove(ifindex), "devices")).and(places.clear(ifindex));
        }
        let unpinned = self.keeping.as_ref().map_or(Ok(()), |keeping| keeping.pins.remove(ifindex));
        drop(held);
        removed.and(unpinned)
    }

    /// Returns all interfaces to the kernel at the same time. The programs stay attached, and do nothing, until
    /// this is dropped.
    ///
    /// # Errors
    /// [`SteerError::Map`].
    pub fn release_all(&mut self) -> Result<(), SteerError> {
        if let Some(Keeping { pins, .. }) = &mut self.keeping {
            pins.go();
        }
        let mut released = Ok(());
        for ifindex in self.held.keys() {
            // The program in the driver first: it looks for entries by its own words.
            if let Some((_, places)) = &mut self.xdp {
                released = released.and(places.clear(*ifindex));
            }
            released = released.and(gone(self.ports.remove(ifindex), "ports"));
        }
        released
    }

    /// The entries by which the kernel itself forwards frames between the ports, if enabled. They end with this.
    pub const fn take_offload(&mut self) -> Option<Offload> {
        self.offload.take()
    }

    /// A program, for test runs; it is loaded if necessary.
    #[doc(hidden)]
    pub fn program(&mut self, name: &'static str) -> Result<&SchedClassifier, SteerError> {
        let classifier: &mut SchedClassifier = program(&mut self.object, name)?;
        if classifier.fd().is_err() {
            loaded(name, || classifier.load())?;
        }
        Ok(classifier)
    }

    /// The XDP program, for test runs; it is loaded if necessary.
    #[doc(hidden)]
    pub fn xdp_program(&mut self) -> Result<&Xdp, SteerError> {
        let driver: &mut Xdp = program(&mut self.object, XDP)?;
        if driver.fd().is_err() {
            loaded(XDP, || driver.load())?;
        }
        Ok(driver)
    }

    /// The words that tell since when a frame has waited for a worker, one each, to be mapped like those of
    /// [`Steering::pending`](crate::Steering::pending). `None` if no worker ever counts as stuck.
    #[must_use]
    pub fn pending(&self) -> Option<BorrowedFd<'_>> {
        self.stuck.words()
    }

    /// Becomes readable when the programs have found a worker stuck, and stays so until [`Self::read_stuck`].
    /// `None` if no worker ever counts as stuck.
    #[must_use]
    pub fn stuck(&self) -> Option<BorrowedFd<'_>> {
        self.stuck.readable()
    }

    /// Acknowledges that.
    pub fn read_stuck(&mut self) {
        self.stuck.discard();
    }
}
