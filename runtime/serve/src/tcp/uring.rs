//! Connections that are served through io_uring: what the ring brings goes to its connection, and what connections want goes to
//! the ring, in one system call per turn.
//!
//! A receive stays armed until it has taken as much as its connection may hold, so that one that is not read takes no more
//! than without a ring. A registered buffer is given back in the turn in which its bytes came out of the ring: what cannot be
//! served is copied into the connection's own bounded memory.

use std::collections::VecDeque;
use std::os::fd::AsFd as _;

use rustix::io::Errno;
use twinpath_service::{Closed, Service};
use twinpath_time::Instant;
use twinpath_uring::{Completion, Key, Lent, Ring, RingConfig, RingError};

use super::connection::{After, Outbox, Turn, Wants};
use super::{Call, TcpServer};

/// 4 MiB of buffers per worker, touched as they are used.
const CONFIG: RingConfig =
    RingConfig { entries: 256, completions: 4096, buffers: 256, buffer_bytes: 16 << 10 };

/// What is taken of a ring in one turn.
const TAKE_BURST: usize = 256;

/// Submissions in a row whose sends show a need for more.
const ROUNDS_MAX: u32 = 16;

/// A worker's ring, and what stands between it and its connections.
pub struct Uring {
    ring: Ring,
    /// What came with a submission, for the next turn.
    arrived: VecDeque<Completion>,
    pub(super) outbox: Outbox,
    generation: u32,
    /// There is something to submit.
    asked: bool,
    /// The ring has something that nobody has looked at, and that is to be looked at.
    pending: bool,
    /// The favourite is let ask more before the ring is looked into.
    holds_back: bool,
    /// Whose bytes came last, and how many of the favourite's, in this look into the ring.
    came_of: Option<u32>,
    of_favourite: u64,
    /// Its descriptor tells of news.
    tells: bool,
}

impl Uring {
    /// Sets a ring up, for whichever thread the engine starts on.
    ///
    /// # Errors
    /// Why it cannot be.
    pub fn new() -> Result<Self, RingError> {
        Self::with_buffers(CONFIG.buffers)
    }

    /// With so many buffers, a power of two: [`Self::new`] knows how many are good.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_buffers(buffers: u16) -> Result<Self, RingError> {
        Ok(Self {
            ring: Ring::new(&RingConfig { buffers, ..CONFIG })?,
            arrived: VecDeque::new(),
            outbox: Outbox::default(),
            generation: 0,
            asked: false,
            pending: false,
            holds_back: false,
            came_of: None,
            of_favourite: 0,
            tells: false,
        })
    }

    pub(super) fn enable(&mut self) -> Result<(), RingError> {
        self.ring.enable()
    }

    pub(super) const fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Whether it has to be asked again before anybody sleeps.
    pub(super) const fn is_pending(&self) -> bool {
        self.pending
    }

    /// Before sleeping.
    pub(super) fn tell(&mut self) {
        self.ring.tell();
        self.tells = true;
    }

    /// Tells the next connection from those that had its number before.
    pub(super) const fn next_generation(&mut self) -> u32 {
        self.generation = self.generation.wrapping_add(1);
        self.generation
    }

    /// The next of what has come.
    fn take(&mut self) -> Option<Completion> {
        self.arrived.pop_front().or_else(|| self.ring.take())
    }
}

impl<C: Send> TcpServer<C> {
    /// Takes what the ring has, and answers it; says whether there was anything.
    pub(super) fn reap<S: Service<Connection = C>>(&mut self, call: &mut Call<'_, '_, S>) -> bool {
        let is_alone = self.is_alone();
        let Some(uring) = &mut self.uring else { return false };
        if std::mem::take(&mut uring.tells) {
            uring.ring.tell_no_more();
        }
        (uring.came_of, uring.of_favourite) = (None, 0);
        if !is_alone && self.favourite.number().is_some() {
            self.favourite.forget();
        }
        uring.holds_back = uring.arrived.is_empty()
            && self.favourite.number().is_some()
            && !self.favourite.may_ask(call.now);
        if uring.holds_back {
            // As with one that is asked without the epoll: nothing came, as far as is known.
            return false;
        }
        if uring.arrived.is_empty() {
            if !uring.ring.has_news() {
                self.reaped(call.now);
                return false;
            }
            if !uring.ring.has_completions() {
                uring.ring.enter();
            }
        }
        for _ in 0..TAKE_BURST {
            let Some(completion) = self.uring.as_mut().and_then(Uring::take) else { break };
            self.completed(completion, call);
            if self.uring.as_ref().is_some_and(|uring| uring.outbox.is_full()) {
                self.submit(call);
            }
        }
        self.reaped(call.now);
        true
    }

