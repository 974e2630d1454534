//! Connections of TCP that workers have: the tuples, the rings of SYNs, and the filter of the kernel's listeners
//! (bpf/connections.h, bpf/opens.h, bpf/listener.c). They are made once for an instance, and read by the programs of
//! each attachment, so that connections outlive an attachment.

use std::net::SocketAddr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use aya::maps::of_maps::ArrayOfMaps;
use aya::maps::{HashMap, Map, MapData, MapError, ProgramArray, RingBuf};
use aya::programs::SocketFilter;
use aya::{Ebpf, EbpfLoader, include_bytes_aligned};
use twinpath_sys::Namespace;
use twinpath_sys::descriptors::close_first;
use twinpath_sys::socket_filter;

use crate::SteerError;
use crate::layouts::{FlowKeyBytes, SYN_QUEUES, TCP_DECLINED, TcpFlow, tcp_room};
use crate::made::{array, hash, ring};
use crate::mapped::Mapped;
use crate::maps::{failed, typed, wrote};
use crate::program::{loaded, program};
use crate::tcp_claims::{TcpClaims, key_of};

static LISTENER: &[u8] = include_bytes_aligned!("../object/listener.o");

/// The program that is attached to listeners, and its working part.
const FILTER: &str = "twinpath_listener";
const GUARD: &str = "twinpath_guard";

/// Maximum number of connections of all workers. The kernel takes memory only for those that exist, some 150 bytes each.
pub const TCP_FLOWS_MAX: u32 = 1 << 20;

/// Maximum number of workers with connections.
pub const TCP_WORKERS_MAX: u32 = SYN_QUEUES as u32;

/// Memory of a worker's ring of SYNs, bytes: about 1,900 of them.
const RING_BYTES: u32 = 256 << 10;

/// A map of maps.
pub(crate) type Outer = ArrayOfMaps<MapData, MapData>;

/// The tuples of connections that workers have, a ring of SYNs for each worker, and the filter of the listeners.
/// Dropping it, or the end of the process however it comes, ends the filter: from then on the listeners answer segments
/// of these connections with a reset. So no other process may get a descriptor of it.
pub struct TcpFlows {
    flows: MapData,
    /// The same, to look tuples up.
    tuples: HashMap<MapData, FlowKeyBytes, TcpFlow>,
    rings: Vec<MapData>,
    rooms: Arc<Mapped>,
    /// The programs of the listeners.
    object: Ebpf,
    /// The maps of maps that the guard reads.
    _read: [Outer; 2],
    /// The array by which listeners reach the guard: the only descriptor of it.
    _guards: OwnedFd,
    /// The network namespace of the thread that has made them.
    namespace: Namespace,
}

impl std::fmt::Debug for TcpFlows {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TcpFlows").field("workers", &self.rings.len()).finish_non_exhaustive()
    }
}

impl TcpFlows {
    /// Makes the maps for up to [`TCP_FLOWS_MAX`] connections of `workers` workers, and loads the listeners' filter.
    /// Workers take no connection yet.
    ///
    /// # Errors
    /// [`SteerError::Map`], [`SteerError::Object`], [`SteerError::Program`]; [`SteerError::Queue`] for more than
    /// [`TCP_WORKERS_MAX`] workers.
    pub fn load(workers: u32) -> Result<Self, SteerError> {
        Self::load_for(workers, TCP_FLOWS_MAX)
    }

