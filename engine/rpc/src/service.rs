//! The server as a service: on kernel sockets and on the fast path alike.

use std::net::SocketAddr;

use twinpath_service::{Answer, Datagram, Instant, Output, Reason, Service};

use crate::record::{RecordError, RecordLimits, RecordReader};
use crate::server::Server;

/// A table of programs, served over TCP by record marking and over UDP.
pub struct RpcService {
    server: Server,
    limits: RecordLimits,
}

/// What is kept of a connection.
#[derive(Debug)]
pub struct RpcConnection {
    peer: SocketAddr,
    records: RecordReader,
}

impl RpcService {
    /// Serves what `server` has; records within `limits`.
    #[must_use]
    pub const fn new(server: Server, limits: RecordLimits) -> Self {
        Self { server, limits }
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
        Ok(RpcConnection { peer, records: RecordReader::new(self.limits) })
    }

    fn stream(
        &mut self,
        now: Instant,
        connection: &mut RpcConnection,
        input: &[u8],
        output: &mut Output<'_>,
    ) -> usize {
        let RpcConnection { peer, records } = connection;
        let mut rest = input;
        // Without room for the longest reply, input is left for when there is.
        while output.room() >= self.server.record_reply_max() {
            let outcome = match records.next(&mut rest) {
                Ok(Some(record)) => {
                    let mut outcome = Ok(());
                    let fits = output.write_with(|out| outcome = self.server.record(now, *peer, record, out));
                    debug_assert!(fits, "room was asked for");
                    outcome
                }
                Ok(None) => break,
                Err(error) => Err(error.reason()),
            };
            if let Err(reason) = outcome {
                output.refuse(reason);
                break;
            }
        }
        if records.is_unfinished() {
            output.unfinished();
        }
        input.len() - rest.len()
    }
}

#[cfg(test)]
mod tests;
