//! Opening connections: which peers may have one, and which idle connection is closed to make room.

use std::net::SocketAddr;

use twinpath_inspect::Reason;
use twinpath_service::connections::Connection;
use twinpath_service::{Closed, ConnectionId, Service};
use twinpath_time::Instant;

use super::{Call, StreamServer, Tracked, close};
use crate::streams::listener::Listener;
use crate::streams::sources::Source;

/// Maximum number of connections examined to find one that can be closed for a new one. A busy one leaves
/// the list, so the next search skips it.
const DISPLACE_LOOKS: u32 = 64;

impl<L: Listener, C: Send> StreamServer<L, C> {
    pub(super) fn open<S: Service<Connection = C>>(
        &mut self,
        mut stream: L::Stream,
        peer: SocketAddr,
        call: &mut Call<'_, '_, S, L>,
    ) {
        match self.try_open(&mut stream, peer, call) {
            Ok((source, state)) => self.insert(stream, source, state, call),
            Err(reason) => {
                self.listener.end(stream);
                call.drops.add(reason, 1);
            }
        }
        call.counters.connections.set(u64::from(self.table.open()));
    }

    fn try_open<S: Service<Connection = C>>(
        &mut self,
        stream: &mut L::Stream,
        peer: SocketAddr,
        call: &mut Call<'_, '_, S, L>,
    ) -> Result<(Source, C), Reason> {
        // The rule for senders is the same as over UDP.
        if !self.served.allows(peer.ip()) {
            return Err(Reason::SourceNotAllowed);
        }
        let source = Source::of(peer.ip());
        if !self.totals.opened(source) {
            return Err(Reason::SourceLimit);
        }
        let state = self.try_open_of_source(stream, peer, call);
        state.map(|state| (source, state)).inspect_err(|_| self.totals.closed(source))
    }

    fn try_open_of_source<S: Service<Connection = C>>(
        &mut self,
        stream: &mut L::Stream,
        peer: SocketAddr,
        call: &mut Call<'_, '_, S, L>,
    ) -> Result<C, Reason> {
        let is_full = self.table.open() + self.elsewhere >= self.most;
        let displaced = if is_full { Some(self.idlest().ok_or(Reason::ConnectionLimit)?) } else { None };
        let accepted = call.service.call("accept", |service| service.accept(call.now, peer));
        let state = accepted.and_then(|accepted| accepted)?;
        if let Some(number) = displaced {
            let held = self.table.get(number).map_or(0, |entry| entry.held(&self.listener));
            self.close(number, held, Closed::For(Reason::ConnectionDisplaced), call);
        }
        let number = self.table.next_number();
        self.deadlines.reserve(self.table.end() as usize);
        if self.listener.watch(stream, number, call.io).is_err() {
            close(state, Closed::Broken, call);
            return Err(Reason::ConnectionLimit);
        }
        Ok(state)
    }

    /// Lets a connection begin. It is watched under the next number of the table.
    fn insert<S: Service<Connection = C>>(
        &mut self,
        stream: L::Stream,
        source: Source,
        state: C,
        call: &mut Call<'_, '_, S, L>,
    ) {
        let (number, connection) = (self.table.next_number(), Connection::new(call.now, state));
        self.deadlines.set(number, connection.deadline(self.totals.each()));
        self.opened += 1;
        let id = ConnectionId::new(number | self.mark, self.opened);
        self.table.insert(Tracked { stream, connection, id, source, why: self.why, idle_since: call.now });
        self.sources.opened(source);
        self.sources.list(source, call.now, number);
        call.counters.accepted.add(1);
        self.begin(number, call);
        if self.draining {
            // Its handshake had begun before the drain did.
            self.ending = Some(self.ending.map_or(number, |first| first.min(number)));
        }
    }

    /// Closes its idlest connection if the limit is reached, so that another server of the same worker can accept one.
    pub fn make_room<S: Service<Connection = C>>(&mut self, call: &mut Call<'_, '_, S, L>) {
        if self.table.open() + self.elsewhere >= self.most
            && let Some(number) = self.idlest()
        {
            let held = self.table.get(number).map_or(0, |entry| entry.held(&self.listener));
            self.close(number, held, Closed::For(Reason::ConnectionDisplaced), call);
        }
    }

    /// The connection that has been idle for longest, of the source that has most connections.
    fn idlest(&mut self) -> Option<u32> {
        for _ in 0..DISPLACE_LOOKS {
            let number = self.sources.first()?;
            let Tracked { stream, connection, source, idle_since, .. } = self.table.get(number)?;
            let (source, since, touched) = (*source, *idle_since, connection.touched());
            // Bytes that have arrived but were not read yet are a request under way.
            let is_idle = connection.is_idle() && !self.listener.has_bytes(stream);
            if is_idle && touched == since {
                return Some(number);
            }
            // It has been used since: it is listed under its new time, or not at all while it is busy.
            *idle_since = if is_idle { touched } else { Instant::NEVER };
            self.sources.unlist(source, since, number);
            if is_idle {
                self.sources.list(source, touched, number);
            }
        }
        None
    }
}
