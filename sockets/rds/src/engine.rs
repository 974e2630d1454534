//! The engine.

use std::collections::BTreeMap;
use std::net::IpAddr;

use twinpath_rds_wire::{
    CongestionMap, Flags, HEADER_LEN, Handshake, Header, Kind, MAP_LEN, PATHS_MAX, PAYLOAD_MAX, PROBE_PORT,
};
use twinpath_time::{Duration, Instant};

use crate::path::Link;
use crate::peer::{Peer, PeerView};
use crate::queue::Purpose;
use crate::reason::{Drops, Reason};
use crate::values::{
    Config, ConnId, Delivered, Delivery, Host, Outgoing, Pair, Piece, Position, SendError, Stamp,
};

/// Connections that wait for their path. Each is one that the peer has given up without that this host has noticed, but the
/// last one.
const WAITING_MAX: usize = 16;

/// The path of a connection of which that is not known.
const UNPLACED: u16 = u16::MAX;

/// Sends and receives the messages of all programs of a host.
#[derive(Debug)]
pub struct Rds {
    config: Config,
    peers: BTreeMap<Pair, Peer>,
    conns: BTreeMap<ConnId, (Pair, u16)>,
    /// Connections that are not known yet to be of a path, with the peer's port.
    unplaced: BTreeMap<ConnId, u16>,
    next_conn: u64,
    /// This host's congested ports, by address.
    congested: BTreeMap<IpAddr, CongestionMap>,
    /// Nothing is due before.
    due: Instant,
    drops: Drops,
    events: u64,
    /// For the times between attempts to connect (xorshift64; Marsaglia, 2003).
    random: u64,
}

