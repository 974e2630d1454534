//! The engine: connections by tuple, listeners, timers, and what is to be sent.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use core::hash::{BuildHasher as _, Hasher as _};
use foldhash::fast::FixedState;
use siphasher::sip::SipHasher13;
use twinpath_time::wheel::TICK;
use twinpath_time::{Duration, Instant, Wheel};
use twinpath_wire::tcp::Flags;

use crate::buffer::Pool;
use crate::config::{Config, Options};
use crate::connection::{Connection, Fresh, Reply, Shared, Snapshot};
use crate::counters::Counters;
use crate::handshake::{Handshake, OpenedBy};
use crate::info::{Info, TcpState};
use crate::record::{self, HalfOpen, InTimeWait, TimeWait};
use crate::segment::{Segment, Sink, Tuple};
use crate::seq::Seq;
use crate::state::{Events, State};
use crate::stream::Stream;
use crate::table::{Entry, Table};

/// A connection's name: not used again for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnectionId {
    index: u32,
    generation: u32,
}

impl ConnectionId {
    /// A small number that no other connection has at the same time: for tables beside the engine.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.index
    }
}

/// A listener's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListenerId(u32);

/// What became of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It belongs to this connection.
    Taken(ConnectionId),
    /// It belongs to a handshake, to a connection in TIME_WAIT, or was answered by a reset.
    Answered,
    /// A SYN that is not taken, as a backlog or table is full, or a segment of no connection, if
    /// [`Unknown::LeaveToKernel`]: the kernel answers it.
    LeftToKernel,
    /// Its tuple stood for something here, and is the kernel's from now on: a SYN has come after TIME_WAIT, and is not
    /// taken; or, with [`Unknown::LeaveToKernel`], the segment acknowledges another answer to its SYN than ours, as the
    /// kernel may have sent one. [`Tcp::next_gone`] does not tell it.
    Declined,
}

/// What to do with segments of no connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unknown {
    /// They are the kernel's: it may have their connection.
    #[default]
    LeaveToKernel,
    /// They are answered by a reset, as there is no other stack.
    Reset,
}

/// Why a connection cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectError {
    /// There is one between the same ends, or one that ended so lately that its segments may still be on their way:
    /// TIME_WAIT lasts for [`Config::time_wait_time`], or for a second if timestamps tell old segments from new ones.
    InUse,
    /// The table is full.
    Full,
}

/// An ICMP error about a segment that this host has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpError {
    /// The path carries packets of at most this many bytes (RFC 1191, RFC 8201); 0: the router did not say.
    TooBig(u16),
    /// Nobody takes it there, or may: it ends a handshake (RFC 1122 section 4.2.3.9).
    Hard,
    /// It cannot be reached at present.
    Soft,
}

/// The host of the connections: it is called as data arrives.
pub trait Host {
    /// New bytes have arrived in order, and can be read where they lie. What it leaves is kept, and read later. The
    /// program may write in the same call: the acknowledgement then leaves with it.
    fn received(&mut self, _now: Instant, _id: ConnectionId, _stream: &mut Stream<'_>) {}
}

/// A host that reads later, by [`Tcp::stream`].
#[derive(Clone, Copy, Debug)]
pub struct Later;

impl Host for Later {}

#[derive(Debug)]
struct Slot {
    generation: u32,
    connection: Option<Box<Connection>>,
}

#[derive(Debug)]
struct Listener {
    local: SocketAddr,
    backlog: u32,
    half_open: u32,
    options: Arc<Options>,
    ready: VecDeque<ConnectionId>,
}

/// Records by number, with the tuples that they belong to.
#[derive(Debug)]
struct Records<T> {
    entries: Vec<Option<(Tuple, T)>>,
    /// How often an entry was used before.
    uses: Vec<u32>,
    free: Vec<u32>,
}

impl<T> Default for Records<T> {
    fn default() -> Self {
        Self { entries: Vec::new(), uses: Vec::new(), free: Vec::new() }
    }
}

impl<T> Records<T> {
    fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    fn add(&mut self, tuple: Tuple, record: T) -> u32 {
        if let Some(index) = self.free.pop() {
            self.entries[index as usize] = Some((tuple, record));
            return index;
        }
        self.entries.push(Some((tuple, record)));
        self.uses.push(0);
        self.entries.len() as u32 - 1
    }

    /// How often the entry was used before, if it is in use.
    fn uses(&self, index: u32) -> Option<u32> {
        self.entries.get(index as usize)?.as_ref()?;
        self.uses.get(index as usize).copied()
    }

    fn tuple(&self, index: u32) -> Option<&Tuple> {
        self.entries.get(index as usize)?.as_ref().map(|(tuple, _)| tuple)
    }

    fn get(&mut self, index: u32) -> Option<&mut (Tuple, T)> {
        self.entries.get_mut(index as usize)?.as_mut()
    }

    fn remove(&mut self, index: u32) -> Option<(Tuple, T)> {
        let taken = self.entries.get_mut(index as usize)?.take()?;
        self.uses[index as usize] = self.uses[index as usize].wrapping_add(1);
        self.free.push(index);
        Some(taken)
    }
}

/// A TCP engine.
#[derive(Debug)]
pub struct Tcp {
    shared: Shared,
    table: Table,
    slots: Vec<Slot>,
    /// The slot of the last segment: the next one is often of the same connection.
    last: u32,
    free: Vec<u32>,
    half_open: Records<HalfOpen>,
    time_wait: Records<TimeWait>,
    /// Records of TIME_WAIT in the order of their ends, with the use of their entry. A record that was restarted is found
    /// too early and put back; one that has ended otherwise is not found.
    time_wait_order: VecDeque<(Instant, u32, u32)>,
    listeners: Vec<Option<Listener>>,
    wheel: Wheel,
    half_open_wheel: Wheel,
    /// Connections that wait for memory to write into.
    starving: VecDeque<u32>,
    /// Connections with events, and with something to send.
    ready: VecDeque<u32>,
    pending: VecDeque<u32>,
    /// Tuples that stand for nothing any more, if anybody wants to know.
    gone: Option<VecDeque<Tuple>>,
    unknown: Unknown,
    secret: [u64; 2],
    /// Whether `fast.rs` is used: a test compares it with the general way.
    #[cfg(test)]
    straight: bool,
}

impl Tcp {
    /// An engine without connections. `secret` must not be known to peers: sequence numbers follow from it (RFC 6528),
    /// and places in tables.
    #[must_use]
    pub fn new(config: Config, unknown: Unknown, secret: [u64; 2]) -> Self {
        let seed = FixedState::with_seed(secret[0] ^ secret[1].rotate_left(17)).hash_one(secret[1]);
        Self {
            shared: Shared {
                pool: Pool::new(config.memory),
                flights: Vec::new(),
                counters: Counters::default(),
                challenges: config.challenges_per_second,
                challenges_since: Instant::ZERO,
                salt: secret[0] ^ secret[1].rotate_left(29),
                rto_min_us: micros(config.rto_min),
                rto_max_us: micros(config.rto_max),
                config,
            },
            table: Table::new(seed),
            slots: Vec::new(),
            last: 0,
            free: Vec::new(),
            half_open: Records::default(),
            time_wait: Records::default(),
            time_wait_order: VecDeque::new(),
            listeners: Vec::new(),
            wheel: Wheel::new(),
            half_open_wheel: Wheel::new(),
            starving: VecDeque::new(),
            ready: VecDeque::new(),
            pending: VecDeque::new(),
            gone: None,
            unknown,
            secret,
            #[cfg(test)]
            straight: true,
        }
    }

