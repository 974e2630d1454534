//! Whether the kernel may drop what comes from some address because it has no route there, where `rp_filter` is loose (2): it looks each
//! sender up in its routes (`__fib_validate_source`, net/ipv4/fib_frontend.c).

use std::io;

use netlink_packet_core::{NLM_F_DUMP, NlasIterator, parse_u32};
use netlink_sys::protocols::NETLINK_ROUTE;
use twinpath_netlink::Netlink;

use super::Bypassed;

// linux/rtnetlink.h, linux/fib_rules.h
const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
const RTM_NEWRULE: u16 = 32;
const RTM_GETRULE: u16 = 34;
const RTM_F_FIB_MATCH: u32 = 0x2000;
const RTA_DST: u16 = 1;
const RTN_UNICAST: u8 = 1;
const FRA_PRIORITY: u16 = 6;
const AF_INET: u8 = 2;
/// Bytes of `struct rtmsg`, and of `struct fib_rule_hdr`.
const HEADER_LEN: usize = 12;
/// The rules that are there from the beginning: their tables (local, main, default), and their priorities.
const USUAL: [(u8, u32); 3] = [(255, 0), (254, 32_766), (253, 32_767)];

/// A reserved address, to which nobody has a route of its own.
const NOBODY: [u8; 4] = [240, 0, 0, 1];

/// Why the kernel may find no route to a sender, in the calling thread's network namespace.
pub(super) fn look() -> io::Result<Option<Bypassed>> {
    let netlink = Netlink::connect(NETLINK_ROUTE)?;
    let mut header = [0; HEADER_LEN];
    header[0] = AF_INET;
    let mut has_others = false;
    netlink.request(RTM_GETRULE, NLM_F_DUMP, &header, |kind, body| {
        has_others |= kind == RTM_NEWRULE && !is_usual(body);
    })?;
    if has_others {
        return Ok(Some(Bypassed::LooseSourceCheck(
            "there are routing rules beside the usual ones (ip rule)",
        )));
    }
    header[1] = 32;
    header[8..].copy_from_slice(&RTM_F_FIB_MATCH.to_ne_bytes());
    let attribute = [&8u16.to_ne_bytes()[..], &RTA_DST.to_ne_bytes(), &NOBODY].concat();
    let mut has_default = false;
    let asked = netlink.request(RTM_GETROUTE, 0, &[&header[..], &attribute].concat(), |kind, body| {
        has_default |= kind == RTM_NEWROUTE && body.get(7) == Some(&RTN_UNICAST);
    });
    // Without a route the kernel answers with an error, and means that.
    Ok((asked.is_err() || !has_default).then_some(Bypassed::LooseSourceCheck("there is no default route")))
}

fn is_usual(rule: &[u8]) -> bool {
    let Some(&[_, to_len, from_len, service, table, ..]) = rule.first_chunk::<HEADER_LEN>() else {
        return false;
    };
    let attributes = NlasIterator::new(&rule[HEADER_LEN..]).filter_map(Result::ok);
    let priority = attributes.filter(|attribute| attribute.kind() == FRA_PRIORITY);
    let priority = priority.filter_map(|attribute| parse_u32(attribute.value()).ok()).last().unwrap_or(0);
    (to_len, from_len, service) == (0, 0, 0) && USUAL.contains(&(table, priority))
}

#[cfg(test)]
mod tests {
    use twinpath_sys::Namespace;

    use super::*;

    #[test]
    fn without_a_default_route_or_with_rules_a_sender_may_have_no_route() {
        if !twinpath_test_skip::root_or_skip() {
            return;
        }
        let looked = Namespace::new().and_then(|namespace| {
            namespace.run(|| {
                let mut looks = Vec::new();
                let mut after = |arguments: &str| {
                    twinpath_test_rig::ip_here(arguments);
                    looks.push(look().expect("an answer").is_some());
                };
                after("link set lo up");
                after("route add default dev lo");
                after("rule add from 192.0.2.0/24 table 100");
                after("rule del from 192.0.2.0/24 table 100");
                after("route change blackhole default");
                looks
            })
        });
        assert_eq!(looked.expect("a namespace"), [true, false, true, false, true]);
    }
}
