//! An interface on which kernel UDP sockets have leases: while threads poll them, their datagrams arrive by
//! rings. The sockets belong to this process ([`LeasedInterface::lend`]), or to others (`loan.rs`).

use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_send_buffer_size, socket_send_buffer_size};
use twinpath_bpf::{Assigned, LEASE_SLOTS, LEASES_MAX, Leases, SteerError, Withdrawal};
use twinpath_claims::{Claim, Table};
use twinpath_config::{AttachAsked, PathAsked};
use twinpath_frame::Mapping;
use twinpath_rings::direct::{DirectRing, SLOT_LEN, STATE_LEN};
use twinpath_rings::lease::Lease;
use twinpath_rings::sample::{SAMPLE_LEN, Sample};
use twinpath_sys::PacketSocket;
use twinpath_sys::scheduling::when_idle;
use twinpath_sys::udp_socket::has_filter;
use twinpath_wire::{Mac, Protocol};

use crate::attachment::{AttachError, Target};
use crate::interface::{InterfaceError, find_link, learn_facts};
use crate::mirror::table::Tables;
use crate::mirror::{Mirror, MirrorError, MirrorLimits};
use crate::path::bypassed::{self, Bypassed, Claimed};
use crate::path::choose::{Refusal, choose};
use crate::path::facts::InterfaceFacts;

/// Sockets with a lease on one interface, of one process, at most. Each takes 512 KiB.
pub const SOCKETS_MAX: u32 = 16;
const _: () = assert!(SOCKETS_MAX <= LEASES_MAX);

/// The reason why a socket gets no lease.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// The interface.
    #[error("{0}")]
    Interface(#[from] InterfaceError),
    /// Netlink.
    #[error("{0}")]
    Mirror(#[from] MirrorError),
    /// Frames that arrive there cannot be claimed, or a privilege is missing.
    #[error("{0}")]
    Path(String),
    /// The kernel is configured to process these frames in a way that the fast path would bypass.
    #[error("{0}")]
    Bypassed(Bypassed),
    /// The claims or the program.
    #[error("{0}")]
    Attach(#[from] AttachError),
    /// The memory of a ring.
    #[error("cannot map the ring of a lease: {0}; raise the limit of locked memory (ulimit -l) or of memory")]
    Memory(Errno),
    /// Only that filter knows which datagrams the socket receives.
    #[error("the socket has a filter (SO_ATTACH_FILTER, SO_ATTACH_BPF), which the fast path would leave out")]
    Filtered,
    /// The kernel did not tell whether the socket has a filter.
    #[error("cannot ask whether the socket has a filter: {0}")]
    Filter(std::io::Error),
    /// The contents of rings cannot be handed over.
    #[error("cannot send what is in rings: {0}")]
    HandOver(std::io::Error),
    /// The socket has a lease already; it can have only one.
    #[error("the socket has a lease already, by another descriptor of it")]
    HasLease,
    /// All leases are taken.
    #[error("{interface} has no lease left: {most} sockets of this process have one there")]
    Full {
        /// The interface.
        interface: String,
        /// The maximum number.
        most: u32,
    },
}

impl From<Refusal> for LeaseError {
    fn from(refusal: Refusal) -> Self {
        Self::Path(format!("{} has no fast path for sockets: {}", refusal.interface, refusal.reason))
    }
}

impl From<SteerError> for LeaseError {
    fn from(error: SteerError) -> Self {
        Self::Attach(error.into())
    }
}

/// When programs are loaded into the kernel, which verifies them: this takes about 0.4 s of CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Now.
    AtOnce,
    /// When nobody else wants a CPU, for a few seconds. Code that asks for a lease continues meanwhile,
    /// without it. Nothing is attached in that time, because attaching holds a lock that the whole host
    /// shares.
    WhenIdle,
}

/// How long loading waits for an idle CPU.
const LOADS_WHEN_IDLE: std::time::Duration = std::time::Duration::from_secs(5);

/// The means by which a socket's datagrams are sent as frames.
#[derive(Debug)]
pub struct Sending {
    /// Shows the headers with which the kernel sends for the socket.
    pub sample: Sample,
    /// Sends frames on the interface. It may have as many bytes under way as the socket itself (SO_SNDBUF).
    /// `None` if it could not be opened: the kernel sends.
    pub frames: Option<PacketSocket>,
    /// The interface's address. A frame with another source address belongs to a device stacked on it.
    pub mac: Mac,
}

/// The properties of the interface that the holder of a lease must know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeasedOn {
    /// Whether checksums may be partial because the sender left them to hardware.
    pub partial_checksums: bool,
    /// The addresses of this host on the interface.
    pub own: Vec<IpAddr>,
    /// Its kernel index.
    pub ifindex: u32,
    /// Bytes of the longest IP packet there.
    pub mtu: u32,
}

