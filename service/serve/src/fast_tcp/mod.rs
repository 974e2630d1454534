//! TCP on the fast path: connections over the TCP engine ([`EngineListener`]), whose segments come and leave in frames
//! of the worker's ports. The kernel's listeners stay beside it, and serve what the kernel's programs leave to them
//! ([`TcpClaims`]).

mod claims;
mod declined;
mod kept;
mod leaving;
mod listener;
mod moving;
mod out;
mod stranded;
mod syns;
mod told;

pub use claims::{FULL_PORTS, Opening, TcpClaims};
pub use listener::{EngineConnection, EngineListener, EngineStream};

use std::collections::HashSet;
use std::hash::RandomState;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use twinpath_tcp::{Config, Tuple};
use twinpath_time::{Duration, Instant};
use twinpath_udp::egress::Update;
use twinpath_udp::served::Served;
use twinpath_wire::tcp_frame;

use crate::TcpTotals;
use crate::limits::unforeseeable;
use crate::streams::{Call, StreamServer};

pub(crate) use declined::Declined;
pub(crate) use kept::Kept;
pub(crate) use leaving::LeavingRecords;
pub(crate) use moving::{Budget, Moves, User, with_scope};
pub(crate) use out::{Beside, Hops, Out, TooLong, is_to_come};
pub(crate) use syns::WaitingSyns;

/// The bit by which the numbers of its connections differ from those of the kernel's.
pub(crate) const MARK: u32 = 1 << 31;

/// The tokens of connections that have moved to sockets of the kernel: their numbers are below it.
pub(crate) const FIRST_MOVED_TOKEN: u32 = 1 << 23;

/// The longest IP packet that a frame of the pool holds.
pub(crate) const MTU_MAX: u32 =
    twinpath_frame::CHUNK_SIZE - twinpath_frame::HEADROOM - twinpath_wire::eth::HEADER_LEN as u32;

/// Maximum number of tuples of which the programs are told in one turn, each by a system call.
pub(crate) const CALLS_PER_TURN: u32 = 256;

/// How long ports stay for what there is no frame for. A full queue of a device is sent in less.
const FLUSHED_WITHIN: Duration = Duration::from_millis(100);

/// A drain waits for so many handshakes as for connections: their peers may have repeated a SYN or an acknowledgement, and hear a
/// reset otherwise.
const HANDSHAKES_FEW: usize = 256;

/// How long a drain waits for more handshakes than those, behind which nobody may stand.
const HANDSHAKES_WITHIN: Duration = Duration::from_secs(1);

/// The MTU of the engine until it knows a port.
const MTU_AT_FIRST: u16 = 1500;

/// How a service's connections are served on the fast path of one worker.
#[derive(Clone, Debug)]
pub struct FastTcpConfig {
    /// The ends that accept; an address may be unspecified. That of IPv6 accepts both families.
    pub locals: Vec<SocketAddr>,
    /// Not known to any peer: sequence numbers follow from it (RFC 6528), and places in tables.
    pub secret: [u64; 2],
}

impl FastTcpConfig {
    /// With a random secret.
    #[must_use]
    pub fn new(locals: Vec<SocketAddr>) -> Self {
        Self { locals, secret: [unforeseeable(), unforeseeable()] }
    }
}

/// A call of the server for the engine's connections.
pub(crate) type FastCall<'a, 'io, S> = Call<'a, 'io, S, EngineListener>;

/// The connections of one service on the fast path of one worker.
pub(crate) struct FastTcp<C> {
    pub(crate) server: StreamServer<EngineListener, C>,
    pub(crate) beside: Beside,
    pub(crate) waiting: WaitingSyns,
    declined: Declined,
    /// About how many new peers control may be asked.
    questions: u32,
    /// Bytes that a connection sends in one call once it has moved to a socket.
    pub(crate) output_max: usize,
    /// The interface of the last port that was attached: the link of addresses that need one, also if connections move
    /// once their ports are gone. 0 before.
    pub(crate) ifindex: u32,
    /// The bytes of a packet that came in several frames.
    pub(crate) whole: Vec<u8>,
    /// What moves to the kernel, some of it in each turn.
    pub(crate) moves: Option<Moves>,
    /// There is no path to peers until a port is attached: what begins nevertheless moves, too.
    pub(crate) has_left: bool,
    /// When an answer to a SYN may have left last, while there is no path back.
    pub(crate) spoke_at: Instant,
    /// What cannot move, as our address is gone with the interface.
    pub(crate) kept: Kept,
    /// What the programs are to know of what does not move.
    pub(crate) records: LeavingRecords,
    /// Tuples are left to be released.
    is_releasing: bool,
    /// Ports are to stay for a while, as something is to be sent by them: until then at most.
    pub(crate) is_flushing: bool,
    flushes_until: Instant,
    /// Events or segments are left for the next turn.
    pub(crate) is_unfinished: bool,
    /// When a drain forgets the handshakes that are under way.
    handshakes_until: Instant,
    /// The rest is not waited for any more.
    is_cut: bool,
}

