//! Receives from a TCP socket together with the kernel's time stamp of the bytes (SO_TIMESTAMPNS, socket(7)).
#![allow(unsafe_code, reason = "recvmsg(2) with a timestamp beside the bytes has no safe wrapper")]

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd as _};

use rustix::io::Errno;

use crate::errno::last_errno;
use crate::frame_tap::{Control, set, timestamp};

/// Makes the kernel stamp what arrives at this socket from now on.
///
/// # Errors
/// What setsockopt(2) returns.
pub fn stamp(socket: impl AsFd) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS)
}

/// Appends received bytes to `into`, up to its capacity, and never blocks. Returns the number of bytes, 0 at the
/// end of the stream, and the stamp (`CLOCK_REALTIME`, ns) of the last segment among them; `None` if that segment
/// came before [`stamp`] was called.
///
/// # Errors
/// [`Errno::AGAIN`] if nothing has come; otherwise what recvmsg(2) returns.
pub fn receive(socket: impl AsFd, into: &mut Vec<u8>) -> Result<(usize, Option<u64>), Errno> {
    let room = into.spare_capacity_mut();
    let mut part = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
    let mut control = Control::default();
    // SAFETY: an all-zero msghdr is a valid value: no name, no parts, no control.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len() as _;
    let received = loop {
        // SAFETY: every pointer in `message` is to a live value of the length said there, for the length of the call.
        let len = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
        match usize::try_from(len).map_err(|_| last_errno()) {
            Err(Errno::INTR) => {}
            received => break received?,
        }
    };
    // SAFETY: the kernel has written so many bytes behind the length, within the capacity.
    unsafe { into.set_len(into.len() + received) };
    Ok((received, timestamp(&message)))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant, SystemTime};

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    #[test]
    fn bytes_come_with_the_time_at_which_they_came() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        stamp(&far).unwrap();
        let mut into = Vec::with_capacity(16);
        into.extend(b"ab");
        assert_eq!(receive(&far, &mut into), Err(Errno::AGAIN));
        let since_1970 =
            || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64;
        let is_recent = |stamp_ns: u64| {
            stamp_ns <= since_1970() && since_1970() - stamp_ns < Duration::from_secs(30).as_nanos() as u64
        };
        let deadline = Timespec { tv_sec: 10, tv_nsec: 0 };
        // After the first socket has asked for stamps, the kernel enables them on a thread of its own. On a busy
        // machine, many packets come before that thread runs.
        let begun = Instant::now();
        let stamp_ns = loop {
            near.write_all(b"cde").unwrap();
            assert_eq!(poll(&mut [PollFd::new(&far, PollFlags::IN)], Some(&deadline)), Ok(1));
            let (len, stamp_ns) = receive(&far, &mut into).unwrap();
            assert_eq!((len, &into[..]), (3, &b"abcde"[..]));
            into.truncate(2);
            if let Some(stamp_ns) = stamp_ns {
                break stamp_ns;
            }
            assert!(begun.elapsed() < PATIENCE, "no stamp came");
            std::thread::yield_now();
        };
        assert!(is_recent(stamp_ns), "{stamp_ns}");
        drop(near);
        assert_eq!(poll(&mut [PollFd::new(&far, PollFlags::IN)], Some(&deadline)), Ok(1));
        assert_eq!(receive(&far, &mut into).unwrap().0, 0);
    }
}
