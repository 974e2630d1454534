//! Makes interfaces ports of a switch: its workers receive all of their frames, and the kernel's own stack none.

use std::collections::BTreeMap;
use std::os::fd::{BorrowedFd, OwnedFd};

use aya::maps::xdp::{DevMapHash, XdpMapError};
use aya::maps::{HashMap, Map, MapData, MapError};
use aya::programs::xdp::{XdpLink, XdpMode as HookMode};
use aya::programs::{SchedClassifier, Xdp};
use aya::{Ebpf, include_bytes_aligned};
use twinpath_time::Duration;

use crate::SteerError;
use crate::exclusive::{attach_both, load, refuse_if_held};
use crate::layout::PortWords;
use crate::maps::{gone, typed, wrote};
use crate::names::{PORT_INGRESS as INGRESS, interface_name};
use crate::offload::{Offload, PortPlaces, Sizes};
use crate::served::serve;
use crate::steering::{XdpMode, attach_filter, loaded, program, refused, xdp_links};
use crate::stuck::StuckRecords;
use crate::tc::{TcAttach, TcLink};

static PORTS: &[u8] = include_bytes_aligned!("../object/ports.o");

const EGRESS: &str = "twinpath_port_out";
const XDP: &str = "twinpath_port_xdp";
/// What these two do while there is a process to serve, by their places in the array of tail calls.
const SERVE: [&str; 2] = ["twinpath_serve_in", "twinpath_serve_out"];
/// One program for each worker, with the worker's number at the end.
const LISTEN: &str = "twinpath_port";

/// `FAILS_OPEN` of bpf/ports.c.
const FAILS_OPEN: u32 = 1;

/// What the kernel does with the frames of a port that no worker gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unserved {
    /// It drops them.
    Dropped,
    /// Its own stack gets them: a bridge that the interface belongs to carries them.
    Kernel,
}

/// The programs and maps of the ports of one network namespace. Every call that attaches is made in that namespace.
/// Dropping this gives all interfaces back.
pub struct PortPrograms {
    /// The array of tail calls. When the last descriptor of it is closed, all ports are the kernel's at once.
    _served: OwnedFd,
    object: Ebpf,
    ports: HashMap<MapData, u32, PortWords>,
    offload: Option<Offload>,
    stuck: StuckRecords,
    /// Where the XDP program may send frames, and what it knows of ports; `None` without entries.
    xdp: Option<(DevMapHash<MapData>, PortPlaces)>,
    /// The interfaces that are ports, and their links.
    held: BTreeMap<u32, Held>,
}

