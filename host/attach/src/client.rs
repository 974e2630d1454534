//! The fast path for a client: claims its own flows on an interface, and finds the egress to one target.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use twinpath_bpf::{Datagrams, SteerError, TcpFlows, describes_datagrams};
use twinpath_claims::Claim;
use twinpath_config::{AttachAsked, Path, PathAsked};
use twinpath_frame::{Pool, PoolError};
use twinpath_sys::tcp_held;
use twinpath_time::Duration;
use twinpath_udp::egress::{Egress, KernelReason};
use twinpath_wire::{FlowKey, Protocol};

use crate::attachment::{
    AttachError, AttachPlan, Attachment, DATAGRAM_CHUNKS, PlacedQueue, SUPER_FRAME_CHUNKS, Target,
    pool_frames,
};
use crate::interface::{InterfaceError, find_link, learn_facts};
use crate::mirror::{Mirror, MirrorError, MirrorLimits};
use crate::path::choose::{Choice, Refusal, choose};
use crate::path::facts::InterfaceFacts;

/// How long a neighbour may take to answer: the kernel tries three times, a second apart.
const RESOLVE_PATIENCE: Duration = Duration::from_secs(4);

/// The reason why a client cannot use the fast path.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The interface.
    #[error("{0}")]
    Interface(#[from] InterfaceError),
    /// The requested path is not possible.
    #[error("{0}")]
    Path(#[from] Refusal),
    /// Netlink.
    #[error("{0}")]
    Mirror(#[from] MirrorError),
    /// The chosen path is the kernel's.
    #[error("{interface} has no fast path: {why}; leave out --on to measure over kernel sockets")]
    NoFastPath {
        /// The interface.
        interface: String,
        /// Why.
        why: String,
    },
    /// Frames to the target do not leave by this interface.
    #[error("{target} can't be reached by {interface}: {why}")]
    NoWay {
        /// The target.
        target: IpAddr,
        /// The interface.
        interface: String,
        /// The reason, as text.
        why: &'static str,
    },
    /// No local port could be opened.
    #[error("cannot open a local socket towards {target}: {source}")]
    Socket {
        /// The target.
        target: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
    /// The kernel's programs leave no connection to a worker.
    #[error("no TCP on the fast path of {interface}: {why}; leave out --on to measure over kernel sockets")]
    NoConnections {
        /// The interface.
        interface: String,
        /// Why.
        why: String,
    },
    /// The frame memory could not be allocated.
    #[error("{0}")]
    Pool(#[from] PoolError),
    /// The programs or sockets.
    #[error("cannot attach {path} to {interface}: {source}")]
    Attach {
        /// The path.
        path: Path,
        /// The interface.
        interface: String,
        /// Why.
        source: AttachError,
    },
}

/// An interface chosen for a client, and the egress from it to the target.
pub struct Client {
    facts: InterfaceFacts,
    choice: Choice,
    mac: twinpath_wire::Mac,
    target: SocketAddr,
    egress: Egress,
}

/// One flow of a client, claimed.
pub struct ClientPath {
    /// Holds the claims; dropping it detaches the programs.
    pub attachment: Attachment,
    /// The queues, all for one worker.
    pub queues: Vec<PlacedQueue>,
    /// That worker's memory.
    pub pool: Pool,
    /// Our end of the flow.
    pub local: SocketAddr,
    /// Its other end.
    pub target: SocketAddr,
    /// The egress to the target.
    pub egress: Egress,
    /// Holds the local port, and gets the packets that do not take the fast path. To be closed after the attachment.
    pub socket: OwnedFd,
}

impl Client {
    /// Chooses a path on `interface` and finds the egress to `target`.
    ///
    /// # Errors
    /// [`ClientError`]; nothing is attached yet.
    pub fn find(interface: &str, asked: PathAsked, target: SocketAddr) -> Result<Self, ClientError> {
        let mut mirror = Mirror::open(MirrorLimits::default())?;
        let link = find_link(&mirror, interface)?;
        // Naming an interface for a client is a request for a fast path on it.
        let facts = learn_facts(&mirror, &link, false, AttachAsked::Auto);
        let choice = choose(&facts, asked)?;
        let no_way = |why| ClientError::NoWay { target: target.ip(), interface: interface.to_owned(), why };
        let Some(mac) = link.mac.filter(|_| choice.path != Path::Kernel) else {
            return Err(ClientError::NoFastPath { interface: interface.to_owned(), why: choice.why });
        };
        mirror.serve_on([link.ifindex]);
        let egress = mirror.resolve(target.ip(), None, RESOLVE_PATIENCE).map_err(|reason| {
            no_way(match reason {
                KernelReason::Unknown => "the kernel did not say how in time",
                KernelReason::Unresolved | KernelReason::UnresolvedPeer { .. } => {
                    "its next hop does not answer ARP or neighbour discovery"
                }
                KernelReason::OtherInterface => "the route leaves by another interface",
                KernelReason::NotPlain => "the route is local, or needs an encapsulation",
                KernelReason::NoRoute => "there is no route",
            })
        })?;
        Ok(Self { facts, choice, mac, target, egress })
    }

    /// The path chosen.
    #[must_use]
    pub const fn choice(&self) -> &Choice {
        &self.choice
    }

    /// Largest UDP payload that fits into one frame, bytes.
    #[must_use]
    pub const fn payload_max(&self) -> usize {
        let headers = if self.target.is_ipv4() { 28 } else { 48 };
        (self.egress.mtu as usize).saturating_sub(headers)
    }

    /// Claims a flow of datagrams from a free local port to the target.
    ///
    /// # Errors
    /// [`ClientError`]; in this case nothing stays attached.
    pub fn open(&self, ring_frames: u32) -> Result<ClientPath, ClientError> {
        let (socket, local) = connect(self.target).map_err(self.no_socket())?;
        let claim = Claim::flow(FlowKey::new(Protocol::Udp, self.target, local));
        self.attach(socket.into(), local, claim, None, ring_frames)
    }

    /// Claims the segments of one TCP connection from a free local port to the target. The connection is the caller's to
    /// open. The kernel has none between these ends, but answers no segment of it: what does not take the fast path is
    /// dropped, until [`ClientPath::socket`] is closed, or the process ends. From then on it is answered by a reset.
    ///
    /// # Errors
    /// [`ClientError`]; in this case nothing stays attached.
    pub fn open_connection(&self, ring_frames: u32) -> Result<ClientPath, ClientError> {
        let (socket, local) = tcp_held::hold(self.target).map_err(self.no_socket())?;
        let flows = TcpFlows::load(1).map_err(|error| self.no_attachment(error.into()))?;
        let insert = |flows: &TcpFlows| flows.claims(0)?.insert(local, self.target);
        insert(&flows).map_err(|error: SteerError| self.no_attachment(error.into()))?;
        let claim = Claim::connections(local.port());
        let path = self.attach(socket, local, claim, Some(Arc::new(flows)), ring_frames)?;
        match path.attachment.no_connections() {
            Some(why) => {
                Err(ClientError::NoConnections { interface: self.facts.name.clone(), why: why.to_owned() })
            }
            None => Ok(path),
        }
    }

    fn attach(
        &self,
        socket: OwnedFd,
        local: SocketAddr,
        claim: Claim,
        connections: Option<Arc<TcpFlows>>,
        ring_frames: u32,
    ) -> Result<ClientPath, ClientError> {
        let target = Target {
            ifindex: self.egress.ifindex,
            mac: self.mac,
            addresses: vec![local.ip()],
            claims: vec![claim],
        };
        let rx_queues = self.facts.rx_queues.max(1);
        // The peer's kernel sends segments of up to 64 KiB on a virtual device, and a NIC glues them.
        let super_frames = connections.is_some();
        // A client has no socket of the kernel from which it would read those that come before its own.
        let has_datagrams = !super_frames && describes_datagrams();
        let datagrams = if has_datagrams { Datagrams::All } else { Datagrams::None };
        let plan = AttachPlan {
            path: self.choice.path,
            rx_queues,
            ring_frames,
            tc: self.facts.tc_attach(),
            virtual_device: self.facts.is_virtual(),
            port: 0,
            fail_open: Duration::ZERO,
            replies: None,
            super_frames,
            datagrams,
            connections,
        };
        let more = if super_frames { SUPER_FRAME_CHUNKS } else { 0 }
            + if has_datagrams { DATAGRAM_CHUNKS } else { 0 };
        let pool = Pool::new(pool_frames(plan.path, rx_queues, ring_frames) + more)?;
        let regions = [Arc::clone(pool.region())];
        let (attachment, queues) =
            Attachment::attach(target, &plan, &regions).map_err(|source| self.no_attachment(source))?;
        Ok(ClientPath { attachment, queues, pool, local, target: self.target, egress: self.egress, socket })
    }

    fn no_socket(&self) -> impl FnOnce(std::io::Error) -> ClientError {
        let target = self.target;
        move |source| ClientError::Socket { target, source }
    }

    fn no_attachment(&self, source: AttachError) -> ClientError {
        ClientError::Attach { path: self.choice.path, interface: self.facts.name.clone(), source }
    }
}

/// A kernel socket on a free port, with the source address that the kernel would choose.
fn connect(target: SocketAddr) -> std::io::Result<(UdpSocket, SocketAddr)> {
    let any: IpAddr = if target.is_ipv4() { [0u8; 4].into() } else { [0u8; 16].into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(target)?;
    let local = socket.local_addr()?;
    Ok((socket, local))
}
