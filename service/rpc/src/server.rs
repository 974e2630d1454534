//! The RPC server: takes a message and appends the reply.
//!
//! Nothing is allocated per call: headers and arguments are decoded in place, and replies are written into the buffer
//! that is sent. A call is checked in this order: RPC version, header, program, program's version, credential,
//! procedure, arguments. NULL is answered here, for every program, without a check of the credential (RFC 5531,
//! 12.1).

use std::net::SocketAddr;
use std::sync::Arc;

use nfs3_types::rpc::{RPC_VERSION_2, accept_stat, msg_type, reply_stat};
use twinpath_service::{HOLD_MAX, Name, Reason, ServiceCounters, Shape};
use twinpath_time::Instant;

use crate::auth::{BODY_MAX, Credential};
use crate::call::{Header, HeaderError, NULL, NullCall};
use crate::duplicates::{DuplicateLimits, Duplicates, Known, Ticket};
use crate::program::{Arrival, Handled, Keepable, Program, Request, Results, Transport, Work};
use crate::record::{MARK_LEN, mark};
use crate::refusal::{self, Refusal};

/// Length of the header of a successful reply: xid, type, status, verifier (two words), status; bytes.
const SUCCESS_LEN: usize = 24;

/// Shapes of calls whose replies are kept: the reply has the call's xid (RFC 5531, 9).
const BY_XID: Shape = Shape::EXACT.copying(0, 4, 0);
/// The same, for AUTH_SYS: the credential's body begins with an arbitrary number (RFC 5531, appendix A).
const STAMPED: Shape = BY_XID.ignoring(32, 4);
/// All shapes.
pub(crate) const SHAPES: [Shape; 2] = [BY_XID, STAMPED];

/// Replies to NULL depend on no state, so nobody withdraws them.
const NO_STATE: Name = Name::of(b"NULL");

/// A program of the server's table.
struct Entry {
    number: u32,
    low: u32,
    high: u32,
    /// Whether it has procedures that must run once.
    once: bool,
    /// Whether it has procedures that may be answered later.
    defers: bool,
    program: Box<dyn Program>,
}

/// Why programs cannot be served together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// Two programs have the same number.
    #[error("program {0} is there twice: give one value all its versions")]
    Twice(u32),
    /// A program has no version.
    #[error("program {0} has no version")]
    NoVersion(u32),
}

/// The RPC server of one worker, for a table of programs.
pub struct Server {
    entries: Vec<Entry>,
    /// Exists if a program needs it; shared by all workers.
    duplicates: Option<Arc<Duplicates>>,
    /// The reply to a datagram, with room for a record mark in front.
    scratch: Vec<u8>,
    reply_max: usize,
    counters: Arc<ServiceCounters>,
    /// The lane that had no room for the last call that was [`Outcome::Busy`]: beside the outcome, which so fits into
    /// registers.
    busy_lane: u32,
}

impl Server {
    /// A server of `programs`. `seed` should be a number that no caller can guess.
    ///
    /// # Errors
    /// The programs cannot be served together.
    pub fn new(
        programs: Vec<Box<dyn Program>>,
        limits: DuplicateLimits,
        seed: u64,
    ) -> Result<Self, TableError> {
        Self::sharing(programs, &Arc::new(Duplicates::new(limits, seed)))
    }

