//! The requirements of a host on an engine, beyond the calls of its worker.

use crate::place::{PlaceError, Placed, Placement};
use crate::{Engine, Worker};

/// An engine that a host can run. The host is generic. The crate of an engine implements this trait, so its
/// workers' loop is compiled there, once for all hosts.
pub trait Hosted: Engine<Command: EngineCommand> + Sized {
    /// Starts a worker on a thread placed as `placement` says, and waits until it has started. `number` is the worker's, from 0.
    /// Implement it by [`spawn`](crate::place::spawn).
    ///
    /// # Errors
    ///
    /// [`PlaceError`]
    fn spawn(worker: Worker<Self>, number: u32, placement: Placement) -> Result<Placed<Self>, PlaceError>;
}

/// A command of an engine, for a host whose mailbox to the worker is full.
pub trait EngineCommand: Sized {
    /// Whether this command makes an unread `earlier` one obsolete.
    fn voids(&self, earlier: &Self) -> bool;

    /// A command that makes as many others as possible obsolete, and makes the engine ask again for what it needs.
    fn ask_again() -> Option<Self>;

    /// Whether this command may be dropped if the worker's mailbox is full: it is only a hint, which comes again.
    fn is_hint(&self) -> bool {
        false
    }
}

/// An engine that takes no commands.
impl EngineCommand for () {
    fn voids(&self, &(): &()) -> bool {
        true
    }

    fn ask_again() -> Option<Self> {
        None
    }
}
