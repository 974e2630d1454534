//! The network of a lab: two anonymous namespaces joined by a veth pair, which end with the process.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::LazyLock;
use std::time::Duration;

use anyhow::{Context, anyhow};
use futures_util::StreamExt;
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage, AddressScope};
use netlink_packet_route::link::{InfoData, InfoVeth, LinkAttribute, LinkMessage, State};
use netlink_packet_route::route::RouteMessage;
use rtnetlink::{
    Handle, LinkBridge, LinkMessageBuilder, LinkUnspec, LinkVeth, LinkVlan, LinkVxlan, MulticastGroup,
    RouteMessageBuilder,
};
use twinpath_sys::Namespace;
use twinpath_sys::ethtool::{Offload, set_offload};

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

/// The network between two hosts that have a switch each.
pub(crate) const UNDERLAY: [End; 2] = [End::new("under0", 4, 1), End::new("under1", 4, 2)];
/// Its MTU: a tunnel over it has room for packets of 1,500 bytes.
const UNDERLAY_MTU: u32 = 1600;
/// The kernel's bridge and VXLAN interface, at each end of it.
const BRIDGE: &str = "bridge0";
const VXLAN: &str = "vxlan0";
/// The number of the network in the tunnel.
pub(crate) const VNI: u32 = 100;
/// The port of the tunnel (RFC 7348, section 5).
const VXLAN_PORT: u16 = 4789;

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
            inside(&network.switch, async |handle| set_up_all(&handle, &["lo", end.interface]).await)?;
            if at < HOSTS.len() {
                set_up_host(namespace, host)?;
            } else {
                inside(namespace, async |handle| set_up_all(&handle, &[host.interface]).await)?;
            }
            wait_for_carrier(&network.switch, end.interface)?;
        }
        Ok(network)
    }

    /// Two switches, each with a host at its first port, and the [`UNDERLAY`] between them. Returns the second switch's
    /// namespace; the first one's is that of the network.
    pub(crate) fn apart() -> anyhow::Result<(Self, Namespace)> {
        let (network, far) = (Self::build(1)?, Namespace::new()?);
        for switch in [&network.switch, &far] {
            switch.run(|| std::fs::write(NO_IPV6, "1"))?.context("cannot switch IPv6 off for a switch")?;
        }
        let port = End { interface: network.ports[0], mac: [0x02, 0x74, 0x70, 1, 1, 0], ..OWNED };
        join(&far, port, &network.hosts[1], HOSTS[1])?;
        inside(&far, async |handle| set_up_all(&handle, &["lo", port.interface]).await)?;
        set_up_host(&network.hosts[1], HOSTS[1])?;
        join(&network.switch, UNDERLAY[0], &far, UNDERLAY[1])?;
        for (namespace, end) in [&network.switch, &far].into_iter().zip(UNDERLAY) {
            inside(namespace, async |handle| {
                let index = index_of(&handle, end.interface).await?;
                let larger = LinkUnspec::new_with_index(index).mtu(UNDERLAY_MTU).build();
                handle.link().set(larger).execute().await.context("cannot set the MTU")?;
                add_address(&handle, index, (IpAddr::V4(end.ipv4), 24)).await?;
                set_up_all(&handle, &[end.interface]).await
            })?;
        }
        for (namespace, end) in [(&network.switch, UNDERLAY[0]), (&far, UNDERLAY[1]), (&far, port)] {
            wait_for_carrier(namespace, end.interface)?;
        }
        Ok((network, far))
    }

    /// Joins both hosts by the kernel's own bridges and VXLAN interfaces; `far` is the second switch's namespace.
    pub(crate) fn join_by_kernel(&self, far: &Namespace) -> anyhow::Result<()> {
        let [one, other] = UNDERLAY.map(|end| end.ipv4);
        for (namespace, local, remote) in [(&self.switch, one, other), (far, other, one)] {
            inside(namespace, async |handle| {
                let vxlan = LinkVxlan::new(VXLAN, VNI).local(local).remote(remote).port(VXLAN_PORT).build();
                handle.link().add(vxlan).execute().await.context("cannot create a VXLAN interface")?;
                handle
                    .link()
                    .add(LinkBridge::new(BRIDGE).build())
                    .execute()
                    .await
                    .context("cannot create a bridge")?;
                let bridge = index_of(&handle, BRIDGE).await?;
                for port in [VXLAN, self.ports[0]] {
                    let index = index_of(&handle, port).await?;
                    let joined = LinkUnspec::new_with_index(index).controller(bridge).build();
                    let done = handle.link().set(joined).execute().await;
                    done.with_context(|| format!("cannot make {port} a port of a bridge"))?;
                }
                set_up_all(&handle, &[VXLAN, BRIDGE]).await
            })?;
        }
        Ok(())
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
    inside(namespace, async |handle| {
        let index = index_of(&handle, host.interface).await?;
        add_address(&handle, index, (IpAddr::V4(host.ipv4), 24)).await?;
        set_up_all(&handle, &["lo", host.interface]).await
    })?;
    // Without it, nothing that an XDP program redirects to the port arrives. On Linux 6.18 it did not matter whether
    // this or setting the link up came first.
    Ok(namespace.run(|| set_offload(host.interface, Offload::Receive, true))??)
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
        inside(&topology.client, async |handle| configure(&handle, CLIENT).await)?;
        inside(&topology.server, async |handle| configure(&handle, SERVER).await)?;
        wait_for_carriers([(&topology.client, CLIENT), (&topology.server, SERVER)])?;
        Ok(topology)
    }

    /// The same with two interfaces of this namespace that are joined outside: each moves into a namespace and gets the
    /// name and the addresses of that end.
    pub(crate) fn over(interfaces: [&str; 2]) -> anyhow::Result<Self> {
        let topology = Self { client: Namespace::new()?, server: Namespace::new()? };
        let ends = [(&topology.client, CLIENT), (&topology.server, SERVER)];
        for (interface, (namespace, end)) in interfaces.into_iter().zip(ends) {
            take(interface, namespace)?;
            inside(namespace, async |handle| {
                let index = index_of(&handle, interface).await?;
                let renamed = LinkUnspec::new_with_index(index).name(end.interface).address(end.mac.to_vec());
                let done = handle.link().set(renamed.build()).execute().await;
                done.with_context(|| format!("cannot make {interface} {}", end.interface))?;
                configure(&handle, end).await
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
        inside(&owner, async |handle| set_up_all(&handle, &["lo", OWNED.interface]).await)?;
        inside(&self.server, async |handle| configure(&handle, OWNED_PEER).await)?;
        wait_for_carriers([(&owner, OWNED), (&self.server, OWNED_PEER)])?;
        Ok(owner)
    }
}

impl Topology {
    /// Makes a VLAN interface over each end, with addresses.
    pub(crate) fn vlan(&self) -> anyhow::Result<()> {
        let ends = [(&self.client, CLIENT, VLAN_CLIENT), (&self.server, SERVER, VLAN_SERVER)];
        for (namespace, below, end) in ends {
            inside(namespace, async |handle| {
                let below = index_of(&handle, below.interface).await?;
                let made = handle.link().add(LinkVlan::new(end.interface, below, VLAN).build());
                made.execute().await.with_context(|| format!("cannot create {}", end.interface))?;
                configure(&handle, end).await
            })?;
            wait_for_carrier(namespace, end.interface)?;
        }
        Ok(())
    }

    /// Removes them.
    pub(crate) fn no_vlan(&self) -> anyhow::Result<()> {
        for (namespace, end) in [(&self.client, VLAN_CLIENT), (&self.server, VLAN_SERVER)] {
            inside(namespace, async |handle| {
                let index = index_of(&handle, end.interface).await?;
                let removed = handle.link().del(index).execute().await;
                removed.with_context(|| format!("cannot remove {}", end.interface))
            })?;
        }
        Ok(())
    }

    /// Connects the server to [`CONNECTED`], and has it reach [`REMOTE`] by the client.
    pub(crate) fn further_networks(&self) -> anyhow::Result<()> {
        inside(&self.server, async |handle| {
            let index = index_of(&handle, SERVER.interface).await?;
            add_address(&handle, index, (IpAddr::V4(CONNECTED_SERVER), CONNECTED.1)).await?;
            handle.route().add(to_remote()).execute().await.context("cannot add a route")
        })
    }

    /// Undoes that.
    pub(crate) fn no_further_networks(&self) -> anyhow::Result<()> {
        inside(&self.server, async |handle| {
            handle.route().del(to_remote()).execute().await.context("cannot remove a route")?;
            let index = index_of(&handle, SERVER.interface).await?;
            remove_addresses(&handle, index, |address| address == IpAddr::V4(CONNECTED_SERVER)).await
        })
    }

    /// Creates the host [`BEHIND`] and the pair that leads to it, whose other end is up and has no address.
    pub(crate) fn behind(&self) -> anyhow::Result<Namespace> {
        let host = Namespace::new()?;
        let port = End { interface: TO_BEHIND, mac: [0x02, 0x74, 0x70, 0, 3, 2], ..BEHIND };
        join(&host, BEHIND, &self.server, port)?;
        inside(&host, async |handle| configure(&handle, BEHIND).await)?;
        inside(&self.server, async |handle| set_up_all(&handle, &[TO_BEHIND]).await)?;
        wait_for_carrier(&host, BEHIND.interface)?;
        Ok(host)
    }
}

/// Removes all addresses from an interface, but for those that the kernel gives to every link.
pub(crate) fn no_address(namespace: &Namespace, end: End) -> anyhow::Result<()> {
    inside(namespace, async |handle| {
        let index = index_of(&handle, end.interface).await?;
        remove_addresses(&handle, index, |_| true).await
    })
}

/// Removes some of the addresses of an interface that the kernel has not given to it.
async fn remove_addresses(handle: &Handle, index: u32, which: impl Fn(IpAddr) -> bool) -> anyhow::Result<()> {
    let mut found = std::pin::pin!(handle.address().get().set_link_index_filter(index).execute());
    let mut all = Vec::new();
    while let Some(address) = found.next().await {
        all.push(address.with_context(|| format!("cannot list the addresses of interface {index}"))?);
    }
    let is_one = |address: &AddressMessage| {
        address.attributes.iter().any(|attribute| match attribute {
            AddressAttribute::Address(address) => which(*address),
            _ => false,
        })
    };
    for address in all.into_iter().filter(|address| address.header.scope != AddressScope::Link) {
        if is_one(&address) {
            let removed = handle.address().del(address).execute().await;
            removed.with_context(|| format!("cannot remove an address of interface {index}"))?;
        }
    }
    Ok(())
}

fn to_remote() -> RouteMessage {
    RouteMessageBuilder::<Ipv4Addr>::new().destination_prefix(REMOTE.0, REMOTE.1).gateway(CLIENT.ipv4).build()
}

/// Gives an address to a namespace that no other host has, nor any way there.
pub(crate) fn address_of_its_own(namespace: &Namespace, address: Ipv4Addr) -> anyhow::Result<()> {
    inside(namespace, async |handle| {
        let index = index_of(&handle, "lo").await?;
        add_address(&handle, index, (IpAddr::V4(address), 32)).await
    })
}

/// Gives `end`'s addresses to an existing interface, and sets it up.
pub(crate) fn address(namespace: &Namespace, end: End) -> anyhow::Result<()> {
    inside(namespace, async |handle| configure(&handle, end).await)?;
    wait_for_carrier(namespace, end.interface)
}

/// Moves an interface out of the caller's namespace.
fn take(interface: &str, into: &Namespace) -> anyhow::Result<()> {
    here(async |handle| {
        let index = index_of(&handle, interface).await?;
        let moved = LinkUnspec::new_with_index(index).setns_by_fd(into.as_fd().as_raw_fd()).build();
        let done = handle.link().set(moved).execute().await;
        done.with_context(|| format!("cannot move {interface} into a namespace"))
    })
}

/// Sets up an interface of the caller's namespace, and waits until it carries.
pub(crate) fn set_up(interface: &str) -> anyhow::Result<()> {
    here(async |handle| {
        set_up_all(&handle, &[interface]).await?;
        carrier(interface).await
    })
}

/// Runs `work` with a netlink connection of the caller's namespace.
fn here(work: impl AsyncFnOnce(Handle) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start an event loop")?.block_on(async {
        let (connection, handle, _) = rtnetlink::new_connection().context("cannot open a netlink socket")?;
        let connection = tokio::spawn(connection);
        let done = work(handle).await;
        connection.abort();
        done
    })
}

