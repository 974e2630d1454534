//! The network of a lab: two anonymous namespaces joined by a veth pair, which end with the process.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV4, UdpSocket};
use std::os::fd::AsFd as _;
use std::sync::LazyLock;
use std::time::Duration;

use anyhow::Context;
use twinpath_netlink::route::{
    self, ADDRESS_HEADER_LEN, IFA_ADDRESS, IFLA_LINK, LinkAddress, LinkChange, octets,
};
use twinpath_netlink::{Body, Netlink, Protocol, Request};
use twinpath_sys::ethtool::{Offload, set_offload};
use twinpath_sys::{Namespace, clock};

// linux/rtnetlink.h, linux/if_link.h
const RTM_NEWROUTE: u16 = 24;
const RTM_DELROUTE: u16 = 25;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_METRICS: u16 = 8;
const RTAX_CC_ALGO: u16 = 16;
const RT_SCOPE_LINK: u8 = 253;
const IFLA_VLAN_ID: u16 = 1;
const IFLA_VRF_TABLE: u16 = 1;

/// A link without carrier after this time will not get it.
const CARRIER_DEADLINE: Duration = Duration::from_secs(5);

/// Where a namespace says that interfaces that appear there have no IPv6.
const NO_IPV6: &str = "/proc/sys/net/ipv6/conf/default/disable_ipv6";

/// Where a namespace says that a TCP connection begins without what former ones have measured, so that all begin alike.
const NO_METRICS: &str = "/proc/sys/net/ipv4/tcp_no_metrics_save";

/// One end of the pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct End {
    pub(crate) interface: &'static str,
    pub(crate) mac: [u8; 6],
    pub(crate) ipv4: Ipv4Addr,
    pub(crate) ipv6: Ipv6Addr,
}

impl End {
    /// The host with this number in one of the labs' networks. Addresses are locally administered and private: nothing is
    /// visible outside.
    const fn new(interface: &'static str, network: u8, host: u8) -> Self {
        Self {
            interface,
            mac: [0x02, 0x74, 0x70, 0, network, host],
            ipv4: Ipv4Addr::new(10, 112, network, host),
            ipv6: Ipv6Addr::new(0xfd74, 0x7770, 0, network as u16, 0, 0, 0, host as u16),
        }
    }

    /// The same with the MAC address of another one.
    const fn at(self, mac: [u8; 6]) -> Self {
        Self { mac, ..self }
    }
}

pub(crate) const CLIENT: End = End::new("client0", 0, 1);
pub(crate) const SERVER: End = End::new("server0", 0, 2);

/// An interface without addresses for user space alone, and its peer on the server's side.
pub(crate) const OWNED: End = End::new("owned0", 1, 1);
pub(crate) const OWNED_PEER: End = End::new("server1", 1, 2);

/// A VLAN over both ends.
pub(crate) const VLAN: u16 = 100;
pub(crate) const VLAN_CLIENT: End = End::new("client0.100", 3, 1).at(CLIENT.mac);
pub(crate) const VLAN_SERVER: End = End::new("server0.100", 3, 2).at(SERVER.mac);

/// A VRF of the server, and its table of routes.
const VRF: &str = "red";
const VRF_TABLE: u32 = 100;

/// A network that the server is connected to as well, and one behind the client: addresses of forged sources.
pub(crate) const CONNECTED: (Ipv4Addr, u8) = (Ipv4Addr::new(10, 113, 0, 0), 16);
pub(crate) const REMOTE: (Ipv4Addr, u8) = (Ipv4Addr::new(10, 128, 0, 0), 9);
/// The server's address in the first one.
const CONNECTED_SERVER: Ipv4Addr = Ipv4Addr::new(10, 113, 0, 2);

/// A host behind the server's side, in the client's network, and the interface on the server's side that leads to it.
pub(crate) const BEHIND: End = End::new("behind0", 0, 3);
pub(crate) const TO_BEHIND: &str = "server1";

