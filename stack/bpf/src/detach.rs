//! Detaches a pinned program from its interface immediately. Otherwise the kernel does it some time after the last
//! descriptor and pin of the link have gone.
#![allow(unsafe_code, reason = "bpf(2) takes a pointer")]

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// BPF_OBJ_GET and BPF_LINK_DETACH of linux/bpf.h.
const OBJ_GET: libc::c_long = 7;
const LINK_DETACH: libc::c_long = 34;

/// The part of `union bpf_attr` for BPF_OBJ_GET.
#[repr(C)]
struct ObjGet {
    path: u64,
    descriptor: u32,
    flags: u32,
}

/// Disables the link that is pinned at `path`; the pin stays. Takes CAP_NET_ADMIN.
///
/// # Errors
/// ENOENT without such a pin; EOPNOTSUPP for a link of a kind that ends only with its last descriptor.
pub(crate) fn pinned(path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let get = ObjGet { path: path.as_ptr() as u64, descriptor: 0, flags: 0 };
    // SAFETY: the kernel reads `size` bytes at the pointer, which is to a value of that size, and the text that it points to; both live
    // until the call returns.
    let opened = unsafe { libc::syscall(libc::SYS_bpf, OBJ_GET, &raw const get, size_of::<ObjGet>()) };
    let opened = i32::try_from(opened).ok().filter(|descriptor| *descriptor >= 0);
    // SAFETY: the kernel has just made the descriptor for us.
    let link = unsafe { OwnedFd::from_raw_fd(opened.ok_or_else(io::Error::last_os_error)?) };
    let link = link.as_raw_fd();
    // SAFETY: the kernel reads the four bytes of the descriptor.
    let outcome = unsafe { libc::syscall(libc::SYS_bpf, LINK_DETACH, &raw const link, size_of_val(&link)) };
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
