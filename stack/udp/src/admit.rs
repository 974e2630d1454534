//! Decides which datagrams a service may receive: none from an impossible source address, and none from a service
//! that would answer the reply.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use twinpath_inspect::Reason;
use twinpath_reflex::ports::answers_by_itself;

/// Decides about a datagram to `local` from `peer`. `own`: the sorted addresses of this host at which something can
/// arrive on that interface. `ports`: the source ports to which the service answers.
///
/// # Errors
/// The reason to refuse it. The same rule holds on both paths.
pub fn admit(peer: SocketAddr, local: SocketAddr, own: &[IpAddr], ports: SourcePorts) -> Result<(), Reason> {
    admit_source(peer.ip(), own)?;
    admit_port(peer, local, ports)
}

/// The source ports from which requests are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourcePorts {
    /// All but port 0, to which nothing can be sent (RFC 768). For a service that never answers a reply, or by
    /// configuration.
    Any,
    /// Not those of services that answer any datagram, nor the service's own: two of them could answer each other
    /// for ever.
    NoneThatAnswers,
}

impl SourcePorts {
    /// The rule for a service: it is guarded if its replies may be answered again, unless `any` is configured.
    #[must_use]
    pub const fn of(may_loop: bool, any: bool) -> Self {
        if may_loop && !any { Self::NoneThatAnswers } else { Self::Any }
    }
}

/// The part of [`admit`] that the kernel checks as well: no frame on a wire comes from such an address.
///
/// # Errors
/// The reason to refuse it.
pub fn admit_source(peer: IpAddr, own: &[IpAddr]) -> Result<(), Reason> {
    if is_martian(peer) || is_among(own, peer) { Err(Reason::MartianSource) } else { Ok(()) }
}

/// Whether a sorted list of addresses, which may be long, contains this one.
#[inline]
#[must_use]
pub fn is_among(addresses: &[IpAddr], address: IpAddr) -> bool {
    debug_assert!(addresses.is_sorted(), "{addresses:?}");
    addresses.binary_search(&address).is_ok()
}

/// The part of [`admit`] that also holds for clients on this host, whose source may be one of our own addresses.
///
/// # Errors
/// The reason to refuse it.
#[inline]
pub fn admit_port(peer: SocketAddr, local: SocketAddr, ports: SourcePorts) -> Result<(), Reason> {
    let refused = match ports {
        SourcePorts::Any => peer.port() == 0,
        SourcePorts::NoneThatAnswers => answers_by_itself(peer.port(), local.port()),
    };
    if refused { Err(Reason::ServiceSourcePort) } else { Ok(()) }
}

/// Whether no host can have this source address on a wire (RFC 1812, 5.3.7; RFC 4291, 2.5 and 2.7).
fn is_martian(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            v4.is_unspecified()
                || v4.is_loopback()
                || v4.is_multicast()
                || v4.octets()[0] == 0
                || v4 >= CLASS_E
        }
        IpAddr::V6(v6) => {
            v6.is_unspecified() || v6.is_loopback() || v6.is_multicast() || v6.to_ipv4_mapped().is_some()
        }
    }
}

/// 240.0.0.0/4 is reserved, and contains the limited broadcast address.
const CLASS_E: Ipv4Addr = Ipv4Addr::new(240, 0, 0, 0);

#[cfg(test)]
mod tests {
    use twinpath_reflex::ports::ANSWERING_PORTS;

    use super::*;

    fn verdict(peer: &str) -> Result<(), Reason> {
        let own = ["192.0.2.1".parse().expect("ip"), "2001:db8::1".parse().expect("ip")];
        let local = "192.0.2.1:7000".parse().expect("address");
        admit(peer.parse().expect("address"), local, &own, SourcePorts::of(true, false))
    }

    #[test]
    fn martians_are_refused() {
        for peer in [
            "0.0.0.0:4000",
            "0.1.2.3:4000",
            "127.0.0.1:4000",
            "224.0.0.1:4000",
            "255.255.255.255:4000",
            "250.1.1.1:4000",
            "240.0.0.0:4000",
            "192.0.2.1:4000",
            "[::]:4000",
            "[::1]:4000",
            "[ff02::1]:4000",
            "[::ffff:192.0.2.9]:4000",
            "[2001:db8::1]:4000",
        ] {
            assert_eq!(verdict(peer), Err(Reason::MartianSource), "{peer}");
        }
    }

    #[test]
    fn sources_that_would_answer_a_reply_are_refused() {
        for port in ANSWERING_PORTS.into_iter().chain([0, 7000]) {
            assert_eq!(verdict(&format!("192.0.2.9:{port}")), Err(Reason::ServiceSourcePort), "{port}");
        }
    }

    #[test]
    fn a_service_that_cannot_loop_or_was_asked_to_answers_every_port_that_can_be_answered() {
        let local = "192.0.2.1:7000".parse().expect("address");
        for ports in [SourcePorts::of(false, false), SourcePorts::of(true, true)] {
            for port in ANSWERING_PORTS.into_iter().chain([7000]) {
                let peer = SocketAddr::from(([192, 0, 2, 9], port));
                assert_eq!(admit(peer, local, &[], ports), Ok(()), "{port}");
            }
            let unanswerable = SocketAddr::from(([192, 0, 2, 9], 0));
            assert_eq!(admit(unanswerable, local, &[], ports), Err(Reason::ServiceSourcePort));
        }
    }

    #[test]
    fn other_sources_are_served() {
        for peer in [
            "192.0.2.9:4000",
            "10.0.0.1:65535",
            "1.0.0.0:1024",
            "126.255.255.255:1024",
            "223.255.255.255:1024",
            "[2001:db8::9]:1024",
            "[fe80::9]:5000",
            "[::ffff:0:192.0.2.9]:5000",
        ] {
            assert_eq!(verdict(peer), Ok(()), "{peer}");
        }
    }

    #[test]
    fn a_client_on_this_host_is_held_to_its_port_alone() {
        let local = "192.0.2.1:7000".parse().expect("address");
        let verdict =
            |peer: &str| admit_port(peer.parse().expect("address"), local, SourcePorts::NoneThatAnswers);
        assert_eq!(verdict("192.0.2.1:4000"), Ok(()));
        assert_eq!(verdict("127.0.0.1:4000"), Ok(()));
        for peer in ["192.0.2.1:7000", "192.0.2.1:0", "127.0.0.1:7"] {
            assert_eq!(verdict(peer), Err(Reason::ServiceSourcePort), "{peer}");
        }
    }
}