    /// A server of `programs` that knows the calls of the servers with the same table: one that follows another, of the
    /// same ports, does not run those again that the former one has run. The programs have to be the same as well.
    ///
    /// # Errors
    /// The programs cannot be served together.
    pub fn sharing(
        programs: Vec<Box<dyn Program>>,
        duplicates: &Arc<Duplicates>,
    ) -> Result<Self, TableError> {
        let mut entries: Vec<Entry> = Vec::with_capacity(programs.len());
        for program in programs {
            let (number, versions) = (program.number(), program.versions());
            if versions.is_empty() {
                return Err(TableError::NoVersion(number));
            }
            if entries.iter().any(|entry| entry.number == number) {
                return Err(TableError::Twice(number));
            }
            let (low, high) = versions.into_inner();
            let (once, defers) = (!program.run_once().is_empty(), !program.answered_later().is_empty());
            entries.push(Entry { number, low, high, once, defers, program });
        }
        let reply = |entry: &Entry| SUCCESS_LEN + entry.program.results_max();
        let reply_max = entries.iter().map(reply).max().unwrap_or_default().max(refusal::REPLY_MAX);
        let kept = |entry: &Entry| SUCCESS_LEN + entry.program.run_once_max();
        let kept_max = entries.iter().filter(|entry| entry.once).map(kept).max();
        let duplicates = kept_max.map(|longest| {
            duplicates.make_room(longest.max(refusal::REPLY_MAX));
            Arc::clone(duplicates)
        });
        let counters = counters_of(&mut entries);
        Ok(Self {
            entries,
            duplicates,
            scratch: Vec::with_capacity(MARK_LEN + reply_max),
            reply_max,
            counters,
            busy_lane: 0,
        })
    }

    /// The same programs for one more worker, with its own counters. The guarantee for calls that must run
    /// once covers all workers.
    #[must_use]
    pub fn for_worker(&self) -> Self {
        let entries =
            self.entries.iter().map(|entry| Entry { program: entry.program.for_worker(), ..*entry });
        let mut entries: Vec<_> = entries.collect();
        let counters = counters_of(&mut entries);
        Self {
            entries,
            duplicates: self.duplicates.clone(),
            scratch: Vec::with_capacity(MARK_LEN + self.reply_max),
            reply_max: self.reply_max,
            counters,
            busy_lane: 0,
        }
    }

    /// The server's counters.
    #[must_use]
    pub const fn counters(&self) -> &Arc<ServiceCounters> {
        &self.counters
    }

    /// Length of the longest reply in a record, bytes. A caller of [`Self::record`] must have that much room.
    #[must_use]
    pub const fn record_reply_max(&self) -> usize {
        MARK_LEN + self.reply_max
    }

    /// The lane that had no room for the last message that was [`Outcome::Busy`].
    #[must_use]
    pub const fn busy_lane(&self) -> u32 {
        self.busy_lane
    }

    /// How many lanes the work of its programs has.
    #[must_use]
    pub fn lanes(&self) -> u32 {
        self.entries.iter().map(|entry| entry.program.lanes()).max().unwrap_or(1)
    }

    /// Whether a program may answer later.
    #[must_use]
    pub fn defers(&self) -> bool {
        self.entries.iter().any(|entry| entry.defers)
    }

    /// Whether the reply to a datagram may be kept, and for which shape of calls.
    pub(crate) fn keepable(
        &self,
        now: Instant,
        peer: SocketAddr,
        message: &[u8],
    ) -> Option<(Keepable, &'static Shape)> {
        let Header { xid, program, version, procedure, credential, verifier, args } =
            Header::parse(message).ok()?;
        // Only calls in the usual form: with ignored bytes, each call would get a kept reply of its own.
        if verifier.flavour != 0 || !verifier.body.is_empty() {
            return None;
        }
        let entry = &self.entries[self.find(program, version).ok()?];
        let credential = Credential::read_exactly(credential)?;
        let shape = match credential {
            Credential::None => &BY_XID,
            Credential::Sys(_) => &STAMPED,
        };
        if procedure == NULL {
            let keepable = Keepable { name: NO_STATE, hold: HOLD_MAX };
            return args.is_empty().then_some((keepable, shape));
        }
        if entry.once && entry.program.run_once().contains(&(version, procedure)) {
            return None;
        }
        let arrival = Arrival { now, peer, transport: Transport::Datagram };
        let request = Request { arrival, xid, version, procedure, credential, args, may_defer: false };
        Some((entry.program.keep(&request)?, shape))
    }

