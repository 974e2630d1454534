//! The RPC server as a service, for kernel sockets and the fast path.

mod aside;

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

use twinpath_service::{
    Answer, Datagram, Instant, Keep, KeptReplies, Order, Output, Reason, Reflex, Service, ServiceCounters,
};

use twinpath_time::Duration;

use self::aside::{Aside, Waiting};
use crate::program::{Arrival, Transport};
use crate::record::{self, RecordError, RecordLimits, Walked};
use crate::server::{Deferred, Outcome, SHAPES, Server};

/// How long a record waits that a program had no room for ([`crate::Handled::Busy`]), unless a reply of its connection
/// makes room before.
const BUSY_INTERVAL: Duration = Duration::from_millis(50);

/// A table of programs, served over TCP with record marking and over UDP.
pub struct RpcService {
    server: Server,
    limits: RecordLimits,
    /// A record joined from fragments.
    joined: Vec<u8>,
    /// Whether a program may answer later.
    defers: bool,
    kept: KeptReplies,
}

/// The state of a connection. The owner of the socket keeps, and accounts for, the received part of an
/// incomplete record, and calls that wait.
#[derive(Clone, Debug)]
pub struct RpcConnection {
    peer: SocketAddr,
    /// How far the marks of the incomplete record have been read.
    walked: Walked,
    /// The calls that wait while others are served, if there are any.
    aside: Option<Box<Aside>>,
}

/// Where answering has stopped.
enum Stopped {
    /// For now, or for good.
    Here,
    /// Behind a call that is to be answered later, and whose record has this length.
    Later { call: Box<Deferred>, len: usize },
    /// Behind a call for which its lane has no room, and whose record has this length.
    Busy { lane: u32, len: usize },
}

impl RpcService {
    /// Serves the programs of `server`; records within `limits`.
    #[must_use]
    pub fn new(server: Server, limits: RecordLimits) -> Self {
        let kept = KeptReplies::new(&SHAPES);
        Self { defers: server.defers(), server, limits, joined: Vec::new(), kept }
    }

    /// With this, programs withdraw replies that they allowed to be kept
    /// ([`Program::keep`](crate::Program::keep)), and so does other code that changes their state.
    #[must_use]
    pub const fn kept_replies(&self) -> &KeptReplies {
        &self.kept
    }
}

impl RpcService {
    /// Answers the received calls while there is room; stops behind a call that is to be answered later.
    // Inlined where it is hot, although it has a second caller.
    #[inline(always)]
    fn answer(
        &mut self,
        now: Instant,
        peer: SocketAddr,
        walked: &mut Walked,
        rest: &mut &[u8],
        output: &mut Output<'_>,
    ) -> Stopped {
        let may_defer = self.defers && output.has_room_for_work();
        let arrival = Arrival { now, peer, transport: Transport::Stream };
        let (room, longest) = (output.room(), self.server.record_reply_max());
        let (mut stopped, mut len) = (Ok(Outcome::Done), 0);
        let fits = output.write_with(|out| {
            // Without room for the longest reply, the input waits.
            let Some(spare) = room.checked_sub(longest) else { return };
            let (full, limits, mut input) = (out.len() + spare, self.limits, *rest);
            while !input.is_empty() && out.len() <= full {
                let before = input;
                let served = match record::next(&mut input, limits, &mut self.joined, walked) {
                    Ok(Some(record)) => self.server.record(&arrival, may_defer, record, out),
                    Ok(None) => break,
                    Err(error) => Err(error.reason()),
                };
                if matches!(served, Ok(Outcome::Done)) {
                    continue;
                }
                len = before.len() - input.len();
                if matches!(served, Ok(Outcome::NoRoom)) {
                    input = before;
                }
                stopped = served;
                break;
            }
            *rest = input;
        });
        debug_assert!(fits, "room was looked for before each reply");
        match stopped {
            Ok(Outcome::Done) => Stopped::Here,
            Ok(Outcome::Later(call)) => Stopped::Later { call, len },
            Ok(Outcome::Busy) => Stopped::Busy { lane: self.server.busy_lane(), len },
            Ok(Outcome::NoRoom) => {
                // Asked now alone: without room, the connection is served again as soon as there is some.
                if output.may_defer() {
                    // Nothing tells when the program has room again.
                    output.wake_at(now + BUSY_INTERVAL);
                }
                Stopped::Here
            }
            Err(reason) => {
                output.refuse(reason);
                Stopped::Here
            }
        }
    }