/// Hosts at a switch. Their addresses are of one network.
pub(crate) const HOSTS: [End; 2] = [End::new("host0", 2, 1), End::new("host1", 2, 2)];

/// The ports of the largest switch.
static PORTS: LazyLock<Vec<String>> =
    LazyLock::new(|| (0..PORTS_MAX).map(|at| format!("port{at}")).collect());
const PORTS_MAX: usize = 1000;

/// A switch's namespace, and those of the hosts at its ports.
#[derive(Debug)]
pub(crate) struct SwitchNetwork {
    pub(crate) switch: Namespace,
    pub(crate) hosts: [Namespace; 2],
    /// Where ports beyond the hosts lead. In a host's namespace, the host would answer ARP by each of them.
    pub(crate) nowhere: Namespace,
    /// The switch's ports.
    pub(crate) ports: Vec<&'static str>,
}

impl SwitchNetwork {
    /// A socket of a host, at its address.
    pub(crate) fn socket(&self, host: usize, port: u16) -> anyhow::Result<UdpSocket> {
        let address = SocketAddrV4::new(HOSTS[host].ipv4, port);
        self.hosts[host].run(|| UdpSocket::bind(address))?.context("a host has no socket")
    }

    /// Creates the namespaces, the pairs that join hosts and switch, and further ports up to `ports` without a host. The
    /// ports are up and have no addresses. Interfaces of hosts coalesce frames (GRO), so that an XDP program may send to
    /// them. Hosts have no IPv6: a kernel with it solicits routers by itself on each interface, for minutes, and a switch
    /// floods that to all ports, so an idle one would not be idle.
    pub(crate) fn build(ports: usize) -> anyhow::Result<Self> {
        let (hosts, nowhere) = ([Namespace::new()?, Namespace::new()?], Namespace::new()?);
        for host in hosts.iter().chain([&nowhere]) {
            host.run(|| std::fs::write(NO_IPV6, "1"))?.context("cannot switch IPv6 off for a host")?;
        }
        let ports = PORTS.iter().take(ports).map(String::as_str).collect();
        let network = Self { switch: Namespace::new()?, hosts, nowhere, ports };
        let namespaces = network.hosts.iter().chain(std::iter::repeat(&network.nowhere));
        for ((at, port), namespace) in network.ports.iter().enumerate().zip(namespaces) {
            let [.., high, low] = at.to_be_bytes();
            let mac = [0x02, 0x74, 0x70, 1, high, low];
            let end = End { interface: port, mac, ..OWNED };
            let host = HOSTS.get(at).copied().unwrap_or(End {
                interface: port,
                mac: [0x02, 0x74, 0x70, 2, high, low],
                ..OWNED
            });
            join(&network.switch, end, namespace, host)?;
            inside(&network.switch, |netlink| set_up_all(netlink, &["lo", end.interface]))?;
            if at < HOSTS.len() {
                set_up_host(namespace, host)?;
            } else {
                inside(namespace, |netlink| set_up_all(netlink, &[host.interface]))?;
            }
            wait_for_carrier(&network.switch, end.interface)?;
        }
        Ok(network)
    }

    /// Makes the hosts compute checksums themselves, for a switch that does not pass on that one is still to be computed.
    pub(crate) fn whole_checksums(&self) -> anyhow::Result<()> {
        for (namespace, host) in self.hosts.iter().zip(HOSTS) {
            namespace.run(|| set_offload(host.interface, Offload::Checksum, false))??;
        }
        Ok(())
    }
}

/// Gives a host of a switch its address, and sets it up.
fn set_up_host(namespace: &Namespace, host: End) -> anyhow::Result<()> {
    namespace.run(|| std::fs::write(NO_METRICS, "1"))?.context("cannot have TCP forget what it measured")?;
    inside(namespace, |netlink| {
        let index = index_of(netlink, host.interface)?;
        add_address(netlink, index, (IpAddr::V4(host.ipv4), 24))?;
        set_up_all(netlink, &["lo", host.interface])
    })?;
    // Without it, nothing that an XDP program redirects to the port arrives. On Linux 6.18 it did not matter whether
    // this or setting the link up came first.
    Ok(namespace.run(|| set_offload(host.interface, Offload::Receive, true))??)
}

