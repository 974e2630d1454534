//! A source of events that are taken without waiting, for a loop that waits on descriptors.

use std::os::fd::BorrowedFd;

use twinpath_time::Instant;

/// A source of events. Its owner takes events until there are none, then waits for one of its descriptors or for
/// its deadline, and starts again.
pub trait Source {
    /// An event.
    type Event;
    /// Why there will be no more events.
    type Error;

    /// The descriptors that become readable when there may be events. They are the same for the life of the source.
    fn descriptors(&self) -> Vec<BorrowedFd<'_>>;

    /// Whether that descriptor, by its place among them, matters at present.
    fn is_watched(&self, _descriptor: usize) -> bool {
        true
    }

    /// When there may be events even if no descriptor is readable.
    fn deadline(&self) -> Option<Instant> {
        None
    }

    /// Takes the next event. Does not wait: `None` if there is none now.
    ///
    /// # Errors
    /// The source cannot be used any more.
    fn take(&mut self) -> Result<Option<Self::Event>, Self::Error>;
}
