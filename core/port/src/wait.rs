//! The contract of a source of work on which a worker can sleep: four operations.

use std::os::fd::BorrowedFd;

/// A source of work on which a worker may sleep.
///
/// The operations, in the order in which a worker uses them: *poll* (take the work; each source has its own call for
/// that), *look* (is there work, without taking it), *arm* (make the fd readable when work comes), look again, sleep,
/// *disarm*. Looking again after arming makes a lost wake-up impossible: the second look finds work that came before
/// the arming, and later work makes the fd readable.
pub trait WaitSource {
    /// Whether there is work, without taking it. Cheap: no system call.
    fn look(&self) -> bool;

    /// Makes [`Self::fd`] become readable when work comes. Returns `false` if it cannot, and the worker does not
    /// sleep this time.
    fn arm(&mut self) -> bool;

    /// The worker is awake again and does not wait on the fd.
    fn disarm(&mut self);

    /// The descriptor to wait on, level-triggered, for reading; the same for the life of the source. `None`: this
    /// source never gets work while the worker sleeps.
    fn fd(&self) -> Option<BorrowedFd<'_>>;
}
