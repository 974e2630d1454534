//! The bare echo at tc: a program that sends datagrams back, or drops them, and does nothing else.

use aya::{Ebpf, include_bytes_aligned};

use crate::{PlainError, tc_ingress};

static MIRROR: &[u8] = include_bytes_aligned!("../object/mirror.o");

/// A program at tc ingress, by a link that ends with the object.
pub struct TcMirror {
    _program: Ebpf,
}

impl TcMirror {
    /// Sends each datagram over UDP/IPv4 that comes to `port` by this interface of the calling thread's namespace back to its sender.
    ///
    /// # Errors
    /// Without CAP_BPF and CAP_NET_ADMIN, or where the kernel has no BPF links at tc (before Linux 6.6).
    pub fn attach(ifindex: u32, port: u16) -> Result<Self, PlainError> {
        load(ifindex, port, "mirror_tc")
    }

    /// Drops them instead.
    ///
    /// # Errors
    /// As [`Self::attach`].
    pub fn drop_all(ifindex: u32, port: u16) -> Result<Self, PlainError> {
        load(ifindex, port, "drop_tc")
    }
}

fn load(ifindex: u32, port: u16, program: &str) -> Result<TcMirror, PlainError> {
    match tc_ingress::attach(MIRROR, ("port", port.to_be().into()), program, ifindex) {
        Ok(program) => Ok(TcMirror { _program: program }),
        Err(reason) => Err(PlainError::TcMirror { ifindex, reason }),
    }
}