    /// From now on [`Self::next_gone`] says which tuples stand for nothing any more.
    #[must_use]
    pub fn telling_what_is_gone(mut self) -> Self {
        self.gone = Some(VecDeque::new());
        self
    }

    /// Takes the next tuple of which no connection, half-open one or record of TIME_WAIT is left. It is told once each
    /// time. To be called after each call that may end one.
    pub fn next_gone(&mut self) -> Option<Tuple> {
        while let Some(tuple) = self.gone.as_mut()?.pop_front() {
            // It may have begun again since.
            if !self.has(&tuple) {
                return Some(tuple);
            }
        }
        None
    }

    /// Whether a connection, a half-open one, or a record of TIME_WAIT has this tuple.
    #[must_use]
    pub fn has(&self, tuple: &Tuple) -> bool {
        self.entry(tuple).is_some()
    }

    /// The host knows that the path of a connection carries IP packets of at most `mtu` bytes: longer segments that are
    /// in flight are sent again in pieces.
    pub fn path_carries(&mut self, tuple: &Tuple, mtu: u16) {
        let Some(Entry::Connection(index)) = self.entry(tuple) else { return };
        if let Some(connection) = self.slots[index as usize].connection.as_deref_mut() {
            connection.path_carries(mtu, &self.shared);
            self.touch(index);
        }
    }

    /// A router has said of another connection with the same peer that the path carries IP packets of at most `mtu` bytes.
    pub fn path_said(&mut self, now: Instant, tuple: &Tuple, mtu: u16) {
        let Some(Entry::Connection(index)) = self.entry(tuple) else { return };
        if let Some(connection) = self.slots[index as usize].connection.as_deref_mut() {
            connection.path_said(now, mtu, &self.shared);
            self.touch(index);
        }
    }

    /// Whether the tuple stands for nothing any more and [`Self::next_gone`] has not told it yet. It will not: what stood
    /// for it is still claimed, and may begin again.
    pub fn take_back(&mut self, tuple: &Tuple) -> bool {
        if self.has(tuple) {
            return false;
        }
        let Some(gone) = &mut self.gone else { return false };
        let before = gone.len();
        gone.retain(|other| other != tuple);
        gone.len() < before
    }

    /// Ends a record of TIME_WAIT if this SYN may begin a new connection (RFC 6191): another engine has the port now.
    /// Returns whether it did.
    pub fn give_way(&mut self, tuple: &Tuple, segment: &Segment<'_>) -> bool {
        let Some(Entry::TimeWait(index)) = self.entry(tuple) else { return false };
        let Some((_, record)) = self.time_wait.get(index) else { return false };
        let replaces = record.segment(segment, self.shared.config.challenge_syns) == InTimeWait::Replace;
        if replaces {
            self.end_time_wait(index);
        }
        replaces
    }

    /// Resets the connection of a tuple; its program is told that it has ended. Its name stays valid until it is closed.
    pub fn give_up(&mut self, tuple: &Tuple) {
        let Some(Entry::Connection(index)) = self.entry(tuple) else { return };
        if let Some(connection) = self.slots[index as usize].connection.as_deref_mut() {
            connection.give_up(&mut self.shared);
            self.touch(index);
        }
    }

    /// A tuple was removed, and stands for nothing any more.
    fn is_gone(&mut self, tuple: &Tuple) {
        if let Some(gone) = &mut self.gone {
            gone.push_back(*tuple);
        }
    }

    /// Sets the limits and times: for new connections, and for timers that begin.
    pub fn set_config(&mut self, config: Config) {
        (self.shared.rto_min_us, self.shared.rto_max_us) = (micros(config.rto_min), micros(config.rto_max));
        self.shared.pool.set_limit(config.memory);
        self.shared.config = config;
    }

    /// The limits and times.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.shared.config
    }

    /// What was counted.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// Bytes that the buffers of all connections hold.
    #[must_use]
    pub const fn memory(&self) -> u64 {
        self.shared.pool.used()
    }

    /// Connections, half-open ones, and ones in TIME_WAIT.
    #[must_use]
    pub fn count(&self) -> (usize, usize, usize) {
        (self.slots.len() - self.free.len(), self.half_open.len(), self.time_wait.len())
    }

    /// Accepts connections to `local`, whose address may be unspecified. At most `backlog` wait to be accepted,
    /// half-open ones included.
    pub fn listen(&mut self, local: SocketAddr, backlog: u32, options: Options) -> ListenerId {
        let (backlog, options) = (backlog.max(1), Arc::new(options));
        let listener = Listener { local, backlog, half_open: 0, options, ready: VecDeque::new() };
        if let Some(index) = self.listeners.iter().position(Option::is_none) {
            self.listeners[index] = Some(listener);
            return ListenerId(index as u32);
        }
        self.listeners.push(Some(listener));
        ListenerId(self.listeners.len() as u32 - 1)
    }

    /// Changes what connections begin with that are accepted from now on.
    pub fn set_listener_options(&mut self, listener: ListenerId, options: Options) {
        if let Some(Some(listener)) = self.listeners.get_mut(listener.0 as usize) {
            listener.options = Arc::new(options);
        }
    }

    /// Stops accepting. What waits to be accepted is reset, and half-open connections are forgotten.
    pub fn stop_listening(&mut self, now: Instant, listener: ListenerId) {
        let Some(place) = self.listeners.get_mut(listener.0 as usize) else { return };
        let Some(ended) = place.take() else { return };
        for id in ended.ready {
            self.abort(now, id);
        }
        for index in 0..self.half_open.entries.len() as u32 {
            let of_it = self.half_open.get(index).is_some_and(|(_, record)| record.listener == listener.0);
            if of_it && let Some((tuple, _)) = self.half_open.remove(index) {
                self.table.remove(&tuple, Entry::HalfOpen(index));
                self.is_gone(&tuple);
                self.half_open_wheel.set(index, Instant::NEVER);
            }
        }
    }

