//! Tests of the mirror with the real kernel: two namespaces joined by a veth pair, changes made with `ip`, every wait
//! for an event.

use std::net::IpAddr;
use std::time::Duration;

use twinpath_attach::mirror::egress_book::BookLimits;
use twinpath_attach::mirror::table::NeighbourState;
use twinpath_attach::mirror::{Event, Mirror, MirrorLimits};
use twinpath_sys::{Namespace, clock};
use twinpath_test_rig::{End, ip, ip_here, root_or_skip};
use twinpath_udp::egress::{Egress, KernelReason, Update};
use twinpath_wire::Mac;

const PATIENCE: Duration = Duration::from_secs(10);
const OURS: Mac = Mac([2, 0, 0, 0, 0, 1]);
const THEIRS: Mac = Mac([2, 0, 0, 0, 0, 2]);

/// Two namespaces: ours with `veth0` (10.0.0.1/24, fd00::1/64), and the peer's with `veth1` (.2 and ::2).
struct Pair {
    ours: Namespace,
    theirs: Namespace,
}

impl Pair {
    fn new() -> Self {
        let pair = Self { ours: namespace(), theirs: namespace() };
        let addresses = ["10.0.0.2/24", "fd00::2/64", "fe80::2/64"];
        twinpath_test_rig::pair(
            End {
                with: &format!("address {OURS}"),
                ..End::new(&pair.ours, "veth0", &["10.0.0.1/24", "fd00::1/64"])
            },
            End { with: &format!("address {THEIRS}"), ..End::new(&pair.theirs, "veth1", &addresses) },
        );
        pair
    }

    fn ip(&self, arguments: &str) {
        ip(&self.ours, arguments);
    }

    fn there(&self, arguments: &str) {
        ip(&self.theirs, arguments);
    }

    /// Runs `test` with a mirror of our namespace, which serves on `veth0`.
    fn mirrored(&self, limits: MirrorLimits, test: impl FnOnce(&mut Mirror, u32) + Send) {
        let work = || {
            let mut mirror = Mirror::open(limits).expect("the mirror opens");
            let ifindex = mirror.tables().link_named("veth0").expect("veth0 is there").ifindex;
            mirror.serve_on([ifindex]);
            test(&mut mirror, ifindex);
        };
        self.ours.run(work).expect("the test holds");
    }
}

fn namespace() -> Namespace {
    Namespace::new().expect("root may create a namespace")
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("an IP address")
}

/// The first event that `wanted` accepts.
fn until<R>(mirror: &mut Mirror, mut wanted: impl FnMut(&Mirror, &Event) -> Option<R>) -> R {
    let deadline = clock::now() + PATIENCE;
    loop {
        let event = mirror.next_by(deadline).expect("netlink works");
        let event = event.expect("the kernel tells within the deadline");
        if let Some(found) = wanted(mirror, &event) {
            return found;
        }
    }
}

fn until_event(mirror: &mut Mirror, expected: Event) {
    until(mirror, |_, event| (*event == expected).then_some(()));
}

/// Repeats the question after each clear until the egress of `peer` is the expected one, because one change
/// may arrive in several messages.
fn until_resolved(mirror: &mut Mirror, peer: IpAddr, wanted: impl Fn(Result<Egress, KernelReason>) -> bool) {
    while !wanted(mirror.resolve(peer, None, PATIENCE)) {
        until_event(mirror, Event::Egress(Update::Clear));
    }
}

