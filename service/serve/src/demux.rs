//! Several services on one worker: each has its own engine, and the demultiplexer passes every call to the
//! right one.
//!
//! A frame is routed by its protocol and port, with one look-up. Other calls name the part of the worker
//! (the engine of one service), in their token or directly. If there is only one service, no look-up is
//! needed.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use rustix::io::Errno;
use twinpath_frame::Burst;
use twinpath_inspect::{Drops, Reason};
use twinpath_port::PortId;
use twinpath_service::Service;
use twinpath_tcp::Tuple;
use twinpath_time::{Duration, Instant};
use twinpath_udp::served::Served;
use twinpath_wire::{EtherType, Protocol, eth, tcp_frame};
use twinpath_worker::{ENGINE_RESERVE, Engine, Io, part_of};

use twinpath_inspect::ServeCounters;

use crate::engine::{ServeCommand, ServeEngine, ServeEvent};
use crate::fast_tcp::{CALLS_PER_TURN, Declined, FULL_PORTS, Opening, TcpClaims};
use crate::limits::ServiceLimits;
use crate::listing::Listing;

/// Maximum number of parts, and so of services, of a worker.
pub const PARTS_MAX: usize = 64;

/// The token of the descriptor of [`TcpClaims`] belongs to a part that no service has.
const CLAIMS_PART: usize = twinpath_worker::PARTS_MAX - 1;

/// How often a worker that does not sleep looks for SYNs itself. It looks at descriptors less often, as that costs a system
/// call.
const SYNS_INTERVAL: Duration = Duration::from_micros(2);

/// The route of a port without a service.
const NOBODY: u8 = u8::MAX;
/// Several services have the port, each at different addresses of this host.
const SEVERAL: u8 = u8::MAX - 1;

const ETHERTYPE_V4: u16 = EtherType::IPV4.0;
const ETHERTYPE_V6: u16 = EtherType::IPV6.0;

// The events that need reserved room: `Begun`, `Drained` and `Left` of each part, the two answers to a change,
// `ListenersClosed`, and two of `Listed`.
const _: () = assert!(3 * PARTS_MAX + 5 <= ENGINE_RESERVE as usize);
const _: () = assert!(PARTS_MAX <= SEVERAL as usize && PARTS_MAX <= CLAIMS_PART);

/// Says which part of the worker each frame goes to.
#[derive(Debug)]
pub struct Routes {
    /// The part for each protocol and port; 65,536 ports per protocol.
    ports: [Box<[u8]>; Protocol::COUNT],
    /// The ports that several services share: protocol and port, our address, part.
    shared: Vec<((Protocol, u16), IpAddr, u8)>,
    ethertypes: Vec<(u16, u8)>,
}

