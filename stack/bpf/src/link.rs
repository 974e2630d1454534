//! BPF links at tc whose descriptors can be passed to another process, which then keeps the programs attached.
#![allow(unsafe_code, reason = "bpf(2) takes a pointer")]

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use aya::programs::TcAttachType;

/// BPF_LINK_CREATE, BPF_F_BEFORE, BPF_TCX_INGRESS and BPF_TCX_EGRESS of linux/bpf.h.
const LINK_CREATE: libc::c_long = 28;
const BEFORE: u32 = 1 << 3;
const TCX_INGRESS: u32 = 46;
const TCX_EGRESS: u32 = 47;

/// The part of `union bpf_attr` for BPF_LINK_CREATE at tc.
#[repr(C)]
struct LinkCreate {
    program: u32,
    ifindex: u32,
    attach_type: u32,
    flags: u32,
    /// No other program is named, so it is attached in front of all.
    relative: u32,
    padding: u32,
    expected_revision: u64,
}

/// Attaches a loaded program in front of all others, while any process holds the descriptor.
///
/// # Errors
/// What `bpf(2)` returns.
pub(crate) fn attach_first(program: BorrowedFd<'_>, ifindex: u32, hook: TcAttachType) -> io::Result<OwnedFd> {
    let attach_type = if matches!(hook, TcAttachType::Egress) { TCX_EGRESS } else { TCX_INGRESS };
    let program = program.as_raw_fd().unsigned_abs();
    let create = LinkCreate {
        program,
        ifindex,
        attach_type,
        flags: BEFORE,
        relative: 0,
        padding: 0,
        expected_revision: 0,
    };
    // SAFETY: the kernel reads `size` bytes at the pointer, which is to a value of that size and lives until the call returns.
    let made =
        unsafe { libc::syscall(libc::SYS_bpf, LINK_CREATE, &raw const create, size_of::<LinkCreate>()) };
    let made = i32::try_from(made).ok().filter(|descriptor| *descriptor >= 0);
    // SAFETY: the kernel has just made the descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(made.ok_or_else(io::Error::last_os_error)?) })
}
