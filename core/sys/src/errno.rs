//! The error of the last system call made through libc, as rustix has it.

use rustix::io::Errno;

/// Why the last system call of this thread failed.
#[must_use]
pub fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
