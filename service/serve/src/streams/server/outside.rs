//! Events on a connection without input: it begins, its service is woken, or bytes are sent outside of a
//! reply.

use twinpath_inspect::Reason;
use twinpath_service::connections::{After, Connection, Turn};
use twinpath_service::{ConnectionId, Service};
use twinpath_time::Instant;

use super::{Call, TcpServer, Tracked};
use crate::kernel_tcp::socket::Stream;
use crate::streams::host::ConnectionHost;

impl<C: Send> TcpServer<C> {
    /// Sends bytes on a connection.
    ///
    /// # Errors
    ///
    /// The reason why they are dropped: the connection is over, or holds its maximum already.
    pub fn push<S: Service<Connection = C>>(
        &mut self,
        connection: ConnectionId,
        bytes: &[u8],
        call: &mut Call<'_, '_, S>,
    ) -> Result<(), Reason> {
        let number = connection.number();
        let tracked = self.table.get(number).filter(|tracked| tracked.id == connection);
        let tracked = tracked.ok_or(Reason::LateReply)?;
        let before = tracked.held();
        tracked.connection.push(call.now, bytes, self.totals.each())?;
        let held = tracked.held();
        self.holds(before, held, call);
        self.work(number, call);
        Ok(())
    }

    /// Lets a connection begin that was just opened.
    pub(super) fn begin<S: Service<Connection = C>>(&mut self, number: u32, call: &mut Call<'_, '_, S>) {
        self.aside(number, call, |connection, socket, turn| connection.begin(socket, turn));
    }

    /// Wakes the service of a connection.
    pub(super) fn wake<S: Service<Connection = C>>(&mut self, number: u32, call: &mut Call<'_, '_, S>) {
        self.aside(number, call, |connection, socket, turn| connection.wake(socket, turn));
        // The wheel no longer has an entry for the connection, which may be closed now.
        let limits = self.totals.each();
        let deadline = self.table.get(number).map_or(Instant::NEVER, |it| it.connection.deadline(limits));
        self.deadlines.set(number, deadline);
    }

    fn aside<S: Service<Connection = C>>(
        &mut self,
        number: u32,
        call: &mut Call<'_, '_, S>,
        work: impl FnOnce(&mut Connection<C>, &mut Stream<'_>, &mut Turn<'_, ConnectionHost<'_, S>>) -> After,
    ) {
        let Self { table, scratch, buffers, totals, .. } = self;
        let Some(tracked) = table.get(number) else { return };
        let before = tracked.held();
        let Tracked { socket, connection, id, .. } = tracked;
        let mut host =
            ConnectionHost { service: &mut *call.service, handlers: call.handlers.as_deref_mut(), id: *id };
        let mut turn = Turn::new(call.now, totals.each(), scratch, &mut host);
        let after = work(connection, &mut socket.with(buffers), &mut turn);
        let (received, sent) = (turn.received(), turn.sent());
        (self.received, self.sent) = (self.received + received, self.sent + sent);
        call.counters.stream_bytes_in.add(received as u64);
        call.counters.stream_bytes_out.add(sent as u64);
        self.note(number, before, after, call);
    }
}
