//! The thread that has all connections and all sockets of programs. It sleeps until one of them is ready.

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};

use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, Shutdown, recv, shutdown};
use twinpath_host::aside;
use twinpath_rds::{
    Config, ConnId, Delivered, Host as _, Outgoing, Pair, Piece, Rds, SendError, Stamp, Token,
};
use twinpath_rds_memory::{Entry, Messages, PortMaps, Positions};
use twinpath_rds_socket::message::{HEAD_LEN, Head, Kind};
use twinpath_rds_wire::{CongestionMap, PAYLOAD_MAX, PROBE_PORT};
use twinpath_sys::send_queue::queued;
use twinpath_sys::{EventFd, clock, fd_passing};
use twinpath_time::{Duration, Instant};

use crate::conn::{Conn, Read, accept, is_host};
use crate::io::{COMMANDS, CONN, Io, LISTENER, PROGRAM, position_of};
use crate::keeper::Keeper;
use crate::program::{Program, Staged};
use crate::reports::{HubReport, Refused, report};

/// Events of one call of the kernel.
const EVENTS_MAX: usize = 256;
/// Messages of a program, and reads of a connection, until others have their turn.
const TURN_MAX: usize = 64;
/// Parts of one call that writes.
const PARTS_MAX: usize = 128;
/// Limits of the time until it is looked again whether TCP has acknowledged what was written, while nothing else happens.
const LOOK: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(200));
/// How long no peer is accepted after there was no descriptor for one.
const ACCEPT_AFTER: Duration = Duration::from_millis(100);
/// How long an orderly end waits for peers.
const END_WITHIN: Duration = Duration::from_secs(2);

/// What control tells the thread.
pub(crate) enum Command {
    /// A program has connected.
    Program(OwnedFd, u32, Option<u32>),
    /// The addresses of the interfaces.
    Addresses(Vec<IpAddr>),
    /// What is to be shown.
    Report(SyncSender<HubReport>),
    /// Sends what waits, and ends.
    End,
}

/// How many sockets programs may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketLimits {
    /// All.
    pub sockets: usize,
    /// Those of one user.
    pub sockets_per_user: usize,
}

impl Default for SocketLimits {
    fn default() -> Self {
        Self { sockets: 1024, sockets_per_user: 256 }
    }
}

/// What became of a message that a program wants to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    /// It is released once TCP has acknowledged it.
    Placed,
    /// A program of this host has it.
    Released,
    /// It was answered or dropped.
    Done,
    /// Its receiver is congested, or as much waits for its peer as may.
    Later,
}

pub(crate) struct Hub {
    pub(crate) rds: Rds,
    pub(crate) io: Io,
    limits: SocketLimits,
    listener: Option<OwnedFd>,
    keeper: Option<Keeper>,
    commands: Receiver<Command>,
    wake: Arc<EventFd>,
    pub(crate) addresses: Vec<IpAddr>,
    next_program: u64,
    next_token: u64,
    /// Connections with something that is not acknowledged.
    unacknowledged: BTreeMap<ConnId, u64>,
    /// Peers are accepted again from then on.
    accepts_at: Instant,
    look_at: Instant,
    look_after: Duration,
    pub(crate) refused: Refused,
    ends_at: Option<Instant>,
    /// Messages of a former daemon that the engine is to be given.
    restored: Vec<(Outgoing, Stamp)>,
    /// What a former daemon has left is looked at.
    is_recovering: bool,
}

