//! What the engine asks for: connections, messages of programs, and what is to be noted.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::event::epoll::{self, EventData, EventFlags};
use twinpath_rds::{ConnId, Delivered, Delivery, Host, Pair, Position, Stamp, Token};
use twinpath_rds_memory::{Entry, Placed, PortMaps, Positions, Record};
use twinpath_rds_wire::CongestionMap;

use crate::conn::Conn;
use crate::program::{Program, Put};

/// Which kind of descriptor an event of `epoll(7)` is of; the rest of the number says which one.
pub(crate) const COMMANDS: u64 = 0;
pub(crate) const LISTENER: u64 = 1;
pub(crate) const CONN: u64 = 1 << 62;
pub(crate) const PROGRAM: u64 = 2 << 62;

#[derive(Debug)]
pub(crate) struct Io {
    pub(crate) epoll: OwnedFd,
    pub(crate) conns: BTreeMap<ConnId, Conn>,
    pub(crate) programs: BTreeMap<u64, Program>,
    pub(crate) ports: BTreeMap<(IpAddr, u16), u64>,
    /// Messages until TCP has acknowledged them: of which program, and which of its own.
    pub(crate) messages: BTreeMap<Token, (u64, Entry)>,
    pub(crate) positions: Positions,
    pub(crate) maps: PortMaps,
    /// Connections with something to write.
    pub(crate) to_write: BTreeSet<ConnId>,
    /// Connections that may have brought something before they were read.
    pub(crate) to_read: BTreeSet<ConnId>,
    /// Attempts to connect that have failed at once.
    pub(crate) failed: Vec<ConnId>,
    /// Ports that are congested from now on.
    pub(crate) congested: Vec<(IpAddr, u16)>,
    /// Connections end, and none is made any more.
    pub(crate) is_last: bool,
    /// A message was parked, as a peer had as many as may be.
    pub(crate) was_full: bool,
    /// There may be room for it.
    pub(crate) has_room: bool,
    /// Programs that may send again.
    pub(crate) may_send: BTreeSet<u64>,
    pub(crate) random: u64,
}

impl Io {
    pub(crate) fn new(positions: Positions, maps: PortMaps) -> Result<Self, rustix::io::Errno> {
        Ok(Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            conns: BTreeMap::new(),
            programs: BTreeMap::new(),
            ports: BTreeMap::new(),
            messages: BTreeMap::new(),
            random: u64::from(positions.generation()) << 20 | 1,
            positions,
            maps,
            to_write: BTreeSet::new(),
            to_read: BTreeSet::new(),
            failed: Vec::new(),
            congested: Vec::new(),
            is_last: false,
            was_full: false,
            has_room: false,
            may_send: BTreeSet::new(),
        })
    }

    /// Waits for what the connection can do next. One that is not read is waited for only until it is connected.
    pub(crate) fn watch(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN, conn.is_read && conn.is_connected);
        flags.set(EventFlags::OUT, !conn.is_connected || conn.waits_to_write);
        let data = EventData::new_u64(CONN | id.0);
        // A peer's reset would be reported again and again.
        let done = match (conn.is_watched, flags.is_empty()) {
            (false, true) => return,
            (false, false) => epoll::add(&self.epoll, &conn.socket, data, flags),
            (true, false) => epoll::modify(&self.epoll, &conn.socket, data, flags),
            (true, true) => epoll::delete(&self.epoll, &conn.socket),
        };
        conn.is_watched = !flags.is_empty();
        if let Err(error) = done {
            tracing::error!("a connection is not waited for: {error}");
        }
    }

    /// Waits for what the program may do next.
    pub(crate) fn watch_program(&mut self, number: u64) {
        let Some(program) = self.programs.get_mut(&number) else { return };
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN, program.may_send() && !program.has_ended);
        flags.set(EventFlags::OUT, program.is_congested());
        // Its end is reported, whatever is waited for. Once it is known it would be reported again and again.
        // At an orderly end of the daemon, what waits is handed over although nothing more is said.
        let is_heard = !program.is_hung_up && (!program.has_ended || program.is_congested());
        let wanted = is_heard.then_some(flags);
        if wanted == program.watched {
            return;
        }
        let data = EventData::new_u64(PROGRAM | number);
        let done = match (program.watched, wanted) {
            (None, Some(flags)) => epoll::add(&self.epoll, &program.socket, data, flags),
            (Some(_), Some(flags)) => epoll::modify(&self.epoll, &program.socket, data, flags),
            (Some(_), None) => epoll::delete(&self.epoll, &program.socket),
            (None, None) => Ok(()),
        };
        program.watched = wanted;
        if let Err(error) = done {
            tracing::error!("a program is not waited for: {error}");
        }
    }

    /// A port may be clear now.
    pub(crate) fn try_parked(&mut self) {
        let parked = self.programs.iter().filter(|(_, program)| program.parks());
        self.may_send.extend(parked.map(|(number, _)| *number));
    }

    /// Hands a message to the program that has the port.
    pub(crate) fn put(&mut self, local: IpAddr, port: u16, from: SocketAddr, payload: &[u8]) -> Delivered {
        let Some(&number) = self.ports.get(&(local, port)) else { return Delivered::NoSocket };
        let Some(program) = self.programs.get_mut(&number) else { return Delivered::NoSocket };
        let was_congested = program.is_congested();
        match program.put(from, payload) {
            Put::Yes => Delivered::Yes,
            Put::Later => {
                if !was_congested {
                    self.congested.push((local, port));
                    self.watch_program(number);
                }
                Delivered::Yes
            }
            Put::Full => Delivered::Full,
            Put::Gone => Delivered::NoSocket,
        }
    }
}

