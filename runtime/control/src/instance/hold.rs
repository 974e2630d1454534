//! Holding what is served, so that nobody else serves it too: ports by kernel sockets, EtherTypes by a name of their own.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixDatagram};
use std::sync::Arc;

use twinpath_sys::UdpSocket;
use twinpath_sys::tcp_listener::{Group, listen_group};

use super::take_over::Inherited;
use super::{InstanceError, Plan};
use crate::holders::{Transport, holder_of_name, holders};

/// The kernel's sockets of an instance, before they are given to workers.
pub(super) struct KernelSockets {
    pub(super) udp: Arc<[UdpSocket]>,
    /// Per address and port, one for each worker.
    pub(super) listeners: Vec<(Option<IpAddr>, u16, Group)>,
}

/// Binds the service's ports with kernel sockets: nobody else may have them, and they serve what does not come by the fast
/// path.
pub(super) fn hold_ports(plan: &Plan, former: &mut Inherited) -> Result<KernelSockets, InstanceError> {
    let addresses: Vec<Option<IpAddr>> = match plan.addresses.as_slice() {
        [] => vec![None],
        some => some.iter().copied().map(Some).collect(),
    };
    let mut udp = Vec::new();
    for (port, address) in plan.udp.iter().flat_map(|port| addresses.iter().map(move |at| (*port, *at))) {
        udp.push(former.udp(address, port).map_or_else(|| bind_udp(address, port), Ok)?);
    }
    // Our ends of flows whose port is not held already.
    let ends: BTreeSet<SocketAddr> = plan.flows.iter().map(|flow| flow.destination).collect();
    for end in ends {
        if !udp.iter().any(|socket: &UdpSocket| socket.is_at(end)) {
            let (address, port) = (Some(end.ip()), end.port());
            udp.push(former.udp(address, port).map_or_else(|| bind_udp(address, port), Ok)?);
        }
    }
    let tcp = plan.tcp.iter().flat_map(|port| addresses.iter().map(move |at| (*port, *at)));
    let listen = |(port, address)| {
        let count = plan.workers.max(1) as usize;
        let bind =
            || listen_group(address, port, count).map_err(|source| bind_error(Transport::Tcp, port, source));
        Ok((address, port, former.tcp(address, port).map_or_else(bind, Ok)?))
    };
    let listeners = tcp.map(listen).collect::<Result<_, InstanceError>>()?;
    Ok(KernelSockets { udp: udp.into(), listeners })
}

fn bind_udp(address: Option<IpAddr>, port: u16) -> Result<UdpSocket, InstanceError> {
    UdpSocket::bind_at(address, port).map_err(|source| bind_error(Transport::Udp, port, source))
}

fn bind_error(transport: Transport, number: u16, source: io::Error) -> InstanceError {
    let port = format!("{transport} port {number}");
    if source.kind() == io::ErrorKind::AddrInUse {
        return InstanceError::PortHeld { port, holder: holder_of(transport, number) };
    }
    let advice = if source.kind() == io::ErrorKind::PermissionDenied && number < 1024 {
        "; ports below 1024 need CAP_NET_BIND_SERVICE (run as root, or choose a higher port)"
    } else {
        ""
    };
    InstanceError::Bind { port, source, advice }
}

fn holder_of(transport: Transport, port: u16) -> String {
    let holders: Vec<String> = holders(transport, port).iter().map(ToString::to_string).collect();
    if holders.is_empty() {
        "another socket holds it; its owner can't be seen from here".to_owned()
    } else {
        holders.join(", ")
    }
}

/// An EtherType on an interface, held: by an abstract UNIX socket, of which the kernel allows one per name and network
/// namespace, and which goes with its process however that ends.
#[derive(Debug)]
pub(super) struct FrameClaim {
    _socket: UnixDatagram,
}

/// Holds the frames of the plan on interface `ifindex`; `None` if it asks for none.
///
/// # Errors
/// [`InstanceError::FramesHeld`] with the holder's name, if another instance has them.
pub(super) fn hold_frames(plan: &Plan, ifindex: u32) -> Result<Option<FrameClaim>, InstanceError> {
    let Some(ethertype) = plan.ethertype else { return Ok(None) };
    let name = format!("twinpath/interface-{ifindex}/ethertype-{ethertype:04x}");
    let bound = UnixAddr::from_abstract_name(&name).and_then(|address| UnixDatagram::bind_addr(&address));
    match bound {
        Ok(socket) => Ok(Some(FrameClaim { _socket: socket })),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(InstanceError::FramesHeld {
            ethertype,
            interface: plan.interface.clone(),
            holder: holder_of_name(&name)
                .unwrap_or_else(|| "a process that can't be seen from here".to_owned()),
        }),
        Err(error) => Err(InstanceError::Control(error)),
    }
}