/// The interfaces of the relay that joins two hosts, towards the client and the server.
pub(crate) const RELAY: [&str; 2] = ["to-client0", "to-server0"];

/// Two hosts with a relay between them.
#[derive(Debug)]
pub(crate) struct Relayed {
    pub(crate) hosts: Topology,
    pub(crate) relay: Namespace,
}

impl Relayed {
    /// Creates the namespaces and both pairs. Frames are whole when they leave the hosts: no larger than the MTU, with their
    /// checksums.
    pub(crate) fn build() -> anyhow::Result<Self> {
        let hosts = Topology { client: Namespace::new()?, server: Namespace::new()? };
        let relay = Namespace::new()?;
        relay.run(|| std::fs::write(NO_IPV6, "1"))?.context("cannot switch IPv6 off for the relay")?;
        let ends = [(&hosts.client, CLIENT), (&hosts.server, SERVER)];
        for ((host, end), (port, number)) in ends.into_iter().zip(RELAY.into_iter().zip(1..)) {
            join(host, end, &relay, End { mac: [0x02, 0x74, 0x70, 0, 4, number], interface: port, ..end })?;
            inside(host, |netlink| configure(netlink, end))?;
            inside(&relay, |netlink| set_up_all(netlink, &[port]))?;
            wait_for_carrier(host, end.interface)?;
            host.run(|| set_offload(end.interface, Offload::Checksum, false))??;
            host.run(|| std::fs::write(NO_METRICS, "1"))?
                .context("cannot have TCP forget what it measured")?;
        }
        Ok(Self { hosts, relay })
    }
}

/// Both namespaces. They end with this value and the processes inside.
#[derive(Debug)]
pub(crate) struct Topology {
    pub(crate) client: Namespace,
    pub(crate) server: Namespace,
}

impl Topology {
    /// Creates both namespaces and the pair, and waits for carrier.
    pub(crate) fn build() -> anyhow::Result<Self> {
        let topology = Self { client: Namespace::new()?, server: Namespace::new()? };
        join(&topology.client, CLIENT, &topology.server, SERVER)?;
        inside(&topology.client, |netlink| configure(netlink, CLIENT))?;
        inside(&topology.server, |netlink| configure(netlink, SERVER))?;
        for (namespace, end) in [(&topology.client, CLIENT), (&topology.server, SERVER)] {
            wait_for_carrier(namespace, end.interface)?;
        }
        Ok(topology)
    }

    /// The same with two interfaces of this namespace that are joined outside: each moves into a namespace and gets the
    /// name and the addresses of that end.
    pub(crate) fn over(interfaces: [&str; 2]) -> anyhow::Result<Self> {
        let topology = Self { client: Namespace::new()?, server: Namespace::new()? };
        let ends = [(&topology.client, CLIENT), (&topology.server, SERVER)];
        for (interface, (namespace, end)) in interfaces.into_iter().zip(ends) {
            take(interface, namespace)?;
            inside(namespace, |netlink| {
                let index = index_of(netlink, interface)?;
                LinkChange::of(index).renamed(end.interface).address(end.mac).change(netlink)?;
                configure(netlink, end)
            })?;
        }
        wait_for_carriers(ends)?;
        Ok(topology)
    }

    /// Creates a third namespace with the interface [`OWNED`], which is up and has no address, so that the kernel's
    /// stack does not use it.
    pub(crate) fn owned(&self) -> anyhow::Result<Namespace> {
        let owner = Namespace::new()?;
        join(&owner, OWNED, &self.server, OWNED_PEER)?;
        inside(&owner, |netlink| set_up_all(netlink, &["lo", OWNED.interface]))?;
        inside(&self.server, |netlink| configure(netlink, OWNED_PEER))?;
        for (namespace, end) in [(&owner, OWNED), (&self.server, OWNED_PEER)] {
            wait_for_carrier(namespace, end.interface)?;
        }
        Ok(owner)
    }
}

