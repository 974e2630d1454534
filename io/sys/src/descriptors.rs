//! Which descriptors a dying process gives up last.
//!
//! The kernel closes what a dead process held from the highest number down (`task_work_run`, kernel/task_work.c: last in,
//! first out since Linux 4.3). To close a packet or AF_XDP socket takes up to two RCU grace periods of some 10 to 20 ms,
//! in which the programs that claim frames and the sockets that hold ports would go on holding them. So these slow ones get
//! low numbers, which are set aside before anything else is opened. On a kernel with another order all is closed as well,
//! only later.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

use rustix::io::DupFlags;

use crate::EventFd;

/// Numbers set aside, each held by a descriptor of no use.
static SET_ASIDE: Mutex<Vec<OwnedFd>> = Mutex::new(Vec::new());

/// Sees to it that `count` numbers are set aside, the lowest that are free. As many as there are descriptors left.
pub fn set_aside(count: usize) {
    let mut numbers = SET_ASIDE.lock().unwrap_or_else(PoisonError::into_inner);
    while numbers.len() < count {
        let Ok(fd) = EventFd::new() else { return };
        numbers.push(fd.into());
    }
}

/// Gives a socket that is slow to close one of the numbers set aside, if there is one left.
#[must_use]
pub fn close_late(socket: OwnedFd) -> OwnedFd {
    let number = SET_ASIDE.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let Some(mut low) = number else { return socket };
    match rustix::io::dup3(&socket, &mut low, DupFlags::CLOEXEC) {
        Ok(()) => low,
        Err(_) => socket,
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_slow_socket_gets_a_number_below_what_was_opened_before_it() {
        set_aside(1);
        let link = EventFd::new().expect("a descriptor");
        let slow = OwnedFd::from(EventFd::new().expect("a descriptor"));
        let slow = close_late(slow);
        assert!(slow.as_raw_fd() < OwnedFd::from(link).as_raw_fd());
        let more = OwnedFd::from(EventFd::new().expect("a descriptor"));
        let number = more.as_raw_fd();
        assert_eq!(close_late(more).as_raw_fd(), number, "none is left");
    }
}
