//! Events on a connection without input: it begins, its service is woken, or bytes are sent outside of a
//! reply.

use twinpath_inspect::Reason;
use twinpath_service::connections::{After, Connection, Turn};
use twinpath_service::{ConnectionId, Service};
use twinpath_time::Instant;

use super::{Call, StreamServer, Tracked};
use crate::streams::host::ConnectionHost;
use crate::streams::listener::Listener;

impl<L: Listener, C: Send> StreamServer<L, C> {
    /// Sends bytes on a connection.
    ///
    /// # Errors
    ///
    /// The reason why they are dropped: the connection is over, or holds its maximum already.
    pub fn push<S: Service<Connection = C>>(
        &mut self,
        connection: ConnectionId,
        bytes: &[u8],
        call: &mut Call<'_, '_, S, L>,
    ) -> Result<(), Reason> {
        let number = connection.number() & !self.mark;
        let tracked = self.table.get(number).filter(|tracked| tracked.id == connection);
        let tracked = tracked.ok_or(Reason::LateReply)?;
        let before = tracked.held(&self.listener);
        tracked.connection.push(call.now, bytes, self.totals.each())?;
        let held = tracked.held(&self.listener);
        self.holds(before, held, call);
        self.work(number, call);
        Ok(())
    }

    /// Lets a connection begin that was just opened.
    pub(super) fn begin<S: Service<Connection = C>>(&mut self, number: u32, call: &mut Call<'_, '_, S, L>) {
        self.aside(number, call, |connection, transport, turn| connection.begin(transport, turn));
    }

    /// Wakes the service of a connection.
    pub(super) fn wake<S: Service<Connection = C>>(&mut self, number: u32, call: &mut Call<'_, '_, S, L>) {
        self.aside(number, call, |connection, transport, turn| connection.wake(transport, turn));
        // The wheel no longer has an entry for the connection, which may be closed now.
        let limits = self.totals.each();
        let deadline = self.table.get(number).map_or(Instant::NEVER, |it| it.connection.deadline(limits));
        self.deadlines.set(number, deadline);
    }

    fn aside<S: Service<Connection = C>>(
        &mut self,
        number: u32,
        call: &mut Call<'_, '_, S, L>,
        work: impl FnOnce(
            &mut Connection<C>,
            &mut L::Transport<'_>,
            &mut Turn<'_, ConnectionHost<'_, S>>,
        ) -> After,
    ) {
        let Self { table, listener, scratch, totals, .. } = self;
        let Some(tracked) = table.get(number) else { return };
        let before = tracked.held(listener);
        let Tracked { stream, connection, id, .. } = tracked;
        let mut host =
            ConnectionHost { service: &mut *call.service, handlers: call.handlers.as_deref_mut(), id: *id };
        let mut turn = Turn::new(call.now, totals.each(), scratch, &mut host);
        let after = work(connection, &mut listener.transport(stream, call.now), &mut turn);
        let (received, sent) = (turn.received(), turn.sent());
        (self.received, self.sent) = (self.received + received, self.sent + sent);
        call.counters.stream_bytes_in.add(received as u64);
        call.counters.stream_bytes_out.add(sent as u64);
        self.note(number, before, after, call);
    }
}