impl Rds {
    /// An engine without peers.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            config: Config { paths: config.paths.clamp(1, PATHS_MAX), ..config },
            peers: BTreeMap::new(),
            conns: BTreeMap::new(),
            unplaced: BTreeMap::new(),
            next_conn: 0,
            congested: BTreeMap::new(),
            due: Instant::NEVER,
            drops: Drops::default(),
            events: 0,
            random: u64::from(config.generation) << 1 | 1,
        }
    }

    /// A path of a former life goes on at this position. Before all else.
    pub fn recover(&mut self, pair: Pair, path: u16, position: &Position) {
        let peer = self.peers.entry(pair).or_default();
        (peer.count, peer.port_path) = (position.paths.min(self.config.paths), position.port_path);
        let path = peer.path(path);
        path.out.go_on_at(position.next_out);
        (path.next_in, path.peer_generation) = (position.next_in, position.peer_generation);
    }

    /// A message of a former life, which was placed and not released. After [`Self::recover`].
    pub fn restore(&mut self, now: Instant, outgoing: &Outgoing, stamp: Stamp, host: &mut impl Host) {
        let header = Header { sequence: stamp.sequence, ..header_of(outgoing) };
        let peer = self.peers.entry(outgoing.pair).or_default();
        peer.path(stamp.path).out.restore(header, Purpose::Message(outgoing.token));
        self.connect_if_down(now, outgoing.pair, stamp.path, host);
    }

    /// Sends a message.
    ///
    /// # Errors
    /// [`SendError`]; the message is the caller's as before.
    pub fn send(&mut self, now: Instant, outgoing: &Outgoing, host: &mut impl Host) -> Result<(), SendError> {
        if outgoing.len as usize > PAYLOAD_MAX {
            return Err(SendError::TooLong);
        }
        let (pair, config) = (outgoing.pair, self.config);
        let peer = self.peer(pair, host).ok_or(SendError::TooManyPeers)?;
        if outgoing.destination != 0 && peer.congested.has(outgoing.destination) {
            return Err(SendError::Congested);
        }
        let (messages, bytes) = peer.queued();
        if messages >= config.peer_messages_max || bytes + outgoing.len as usize > config.peer_bytes_max {
            return Err(SendError::Full);
        }
        if config.paths == 1 {
            peer.count = 1;
        }
        if peer.count == 0 {
            peer.held.push_back(*outgoing);
            peer.held_bytes += outgoing.len as usize;
            self.connect_if_down(now, pair, 0, host);
        } else {
            self.place(now, outgoing, host);
        }
        Ok(())
    }

    /// The queue of one of this host's ports is full, or is not any more.
    pub fn set_congested(&mut self, local: IpAddr, port: u16, is_congested: bool, host: &mut impl Host) {
        let map = self.congested.entry(local).or_default();
        if !map.set(port, is_congested) {
            return;
        }
        for (_, peer) in self.peers.iter_mut().filter(|(pair, _)| pair.local == local) {
            for path in &mut peer.paths {
                // One is enough: the peer has one map.
                if let Link::Up(conn) = path.link {
                    path.map_due = true;
                    host.write(conn);
                    break;
                }
            }
        }
    }

    /// A connection of a peer has come to port 16385, from this port. `None`: it is to be reset.
    pub fn accepted(&mut self, now: Instant, pair: Pair, port: u16, host: &mut impl Host) -> Option<ConnId> {
        let max = self.config.paths;
        let Some(peer) = self.peer(pair, host) else {
            self.drops.count(Reason::TooManyPeers);
            return None;
        };
        if pair.connects() {
            self.drops.count(Reason::WrongSide);
            // The peer wants a connection: what was to be waited for is over.
            self.connect_if_down(now, pair, 0, host);
            return None;
        }
        if max > 1 && !peer.port_path {
            // Only the first message says whether the port names a path.
            let of_peer =
                self.unplaced.keys().filter(|conn| self.conns.get(conn).is_some_and(|(of, _)| *of == pair));
            if of_peer.count() >= WAITING_MAX {
                self.drops.count(Reason::TooManyConnections);
                return None;
            }
            let conn = self.new_conn(pair, UNPLACED);
            self.unplaced.insert(conn, port);
            host.read(conn);
            return Some(conn);
        }
        let number = peer.path_of(port, max);
        let conn = self.new_conn(pair, UNPLACED);
        self.take_conn(now, conn, pair, number, host).then_some(conn)
    }

    /// A connection of a peer is for this path. Returns whether it is taken; else it is forgotten.
    fn take_conn(
        &mut self,
        now: Instant,
        conn: ConnId,
        pair: Pair,
        number: Option<u16>,
        host: &mut impl Host,
    ) -> bool {
        let end_within = self.config.end_within;
        let path = number.and_then(|number| Some((number, self.peers.get_mut(&pair)?.path(number))));
        let Some((number, path)) = path
            .filter(|(_, path)| !matches!(path.link, Link::Ending(_)) || path.waiting.len() < WAITING_MAX)
        else {
            self.conns.remove(&conn);
            self.drops.count(Reason::TooManyConnections);
            return false;
        };
        self.conns.insert(conn, (pair, number));
        match path.link {
            Link::Up(old) => {
                path.waiting.push_back(conn);
                path.link = Link::Ending(old);
                path.due = now + end_within;
                self.due = self.due.min(path.due);
                host.finish(old);
            }
            Link::Ending(_) => path.waiting.push_back(conn),
            Link::Down | Link::Connecting(_) | Link::Calling(_) => {
                if let Some(call) = path.link.conn() {
                    host.reset(call);
                    self.conns.remove(&call);
                }
                self.begin(conn, pair, number, host);
            }
        }
        true
    }

    /// The first message of a connection says which path it is for. Returns whether it is read on.
    fn place_conn(
        &mut self,
        now: Instant,
        conn: ConnId,
        (pair, port): (Pair, u16),
        header: &Header,
        host: &mut impl Host,
    ) -> bool {
        let max = self.config.paths;
        let Some(peer) = self.peers.get_mut(&pair) else {
            self.conns.remove(&conn);
            host.reset(conn);
            return false;
        };
        if header.kind() == Kind::Probe && header.extensions.handshake().port_path.is_some() {
            peer.port_path = true;
        }
        let number = peer.path_of(port, max);
        if !self.take_conn(now, conn, pair, number, host) {
            host.reset(conn);
            return false;
        }
        let is_read = self.path_up(conn).is_some();
        if !is_read {
            host.pause(conn);
        }
        is_read
    }

    /// A connection that was asked for is there.
    pub fn connected(&mut self, conn: ConnId, host: &mut impl Host) {
        let Some(&(pair, number)) = self.conns.get(&conn) else { return };
        let Some(peer) = self.peers.get_mut(&pair) else { return };
        // What this host has called by is reset by the peer.
        if peer.path(number).link == Link::Connecting(conn) {
            self.begin(conn, pair, number, host);
        }
    }

    /// A connection has ended, or could not be made.
    pub fn closed(&mut self, now: Instant, conn: ConnId, host: &mut impl Host) {
        let Some((pair, number)) = self.conns.remove(&conn) else { return };
        if self.unplaced.remove(&conn).is_some() {
            return;
        }
        let Some(peer) = self.peers.get_mut(&pair) else { return };
        let path = peer.path(number);
        path.waiting.retain(|waiting| *waiting != conn);
        if path.link.conn() != Some(conn) {
            return;
        }
        if matches!(path.link, Link::Up(_) | Link::Ending(_)) {
            path.reconnects += 1;
            if path.has_flowed {
                path.tries_until = now + self.config.retry_for;
            }
            path.out.restart();
        }
        (path.link, path.due) = (Link::Down, Instant::NEVER);
        match path.waiting.pop_front() {
            // The peer's congested ports stay so until the next connection brings its map: what waits for them would be dropped.
            None => self.retry(now, pair, number),
            Some(next) if path.waiting.is_empty() => self.begin(next, pair, number, host),
            // The peer has given it up as well, but what it has brought is read.
            Some(next) => {
                path.begin();
                (path.link, path.due) = (Link::Ending(next), now + self.config.end_within);
                self.due = self.due.min(path.due);
                host.read(next);
                host.finish(next);
            }
        }
    }

    /// Bytes have come. Returns how many were used: the caller keeps the others, and adds what comes next.
    pub fn received(&mut self, now: Instant, conn: ConnId, bytes: &[u8], host: &mut impl Host) -> usize {
        let mut at = 0;
        while let Some(head) = bytes.get(at..).and_then(|rest| rest.first_chunk::<HEADER_LEN>()) {
            let Some(&(pair, mut number)) = self.conns.get(&conn) else { return bytes.len() };
            let Ok(header) = Header::parse(head) else {
                self.drops.count(Reason::BadHeader);
                host.reset(conn);
                self.closed(now, conn, host);
                return bytes.len();
            };
            if let Some(port) = self.unplaced.remove(&conn) {
                if !self.place_conn(now, conn, (pair, port), &header, host) {
                    return at;
                }
                number = self.conns.get(&conn).map_or(number, |(_, number)| *number);
            }
            let start = at + HEADER_LEN;
            let Some(payload) = bytes.get(start..start + header.len as usize) else { break };
            at = start + payload.len();
            self.take(now, (pair, number), &header, payload, host);
        }
        at
    }

    /// The next bytes for a connection.
    pub fn pieces(&mut self, conn: ConnId) -> impl Iterator<Item = Piece<'_>> {
        let of = self.conns.get(&conn).copied();
        let path = of.and_then(|(pair, number)| {
            let peer = self.peers.get_mut(&pair)?;
            let path = peer.path(number);
            if path.link != Link::Up(conn) {
                return None;
            }
            if path.map_due && path.out.is_at_boundary() {
                path.map_due = false;
                let header =
                    Header { len: MAP_LEN as u32, flags: Flags::CONGESTION_MAP, ..Header::default() };
                let none = CongestionMap::default();
                path.out.set_urgent(&header, self.congested.get(&pair.local).unwrap_or(&none).as_bytes());
            }
            Some(&*path)
        });
        path.into_iter().flat_map(|path| path.out.pieces(path.map_due))
    }

    /// The first `len` bytes of [`Self::pieces`] were written.
    pub fn advance(&mut self, conn: ConnId, len: usize) {
        let Some(&(pair, number)) = self.conns.get(&conn) else { return };
        if let Some(peer) = self.peers.get_mut(&pair) {
            peer.path(number).out.advance(len);
        }
    }

    /// Whether there is something to write to the connection.
    #[must_use]
    pub fn has_more(&self, conn: ConnId) -> bool {
        self.path_up(conn).is_some_and(|path| path.map_due || path.out.has_more())
    }

    /// Bytes that were written to the connection, and whether a message among them is not acknowledged.
    #[must_use]
    pub fn written(&self, conn: ConnId) -> (u64, bool) {
        self.path_up(conn).map_or((0, false), |path| (path.out.written(), path.out.is_waiting()))
    }

    fn path_up(&self, conn: ConnId) -> Option<&crate::path::Path> {
        let (pair, number) = self.conns.get(&conn)?;
        let path = self.peers.get(pair)?.paths.get(usize::from(*number))?;
        (path.link == Link::Up(conn)).then_some(path)
    }

    /// TCP has acknowledged the first `bytes` of the connection.
    pub fn acknowledged(&mut self, conn: ConnId, bytes: u64, host: &mut impl Host) {
        let Some(&(pair, number)) = self.conns.get(&conn) else { return };
        let Some(peer) = self.peers.get_mut(&pair) else { return };
        let path = peer.path(number);
        if !matches!(path.link, Link::Up(up) | Link::Ending(up) if up == conn) {
            return;
        }
        while let Some(purpose) = path.out.acknowledged(bytes) {
            if let Purpose::Message(token) = purpose {
                (path.waited, path.has_flowed) = (Duration::ZERO, true);
                host.released(token);
            }
        }
    }

    /// Does what is due.
    pub fn timeout(&mut self, now: Instant, host: &mut impl Host) {
        if now < self.due {
            return;
        }
        let due = |(pair, peer): (&Pair, &Peer)| {
            let numbers = peer.paths.iter().enumerate().filter(|(_, path)| path.due <= now);
            numbers.map(|(number, _)| (*pair, number as u16)).collect::<Vec<_>>()
        };
        for (pair, number) in self.peers.iter().flat_map(due).collect::<Vec<_>>() {
            let Some(peer) = self.peers.get_mut(&pair) else { continue };
            let path = peer.path(number);
            path.due = Instant::NEVER;
            match path.link {
                Link::Down => self.connect(now, pair, number, host),
                Link::Calling(conn) | Link::Ending(conn) => {
                    if matches!(path.link, Link::Ending(_)) {
                        self.drops.count(Reason::NotEnded);
                    }
                    host.reset(conn);
                    self.closed(now, conn, host);
                }
                Link::Connecting(_) | Link::Up(_) => {}
            }
        }
        let dues = self.peers.values().flat_map(|peer| peer.paths.iter().map(|path| path.due));
        self.due = dues.min().unwrap_or(Instant::NEVER);
    }

    /// When [`Self::timeout`] is to be called; [`Instant::NEVER`]: not.
    #[must_use]
    pub fn next_deadline(&self) -> Instant {
        self.due
    }

    /// What was dropped.
    #[must_use]
    pub fn drops(&self) -> &Drops {
        &self.drops
    }

    /// All peers, by their addresses.
    pub fn peers(&self) -> impl Iterator<Item = PeerView<'_>> {
        self.peers.iter().map(|(pair, peer)| peer.view(*pair))
    }

    /// This host's life.
    #[must_use]
    pub fn generation(&self) -> u32 {
        self.config.generation
    }

    /// The peer, which is made if there is room. One that nothing waits for gives its room to another one; its places stay
    /// with the host.
    fn peer(&mut self, pair: Pair, host: &mut impl Host) -> Option<&mut Peer> {
        self.events += 1;
        if !self.peers.contains_key(&pair) {
            if self.peers.len() >= self.config.peers_max {
                let is_placed = |pair: &Pair| {
                    self.unplaced.keys().all(|conn| self.conns.get(conn).is_none_or(|(of, _)| of != pair))
                };
                let idle = self.peers.iter().filter(|(pair, peer)| peer.is_idle() && is_placed(pair));
                let (&oldest, _) = idle.min_by_key(|(_, peer)| peer.used)?;
                self.peers.remove(&oldest);
                host.congestion(oldest, &CongestionMap::default());
            }
            for number in 0..self.config.paths {
                if let Some(position) = host.position(pair, number) {
                    self.recover(pair, number, &position);
                }
            }
        }
        let peer = self.peers.entry(pair).or_default();
        peer.used = self.events;
        Some(peer)
    }

    fn new_conn(&mut self, pair: Pair, number: u16) -> ConnId {
        self.next_conn += 1;
        let conn = ConnId(self.next_conn);
        self.conns.insert(conn, (pair, number));
        conn
    }

    /// Gives a message its place. The number of paths is known.
    fn place(&mut self, now: Instant, outgoing: &Outgoing, host: &mut impl Host) {
        let pair = outgoing.pair;
        let Some(peer) = self.peers.get_mut(&pair) else { return };
        // Which one does not matter to the peer, but all messages of a port go by the same one.
        let number = outgoing.source % peer.count.max(1);
        let path = peer.path(number);
        let sequence = path.out.push(header_of(outgoing), Purpose::Message(outgoing.token));
        let link = path.link;
        host.moved(pair, number, peer.position(number));
        host.placed(outgoing.token, Stamp { path: number, sequence });
        match link {
            Link::Up(conn) => host.write(conn),
            _ => self.connect_if_down(now, pair, number, host),
        }
    }

    /// Messages flow by this connection from now on.
    fn begin(&mut self, conn: ConnId, pair: Pair, number: u16, host: &mut impl Host) {
        let handshake = self.handshake(number);
        let Some(peer) = self.peers.get_mut(&pair) else { return };
        let count = peer.count;
        let path = peer.path(number);
        path.begin();
        (path.link, path.due) = (Link::Up(conn), Instant::NEVER);
        path.map_due = number == 0;
        let probe = Header { source: PROBE_PORT, extensions: handshake.extensions(), ..Header::default() };
        let is_fresh = path.out.is_fresh();
        path.out.begin_with(probe);
        if count == 0 && !is_fresh {
            // The first one may have no answer: a peer that has seen its place drops it.
            path.out.push(probe, Purpose::Probe);
        }
        host.read(conn);
        host.write(conn);
    }

    fn handshake(&self, number: u16) -> Handshake {
        Handshake {
            paths: Some(self.config.paths),
            generation: Some(self.config.generation).filter(|&generation| generation != 0),
            port_path: Some(number as u8),
        }
    }

    fn connect_if_down(&mut self, now: Instant, pair: Pair, number: u16, host: &mut impl Host) {
        let Some(peer) = self.peers.get_mut(&pair) else { return };
        let path = peer.path(number);
        // An attempt that has just failed is not repeated at once, whatever is sent meanwhile.
        if path.link == Link::Down && path.due == Instant::NEVER {
            self.connect(now, pair, number, host);
        }
    }

    fn connect(&mut self, now: Instant, pair: Pair, number: u16, host: &mut impl Host) {
        // Only the host with the smaller address opens further paths.
        if !pair.connects() && number > 0 {
            return self.connect_if_down(now, pair, 0, host);
        }
        let conn = self.new_conn(pair, number);
        let answer_within = self.config.retry.1;
        let Some(peer) = self.peers.get_mut(&pair) else { return };
        let path = peer.path(number);
        path.link = if pair.connects() { Link::Connecting(conn) } else { Link::Calling(conn) };
        if !pair.connects() {
            path.due = now + answer_within;
            self.due = self.due.min(path.due);
        }
        host.connect(conn, pair, number);
    }

    /// A connection has ended: the next attempt follows, if there is a reason for one.
    fn retry(&mut self, now: Instant, pair: Pair, number: u16) {
        let (min, max) = self.config.retry;
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let random = self.random >> 11;
        let Some(peer) = self.peers.get_mut(&pair) else { return };
        let has_held = number == 0 && !peer.held.is_empty();
        let path = peer.path(number);
        let goes_on = pair.connects() && now < path.tries_until;
        if !(goes_on || has_held || path.out.has_more()) {
            return;
        }
        path.waited = (path.waited * 2).clamp(min, max);
        // Random, so that hosts do not meet again and again: half of it to all of it.
        let part = (path.waited.as_nanos() as u64 / 2).max(1);
        path.due = now + Duration::from_nanos(part + random % part);
        self.due = self.due.min(path.due);
    }

    /// A message has come whole.
    fn take(
        &mut self,
        now: Instant,
        (pair, number): (Pair, u16),
        header: &Header,
        payload: &[u8],
        host: &mut impl Host,
    ) {
        let Some(peer) = self.peers.get_mut(&pair) else { return };
        let kind = header.kind();
        if kind == Kind::CongestionMap {
            if let Some(map) = CongestionMap::parse(payload) {
                peer.congested = map;
                host.congestion(pair, &peer.congested);
            }
            return;
        }
        let is_handshake = matches!(kind, Kind::Probe | Kind::ProbeAnswer);
        if is_handshake {
            // Before its place is looked at: the first message of a connection has one that a live peer has seen.
            self.learn(now, pair, number, &header.extensions.handshake(), host);
        }
        let Some(peer) = self.peers.get_mut(&pair) else { return };
        let path = peer.path(number);
        let is_repeated = header.flags.has(Flags::RETRANSMITTED) && header.sequence < path.next_in;
        if !is_repeated {
            // The first message that is known of a path may have any place.
            if path.next_in > 0 && header.sequence > path.next_in {
                self.drops.count_many(Reason::Missing, header.sequence - path.next_in);
            }
            path.next_in = header.sequence.wrapping_add(1);
            path.has_taken = true;
            if matches!(kind, Kind::Data | Kind::Ping) {
                (path.waited, path.has_flowed) = (Duration::ZERO, true);
            }
            host.moved(pair, number, peer.position(number));
        } else if !is_handshake {
            self.drops.count(Reason::Repeated);
            return;
        }
        match kind {
            Kind::Probe => self.answer(pair, number, PROBE_PORT, self.handshake(number).extensions(), host),
            Kind::Ping => self.answer(pair, number, header.source, Default::default(), host),
            Kind::Nothing => self.drops.count(Reason::DeadPing),
            Kind::ProbeAnswer | Kind::CongestionMap => {}
            Kind::Data => {
                let (port, source) = (header.destination, header.source);
                match host.deliver(&Delivery { pair, port, source, payload }) {
                    Delivered::Yes => {}
                    Delivered::NoSocket => self.drops.count(Reason::NoSocket),
                    Delivered::Full => self.drops.count(Reason::PortFull),
                }
            }
        }
    }

    /// Answers a ping.
    fn answer(
        &mut self,
        pair: Pair,
        number: u16,
        port: u16,
        extensions: twinpath_rds_wire::Extensions,
        host: &mut impl Host,
    ) {
        let answers_max = self.config.answers_max;
        let Some(peer) = self.peers.get_mut(&pair) else { return };
        let path = peer.path(number);
        if path.out.answers() >= answers_max {
            return self.drops.count(Reason::PingFlood);
        }
        let header = Header { destination: port, extensions, ..Header::default() };
        path.out.push(header, Purpose::Answer);
        let link = path.link;
        host.moved(pair, number, peer.position(number));
        if let Link::Up(conn) = link {
            host.write(conn);
        }
    }

    /// The peer has said of itself.
    fn learn(&mut self, now: Instant, pair: Pair, number: u16, said: &Handshake, host: &mut impl Host) {
        let Some(peer) = self.peers.get_mut(&pair) else { return };
        if let Some(generation) = said.generation
            && peer.path(number).hear(generation)
        {
            for (_, path) in
                peer.paths.iter_mut().enumerate().filter(|(other, _)| *other != usize::from(number))
            {
                path.hear_elsewhere(generation);
            }
            peer.congested = CongestionMap::default();
            host.congestion(pair, &peer.congested);
        }
        peer.port_path = said.port_path.is_some();
        // Without a path in its ports it cannot be told by which one a connection goes on.
        let theirs = if peer.port_path { said.paths.unwrap_or(1) } else { 1 };
        // It stays, as long as messages have places by it.
        if peer.count == 0 || peer.paths.iter().all(|path| path.out.is_empty()) {
            peer.count = theirs.min(self.config.paths);
        }
        let held = std::mem::take(&mut peer.held);
        peer.held_bytes = 0;
        let count = peer.count;
        for outgoing in &held {
            self.place(now, outgoing, host);
        }
        // The peer cannot open them.
        for other in (1..count).filter(|_| pair.connects()) {
            self.connect_if_down(now, pair, other, host);
        }
    }
}

fn header_of(outgoing: &Outgoing) -> Header {
    Header {
        len: outgoing.len,
        source: outgoing.source,
        destination: outgoing.destination,
        ..Header::default()
    }
}