impl<C: Send> FastTcp<C> {
    pub(crate) fn new(config: FastTcpConfig, served: Arc<Served>, totals: Arc<TcpTotals>, most: u32) -> Self {
        let FastTcpConfig { locals, secret } = config;
        let limits = totals.limits();
        let output_max = limits.connection_bytes as usize;
        let config = Config {
            mtu: MTU_AT_FIRST,
            connections: most,
            // Until a port is known that cuts them.
            super_segment: 0,
            // Not every router says that a segment was too long.
            black_hole_detection: true,
            memory: limits.queued_bytes.max(4 * u64::from(limits.connection_bytes)),
            ..Config::default()
        };
        let listener = EngineListener::new(config, locals, secret);
        Self {
            server: StreamServer::new(listener, served, totals, most).with_mark(MARK),
            beside: Beside::new(),
            waiting: WaitingSyns::default(),
            declined: Declined::default(),
            questions: 0,
            output_max,
            ifindex: 0,
            whole: Vec::new(),
            moves: None,
            has_left: false,
            spoke_at: Instant::ZERO,
            kept: Kept::default(),
            records: LeavingRecords::default(),
            is_releasing: false,
            is_flushing: false,
            flushes_until: Instant::ZERO,
            is_unfinished: false,
            handshakes_until: Instant::NEVER,
            is_cut: false,
        }
    }

    /// The interface has changed: its longest IP packet, and the longest super-frame of TCP that all ports cut (0: none).
    pub(crate) fn learn_lengths(&mut self, mtu: u32, super_frame_len_max: u32) {
        let tcp = self.server.listener().tcp_mut();
        let mtu = mtu.min(MTU_MAX) as u16;
        let room = super_frame_len_max.saturating_sub(tcp_frame::HEADER_LEN_MAX as u32);
        let super_segment = room.min(Config::default().super_segment);
        if (tcp.config().mtu, tcp.config().super_segment) != (mtu, super_segment) {
            tcp.set_config(Config { mtu, super_segment, ..tcp.config().clone() });
        }
    }

    /// When it has something to do that no frame or event announces.
    #[inline]
    pub(crate) fn next_deadline(&self) -> Instant {
        if self.is_unfinished || self.is_flushing || self.is_leaving() {
            return Instant::ZERO;
        }
        let kept = self.declined.deadline().min(self.beside.stranded.deadline()).min(self.records.deadline());
        let own = self.server.next_deadline().min(self.server.listener_ref().tcp().next_deadline());
        own.min(self.waiting.deadline()).min(kept).min(self.kept.deadline()).min(self.handshakes_until)
    }

    /// Whether connections are about to move to the kernel, or their tuples to be released.
    pub(crate) fn is_leaving(&self) -> bool {
        self.moves.is_some() || self.is_releasing || self.records.is_leaving()
    }

    /// Ports stay until what there was no frame for has left, such as a reset of what cannot move. If there is none for some
    /// time after the last one has moved, it is lost with them: there may never be one. `has_moved`: some may have moved in
    /// this turn.
    pub(crate) fn flush(&mut self, now: Instant, has_moved: bool) {
        if has_moved {
            self.flushes_until = now + FLUSHED_WITHIN;
        }
        let waits = self.is_unfinished || self.server.listener_ref().tcp().has_pending();
        self.is_flushing = self.has_left && waits && now < self.flushes_until;
    }

    /// All connections are to move to the kernel; if they are about to be closed there, they still are.
    pub(crate) fn move_all(&mut self) {
        let is_cut = self.moves.as_ref().is_some_and(|moves| moves.user == User::None);
        let user = if is_cut { User::None } else { User::Server };
        self.moves = Some(Moves::of(user, self.server.numbers()));
        self.kept.begin_pass();
    }

    /// Our addresses are these now, sorted: some may be back that connections could not move without, or had no way without.
    pub(crate) fn addresses_changed(&mut self, now: Instant, addresses: &[IpAddr]) {
        self.beside.stranded.clear();
        self.kept.addresses_changed(now, addresses);
    }

    /// Connections that could not move are tried again, if `now` is late enough for that.
    pub(crate) fn retry(&mut self, now: Instant) {
        if self.has_left && self.kept.deadline() <= now && self.moves.is_none() {
            self.move_all();
        }
    }

    /// Leaves a connection that has not begun to the kernel.
    pub(crate) fn decline(&mut self, now: Instant, tuple: Tuple) {
        self.declined.add(now, tuple);
    }

    /// Control has answered: the former next hops follow.
    pub(crate) fn follow(&mut self, update: &Update) {
        if self.beside.former.is_full() {
            let mut peers: HashSet<_, RandomState> = self.waiting.peers().collect();
            self.server.listener_ref().tcp().for_each(|tuple, _| _ = peers.insert(tuple.remote().ip()));
            self.beside.former.keep(|peer| peers.contains(peer));
        }
        self.beside.former.update(update);
    }