#[test]
fn links_addresses_and_neighbours_are_seen_as_they_change() {
    if !root_or_skip() {
        return;
    }
    let pair = Pair::new();
    pair.mirrored(MirrorLimits::default(), |mirror, ifindex| {
        let link = mirror.tables().link(ifindex).unwrap().clone();
        assert_eq!((link.mac, link.mtu, link.kind.as_str(), link.ethernet), (Some(OURS), 1500, "veth", true));
        assert!(mirror.tables().addresses(ifindex).any(|held| held == (address("10.0.0.1"), 24)));
        assert!(mirror.tables().host_addresses().any(|held| held == address("fd00::1")));
        assert!(!mirror.tables().host_addresses().any(|held| held.is_loopback()));

        ip_here("link set veth0 mtu 1400");
        until(mirror, |_, event| matches!(event, Event::Link(link) if link.mtu == 1400).then_some(()));
        ip_here("addr add 10.0.0.9/24 dev veth0");
        until_event(mirror, Event::Addresses { ifindex });
        assert!(mirror.tables().addresses(ifindex).any(|held| held == (address("10.0.0.9"), 24)));
        ip_here("addr del 10.0.0.9/24 dev veth0");
        until_event(mirror, Event::Addresses { ifindex });
        assert!(!mirror.tables().host_addresses().any(|held| held == address("10.0.0.9")));

        ip_here("neigh replace 10.0.0.77 lladdr 02:00:00:00:00:77 dev veth0 nud permanent");
        until_event(mirror, Event::Neighbour { ifindex, address: address("10.0.0.77") });
        let neighbour = *mirror.tables().neighbour(ifindex, address("10.0.0.77")).unwrap();
        assert_eq!(
            (neighbour.mac, neighbour.state),
            (Some(Mac([2, 0, 0, 0, 0, 0x77])), NeighbourState::Permanent)
        );
        ip_here("neigh del 10.0.0.77 dev veth0");
        until(mirror, |mirror, _| {
            mirror.tables().neighbour(ifindex, address("10.0.0.77")).is_none().then_some(())
        });

        ip_here("link set veth0 down");
        until(mirror, |_, event| matches!(event, Event::Link(link) if !link.up).then_some(()));
        ip_here("link set veth0 name wan0");
        until_event(mirror, Event::Renamed { ifindex, from: "veth0".to_owned(), to: "wan0".to_owned() });
        ip_here("link del wan0");
        until_event(mirror, Event::LinkGone { ifindex, name: "wan0".to_owned() });
        assert_eq!(mirror.tables().addresses(ifindex).count(), 0);
    });
}

#[test]
fn peers_are_resolved_on_link_and_via_gateways_of_both_families() {
    if !root_or_skip() {
        return;
    }
    let pair = Pair::new();
    pair.ip("route add 10.8.0.0/16 via 10.0.0.2 mtu 1300");
    pair.ip("route add 10.9.0.0/16 via inet6 fd00::2 dev veth0");
    pair.ip("route add fd08::/16 via fd00::2");
    pair.ip("route add blackhole 10.66.0.0/16");
    pair.ip("link add other0 type veth peer name other1");
    pair.ip("link set other1 up");
    pair.ip("addr add 10.1.0.1/24 dev other0");
    pair.ip("link set other0 up");
    pair.mirrored(MirrorLimits::default(), |mirror, ifindex| {
        let expected = |mtu| Ok(Egress { ifindex, source_mac: OURS, next_hop_mac: THEIRS, mtu });
        for (peer, answer) in [
            ("10.0.0.2", expected(1500)),
            ("fd00::2", expected(1500)),
            ("fe80::2", expected(1500)),
            ("10.8.1.2", expected(1300)),
            ("10.9.1.2", expected(1500)),
            ("fd08::1", expected(1500)),
            ("10.1.0.7", Err(KernelReason::OtherInterface)),
            ("10.0.0.1", Err(KernelReason::NotPlain)),
            ("127.0.0.1", Err(KernelReason::NotPlain)),
            ("10.0.0.255", Err(KernelReason::NotPlain)),
            ("10.66.0.1", Err(KernelReason::NoRoute)),
            ("192.0.2.1", Err(KernelReason::NoRoute)),
        ] {
            let found = mirror.resolve(address(peer), None, PATIENCE);
            assert_eq!(found, answer, "{peer}");
        }
        let rows = mirror.report();
        let row = rows.iter().find(|row| row.peer == "10.8.1.2").unwrap();
        assert_eq!(
            (row.next_hop.as_str(), row.interface.as_str(), row.mac.as_deref(), row.mtu, row.egress.as_str()),
            ("10.0.0.2", "veth0", Some("02:00:00:00:00:02"), 1300, "fast")
        );
    });
}