    /// Goes on behind the first call that is not answered at once: up to `seen`, the input was looked at. Or begins with
    /// those that were set aside. Returns how much of the input is used up.
    #[cold]
    #[inline(never)]
    fn stream_past(
        &mut self,
        now: Instant,
        connection: &mut RpcConnection,
        input: &[u8],
        (seen, mut first): (usize, Option<Stopped>),
        output: &mut Output<'_>,
    ) -> usize {
        let begin = if first.is_some() { seen } else { self.answer_aside(now, connection, input, output) };
        let mut rest = &input[begin..];
        loop {
            let stopped = match first.take() {
                Some(stopped) => stopped,
                None => self.answer(now, connection.peer, &mut connection.walked, &mut rest, output),
            };
            if matches!(stopped, Stopped::Here) {
                break;
            }
            if let Err(start) = self.go_past(stopped, connection, input, input.len() - rest.len(), output) {
                rest = &input[start..];
                break;
            }
        }
        connection.settle(now, input.len() - rest.len(), output)
    }

    /// Serves calls again that were set aside, the first one of each lane while it has room. Returns where the input begins
    /// that nobody has looked at.
    #[cold]
    #[inline(never)]
    fn answer_aside(
        &mut self,
        now: Instant,
        connection: &mut RpcConnection,
        input: &[u8],
        output: &mut Output<'_>,
    ) -> usize {
        let (peer, mut from) = (connection.peer, 0);
        let Some(aside) = &mut connection.aside else { return 0 };
        while let Some((at, Waiting { start, len, .. })) = aside.next(from) {
            let mut record = &input[start..start + len];
            match self.answer(now, peer, &mut Walked::default(), &mut record, output) {
                Stopped::Busy { .. } => from = at + 1,
                Stopped::Later { call, .. } => {
                    aside.remove(at);
                    self.hand_over(call, input, start..start + len, output);
                }
                Stopped::Here if record.is_empty() => aside.remove(at),
                // There is no room for anything more.
                Stopped::Here => break,
            }
        }
        aside.seen()
    }

    /// Goes past a call whose record ends there in the input: hands its work over, or sets it aside.
    ///
    /// # Errors
    /// It has no place aside: answering ends here, where its record begins.
    #[cold]
    #[inline(never)]
    fn go_past(
        &mut self,
        stopped: Stopped,
        connection: &mut RpcConnection,
        input: &[u8],
        end: usize,
        output: &mut Output<'_>,
    ) -> Result<(), usize> {
        match stopped {
            Stopped::Here => Ok(()),
            Stopped::Later { call, len } => {
                self.hand_over(call, input, end - len..end, output);
                Ok(())
            }
            Stopped::Busy { lane, len } => {
                let start = end - len;
                let aside = connection.aside.get_or_insert_default();
                if aside.add(Waiting { start, len, lane }) { Ok(()) } else { Err(start) }
            }
        }
    }

    /// Hands over the work of the call with this record. Replies carry the xid of their calls, so they may leave in any
    /// order.
    fn hand_over(
        &mut self,
        call: Box<Deferred>,
        input: &[u8],
        record: Range<usize>,
        output: &mut Output<'_>,
    ) {
        let (lane, args_len) = (call.lane(), call.args_len());
        let is_whole = input[record.start..].first_chunk().is_some_and(|mark| record::is_last(*mark));
        let taken = if is_whole {
            output.later_with(lane, Order::AsDone, record.end - args_len..record.end, |args| call.run(args))
        } else {
            // Its fragments were joined.
            let message = std::mem::take(&mut self.joined);
            output.later_in(lane, Order::AsDone, move || call.run(&message[message.len() - args_len..]))
        };
        debug_assert!(taken, "there was room");
    }
}

