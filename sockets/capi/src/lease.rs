//! Giving a socket a lease, and what becomes of it.
#![allow(unsafe_code, reason = "functions for C take pointers, which C has no other word for")]

use std::cell::RefCell;
use std::ffi::{CStr, c_char};
use std::fmt::Display;

use libc::c_int;
use twinpath_calls::{Access, SocketKind, WhyKernel, epoll, kind_of, set_errno, table};
use twinpath_worker::idle::Mode;

/// Bytes of a reason, with the zero at its end.
const WHY_MAX: usize = 256;

thread_local! {
    /// Why the last call of `twinpath_on` failed.
    static WHY: RefCell<[u8; WHY_MAX]> = const { RefCell::new([0; WHY_MAX]) };
}

/// What a socket has received.
#[repr(C)]
#[derive(Debug)]
pub struct Counts {
    by_ring: u64,
    by_kernel: u64,
    refused: u64,
    leases: u64,
    ended: u32,
    full: u32,
    lapsed: u32,
    reserved: u32,
}

fn refuse(error: c_int, why: impl Display) -> c_int {
    let why = why.to_string();
    WHY.with_borrow_mut(|text| {
        let fits =
            why.char_indices().map(|(at, letter)| at + letter.len_utf8()).take_while(|end| *end < WHY_MAX);
        let len = fits.last().unwrap_or(0);
        text[..len].copy_from_slice(&why.as_bytes()[..len]);
        text[len..].fill(0);
    });
    set_errno(error)
}

/// See the header.
///
/// # Safety
/// `interface` is a string of C.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn twinpath_on(descriptor: c_int, interface: *const c_char) -> c_int {
    if interface.is_null() {
        return refuse(libc::EFAULT, "no interface is named");
    }
    // SAFETY: the caller's promise.
    let Ok(interface) = unsafe { CStr::from_ptr(interface) }.to_str() else {
        return refuse(libc::EINVAL, "the name of the interface is no text");
    };
    match kind_of(descriptor) {
        Ok(Some(SocketKind::Udp)) => {}
        Ok(None) => return refuse(libc::EOPNOTSUPP, WhyKernel::NotUdp),
        Err(error) => return refuse(error, "it is no socket"),
    }
    if table::local_address(descriptor).is_none() {
        return refuse(libc::EINVAL, "the socket is bound to no port yet: call bind or connect before");
    }
    match table::lend(descriptor, interface, &Access::Auto, Mode::default()) {
        Ok(_) => 0,
        Err(why) if why.is_brief() => refuse(libc::EAGAIN, why),
        Err(why) => refuse(libc::EOPNOTSUPP, why),
    }
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn twinpath_why() -> *const c_char {
    // The text lies in the thread's own memory until the thread ends.
    WHY.with_borrow(|text| text.as_ptr().cast())
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn twinpath_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn twinpath_set_mode(descriptor: c_int, mode: c_int) -> c_int {
    let mode = match mode {
        0 => Mode::Adaptive,
        1 => Mode::Poll,
        2 => Mode::Interrupt,
        _ => return set_errno(libc::EINVAL),
    };
    if table::set_mode(descriptor, mode) { 0 } else { set_errno(libc::ENOENT) }
}

/// See the header.
///
/// # Safety
/// `counts` is null, or points to memory of that type.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn twinpath_counts(descriptor: c_int, counts: *mut Counts) -> c_int {
    if counts.is_null() {
        return set_errno(libc::EFAULT);
    }
    if !table::is_leased(descriptor) {
        return set_errno(libc::ENOENT);
    }
    let Some(found) = table::counts(descriptor) else { return set_errno(libc::EAGAIN) };
    let value = Counts {
        by_ring: found.by_ring,
        by_kernel: found.by_kernel,
        refused: found.refused,
        leases: found.leases,
        ended: found.ended,
        full: found.full,
        lapsed: found.lapsed,
        reserved: 0,
    };
    // SAFETY: the caller's promise.
    unsafe { counts.write(value) };
    0
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn twinpath_dup(descriptor: c_int) -> c_int {
    // SAFETY: it takes numbers only.
    let new = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 0) };
    if new >= 0 {
        table::duplicate(descriptor, new);
    }
    new
}

/// See the header.
#[unsafe(no_mangle)]
pub extern "C" fn twinpath_close(descriptor: c_int) -> c_int {
    table::close(descriptor);
    epoll::set_closed(descriptor);
    // SAFETY: the descriptor is the caller's, who gives it up.
    unsafe { libc::close(descriptor) }
}