#[test]
fn a_peer_that_comes_later_is_learnt_when_it_answers() {
    if !root_or_skip() {
        return;
    }
    let pair = Pair::new();
    pair.mirrored(MirrorLimits::default(), |mirror, ifindex| {
        let peer = address("10.0.0.33");
        mirror.ask(peer, None);
        let unresolved = Event::Egress(Update::Learn {
            peer,
            answer: Err(KernelReason::UnresolvedPeer { prefix_len: 24 }),
        });
        until_event(mirror, unresolved);
        // The kernel tries three times, a second apart: within that time the peer appears.
        pair.there("addr add 10.0.0.33/24 dev veth1");
        let answer = Ok(Egress { ifindex, source_mac: OURS, next_hop_mac: THEIRS, mtu: 1500 });
        let learnt = Event::Egress(Update::Learn { peer, answer });
        while !until(mirror, |_, event| match event {
            // An address of the new link has just become usable, so everything is forgotten: ask again.
            Event::Egress(Update::Clear) => Some(false),
            event => (*event == learnt).then_some(true),
        }) {
            mirror.ask(peer, None);
        }
        assert_eq!(mirror.counters().resolves_refused, 0);
    });
}

#[test]
fn a_change_of_route_link_or_address_clears_and_is_learnt_anew() {
    if !root_or_skip() {
        return;
    }
    let pair = Pair::new();
    pair.mirrored(MirrorLimits::default(), |mirror, _| {
        let peer = address("10.8.1.2");
        until_resolved(mirror, peer, |way| way == Err(KernelReason::NoRoute));
        ip_here("route add 10.8.0.0/16 via 10.0.0.2");
        until_resolved(mirror, peer, |way| way.is_ok_and(|egress| egress.mtu == 1500));
        ip_here("link set veth0 mtu 1400");
        until_resolved(mirror, peer, |way| way.is_ok_and(|egress| egress.mtu == 1400));
        ip_here("rule add to 10.8.0.0/16 prohibit");
        until_resolved(mirror, peer, |way| way == Err(KernelReason::NoRoute));
        ip_here("rule del to 10.8.0.0/16 prohibit");
        until_resolved(mirror, peer, |way| way.is_ok());
        ip_here("link set veth0 address 02:00:00:00:00:aa");
        let moved = Mac([2, 0, 0, 0, 0, 0xaa]);
        until_resolved(mirror, peer, |way| way.is_ok_and(|egress| egress.source_mac == moved));
    });
}

#[test]
fn policy_routing_by_source_is_asked_for_with_the_source() {
    if !root_or_skip() {
        return;
    }
    let pair = Pair::new();
    pair.ip("addr add 10.0.0.5/24 dev veth0");
    pair.ip("rule add from 10.0.0.5 prohibit");
    pair.mirrored(MirrorLimits::default(), |mirror, _| {
        let peer = address("10.0.0.2");
        assert!(mirror.resolve(peer, Some(address("10.0.0.1")), PATIENCE).is_ok());
        mirror.ask(peer, Some(address("10.0.0.5")));
        let refused = Event::Egress(Update::Learn { peer, answer: Err(KernelReason::NotPlain) });
        until_event(mirror, refused);
    });
}