/// A lease given to a socket of this process; [`Loan`](crate::Loan) is a lease for another process.
#[derive(Debug)]
pub struct OwnLease {
    /// Its number, for giving it back.
    pub number: u32,
    /// The holder's end.
    pub lease: Lease,
    /// Takes the lease from the socket when the socket is closed while others use the interface;
    /// [`LeasedInterface::set_free`] must follow.
    pub withdrawal: Withdrawal,
    /// The interface.
    pub on: LeasedOn,
}

/// A lease that can be given to a socket.
#[derive(Debug, Default)]
pub(crate) struct Place {
    /// The claim of its socket; `None` if the lease is free.
    pub(crate) claim: Option<Claim>,
    /// The address that its socket is bound to.
    pub(crate) local: Option<SocketAddr>,
    /// How often it has been given; not 0 while it is in use.
    pub(crate) lent: u32,
}

/// The number of this process, among those with rings.
pub(crate) const OWN: u32 = 0;

/// The means for handing frames over (`handed.rs`).
#[derive(Debug)]
pub(crate) struct Handing {
    pub(crate) socket: PacketSocket,
    /// Buffer for one frame.
    pub(crate) frame: Box<[u8]>,
}

/// Memory that all rings of this process share.
#[derive(Debug)]
struct OwnMemory {
    states: Arc<Mapping>,
    samples: Arc<Mapping>,
}

/// The addresses of this host on all its interfaces, and their broadcast addresses. The kernel drops most
/// packets that claim to come from these (`fib_validate_source`).
#[must_use]
pub fn hosts(tables: &Tables) -> Vec<IpAddr> {
    let mut hosts = Vec::new();
    for (address, len) in tables.links().flat_map(|link| tables.addresses(link.ifindex)) {
        hosts.push(address);
        if let IpAddr::V4(v4) = address
            && len < 31
        {
            let rest = u32::MAX.checked_shr(len.into()).unwrap_or(0);
            hosts.extend([v4.to_bits() | rest, v4.to_bits() & !rest].map(|bits| IpAddr::V4(bits.into())));
        }
    }
    hosts
}

/// The program on an interface, and the sockets that have leases. Dropping it detaches the program.
#[derive(Debug)]
pub struct LeasedInterface {
    pub(crate) facts: InterfaceFacts,
    pub(crate) target: Target,
    pub(crate) leases: Leases,
    /// Of this process; `None`: the sockets belong to other processes.
    memory: Option<OwnMemory>,
    /// By process, and in each by number.
    places: Vec<Place>,
    /// Rings that were used before and are free.
    idle: Vec<(u32, Lease, Sending)>,
    /// The means for handing frames over; `None` until needed.
    pub(crate) handing: Option<Handing>,
}