impl RpcConnection {
    /// Input before `seen` was looked at. Returns how much of it is used up.
    #[cold]
    #[inline(never)]
    fn settle(&mut self, now: Instant, seen: usize, output: &mut Output<'_>) -> usize {
        let Some(aside) = &mut self.aside else { return seen };
        let used = aside.settle(seen);
        if aside.is_empty() {
            self.aside = None;
        } else {
            // Nothing tells when a lane has room again.
            output.wake_at(now + BUSY_INTERVAL);
        }
        used
    }
}

impl RpcService {
    /// How the reply to a datagram may be kept; must be called before the datagram is served.
    #[cold]
    fn keep(&self, datagram: &Datagram<'_>) -> Option<Keep<'static>> {
        let (keepable, shape) = self.server.keepable(datagram.now(), datagram.peer(), datagram.request())?;
        Some(Keep { shape, version: datagram.version_of(keepable.name), hold: keepable.hold })
    }
}

#[inline]
fn answer(datagram: &mut Datagram<'_>, reply: &[u8], keep: Option<&Keep<'_>>) -> Answer {
    match keep {
        Some(keep) => datagram.answer_and_keep(reply, keep),
        None => datagram.answer(reply),
    }
}

impl Clone for RpcService {
    /// A service for one more worker: it has its own counters; kept replies of calls that run once are shared.
    fn clone(&self) -> Self {
        Self { kept: self.kept.clone(), ..Self::new(self.server.for_worker(), self.limits) }
    }
}

impl RecordError {
    /// The reason under which a close is counted.
    #[must_use]
    pub const fn reason(self) -> Reason {
        match self {
            Self::TooLarge { .. } => Reason::RecordTooLarge,
            Self::TooManyFragments { .. } => Reason::TooManyFragments,
        }
    }
}

impl Service for RpcService {
    type Connection = RpcConnection;

    /// A reply is marked as one (RFC 5531, 9: msg_type), and a reply is never answered.
    fn may_loop(&self) -> bool {
        false
    }

    fn datagram(&mut self, datagram: &mut Datagram<'_>) -> Answer {
        let keep = if datagram.keeps() { self.keep(datagram) } else { None };
        if self.defers && datagram.may_defer() {
            return match self.server.datagram_or_later(datagram.now(), datagram.peer(), datagram.request()) {
                Ok(Ok(reply)) => answer(datagram, reply, keep.as_ref()),
                Ok(Err(call)) => {
                    let request = datagram.request();
                    let args = request[request.len() - call.args_len()..].to_vec();
                    datagram.later_in(call.lane(), move || call.run_datagram(&args))
                }
                Err(reason) => Answer::Drop(reason),
            };
        }
        match self.server.datagram(datagram.now(), datagram.peer(), datagram.request()) {
            Ok(reply) => answer(datagram, reply, keep.as_ref()),
            Err(reason) => Answer::Drop(reason),
        }
    }

    /// The xid and the stamp of a credential may differ, and nothing else. Applies to NULL, and to calls
    /// that programs allow.
    fn reflex(&self) -> Reflex {
        Reflex::Kept(self.kept.clone())
    }

    fn accept(&mut self, _now: Instant, peer: SocketAddr) -> Result<RpcConnection, Reason> {
        Ok(RpcConnection { peer, walked: Walked::default(), aside: None })
    }

    fn stream(
        &mut self,
        now: Instant,
        connection: &mut RpcConnection,
        input: &[u8],
        output: &mut Output<'_>,
    ) -> usize {
        let mut rest = input;
        if connection.aside.is_some() {
            return self.stream_past(now, connection, input, (0, None), output);
        }
        match self.answer(now, connection.peer, &mut connection.walked, &mut rest, output) {
            Stopped::Here => input.len() - rest.len(),
            stopped => {
                let seen = input.len() - rest.len();
                self.stream_past(now, connection, input, (seen, Some(stopped)), output)
            }
        }
    }

    fn counters(&self) -> Option<Arc<ServiceCounters>> {
        Some(Arc::clone(self.server.counters()))
    }

    fn defers(&self) -> bool {
        self.defers
    }

    fn lanes(&self) -> u32 {
        self.server.lanes()
    }
}

#[cfg(test)]
mod tests;