    /// Whether one connection has the ring for itself. Only then may it be held back: others would wait with it.
    const fn is_alone(&self) -> bool {
        self.table.open() == 1 && self.ending.is_none()
    }

    /// Keeps account of what the favourite gives, if there is one; and of who might become it.
    #[inline]
    fn reaped(&mut self, now: Instant) {
        let Some(&Uring { came_of, of_favourite, .. }) = self.uring.as_ref() else { return };
        if self.favourite.number().is_some() {
            self.favourite.asked(now, of_favourite);
            if self.favourite.is_over(now) {
                self.favourite.forget();
            }
        } else if let Some(number) = came_of
            && self.is_alone()
            && self.table.get(number).is_some_and(|connection| connection.is_plain())
        {
            // Once a look, as the epoll names one: not once for all that one sleep brought.
            self.favourite.named(number, now);
        }
    }

    fn completed<S: Service<Connection = C>>(&mut self, completion: Completion, call: &mut Call<'_, '_, S>) {
        match completion {
            Completion::Received { key, buffer, armed } => self.came(key, buffer, armed, call),
            Completion::ReceiveEnded { key, why } => self.came_to_end(key, why, call),
            Completion::Writable { key } => {
                if self.is_current(key) {
                    if let Some(connection) = self.table.get(key.number) {
                        connection.writable();
                    }
                    self.work(key.number, call);
                }
            }
            Completion::Sent { key, bytes, taken } => self.sent(key, bytes, taken, call),
        }
    }

    /// Whether the connection is there that it is of. Those of earlier ones come late, and mean nothing.
    fn is_current(&mut self, key: Key) -> bool {
        let generation = self.table.get(key.number).and_then(|connection| connection.generation());
        generation.is_some_and(|generation| key.is_of(generation))
    }

    fn came<S: Service<Connection = C>>(
        &mut self,
        key: Key,
        buffer: Lent,
        armed: bool,
        call: &mut Call<'_, '_, S>,
    ) {
        let is_current = self.is_current(key);
        let Self { table, scratch, share, uring, favourite, .. } = self;
        let Some(Uring { ring, outbox, came_of, of_favourite, .. }) = uring else { return };
        let Some(connection) = table.get(key.number).filter(|_| is_current) else {
            return ring.give(buffer);
        };
        if !armed {
            connection.disarmed();
        }
        *came_of = Some(key.number);
        if favourite.number() == Some(key.number) {
            *of_favourite += buffer.len() as u64;
        }
        let before = connection.held();
        let mut turn = Turn {
            now: call.now,
            service: &mut *call.service,
            counters: call.counters,
            limits: share.limits(),
            scratch,
            desk: call.desk.as_deref_mut(),
            number: key.number,
            outbox: Some(outbox),
        };
        let after = connection.came(ring.bytes(&buffer), &mut turn);
        ring.give(buffer);
        if after == After::Keep && before == 0 && connection.is_plain() && armed {
            return;
        }
        self.note(key.number, before, after, call);
    }

    fn came_to_end<S: Service<Connection = C>>(
        &mut self,
        key: Key,
        why: Result<(), Errno>,
        call: &mut Call<'_, '_, S>,
    ) {
        if !self.is_current(key) {
            return;
        }
        let Self { table, scratch, share, uring, .. } = self;
        let Some(connection) = table.get(key.number) else { return };
        connection.disarmed();
        if why == Err(Errno::NOBUFS) {
            // Buffers come back in this very turn, and it asks again.
            call.counters.buffers_empty.add(1);
            return self.follow(key.number);
        }
        let before = connection.held();
        let mut turn = Turn {
            now: call.now,
            service: &mut *call.service,
            counters: call.counters,
            limits: share.limits(),
            scratch,
            desk: call.desk.as_deref_mut(),
            number: key.number,
            outbox: uring.as_mut().map(|uring| &mut uring.outbox),
        };
        let after = connection.came_to_end(why, &mut turn);
        self.note(key.number, before, after, call);
    }