impl LeasedInterface {
    /// Loads and attaches the program, for up to `sockets` sockets, at most [`SOCKETS_MAX`]. It claims nothing yet.
    ///
    /// # Errors
    /// [`LeaseError`]
    pub fn open(interface: &str, sockets: u32) -> Result<Self, LeaseError> {
        let mut opened = Self::open_for_others(interface, 1, sockets, Load::AtOnce)?;
        opened.leases.admit()?;
        let capacity = opened.leases.capacity() as usize;
        let Some([states, _]) = opened.leases.rings(OWN) else { return Err(opened.full()) };
        let states = Mapping::of_fd(states, capacity * STATE_LEN, 0).map_err(LeaseError::Memory)?;
        let samples =
            Mapping::of_fd(opened.leases.samples(), capacity * SAMPLE_LEN, 0).map_err(LeaseError::Memory)?;
        opened.memory = Some(OwnMemory { states: Arc::new(states), samples: Arc::new(samples) });
        // Without it there are no samples, so the kernel sends.
        let (ifindex, how) = (opened.target.ifindex, opened.facts.tc_attach());
        let _ = opened.leases.attach_egress(ifindex, how);
        Ok(opened)
    }

    /// Like [`Self::open`], for sockets of up to `processes` other processes, which send through the kernel
    /// ([`LeasedInterface::assign_to_other`]). Each of them has up to `sockets`.
    ///
    /// # Errors
    /// [`LeaseError`]
    pub fn open_for_others(
        interface: &str,
        processes: u32,
        sockets: u32,
        load: Load,
    ) -> Result<Self, LeaseError> {
        let mirror = Mirror::open(MirrorLimits::default())?;
        let link = find_link(&mirror, interface)?;
        let facts = learn_facts(&mirror, &link, true, AttachAsked::Auto);
        choose(&facts, PathAsked::Packet)?;
        let Some(mac) = link.mac else {
            return Err(LeaseError::Path(format!("{interface} has no Ethernet address")));
        };
        let addresses = mirror.tables().addresses(link.ifindex).map(|(address, _)| address).collect();
        let target = Target { ifindex: link.ifindex, mac, addresses, claims: Vec::new() };
        let (capacity, processes) = (sockets.clamp(1, SOCKETS_MAX), processes.max(1));
        // Holders take checksums that are left to hardware on virtual devices only.
        let load_now = || Leases::load(processes, capacity, facts.is_virtual());
        let mut leases = match load {
            Load::AtOnce => load_now(),
            Load::WhenIdle => when_idle(LOADS_WHEN_IDLE, load_now),
        }?;
        leases.attach(target.ifindex, facts.tc_attach())?;
        // Loaded now, because a process that leaves its ring's contents to others waits for this. Without
        // it such frames are lost, and counted.
        if let Err(error) = leases.attach_egress(target.ifindex, facts.tc_attach()) {
            tracing::warn!("{interface}: what is in rings cannot be handed over: {error}");
        }
        let count = (processes * capacity) as usize;
        let places = std::iter::repeat_with(Place::default).take(count).collect();
        leases.set_hosts(&hosts(mirror.tables()))?;
        Ok(Self { facts, target, leases, memory: None, places, idle: Vec::new(), handing: None })
    }

    /// Gives a lease to a UDP socket that is bound to `local`, and the means to send. Waits some tens of
    /// milliseconds until the claim is in force.
    ///
    /// # Errors
    /// [`LeaseError`]; the socket then has none.
    pub fn lend(
        &mut self,
        socket: BorrowedFd<'_>,
        local: SocketAddr,
    ) -> Result<(OwnLease, Sending), LeaseError> {
        self.look_for_bypassed(local)?;
        let number = self.place_for(OWN, socket)?;
        let (lease, sending) = self.ring(number)?;
        if let Some(frames) = &sending.frames
            && let Ok(bytes) = socket_send_buffer_size(socket)
        {
            // The kernel doubles the value that is set. If it refuses, its default applies.
            let _ = set_socket_send_buffer_size(frames, bytes / 2);
        }
        if let Err(error) = self.occupy(number, socket, local) {
            self.idle.push((number, lease, sending));
            return Err(error);
        }
        let withdrawal = self.leases.withdrawal().clone();
        Ok((OwnLease { number, lease, withdrawal, on: self.on() }, sending))
    }