/// What keeps an interface a port.
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
    /// Loads the programs for up to `workers` workers. No interface is a port yet. Frames sent with `mark` (SO_MARK, not 0)
    /// will leave; the mark is removed. A worker is stuck when a frame has waited for it for longer than `fail_open`; with 0,
    /// no worker is ever taken to be stuck. `offloaded` is how many entries there may be by which the kernel forwards frames
    /// itself; with 0, frames are not looked at, and [`Self::take_offload`] has none.
    ///
    /// # Errors
    /// [`SteerError::Object`], [`SteerError::Map`]; [`SteerError::Queue`] for more than [`FILTERS_MAX`](crate::FILTERS_MAX) workers.
    pub fn load(mark: u32, workers: u32, fail_open: Duration, offloaded: u32) -> Result<Self, SteerError> {
        let sizes = if offloaded > 0 { Some(Sizes::of(offloaded)?) } else { None };
        let (mut object, stuck) = load(PORTS, mark, workers, fail_open, sizes.as_ref())?;
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
        let served = serve(&mut object, &[INGRESS, EGRESS], &SERVE)?;
        let xdp = devices.map(|devices| (devices, places));
        Ok(Self { _served: served, object, ports, offload, stuck, xdp, held: BTreeMap::new() })
    }

    /// Attaches the filter to the packet socket of a worker. The socket then takes the frames of all ports, or a fan-out
    /// group's share of them, and no others; it may be bound to all interfaces.
    ///
    /// # Errors
    /// [`SteerError::Queue`], [`SteerError::OtherPath`], [`SteerError::Program`], [`SteerError::Filter`].
    pub fn attach_socket_filter(&mut self, worker: u32, socket: BorrowedFd<'_>) -> Result<(), SteerError> {
        attach_filter(&mut self.object, (LISTEN, &format!("{LISTEN}_{worker}")), worker, socket)
    }

    /// Makes an interface a port: from now on workers get its frames. The programs at tc are in front of all others. Without
    /// BPF links at tc they outlive a process that is killed, and then do nothing.
    ///
    /// # Errors
    /// [`SteerError::TcxHeld`] if another twinpath instance, or this one, uses the interface; [`SteerError::Program`],
    /// [`SteerError::NoInterface`], [`SteerError::Tcx`], [`SteerError::Clsact`], [`SteerError::Map`].
    pub fn hold(&mut self, ifindex: u32, unserved: Unserved, how: TcAttach) -> Result<(), SteerError> {
        refuse_if_held(ifindex, &interface_name(ifindex)?)?;
        let links = attach_both(&mut self.object, [INGRESS, EGRESS], ifindex, how)?;
        let flags = if unserved == Unserved::Kernel { FAILS_OPEN } else { 0 };
        let words = PortWords { flags, ..PortWords::default() };
        self.ports.insert(ifindex, words, 0).map_err(wrote("ports"))?;
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

    /// Has the driver of a port look for an entry for each frame, before the kernel builds a packet of it; frames without one
    /// go the way that they would go otherwise. What XDP cannot see is taken to be absent: a tag that the device has taken off
    /// the frame, a checksum that is still to be computed. So it is for a port behind which nobody leaves either to the device.
    /// On a veth pair the other end stops to segment by itself while the program is there. It goes with the port, and with the
    /// process.
    ///
    /// # Errors
    /// [`SteerError::XdpHeld`] naming the program that is there, [`SteerError::XdpWithoutLink`], [`SteerError::Xdp`],
    /// [`SteerError::Program`]; the port stays what it is.
    pub fn attach_xdp(&mut self, ifindex: u32) -> Result<(), SteerError> {
        xdp_links()?;
        let driver: &mut Xdp = program(&mut self.object, XDP)?;
        if driver.fd().is_err() {
            loaded(XDP, driver.load())?;
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

    /// Gives an interface back, which may be gone already. Frames that workers have been given are still in their rings.
    ///
    /// # Errors
    /// [`SteerError::Map`]; the interface is given back all the same.
    pub fn release(&mut self, ifindex: u32) -> Result<(), SteerError> {
        let Some(held) = self.held.remove(&ifindex) else { return Ok(()) };
        let mut removed = gone(self.ports.remove(&ifindex), "ports");
        if let Some((devices, places)) = &mut self.xdp {
            removed = removed.and(gone(devices.remove(ifindex), "devices")).and(places.clear(ifindex));
        }
        drop(held);
        removed
    }

    /// Gives all interfaces back at once; the programs stay attached, and do nothing, until this is dropped.
    ///
    /// # Errors
    /// [`SteerError::Map`].
    pub fn release_all(&mut self) -> Result<(), SteerError> {
        self.held.keys().try_for_each(|ifindex| gone(self.ports.remove(ifindex), "ports"))
    }

    /// The entries by which the kernel forwards frames between the ports itself, if there may be any. They end with this.
    pub const fn take_offload(&mut self) -> Option<Offload> {
        self.offload.take()
    }

    /// A program, for test runs; it is loaded if need be.
    #[doc(hidden)]
    pub fn program(&mut self, name: &'static str) -> Result<&SchedClassifier, SteerError> {
        let classifier: &mut SchedClassifier = program(&mut self.object, name)?;
        if classifier.fd().is_err() {
            loaded(name, classifier.load())?;
        }
        Ok(classifier)
    }

    /// The XDP program, for test runs; it is loaded if need be.
    #[doc(hidden)]
    pub fn xdp_program(&mut self) -> Result<&Xdp, SteerError> {
        let driver: &mut Xdp = program(&mut self.object, XDP)?;
        if driver.fd().is_err() {
            loaded(XDP, driver.load())?;
        }
        Ok(driver)
    }

    /// The words that tell since when a frame has waited for a worker, one each, to be mapped as those of
    /// [`Steering::pending`](crate::Steering::pending). `None` if no worker is ever taken to be stuck.
    #[must_use]
    pub fn pending(&self) -> Option<BorrowedFd<'_>> {
        self.stuck.words()
    }

    /// Becomes readable when the programs have found a worker stuck, and stays so until [`Self::read_stuck`]. `None` if no
    /// worker is ever taken to be stuck.
    #[must_use]
    pub fn stuck(&self) -> Option<BorrowedFd<'_>> {
        self.stuck.readable()
    }

    /// Acknowledges that.
    pub fn read_stuck(&mut self) {
        self.stuck.discard();
    }
}