impl Routes {
    /// The routes to services, given the part of each (below [`PARTS_MAX`]) and what it serves. While one
    /// service replaces another, both serve the same port at the same address, or the same EtherType:
    /// frames then go to the first one. Otherwise the configuration excludes overlaps.
    #[must_use]
    pub fn of<'a>(services: impl IntoIterator<Item = (usize, &'a Served)>) -> Self {
        let mut ends = Vec::new();
        let mut ethertypes = Vec::new();
        for (part, served) in services {
            let part = part as u8;
            let ports = served.ports().iter().map(|port| ((port.protocol, port.port), port.address));
            let flows = served
                .flows()
                .iter()
                .map(|flow| ((flow.protocol, flow.destination.port()), Some(flow.destination.ip())));
            let earlier = ends.len();
            for (port, address) in ports.chain(flows) {
                let is =
                    |(its, at, _): &((Protocol, u16), Option<IpAddr>, u8)| (*its, *at) == (port, address);
                if !ends[..earlier].iter().any(is) {
                    ends.push((port, address, part));
                }
            }
            ethertypes.extend(served.ethertype().map(|ethertype| (ethertype, part)));
        }
        let mut ports = Protocol::ALL.map(|_| vec![NOBODY; 1 << u16::BITS].into_boxed_slice());
        for ((protocol, port), _, part) in &ends {
            let found = &mut ports[protocol.index()][usize::from(*port)];
            *found = if *found == NOBODY || found == part { *part } else { SEVERAL };
        }
        let shared = ends
            .iter()
            .filter(|((protocol, port), ..)| ports[protocol.index()][usize::from(*port)] == SEVERAL);
        let shared = shared.filter_map(|(port, address, part)| Some((*port, (*address)?, *part))).collect();
        Self { ports, shared, ethertypes }
    }

    /// The part that a frame goes to.
    #[inline]
    fn part_for(&self, frame: &[u8]) -> Option<usize> {
        let ethertype = u16::from_be_bytes(*frame.get(12..eth::HEADER_LEN)?.first_chunk()?);
        if let Some((_, part)) = self.ethertypes.iter().find(|(claimed, _)| *claimed == ethertype) {
            return Some(usize::from(*part));
        }
        let (protocol_at, port_at, address_at) = match ethertype {
            ETHERTYPE_V4 => {
                (23, eth::HEADER_LEN + 4 * usize::from(frame.get(eth::HEADER_LEN)? & 15) + 2, 30..34)
            }
            ETHERTYPE_V6 => (20, eth::HEADER_LEN + 40 + 2, 38..54),
            _ => return None,
        };
        let protocol = Protocol::from_number(*frame.get(protocol_at)?)?;
        let port = u16::from_be_bytes(*frame.get(port_at..)?.first_chunk()?);
        match self.ports[protocol.index()][usize::from(port)] {
            NOBODY => None,
            SEVERAL => {
                let address = address(frame.get(address_at)?)?;
                let is = |(shared, at, _): &&((Protocol, u16), IpAddr, u8)| {
                    *shared == (protocol, port) && *at == address
                };
                self.shared.iter().find(is).map(|(.., part)| usize::from(*part))
            }
            part => Some(usize::from(part)),
        }
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

/// The engine of one service, independent of the service's type. So one worker can have services of several
/// types, and the code for each type is compiled in the crate that names it.
trait ServiceEngine: Engine<Command = ServeCommand, Event = ServeEvent> {
    fn exchange_limits(&mut self, limits: &mut ServiceLimits);
    fn leave(&mut self, now: Instant, io: &mut Io<'_, ServeEvent>);
    fn is_drained(&self) -> bool;
    fn forget(&self, io: &Io<'_, ServeEvent>);
    fn take_syn(&mut self, now: Instant, frame: &[u8], io: &mut Io<'_, ServeEvent>) -> bool;
    fn take_leaked(&mut self, now: Instant, frame: &[u8], io: &mut Io<'_, ServeEvent>);
    fn syn_room(&self) -> Option<u32>;
    fn syn_ports(&self, add: &mut dyn FnMut(u16));
    fn has_connection(&self, local: SocketAddr, remote: SocketAddr) -> bool;
    fn list(&mut self, now: Instant, listing: &mut Listing) -> bool;
    fn settle_claims(&mut self, now: Instant, calls: u32, claims: &mut dyn TcpClaims) -> u32;
    fn release_claims(&mut self, claims: &mut dyn TcpClaims);
}

impl<S: Service + 'static> ServiceEngine for ServeEngine<S> {
    fn exchange_limits(&mut self, limits: &mut ServiceLimits) {
        self.exchange_limits(limits);
    }

    fn leave(&mut self, now: Instant, io: &mut Io<'_, ServeEvent>) {
        self.leave(now, io);
    }

    fn is_drained(&self) -> bool {
        self.is_drained()
    }

    fn forget(&self, io: &Io<'_, ServeEvent>) {
        self.forget(io);
    }

    fn take_syn(&mut self, now: Instant, frame: &[u8], io: &mut Io<'_, ServeEvent>) -> bool {
        self.take_syn(now, frame, io)
    }

    fn take_leaked(&mut self, now: Instant, frame: &[u8], io: &mut Io<'_, ServeEvent>) {
        self.take_leaked(now, frame, io);
    }

    fn syn_room(&self) -> Option<u32> {
        self.syn_room()
    }

    fn syn_ports(&self, add: &mut dyn FnMut(u16)) {
        self.syn_ports(add);
    }

    fn has_connection(&self, local: SocketAddr, remote: SocketAddr) -> bool {
        self.has_connection(local, remote)
    }

    fn list(&mut self, now: Instant, listing: &mut Listing) -> bool {
        self.list(now, listing)
    }

    fn settle_claims(&mut self, now: Instant, calls: u32, claims: &mut dyn TcpClaims) -> u32 {
        self.settle_claims(now, calls, claims)
    }

    fn release_claims(&mut self, claims: &mut dyn TcpClaims) {
        self.release_claims(claims);
    }
}

/// The part of a worker that is one service: its engine and counters.
pub struct ServicePart {
    engine: Box<dyn ServiceEngine>,
    counters: Arc<ServeCounters>,
    /// Whether it has been told to leave. It is taken out once it has drained.
    leaving: bool,
}

impl ServicePart {
    /// The part of the service with this engine and these counters.
    #[must_use]
    pub fn new<S: Service + 'static>(engine: ServeEngine<S>, counters: Arc<ServeCounters>) -> Self {
        Self { engine: Box::new(engine), counters, leaving: false }
    }

    /// The counters of the service.
    #[must_use]
    pub const fn counters(&self) -> &Arc<ServeCounters> {
        &self.counters
    }
}

/// A command of control to the services of a worker.
pub enum DemuxCommand {
    /// The same command for each service.
    Each(ServeCommand),
    /// A command for one part.
    One(usize, ServeCommand),
    /// Adds services that wait to begin, and changes the routes; answered by [`ServeEvent::Prepared`].
    Prepare(Box<Prepare>),
    /// Changes routes and limits, lets some services begin and others leave; answered by
    /// [`ServeEvent::Switched`].
    Switch(Box<Switch>),
    /// Lists connections, some in each turn; answered by [`ServeEvent::Listed`]. A list that is not complete yet is answered
    /// as far as it has come.
    List(Box<Listing>),
}

/// New services. Until a [`Switch`] lets them begin, they serve only the frames that the routes give them.
pub struct Prepare {
    /// Identifies the answer.
    pub number: u32,
    /// Each new service with its part, which must be free.
    pub services: Vec<(usize, ServicePart)>,
    /// The new routes.
    pub routes: Routes,
}

/// A change of all services at once.
pub struct Switch {
    /// Identifies the answer.
    pub number: u32,
    /// The new routes.
    pub routes: Routes,
    /// Parts that serve the kernel's sockets from now on.
    pub begin: Vec<usize>,
    /// Parts that accept nothing more, and leave once everything accepted is answered.
    pub leave: Vec<usize>,
    /// New limits of parts that stay.
    pub limits: Vec<(usize, ServiceLimits)>,
}

/// The services of one worker.
pub struct Demux {
    parts: Box<[Option<ServicePart>]>,
    /// The parts in use, ascending.
    used: Vec<u8>,
    routes: Routes,
    /// The number of parts that have been told to leave.
    leaving: usize,
    /// Frames of one part, collected before its engine is called.
    burst: Burst,
    /// The connections of this worker as the kernel's programs know them; `None`: there are none on the fast path.
    claims: Option<Box<dyn TcpClaims>>,
    /// Connections that no service could make anything of.
    declined: Declined,
    /// When a worker that does not sleep looks next for SYNs.
    syns_due: Instant,
    /// Whether the last run took SYNs.
    took_syns: bool,
    /// The ports without room that the programs know.
    full: FullPorts,
    /// A list of connections that is not complete yet.
    listing: Option<Box<Listing>>,
}

impl Demux {
    /// A demultiplexer without a service yet.
    #[must_use]
    pub fn new(routes: Routes) -> Self {
        let parts = (0..PARTS_MAX).map(|_| None).collect();
        Self {
            parts,
            used: Vec::with_capacity(PARTS_MAX),
            routes,
            leaving: 0,
            burst: Burst::new(),
            claims: None,
            declined: Declined::default(),
            syns_due: Instant::ZERO,
            took_syns: false,
            full: FullPorts::default(),
            listing: None,
        }
    }

    /// With connections on the fast path, of the services that are made for them.
    #[must_use]
    pub fn with_claims(mut self, claims: Option<Box<dyn TcpClaims>>) -> Self {
        self.claims = claims;
        self
    }

    /// Adds a service as a free part.
    #[must_use]
    pub fn with(mut self, part: usize, service: ServicePart) -> Self {
        self.put(part, Some(service));
        self
    }

    /// Sets or removes a part; returns what it was.
    fn put(&mut self, part: usize, service: Option<ServicePart>) -> Option<ServicePart> {
        let former = self.parts.get_mut(part).and_then(|place| std::mem::replace(place, service));
        self.used.clear();
        self.used.extend((0u8..).zip(&self.parts).filter_map(|(part, at)| at.as_ref().map(|_| part)));
        former
    }

    /// Calls the engine of one part.
    #[inline]
    fn one<T>(
        &mut self,
        part: usize,
        io: &mut Io<'_, ServeEvent>,
        call: impl FnOnce(&mut dyn ServiceEngine, &mut Io<'_, ServeEvent>) -> T,
    ) -> Option<T> {
        let alone = self.is_single(part);
        let ServicePart { engine, counters, .. } = self.parts.get_mut(part)?.as_mut()?;
        let engine = &mut **engine;
        Some(if alone { call(engine, io) } else { call(engine, &mut io.part(part, &counters.drops)) })
    }

    /// Whether this part is the only one, so that it needs no tokens of its own.
    #[inline]
    const fn is_single(&self, part: usize) -> bool {
        self.used.len() == 1 && part == 0
    }

    /// Calls the engine of each part.
    #[inline]
    fn each(
        &mut self,
        io: &mut Io<'_, ServeEvent>,
        mut call: impl FnMut(&mut dyn ServiceEngine, &mut Io<'_, ServeEvent>),
    ) {
        for at in 0..self.used.len() {
            self.one(usize::from(self.used[at]), io, &mut call);
        }
    }

    fn engines(&self) -> impl Iterator<Item = &dyn ServiceEngine> {
        self.used.iter().filter_map(|part| Some(&*self.parts.get(usize::from(*part))?.as_ref()?.engine))
    }

    /// Passes the collected frames to the engine of their part.
    fn hand_on(&mut self, now: Instant, port: PortId, part: usize, io: &mut Io<'_, ServeEvent>) {
        let Self { parts, burst, .. } = self;
        if let Some(ServicePart { engine, counters, .. }) = parts.get_mut(part).and_then(Option::as_mut) {
            engine.receive(now, port, burst, &mut io.part(part, &counters.drops));
        }
        // Frames are left here only if there is no service at all.
        for frame in burst.drain(usize::MAX) {
            io.drops().add(Reason::NotClaimed, 1);
            io.release(frame);
        }
    }
}

impl Demux {
    fn prepare(&mut self, now: Instant, mut prepare: Box<Prepare>, io: &mut Io<'_, ServeEvent>) {
        let mut outcome = Ok(());
        for (part, service) in prepare.services.drain(..) {
            self.put(part, Some(service));
            let started = self.one(part, io, |engine, io| {
                // Tells the service of the ports that were attached before it was added.
                for place in 0..io.ports().len() {
                    engine.attached(io.ports()[place].id(), io);
                }
                engine.start(now, io)
            });
            outcome = outcome.and(started.unwrap_or(Ok(())));
        }
        std::mem::swap(&mut self.routes, &mut prepare.routes);
        let number = prepare.number;
        // Room is reserved: control makes one change at a time.
        let _ = io.tell_reserved(ServeEvent::Prepared { number, outcome, former: prepare });
    }

    fn switch(&mut self, now: Instant, mut switch: Box<Switch>, io: &mut Io<'_, ServeEvent>) {
        std::mem::swap(&mut self.routes, &mut switch.routes);
        for (part, limits) in &mut switch.limits {
            self.one(*part, io, |engine, _| engine.exchange_limits(limits));
        }
        // Leaving services come first: requests that wait in a socket shared by a leaving and a new service
        // belong to the leaving one.
        for part in &switch.leave {
            self.one(*part, io, |engine, io| engine.leave(now, io));
            if let Some(service) = self.parts.get_mut(*part).and_then(Option::as_mut) {
                self.leaving += usize::from(!std::mem::replace(&mut service.leaving, true));
            }
        }
        for part in &switch.begin {
            self.one(*part, io, |engine, io| engine.command(now, ServeCommand::Begin, io));
        }
        let number = switch.number;
        let _ = io.tell_reserved(ServeEvent::Switched { number, former: switch });
    }

    /// The part that has been told to leave and has the connection of this segment. Its successor may have its port.
    #[cold]
    fn leaving_part_for(&self, frame: &[u8]) -> Option<usize> {
        let (local, remote) = ends_of(frame)?;
        let has = |part: &u8| {
            let service = self.parts[usize::from(*part)].as_ref();
            service.is_some_and(|service| service.leaving && service.engine.has_connection(local, remote))
        };
        self.used.iter().copied().find(has).map(usize::from)
    }

    /// Lists connections, as many as a turn may.
    #[cold]
    fn list_some(&mut self, now: Instant, io: &mut Io<'_, ServeEvent>) {
        let Some(mut listing) = self.listing.take() else { return };
        listing.begin_turn();
        while listing.part < PARTS_MAX && listing.goes_on() {
            if self.one(listing.part, io, |engine, _| engine.list(now, &mut listing)).unwrap_or(true) {
                listing.next_part();
            }
        }
        if listing.part < PARTS_MAX && !listing.has_more {
            self.listing = Some(listing);
        } else {
            // Room is reserved: control asks for one list at a time.
            let _ = io.tell_reserved(ServeEvent::Listed(listing));
        }
    }

    /// Removes parts that were told to leave and have drained.
    fn let_leave(&mut self, io: &mut Io<'_, ServeEvent>) {
        for part in 0..self.parts.len() {
            let is_done = |service: &ServicePart| service.leaving && service.engine.is_drained();
            if self.parts[part].as_ref().is_some_and(is_done) {
                self.one(part, io, |engine, io| engine.forget(io));
                if let (Some(claims), Some(service)) = (&mut self.claims, &mut self.parts[part]) {
                    service.engine.release_claims(&mut **claims);
                }
                // The engine holds the counters as well, so dropping this handle frees nothing.
                if let Some(ServicePart { engine, .. }) = self.put(part, None) {
                    self.leaving -= 1;
                    let _ = io.tell_reserved(ServeEvent::Left { part, service: engine });
                }
            }
        }
    }
}

impl Demux {
    /// Passes what the programs have handed over to the services whose it is. Returns whether there was anything.
    fn take_syns(&mut self, now: Instant, io: &mut Io<'_, ServeEvent>) -> bool {
        let Some(mut claims) = self.claims.take() else { return false };
        let (mut any, mut refused) = (false, Vec::new());
        claims.next_syns(&mut |handed| {
            any = true;
            let frame = match handed {
                Opening::Syn(frame) => frame,
                // The service that has the handshake may be about to leave.
                Opening::Leaked(frame) => {
                    return self.each(io, |engine, io| engine.take_leaked(now, frame, io));
                }
            };
            let part = self.routes.part_for(frame);
            let taken =
                part.and_then(|part| self.one(part, io, |engine, io| engine.take_syn(now, frame, io)));
            if taken != Some(true) {
                io.drops().add(Reason::NotClaimed, 1);
                refused.extend(ends_of(frame));
            }
        });
        // The kernel may know better: released, they would be taken again.
        for (local, remote) in refused {
            self.declined.add(now, Tuple::new(local, remote));
        }
        self.claims = Some(claims);
        if any {
            // Answers have made room, and so have refusals.
            self.settle_claims(now);
        }
        any
    }

    /// Tells the kernel's programs which tuples are the kernel's again, and how many SYNs they may take: as many as the
    /// service with the least room has room for. A service without room is left out, and so are its ports.
    fn settle_claims(&mut self, now: Instant) {
        let Self { parts, used, claims, declined, full, .. } = self;
        let Some(claims) = claims.as_deref_mut() else { return };
        let mut calls = declined.settle(now, CALLS_PER_TURN, claims);
        let (mut room, mut is_full) = (None, FullPorts::default());
        for part in used.iter() {
            let Some(ServicePart { engine, leaving, .. }) = &mut parts[usize::from(*part)] else { continue };
            calls = engine.settle_claims(now, calls, claims);
            // One that leaves takes none, and its successor has the port already.
            let own = engine.syn_room().filter(|_| !*leaving);
            if own == Some(0) {
                engine.syn_ports(&mut |port| is_full.add(port));
            } else {
                room = room.into_iter().chain(own).min();
            }
        }
        if *full != is_full {
            claims.set_full(is_full.ports());
            *full = is_full;
        }
        let room = if full.is_whole() { room.unwrap_or(0) } else { 0 };
        let (room, present) = (room.min(declined.room()), claims.room());
        // The programs count it down: it is raised once half is used up.
        if room < present || present < room.div_ceil(2) {
            claims.set_room(room);
        }
    }
}

/// The ports of services that have no room for another connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct FullPorts {
    ports: [u16; FULL_PORTS],
    count: usize,
}

impl FullPorts {
    /// Adds a port. A service may have the same one at several addresses.
    fn add(&mut self, port: u16) {
        if !self.ports().contains(&port) {
            if let Some(place) = self.ports.get_mut(self.count) {
                *place = port;
            }
            self.count += 1;
        }
    }

    fn ports(&self) -> &[u16] {
        &self.ports[..self.count.min(FULL_PORTS)]
    }

    /// Whether it has all that were added.
    const fn is_whole(&self) -> bool {
        self.count <= FULL_PORTS
    }
}

/// The two ends of a TCP segment: ours and the peer's. The frame may be the first one of several.
fn ends_of(frame: &[u8]) -> Option<(SocketAddr, SocketAddr)> {
    tcp_frame::ends(frame).map(|(source, destination)| (destination, source))
}

impl Engine for Demux {
    type Command = DemuxCommand;
    type Event = ServeEvent;

    fn start(&mut self, now: Instant, io: &mut Io<'_, ServeEvent>) -> Result<(), Errno> {
        let mut outcome = Ok(());
        self.each(io, |engine, io| {
            if outcome.is_ok() {
                outcome = engine.start(now, io);
            }
        });
        if let Some(claims) = &self.claims {
            let drops = Drops::default();
            outcome = outcome.and(io.part(CLAIMS_PART, &drops).fds.watch(claims.fd(), 0, false));
        }
        outcome
    }

    fn attached(&mut self, port: PortId, io: &mut Io<'_, ServeEvent>) {
        self.each(io, |engine, io| engine.attached(port, io));
    }

    fn changed(&mut self, port: PortId, io: &mut Io<'_, ServeEvent>) {
        self.each(io, |engine, io| engine.changed(port, io));
    }

    fn detached(&mut self, port: PortId, io: &mut Io<'_, ServeEvent>) {
        self.each(io, |engine, io| engine.detached(port, io));
    }

    fn receive(&mut self, now: Instant, port: PortId, frames: &mut Burst, io: &mut Io<'_, ServeEvent>) {
        if let [only] = *self.used {
            self.one(only.into(), io, |engine, io| engine.receive(now, port, frames, io));
            return;
        }
        let first = self.used.first().map_or(0, |part| usize::from(*part));
        let mut collected = first;
        for frame in frames.drain(usize::MAX) {
            // A frame that no service claims goes to the first one, which counts it as `not_claimed`.
            let mut part = self.routes.part_for(frame.bytes()).unwrap_or(first);
            if self.leaving > 0 {
                part = self.leaving_part_for(frame.bytes()).unwrap_or(part);
            }
            if part != collected && !self.burst.is_empty() {
                self.hand_on(now, port, collected, io);
            }
            collected = part;
            if let Err(frame) = self.burst.push(frame) {
                io.release(frame);
            }
        }
        if !self.burst.is_empty() {
            self.hand_on(now, port, collected, io);
        }
    }

    fn ready(&mut self, now: Instant, token: u32, error: bool, io: &mut Io<'_, ServeEvent>) -> bool {
        let (part, token) = part_of(token);
        if part == CLAIMS_PART {
            return self.take_syns(now, io);
        }
        // The service may have left since it watched the descriptor.
        self.one(part, io, |engine, io| engine.ready(now, token, error, io)).unwrap_or(false)
    }

    fn run(&mut self, now: Instant, io: &mut Io<'_, ServeEvent>) -> bool {
        self.took_syns = false;
        if self.claims.is_some() && now >= self.syns_due {
            self.took_syns = self.take_syns(now, io);
            self.syns_due = now + SYNS_INTERVAL;
        }
        let mut busy = self.took_syns;
        self.each(io, |engine, io| busy |= engine.run(now, io));
        if self.claims.is_some() {
            self.settle_claims(now);
        }
        if self.leaving > 0 {
            self.let_leave(io);
        }
        if self.listing.is_some() {
            self.list_some(now, io);
            busy = true;
        }
        busy
    }

    fn next_deadline(&self) -> Instant {
        if self.listing.is_some() {
            return Instant::ZERO;
        }
        let engines = self.engines().map(|engine| engine.next_deadline()).min().unwrap_or(Instant::NEVER);
        engines.min(self.declined.deadline())
    }

    fn spins(&self) -> bool {
        self.engines().any(|engine| engine.spins())
    }

    fn found(&self) -> bool {
        self.took_syns || self.engines().any(|engine| engine.found())
    }

    fn keeps_ports(&self) -> bool {
        self.engines().any(|engine| engine.keeps_ports())
    }

    fn rest(&mut self, io: &mut Io<'_, ServeEvent>) {
        self.each(io, |engine, io| engine.rest(io));
    }

    fn command(&mut self, now: Instant, command: DemuxCommand, io: &mut Io<'_, ServeEvent>) {
        match command {
            DemuxCommand::Each(command @ (ServeCommand::Leave | ServeCommand::LeaveGone)) => {
                // Those that wait would have no port soon.
                self.take_syns(now, io);
                self.each(io, |engine, io| engine.command(now, command.clone(), io));
                self.settle_claims(now);
            }
            DemuxCommand::Each(command) => {
                self.each(io, |engine, io| engine.command(now, command.clone(), io));
                if matches!(command, ServeCommand::Drain { .. }) {
                    let _ = io.tell_reserved(ServeEvent::ListenersClosed);
                }
            }
            DemuxCommand::One(part, command) => {
                self.one(part, io, |engine, io| engine.command(now, command, io));
            }
            DemuxCommand::Prepare(prepare) => self.prepare(now, prepare, io),
            DemuxCommand::Switch(switch) => self.switch(now, switch, io),
            DemuxCommand::List(listing) => {
                if let Some(former) = self.listing.replace(listing) {
                    let _ = io.tell_reserved(ServeEvent::Listed(former));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
