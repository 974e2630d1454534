//! What a socket has taken and not yet got rid of (SIOCOUTQ: tcp(7), packet(7)).
#![allow(unsafe_code, reason = "ioctl(2) for the length of a send queue has no safe wrapper")]

use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd as _};

use rustix::io::Errno;

use crate::errno::last_errno;

/// Bytes in a socket's send queue. A TCP socket counts bytes that the peer has not acknowledged; the end of the stream
/// counts as one, once it was sent (`tcp_ioctl`, net/ipv4/tcp.c). A packet socket counts memory of frames that the
/// kernel has not freed.
///
/// # Errors
/// What ioctl(2) returns.
pub fn queued(socket: impl AsFd) -> Result<usize, Errno> {
    let mut bytes: c_int = 0;
    // SAFETY: SIOCOUTQ writes one int, which lives across the call.
    let result = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    if result == 0 { Ok(usize::try_from(bytes).unwrap_or(usize::MAX)) } else { Err(last_errno()) }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn what_the_peer_cannot_take_stays_queued() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let _far = listener.accept().unwrap();
        assert_eq!(queued(&near), Ok(0));
        near.set_nonblocking(true).unwrap();
        while near.write(&[0; 65_536]).is_ok() {}
        assert!(queued(&near).unwrap() > 0);
        assert_eq!(queued(&listener), Err(Errno::INVAL), "it has no queue");
    }
}