impl Host for Io {
    fn connect(&mut self, conn: ConnId, pair: Pair, path: u16) {
        if self.is_last {
            return;
        }
        match Conn::open(pair, path, &mut self.random) {
            Ok(opened) => {
                self.conns.insert(conn, opened);
                self.watch(conn);
            }
            Err(error) => {
                tracing::debug!("cannot connect from {} to {}: {error}", pair.local, pair.remote);
                self.failed.push(conn);
            }
        }
    }

    fn read(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.is_read = true;
            self.to_read.insert(id);
            self.watch(id);
        } else {
            // It is accepted, and comes into the table after this call.
            self.to_read.insert(id);
        }
    }

    fn pause(&mut self, id: ConnId) {
        self.to_read.remove(&id);
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.is_read = false;
            self.watch(id);
        }
    }

    fn write(&mut self, conn: ConnId) {
        self.to_write.insert(conn);
    }

    fn finish(&mut self, conn: ConnId) {
        if let Some(conn) = self.conns.get(&conn) {
            // If it is broken, that is read.
            let _ = rustix::net::shutdown(&conn.socket, rustix::net::Shutdown::Write);
        }
    }

    fn reset(&mut self, conn: ConnId) {
        self.to_read.remove(&conn);
        if let Some(conn) = self.conns.remove(&conn) {
            conn.reset();
        }
    }

    fn placed(&mut self, token: Token, stamp: Stamp) {
        if let Some((number, entry)) = self.messages.get(&token)
            && let Some(program) = self.programs.get(number)
        {
            program.messages.place(*entry, Placed { path: stamp.path, sequence: stamp.sequence });
        }
    }

    fn moved(&mut self, pair: Pair, path: u16, position: Position) {
        let record = Record {
            next_out: position.next_out,
            next_in: position.next_in,
            peer_generation: position.peer_generation,
            paths: position.paths,
            port_path: position.port_path,
        };
        self.positions.set(pair.local, pair.remote, path, &record);
    }

    fn position(&self, pair: Pair, path: u16) -> Option<Position> {
        self.positions.get(pair.local, pair.remote, path).map(position_of)
    }

    fn deliver(&mut self, delivery: &Delivery<'_>) -> Delivered {
        let from = SocketAddr::new(delivery.pair.remote, delivery.source);
        self.put(delivery.pair.local, delivery.port, from, delivery.payload)
    }

    fn released(&mut self, token: Token) {
        let Some((number, entry)) = self.messages.remove(&token) else { return };
        let Some(program) = self.programs.get_mut(&number) else { return };
        program.release(entry);
        self.has_room |= std::mem::take(&mut self.was_full);
        self.may_send.insert(number);
    }

    fn congestion(&mut self, pair: Pair, ports: &CongestionMap) {
        self.maps.set(pair.remote, ports);
        self.try_parked();
    }
}

impl Io {
    /// Reads a connection whose peer has nothing to say but its end.
    pub(crate) fn read_to_end(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.get_mut(&id).filter(|conn| !conn.is_read) {
            conn.is_read = true;
            self.watch(id);
        }
    }
}

/// A position that was noted.
pub(crate) fn position_of(record: Record) -> Position {
    Position {
        next_out: record.next_out,
        next_in: record.next_in,
        peer_generation: record.peer_generation,
        paths: record.paths,
        port_path: record.port_path,
    }
}
