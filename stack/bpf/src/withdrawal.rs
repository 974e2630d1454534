//! Takes leases from sockets.
#![allow(unsafe_code, reason = "bpf(2) takes a pointer")]

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// BPF_MAP_DELETE_ELEM of linux/bpf.h.
const MAP_DELETE_ELEM: libc::c_long = 3;

/// The part of `union bpf_attr` for BPF_MAP_DELETE_ELEM.
#[repr(C)]
struct Delete {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// Takes leases of one [`Leases`](crate::Leases) from sockets. It needs neither a lock nor memory, so a socket can
/// be closed by any thread, and in a signal handler.
#[derive(Clone, Debug)]
pub struct Withdrawal {
    lessees: Arc<OwnedFd>,
}

impl Withdrawal {
    pub(crate) fn new(lessees: OwnedFd) -> Self {
        Self { lessees: Arc::new(lessees) }
    }

    /// The program no longer puts frames of this socket into a ring, once its present runs have ended. Returns
    /// without an error if the socket has no lease.
    ///
    /// # Errors
    /// What the kernel returns.
    pub fn withdraw(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        let key = socket.as_raw_fd();
        let map = self.lessees.as_raw_fd().unsigned_abs();
        let mut delete = Delete { map, padding: 0, key: (&raw const key).addr() as u64, value: 0, flags: 0 };
        // SAFETY: the kernel reads `size` bytes at the pointer, which is to a value of that size, and the map's key, a descriptor, at the
        // address within it. Both live until the call returns.
        let outcome =
            unsafe { libc::syscall(libc::SYS_bpf, MAP_DELETE_ELEM, &raw mut delete, size_of::<Delete>()) };
        match (outcome, io::Error::last_os_error()) {
            (0, _) => Ok(()),
            (_, error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            (_, error) => Err(error),
        }
    }
}
