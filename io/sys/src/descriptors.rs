//! Reserves low descriptor numbers, which a dying process closes last, for sockets that are slow to close.
//!
//! The kernel closes a dead process's descriptors from the highest number down (`task_work_run`, kernel/task_work.c:
//! last in, first out since Linux 4.3). Closing a packet or AF_XDP socket takes up to two RCU grace periods of some
//! 10 to 20 ms, during which the programs that claim frames and the sockets that hold ports would stay in force. So
//! these slow ones get low numbers, which are reserved before anything else is opened. On a kernel with another order
//! everything is closed as well, only later.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

use rustix::io::DupFlags;

use crate::EventFd;

/// Reserved numbers, each occupied by an unused descriptor.
struct Numbers(Mutex<Vec<OwnedFd>>);

/// The reserved numbers of this process.
static SET_ASIDE: Numbers = Numbers(Mutex::new(Vec::new()));

/// Reserves `count` numbers in all, the lowest that are free; fewer if the limit of descriptors is reached.
pub fn set_aside(count: usize) {
    SET_ASIDE.fill(count);
}

/// Moves a socket that is slow to close to a reserved number, if there is one left.
#[must_use]
pub fn close_late(socket: OwnedFd) -> OwnedFd {
    SET_ASIDE.give(socket)
}

impl Numbers {
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
        // Other tests of this process open and close descriptors meanwhile, so those compared get numbers far above
        // theirs.
        let far_above = || {
            let fd = OwnedFd::from(EventFd::new().expect("a descriptor"));
            fcntl_dupfd_cloexec(fd, 500).expect("a descriptor")
        };
        let numbers = Numbers(Mutex::new(Vec::new()));
        numbers.fill(1);
        let link = far_above();
        let slow = numbers.give(far_above());
        assert!(slow.as_raw_fd() < link.as_raw_fd());
        let more = far_above();
        let number = more.as_raw_fd();
        assert_eq!(numbers.give(more).as_raw_fd(), number, "none is left");
    }
}
