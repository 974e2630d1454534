//! The server as a service: on kernel sockets and on the fast path alike.

use std::net::SocketAddr;
use std::sync::Arc;

use twinpath_service::{Answer, Datagram, Instant, Output, Reason, Service, ServiceCounters};

use crate::record::{self, RecordError, RecordLimits};
use crate::server::Server;

/// A table of programs, served over TCP by record marking and over UDP.
pub struct RpcService {
    server: Server,
    limits: RecordLimits,
    /// A record that came in fragments.
    joined: Vec<u8>,
}

/// What is kept of a connection. The part of a record that has come is kept, and accounted for, by whoever has its socket.
#[derive(Clone, Copy, Debug)]
pub struct RpcConnection {
    peer: SocketAddr,
}

impl RpcService {
    /// Serves what `server` has; records within `limits`.
    #[must_use]
    pub const fn new(server: Server, limits: RecordLimits) -> Self {
        Self { server, limits, joined: Vec::new() }
    }
}

impl Clone for RpcService {
    /// For one more worker: what it counts, and what it keeps of calls that run once, is its own.
    fn clone(&self) -> Self {
        Self::new(self.server.for_worker(), self.limits)
    }
}

impl RecordError {
    /// What a close is counted under.
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

    fn datagram(&mut self, datagram: &mut Datagram<'_>) -> Answer {
        match self.server.datagram(datagram.now(), datagram.peer(), datagram.request()) {
            Ok(Some(reply)) => datagram.answer(reply),
            Ok(None) => Answer::Nothing,
            Err(reason) => Answer::Drop(reason),
        }
    }

    fn accept(&mut self, _now: Instant, peer: SocketAddr) -> Result<RpcConnection, Reason> {
        Ok(RpcConnection { peer })
    }

    fn stream(
        &mut self,
        now: Instant,
        connection: &mut RpcConnection,
        input: &[u8],
        output: &mut Output<'_>,
    ) -> usize {
        let (mut rest, mut end) = (input, None);
        let room = output.room();
        let fits = output.write_with(|out| {
            let start = out.len();
            // Without room for the longest reply, input is left for when there is.
            while !rest.is_empty() && out.len() - start + self.server.record_reply_max() <= room {
                let outcome = match record::next(&mut rest, self.limits, &mut self.joined) {
                    Ok(Some(record)) => self.server.record(now, connection.peer, record, out),
                    Ok(None) => break,
                    Err(error) => Err(error.reason()),
                };
                if let Err(reason) = outcome {
                    end = Some(reason);
                    break;
                }
            }
        });
        debug_assert!(fits, "room was looked for before each reply");
        if let Some(reason) = end {
            output.refuse(reason);
        }
        input.len() - rest.len()
    }

    fn counters(&self) -> Option<Arc<ServiceCounters>> {
        Some(Arc::clone(self.server.counters()))
    }
}

#[cfg(test)]
mod tests;
