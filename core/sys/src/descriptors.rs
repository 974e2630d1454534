//! Assigns descriptor numbers by the order in which a dying process closes them. Low ones, which it closes last,
//! are reserved for sockets that are slow to close. High ones are for descriptors that must be closed first.
//!
//! The kernel closes a dead process's descriptors from the highest number down (`task_work_run`,
//! kernel/task_work.c: last in, first out since Linux 4.3). Closing a packet or AF_XDP socket takes up to two RCU
//! grace periods of about 10 to 20 ms. During that time, the programs that claim frames and the sockets that hold
//! ports would stay in force. So these slow sockets get low numbers, which are reserved before anything else is
//! opened. On a kernel with another order everything is still closed, only later.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use rustix::io::DupFlags;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::EventFd;
use crate::fork::OfProcess;

/// Reserved numbers, each occupied by an unused descriptor.
#[derive(Debug)]
struct Numbers(Mutex<Vec<OwnedFd>>);

/// The reserved numbers of this process.
static SET_ASIDE: OfProcess<Numbers> = OfProcess::new(Numbers::new(), Numbers::new);

/// Reserves the lowest free numbers, until `count` are reserved; fewer if the limit of descriptors is reached.
pub fn set_aside(count: usize) {
    SET_ASIDE.own().fill(count);
}

/// Moves a socket that is slow to close to a reserved number, if there is one left.
#[must_use]
pub fn close_late(socket: OwnedFd) -> OwnedFd {
    SET_ASIDE.own().give(socket)
}

/// Raises the soft limit of descriptors to the hard limit, and returns it; `None` if there is no limit. If raising
/// is refused, the soft limit stays, and running out of descriptors is counted or reported where it happens.
pub fn raise_limit() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    limit.maximum
}

/// Numbers from here on are closed first, if the limit allows that many. A descriptor table takes memory for all
/// numbers up to the highest.
const FIRST_CLOSED: u64 = 16_384;

/// A duplicate of a descriptor with a number above all others, so that a dying process closes it first. The caller
/// must close the original.
///
/// # Errors
/// What duplicating it returns; the limit of descriptors is reached.
pub fn close_first(fd: BorrowedFd<'_>) -> std::io::Result<OwnedFd> {
    let limit = getrlimit(Resource::Nofile).current;
    // A few more may follow, from other sets of programs.
    let highest = limit.map_or(FIRST_CLOSED, |limit| FIRST_CLOSED.min(limit.saturating_sub(64)));
    Ok(rustix::io::fcntl_dupfd_cloexec(fd, highest as i32)?)
}

impl Numbers {
    const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    fn fill(&self, count: usize) {
        let mut numbers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while numbers.len() < count {
            let Ok(fd) = EventFd::new() else { return };
            numbers.push(fd.into());
        }
    }

    fn give(&self, socket: OwnedFd) -> OwnedFd {
        let number = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let Some(mut low) = number else { return socket };
        match rustix::io::dup3(&socket, &mut low, DupFlags::CLOEXEC) {
            Ok(()) => low,
            Err(_) => socket,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use rustix::io::fcntl_dupfd_cloexec;

    use super::*;

    #[test]
    fn a_slow_socket_gets_a_number_below_what_was_opened_before_it() {
        // Other tests of this process open and close descriptors meanwhile, so the compared ones get numbers far
        // above theirs.
        let far_above = || {
            let fd = OwnedFd::from(EventFd::new().expect("a descriptor"));
            fcntl_dupfd_cloexec(fd, 500).expect("a descriptor")
        };
        let numbers = Numbers::new();
        numbers.fill(1);
        let link = far_above();
        let slow = numbers.give(far_above());
        assert!(slow.as_raw_fd() < link.as_raw_fd());
        let more = far_above();
        let number = more.as_raw_fd();
        assert_eq!(numbers.give(more).as_raw_fd(), number, "none is left");
    }
}