impl Hub {
    pub(crate) fn new(
        config: Config,
        limits: SocketLimits,
        listener: OwnedFd,
        commands: Receiver<Command>,
        wake: Arc<EventFd>,
        (keeper, positions, maps): (Option<Keeper>, Positions, PortMaps),
    ) -> Result<Self, Errno> {
        let io = Io::new(positions, maps)?;
        epoll::add(&io.epoll, &*wake, EventData::new_u64(COMMANDS), EventFlags::IN)?;
        epoll::add(&io.epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        Ok(Self {
            rds: Rds::new(config),
            io,
            limits,
            listener: Some(listener),
            keeper,
            commands,
            wake,
            addresses: Vec::new(),
            next_program: 0,
            next_token: 0,
            unacknowledged: BTreeMap::new(),
            accepts_at: Instant::NEVER,
            look_at: Instant::NEVER,
            look_after: LOOK.0,
            refused: Refused::default(),
            ends_at: None,
            restored: Vec::new(),
            is_recovering: false,
        })
    }

    /// Serves until control says that it ends.
    pub(crate) fn run(&mut self) {
        let mut events = [const { MaybeUninit::<epoll::Event>::uninit() }; EVENTS_MAX];
        while !self.is_over() {
            let due = self
                .rds
                .next_deadline()
                .min(self.look_at)
                .min(self.ends_at.unwrap_or(Instant::NEVER))
                .min(self.accepts_at);
            let left = due.nanos_since(clock::now());
            let timeout =
                Timespec { tv_sec: (left / 1_000_000_000) as i64, tv_nsec: (left % 1_000_000_000) as i64 };
            let timeout = (due != Instant::NEVER).then_some(&timeout);
            let ready: Vec<(u64, EventFlags)> = match epoll::wait(&self.io.epoll, &mut events, timeout) {
                Ok((ready, _)) => ready.iter().map(|event| (event.data.u64(), event.flags)).collect(),
                Err(Errno::INTR) => continue,
                Err(error) => {
                    tracing::error!("cannot wait for programs and peers: {error}");
                    return;
                }
            };
            let now = clock::now();
            for (data, flags) in ready {
                match data {
                    COMMANDS => self.obey(),
                    LISTENER => self.accept(now),
                    conn if conn & CONN != 0 => self.conn_is_ready(now, ConnId(conn & !CONN), flags),
                    program => self.program_is_ready(now, program & !PROGRAM, flags),
                }
            }
            self.rds.timeout(now, &mut self.io);
            if now >= self.accepts_at {
                self.accepts_at = Instant::NEVER;
                self.watch_listener(EventFlags::IN);
            }
            self.finish_turn(now);
        }
    }

    /// Whether an orderly end is over: all that programs have sent is acknowledged, then all is read that TCP has acknowledged.
    fn is_over(&mut self) -> bool {
        let Some(ends_at) = self.ends_at else { return false };
        let waits_for =
            |program: &Program| !program.is_over() || program.is_congested() && !program.is_hung_up;
        let waits = self.io.programs.values().any(waits_for)
            || self.rds.peers().any(|peer| peer.held > 0 || peer.paths.iter().any(|path| path.queued > 0));
        if !waits && !self.io.is_last {
            self.io.is_last = true;
            for id in self.io.conns.keys().copied().collect::<Vec<_>>() {
                self.io.finish(id);
            }
        }
        self.io.is_last && self.io.conns.is_empty() || clock::now() >= ends_at
    }

    /// Does what the events of a turn have left to do, until nothing is left.
    fn finish_turn(&mut self, now: Instant) {
        loop {
            for (local, port) in std::mem::take(&mut self.io.congested) {
                // Its program may have read it, or ended, since.
                let program =
                    self.io.ports.get(&(local, port)).and_then(|number| self.io.programs.get(number));
                self.set_congested(local, port, program.is_some_and(Program::is_congested));
            }
            for conn in std::mem::take(&mut self.io.failed) {
                self.rds.closed(now, conn, &mut self.io);
            }
            for conn in std::mem::take(&mut self.io.to_read) {
                self.read(now, conn);
            }
            if std::mem::take(&mut self.io.has_room) {
                self.io.try_parked();
            }
            for number in std::mem::take(&mut self.io.may_send) {
                self.resume(now, number);
            }
            for conn in std::mem::take(&mut self.io.to_write) {
                self.write(now, conn);
            }
            self.look_at_acknowledged(now);
            let io = &self.io;
            if io.congested.is_empty()
                && io.failed.is_empty()
                && io.to_read.is_empty()
                && io.may_send.is_empty()
                && io.to_write.is_empty()
            {
                return;
            }
        }
    }

    fn obey(&mut self) {
        self.wake.drain_shared();
        while let Ok(command) = self.commands.try_recv() {
            match command {
                Command::Program(socket, user, pid) => self.let_in(socket, user, pid),
                Command::Addresses(addresses) => self.addresses = addresses,
                // Nobody may wait for it any more.
                Command::Report(answer) => drop(answer.try_send(report(
                    &self.rds,
                    &self.addresses,
                    &self.io.programs,
                    &self.refused,
                ))),
                Command::End => {
                    if let Some(keeper) = self.keeper.take() {
                        keeper.end();
                    }
                    self.ends_at = Some(self.ends_at.unwrap_or_else(|| clock::now() + END_WITHIN));
                    // Peers connect no more, and programs send no more. What they have sent is read, and what comes for them
                    // they can still receive.
                    self.listener = None;
                    for program in self.io.programs.values() {
                        // One that has closed its end is read in any case.
                        let _ = shutdown(&program.socket, Shutdown::Read);
                    }
                }
            }
        }
    }

    fn let_in(&mut self, socket: OwnedFd, user: u32, pid: Option<u32>) {
        let of_user = self.io.programs.values().filter(|program| program.user == user).count();
        if self.io.programs.len() >= self.limits.sockets || of_user >= self.limits.sockets_per_user {
            return self.refused.sockets.add(1);
        }
        let welcome = Head::new(Kind::Welcome).to_bytes();
        if fd_passing::send(&socket, &welcome, &[self.io.maps.read_only()]).is_err() {
            return;
        }
        let messages = match Messages::new() {
            Ok(messages) => messages,
            Err(error) => {
                tracing::error!("a program gets no socket: {error}");
                return self.refused.sockets.add(1);
            }
        };
        let number = self.next_program;
        self.next_program += 1;
        if let Some(keeper) = &self.keeper
            && let Err(error) = keeper.keep(number, socket.as_fd(), messages.fd())
        {
            tracing::error!("the sockets of programs will not outlive this daemon: {error}");
            self.keeper = None;
        }
        self.io.programs.insert(number, Program::new(socket, user, pid, messages));
        self.io.watch_program(number);
    }

    /// Goes on with what a daemon has left that was killed.
    pub(crate) fn recover(&mut self, programs: BTreeMap<u64, (OwnedFd, OwnedFd)>) {
        let now = clock::now();
        for (local, remote, path, record) in self.io.positions.iter().collect::<Vec<_>>() {
            self.rds.recover(Pair { local, remote }, path, &position_of(record));
        }
        for (number, (socket, messages)) in programs {
            let messages = match Messages::of_fd(messages) {
                Ok(messages) => messages,
                Err(error) => {
                    tracing::error!("a program's socket ends, as its messages cannot be read: {error}");
                    continue;
                }
            };
            let peer = twinpath_sys::socket_kind::peer(&socket);
            let (user, pid) = peer.map_or((0, None), |peer| (peer.user, peer.pid()));
            self.next_program = self.next_program.max(number + 1);
            self.io.programs.insert(number, Program::former(socket, user, pid, messages));
            self.recover_program(now, number);
        }
        self.finish_turn(now);
    }

    fn recover_program(&mut self, now: Instant, number: u64) {
        let Some(program) = self.io.programs.get_mut(&number) else { return };
        let kept = program.messages.kept();
        let left = program.messages.left().first_chunk::<HEAD_LEN>().and_then(Head::parse);
        if let Some((local, source)) = program.local {
            self.io.ports.insert((local, source), number);
            for (entry, placed) in kept {
                let to = program.messages.to(entry);
                let len = program.messages.payload(entry).len();
                program.unacknowledged += len;
                let Some(placed) = placed else {
                    // In their order, as soon as the engine has all that have places.
                    program.park(entry);
                    continue;
                };
                let token = Token(self.next_token);
                self.next_token += 1;
                self.io.messages.insert(token, (number, entry));
                let pair = Pair { local, remote: to.ip() };
                let outgoing = Outgoing { pair, source, destination: to.port(), token, len: len as u32 };
                self.restored.push((outgoing, Stamp { path: placed.path, sequence: placed.sequence }));
            }
        }
        self.is_recovering = true;
        if let Some(head) = left {
            let len = HEAD_LEN + if head.kind == Kind::Send { head.value as usize } else { 0 };
            self.program_says(now, number, &head, len.min(HEAD_LEN + PAYLOAD_MAX));
        }
        self.is_recovering = false;
        for (outgoing, stamp) in std::mem::take(&mut self.restored) {
            self.rds.restore(now, &outgoing, stamp, &mut self.io);
        }
        self.io.may_send.insert(number);
    }

    fn accept(&mut self, now: Instant) {
        for _ in 0..TURN_MAX {
            let Some(listener) = &self.listener else { return };
            let (socket, pair, port) = match accept(listener) {
                Ok(accepted) => accepted,
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(Errno::AGAIN) => return,
                Err(error) => {
                    // Without descriptors it would be told again and again that somebody waits.
                    tracing::warn!("no connection of a peer is accepted for a while: {error}");
                    self.accepts_at = now + ACCEPT_AFTER;
                    return self.watch_listener(EventFlags::empty());
                }
            };
            // Programs of this host come by the daemon's socket.
            let is_peer = is_host(pair.remote) && !self.addresses.contains(&pair.remote);
            if !self.addresses.contains(&pair.local) || !is_peer {
                self.refused.elsewhere.add(1);
                continue;
            }
            let Ok(mut conn) = Conn::new(socket, true) else { continue };
            if let Some(id) = self.rds.accepted(now, pair, port, &mut self.io) {
                conn.is_read = self.io.to_read.contains(&id);
                self.io.conns.insert(id, conn);
                self.io.watch(id);
            }
        }
    }

    fn watch_listener(&self, flags: EventFlags) {
        let Some(listener) = &self.listener else { return };
        if let Err(error) = epoll::modify(&self.io.epoll, listener, EventData::new_u64(LISTENER), flags) {
            tracing::error!("peers are not waited for: {error}");
        }
    }

    fn conn_is_ready(&mut self, now: Instant, id: ConnId, flags: EventFlags) {
        let Some(conn) = self.io.conns.get_mut(&id) else { return };
        if !conn.is_connected {
            match rustix::net::sockopt::socket_error(&conn.socket) {
                Ok(Ok(())) => {
                    conn.is_connected = true;
                    self.io.watch(id);
                    self.rds.connected(id, &mut self.io);
                    // Of a peer that is called to connect back, only the end is waited for.
                    self.io.read_to_end(id);
                }
                _ => self.close(now, id),
            }
            return;
        }
        if flags.contains(EventFlags::OUT) {
            self.io.to_write.insert(id);
        }
        if flags.intersects(EventFlags::IN | EventFlags::ERR | EventFlags::HUP) {
            self.read(now, id);
        }
    }

    fn close(&mut self, now: Instant, id: ConnId) {
        self.io.conns.remove(&id);
        self.io.to_read.remove(&id);
        self.unacknowledged.remove(&id);
        self.rds.closed(now, id, &mut self.io);
    }

    /// Reads from a connection, and gives it to the engine.
    fn read(&mut self, now: Instant, id: ConnId) {
        for turn in 0..TURN_MAX {
            let Some(conn) = self.io.conns.get_mut(&id).filter(|conn| conn.is_read) else { return };
            let read = if turn == 0 && !conn.bytes.is_empty() { conn.read().or_kept() } else { conn.read() };
            let mut bytes = std::mem::take(&mut conn.bytes);
            if read == Read::Some || read == Read::End {
                let used = self.rds.received(now, id, &bytes, &mut self.io);
                bytes.drain(..used);
            }
            // It may be gone, or paused.
            let Some(conn) = self.io.conns.get_mut(&id) else { return };
            conn.bytes = bytes;
            match read {
                Read::Some => {}
                Read::None => return,
                Read::End => return self.close(now, id),
            }
        }
    }

    /// Writes what the engine has for a connection.
    fn write(&mut self, now: Instant, id: ConnId) {
        loop {
            let Io { conns, messages, programs, .. } = &mut self.io;
            let Some(conn) = conns.get_mut(&id).filter(|conn| conn.is_connected) else { return };
            let part = |piece| match piece {
                Piece::Bytes(bytes) => IoSlice::new(bytes),
                Piece::Payload { token, from } => {
                    let kept = messages.get(&token).and_then(|(number, entry)| {
                        Some(&programs.get(number)?.messages.payload(*entry)[from..])
                    });
                    IoSlice::new(kept.unwrap_or_default())
                }
            };
            let parts: Vec<IoSlice<'_>> = self.rds.pieces(id).take(PARTS_MAX).map(part).collect();
            let wanted: usize = parts.iter().map(|part| part.len()).sum();
            let written = if wanted == 0 { Ok(0) } else { conn.write(&parts) };
            drop(parts);
            let waits = match written {
                Ok(written) => {
                    self.rds.advance(id, written);
                    if written > 0 {
                        self.unacknowledged.entry(id).or_insert(0);
                        (self.look_after, self.look_at) = (LOOK.0, self.look_at.min(now + LOOK.0));
                    }
                    if wanted > 0 && written == wanted {
                        continue;
                    }
                    wanted > 0
                }
                Err(Errno::AGAIN) => true,
                Err(Errno::INTR) => continue,
                // What has come is read before its end.
                Err(_) => false,
            };
            if conn.waits_to_write != waits {
                conn.waits_to_write = waits;
                self.io.watch(id);
            }
            return;
        }
    }

    /// Tells the engine what TCP has acknowledged.
    fn look_at_acknowledged(&mut self, now: Instant) {
        if self.unacknowledged.is_empty() {
            self.look_at = Instant::NEVER;
            return;
        }
        let mut is_new = false;
        let (rds, io) = (&mut self.rds, &mut self.io);
        self.unacknowledged.retain(|&id, known| {
            let Some(conn) = io.conns.get(&id) else { return false };
            let (written, waits) = rds.written(id);
            let acknowledged = written.saturating_sub(queued(&conn.socket).unwrap_or(usize::MAX) as u64);
            if acknowledged > *known {
                *known = acknowledged;
                is_new = true;
                rds.acknowledged(id, acknowledged, io);
            }
            waits && rds.written(id).1
        });
        if now >= self.look_at {
            self.look_after = if is_new { LOOK.0 } else { (self.look_after * 2).min(LOOK.1) };
            self.look_at = now + self.look_after;
        }
    }

    fn program_is_ready(&mut self, now: Instant, number: u64, flags: EventFlags) {
        let Some(program) = self.io.programs.get_mut(&number) else { return };
        if flags.contains(EventFlags::OUT)
            && program.is_congested()
            && program.catch_up()
            && let Some((local, port)) = program.local
        {
            self.set_congested(local, port, false);
        }
        if flags.intersects(EventFlags::HUP | EventFlags::ERR) {
            self.hang_up(number);
        }
        self.hear(now, number);
        self.io.watch_program(number);
    }

    /// A program has closed its end. Its port is free; what it has sent is still read and sent.
    fn hang_up(&mut self, number: u64) {
        let Some(program) = self.io.programs.get_mut(&number) else { return };
        program.is_hung_up = true;
        let was_congested = program.is_congested();
        let Some((local, port)) = program.local else { return };
        if self.io.ports.get(&(local, port)) == Some(&number) {
            self.io.ports.remove(&(local, port));
            if was_congested {
                self.set_congested(local, port, false);
            }
        }
    }

    /// Reads what a program says.
    fn hear(&mut self, now: Instant, number: u64) {
        for _ in 0..TURN_MAX {
            let Some(program) = self.io.programs.get_mut(&number) else { return };
            if !program.may_send() {
                return;
            }
            let Program { socket, messages, refuses_rights, .. } = program;
            let receive = |stage: &mut [u8]| {
                if *refuses_rights {
                    return recv(&*socket, stage, RecvFlags::DONTWAIT | RecvFlags::TRUNC).map(|(_, len)| len);
                }
                let received = fd_passing::receive_from_unknown(&*socket, stage)?;
                aside::close(received.fds);
                Ok(received.len)
            };
            let len = match messages.stage(receive) {
                Ok(0) => return self.program_ended(number),
                Ok(len) => len,
                Err(Errno::AGAIN | Errno::INTR) => return,
                // It has closed its end without reading all that it was given. What it has said before is still there.
                Err(Errno::CONNRESET) => continue,
                Err(_) => return self.program_ended(number),
            };
            let head = messages.staged(len).first_chunk::<HEAD_LEN>().and_then(Head::parse);
            let is_whole = |head: &Head| {
                let payload = if head.kind == Kind::Send { head.value as usize } else { 0 };
                len == HEAD_LEN + payload && payload <= PAYLOAD_MAX
            };
            match head.filter(is_whole) {
                Some(head) => self.program_says(now, number, &head, len),
                None => {
                    messages.unstage();
                    self.refused.faults.add(1);
                }
            }
        }
    }

    /// A program has said this; the message is staged.
    fn program_says(&mut self, now: Instant, number: u64, head: &Head, len: usize) {
        let Some(program) = self.io.programs.get_mut(&number) else { return };
        let address = SocketAddr::new(head.address, head.port);
        match head.kind {
            Kind::Bind => {
                let bound = self.bind(number, head);
                let answer = match bound {
                    Ok(port) => Head { port, address: head.address, ..Head::new(Kind::Bound) },
                    Err(error) => Head { value: error.raw_os_error() as u32, ..Head::new(Kind::Bound) },
                };
                if let Some(program) = self.io.programs.get(&number) {
                    // Before it is told: the next daemon would bind it again.
                    program.note();
                    // It waits for this, so there is room.
                    let _ = program.tell(&answer.to_bytes(), &[]);
                }
            }
            Kind::Connect => program.to = Some(address),
            Kind::Limit if head.port == 0 => {
                program.set_receive_max(head.value.min(i32::MAX as u32) as usize)
            }
            Kind::Limit => program.send_max = head.value.max(2048) as usize,
            Kind::Send => {
                let to =
                    if head.port == 0 && head.address.is_unspecified() { program.to } else { Some(address) };
                if let Some(to) = to.filter(|_| program.local.is_some()) {
                    program.sent += 1;
                    program.held = Some(Staged { to, len: len - HEAD_LEN });
                    return self.send_held(now, number);
                }
                self.refused.faults.add(1);
            }
            Kind::Welcome | Kind::Bound | Kind::Message => self.refused.faults.add(1),
        }
        if let Some(program) = self.io.programs.get_mut(&number) {
            program.note();
            program.messages.unstage();
        }
    }

    fn bind(&mut self, number: u64, head: &Head) -> Result<u16, Errno> {
        let (address, port) = (head.address, head.port);
        if !self.addresses.contains(&address) {
            return Err(if is_host(address) { Errno::ADDRNOTAVAIL } else { Errno::INVAL });
        }
        let program = self.io.programs.get_mut(&number).ok_or(Errno::INVAL)?;
        match program.local {
            // A former daemon has bound it, and was killed before it could say so, or after.
            Some((local, bound)) if self.is_recovering && local == address => return Ok(bound),
            Some(_) => return Err(Errno::INVAL),
            None if port == PROBE_PORT => return Err(Errno::INVAL),
            None => {}
        }
        let is_free = |port: &u16| !self.io.ports.contains_key(&(address, *port));
        let port = match port {
            // As Linux (net/rds/bind.c), beginning anywhere; 1 is for probes.
            0 => {
                let start = (self.io.random >> 16) as u16;
                (0..u16::MAX).map(|step| start.wrapping_add(step).max(2)).find(is_free)
            }
            port => Some(port).filter(is_free),
        };
        let port = port.ok_or(Errno::ADDRINUSE)?;
        program.local = Some((address, port));
        self.io.ports.insert((address, port), number);
        Ok(port)
    }

    /// Sends the message that a program wants to send, if it can be.
    fn send_held(&mut self, now: Instant, number: u64) {
        if let Some(program) = self.io.programs.get_mut(&number)
            && let Some(Staged { to, len }) = program.held
            && let Some(entry) = program.messages.keep(to, HEAD_LEN, len)
        {
            program.held = None;
            program.unacknowledged += len;
            // Behind the others to this receiver.
            if program.has_parked(to) {
                program.park(entry);
            } else {
                self.send(now, number, entry);
            }
        }
        self.io.watch_program(number);
        self.forget_ended(number);
    }

    /// Sends a kept message, or parks it.
    fn send(&mut self, now: Instant, number: u64, entry: Entry) {
        let Some(program) = self.io.programs.get(&number) else { return };
        let Some((local, source)) = program.local else { return };
        let to = program.messages.to(entry);
        let pair = Pair { local, remote: to.ip().to_canonical() };
        let sent = if self.addresses.contains(&pair.remote) {
            self.send_here(number, pair, [source, to.port()], entry)
        } else {
            self.send_away(now, number, pair, [source, to.port()], entry)
        };
        let Some(program) = self.io.programs.get_mut(&number) else { return };
        match sent {
            Sent::Placed | Sent::Released => {}
            Sent::Done => program.release(entry),
            Sent::Later => program.park(entry),
        }
    }

    /// Sends what was parked and need not be any more.
    fn send_parked(&mut self, now: Instant, number: u64) {
        let Some(program) = self.io.programs.get_mut(&number) else { return };
        let parked = program.take_parked();
        for entry in parked {
            let Some(program) = self.io.programs.get_mut(&number) else { return };
            // Behind those of the same receiver that wait on.
            if program.has_parked(program.messages.to(entry)) {
                program.park(entry);
            } else {
                self.send(now, number, entry);
            }
        }
    }

    /// There may be room for what a program wants to send.
    fn resume(&mut self, now: Instant, number: u64) {
        self.send_parked(now, number);
        self.send_held(now, number);
        let is_unread = |program: &Program| program.is_hung_up && !program.has_ended && program.may_send();
        if self.io.programs.get(&number).is_some_and(is_unread) {
            // Nothing tells that there is more to read.
            self.hear(now, number);
            if self.io.programs.get(&number).is_some_and(is_unread) {
                self.io.may_send.insert(number);
            }
        }
    }

    /// Sends a message to a program of this host.
    fn send_here(&mut self, number: u64, pair: Pair, [source, port]: [u16; 2], entry: Entry) -> Sent {
        let (from, local) = (SocketAddr::new(pair.local, source), pair.remote);
        if port == 0 {
            // A ping: the answer comes from port 0.
            let _ = self.io.put(pair.local, source, SocketAddr::new(pair.remote, 0), &[]);
            return Sent::Done;
        }
        let receiver = self.io.ports.get(&(local, port)).and_then(|number| self.io.programs.get(number));
        if receiver.is_some_and(Program::is_congested) {
            return Sent::Later;
        }
        let Some(program) = self.io.programs.get_mut(&number) else { return Sent::Released };
        let payload = program.messages.payload(entry).to_vec();
        // Before it is handed over: the next daemon must not send it again.
        program.release(entry);
        if self.io.put(local, port, from, &payload) != Delivered::Yes {
            self.refused.unreachable.add(1);
        }
        Sent::Released
    }

    /// Sends a message to another host.
    fn send_away(&mut self, now: Instant, number: u64, pair: Pair, ports: [u16; 2], entry: Entry) -> Sent {
        let Some(program) = self.io.programs.get_mut(&number) else { return Sent::Done };
        if !is_host(pair.remote) || pair.local.is_ipv4() != pair.remote.is_ipv4() {
            self.refused.unreachable.add(1);
            return Sent::Done;
        }
        let (token, [source, destination]) = (Token(self.next_token), ports);
        let len = program.messages.payload(entry).len() as u32;
        self.next_token += 1;
        self.io.messages.insert(token, (number, entry));
        let outgoing = Outgoing { pair, source, destination, token, len };
        let Err(error) = self.rds.send(now, &outgoing, &mut self.io) else { return Sent::Placed };
        self.io.messages.remove(&token);
        match error {
            SendError::Congested => Sent::Later,
            SendError::Full | SendError::TooManyPeers => {
                self.io.was_full = true;
                Sent::Later
            }
            SendError::TooLong => {
                self.refused.unreachable.add(1);
                Sent::Done
            }
        }
    }

    fn set_congested(&mut self, local: IpAddr, port: u16, is_congested: bool) {
        self.rds.set_congested(local, port, is_congested, &mut self.io);
        let mut own = CongestionMap::default();
        for (&(address, port), number) in &self.io.ports {
            if address == local && self.io.programs.get(number).is_some_and(Program::is_congested) {
                own.set(port, true);
            }
        }
        self.io.maps.set(local, &own);
        if !is_congested {
            self.io.try_parked();
        }
    }

    /// All that a program has said is read.
    fn program_ended(&mut self, number: u64) {
        // At an orderly end of the daemon it has not closed its end: it still receives.
        if self.ends_at.is_none() {
            self.hang_up(number);
        }
        if let Some(program) = self.io.programs.get_mut(&number) {
            program.has_ended = true;
        }
        self.forget_ended(number);
    }

    fn forget_ended(&mut self, number: u64) {
        if self.ends_at.is_none() && self.io.programs.get(&number).is_some_and(Program::is_over) {
            self.io.programs.remove(&number);
            if let Some(keeper) = &self.keeper {
                keeper.forget(number);
            }
        }
    }
}