/// One message creates both ends, the second directly in the other namespace.
fn join(namespace: &Namespace, end: End, peer_namespace: &Namespace, peer: End) -> anyhow::Result<()> {
    let other = LinkMessageBuilder::<LinkUnspec>::new()
        .name(peer.interface)
        .address(peer.mac.to_vec())
        .setns_by_fd(peer_namespace.as_fd().as_raw_fd())
        .build();
    let pair: LinkMessage = LinkVeth::new(end.interface, peer.interface)
        .address(end.mac.to_vec())
        .set_info_data(InfoData::Veth(InfoVeth::Peer(other)))
        .build();
    inside(namespace, async move |handle| {
        handle.link().add(pair).execute().await.context("cannot create a veth pair")
    })
}

async fn configure(handle: &Handle, end: End) -> anyhow::Result<()> {
    let index = index_of(handle, end.interface).await?;
    for address in [(IpAddr::V4(end.ipv4), 24), (IpAddr::V6(end.ipv6), 64)] {
        add_address(handle, index, address).await?;
    }
    set_up_all(handle, &["lo", end.interface]).await
}

async fn add_address(handle: &Handle, index: u32, (address, prefix): (IpAddr, u8)) -> anyhow::Result<()> {
    let mut request = handle.address().add(index, address, prefix);
    // Without duplicate address detection, addresses are usable at once.
    request.message_mut().header.flags |= AddressHeaderFlags::Nodad;
    request.execute().await.with_context(|| format!("cannot add {address} to interface {index}"))
}

