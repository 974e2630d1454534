//! What a connection needs beside its transport.

use twinpath_inspect::Reason;
use twinpath_service::{Service, Work};

/// Hosts a connection for the length of a call: has its service, and whatever does the work that may block.
pub trait Host {
    /// What answers.
    type Service: Service;

    /// Calls the service; `callback` is the method's name.
    ///
    /// # Errors
    /// The reason to close the connection for, if the service panicked.
    fn call<R>(
        &mut self,
        callback: &'static str,
        call: impl FnOnce(&mut Self::Service) -> R,
    ) -> Result<R, Reason>;

    /// Pieces of work that may block, of which a connection that awaits the replies of `awaited` may hand over so many more now. `None` if
    /// there is nobody to do such work.
    fn room_for_work(&self, awaited: usize) -> Option<usize>;

    /// Has work done for this connection; there is room for it. Its reply comes back to [`Connection::done`](crate::Connection::done) with
    /// the number that is returned, which is never used again.
    fn hand_over(&mut self, work: Work) -> u64;
}
