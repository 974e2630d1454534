//! The revision of the list of programs at tc ingress (tcx). The kernel changes it with each program that is
//! attached or detached, and reports it in one system call. It announces such changes in no other way.
#![allow(unsafe_code, reason = "bpf(2) takes a pointer")]

use std::io;

/// BPF_PROG_QUERY and BPF_TCX_INGRESS of linux/bpf.h.
const PROG_QUERY: libc::c_long = 16;
const TCX_INGRESS: u32 = 46;

/// The part of `union bpf_attr` for BPF_PROG_QUERY.
#[repr(C)]
#[derive(Default)]
struct Query {
    ifindex: u32,
    attach_type: u32,
    query_flags: u32,
    attach_flags: u32,
    /// Room for the numbers of programs: none, so the kernel lists none.
    program_ids: u64,
    count: u32,
    padding: u32,
    program_attach_flags: u64,
    link_ids: u64,
    link_attach_flags: u64,
    revision: u64,
}

/// The revision now. Takes CAP_NET_ADMIN.
pub(crate) fn at_ingress(ifindex: u32) -> io::Result<u64> {
    let mut query = Query { ifindex, attach_type: TCX_INGRESS, ..Query::default() };
    // SAFETY: the kernel reads and writes at most `size` bytes at the pointer, which is to a value of that size that lives until the call
    // returns. The pointers within it are null with a count of 0, so nothing is written through them.
    let outcome = unsafe { libc::syscall(libc::SYS_bpf, PROG_QUERY, &raw mut query, size_of::<Query>()) };
    if outcome < 0 { Err(io::Error::last_os_error()) } else { Ok(query.revision) }
}
