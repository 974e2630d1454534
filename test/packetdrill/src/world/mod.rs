//! Everything that a script sees of this host: its sockets, its settings, its clock, and the packets that it sends.

pub(crate) mod calls;
pub(crate) mod epoll;
mod options;
mod pipes;
mod reading;
mod settings;
mod socket;
mod writing;

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::collections::{BTreeMap, HashMap, VecDeque};

use twinpath_tcp::Tuple;

use crate::commands::Said;
use crate::engine::{Connection, Engine, Event, View};
use crate::errno::{Answer, Errno};
use crate::knobs::Knobs;
use crate::packet::{self, Built, Marks};
use crate::profile::Profile;
use crate::world::epoll::Epoll;
use crate::world::pipes::Pipe;
use crate::world::socket::{Phase, Socket};

/// The first port of those that a socket gets which asks for none.
const EPHEMERAL_FIRST: u16 = 32_768;

/// How far a call has come.
#[derive(Debug)]
pub(crate) enum Step<T> {
    /// It has ended.
    Done(T),
    /// It waits for a change, until this time at most, µs.
    Wait(Option<u64>),
}

/// This host.
#[derive(Debug)]
pub(crate) struct World {
    clock_us: u64,
    profile: Profile,
    knobs: Knobs,
    /// Payload bytes of the segments that packets to this host are made of; 0: each packet is one.
    unit: u16,
    /// There is none before the first socket: until then a script sets what the engine is configured with.
    engine: Option<Engine>,
    locals: (Ipv4Addr, Ipv6Addr),
    sockets: BTreeMap<i32, Socket>,
    epolls: BTreeMap<i32, Epoll>,
    pipes: BTreeMap<i32, Pipe>,
    /// The sockets of connections.
    owners: HashMap<Connection, i32>,
    /// What the IP headers of connections say whose sockets are closed.
    closed: HashMap<Tuple, Marks>,
    /// Packets to the network, with the time at which each was sent, µs.
    packets: VecDeque<(Vec<u8>, u64)>,
    next_port: u16,
    /// What a connection that is refused shows: an ICMP error says why.
    refused: Errno,
    /// ICMP errors that quoted a sequence number which is not in flight.
    strange_icmp: u64,
}

impl World {
    /// `flags` are words, separated by commas: `linux` or `freebsd`, addresses of this host, `mtu=` with the
    /// bytes that a packet may have, and `unit=` with what packets to this host are made of.
    pub(crate) fn new(flags: &str) -> Self {
        let mut profile = Profile::Linux;
        let (mut mtu, mut unit) = (None, 0);
        let mut locals = (Ipv4Addr::new(192, 168, 0, 2), Ipv6Addr::LOCALHOST);
        for word in flags.split(',').filter(|word| !word.is_empty()) {
            match (word, word.parse()) {
                ("freebsd", _) => profile = Profile::FreeBsd,
                ("linux", _) => profile = Profile::Linux,
                (_, Ok(IpAddr::V4(local))) => locals.0 = local,
                (_, Ok(IpAddr::V6(local))) => locals.1 = local,
                (word, _) => match word.split_once('=').map(|(name, value)| (name, value.parse::<u16>())) {
                    Some(("mtu", Ok(bytes))) => mtu = Some(bytes),
                    Some(("unit", Ok(bytes))) => unit = bytes,
                    _ => eprintln!(
                        "--so_flags: {word} is no address, and none of: linux, freebsd, mtu=, unit="
                    ),
                },
            }
        }
        let mut knobs = Knobs::new(profile);
        knobs.mtu = mtu.unwrap_or(knobs.mtu);
        Self {
            clock_us: 0,
            profile,
            knobs,
            unit,
            engine: None,
            locals,
            sockets: BTreeMap::new(),
            epolls: BTreeMap::new(),
            pipes: BTreeMap::new(),
            owners: HashMap::new(),
            closed: HashMap::new(),
            packets: VecDeque::new(),
            next_port: EPHEMERAL_FIRST,
            refused: Errno::ECONNREFUSED,
            strange_icmp: 0,
        }
    }

    /// The engine, with the settings of this moment if it is asked for the first time.
    fn engine(&mut self) -> &mut Engine {
        let (knobs, profile) = (&self.knobs, self.profile);
        self.engine.get_or_insert_with(|| Engine::new(knobs.config(), profile))
    }

    fn socket_of(&mut self, fd: i32) -> Answer<&mut Socket> {
        let is_other = self.epolls.contains_key(&fd) || self.pipes.contains_key(&fd);
        self.sockets.get_mut(&fd).ok_or(if is_other { Errno::ENOTSOCK } else { Errno::EBADF })
    }

    /// What a connection shows now.
    fn view(&mut self, connection: Connection) -> Option<View> {
        let now_us = self.clock_us;
        self.engine().view(now_us, connection)
    }

    /// This host's address towards `remote`.
    fn local_towards(&self, remote: IpAddr) -> IpAddr {
        match remote {
            IpAddr::V4(_) => self.locals.0.into(),
            IpAddr::V6(_) => self.locals.1.into(),
        }
    }

    fn take_port(&mut self) -> u16 {
        let port = self.next_port;
        self.next_port = self.next_port.checked_add(1).unwrap_or(EPHEMERAL_FIRST);
        port
    }
}

/// Time.
impl World {
    pub(crate) fn now_us(&self) -> u64 {
        self.clock_us
    }