    /// How many more SYNs the programs may take, if `others` connections of the same worker count, too, and those that have
    /// moved to sockets. None that would
    /// have to be declined at once, as its peer would lose a second: those of new peers need a question to control.
    pub(crate) fn room(&self, others: u32) -> u32 {
        let listener = self.server.listener_ref();
        let most = self.server.most().saturating_sub(others).saturating_sub(listener.moved());
        let room = listener.room(most).min(self.waiting.room());
        room.min(self.declined.room()).min(self.questions)
    }

    /// Tells the programs which tuples are the kernel's again, by `calls` calls at most. Returns how many are left.
    /// `questions`: about how many new peers control may be asked.
    pub(crate) fn settle(
        &mut self,
        now: Instant,
        questions: u32,
        calls: u32,
        claims: &mut dyn TcpClaims,
    ) -> u32 {
        self.questions = questions;
        let left = self.declined.settle(now, calls, claims);
        let tcp = self.server.listener().tcp_mut();
        let mut left = self.records.settle(now, left, tcp, claims);
        while left > 0
            && let Some(tuple) = tcp.next_gone()
        {
            claims.release(tuple.local(), tuple.remote());
            left -= 1;
        }
        self.is_releasing = tcp.has_gone();
        left
    }

    /// Releases every tuple: nobody is left to answer.
    pub(crate) fn release_all(&mut self, claims: &mut dyn TcpClaims) {
        self.declined.release_all(claims);
        self.records.release_all(claims);
        for tuple in self.waiting.take_all() {
            claims.release(tuple.local(), tuple.remote());
        }
        self.server.listener_ref().tcp().for_each(|tuple, _| claims.release(tuple.local(), tuple.remote()));
        while let Some(tuple) = self.server.listener().tcp_mut().next_gone() {
            claims.release(tuple.local(), tuple.remote());
        }
    }

    /// Leaves to the kernel what has no connection yet, or none any more.
    pub(crate) fn leave_records(&mut self, now: Instant) {
        let waiting: Vec<_> = self.waiting.take_all().collect();
        waiting.into_iter().for_each(|tuple| self.decline(now, tuple));
        self.records.begin(self.server.listener_ref().tcp());
        self.leave(true);
    }

    /// Whether there is a path at all. Without one nothing is learnt of it, as segments that are lost say nothing.
    fn leave(&mut self, has_left: bool) {
        self.has_left = has_left;
        let tcp = self.server.listener().tcp_mut();
        tcp.set_config(Config { black_hole_detection: !has_left, ..tcp.config().clone() });
    }

    /// A port was attached.
    pub(crate) fn is_back(&mut self) {
        if self.has_left {
            // Those that wait for it go on there.
            self.kept.end();
            self.leave(false);
            self.records.end(self.server.listener_ref().tcp());
        }
    }

    /// What a segment has begun that had arrived before the path ended goes the same way. `before`: how many connections and
    /// handshakes there were.
    pub(crate) fn leave_late(&mut self, tuple: &Tuple, before: (usize, usize)) {
        let tcp = self.server.listener_ref().tcp();
        let (open, half_open, _) = tcp.count();
        if half_open > before.1
            && let Some(number) = tcp.half_open_number(tuple)
        {
            self.records.add_half_open(number);
        }
        self.records.add_time_wait(tcp);
        if open > before.0 {
            self.move_late();
        }
    }

    /// How many of the server's connections wait for an address or a route now. Once all were looked at, none but these is left
    /// here: what ends meanwhile is one of them.
    pub(crate) fn kept_now(&self) -> u32 {
        let here = self.server.open_connections().saturating_sub(self.server.listener_ref().moved());
        self.kept.connections().min(here)
    }

    /// A connection has begun since the path has ended.
    pub(crate) fn move_late(&mut self) {
        match &mut self.moves {
            Some(moves) => moves.again = true,
            None => self.move_all(),
        }
    }

    /// A drain begins: if much is half-open then it has some time left, as nobody may stand behind it.
    pub(crate) fn hurry_handshakes(&mut self, now: Instant) {
        if self.server.listener_ref().tcp().count().1 > HANDSHAKES_FEW {
            self.handshakes_until = now + HANDSHAKES_WITHIN;
        }
    }

    /// Forgets the handshakes that are under way, if a drain has waited for so many long enough. Returns how many.
    pub(crate) fn forget_late_handshakes(&mut self, now: Instant) -> usize {
        if now < self.handshakes_until {
            return 0;
        }
        self.handshakes_until = Instant::NEVER;
        if self.server.listener_ref().tcp().count().1 <= HANDSHAKES_FEW {
            return 0;
        }
        self.server.listener().tcp_mut().forget_handshakes()
    }

    /// Gives up what a drain has waited for: it is reset, as nobody is left to send the rest of it.
    pub(crate) fn cut(&mut self, now: Instant) {
        self.server.listener().cut();
        self.server.listener().abort_all(now);
        self.is_cut = true;
    }

    /// Whether nothing is left after a drain: every connection has been answered and has ended on both sides.
    pub(crate) fn is_drained(&self) -> bool {
        let (open, half_open, _) = self.server.listener_ref().tcp().count();
        self.server.is_drained() && self.waiting.len() == 0 && (self.is_cut || open + half_open == 0)
    }
}