    /// A submitted send is over.
    fn sent<S: Service<Connection = C>>(
        &mut self,
        key: Key,
        bytes: Vec<u8>,
        taken: Result<usize, Errno>,
        call: &mut Call<'_, '_, S>,
    ) {
        if self.is_current(key)
            && let Some(connection) = self.table.get(key.number)
        {
            let before = connection.held();
            match connection.submitted(&bytes, taken, call.counters) {
                Ok(false) if before == 0 && connection.is_at_rest() => {}
                // What came meanwhile has waited for this, be it an end.
                Ok(false) => {
                    self.work(key.number, call);
                    self.follow(key.number);
                }
                Ok(true) => self.note(key.number, before, After::Keep, call),
                Err(_) => self.close(key.number, before, Closed::Broken, call),
            }
        }
        if let Some(uring) = &mut self.uring {
            uring.outbox.put_back(bytes);
        }
    }

    /// Asks the ring for what a connection wants.
    pub(super) fn follow(&mut self, number: u32) {
        let (Some(uring), Some(connection)) = (&mut self.uring, self.table.get(number)) else { return };
        let Some(generation) = connection.generation() else { return };
        let Wants { receive, watch } = connection.wants(self.share.limits());
        let key = Key { number, generation };
        if let Some(most) = receive {
            uring.ring.receive(connection.fd.as_fd(), key, most);
        }
        if watch {
            uring.ring.watch_writable(connection.fd.as_fd(), key);
        }
        uring.asked |= receive.is_some() || watch;
    }

    /// Submits what is asked for. Sends are over with that; what else came waits for the next turn.
    pub(super) fn submit<S: Service<Connection = C>>(&mut self, call: &mut Call<'_, '_, S>) {
        for _ in 0..ROUNDS_MAX {
            let Some(uring) = &mut self.uring else { return };
            if !uring.asked && uring.outbox.queued.is_empty() && uring.ring.sending() == 0 {
                break;
            }
            if !uring.asked && uring.outbox.queued.len() == 1 && !uring.ring.has_work() {
                self.send_alone(call);
                continue;
            }
            let mut queued = std::mem::take(&mut uring.outbox.queued);
            for number in queued.drain(..) {
                let Some(connection) = self.table.get(number) else { continue };
                if let (Some(generation), Some(bytes)) = (connection.generation(), connection.submit()) {
                    uring.ring.send(connection.fd.as_fd(), Key { number, generation }, bytes);
                }
            }
            uring.outbox.queued = queued;
            uring.outbox.submitted();
            uring.asked = false;
            uring.ring.enter();
            while let Some(completion) = self.uring.as_mut().and_then(|uring| uring.ring.take()) {
                match completion {
                    Completion::Sent { key, bytes, taken } => self.sent(key, bytes, taken, call),
                    other => self.uring.as_mut().map_or((), |uring| uring.arrived.push_back(other)),
                }
            }
        }
        if let Some(uring) = &mut self.uring {
            uring.asked |= uring.ring.has_unsubmitted();
        }
    }

    /// One send, and nothing else to enter for: by itself it costs less than through the ring.
    fn send_alone<S: Service<Connection = C>>(&mut self, call: &mut Call<'_, '_, S>) {
        let Some(Uring { outbox, .. }) = &mut self.uring else { return };
        let Some(number) = outbox.queued.pop() else { return };
        outbox.submitted();
        let Some(connection) = self.table.get(number) else { return };
        let (Some(generation), Some(bytes)) = (connection.generation(), connection.submit()) else { return };
        let taken = connection.send_directly(&bytes);
        self.sent(Key { number, generation }, bytes, taken, call);
    }

    /// The end of a turn: everything asked for is submitted, and it is known whether there is more.
    pub(super) fn submit_all<S: Service<Connection = C>>(&mut self, call: &mut Call<'_, '_, S>) {
        self.submit(call);
        if let Some(uring) = &mut self.uring {
            // What is held back is no hurry: who sleeps over it is told of it.
            let news = if uring.holds_back { uring.ring.has_unsubmitted() } else { uring.ring.has_news() };
            uring.pending = !uring.arrived.is_empty() || !uring.outbox.queued.is_empty() || news;
        }
    }

    /// While it drains: what has come by now is answered.
    pub(super) fn reap_all<S: Service<Connection = C>>(&mut self, call: &mut Call<'_, '_, S>) {
        for _ in 0..ROUNDS_MAX {
            self.submit(call);
            if !self.reap(call) {
                break;
            }
        }
    }

    /// Has the ring let go of a connection's socket, and close it.
    pub(super) fn let_go(&mut self, connection: super::connection::Connection<C>, number: u32) -> C {
        let (received, watched) = connection.armed();
        if let (Some(uring), Some(generation)) = (&mut self.uring, connection.generation()) {
            uring.ring.close(connection.fd, Key { number, generation }, received, watched);
            uring.asked = true;
        }
        connection.state
    }
}