    /// Serves a message that arrived as a datagram, while there is no room for work that may block. Returns
    /// the reply.
    ///
    /// # Errors
    /// The reason to drop it: it is not a call, it is in progress already, or it would need such work.
    #[inline]
    pub fn datagram(&mut self, now: Instant, peer: SocketAddr, message: &[u8]) -> Result<&[u8], Reason> {
        let mut out = std::mem::take(&mut self.scratch);
        out.clear();
        let arrival = Arrival { now, peer, transport: Transport::Datagram };
        let outcome = self.record(&arrival, false, message, &mut out);
        self.scratch = out;
        match outcome {
            // A datagram is not kept until there is room: its sender repeats it.
            Ok(Outcome::NoRoom | Outcome::Busy) => Err(Reason::HandlersBusy),
            Ok(_) => Ok(self.scratch.get(MARK_LEN..).unwrap_or_default()),
            Err(Reason::RpcHeader) => match self.in_kind(&arrival, false, message)? {
                Ok(reply) => Ok(reply),
                Err(_) => Err(Reason::HandlersBusy),
            },
            Err(reason) => Err(reason),
        }
    }

    /// Like [`Self::datagram`], while there is room for work that may block. `Err`: this work produces the
    /// reply later.
    ///
    /// # Errors
    /// Like [`Self::datagram`].
    pub fn datagram_or_later(
        &mut self,
        now: Instant,
        peer: SocketAddr,
        message: &[u8],
    ) -> Result<Result<&[u8], Box<Deferred>>, Reason> {
        let mut out = std::mem::take(&mut self.scratch);
        out.clear();
        let arrival = Arrival { now, peer, transport: Transport::Datagram };
        let outcome = self.record(&arrival, true, message, &mut out);
        self.scratch = out;
        match outcome {
            Ok(Outcome::Later(call)) => Ok(Err(call)),
            Ok(Outcome::NoRoom | Outcome::Busy) => Err(Reason::HandlersBusy),
            Ok(Outcome::Done) => Ok(Ok(self.scratch.get(MARK_LEN..).unwrap_or_default())),
            Err(Reason::RpcHeader) => self.in_kind(&arrival, true, message),
            Err(reason) => Err(reason),
        }
    }

    /// Handles a datagram that is not a plain call: a call after a record mark is answered with a record
    /// mark.
    #[cold]
    fn in_kind(
        &mut self,
        arrival: &Arrival,
        may_defer: bool,
        message: &[u8],
    ) -> Result<Result<&[u8], Box<Deferred>>, Reason> {
        let message = without_mark(message).ok_or(Reason::RpcHeader)?;
        let mut out = std::mem::take(&mut self.scratch);
        out.clear();
        let outcome = self.record(arrival, may_defer, message, &mut out);
        self.scratch = out;
        match outcome? {
            Outcome::Later(mut call) => {
                call.marked = true;
                Ok(Err(call))
            }
            Outcome::NoRoom | Outcome::Busy => Err(Reason::HandlersBusy),
            Outcome::Done => Ok(Ok(&self.scratch)),
        }
    }