async fn set_up_all(handle: &Handle, names: &[&str]) -> anyhow::Result<()> {
    for name in names {
        let up = LinkUnspec::new_with_name(name).up().build();
        handle.link().set(up).execute().await.with_context(|| format!("cannot set {name} up"))?;
    }
    Ok(())
}

async fn index_of(handle: &Handle, name: &str) -> anyhow::Result<u32> {
    Ok(link(handle, name).await?.header.index)
}

async fn link(handle: &Handle, name: &str) -> anyhow::Result<LinkMessage> {
    let links = handle.link().get().match_name(name.to_owned()).execute();
    let mut links = std::pin::pin!(links);
    links
        .next()
        .await
        .ok_or_else(|| anyhow!("no interface {name}"))?
        .with_context(|| format!("no interface {name}"))
}

fn wait_for_carriers(ends: [(&Namespace, End); 2]) -> anyhow::Result<()> {
    ends.into_iter().try_for_each(|(namespace, end)| wait_for_carrier(namespace, end.interface))
}

fn wait_for_carrier(namespace: &Namespace, interface: &str) -> anyhow::Result<()> {
    on_runtime(namespace, async || carrier(interface).await)
}

/// Subscribes first and looks then, so that no change falls in between.
async fn carrier(interface: &str) -> anyhow::Result<()> {
    let wait = async {
        let (connection, handle, mut events) = rtnetlink::new_multicast_connection(&[MulticastGroup::Link])
            .context("cannot listen for link events")?;
        let connection = tokio::spawn(connection);
        while !carries(&link(&handle, interface).await?) {
            events.next().await.context("the kernel ended the link events")?;
        }
        connection.abort();
        anyhow::Ok(())
    };
    let late = || format!("{interface} has no carrier after {} s", CARRIER_DEADLINE.as_secs());
    tokio::time::timeout(CARRIER_DEADLINE, wait).await.with_context(late)?
}

