//! The interface to a connection's host: its service, and the threads for work that may block.

use twinpath_inspect::Reason;

use crate::{ConnectionId, Service, Work};

/// Hosts a connection for the duration of a call.
pub trait Host {
    /// The service that answers.
    type Service: Service;

    /// The name of the connection.
    fn connection(&self) -> ConnectionId;

    /// Calls the service; `callback` is the method's name.
    ///
    /// # Errors
    /// The reason for closing the connection, if the service panicked.
    fn call<R>(
        &mut self,
        callback: &'static str,
        call: impl FnOnce(&mut Self::Service) -> R,
    ) -> Result<R, Reason>;

    /// How many more pieces of blocking work a connection with `awaited` pending replies may hand over now.
    /// `None` if there are no threads for such work.
    fn room_for_work(&self, awaited: usize) -> Option<usize>;

    /// Starts work for this connection; the caller has checked that there is room. The reply is passed to
    /// [`Connection::done`](crate::connections::Connection::done) with the returned number, which is never
    /// used again.
    fn hand_over(&mut self, work: Work) -> u64;
}
