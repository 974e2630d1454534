//! The contract of waiting: four moves for every source of work.

use std::os::fd::BorrowedFd;

/// Something a worker takes work from, and may sleep on.
///
/// The moves, in the order a worker makes them: *poll* (take what is there; each source has its own call for that),
/// *look* (is there anything, without taking it), *arm* (make the fd readable when something comes), look again, sleep,
/// *disarm*. Looking again after arming is what makes a lost wake-up impossible: whatever came before the arming is
/// seen by the second look, whatever comes after it makes the fd readable.
pub trait WaitSource {
    /// Whether there is work, without taking it. Cheap: no system call.
    fn look(&self) -> bool;

    /// Sees to it that [`Self::fd`] becomes readable when work comes. Says `false` if it cannot, and the worker does not
    /// sleep this time.
    fn arm(&mut self) -> bool;

    /// The worker is awake again; nobody waits on the fd.
    fn disarm(&mut self);

    /// What to wait on, level-triggered, for reading; the same for the life of the source. `None`: this source never
    /// gets work by itself.
    fn fd(&self) -> Option<BorrowedFd<'_>>;
}
