//! The addresses of this host that services are served at: those whose packets the kernel accepts on the
//! interface.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use twinpath_attach::mirror::Mirror;
use twinpath_claims::ADDRESSES_MAX;
use twinpath_serve::ServeCommand;
use twinpath_sys::udp_socket::can_serve_at;

use super::{Instance, InstanceError};
use crate::plan::ServicePlan;

/// Maximum number of the interface's addresses that an error lists.
const LISTED_MAX: usize = 8;

/// The addresses of this host that a service names.
pub(super) fn named(service: &ServicePlan) -> impl Iterator<Item = IpAddr> {
    let of_flows = service.flows.iter().map(|flow| flow.destination.ip());
    service.addresses.iter().copied().chain(of_flows)
}

/// Refuses services at addresses where nothing could arrive. An address is accepted if the kernel would let
/// any program bind it, or will do so after duplicate address detection. It is also accepted if it
/// `was_served` before, because it may be away for a while and come back.
pub(super) fn check_addresses<'a>(
    services: impl IntoIterator<Item = &'a ServicePlan>,
    was_served: impl Fn(&ServicePlan, IpAddr) -> bool,
    mirror: &Mirror,
    interface: &str,
) -> Result<(), InstanceError> {
    let tables = mirror.tables();
    let ifindex = tables.link_named(interface).map(|link| link.ifindex).unwrap_or_default();
    let taken = tables.addresses_taken_on(ifindex);
    for service in services {
        let is_known = |address| taken.binary_search(&address).is_ok() || was_served(service, address);
        let elsewhere = named(service)
            .find(|address| !is_known(*address) && !can_serve_at(*address) && !is_tentative(*address));
        let Some(address) = elsewhere else { continue };
        let has: Vec<_> = tables.addresses(ifindex).collect();
        let listed = has.iter().take(LISTED_MAX).map(|(address, _)| address.to_string());
        let more = has.len().checked_sub(LISTED_MAX + 1).map(|more| format!("{} more", more + 1));
        let has = listed.chain(more).collect::<Vec<_>>().join(", ");
        let has = if has.is_empty() { "has no address".to_owned() } else { format!("has {has}") };
        let family = if address.is_ipv4() { "ipv4" } else { "ipv6" };
        return Err(InstanceError::NoAddress {
            service: service.name.clone(),
            address,
            interface: interface.to_owned(),
            has,
            family,
        });
    }
    Ok(())
}

/// Whether an address is on an interface, and duplicate address detection is still running (RFC 4862, 5.4).
fn is_tentative(address: IpAddr) -> bool {
    let IpAddr::V6(address) = address else { return false };
    let table = fs::read_to_string("/proc/thread-self/net/if_inet6").unwrap_or_default();
    table.lines().any(|line| {
        // Address, index, prefix length, scope, flags, name: `addrconf` of net/ipv6/addrconf.c.
        let mut words = line.split_whitespace();
        let at = words.next().and_then(|word| u128::from_str_radix(word, 16).ok()).map(Ipv6Addr::from);
        let flags = words.nth(3).and_then(|word| u32::from_str_radix(word, 16).ok()).unwrap_or_default();
        at == Some(address) && flags & TENTATIVE != 0 && flags & DAD_FAILED == 0
    })
}

/// `IFA_F_TENTATIVE` and `IFA_F_DADFAILED` of linux/if_addr.h.
const TENTATIVE: u32 = 0x40;
const DAD_FAILED: u32 = 0x08;

/// The addresses of this host, as last reported.
#[derive(Default)]
pub(super) struct OwnAddresses {
    /// The addresses that the workers were sent.
    told: Arc<[IpAddr]>,
    /// Those of them that are [claimed].
    claimed: Vec<IpAddr>,
    /// Addresses that services name, but for which the kernel accepts nothing on the interface.
    missing: BTreeSet<IpAddr>,
}

impl OwnAddresses {
    /// As they are now.
    pub(super) fn now(services: &[ServicePlan], mirror: &Mirror, ifindex: Option<u32>) -> Self {
        let ifindex = ifindex.unwrap_or_default();
        let has = mirror.tables().addresses_taken_on(ifindex);
        let is_missing = |address: &IpAddr| has.binary_search(address).is_err();
        let missing = services.iter().flat_map(named).filter(is_missing).collect();
        Self { told: has.into(), claimed: claimed(services, mirror, ifindex), missing }
    }

    /// The services have changed; the workers have not been sent anything.
    pub(super) fn services_changed(&mut self, now: Self) {
        (self.claimed, self.missing) = (now.claimed, now.missing);
    }
}

/// The addresses that are claimed, of those at which the kernel accepts packets on the interface: the
/// interface's own, and others that services name. Packets to the remaining addresses are served by the
/// kernel's sockets, after all of the kernel's checks: a host may have rules for packets that arrive for
/// its other addresses on this interface. There is room for [`ADDRESSES_MAX`]. If the interface has no
/// address of a family, none of that family is claimed. Otherwise kernel checks of that family
/// (`rp_filter`) could withhold claims of the other one.
pub(super) fn claimed(services: &[ServicePlan], mirror: &Mirror, ifindex: u32) -> Vec<IpAddr> {
    let own: BTreeSet<IpAddr> = mirror.tables().addresses(ifindex).map(|(own, _)| own).collect();
    let named: BTreeSet<IpAddr> = services.iter().flat_map(named).collect();
    let mut addresses = mirror.tables().addresses_taken_on(ifindex);
    addresses.retain(|address| own.contains(address) || named.contains(address));
    addresses.retain(|address| own.iter().any(|own| own.is_ipv4() == address.is_ipv4()));
    addresses.sort_by_key(|address| !own.contains(address));
    // If there are more own addresses, claiming them fails with an error message.
    addresses.truncate(ADDRESSES_MAX.max(own.len()));
    addresses
}

impl Instance {
    /// The addresses at which the kernel accepts packets on the interface, from the mirror; sorted. While
    /// the interface is gone, the addresses at which anything can arrive.
    pub(super) fn addresses(&self) -> Vec<IpAddr> {
        self.mirror.tables().addresses_taken_on(self.interface.ifindex.unwrap_or_default())
    }

    /// Those of them that are [claimed].
    pub(super) fn claimed_addresses(&self) -> Vec<IpAddr> {
        claimed(&self.plan.services, &self.mirror, self.interface.ifindex.unwrap_or_default())
    }

    /// Addresses of this host may have changed. If they have, updates claims and workers, and logs which of
    /// the addresses named by services disappeared or returned.
    pub(super) fn addresses_changed(&mut self) {
        let now = OwnAddresses::now(&self.plan.services, &self.mirror, self.interface.ifindex);
        if (&self.own.told, &self.own.claimed) == (&now.told, &now.claimed) {
            return;
        }
        let before = std::mem::replace(&mut self.own, now);
        self.retarget();
        self.look_at_bypassed();
        self.say_missing(&before.missing);
        let addresses = Arc::clone(&self.own.told);
        for worker in self.everyone_mut() {
            worker.tell_services(ServeCommand::Addresses(Arc::clone(&addresses)));
        }
    }

    fn say_missing(&self, before: &BTreeSet<IpAddr>) {
        let (missing, name) = (&self.own.missing, &self.interface.name);
        for gone in missing.difference(before) {
            tracing::warn!("{gone} is gone: nothing that arrives on {name} is served there until it is back");
        }
        for back in before.difference(missing) {
            tracing::info!("{back} is there: it is served on {name}");
        }
    }
}
