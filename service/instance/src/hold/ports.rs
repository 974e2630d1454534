//! Holds what an instance serves against other processes: ports by kernel sockets, EtherTypes by
//! [`FrameClaim`].

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};

use twinpath_observe::holders::{Transport, holder_of_socket, holders};
use twinpath_sys::UdpSocket;
use twinpath_sys::frame_claim::{self, FrameClaim};
use twinpath_sys::tcp_listener::listen_group;

use crate::hold::HoldError;
use crate::hold::held::KernelSockets;
use crate::hold::inherited::Inherited;
use crate::plan::ServicePlan;

/// Holds the ports of several services, with `workers` listeners for each TCP port. Sockets that `former` has
/// are taken from it. `vrf`: the index of the VRF that the interface is in.
///
/// # Errors
///
/// Names every port that cannot be held.
pub fn hold_all_ports<'a>(
    services: impl IntoIterator<Item = &'a ServicePlan>,
    workers: u32,
    former: &mut Inherited,
    vrf: Option<u32>,
) -> Result<Vec<KernelSockets>, HoldError> {
    let (mut sockets, mut refused) = (Vec::new(), Vec::new());
    for service in services {
        match hold_ports(service, workers.max(1) as usize, former, vrf) {
            Ok(held) => sockets.push(held),
            Err(errors) => refused.extend(errors),
        }
    }
    match refused.len() {
        0 => Ok(sockets),
        1 => Err(refused.remove(0)),
        _ => Err(HoldError::Several(refused)),
    }
}

/// How often to choose another port, if the port that the kernel chose for the first address is taken at
/// another one.
const CHOICES_MAX: usize = 16;

/// Like [`hold_once`], but lets the kernel choose again if its choice is taken at a further address.
fn hold_ports(
    plan: &ServicePlan,
    workers: usize,
    former: &mut Inherited,
    vrf: Option<u32>,
) -> Result<KernelSockets, Vec<HoldError>> {
    let chosen = plan.udp == Some(0) || plan.tcp == Some(0);
    let mut outcome = hold_once(plan, workers, former, vrf);
    // The bound sockets are kept until the end, so that the kernel chooses other ports.
    let mut refused = Vec::new();
    while let Err((bound, errors)) = outcome {
        let taken = errors.iter().all(|error| matches!(error, HoldError::PortHeld { .. }));
        if !chosen || !taken || refused.len() + 1 >= CHOICES_MAX {
            return Err(errors);
        }
        refused.push(bound);
        outcome = hold_once(plan, workers, former, vrf);
    }
    outcome.map_err(|(_, errors)| errors)
}

/// Holds a service's ports with kernel sockets, which also serve the packets that do not take the fast
/// path. Each TCP port has one listener per worker. Sockets that `former` has are taken from it.
///
/// # Errors
///
/// Names every port that cannot be held.
fn hold_once(
    plan: &ServicePlan,
    workers: usize,
    former: &mut Inherited,
    vrf: Option<u32>,
) -> Result<KernelSockets, (KernelSockets, Vec<HoldError>)> {
    let addresses: Vec<Option<IpAddr>> = match plan.addresses.as_slice() {
        [] => vec![None],
        some => some.iter().copied().map(Some).collect(),
    };
    let (mut udp, mut listeners, mut refused) = (Vec::new(), Vec::new(), Vec::new());
    let mut hold = |address: Option<IpAddr>, port: u16, udp: &mut Vec<UdpSocket>| match former
        .udp(address, port)
        .map_or_else(|| bind_udp(address, port, vrf), Ok)
    {
        Ok(socket) => udp.push(socket),
        Err(error) => refused.push(error),
    };
    for (port, address) in plan.udp.iter().flat_map(|port| addresses.iter().map(move |at| (*port, *at))) {
        // The port that the kernel chose for the first address is used for the others, too.
        let port = udp.first().filter(|_| port == 0).map_or(port, UdpSocket::port);
        hold(address, port, &mut udp);
    }
    // Our ends of claimed flows whose ports may not be held yet.
    let ends: BTreeSet<SocketAddr> = plan.flows.iter().map(|flow| flow.destination).collect();
    for end in ends {
        if !udp.iter().any(|socket: &UdpSocket| socket.is_at(end)) {
            hold(Some(end.ip()), end.port(), &mut udp);
        }
    }
    for (port, address) in plan.tcp.iter().flat_map(|port| addresses.iter().map(move |at| (*port, *at))) {
        let port = listeners.first().filter(|_| port == 0).map_or(port, |(_, chosen, _)| *chosen);
        let bind = || {
            listen_group(address, port, workers, vrf)
                .map_err(|source| bind_error(Transport::Tcp, port, source))
        };
        match former.tcp(address, port).map_or_else(bind, Ok) {
            Ok(group) => listeners.push((address, group.port().unwrap_or(port), group)),
            Err(error) => refused.push(error),
        }
    }
    let sockets = KernelSockets { udp: udp.into(), listeners };
    if refused.is_empty() { Ok(sockets) } else { Err((sockets, refused)) }
}