    /// As [`Self::load`], for up to `flows_max` connections.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn load_for(workers: u32, flows_max: u32) -> Result<Self, SteerError> {
        if workers > TCP_WORKERS_MAX {
            return Err(SteerError::Queue { queue: workers, max: TCP_WORKERS_MAX });
        }
        let (key_len, value_len) = (size_of::<FlowKeyBytes>(), size_of::<TcpFlow>());
        let flows = hash("tcp_flows", key_len as u32, value_len as u32, flows_max)?;
        let rings = (0..workers).map(|_| {
            let [given, _] = ring("tcp_syns", RING_BYTES)?;
            Ok(given)
        });
        let rings = rings.collect::<Result<Vec<_>, SteerError>>()?;
        let rooms = array("tcp_rooms", tcp_room::LEN as u32, TCP_WORKERS_MAX)?;
        let rooms = Arc::new(Mapped::of("tcp_rooms", rooms, tcp_room::LEN * SYN_QUEUES)?);
        let mut object =
            EbpfLoader::new().load(LISTENER).map_err(|error| SteerError::Object(Box::new(error)))?;
        let mut read: Outer = typed(&mut object, "tcp_flows")?;
        read.set(0, &flows, 0).map_err(wrote("tcp_flows"))?;
        let syns = give_rings(&mut object, &rings)?;
        let guards = load_filter(&mut object)?;
        Ok(Self {
            tuples: tuples(&flows)?,
            flows,
            rings,
            rooms,
            object,
            _read: [read, syns],
            _guards: guards,
            namespace: Namespace::own().map_err(SteerError::Namespace)?,
        })
    }

    /// The end of a worker, of which only one may exist at a time. The worker's number is that of its queue.
    ///
    /// # Errors
    /// [`SteerError::Queue`], [`SteerError::Map`].
    pub fn claims(&self, worker: u32) -> Result<TcpClaims, SteerError> {
        let max = self.rings.len() as u32;
        let ring = self.rings.get(worker as usize).ok_or(SteerError::Queue { queue: worker, max })?;
        let opening =
            |map| move |error: MapError| SteerError::Map { map, action: "opening", error: Box::new(error) };
        let ring = RingBuf::try_from(Map::RingBuf(again("tcp_syns", ring)?)).map_err(opening("tcp_syns"))?;
        let flows = tuples(&self.flows)?;
        Ok(TcpClaims::new(worker as u16, flows, ring, Arc::clone(&self.rooms)))
    }

    /// The worker that has the connection between these ends, or its SYN; `None` if none has. A system call.
    #[must_use]
    pub fn worker_of(&self, local: SocketAddr, remote: SocketAddr) -> Option<u32> {
        let flow = self.tuples.get(&key_of(local, remote), 0).ok()?;
        (flow.flags & TCP_DECLINED == 0).then_some(flow.queue.into())
    }

    /// Makes a listener of the kernel drop the segments of workers' connections, before the first one exists. Sockets
    /// that it accepts inherit the filter, which should be removed (`twinpath_sys::socket_filter::detach`).
    ///
    /// # Errors
    /// [`SteerError::Listener`].
    pub fn guard(&self, listener: BorrowedFd<'_>) -> Result<(), SteerError> {
        let filter = self.object.program(FILTER).ok_or(SteerError::Missing(FILTER))?;
        let fd = filter.fd().map_err(|error| SteerError::Program { name: FILTER, error: Box::new(error) })?;
        socket_filter::attach(listener, fd.as_fd()).map_err(SteerError::Listener)
    }

    /// The network namespace in which they were made.
    pub(crate) fn namespace(&self) -> BorrowedFd<'_> {
        self.namespace.as_fd()
    }

    /// Gives the tuples and the rings to the programs of an object.
    pub(crate) fn give_to_filter(&self, object: &mut Ebpf) -> Result<[Outer; 2], SteerError> {
        let mut flows: Outer = typed(object, "tcp_flows")?;
        flows.set(0, &self.flows, 0).map_err(wrote("tcp_flows"))?;
        Ok([flows, give_rings(object, &self.rings)?])
    }

    /// Gives them to the programs of a loaded object.
    pub(crate) fn give(self: &Arc<Self>, object: &mut Ebpf) -> Result<GivenFlows, SteerError> {
        let mut flows: Outer = typed(object, "tcp_flows")?;
        let mut rooms: Outer = typed(object, "tcp_rooms")?;
        flows.set(0, &self.flows, 0).map_err(wrote("tcp_flows"))?;
        rooms.set(0, self.rooms.map(), 0).map_err(wrote("tcp_rooms"))?;
        let rings = give_rings(object, &self.rings)?;
        Ok(GivenFlows { _maps: [flows, rooms, rings], _flows: Arc::clone(self) })
    }
}

/// What the programs of an object read; held while they run.
pub(crate) struct GivenFlows {
    _maps: [Outer; 3],
    _flows: Arc<TcpFlows>,
}

/// Gives each worker's ring to the programs of an object.
fn give_rings(object: &mut Ebpf, rings: &[MapData]) -> Result<Outer, SteerError> {
    let mut given: Outer = typed(object, "tcp_syns")?;
    for (queue, ring) in rings.iter().enumerate() {
        given.set(queue as u32, ring, 0).map_err(wrote("tcp_syns"))?;
    }
    Ok(given)
}

/// A handle of the map of tuples.
fn tuples(flows: &MapData) -> Result<HashMap<MapData, FlowKeyBytes, TcpFlow>, SteerError> {
    let opened = HashMap::try_from(Map::HashMap(again("tcp_flows", flows)?));
    opened.map_err(|error| SteerError::Map { map: "tcp_flows", action: "opening", error: Box::new(error) })
}

/// Another handle of a map.
fn again(name: &'static str, map: &MapData) -> Result<MapData, SteerError> {
    let fd = map.fd().as_fd().try_clone_to_owned().map_err(|error| failed(name, "sharing", error))?;
    MapData::from_fd(fd).map_err(|error| SteerError::Map {
        map: name,
        action: "sharing",
        error: Box::new(error),
    })
}

/// Loads the filter and its working part. Returns the only descriptor of the array that leads from one to the other.
fn load_filter(object: &mut Ebpf) -> Result<OwnedFd, SteerError> {
    let Some(Map::ProgramArray(map)) = object.take_map("guards") else {
        return Err(SteerError::Missing("guards"));
    };
    // They refer to the map by its present descriptor.
    for name in [FILTER, GUARD] {
        let filter: &mut SocketFilter = program(object, name)?;
        loaded(name, || filter.load())?;
    }
    let held = close_first(map.fd().as_fd()).map_err(|error| failed("guards", "holding", error))?;
    let mut array = ProgramArray::try_from(Map::ProgramArray(map)).map_err(wrote("guards"))?;
    let guard: &mut SocketFilter = program(object, GUARD)?;
    let fd = guard.fd().map_err(|error| SteerError::Program { name: GUARD, error: Box::new(error) })?;
    array.set(0, fd, 0).map_err(wrote("guards"))?;
    Ok(held)
}
