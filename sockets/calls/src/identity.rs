//! Whether a descriptor is still the same socket. A program can close one by a call that is not seen here, such as
//! `syscall(2)`, or one that the C library makes by itself. The number is then given to something else.
#![allow(unsafe_code, reason = "the kernel is asked for an option by a pointer")]

use std::os::fd::BorrowedFd;

use libc::{c_int, socklen_t};
use twinpath_leases::WhyKernel;
use twinpath_sys::socket_kind::SocketKind;

use crate::kernel::{errno, set_errno};

/// An option of a socket; the error otherwise. `errno` stays as it is.
fn option<T: Copy + Default>(descriptor: c_int, name: c_int) -> Result<T, c_int> {
    let (before, mut value, mut len) = (errno(), T::default(), size_of::<T>() as socklen_t);
    // SAFETY: there is room for a value of that length, which is a number: any bits are valid.
    let got = unsafe {
        libc::getsockopt(descriptor, libc::SOL_SOCKET, name, (&raw mut value).cast(), &raw mut len)
    };
    let outcome = if got == 0 { Ok(value) } else { Err(errno()) };
    set_errno(before);
    outcome
}

/// A number that no other socket has, as long as the machine runs (SO_COOKIE).
pub(crate) fn cookie(descriptor: c_int) -> Result<u64, c_int> {
    option(descriptor, libc::SO_COOKIE)
}

/// Whether the descriptor is no longer the socket with this cookie. If the kernel does not answer, as a filter of
/// seccomp(2) forbids the call, the socket is taken for the same one.
pub(crate) fn is_another(descriptor: c_int, known: u64) -> bool {
    match cookie(descriptor) {
        Ok(cookie) => cookie != known,
        Err(error) => matches!(error, libc::EBADF | libc::ENOTSOCK),
    }
}

/// The cookie of a socket that can have a fast path.
///
/// # Errors
/// It is none: a number may have got another meaning by a call that is not seen here.
pub(crate) fn cookie_of_udp(descriptor: c_int) -> Result<u64, WhyKernel> {
    match (cookie(descriptor), kind_of(descriptor)) {
        (Ok(cookie), Ok(Some(SocketKind::Udp))) => Ok(cookie),
        _ => Err(WhyKernel::NotUdp),
    }
}

/// The kind of a socket; `None`: one that has no fast path.
///
/// # Errors
/// It is no socket: the error number.
pub fn kind_of(descriptor: c_int) -> Result<Option<SocketKind>, c_int> {
    if descriptor < 0 {
        return Err(libc::EBADF);
    }
    // SAFETY: it is used for this call only. If it is none, the kernel says so.
    let socket = unsafe { BorrowedFd::borrow_raw(descriptor) };
    SocketKind::of(socket).map_err(|error| error.raw_os_error())
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};
    use std::os::fd::AsRawFd as _;

    use super::*;

    #[test]
    fn a_socket_is_known_again_and_another_one_is_told_from_it() {
        let first = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let second = UdpSocket::bind("127.0.0.1:0").expect("another one");
        let cookie = cookie(first.as_raw_fd()).expect("its cookie");
        assert!(!is_another(first.as_raw_fd(), cookie) && is_another(second.as_raw_fd(), cookie));
        assert!(!is_another(first.try_clone().expect("a duplicate").as_raw_fd(), cookie));
        let file = std::fs::File::open("/dev/null").expect("a file");
        assert!(is_another(file.as_raw_fd(), cookie) && is_another(-1, cookie));
        let tcp = TcpListener::bind("127.0.0.1:0").expect("a socket");
        assert_eq!(cookie_of_udp(first.as_raw_fd()), Ok(cookie));
        assert_eq!(kind_of(tcp.as_raw_fd()), Ok(None));
        assert_eq!((kind_of(file.as_raw_fd()), kind_of(-1)), (Err(libc::ENOTSOCK), Err(libc::EBADF)));
    }
}