fn bind_udp(address: Option<IpAddr>, port: u16, vrf: Option<u32>) -> Result<UdpSocket, HoldError> {
    UdpSocket::bind_at(address, port, vrf).map_err(|source| bind_error(Transport::Udp, port, source))
}

fn bind_error(transport: Transport, number: u16, source: io::Error) -> HoldError {
    let port = format!("{transport} port {number}");
    if source.kind() == io::ErrorKind::AddrInUse {
        return HoldError::PortHeld { port, holder: holder_of(transport, number) };
    }
    let advice = if source.kind() == io::ErrorKind::PermissionDenied && number < 1024 {
        "; ports below 1024 need CAP_NET_BIND_SERVICE (run as root, or choose a higher port)"
    } else {
        ""
    };
    HoldError::Bind { port, source, advice }
}

fn holder_of(transport: Transport, port: u16) -> String {
    let holders: Vec<String> = holders(transport, port).iter().map(ToString::to_string).collect();
    if holders.is_empty() {
        "another socket holds it; its owner can't be seen from here".to_owned()
    } else {
        holders.join(", ")
    }
}

/// Claims the EtherTypes of services on interface `ifindex`; its name is for messages. An EtherType is left out
/// if we lack the privilege to claim it: then we lack it for the fast path as well, and the choice of the path
/// reports that.
///
/// # Errors
///
/// [`HoldError::FramesHeld`] with the holder's name, if another instance has claimed one.
pub fn hold_frames(
    services: &[ServicePlan],
    interface: &str,
    ifindex: u32,
) -> Result<Vec<FrameClaim>, HoldError> {
    let types = services.iter().filter_map(|service| service.ethertype);
    types.filter_map(|ethertype| hold_type(ethertype, interface, ifindex).transpose()).collect()
}

fn hold_type(ethertype: u16, interface: &str, ifindex: u32) -> Result<Option<FrameClaim>, HoldError> {
    match FrameClaim::take(ifindex, ethertype) {
        Ok(Some(claim)) => Ok(Some(claim)),
        Ok(None) => Err(HoldError::FramesHeld {
            ethertype,
            interface: interface.to_owned(),
            holder: holders_of_frames(ifindex),
        }),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(None),
        Err(error) => Err(HoldError::Descriptor(error)),
    }
}

fn holders_of_frames(ifindex: u32) -> String {
    let inodes = frame_claim::holders(ifindex).unwrap_or_default();
    let names: Vec<String> = inodes.into_iter().filter_map(holder_of_socket).collect();
    match names.as_slice() {
        [] => "a process that can't be seen from here".to_owned(),
        [one] => one.clone(),
        several => format!("one of {}", several.join(", ")),
    }
}
