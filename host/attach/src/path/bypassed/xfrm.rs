//! Finds IPsec policies that apply to claimed packets (NETLINK_XFRM, linux/xfrm.h). The contents of a
//! policy do not matter, because the fast path would bypass it in any case.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rustix::io::Errno;
use twinpath_netlink::{Body, Netlink, NetlinkError, Protocol, Request};

use super::{Bypassed, Claimed};

// linux/xfrm.h
const XFRM_MSG_NEWPOLICY: u16 = 0x13;
const XFRM_MSG_GETPOLICY: u16 = 0x15;
const XFRM_MSG_GETDEFAULT: u16 = 0x28;
const XFRM_USERPOLICY_BLOCK: u8 = 1;
/// Bytes of `struct xfrm_userpolicy_info`.
const POLICY_LEN: usize = 168;
const UDP: u8 = 17;
const AF_INET: u16 = 2;

/// The direction of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    In,
    Out,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::In => "dir in",
            Self::Out => "dir out",
        })
    }
}

/// Looks for a policy that applies to the claims, in the calling thread's network namespace.
pub(super) fn look(claimed: &Claimed) -> Result<Option<Bypassed>, NetlinkError> {
    let netlink = match Netlink::open(Protocol::Xfrm) {
        Ok(netlink) => netlink,
        // A kernel without IPsec.
        Err(error) if error.is(Errno::PROTONOSUPPORT) => return Ok(None),
        Err(error) => return Err(error),
    };
    // Linux before 5.16 has no default, and refuses the request.
    let body = Body::new([0; 4]);
    let default = netlink.request(&Request::new("tell the default IPsec policy", XFRM_MSG_GETDEFAULT, &body));
    let default = default.unwrap_or_default();
    if let Some(direction) = default.iter().find_map(|message| default_of(message.kind, message.body)) {
        return Ok(Some(Bypassed::DefaultBlocks(direction)));
    }
    let body = Body::new([0; 64]);
    let policies = netlink.request(&Request::list("list the IPsec policies", XFRM_MSG_GETPOLICY, &body))?;
    let mut policies = policies.iter().filter(|message| message.kind == XFRM_MSG_NEWPOLICY);
    Ok(policies.find_map(|message| policy_on(message.body, claimed)).map(Bypassed::Policy))
}

/// The direction in which packets without a policy are blocked (`struct xfrm_userpolicy_default`: in, forward, out).
fn default_of(kind: u16, body: &[u8]) -> Option<Direction> {
    let [into, _, out] = *body.first_chunk()?;
    match (kind == XFRM_MSG_GETDEFAULT, into, out) {
        (true, XFRM_USERPOLICY_BLOCK, _) => Some(Direction::In),
        (true, _, XFRM_USERPOLICY_BLOCK) => Some(Direction::Out),
        _ => None,
    }
}

/// The direction of a policy (`struct xfrm_userpolicy_info`) if it selects claimed packets or their
/// replies. Policies of a single socket (directions from 3 on) do not apply to others.
fn policy_on(body: &[u8], claimed: &Claimed) -> Option<Direction> {
    let body: &[u8; POLICY_LEN] = body.first_chunk()?;
    let word = |at: usize| u16::from_ne_bytes([body[at], body[at + 1]]);
    let port = |at: usize| u16::from_be_bytes([body[at], body[at + 1]]);
    let (daddr, saddr) = (&body[..16], &body[16..32]);
    let (own, prefix_len, wanted, mask, direction) = match body[160] {
        0 => (daddr, body[42], port(32), port(34), Direction::In),
        1 => (saddr, body[43], port(36), port(38), Direction::Out),
        _ => return None,
    };
    let family = word(40);
    let ifindex = u32::from_ne_bytes([body[48], body[49], body[50], body[51]]);
    let at_address = |address: &IpAddr| {
        // A policy without a family selects both (`xfrm_selector_match`).
        let same_family = family == 0 || (family == AF_INET) == address.is_ipv4();
        same_family && starts_alike(*address, own, prefix_len)
    };
    let selects = (body[44] == 0 || body[44] == UDP)
        && (ifindex == 0 || ifindex == claimed.ifindex)
        && claimed.ports.iter().any(|port| port & mask == wanted & mask)
        && claimed.addresses.iter().any(at_address);
    selects.then_some(direction)
}