    pub(crate) fn on(&self) -> LeasedOn {
        LeasedOn {
            partial_checksums: self.facts.is_virtual(),
            own: self.target.addresses.clone(),
            ifindex: self.target.ifindex,
            mtu: self.facts.mtu,
        }
    }

    pub(crate) fn full(&self) -> LeaseError {
        LeaseError::Full { interface: self.facts.name.clone(), most: self.leases.capacity() }
    }

    pub(crate) fn place(&self, process: u32, number: u32) -> Option<&Place> {
        self.places.get((process * self.leases.capacity() + number) as usize)
    }

    fn place_mut(&mut self, process: u32, number: u32) -> Option<&mut Place> {
        self.places.get_mut((process * self.leases.capacity() + number) as usize)
    }

    /// Whether the kernel is configured to do something with the datagrams of that port that a ring would bypass.
    ///
    /// # Errors
    /// [`LeaseError::Bypassed`]
    pub(crate) fn look_for_bypassed(&self, local: SocketAddr) -> Result<(), LeaseError> {
        let claimed = Claimed {
            ifindex: self.target.ifindex,
            interface: self.facts.name.clone(),
            addresses: self.target.addresses.clone(),
            ports: vec![local.port()],
        };
        bypassed::look_for_sockets(&claimed).map_or(Ok(()), |bypassed| Err(LeaseError::Bypassed(bypassed)))
    }

    /// A free lease of the process for this socket.
    pub(crate) fn place_for(&self, process: u32, socket: BorrowedFd<'_>) -> Result<u32, LeaseError> {
        let capacity = self.leases.capacity() as usize;
        let places = self.places.chunks(capacity).nth(process as usize).unwrap_or_default();
        let number = places.iter().position(|place| place.claim.is_none()).ok_or_else(|| self.full())?;
        if has_filter(socket).map_err(LeaseError::Filter)? {
            return Err(LeaseError::Filtered);
        }
        let of_another_descriptor = self.leases.assigned(socket).is_some_and(|of| {
            let place = self.places.get(of.process as usize * capacity + of.number as usize);
            place.is_some_and(|place| place.claim.is_some() && place.lent == of.lent)
        });
        if of_another_descriptor { Err(LeaseError::HasLease) } else { Ok(number as u32) }
    }

    /// Gives the lease with this number, which must be free, to the socket.
    fn occupy(&mut self, number: u32, socket: BorrowedFd<'_>, local: SocketAddr) -> Result<(), LeaseError> {
        let occupied = self.assign(OWN, number, socket, local).and_then(|()| self.settle(OWN, number));
        occupied.inspect_err(|_| {
            // It fails only if this is no longer a socket.
            let _ = self.leases.withdrawal().withdraw(socket);
            self.vacate(OWN, number);
        })
    }

    /// The socket is to have the lease with this number, which must be free. It does not wait.
    pub(crate) fn assign(
        &mut self,
        process: u32,
        number: u32,
        socket: BorrowedFd<'_>,
        local: SocketAddr,
    ) -> Result<(), LeaseError> {
        let Some(place) = self.place_mut(process, number) else { return Ok(()) };
        place.lent = place.lent.wrapping_add(1).max(1);
        // The kernel decides which socket on the port a frame is for.
        place.claim = Some(Claim::port(Protocol::Udp, local.port()));
        place.local = Some(local);
        let lent = place.lent;
        Ok(self.leases.note(socket, Assigned { process, number, lent })?)
    }

    /// The socket that was assigned the lease with this number has it from now on. When this returns, everything that was
    /// passed before has reached the socket.
    pub(crate) fn settle(&mut self, process: u32, number: u32) -> Result<(), LeaseError> {
        let Some(lent) = self.place(process, number).map(|place| place.lent) else { return Ok(()) };
        self.leases.give(Assigned { process, number, lent })?;
        let table = self.table()?;
        Ok(self.leases.apply_and_settle(&table)?)
    }