    /// The next time at which something is due, µs: always later than now.
    pub(crate) fn next_us(&self) -> Option<u64> {
        let due = self.engine.as_ref()?.next_us()?;
        Some(due.max(self.clock_us + 1))
    }

    /// The time is `now_us`.
    pub(crate) fn advance(&mut self, now_us: u64) {
        self.clock_us = self.clock_us.max(now_us);
        let now_us = self.clock_us;
        if let Some(engine) = &mut self.engine {
            engine.advance(now_us);
        }
    }

    /// A call that is done if `is_done`, or once its time is over. `timeout_ms` below 0 is none; `until` is kept for it.
    pub(crate) fn wait_unless<T>(
        &self,
        is_done: bool,
        found: T,
        timeout_ms: i32,
        until: &mut Option<u64>,
    ) -> Step<Answer<T>> {
        let until_us = match u64::try_from(timeout_ms) {
            Ok(timeout_ms) => Some(*until.get_or_insert(self.clock_us + 1000 * timeout_ms)),
            Err(_) => None,
        };
        if is_done || until_us.is_some_and(|until_us| until_us <= self.clock_us) {
            Step::Done(Ok(found))
        } else {
            Step::Wait(until_us)
        }
    }
}

/// Packets and what becomes of them.
impl World {
    /// A packet from the network.
    pub(crate) fn packet(&mut self, bytes: &[u8]) {
        let now_us = self.clock_us;
        match packet::parse(bytes, self.unit) {
            Some(packet::Arrived::Segment(_, segment)) if self.knobs.drops(&segment) => {}
            Some(packet::Arrived::Segment(tuple, mut segment)) => {
                if self.socket_at(&tuple).is_some_and(Socket::has_no_options) {
                    segment.options = twinpath_wire::tcp::Options::default();
                }
                self.engine().segment(now_us, &tuple, &segment);
            }
            Some(packet::Arrived::Icmp(tuple, quoted)) => {
                let Some(error) = self.knobs.icmp(&quoted) else { return };
                if self.engine().icmp(now_us, &tuple, quoted.sequence, error) {
                    self.refused = self.profile.refused(&quoted);
                    self.settle();
                    self.refused = Errno::ECONNREFUSED;
                } else {
                    self.strange_icmp += 1;
                }
            }
            None => {}
        }
    }

    pub(crate) fn take_packet(&mut self) -> Option<(Vec<u8>, u64)> {
        self.packets.pop_front()
    }

    /// After each call, packet and step of time: takes what the engine has to send and to say.
    pub(crate) fn settle(&mut self) {
        let Some(engine) = &mut self.engine else { return };
        let now_us = self.clock_us;
        for built in engine.output(now_us) {
            self.push(built);
        }
        while let Some((connection, event)) = self.engine.as_mut().and_then(|it| it.next_event(now_us)) {
            self.event(connection, event);
        }
        self.wake_epolls();
    }

    fn push(&mut self, mut built: Built) {
        let socket = self.socket_at(&built.tuple);
        let closed = self.closed.get(&built.tuple).copied().unwrap_or_default();
        let marks = socket.map_or(closed, Socket::marks);
        if socket.is_some_and(Socket::has_no_options) {
            built.strip();
        }
        self.packets.push_back((packet::emit(built, marks), self.clock_us));
    }

    /// The socket of a connection, or the one that listens for it; with FreeBSD also one that is only bound to its port.
    fn socket_at(&self, tuple: &Tuple) -> Option<&Socket> {
        let is_of =
            |socket: &&Socket| socket.local == Some(tuple.local()) && socket.remote == Some(tuple.remote());
        let listens = |socket: &&Socket| {
            (socket.is_listening() || self.profile == Profile::FreeBsd && socket.phase == Phase::New)
                && socket.local.is_some_and(|local| local.port() == tuple.local_port())
        };
        self.sockets.values().find(is_of).or_else(|| self.sockets.values().find(listens))
    }

    fn event(&mut self, connection: Connection, event: Event) {
        let now_us = self.clock_us;
        let Some(socket) = self.owners.get(&connection).and_then(|fd| self.sockets.get_mut(fd)) else {
            return;
        };
        match event {
            Event::Connected => {
                socket.phase = Phase::Connected(connection);
                self.adopt(connection);
            }
            Event::Ended(errno) => {
                let was_connecting = matches!(socket.phase, Phase::Connecting(_));
                let errno = match errno {
                    Some(Errno::ECONNRESET) if was_connecting => Some(Errno::ECONNREFUSED),
                    Some(Errno::ECONNREFUSED) => Some(self.refused),
                    other => other,
                };
                socket.error = socket.error.or(errno);
                socket.is_over = true;
                if was_connecting {
                    socket.phase = Phase::New;
                    self.owners.remove(&connection);
                    if let Some(engine) = &mut self.engine {
                        engine.close(now_us, connection);
                    }
                }
            }
        }
    }

    /// A command that the script runs.
    pub(crate) fn command(&mut self, words: &[String]) -> Said {
        let said = self.run(words);
        self.settle();
        said
    }
}

/// The end of a connection that a socket shows, on either side.
pub(crate) fn shown(socket: &Socket, address: Option<SocketAddr>) -> Option<SocketAddr> {
    address.map(|address| crate::address::shown_by(socket.family, address))
}