    /// Takes the next connection whose handshake is complete.
    pub fn accept(&mut self, listener: ListenerId) -> Option<ConnectionId> {
        let id = self.listeners.get_mut(listener.0 as usize)?.as_mut()?.ready.pop_front()?;
        // Events may have been told before anybody knew the name.
        if let Some(connection) = self.find(id) {
            connection.tell_again();
            if connection.announces() {
                self.ready.push_back(id.index);
            }
        }
        Some(id)
    }

    /// How many connections can be accepted.
    #[must_use]
    pub fn acceptable(&self, listener: ListenerId) -> usize {
        self.listeners
            .get(listener.0 as usize)
            .and_then(Option::as_ref)
            .map_or(0, |listener| listener.ready.len())
    }

    /// Shows every connection: also the half-open ones, and those in TIME_WAIT.
    pub fn for_each(&self, mut show: impl FnMut(&Tuple, TcpState)) {
        for connection in self.slots.iter().filter_map(|slot| slot.connection.as_deref()) {
            // What has ended, and is only read, is no connection any more.
            if connection.opened_by != OpenedBy::Detached {
                show(&connection.tuple, connection.tcp_state());
            }
        }
        self.half_open.entries.iter().flatten().for_each(|(tuple, _)| show(tuple, TcpState::SynRecv));
        self.time_wait.entries.iter().flatten().for_each(|(tuple, _)| show(tuple, TcpState::TimeWait));
    }

    /// Forgets all connections in TIME_WAIT.
    pub fn forget_time_wait(&mut self) {
        for index in 0..self.time_wait.entries.len() as u32 {
            self.end_time_wait(index);
        }
    }