/// Whether the first bits of an address equal the selector's, which has the size of an IPv6 address.
fn starts_alike(address: IpAddr, of_selector: &[u8], prefix_len: u8) -> bool {
    let bits = |bytes: &[u8; 16]| u128::from_be_bytes(*bytes);
    let Some(selector) = of_selector.first_chunk::<16>() else { return false };
    let own = match address {
        IpAddr::V4(address) => u128::from(Ipv4Addr::to_bits(address)) << 96,
        IpAddr::V6(address) => Ipv6Addr::to_bits(address),
    };
    let differ = own ^ bits(selector);
    prefix_len == 0 || differ.leading_zeros() >= u32::from(prefix_len)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A policy on UDP port 7 of 10.7.0.0/24, changed.
    fn policy(direction: u8, change: impl Fn(&mut [u8])) -> Vec<u8> {
        let mut body = vec![0; POLICY_LEN];
        let own = if direction == 0 { 0 } else { 16 };
        body[own..own + 4].copy_from_slice(&[10, 7, 0, 0]);
        body[if direction == 0 { 42 } else { 43 }] = 24;
        let port_at = if direction == 0 { 32 } else { 36 };
        body[port_at..port_at + 4].copy_from_slice(&[0, 7, 0xff, 0xff]);
        body[40..42].copy_from_slice(&AF_INET.to_ne_bytes());
        (body[44], body[160]) = (UDP, direction);
        change(&mut body);
        body
    }

    #[test]
    fn a_policy_is_on_what_is_claimed_if_protocol_port_address_and_interface_agree() {
        let claimed = Claimed {
            ifindex: 3,
            interface: "eth0".to_owned(),
            addresses: vec!["10.7.0.2".parse().expect("ip"), "fd00::2".parse().expect("ip")],
            ports: vec![9, 7],
        };
        let on = |direction, change: &dyn Fn(&mut [u8])| policy_on(&policy(direction, change), &claimed);
        for (number, direction) in [(0, Direction::In), (1, Direction::Out)] {
            assert_eq!(on(number, &|_| {}), Some(direction));
            assert_eq!(on(number, &|body| body[44] = 0), Some(direction), "any protocol");
            assert_eq!(on(number, &|body| body[32..40].fill(0)), Some(direction), "any port");
            assert_eq!(on(number, &|body| body[48] = 3), Some(direction), "this interface");
            // All addresses of either family.
            assert_eq!(on(number, &|body| (body[40], body[42], body[43]) = (0, 0, 0)), Some(direction));
            assert_eq!(on(number, &|body| body[44] = 6), None, "TCP");
            assert_eq!(on(number, &|body| (body[33], body[37]) = (8, 8)), None, "another port");
            assert_eq!(on(number, &|body| body[48] = 4), None, "another interface");
            assert_eq!(on(number, &|body| (body[2], body[18]) = (1, 1)), None, "another address");
            assert_eq!(on(number, &|body| body[40] = 10), None, "another family");
        }
        assert_eq!(on(2, &|_| {}), None, "forwarded");
        assert_eq!(on(3, &|_| {}), None, "of one socket");
        assert_eq!(policy_on(&policy(0, |_| {})[..100], &claimed), None, "cut short");
    }

    #[test]
    fn a_default_that_blocks_is_seen() {
        assert_eq!(default_of(XFRM_MSG_GETDEFAULT, &[1, 2, 2, 0]), Some(Direction::In));
        assert_eq!(default_of(XFRM_MSG_GETDEFAULT, &[2, 1, 1, 0]), Some(Direction::Out));
        assert_eq!(default_of(XFRM_MSG_GETDEFAULT, &[2, 1, 2, 0]), None);
        assert_eq!(default_of(XFRM_MSG_GETDEFAULT, &[1]), None);
    }
}
