//! BPF programs that filter what a socket receives (SO_ATTACH_BPF, SO_ATTACH_FILTER and SO_DETACH_FILTER, socket(7)).
#![allow(unsafe_code, reason = "these options have no safe wrapper")]

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};

/// Attaches a loaded program in place of the filter that the socket has. Sockets that a listener accepts inherit it.
///
/// # Errors
/// What the kernel returns; `OutOfMemory` if the program is larger than the socket's limit (net.core.optmem_max).
pub fn attach(socket: impl AsFd, program: BorrowedFd<'_>) -> io::Result<()> {
    set(socket, libc::SO_ATTACH_BPF, &program.as_raw_fd())
}

/// Has the socket drop all that it receives from now on.
///
/// # Errors
/// What the kernel returns.
pub fn drop_all(socket: impl AsFd) -> io::Result<()> {
    keep(socket, 0)
}

/// Has a TCP socket take what it receives from now on without the payload: acknowledgements and windows alone. A segment
/// keeps its header at least (`tcp_filter`, net/ipv4/tcp_ipv4.c).
///
/// # Errors
/// What the kernel returns.
pub fn drop_payload(socket: impl AsFd) -> io::Result<()> {
    keep(socket, 1)
}

/// Has the socket keep that many bytes of each packet, and drop it for 0.
fn keep(socket: impl AsFd, bytes: u32) -> io::Result<()> {
    let mut instruction =
        libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: bytes };
    set(socket, libc::SO_ATTACH_FILTER, &libc::sock_fprog { len: 1, filter: &raw mut instruction })
}

/// Removes the socket's filter, if it has one.
///
/// # Errors
/// What the kernel returns.
pub fn detach(socket: impl AsFd) -> io::Result<()> {
    match set(socket, libc::SO_DETACH_FILTER, &0_i32) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}

fn set<T>(socket: impl AsFd, option: c_int, value: &T) -> io::Result<()> {
    // SAFETY: the descriptor is open for the call, and the option's value has the length given. The only pointer in one is
    // to the instruction of `keep`, which outlives the call.
    let done = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
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

    #[test]
    fn a_socket_that_drops_all_does_so_until_the_filter_is_removed() {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let local = socket.local_addr().expect("an address");
        drop_all(&socket).expect("a filter");
        socket.send_to(b"dropped", local).expect("sent");
        detach(&socket).expect("no filter");
        socket.send_to(b"taken", local).expect("sent");
        let mut heard = [0; 16];
        let len = socket.recv(&mut heard).expect("received");
        assert_eq!(&heard[..len], b"taken");
    }
}