impl Topology {
    /// Makes a VLAN interface over each end, with addresses.
    pub(crate) fn vlan(&self) -> anyhow::Result<()> {
        let ends = [(&self.client, CLIENT, VLAN_CLIENT), (&self.server, SERVER, VLAN_SERVER)];
        for (namespace, below, end) in ends {
            inside(namespace, |netlink| {
                let below = index_of(netlink, below.interface)?;
                let tag = Body::new([]).bytes(IFLA_VLAN_ID, VLAN.to_ne_bytes());
                let vlan = LinkChange::named(end.interface).with(IFLA_LINK, below.to_ne_bytes());
                vlan.kind("vlan", &tag).make(netlink)?;
                configure(netlink, end)
            })?;
            wait_for_carrier(namespace, end.interface)?;
        }
        Ok(())
    }

    /// Removes them.
    pub(crate) fn no_vlan(&self) -> anyhow::Result<()> {
        for (namespace, end) in [(&self.client, VLAN_CLIENT), (&self.server, VLAN_SERVER)] {
            inside(namespace, |netlink| Ok(LinkChange::named(end.interface).remove(netlink)?))?;
        }
        Ok(())
    }

    /// Puts the server's interface into a VRF.
    pub(crate) fn vrf(&self) -> anyhow::Result<()> {
        let table = Body::new([]).bytes(IFLA_VRF_TABLE, VRF_TABLE.to_ne_bytes());
        self.in_vrf(|netlink| {
            LinkChange::named(VRF).kind("vrf", &table).make(netlink)?;
            set_up_all(netlink, &[VRF])?;
            index_of(netlink, VRF)
        })
    }

    /// Takes it out again, and removes the VRF.
    pub(crate) fn no_vrf(&self) -> anyhow::Result<()> {
        self.in_vrf(|_| Ok(0))?;
        inside(&self.server, |netlink| Ok(LinkChange::named(VRF).remove(netlink)?))
    }

    /// The kernel takes the interface down and up for that, and its IPv6 addresses with it.
    fn in_vrf(&self, master: impl FnOnce(&Netlink) -> anyhow::Result<u32> + Send) -> anyhow::Result<()> {
        inside(&self.server, |netlink| {
            LinkChange::named(SERVER.interface).master(master(netlink)?).change(netlink)?;
            let index = index_of(netlink, SERVER.interface)?;
            remove_addresses(netlink, index, |_| true)
        })?;
        address(&self.server, SERVER)
    }

    /// Connects the server to [`CONNECTED`], and has it reach [`REMOTE`] by the client.
    pub(crate) fn further_networks(&self) -> anyhow::Result<()> {
        inside(&self.server, |netlink| {
            let index = index_of(netlink, SERVER.interface)?;
            add_address(netlink, index, (IpAddr::V4(CONNECTED_SERVER), CONNECTED.1))?;
            netlink.request(&Request::create("add a route", RTM_NEWROUTE, &to_remote()))?;
            Ok(())
        })
    }

    /// Undoes that.
    pub(crate) fn no_further_networks(&self) -> anyhow::Result<()> {
        inside(&self.server, |netlink| {
            netlink.request(&Request::new("remove a route", RTM_DELROUTE, &to_remote()))?;
            let index = index_of(netlink, SERVER.interface)?;
            remove_addresses(netlink, index, |address| address == IpAddr::V4(CONNECTED_SERVER))
        })
    }

