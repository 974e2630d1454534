//! Why there is no ring.

use rustix::io::Errno;
use thiserror::Error;

/// Why io_uring cannot be used here.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum RingError {
    /// `ENOSYS`.
    #[error("this kernel has no io_uring (io_uring_setup: {0})")]
    Absent(Errno),
    /// `EPERM` or `EACCES`.
    #[error(
        "io_uring is forbidden here: see `sysctl kernel.io_uring_disabled`, or the container's seccomp profile ({0})"
    )]
    Forbidden(Errno),
    /// `EINVAL`: flags that came with Linux 6.1.
    #[error("this kernel's io_uring is too old, Linux 6.17 is needed (io_uring_setup: {0})")]
    TooOld(Errno),
    /// Anything else that setting it up returns.
    #[error("io_uring_setup: {0}; `ulimit -l` and `ulimit -n` bound what a ring may take")]
    SetUp(Errno),
    /// An operation is missing, or kept off by restrictions.
    #[error("this kernel's io_uring has no {0}, Linux 6.17 is needed")]
    Operation(&'static str),
    /// A receive cannot be told how much it may take, so that back-pressure would have no exact bound.
    #[error("this kernel's io_uring does not bound what an armed receive takes, Linux 6.17 is needed")]
    NoReceiveLimit,
    /// Memory for its buffers.
    #[error("memory for {bytes} bytes of receive buffers: {error}")]
    Memory {
        /// What was asked for.
        bytes: usize,
        /// What `mmap(2)` returned.
        error: Errno,
    },
    /// Their registration.
    #[error("registering receive buffers with io_uring: {0}")]
    Register(Errno),
    /// The descriptor that tells of completions.
    #[error("an eventfd for io_uring's completions: {0}")]
    Event(Errno),
    /// Starting a ring that is set up.
    #[error("enabling the io_uring: {0}")]
    Enable(Errno),
    /// Trying it out.
    #[error("trying io_uring out on a pair of sockets: {0}")]
    Trial(Errno),
}