#[test]
fn a_stale_neighbour_in_use_is_confirmed_by_the_kernel() {
    if !root_or_skip() {
        return;
    }
    let pair = Pair::new();
    // A short first wait: the kernel confirms 0.1 s after the first use, not 5.
    let quick = || std::fs::write("/proc/sys/net/ipv4/neigh/veth0/delay_first_probe_time", "0").unwrap();
    pair.ours.run(quick).unwrap();
    pair.ip(&format!("neigh replace 10.0.0.2 lladdr {THEIRS} dev veth0 nud stale"));
    pair.mirrored(MirrorLimits::default(), |mirror, ifindex| {
        let peer = address("10.0.0.2");
        assert!(mirror.resolve(peer, None, PATIENCE).is_ok());
        until(mirror, |mirror, _| {
            let neighbour = mirror.tables().neighbour(ifindex, peer)?;
            (neighbour.state == NeighbourState::Reachable).then_some(())
        });
        assert_eq!(mirror.counters().book.resolves, 1);
    });
}

#[test]
fn an_idle_peer_is_forgotten() {
    if !root_or_skip() {
        return;
    }
    let pair = Pair::new();
    let book = BookLimits { keep: Duration::from_millis(80), ..BookLimits::default() };
    pair.mirrored(MirrorLimits { book, ..MirrorLimits::default() }, |mirror, _| {
        let peer = address("10.0.0.2");
        loop {
            assert!(mirror.resolve(peer, None, PATIENCE).is_ok());
            let forgotten = until(mirror, |_, event| match event {
                Event::Egress(Update::Forget { peer: forgotten }) => Some(*forgotten == peer),
                // An address of the new link has just become usable, so everything is forgotten: ask again.
                Event::Egress(Update::Clear) => Some(false),
                _ => None,
            });
            if forgotten {
                return;
            }
        }
    });
}

#[test]
fn lost_notifications_are_noticed_and_everything_is_read_again() {
    if !root_or_skip() {
        return;
    }
    let pair = Pair::new();
    let limits = MirrorLimits { notification_bytes: 4096, ..MirrorLimits::default() };
    pair.mirrored(limits, |mirror, ifindex| {
        for number in 1..=60 {
            ip_here(&format!("neigh add 10.0.0.{} lladdr {THEIRS} dev veth0 nud permanent", number + 100));
        }
        ip_here("addr add 10.0.0.9/24 dev veth0");
        ip_here("link set veth0 down");
        ip_here("link set veth0 name wan0");
        ip_here("link set wan0 up");
        until(mirror, |mirror, _| (mirror.tables().link(ifindex)?.name == "wan0").then_some(()));
        assert!(mirror.counters().overruns > 0);
        assert!(mirror.tables().addresses(ifindex).any(|held| held == (address("10.0.0.9"), 24)));
    });
}

#[test]
fn what_waited_when_notifications_were_lost_does_not_undo_what_is_read() {
    if !root_or_skip() {
        return;
    }
    let pair = Pair::new();
    let limits = MirrorLimits { notification_bytes: 16 * 1024, ..MirrorLimits::default() };
    pair.mirrored(limits, |mirror, ifindex| {
        // It is the first to wait, and so is not lost.
        ip_here("link set veth0 mtu 1400");
        for number in 1..=60 {
            ip_here(&format!("neigh add 10.0.0.{} lladdr {THEIRS} dev veth0 nud permanent", number + 100));
        }
        ip_here("link set veth0 mtu 1300");
        until(mirror, |mirror, _| (mirror.counters().overruns > 0).then_some(()));
        while mirror.next_by(clock::now()).expect("netlink works").is_some() {}
        assert_eq!(mirror.tables().link(ifindex).unwrap().mtu, 1300);
    });
}

#[test]
fn a_full_neighbour_table_leaves_the_rest_out_and_counts() {
    if !root_or_skip() {
        return;
    }
    let pair = Pair::new();
    for number in 1..=5 {
        pair.ip(&format!("neigh add 10.0.0.{} lladdr {THEIRS} dev veth0 nud permanent", number + 100));
    }
    pair.mirrored(MirrorLimits { neighbours: 2, ..MirrorLimits::default() }, |mirror, _| {
        assert_eq!(mirror.tables().neighbours_len(), 2);
        assert!(mirror.counters().neighbours_refused >= 3);
    });
}