    /// Has the kernel's TCP between both ends use this congestion control, by an attribute of the route there: all sockets of the
    /// namespaces have it, also the product's. As a namespace's default the kernel takes only what the host allows to everybody.
    pub(crate) fn congestion(&self, name: &str) -> anyhow::Result<()> {
        for (namespace, end, other) in [(&self.client, CLIENT, SERVER), (&self.server, SERVER, CLIENT)] {
            inside(namespace, |netlink| {
                let (table, is_static, unicast) = (254, 4, 1);
                let header = [2, 32, 0, 0, table, is_static, RT_SCOPE_LINK, unicast, 0, 0, 0, 0];
                let route = Body::new(header)
                    .bytes(RTA_DST, other.ipv4.octets())
                    .u32(RTA_OIF, index_of(netlink, end.interface)?)
                    .nested(RTA_METRICS, &Body::new([]).text(RTAX_CC_ALGO, name));
                netlink.request(&Request::create("add a route", RTM_NEWROUTE, &route))?;
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Creates the host [`BEHIND`] and the pair that leads to it, whose other end is up and has no address.
    pub(crate) fn behind(&self) -> anyhow::Result<Namespace> {
        let host = Namespace::new()?;
        let port = End { interface: TO_BEHIND, mac: [0x02, 0x74, 0x70, 0, 3, 2], ..BEHIND };
        join(&host, BEHIND, &self.server, port)?;
        inside(&host, |netlink| configure(netlink, BEHIND))?;
        inside(&self.server, |netlink| set_up_all(netlink, &[TO_BEHIND]))?;
        wait_for_carrier(&host, BEHIND.interface)?;
        Ok(host)
    }
}

/// Removes all addresses from an interface, but for those that the kernel gives to every link.
pub(crate) fn no_address(namespace: &Namespace, end: End) -> anyhow::Result<()> {
    inside(namespace, |netlink| {
        let index = index_of(netlink, end.interface)?;
        remove_addresses(netlink, index, |_| true)
    })
}

/// Removes some of the addresses of an interface that the kernel has not given to it.
fn remove_addresses(netlink: &Netlink, ifindex: u32, which: impl Fn(IpAddr) -> bool) -> anyhow::Result<()> {
    let asked = format!("list the addresses of interface {ifindex}");
    let body = Body::new([[0; 4], ifindex.to_ne_bytes()].concat());
    for message in &netlink.request(&Request::list(&asked, route::RTM_GETADDR, &body))? {
        let Some((header, attributes)) = message.parts::<ADDRESS_HEADER_LEN>() else { continue };
        let [_, prefix, _, scope, index @ ..] = *header;
        let v4 = attributes.array::<4>(IFA_ADDRESS).map(IpAddr::from);
        let address = attributes.array::<16>(IFA_ADDRESS).map(IpAddr::from).or(v4);
        let address = address.filter(|address| which(*address) && scope != RT_SCOPE_LINK);
        if let Some(address) = address.filter(|_| u32::from_ne_bytes(index) == ifindex) {
            LinkAddress { ifindex, address, prefix }.remove(netlink)?;
        }
    }
    Ok(())
}

/// The way to [`REMOTE`]: `struct rtmsg` with the main table, for a static route to anywhere, and its attributes.
fn to_remote() -> Body {
    let (table, is_static, unicast) = (254, 4, 1);
    let header = [2, REMOTE.1, 0, 0, table, is_static, 0, unicast, 0, 0, 0, 0];
    Body::new(header).bytes(RTA_DST, REMOTE.0.octets()).bytes(RTA_GATEWAY, octets(CLIENT.ipv4.into()))
}

/// Gives an address to a namespace that no other host has, nor any way there.
pub(crate) fn address_of_its_own(namespace: &Namespace, address: Ipv4Addr) -> anyhow::Result<()> {
    inside(namespace, |netlink| {
        let index = index_of(netlink, "lo")?;
        add_address(netlink, index, (IpAddr::V4(address), 32))
    })
}

/// Gives `end`'s addresses to an existing interface, and sets it up.
pub(crate) fn address(namespace: &Namespace, end: End) -> anyhow::Result<()> {
    inside(namespace, |netlink| configure(netlink, end))?;
    wait_for_carrier(namespace, end.interface)
}

/// Moves an interface out of the caller's namespace.
fn take(interface: &str, into: &Namespace) -> anyhow::Result<()> {
    Ok(LinkChange::named(interface).namespace(into.as_fd()).change(&Netlink::open(Protocol::Route)?)?)
}

/// Sets up an interface of the caller's namespace, and waits until it carries.
pub(crate) fn set_up(interface: &str) -> anyhow::Result<()> {
    set_up_all(&Netlink::open(Protocol::Route)?, &[interface])?;
    carrier(interface)
}

/// One message creates both ends, the second directly in the other namespace.
fn join(namespace: &Namespace, end: End, peer_namespace: &Namespace, peer: End) -> anyhow::Result<()> {
    let other = LinkChange::named(peer.interface).address(peer.mac).namespace(peer_namespace.as_fd());
    let pair = LinkChange::named(end.interface).address(end.mac).pair(&other);
    inside(namespace, |netlink| Ok(pair.make(netlink)?))
}

fn configure(netlink: &Netlink, end: End) -> anyhow::Result<()> {
    let index = index_of(netlink, end.interface)?;
    for address in [(IpAddr::V4(end.ipv4), 24), (IpAddr::V6(end.ipv6), 64)] {
        add_address(netlink, index, address)?;
    }
    set_up_all(netlink, &["lo", end.interface])
}

fn add_address(netlink: &Netlink, ifindex: u32, (address, prefix): (IpAddr, u8)) -> anyhow::Result<()> {
    Ok(LinkAddress { ifindex, address, prefix }.add(netlink)?)
}

fn set_up_all(netlink: &Netlink, names: &[&str]) -> anyhow::Result<()> {
    Ok(names.iter().try_for_each(|name| LinkChange::named(name).up(true).change(netlink))?)
}

fn index_of(netlink: &Netlink, name: &str) -> anyhow::Result<u32> {
    Ok(LinkChange::named(name).look(netlink, |header, _| header.ifindex)?)
}

fn wait_for_carriers(ends: [(&Namespace, End); 2]) -> anyhow::Result<()> {
    ends.into_iter().try_for_each(|(namespace, end)| wait_for_carrier(namespace, end.interface))
}

fn wait_for_carrier(namespace: &Namespace, interface: &str) -> anyhow::Result<()> {
    namespace.run(|| carrier(interface))?
}

fn carrier(interface: &str) -> anyhow::Result<()> {
    let carries = route::wait_for_carrier(interface, clock::now() + CARRIER_DEADLINE)?;
    anyhow::ensure!(carries, "{interface} has no carrier after {} s", CARRIER_DEADLINE.as_secs());
    Ok(())
}

/// Runs `work` on a thread inside `namespace`, with a netlink socket there.
fn inside<R: Send>(
    namespace: &Namespace,
    work: impl FnOnce(&Netlink) -> anyhow::Result<R> + Send,
) -> anyhow::Result<R> {
    namespace.run(|| work(&Netlink::open(Protocol::Route)?.strict()))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_carry_have_their_addresses_and_reach_each_other() {
        if !twinpath_test_rig::root_or_skip() {
            return;
        }
        let topology = Topology::build().unwrap();
        for ip in [IpAddr::V4(SERVER.ipv4), IpAddr::V6(SERVER.ipv6)] {
            let server = topology.server.run(|| UdpSocket::bind((ip, 0)).unwrap()).unwrap();
            let any = if ip.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            let client = topology.client.run(|| UdpSocket::bind(any).unwrap()).unwrap();
            server.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            client.send_to(b"here", server.local_addr().unwrap()).unwrap();
            let mut datagram = [0; 8];
            let (length, from) = server.recv_from(&mut datagram).unwrap();
            assert_eq!(&datagram[..length], b"here");
            assert!([IpAddr::V4(CLIENT.ipv4), IpAddr::V6(CLIENT.ipv6)].contains(&from.ip()));
        }
    }
}