    /// Resets every connection, also those that wait to be accepted, and forgets half-open ones and those in TIME_WAIT.
    /// No name of a connection is valid any more. The resets leave with the next [`Self::output`].
    pub fn abort_all(&mut self, now: Instant) {
        self.listeners.iter_mut().flatten().for_each(|listener| listener.ready.clear());
        for index in 0..self.slots.len() as u32 {
            let generation = self.slots[index as usize].generation;
            self.abort(now, ConnectionId { index, generation });
        }
        self.forget_handshakes();
        self.forget_time_wait();
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// See [`ConnectError`].
    pub fn connect(
        &mut self,
        now: Instant,
        local: SocketAddr,
        remote: SocketAddr,
        options: Options,
    ) -> Result<ConnectionId, ConnectError> {
        let tuple = Tuple::new(local, remote);
        let mut iss = self.first_number(now, &tuple);
        let mut follows = false;
        match self.entry(&tuple) {
            Some(Entry::TimeWait(index)) => {
                let Some((_, record)) = self.time_wait.get(index) else { return Err(ConnectError::InUse) };
                if !self.shared.config.timestamps || !record.may_be_opened(now) {
                    return Err(ConnectError::InUse);
                }
                // Above all numbers that the one before has sent, and a window without scale, as in Linux (`tcp_twsk_unique`).
                iss = iss.max(record.snd_nxt + 65_537);
                self.replace_time_wait(index);
                follows = true;
                self.shared.counters.time_wait_reused += 1;
            }
            Some(_) => return Err(ConnectError::InUse),
            None => {}
        }
        if self.is_full() {
            if follows {
                self.is_gone(&tuple);
            }
            return Err(ConnectError::Full);
        }
        let offset = self.clock_offset(&tuple);
        let connection = Connection::connect(tuple, iss, offset, Arc::new(options), now, &self.shared);
        let id = self.add(tuple, connection);
        self.touch(id.index);
        Ok(id)
    }

    fn is_full(&self) -> bool {
        self.slots.len() - self.free.len() >= self.shared.config.connections as usize
    }

    fn add(&mut self, tuple: Tuple, connection: Connection) -> ConnectionId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, connection: None });
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        slot.connection = Some(Box::new(connection));
        self.table.add(&tuple, Entry::Connection(index));
        ConnectionId { index, generation: slot.generation }
    }

    /// RFC 9293 section 3.4.1, RFC 6528: a clock, and a keyed hash of the ends. The clock ticks each 64 ns, as Linux's does
    /// (`seq_scale`, net/core/secure_seq.c): the RFC's 4 us are too few numbers for the bytes of a fast connection, and
    /// the peer would take the next one between the same ends for an old segment until its TIME_WAIT is over.
    fn first_number(&self, now: Instant, tuple: &Tuple) -> Seq {
        let clock = (now.as_nanos() >> 6) as u32;
        Seq((self.keyed(tuple, 1) as u32).wrapping_add(clock))
    }

    /// The offset of the timestamp clock (RFC 7323 section 5.4): the same for the same addresses, so that clocks do not
    /// go back from one connection to the next.
    fn clock_offset(&self, tuple: &Tuple) -> u32 {
        let parts = tuple.parts();
        let mut hasher = SipHasher13::new_with_keys(self.secret[0], self.secret[1]);
        for part in &parts[..4] {
            hasher.write_u64(*part);
        }
        hasher.finish() as u32
    }

    fn keyed(&self, tuple: &Tuple, purpose: u64) -> u64 {
        let mut hasher = SipHasher13::new_with_keys(self.secret[0], self.secret[1] ^ purpose);
        for part in tuple.parts() {
            hasher.write_u64(part);
        }
        hasher.finish()
    }

    fn find(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        let slot = self.slots.get_mut(id.index as usize)?;
        if slot.generation != id.generation {
            return None;
        }
        slot.connection.as_deref_mut()
    }

    fn both(&mut self, id: ConnectionId) -> Option<(&mut Connection, &mut Shared)> {
        let slot = self.slots.get_mut(id.index as usize)?;
        if slot.generation != id.generation {
            return None;
        }
        Some((slot.connection.as_deref_mut()?, &mut self.shared))
    }

    /// The connection's bytes, to be read and written. [`Self::output`] follows. `None` if there is no such
    /// connection.
    pub fn stream(&mut self, now: Instant, id: ConnectionId) -> Option<Stream<'_>> {
        self.touch(id.index);
        let (connection, shared) = self.both(id)?;
        Some(Stream::new(connection, shared, &[], now))
    }

    /// The two ends.
    #[must_use]
    pub fn tuple(&self, id: ConnectionId) -> Option<Tuple> {
        let slot = self.slots.get(id.index as usize).filter(|slot| slot.generation == id.generation)?;
        Some(slot.connection.as_ref()?.tuple)
    }

    /// What the connection says of itself.
    #[must_use]
    pub fn info(&self, now: Instant, id: ConnectionId) -> Option<Info> {
        let slot = self.slots.get(id.index as usize).filter(|slot| slot.generation == id.generation)?;
        Some(slot.connection.as_ref()?.info(now, &self.shared))
    }

    /// Checks what has to hold between two calls; nothing if compiled without debug assertions.
    ///
    /// # Panics
    /// If something does not hold.
    #[doc(hidden)]
    pub fn check(&self) {
        if cfg!(debug_assertions) {
            self.check_all();
        }
    }

    fn check_all(&self) {
        let mut memory = 0;
        for (index, slot) in self.slots.iter().enumerate() {
            let Some(connection) = slot.connection.as_deref() else { continue };
            connection.check(&self.shared.config);
            memory += connection.buffered();
            let (wheel, own) = (self.wheel.deadline(index as u32), connection.deadline());
            let missed = wheel > own + Duration::from_nanos(TICK) && !connection.is_listed();
            assert!(!missed, "a timer is missed: {wheel:?} {own:?}");
        }
        assert_eq!(memory, self.shared.pool.used(), "memory that no connection holds");
        assert!(self.shared.pool.used() <= self.shared.config.memory);
        let records = self.half_open.len() + self.time_wait.len();
        assert!(self.table.len() <= self.slots.len() - self.free.len() + records);
        for listener in self.listeners.iter().flatten() {
            assert!(listener.half_open as usize <= self.half_open.len());
        }
    }

    /// For debugging.
    #[doc(hidden)]
    #[must_use]
    pub fn debug(&self, id: ConnectionId) -> String {
        let connection = self.slots.get(id.index as usize).and_then(|slot| slot.connection.as_ref());
        format!("{:?} {:?}", connection.map(|c| c.debug()), self.wheel.deadline(id.index))
    }

    /// What the program has set.
    #[must_use]
    pub fn options(&self, id: ConnectionId) -> Option<Options> {
        let slot = self.slots.get(id.index as usize).filter(|slot| slot.generation == id.generation)?;
        Some(*slot.connection.as_ref()?.options)
    }

    /// Sets them.
    pub fn set_options(&mut self, now: Instant, id: ConnectionId, options: Options) {
        if let Some((connection, shared)) = self.both(id) {
            connection.set_options(now, options, shared);
            self.touch(id.index);
        }
    }

    /// The program reads no more: what is queued, and the end, are still read.
    pub fn finish_reading(&mut self, id: ConnectionId) {
        if let Some(connection) = self.find(id) {
            connection.finish_reading();
            self.touch(id.index);
        }
    }

    /// The program is done with the connection: its name is not valid any more. What was written is still sent; if
    /// something was not read, it is reset.
    pub fn close(&mut self, now: Instant, id: ConnectionId) {
        if let Some((connection, shared)) = self.both(id) {
            connection.close(now, shared);
            self.touch(id.index);
        }
    }

    /// Resets the connection; its name is not valid any more.
    pub fn abort(&mut self, now: Instant, id: ConnectionId) {
        let _ = now;
        if let Some((connection, shared)) = self.both(id) {
            connection.abort(shared);
            self.touch(id.index);
        }
    }

    /// One more than the largest [`ConnectionId::index`] that there has been.
    #[must_use]
    pub fn indices(&self) -> u32 {
        self.slots.len() as u32
    }

    /// The connection with this index, if there is one, and whether its program is done with it. It is no half-open one.
    #[must_use]
    pub fn connection_at(&self, index: u32) -> Option<(ConnectionId, bool)> {
        let slot = self.slots.get(index as usize)?;
        let is_orphan = slot.connection.as_deref()?.is_orphan();
        Some((ConnectionId { index, generation: slot.generation }, is_orphan))
    }

    /// One more than the largest number that a half-open connection has.
    #[must_use]
    pub fn half_open_numbers(&self) -> u32 {
        self.half_open.entries.len() as u32
    }

    /// The half-open connection with this number, if there is one.
    #[must_use]
    pub fn half_open_at(&self, number: u32) -> Option<Tuple> {
        self.half_open.entries.get(number as usize)?.as_ref().map(|(tuple, _)| *tuple)
    }

    /// Whether a handshake is under way for this tuple, which its peer has begun.
    #[must_use]
    pub fn is_half_open(&self, tuple: &Tuple) -> bool {
        matches!(self.entry(tuple), Some(Entry::HalfOpen(_)))
    }

    /// Answers the SYN of a half-open connection once more: a peer that has had an answer acknowledges it again.
    pub fn answer_again(&mut self, now: Instant, number: u32, sink: &mut impl Sink) {
        self.repeat_answer_now(now, number, sink);
    }

    /// Leaves a half-open connection to the kernel, if its peer has repeated its SYN with this number: it has had no answer.
    /// Returns whether it did; [`Self::next_gone`] does not tell it.
    pub fn leave_half_open(&mut self, tuple: &Tuple, sequence: u32) -> bool {
        let Some(Entry::HalfOpen(index)) = self.entry(tuple) else { return false };
        if !self.half_open.get(index).is_some_and(|(_, record)| record.irs == Seq(sequence)) {
            return false;
        }
        self.shared.counters.failed_opens += 1;
        self.replace_half_open(index).is_some()
    }

    /// Forgets all handshakes that are under way. Returns how many there were.
    pub fn forget_handshakes(&mut self) -> usize {
        let before = self.half_open.len();
        for index in 0..self.half_open.entries.len() as u32 {
            self.forget_half_open(index);
        }
        before
    }

    /// Forgets the next record of TIME_WAIT, and returns its tuple with the end of its time: [`Self::next_gone`] does not tell
    /// it.
    pub fn leave_time_wait(&mut self) -> Option<(Tuple, Instant)> {
        while let Some((_, index, uses)) = self.time_wait_order.pop_front() {
            if self.time_wait.uses(index) != Some(uses) {
                continue;
            }
            let until = self.time_wait.get(index).map(|(_, record)| record.until);
            if let (Some(tuple), Some(until)) = (self.replace_time_wait(index), until) {
                return Some((tuple, until));
            }
        }
        None
    }

    /// Whether [`Self::next_gone`] may have something to tell.
    #[must_use]
    pub fn has_gone(&self) -> bool {
        self.gone.as_ref().is_some_and(|gone| !gone.is_empty())
    }

    /// Whether something waits to be sent, as there was no room for it.
    #[must_use]
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// The number of a half-open connection, if there is one between these ends.
    #[must_use]
    pub fn half_open_number(&self, tuple: &Tuple) -> Option<u32> {
        match self.entry(tuple) {
            Some(Entry::HalfOpen(index)) => Some(index),
            _ => None,
        }
    }

    /// The connection as a value, with which another implementation can go on. `None`: there is no such connection, its
    /// handshake is under way, or it has ended.
    #[must_use]
    pub fn snapshot(&self, now: Instant, id: ConnectionId) -> Option<Snapshot<'_>> {
        let slot = self.slots.get(id.index as usize).filter(|slot| slot.generation == id.generation)?;
        slot.connection.as_deref()?.snapshot(now)
    }

    /// Forgets a connection that another implementation has now: its peer is told nothing, and its name is not valid any
    /// more. [`Self::next_gone`] tells its tuple after the next [`Self::output`].
    pub fn forget(&mut self, id: ConnectionId) {
        if let Some((connection, shared)) = self.both(id) {
            connection.forget(shared);
            self.touch(id.index);
        }
    }

    /// Takes the next connection that has events.
    pub fn next_event(&mut self) -> Option<(ConnectionId, Events)> {
        while let Some(index) = self.ready.pop_front() {
            let Some(slot) = self.slots.get_mut(index as usize) else { continue };
            let generation = slot.generation;
            let Some(connection) = slot.connection.as_deref_mut() else { continue };
            let events = connection.take_events();
            if events.0 != 0 {
                return Some((ConnectionId { index, generation }, events));
            }
        }
        None
    }

    /// The connection may have something to send, or to tell.
    fn touch(&mut self, index: u32) {
        let Some(connection) =
            self.slots.get_mut(index as usize).and_then(|slot| slot.connection.as_deref_mut())
        else {
            return;
        };
        if !connection.list(true) {
            self.pending.push_back(index);
        }
    }

    /// Takes a segment whose checksum was verified, and sends what follows from it.
    pub fn segment(
        &mut self,
        now: Instant,
        tuple: &Tuple,
        segment: &Segment<'_>,
        host: &mut impl Host,
        sink: &mut impl Sink,
    ) -> Verdict {
        self.shared.counters.segments_in += 1;
        if self.is_of_last(tuple) {
            return self.in_connection(now, self.last, segment, host, sink);
        }
        let entry = self.entry(tuple);
        if let Some(Entry::Connection(index)) = entry {
            self.last = index;
            return self.in_connection(now, index, segment, host, sink);
        }
        match entry {
            Some(Entry::HalfOpen(index)) => self.in_handshake(now, index, segment, host, sink),
            Some(Entry::TimeWait(index)) => self.in_time_wait(now, index, tuple, segment, sink),
            _ => self.without_connection(now, tuple, segment, sink),
        }
    }

    /// What a tuple stands for. No type of the caller's has a part in it, so it is compiled here, in one piece.
    fn entry(&self, tuple: &Tuple) -> Option<Entry> {
        self.table.get(tuple, |entry| self.owner(entry))
    }

    /// Whether the tuple is that of the connection that has had the last segment, and the table has it.
    #[inline(always)]
    fn is_of_last(&self, tuple: &Tuple) -> bool {
        let last = self.slots.get(self.last as usize).and_then(|slot| slot.connection.as_deref());
        last.is_some_and(|last| last.tuple == *tuple && last.opened_by != OpenedBy::Detached)
    }

    /// The tuple of what is in the table.
    #[inline]
    fn owner(&self, entry: Entry) -> Option<&Tuple> {
        match entry {
            Entry::Connection(index) => {
                self.slots.get(index as usize)?.connection.as_deref().map(|connection| &connection.tuple)
            }
            Entry::HalfOpen(index) => self.half_open.tuple(index),
            Entry::TimeWait(index) => self.time_wait.tuple(index),
        }
    }

    #[inline(always)]
    fn in_connection(
        &mut self,
        now: Instant,
        index: u32,
        segment: &Segment<'_>,
        host: &mut impl Host,
        sink: &mut impl Sink,
    ) -> Verdict {
        let slot = &mut self.slots[index as usize];
        let id = ConnectionId { index, generation: slot.generation };
        let Some(connection) = slot.connection.as_deref_mut() else { return Verdict::LeftToKernel };
        #[cfg(test)]
        connection.go_straight(self.straight);
        if connection.take_in_order(now, segment) {
            let fresh = Fresh { start: 0, len: segment.payload.len(), fin: false };
            deliver(now, id, connection, &mut self.shared, segment, fresh, host);
            let whole = connection.output(now, &mut self.shared, sink);
            self.note(now, index, whole);
            return Verdict::Taken(id);
        }
        self.in_general(now, id, segment, host, sink)
    }

    /// A segment that [`Connection::take_in_order`] leaves.
    #[inline(never)]
    fn in_general(
        &mut self,
        now: Instant,
        id: ConnectionId,
        segment: &Segment<'_>,
        host: &mut impl Host,
        sink: &mut impl Sink,
    ) -> Verdict {
        let Some(connection) = self.slots[id.index as usize].connection.as_deref_mut() else {
            return Verdict::LeftToKernel;
        };
        let tuple = connection.tuple;
        let (fresh, reply) = connection.segment(now, segment, &mut self.shared);
        deliver(now, id, connection, &mut self.shared, segment, fresh, host);
        connection.tidy(now, &self.shared);
        if reply == Reply::Reset && record::reset(&tuple, segment, sink) {
            self.shared.counters.resets_out += 1;
        }
        self.work(now, id.index, sink);
        Verdict::Taken(id)
    }

    /// Sends what a connection has to send, notes its events and deadline, and forgets it if it is over.
    #[inline(never)]
    fn work(&mut self, now: Instant, index: u32, sink: &mut impl Sink) {
        let slot = self.slots.get_mut(index as usize);
        if let Some(connection) = slot.and_then(|slot| slot.connection.as_deref_mut()) {
            let whole = connection.output(now, &mut self.shared, sink);
            self.note(now, index, whole);
        }
    }

    /// A connection has sent what it has to send; not all of it unless `whole`.
    #[inline(always)]
    fn note(&mut self, now: Instant, index: u32, whole: bool) {
        let slot = self.slots.get_mut(index as usize);
        let Some(connection) = slot.and_then(|slot| slot.connection.as_deref_mut()) else { return };
        if !whole && !connection.list(true) {
            self.pending.push_back(index);
        }
        if connection.announces() {
            self.ready.push_back(index);
        }
        // The wheel may fire too early, and is then set again: most deadlines only move away.
        let deadline = connection.deadline();
        if deadline != Instant::NEVER
            && deadline.as_nanos().saturating_add(TICK) <= self.wheel.deadline(index).as_nanos()
        {
            self.wheel.set(index, deadline);
        }
        if connection.begins_to_starve() {
            self.starving.push_back(index);
        }
        if connection.state == State::Closed {
            self.after_end(now, index);
        }
        if !self.starving.is_empty() {
            self.feed();
        }
    }

    /// Tells a connection that there is memory again.
    #[cold]
    fn feed(&mut self) {
        while self.shared.pool.has_room()
            && let Some(index) = self.starving.pop_front()
        {
            let slot = self.slots.get_mut(index as usize);
            let Some(connection) = slot.and_then(|slot| slot.connection.as_deref_mut()) else { continue };
            connection.is_fed();
            if connection.announces() {
                self.ready.push_back(index);
                return;
            }
        }
    }

    /// A connection that has ended makes room in the table; its program may still read.
    #[cold]
    fn after_end(&mut self, now: Instant, index: u32) {
        let Some(connection) = self.slots[index as usize].connection.as_deref_mut() else { return };
        if connection.opened_by != OpenedBy::Detached && !connection.has_reset_to_send() {
            let waits = connection.goes_to_time_wait();
            let tuple = connection.tuple;
            let record = waits.then(|| connection.time_wait(now, self.shared.config.time_wait_time));
            connection.opened_by = OpenedBy::Detached;
            self.table.remove(&tuple, Entry::Connection(index));
            if !record.is_some_and(|record| self.begin_time_wait(tuple, record)) {
                self.is_gone(&tuple);
            }
        } else if connection.opened_by == OpenedBy::Detached
            && self.table.remove(&connection.tuple, Entry::Connection(index))
        {
            let tuple = connection.tuple;
            self.is_gone(&tuple);
        }
        let Some(connection) = self.slots[index as usize].connection.as_deref_mut() else { return };
        if connection.is_over() {
            connection.drop_buffers(&mut self.shared);
            let slot = &mut self.slots[index as usize];
            slot.connection = None;
            slot.generation = slot.generation.wrapping_add(1);
            self.wheel.set(index, Instant::NEVER);
            self.free.push(index);
        }
    }

    /// Returns whether there is a record of TIME_WAIT now.
    fn begin_time_wait(&mut self, tuple: Tuple, record: TimeWait) -> bool {
        let config = &self.shared.config;
        if config.time_wait == 0 || config.time_wait_time.is_zero() {
            return false;
        }
        let most = config.time_wait as usize;
        while self.time_wait.len() >= most || self.time_wait_order.len() >= 2 * most {
            let Some((_, oldest, uses)) = self.time_wait_order.pop_front() else { break };
            if self.time_wait.uses(oldest) == Some(uses) {
                self.end_time_wait(oldest);
            }
        }
        let until = record.until;
        let index = self.time_wait.add(tuple, record);
        let uses = self.time_wait.uses(index).unwrap_or(0);
        self.table.add(&tuple, Entry::TimeWait(index));
        self.time_wait_order.push_back((until, index, uses));
        true
    }

    fn end_time_wait(&mut self, index: u32) {
        if let Some(tuple) = self.replace_time_wait(index) {
            self.is_gone(&tuple);
        }
    }

    /// Ends a record of TIME_WAIT whose tuple goes on; returns the tuple.
    fn replace_time_wait(&mut self, index: u32) -> Option<Tuple> {
        let (tuple, _) = self.time_wait.remove(index)?;
        self.table.remove(&tuple, Entry::TimeWait(index)).then_some(tuple)
    }

    fn in_time_wait(
        &mut self,
        now: Instant,
        index: u32,
        tuple: &Tuple,
        segment: &Segment<'_>,
        sink: &mut impl Sink,
    ) -> Verdict {
        let each = self.shared.config.challenge_interval;
        let again = now + self.shared.config.time_wait_time;
        let Some((_, record)) = self.time_wait.get(index) else { return Verdict::Answered };
        match record.segment(segment, self.shared.config.challenge_syns) {
            InTimeWait::Stay => {}
            InTimeWait::Acknowledge { restart } => {
                if restart {
                    (record.until, record.heard_ms) = (again, record::milliseconds(now));
                }
                if restart || !record.is_quiet(now, each) {
                    record.acked_at = now;
                    let sent = record.acknowledge(now, tuple, sink);
                    self.shared.counters.segments_out += u64::from(sent);
                }
            }
            InTimeWait::Reset => {
                let sent = record.reset(tuple, sink);
                self.end_time_wait(index);
                self.shared.counters.resets_out += u64::from(sent);
                self.shared.counters.segments_out += u64::from(sent);
            }
            InTimeWait::Replace => {
                let above = record.snd_nxt + 65_537;
                // The peer has begun anew: nothing of its former connection is on its way any more, whoever answers.
                self.replace_time_wait(index);
                let Some(listener) = self.listener_of(tuple) else { return Verdict::Declined };
                let full = self.is_backlog_full(listener);
                if full || segment.options.is_authenticated {
                    self.shared.counters.overflows += u64::from(full);
                    return Verdict::Declined;
                }
                self.shared.counters.time_wait_reused += 1;
                self.half_open(now, listener, tuple, segment, Some(above), sink);
            }
        }
        Verdict::Answered
    }

    /// The listener of a local end: that of its address before that of any.
    fn listener_of(&self, tuple: &Tuple) -> Option<u32> {
        let local = tuple.local();
        let fits = |listener: &Listener, exact: bool| {
            let ip = listener.local.ip();
            listener.local.port() == local.port()
                && if exact { ip == local.ip() } else { ip.is_unspecified() && takes(ip, local.ip()) }
        };
        [true, false].into_iter().find_map(|exact| {
            let index = self
                .listeners
                .iter()
                .position(|listener| listener.as_ref().is_some_and(|listener| fits(listener, exact)))?;
            Some(index as u32)
        })
    }

    fn is_backlog_full(&self, index: u32) -> bool {
        let Some(Some(listener)) = self.listeners.get(index as usize) else { return true };
        listener.half_open as usize + listener.ready.len() > listener.backlog as usize
            || self.half_open.len() >= self.shared.config.half_open as usize
            || self.is_full()
    }

    #[cold]
    fn without_connection(
        &mut self,
        now: Instant,
        tuple: &Tuple,
        segment: &Segment<'_>,
        sink: &mut impl Sink,
    ) -> Verdict {
        let listener = self.listener_of(tuple);
        // RFC 9293 section 3.10.7.2: in LISTEN only a SYN without ACK and RST opens.
        if let Some(listener) = listener
            && segment.flags.0 & (Flags::SYN | Flags::ACK | Flags::RST) == Flags::SYN
        {
            if segment.has(Flags::FIN) {
                self.shared.counters.bad_flags += 1;
                return Verdict::Answered;
            }
            let full = self.is_backlog_full(listener);
            let keeps = segment.options.is_authenticated;
            if full || keeps {
                self.shared.counters.overflows += u64::from(full);
                return Verdict::LeftToKernel;
            }
            self.half_open(now, listener, tuple, segment, None, sink);
            return Verdict::Answered;
        }
        if self.unknown == Unknown::LeaveToKernel {
            return Verdict::LeftToKernel;
        }
        let silent =
            segment.has(Flags::RST) || listener.is_some() && segment.flags.0 & (Flags::SYN | Flags::ACK) == 0;
        if !silent && record::reset(tuple, segment, sink) {
            self.shared.counters.resets_out += 1;
            self.shared.counters.segments_out += 1;
        }
        Verdict::Answered
    }

    /// Answers a SYN.
    fn half_open(
        &mut self,
        now: Instant,
        listener: u32,
        tuple: &Tuple,
        segment: &Segment<'_>,
        above: Option<Seq>,
        sink: &mut impl Sink,
    ) {
        let first = self.first_number(now, tuple);
        let iss = above.map_or(first, |above| first.max(above));
        let handshake = Handshake::offered(iss, segment, tuple, &self.shared.config);
        let record =
            HalfOpen::new(&handshake, self.clock_offset(tuple), listener, self.shared.config.scale(), now);
        let index = self.half_open.add(*tuple, record);
        self.table.add(tuple, Entry::HalfOpen(index));
        if let Some(Some(listener)) = self.listeners.get_mut(listener as usize) {
            listener.half_open += 1;
        }
        self.half_open_wheel.set(index, now + Duration::from_secs(1));
        self.answer_syn(now, index, sink);
    }

    fn answer_syn(&mut self, now: Instant, index: u32, sink: &mut impl Sink) {
        let Some((tuple, record)) = self.half_open.get(index) else { return };
        let options = self.listeners.get(record.listener as usize).and_then(Option::as_ref);
        let options = options.map(|listener| Arc::clone(&listener.options)).unwrap_or_default();
        let config = &self.shared.config;
        if record.answer(now, tuple, &options, config, sink) {
            self.shared.counters.segments_out += 1;
        }
    }

    fn forget_half_open(&mut self, index: u32) {
        if let Some(tuple) = self.replace_half_open(index) {
            self.is_gone(&tuple);
        }
    }

    /// Ends a half-open connection whose tuple goes on; returns the tuple.
    fn replace_half_open(&mut self, index: u32) -> Option<Tuple> {
        let (tuple, record) = self.half_open.remove(index)?;
        self.half_open_wheel.set(index, Instant::NEVER);
        self.table.remove(&tuple, Entry::HalfOpen(index));
        if let Some(Some(listener)) = self.listeners.get_mut(record.listener as usize) {
            listener.half_open = listener.half_open.saturating_sub(1);
        }
        Some(tuple)
    }

    /// SYN-RECEIVED after LISTEN (RFC 9293 section 3.10.7.4).
    #[cold]
    fn in_handshake(
        &mut self,
        now: Instant,
        index: u32,
        segment: &Segment<'_>,
        host: &mut impl Host,
        sink: &mut impl Sink,
    ) -> Verdict {
        let Some((tuple, record)) = self.half_open.get(index).map(|entry| *entry) else {
            return Verdict::Answered;
        };
        let next = record.irs + 1;
        let flags = segment.flags.0 & (Flags::SYN | Flags::ACK | Flags::RST);
        if segment.seq == record.irs && flags == Flags::SYN {
            // Its answer was lost.
            self.repeat_answer_now(now, index, sink);
            return Verdict::Answered;
        }
        let options = self.listeners.get(record.listener as usize).and_then(Option::as_ref);
        let options = options.map(|listener| Arc::clone(&listener.options)).unwrap_or_default();
        let window = options.receive_buffer.unwrap_or(self.shared.config.receive_initial).min(65_535);
        let old = record.is_old(segment) && !segment.has(Flags::RST);
        let acceptable = !segment.end().before(next) && segment.seq.before(next + window.max(1));
        if old || !acceptable {
            self.shared.counters.out_of_window += 1;
            if !segment.has(Flags::RST) {
                self.answer_refused(now, index, window, sink);
            }
            return Verdict::Answered;
        }
        if segment.has(Flags::RST) {
            // RFC 5961 section 3.2.
            if segment.seq == next || !self.shared.config.challenge_resets {
                self.shared.counters.failed_opens += 1;
                self.forget_half_open(index);
            } else {
                self.answer_refused(now, index, window, sink);
            }
            return Verdict::Answered;
        }
        if segment.has(Flags::SYN) {
            // RFC 9293 section 3.10.7.4, fourth check, with RFC 5961 section 4.2.
            self.answer_refused(now, index, window, sink);
            return Verdict::Answered;
        }
        if !segment.has(Flags::ACK) {
            self.shared.counters.bad_flags += 1;
            return Verdict::Answered;
        }
        if segment.ack != record.iss + 1 {
            self.shared.counters.ack_out_of_range += 1;
            if self.unknown == Unknown::LeaveToKernel {
                // The kernel may have answered an earlier SYN by a cookie. If it has not, it resets the peer.
                self.shared.counters.failed_opens += 1;
                self.replace_half_open(index);
                return Verdict::Declined;
            }
            if record::reset(&tuple, segment, sink) {
                self.shared.counters.resets_out += 1;
            }
            return Verdict::Answered;
        }
        self.complete(now, index, &tuple, &record, options, segment, host, sink)
    }

    /// Acknowledges a segment that a half-open connection refuses, not too often.
    fn answer_refused(&mut self, now: Instant, index: u32, window: u32, sink: &mut impl Sink) {
        let each = self.shared.config.challenge_interval;
        let Some((tuple, record)) = self.half_open.get(index) else { return };
        if record.may_answer(now, each) && record.acknowledge(now, tuple, window, &self.shared.config, sink) {
            self.shared.counters.segments_out += 1;
        }
    }

    /// The peer has repeated its SYN: it is answered as often as a time-out would.
    fn repeat_answer_now(&mut self, now: Instant, index: u32, sink: &mut impl Sink) {
        let limit = self.shared.config.syn_ack_retries;
        let Some((_, record)) = self.half_open.get(index) else { return };
        if record.retries < limit {
            record.retries += 1;
            self.shared.counters.retransmitted += 1;
            self.answer_syn(now, index, sink);
        }
    }

    #[expect(clippy::too_many_arguments, reason = "a step of in_handshake, cut off for its length")]
    fn complete(
        &mut self,
        now: Instant,
        index: u32,
        tuple: &Tuple,
        record: &HalfOpen,
        options: Arc<Options>,
        segment: &Segment<'_>,
        host: &mut impl Host,
        sink: &mut impl Sink,
    ) -> Verdict {
        if self.is_full() {
            self.shared.counters.overflows += 1;
            return Verdict::Answered;
        }
        self.replace_half_open(index);
        let handshake = record.handshake(&self.shared.config);
        let mut connection = Connection::accepted(
            *tuple,
            &handshake,
            record.ts_offset,
            options,
            record.listener,
            now,
            &mut self.shared,
        );
        if record.retries == 0 {
            connection.handshake_took(now, record.sent_at);
        } else {
            connection.handshake_was_repeated(now, segment);
        }
        self.shared.counters.passive_opens += 1;
        let id = self.add(*tuple, connection);
        if let Some(Some(listener)) = self.listeners.get_mut(record.listener as usize) {
            listener.ready.push_back(id);
        }
        self.in_connection(now, id.index, segment, host, sink)
    }

    /// Takes an ICMP error that quotes a segment of `tuple` with sequence number `seq`. It counts only if that is in
    /// flight (RFC 5927 section 4.1), and if it does not say less than every link of IPv6 carries. Returns whether it does.
    pub fn icmp(&mut self, now: Instant, tuple: &Tuple, seq: u32, error: IcmpError) -> bool {
        let Some(Entry::Connection(index)) = self.entry(tuple) else {
            self.shared.counters.icmp_refused += 1;
            return false;
        };
        let Some(connection) = self.slots[index as usize].connection.as_deref_mut() else { return false };
        // RFC 8201 section 4: a message with less than every link of IPv6 carries is discarded.
        let is_too_small =
            !tuple.is_ipv4() && matches!(error, IcmpError::TooBig(mtu) if mtu < tuple.mtu_min());
        if is_too_small || !connection.is_in_flight(seq) {
            self.shared.counters.icmp_refused += 1;
            return false;
        }
        self.shared.counters.icmp_in += 1;
        match error {
            IcmpError::TooBig(mtu) => connection.path_said(now, mtu, &self.shared),
            IcmpError::Hard => connection.unreachable(true, &mut self.shared),
            IcmpError::Soft => connection.unreachable(false, &mut self.shared),
        }
        self.touch(index);
        true
    }

    /// When [`Self::advance`] is to be called; there may be nothing to do then.
    #[must_use]
    pub fn next_deadline(&self) -> Instant {
        let time_wait = self.time_wait_order.front().map_or(Instant::NEVER, |(until, ..)| *until);
        let now = if self.pending.is_empty() { Instant::NEVER } else { Instant::ZERO };
        self.wheel.next().min(self.half_open_wheel.next()).min(time_wait).min(now)
    }

    /// Does what is due, and sends what is to be sent. `burst`: timers at most; the others follow at the next call.
    pub fn advance(&mut self, now: Instant, burst: u32, sink: &mut impl Sink) {
        for _ in 0..burst {
            let Some(index) = self.wheel.take_due(now) else { break };
            let slot = self.slots.get_mut(index as usize);
            let Some(connection) = slot.and_then(|slot| slot.connection.as_deref_mut()) else { continue };
            if connection.deadline() <= now {
                connection.due(now, &mut self.shared);
            }
            self.work(now, index, sink);
        }
        for _ in 0..burst {
            let Some(index) = self.half_open_wheel.take_due(now) else { break };
            self.repeat_answer(now, index, sink);
        }
        for _ in 0..burst {
            let first = self.time_wait_order.front().copied().filter(|(until, ..)| *until <= now);
            let Some((until, index, uses)) = first else { break };
            self.time_wait_order.pop_front();
            if self.time_wait.uses(index) != Some(uses) {
                continue;
            }
            match self.time_wait.get(index).map(|(_, record)| record.until) {
                Some(later) if later > until => self.time_wait_order.push_back((later, index, uses)),
                _ => self.end_time_wait(index),
            }
        }
        self.output(now, sink);
    }

    fn repeat_answer(&mut self, now: Instant, index: u32, sink: &mut impl Sink) {
        let limit = self.shared.config.syn_ack_retries;
        let Some((_, record)) = self.half_open.get(index) else { return };
        if record.retries >= limit {
            self.shared.counters.failed_opens += 1;
            self.forget_half_open(index);
            return;
        }
        record.retries += 1;
        let wait = Duration::from_secs(1 << record.retries.min(6));
        self.half_open_wheel.set(index, now + wait);
        self.shared.counters.retransmitted += 1;
        self.answer_syn(now, index, sink);
    }

    /// Sends what calls have left to be sent.
    pub fn output(&mut self, now: Instant, sink: &mut impl Sink) {
        for _ in 0..self.pending.len() {
            let Some(index) = self.pending.pop_front() else { break };
            if let Some(connection) =
                self.slots.get_mut(index as usize).and_then(|slot| slot.connection.as_deref_mut())
            {
                connection.list(false);
                self.work(now, index, sink);
            }
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Hands fresh payload to the host, and keeps what it leaves.
#[inline(always)]
fn deliver(
    now: Instant,
    id: ConnectionId,
    connection: &mut Connection,
    shared: &mut Shared,
    segment: &Segment<'_>,
    fresh: Fresh,
    host: &mut impl Host,
) {
    if fresh.len == 0 && !fresh.fin {
        return;
    }
    let payload = &segment.payload[fresh.start..fresh.start + fresh.len];
    // What the host may leave must find room: otherwise it has not arrived.
    if !payload.is_empty() && !shared.pool.has(payload.len()) {
        connection.take_back(fresh.len as u32, shared);
        return;
    }
    let used = if payload.is_empty() {
        0
    } else {
        let mut stream = Stream::new(connection, shared, payload, now);
        host.received(now, id, &mut stream);
        stream.used()
    };
    connection.settle(now, &payload[used..], fresh.fin, shared);
}

/// Whether a listener at an unspecified address takes a local address: that of IPv6 takes both families.
fn takes(any: IpAddr, local: IpAddr) -> bool {
    any.is_ipv6() || local.is_ipv4()
}

#[cfg(test)]
mod clocked;
#[cfg(test)]
mod crafted;
#[cfg(test)]
mod rig;
#[cfg(test)]
mod tests;
