//! The bare echo at tc: a program that sends datagrams back, or drops them, and does nothing else.

use aya::programs::tc::TcAttachOptions;
use aya::programs::{LinkOrder, SchedClassifier, TcAttachType};
use aya::{Ebpf, EbpfLoader, include_bytes_aligned};
use twinpath_sys::packet_socket::interface_name;

use crate::PlainError;

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

fn load(ifindex: u32, port: u16, section: &str) -> Result<TcMirror, PlainError> {
    let failed = |reason: String| PlainError::TcMirror { ifindex, reason };
    let name = interface_name(ifindex).map_err(|error| failed(error.to_string()))?;
    let object = EbpfLoader::new().override_global("port", &u32::from(port.to_be()), true).load(MIRROR);
    let mut object = object.map_err(|error| failed(error.to_string()))?;
    let program = object.program_mut(section).ok_or_else(|| failed(format!("no {section}")))?;
    let classifier: &mut SchedClassifier = program.try_into().map_err(|error| failed(format!("{error}")))?;
    classifier.load().map_err(|error| failed(error.to_string()))?;
    let order = TcAttachOptions::TcxOrder(LinkOrder::first());
    classifier
        .attach_with_options(&name, TcAttachType::Ingress, order)
        .map_err(|error| failed(error.to_string()))?;
    Ok(TcMirror { _program: object })
}
