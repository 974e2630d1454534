//! The RPC server as a service, for kernel sockets and the fast path.

use std::net::SocketAddr;
use std::sync::Arc;

use twinpath_service::{
    Answer, Datagram, Instant, Keep, KeptReplies, Order, Output, Reason, Reflex, Service, ServiceCounters,
};

use twinpath_time::Duration;

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
/// incomplete record.
#[derive(Clone, Copy, Debug)]
pub struct RpcConnection {
    peer: SocketAddr,
    /// How far the marks of the incomplete record have been read.
    walked: Walked,
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
    /// Answers the received calls while there is room; stops at a call that is to be answered later.
    #[inline]
    fn answer(
        &mut self,
        now: Instant,
        connection: &mut RpcConnection,
        rest: &mut &[u8],
        output: &mut Output<'_>,
    ) -> Option<Box<Deferred>> {
        let may_defer = self.defers && output.has_room_for_work();
        let arrival = Arrival { now, peer: connection.peer, transport: Transport::Stream };
        let (room, longest) = (output.room(), self.server.record_reply_max());
        let mut stopped = Ok(Outcome::Done);
        let fits = output.write_with(|out| {
            // Without room for the longest reply, the input waits.
            let Some(spare) = room.checked_sub(longest) else { return };
            let (full, limits, mut input) = (out.len() + spare, self.limits, *rest);
            while !input.is_empty() && out.len() <= full {
                let before = input;
                let served = match record::next(&mut input, limits, &mut self.joined, &mut connection.walked)
                {
                    Ok(Some(record)) => self.server.record(&arrival, may_defer, record, out),
                    Ok(None) => break,
                    Err(error) => Err(error.reason()),
                };
                if matches!(served, Ok(Outcome::Done)) {
                    continue;
                }
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
            Ok(Outcome::Done) => None,
            Ok(Outcome::Later(call)) => Some(call),
            Ok(Outcome::NoRoom) => {
                // Asked now alone: without room, the connection is served again as soon as there is some.
                if output.may_defer() {
                    // Nothing tells when the program has room again.
                    output.wake_at(now + BUSY_INTERVAL);
                }
                None
            }
            Err(reason) => {
                output.refuse(reason);
                None
            }
        }
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
                Ok(Err(call)) => datagram.later_in(call.lane(), || call.run_datagram()),
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
        Ok(RpcConnection { peer, walked: Walked::default() })
    }

    fn stream(
        &mut self,
        now: Instant,
        connection: &mut RpcConnection,
        input: &[u8],
        output: &mut Output<'_>,
    ) -> usize {
        let mut rest = input;
        while let Some(call) = self.answer(now, connection, &mut rest, output) {
            // Replies carry the xid of their calls, so they may leave in any order.
            let taken = output.later_in(call.lane(), Order::AsDone, || call.run());
            debug_assert!(taken, "there was room");
        }
        input.len() - rest.len()
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
