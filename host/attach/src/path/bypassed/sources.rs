//! Whether the kernel may drop packets from some senders because it has no route to them. With a loose
//! `rp_filter` (2) it looks up a route to each sender (`__fib_validate_source`, net/ipv4/fib_frontend.c).

use twinpath_netlink::{Body, Message, Netlink, NetlinkError, Protocol, Request};

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
/// The default rules: their tables (local, main, default), and their priorities.
const USUAL: [(u8, u32); 3] = [(255, 0), (254, 32_766), (253, 32_767)];

/// A reserved address that never has a route of its own.
const NOBODY: [u8; 4] = [240, 0, 0, 1];

/// Why the kernel may find no route to a sender, in the calling thread's network namespace.
pub(super) fn look() -> Result<Option<Bypassed>, NetlinkError> {
    let netlink = Netlink::open(Protocol::Route)?;
    let mut header = [0; HEADER_LEN];
    header[0] = AF_INET;
    let body = Body::new(header);
    let rules = netlink.request(&Request::list("list the routing rules", RTM_GETRULE, &body))?;
    if rules.iter().any(|message| message.kind == RTM_NEWRULE && !is_usual(&message)) {
        return Ok(Some(Bypassed::LooseSourceCheck(
            "there are routing rules beside the usual ones (ip rule)",
        )));
    }
    header[1] = 32;
    header[8..].copy_from_slice(&RTM_F_FIB_MATCH.to_ne_bytes());
    let body = Body::new(header).bytes(RTA_DST, NOBODY);
    let routes = netlink.request(&Request::new("find the default route", RTM_GETROUTE, &body));
    let is_default =
        |message: Message<'_>| message.kind == RTM_NEWROUTE && message.body.get(7) == Some(&RTN_UNICAST);
    // Without a route the kernel answers with an error, which is not a failure here.
    let has_default = routes.is_ok_and(|routes| routes.iter().any(is_default));
    Ok((!has_default).then_some(Bypassed::LooseSourceCheck("there is no default route")))
}

fn is_usual(rule: &Message<'_>) -> bool {
    let Some((&[_, to_len, from_len, service, table, ..], attributes)) = rule.parts::<HEADER_LEN>() else {
        return false;
    };
    let priority = attributes.u32(FRA_PRIORITY).unwrap_or(0);
    (to_len, from_len, service) == (0, 0, 0) && USUAL.contains(&(table, priority))
}

#[cfg(test)]
mod tests {
    use twinpath_sys::Namespace;

    use super::*;

    #[test]
    fn without_a_default_route_or_with_rules_a_sender_may_have_no_route() {
        if !twinpath_test_rig::root_or_skip() {
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
