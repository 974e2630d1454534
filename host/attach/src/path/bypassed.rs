//! Detects packet processing that the kernel is configured to do for arriving packets, and that the fast
//! path would bypass. If there is any, nothing is claimed, and the kernel's sockets serve.
//!
//! The check runs on the control thread when attaching, and when the kernel announces a change (`announced.rs`, and the mirror for
//! `rp_filter`). A process without CAP_NET_ADMIN cannot read the IPsec policies.

use std::fmt;
use std::net::IpAddr;

mod sources;
mod xfrm;

/// The claims, in the terms of a policy.
#[derive(Clone, Debug)]
pub struct Claimed {
    /// Kernel index of the interface.
    pub ifindex: u32,
    /// Its name.
    pub interface: String,
    /// Our addresses there.
    pub addresses: Vec<IpAddr>,
    /// UDP ports, host order.
    pub ports: Vec<u16>,
}

/// The reason why nothing may be claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bypassed {
    /// An IPsec policy selects claimed packets, or their replies.
    Policy(xfrm::Direction),
    /// The host drops packets that no IPsec policy selects.
    DefaultBlocks(xfrm::Direction),
    /// `rp_filter` is strict (RFC 3704 section 2.2).
    StrictSourceCheck,
    /// `rp_filter` is loose, and the kernel may lack a route to a sender and therefore drop its packets.
    LooseSourceCheck(&'static str),
}

impl fmt::Display for Bypassed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Policy(direction) => {
                write!(f, "an IPsec policy ({direction}) is on what would be claimed, and the fast path knows none (ip xfrm policy)")
            }
            Self::DefaultBlocks(direction) => write!(
                f,
                "the host blocks what no IPsec policy selects ({direction}), and the fast path knows none (ip xfrm policy getdefault)"
            ),
            Self::StrictSourceCheck => f.write_str(
                "rp_filter is strict here (1), and the fast path does not check by which interface a sender's address is routed: set \
                 net.ipv4.conf.all.rp_filter and that of the interface to 2 or 0 to claim it",
            ),
            Self::LooseSourceCheck(why) => write!(
                f,
                "rp_filter is loose here (2), and {why}: the kernel drops what comes from senders without a route, which the fast path \
                 does not look for; set net.ipv4.conf.all.rp_filter and that of the interface to 0 for it"
            ),
        }
    }
}

/// The reason why nothing may be claimed now, if there is one. Processing that cannot be detected counts as
/// absent.
pub fn look(claimed: &Claimed) -> Option<Bypassed> {
    if claimed.ports.is_empty() {
        return None;
    }
    if claimed.addresses.iter().any(IpAddr::is_ipv4) && is_strict(&claimed.interface) {
        return Some(Bypassed::StrictSourceCheck);
    }
    match xfrm::look(claimed) {
        Ok(found) => found,
        Err(error) => {
            tracing::debug!("cannot ask for IPsec policies: {error}");
            None
        }
    }
}

/// Like [`look`], for sockets of applications. A service without a route to a sender cannot reply to it,
/// but an application may do anything with the packets that it receives.
pub fn look_for_sockets(claimed: &Claimed) -> Option<Bypassed> {
    let found = look(claimed);
    if found.is_some() || claimed.ports.is_empty() || !has_loose_source_check(&claimed.interface) {
        return found;
    }
    sources::look().unwrap_or_else(|error| {
        tracing::debug!("cannot ask for routes: {error}");
        None
    })
}

/// Whether the kernel looks up a route to each sender: then routes and rules matter to
/// [`look_for_sockets`].
#[must_use]
pub fn has_loose_source_check(interface: &str) -> bool {
    source_check(interface) == 2
}

fn is_strict(interface: &str) -> bool {
    source_check(interface) == 1
}

/// The kernel takes the larger of the two values (Documentation/networking/ip-sysctl.rst).
fn source_check(interface: &str) -> u8 {
    let value = |of: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/net/ipv4/conf/{of}/rp_filter"));
        text.ok().and_then(|text| text.trim().parse::<u8>().ok()).unwrap_or(0)
    };
    value("all").max(value(interface))
}