    /// Takes the lease with this number from its socket. It does not wait: the contents of other rings may
    /// have to be handed over meanwhile.
    pub(crate) fn vacate(&mut self, process: u32, number: u32) {
        let Some(place) = self.place_mut(process, number) else { return };
        place.claim = None;
        // The socket may still be open in another process.
        self.leases.free(process, number);
        // It fails only if the kernel has no memory: then frames find the ring closed.
        let _ = self.table().map(|table| self.leases.apply_unless_waits(&table));
    }

    /// Removes the claims of a process's sockets; [`Self::table`] then contains only those of others.
    pub(crate) fn forget_claims(&mut self, process: u32) {
        for number in 0..self.leases.capacity() {
            if let Some(place) = self.place_mut(process, number) {
                place.claim = None;
            }
        }
    }

    /// Number of sockets that have a lease.
    #[must_use]
    pub fn sockets(&self) -> usize {
        self.places.iter().filter(|place| place.claim.is_some()).count()
    }

    fn ring(&mut self, number: u32) -> Result<(Lease, Sending), LeaseError> {
        if let Some(at) = self.idle.iter().position(|(of, ..)| *of == number) {
            let (_, mut lease, sending) = self.idle.swap_remove(at);
            lease.begin_anew();
            return Ok((lease, sending));
        }
        // Without CAP_NET_RAW the kernel sends.
        let frames = PacketSocket::open(self.target.ifindex, 0).ok();
        let bad_layout = |_| LeaseError::Memory(Errno::INVAL);
        let (Some(memory), Some([_, slots])) = (&self.memory, self.leases.rings(OWN)) else {
            return Err(self.full());
        };
        let sample = Sample::new(Arc::clone(&memory.samples), number).map_err(bad_layout)?;
        let bytes = LEASE_SLOTS as usize * SLOT_LEN;
        let slots =
            Mapping::of_fd(slots, bytes, u64::from(number) * bytes as u64).map_err(LeaseError::Memory)?;
        let ring = DirectRing::new(Arc::clone(&memory.states), number, slots, LEASE_SLOTS as usize);
        Ok((Lease::new(ring.map_err(bad_layout)?), Sending { sample, frames, mac: self.target.mac }))
    }

    /// Takes the lease back, before its socket is closed. The contents of the ring are discarded.
    pub fn take_back(&mut self, socket: BorrowedFd<'_>, number: u32, mut lease: Lease, sending: Sending) {
        lease.close();
        // It fails only if this is no longer a socket.
        let _ = self.leases.withdrawal().withdraw(socket);
        self.set_free(number, lease, sending);
    }

    /// The second half of [`Self::take_back`], after [`OwnLease::withdrawal`]: another socket may then get
    /// this lease, which is closed.
    pub fn set_free(&mut self, number: u32, lease: Lease, sending: Sending) {
        self.vacate(OWN, number);
        self.idle.push((number, lease, sending));
    }

    /// Sets the addresses of the interface; [`hosts`] returns those of the host.
    ///
    /// # Errors
    /// [`LeaseError::Attach`]; the former ones stay in force.
    pub fn set_addresses(
        &mut self,
        mac: Mac,
        addresses: Vec<IpAddr>,
        hosts: &[IpAddr],
    ) -> Result<(), LeaseError> {
        self.leases.set_hosts(hosts)?;
        (self.target.mac, self.target.addresses) = (mac, addresses);
        self.apply()
    }

    fn apply(&mut self) -> Result<(), LeaseError> {
        let table = self.table()?;
        Ok(self.leases.apply(&table)?)
    }

    /// The claims of the sockets with a lease.
    pub(crate) fn table(&mut self) -> Result<Table, AttachError> {
        self.target.claims.clear();
        for claim in self.places.iter().filter_map(|place| place.claim.as_ref()) {
            if !self.target.claims.contains(claim) {
                self.target.claims.push(claim.clone());
            }
        }
        self.target.table()
    }

    /// Number of frames per verdict, by its stable name: `claimed` frames were put into rings.
    ///
    /// # Errors
    /// [`SteerError::Map`].
    pub fn counters(&self) -> Result<Vec<(&'static str, u64)>, SteerError> {
        self.leases.counters()
    }
}
