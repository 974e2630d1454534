//! Connections that go on over another transport.

use twinpath_service::{Closed, Service};

use super::{Call, StreamServer};
use crate::streams::listener::Listener;

/// What became of a connection's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is as before.
    None,
    /// It has another transport, which announces its edges.
    Moved,
    /// It cannot go on, and its peer was told: it is closed as if it were broken off.
    Lost,
}

impl<L: Listener, C: Send> StreamServer<L, C> {
    /// One more than the largest number that a connection has had.
    pub const fn numbers(&self) -> u32 {
        self.table.end()
    }

    /// Lets `change` change the stream of the connection with this number, if there is one. The connection keeps its state,
    /// its name and its deadlines.
    pub fn change_stream<S: Service<Connection = C>>(
        &mut self,
        number: u32,
        change: impl FnOnce(&mut L, &mut L::Stream) -> Change,
        call: &mut Call<'_, '_, S, L>,
    ) {
        let Self { table, listener, .. } = self;
        let Some(tracked) = table.get(number) else { return };
        let before = tracked.held(listener);
        match change(listener, &mut tracked.stream) {
            Change::None => {}
            Change::Lost => self.close(number, before, Closed::Broken, call),
            Change::Moved => {
                // Bytes that have moved along are announced by no event.
                tracked.connection.woken(false);
                let held = tracked.held(listener);
                self.again.add(number);
                if held > 0 {
                    self.table.holds_some(number);
                }
                self.holds(before, held, call);
            }
        }
    }
}