    /// Serves a message. If there is a reply now, it is appended to `out` as a record. `may_defer` says
    /// whether there is room for work that may block.
    ///
    /// # Errors
    /// It is not a call; then the stream does not consist of calls, and must be closed. By datagram: it repeats a
    /// call that is in progress.
    #[inline]
    pub fn record(
        &mut self,
        arrival: &Arrival,
        may_defer: bool,
        message: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Outcome, Reason> {
        if let Some(null) = NullCall::parse(message)
            && self.find(null.program, null.version).is_ok()
        {
            self.succeed(null.xid, out);
            return Ok(Outcome::Done);
        }
        self.answer(arrival, may_defer, message, out)
    }

    /// Answers any call.
    fn answer(
        &mut self,
        arrival: &Arrival,
        may_defer: bool,
        message: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Outcome, Reason> {
        let header = match Header::parse(message) {
            Ok(header) => header,
            // With a record mark and the xid 0 it looks like a call of RPC version 0.
            Err(HeaderError::Refused { .. })
                if arrival.transport == Transport::Datagram && without_mark(message).is_some() =>
            {
                return Err(Reason::RpcHeader);
            }
            Err(HeaderError::Refused { xid, refusal }) => return Ok(self.refuse(refusal, xid, out)),
            Err(HeaderError::NotACall) => return Err(Reason::RpcHeader),
        };
        Ok(match self.find(header.program, header.version) {
            Ok(place) if header.procedure != NULL => {
                self.call(place, arrival, may_defer, header, message, out)?
            }
            // Bytes after a procedure's arguments are ignored, as by libtirpc and nfs-ganesha.
            Ok(_) => {
                self.succeed(header.xid, out);
                Outcome::Done
            }
            Err(refusal) => self.refuse(refusal, header.xid, out),
        })
    }

    /// Answers a call that has no results.
    #[inline]
    fn succeed(&self, xid: u32, out: &mut Vec<u8>) {
        begin(xid, out);
        self.counters.answered.add(1);
    }

    /// Finds the program of a call.
    #[inline(always)]
    fn find(&self, program: u32, version: u32) -> Result<usize, Refusal> {
        let place = self.entries.iter().position(|entry| entry.number == program);
        let place = place.ok_or(Refusal::ProgramUnavailable)?;
        let Entry { low, high, .. } = self.entries[place];
        if (low..=high).contains(&version) { Ok(place) } else { Err(Refusal::ProgramMismatch { low, high }) }
    }

    /// Passes a call to its program.
    fn call(
        &mut self,
        place: usize,
        arrival: &Arrival,
        may_defer: bool,
        header: Header<'_>,
        message: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Outcome, Reason> {
        let Header { xid, version, procedure, args, .. } = header;
        let credential = match Credential::read(header.credential) {
            Ok(credential) => credential,
            Err(status) => return Ok(self.refuse(Refusal::Auth(status), xid, out)),
        };
        let entry = &self.entries[place];
        let (mut ticket, mut blocks) = (None, false);
        if entry.once || entry.defers {
            let called = (version, procedure);
            blocks = entry.defers
                && entry.program.answered_later().contains(&called)
                && (may_defer || !entry.program.called_without_room().contains(&called));
            if let Some(duplicates) =
                self.duplicates.as_ref().filter(|_| entry.program.run_once().contains(&called))
            {
                // A repetition needs no room.
                ticket = match self.once(duplicates, arrival, &header, message, out) {
                    Ok(ticket) => Some(ticket),
                    Err(known) => return known,
                };
            }
        }
        if blocks && !may_defer {
            return Ok(Outcome::NoRoom);
        }
        let start = out.len();
        begin(xid, out);
        ticket.iter_mut().for_each(Ticket::start);
        let request = Request { arrival: *arrival, xid, version, procedure, credential, args, may_defer };
        match self.entries[place].program.call(&request, &mut Results(out)) {
            Ok(Handled::Now) => {
                end(start, out);
                debug_assert!(out.len() - start <= self.record_reply_max(), "results_max says otherwise");
                self.counters.answered.add(1);
            }
            Ok(Handled::Later { lane, work }) => {
                out.truncate(start);
                return Ok(self.defer(place, lane, (xid, args.len()), ticket, work));
            }
            Ok(Handled::Busy(lane)) => {
                out.truncate(start);
                // It may run when it is passed again.
                ticket.iter_mut().for_each(Ticket::defer);
                self.busy_lane = lane;
                return Ok(if may_defer { Outcome::Busy } else { Outcome::NoRoom });
            }
            Err(refusal) => {
                out.truncate(start);
                self.refuse(refusal, xid, out);
            }
        }
        if let Some(ticket) = ticket {
            let displaced = ticket.finish(None, &out[start + MARK_LEN..]);
            self.counters.forgotten.add(u64::from(displaced));
        }
        Ok(Outcome::Done)
    }

    /// Hands work over. Apart from the way of calls that are answered at once.
    #[cold]
    #[inline(never)]
    fn defer(
        &self,
        place: usize,
        lane: u32,
        (xid, args_len): (u32, usize),
        mut ticket: Option<Ticket>,
        work: Work,
    ) -> Outcome {
        let clock = self.entries[place].program.clock();
        self.counters.answered.add(1);
        let counters = Arc::clone(&self.counters);
        ticket.iter_mut().for_each(Ticket::defer);
        Outcome::Later(Box::new(Deferred {
            ticket,
            lane,
            xid,
            args_len,
            marked: false,
            work,
            clock,
            counters,
        }))
    }

    /// Looks up a call that must run once: returns its ticket if it must run, else how it was handled.
    fn once(
        &self,
        duplicates: &Arc<Duplicates>,
        arrival: &Arrival,
        header: &Header<'_>,
        message: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Ticket, Result<Outcome, Reason>> {
        let (start, key) = (out.len(), duplicates.key(arrival.peer, header, message));
        out.extend_from_slice(&[0; MARK_LEN]);
        let known = duplicates.begin(arrival.now, key, out);
        if !matches!(known, Known::Answered) {
            out.truncate(start);
        }
        match known {
            Known::New(ticket) => return Ok(ticket),
            Known::Answered => {
                end(start, out);
                self.counters.answered.add(1);
            }
            Known::Working if arrival.transport == Transport::Datagram => {
                self.counters.repeated.add(1);
                return Err(Err(Reason::NoReply));
            }
            // The reply goes to the source of the first call. A client that misses it repeats the call and
            // gets the kept reply.
            Known::Working => {}
            Known::Full => return Err(Ok(Outcome::NoRoom)),
        }
        self.counters.repeated.add(1);
        Err(Ok(Outcome::Done))
    }

    /// Appends a refusal as a record, and counts it.
    #[cold]
    fn refuse(&self, refusal: Refusal, xid: u32, out: &mut Vec<u8>) -> Outcome {
        write_refusal(refusal, xid, out);
        self.counters.refused.add(refusal.reason(), 1);
        self.counters.answered.add(1);
        Outcome::Done
    }
}

/// Counters of a server of these programs, with the metrics that each of them defines.
fn counters_of(entries: &mut [Entry]) -> Arc<ServiceCounters> {
    let mut counters = ServiceCounters::default();
    for own in [&mut counters.own, &mut counters.own_later] {
        entries.iter_mut().for_each(|entry| entry.program.define(own));
    }
    let counters = Arc::new(counters);
    entries.iter_mut().for_each(|entry| entry.program.count_in(&counters));
    counters
}

/// How a message was handled.
pub enum Outcome {
    /// Its reply has been written.
    Done,
    /// A thread that may block must do this work. Boxed, so that the common results fit into registers.
    Later(Box<Deferred>),
    /// Not handled: its program may have to answer later, and there is no room for that. Pass the message
    /// again when there is.
    NoRoom,
    /// The same, but only one lane of work has no room: [`Server::busy_lane`].
    Busy,
}

/// A call that a thread that may block has yet to answer.
pub struct Deferred {
    /// Present if the call must run once.
    ticket: Option<Ticket>,
    lane: u32,
    xid: u32,
    /// Length of its arguments, the end of its message, bytes.
    args_len: usize,
    /// Whether the call arrived as a datagram with a record mark; the reply then has one too.
    marked: bool,
    work: Work,
    /// Tells when it ends.
    clock: Option<fn() -> Instant>,
    counters: Arc<ServiceCounters>,
}

impl Deferred {
    /// The lane of its work.
    #[must_use]
    pub const fn lane(&self) -> u32 {
        self.lane
    }

    /// Length of the call's arguments, bytes. They are the end of its message.
    #[must_use]
    pub const fn args_len(&self) -> usize {
        self.args_len
    }

    /// Like [`Self::run`], for a datagram: the reply has no record mark unless the call had one. If the
    /// work panics, the caller gets SYSTEM_ERR; otherwise it would repeat the call in vain until the call
    /// is forgotten.
    #[must_use]
    pub fn run_datagram(self, args: &[u8]) -> Vec<u8> {
        let Self { mut ticket, xid, marked, work, clock, counters, .. } = self;
        ticket.iter_mut().for_each(Ticket::start);
        let run = std::panic::AssertUnwindSafe(|| run(xid, work, args, &counters));
        let mut reply = std::panic::catch_unwind(run).unwrap_or_else(|_| {
            let mut out = Vec::new();
            write_refusal(Refusal::SystemError, xid, &mut out);
            counters.refuse_later(Reason::HandlerFailed);
            out
        });
        keep(ticket, clock, &reply[MARK_LEN..], &counters);
        if !marked {
            reply.drain(..MARK_LEN);
        }
        reply
    }

    /// Does the work, for a call with these arguments, and returns the reply as a record.
    #[must_use]
    pub fn run(self, args: &[u8]) -> Vec<u8> {
        let Self { mut ticket, xid, work, clock, counters, .. } = self;
        ticket.iter_mut().for_each(Ticket::start);
        let reply = run(xid, work, args, &counters);
        keep(ticket, clock, &reply[MARK_LEN..], &counters);
        reply
    }
}

/// Keeps the reply of a call that must run once.
fn keep(ticket: Option<Ticket>, clock: Option<fn() -> Instant>, reply: &[u8], counters: &ServiceCounters) {
    if ticket.is_some_and(|ticket| ticket.finish(clock.map(|now| now()), reply)) {
        counters.forget_later();
    }
}

fn run(xid: u32, work: Work, args: &[u8], counters: &ServiceCounters) -> Vec<u8> {
    let mut out = Vec::new();
    begin(xid, &mut out);
    match work(args, &mut Results(&mut out)) {
        Ok(()) => end(0, &mut out),
        Err(refusal) => {
            out.clear();
            write_refusal(refusal, xid, &mut out);
            counters.refuse_later(refusal.reason());
        }
    }
    out
}

/// The call after the record mark of a datagram that has one.
///
/// A datagram needs no record mark (RFC 5531, 11, is about streams), but ksf's rpctest sends one and expects one in
/// the reply. Such a call begins with its mark, its xid, CALL (0), and 2, the RPC version. No other message that is
/// answered does:
///
/// - A call without a mark has 2 as its third word, where this one has 0.
/// - A reply without a mark could have 0 (accepted) as its third word and 2 (AUTH_SHORT) as its fourth. Then its
///   fifth is the
///   length of its verifier, at most 400 (RFC 5531, 8.2). Here that is the program's number, and a smaller one is not
///   taken for a call; assigned numbers begin at 100000 (RFC 5531, 13.2).
/// - A reply with a mark has 1 (REPLY) as its third word.
#[cold]
fn without_mark(message: &[u8]) -> Option<&[u8]> {
    let (first, call) = message.split_first_chunk::<MARK_LEN>()?;
    let words = call.first_chunk::<16>()?.as_chunks::<4>().0;
    let word = |at: usize| u32::from_be_bytes(words[at]);
    let is_call = word(1) == msg_type::CALL as u32 && word(2) == RPC_VERSION_2 && word(3) > BODY_MAX;
    (is_call && *first == mark(call.len() as u32, true)).then_some(call)
}

/// Writes the record mark of the record that begins at `start`.
#[inline]
fn end(start: usize, out: &mut [u8]) {
    let len = out.len() - start - MARK_LEN;
    out[start..start + MARK_LEN].copy_from_slice(&mark(len as u32, true));
}

fn write_refusal(refusal: Refusal, xid: u32, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; MARK_LEN]);
    refusal.write(xid, out);
    end(start, out);
}

/// The header of a successful reply without results, as a record; its xid must still be set.
const SUCCESS: [u8; MARK_LEN + SUCCESS_LEN] = {
    // Type, accepted; the flavour and length of a verifier of AUTH_NONE; success.
    let words = [msg_type::REPLY as u32, reply_stat::MSG_ACCEPTED as u32, 0, 0, accept_stat::SUCCESS as u32];
    let mut header = [0; MARK_LEN + SUCCESS_LEN];
    let (mark, mut at) = (mark(SUCCESS_LEN as u32, true), 0);
    while at < MARK_LEN {
        header[at] = mark[at];
        at += 1;
    }
    let mut word = 0;
    while word < words.len() {
        header[MARK_LEN + 4 + 4 * word + 3] = words[word] as u8;
        word += 1;
    }
    header
};

/// Appends the header of a successful reply, as a record that ends there unless results follow.
#[inline]
fn begin(xid: u32, out: &mut Vec<u8>) {
    let mut header = SUCCESS;
    [header[4], header[5], header[6], header[7]] = xid.to_be_bytes();
    out.extend_from_slice(&header);
}

#[cfg(test)]
mod tests;