fn carries(link: &LinkMessage) -> bool {
    link.attributes.iter().any(|attribute| matches!(attribute, LinkAttribute::OperState(State::Up)))
}

/// Runs `work` with a netlink connection of `namespace`.
fn inside<R: Send>(
    namespace: &Namespace,
    work: impl AsyncFnOnce(Handle) -> anyhow::Result<R> + Send,
) -> anyhow::Result<R> {
    on_runtime(namespace, async || {
        let (connection, handle, _) = rtnetlink::new_connection().context("cannot open a netlink socket")?;
        let connection = tokio::spawn(connection);
        let result = work(handle).await;
        connection.abort();
        result
    })
}

/// Runs `work` with an event loop on a thread of its own inside `namespace`, to which its sockets then belong.
fn on_runtime<R: Send>(
    namespace: &Namespace,
    work: impl AsyncFnOnce() -> anyhow::Result<R> + Send,
) -> anyhow::Result<R> {
    namespace.run(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.context("cannot start an event loop in a namespace")?.block_on(work())
    })?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_carry_have_their_addresses_and_reach_each_other() {
        if !twinpath_test_skip::root_or_skip() {
            return;
        }
        let topology = Topology::build().unwrap();
        for ip in [IpAddr::V4(SERVER.ipv4), IpAddr::V6(SERVER.ipv6)] {
            let server = topology.server.run(|| std::net::UdpSocket::bind((ip, 0)).unwrap()).unwrap();
            let any = if ip.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            let client = topology.client.run(|| std::net::UdpSocket::bind(any).unwrap()).unwrap();
            server.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            client.send_to(b"here", server.local_addr().unwrap()).unwrap();
            let mut datagram = [0; 8];
            let (length, from) = server.recv_from(&mut datagram).unwrap();
            assert_eq!(&datagram[..length], b"here");
            assert!([IpAddr::V4(CLIENT.ipv4), IpAddr::V6(CLIENT.ipv6)].contains(&from.ip()));
        }
    }
}
