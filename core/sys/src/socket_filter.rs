//! BPF programs that filter what a socket receives (SO_ATTACH_BPF and SO_DETACH_FILTER, socket(7)).
#![allow(unsafe_code, reason = "these options have no safe wrapper")]

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};

/// Attaches a loaded program in place of the filter that the socket has. Sockets that a listener accepts inherit it.
///
/// # Errors
/// What the kernel returns; `OutOfMemory` if the program is larger than the socket's limit (net.core.optmem_max).
pub fn attach(socket: impl AsFd, program: BorrowedFd<'_>) -> io::Result<()> {
    set(socket, libc::SO_ATTACH_BPF, program.as_raw_fd())
}

/// Removes the socket's filter, if it has one.
///
/// # Errors
/// What the kernel returns.
pub fn detach(socket: impl AsFd) -> io::Result<()> {
    match set(socket, libc::SO_DETACH_FILTER, 0) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

fn set(socket: impl AsFd, option: c_int, value: c_int) -> io::Result<()> {
    // SAFETY: the descriptor is open for the call, and the option's value is an int of the length given.
    let done = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw const value).cast(),
            size_of::<c_int>() as libc::socklen_t,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn a_socket_without_a_filter_has_none_to_remove() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        assert!(detach(&socket).is_ok());
        assert!(attach(&socket, socket.as_fd()).is_err(), "no program");
    }
}
