//! Descriptors: packetdrill closes those of its own accord that a script leaves open, so each is one of the kernel's.

#![allow(unsafe_code, reason = "a descriptor outlives the call that made it")]

use std::fs::File;
use std::os::fd::IntoRawFd as _;

use crate::errno::{Answer, Errno};

/// A number that no other descriptor of the process has.
///
/// # Errors
/// The process has too many.
pub(crate) fn open() -> Answer<i32> {
    let opened =
        File::open("/dev/null").map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::EMFILE)))?;
    Ok(opened.into_raw_fd())
}

/// Gives the number back.
pub(crate) fn close(fd: i32) {
    // SAFETY: `fd` is of `open`, and nothing here uses the descriptor but this call.
    unsafe { libc::close(fd) };
}
