use twinpath_wire::Mac;

use super::*;
use crate::mirror::table::{Change, Link, Neighbour};

const FAST: u32 = 3;
const OTHER: u32 = 4;
const OURS: Mac = Mac([2, 0, 0, 0, 0, 1]);
const GATEWAY_MAC: Mac = Mac([2, 0, 0, 0, 0, 9]);

fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn link(ifindex: u32) -> Link {
    Link {
        ifindex,
        name: format!("if{ifindex}"),
        mac: Some(OURS),
        mtu: 1500,
        has_queue: false,
        up: true,
        running: true,
        ethernet: true,
        loopback: false,
        kind: String::new(),
        master: None,
        port_kind: String::new(),
        lower: None,
        xdp_program: None,
        rx_queues: 1,
        tx_queues: 1,
        gro_max: 65_536,
    }
}

fn tables() -> Tables {
    let mut tables = Tables::new(16);
    for ifindex in [FAST, OTHER] {
        tables.apply(Change::Link(link(ifindex)), &mut Vec::new());
    }
    tables
}

/// Sets a neighbour and notifies the book, as the mirror does.
fn neighbour(book: &mut EgressBook, tables: &mut Tables, address: &str, state: NeighbourState) {
    let neighbour = Neighbour { mac: Some(GATEWAY_MAC), state, kept_by_other: false };
    tables.apply(Change::Neighbour { ifindex: FAST, address: ip(address), neighbour }, &mut Vec::new());
    book.neighbour_changed(FAST, ip(address), at(1), tables);
}

fn book(limits: BookLimits) -> EgressBook {
    let mut book = EgressBook::new(limits);
    book.serve_on([FAST]);
    book
}

fn steps(book: &mut EgressBook) -> Vec<Step> {
    std::iter::from_fn(|| book.step()).collect()
}

/// Asks for a peer and returns the resulting question.
fn question(book: &mut EgressBook, tables: &Tables, peer: &str, now: Instant) -> Question {
    book.ask(ip(peer), None, now, tables);
    match steps(book).as_slice() {
        [Step::AskRoute(question)] => *question,
        other => panic!("one question expected, not {other:?}"),
    }
}

fn by(next_hop: &str, mtu: Option<u32>) -> Result<Route, KernelReason> {
    Ok(Route { ifindex: FAST, next_hop: ip(next_hop), mtu })
}

fn learn(peer: &str, answer: Result<u32, KernelReason>) -> Step {
    let egress = |mtu| Egress { ifindex: FAST, source_mac: OURS, next_hop_mac: GATEWAY_MAC, mtu };
    Step::Tell(Update::Learn { peer: ip(peer), answer: answer.map(egress) })
}

fn ask_again(peer: &str) -> Step {
    Step::Tell(Update::AskAgain { peer: ip(peer) })
}

#[test]
fn a_peer_behind_a_gateway_is_learnt_when_the_gateway_is() {
    let (mut book, mut tables) = (book(BookLimits::default()), tables());
    let asked = question(&mut book, &tables, "10.9.9.9", at(1));
    book.route_answered(asked, by("10.0.0.254", Some(1400)), at(1), &tables);
    let resolve = Step::Resolve { ifindex: FAST, next_hop: ip("10.0.0.254") };
    assert_eq!(steps(&mut book), [learn("10.9.9.9", Err(KernelReason::Unresolved)), resolve]);

    neighbour(&mut book, &mut tables, "10.0.0.254", NeighbourState::Reachable);
    assert_eq!(steps(&mut book), [learn("10.9.9.9", Ok(1400))]);

    // Nothing changed for the peer. Workers ask if it is still in use.
    neighbour(&mut book, &mut tables, "10.0.0.254", NeighbourState::Stale);
    assert_eq!(steps(&mut book), [ask_again("10.9.9.9")]);
    neighbour(&mut book, &mut tables, "10.0.0.1", NeighbourState::Reachable);
    assert_eq!(steps(&mut book), []);

    neighbour(&mut book, &mut tables, "10.0.0.254", NeighbourState::Failed);
    assert_eq!(steps(&mut book), [learn("10.9.9.9", Err(KernelReason::Unresolved))]);
}

#[test]
fn the_mtu_is_the_least_of_link_and_path() {
    let (mut book, mut tables) = (book(BookLimits::default()), tables());
    neighbour(&mut book, &mut tables, "fe80::9", NeighbourState::Permanent);
    for (peer, route_mtu, told) in
        [("2001:db8::1", Some(9000), 1500), ("2001:db8::2", Some(1280), 1280), ("2001:db8::3", None, 1500)]
    {
        let asked = question(&mut book, &tables, peer, at(1));
        book.route_answered(asked, by("fe80::9", route_mtu), at(1), &tables);
        assert_eq!(steps(&mut book), [learn(peer, Ok(told))]);
    }
}

#[test]
fn what_is_not_plain_goes_to_the_kernel_and_says_why() {
    let (mut book, mut tables) = (book(BookLimits::default()), tables());
    let mut reason = |peer: &str, answer, tables: &Tables| {
        let asked = question(&mut book, tables, peer, at(1));
        book.route_answered(asked, answer, at(1), tables);
        let told = steps(&mut book);
        let Some(Step::Tell(Update::Learn { answer: Err(reason), .. })) = told.first() else {
            panic!("a refusal expected, not {told:?}");
        };
        *reason
    };
    let other = Ok(Route { ifindex: OTHER, next_hop: ip("10.1.0.1"), mtu: None });
    assert_eq!(reason("10.1.0.1", other, &tables), KernelReason::OtherInterface);
    assert_eq!(reason("10.1.0.2", Err(KernelReason::NotPlain), &tables), KernelReason::NotPlain);
    assert_eq!(reason("10.1.0.3", Err(KernelReason::NoRoute), &tables), KernelReason::NoRoute);
    tables.apply(Change::Link(Link { mac: None, ethernet: false, ..link(FAST) }), &mut Vec::new());
    assert_eq!(reason("10.1.0.4", by("10.1.0.4", None), &tables), KernelReason::NotPlain);
    tables.apply(Change::Link(Link { up: false, ..link(FAST) }), &mut Vec::new());
    assert_eq!(reason("10.1.0.5", by("10.1.0.5", None), &tables), KernelReason::NoRoute);
    tables.apply(Change::LinkGone(FAST), &mut Vec::new());
    assert_eq!(reason("10.1.0.6", by("10.1.0.6", None), &tables), KernelReason::NoRoute);
}

#[test]
fn a_change_of_routes_clears_once_and_old_answers_are_ignored() {
    let (mut book, mut tables) = (book(BookLimits::default()), tables());
    neighbour(&mut book, &mut tables, "10.0.0.2", NeighbourState::Reachable);
    let first = question(&mut book, &tables, "10.0.0.2", at(1));
    book.route_answered(first, by("10.0.0.2", None), at(1), &tables);
    steps(&mut book);
    let late = question(&mut book, &tables, "10.0.0.3", at(1));
    // Not taken yet: updates from former routes must not follow the clear.
    book.ask(ip("10.0.0.2"), None, at(2), &tables);
    book.routes_changed();
    book.routes_changed();
    assert_eq!(steps(&mut book), [Step::Tell(Update::Clear)]);

    book.route_answered(late, by("10.0.0.3", None), at(2), &tables);
    assert_eq!(steps(&mut book), []);
    assert_eq!(book.told(ip("10.0.0.3")), None);

    let again = question(&mut book, &tables, "10.0.0.3", at(3));
    assert_eq!(again.generation, late.generation + 2);
    assert_eq!(book.counters().clears, 1);
}

#[test]
fn a_stale_neighbour_in_use_is_confirmed_but_not_at_every_question() {
    let (mut book, mut tables) = (book(BookLimits::default()), tables());
    neighbour(&mut book, &mut tables, "10.0.0.2", NeighbourState::Stale);
    let asked = question(&mut book, &tables, "10.0.0.2", at(1));
    book.route_answered(asked, by("10.0.0.2", None), at(1), &tables);
    let resolve = Step::Resolve { ifindex: FAST, next_hop: ip("10.0.0.2") };
    assert_eq!(steps(&mut book), [learn("10.0.0.2", Ok(1500)), resolve]);

    book.ask(ip("10.0.0.2"), None, at(1) + Duration::from_millis(999), &tables);
    assert_eq!(steps(&mut book), [learn("10.0.0.2", Ok(1500))]);
    book.ask(ip("10.0.0.2"), None, at(2), &tables);
    assert_eq!(steps(&mut book), [resolve, learn("10.0.0.2", Ok(1500))]);

    // Resolving a permanent entry would change it to an ordinary one.
    neighbour(&mut book, &mut tables, "10.0.0.2", NeighbourState::Permanent);
    book.ask(ip("10.0.0.2"), None, at(4), &tables);
    assert_eq!(steps(&mut book), [learn("10.0.0.2", Ok(1500))]);
}

#[test]
fn an_entry_that_another_program_keeps_is_left_to_it() {
    let (mut book, mut tables) = (book(BookLimits::default()), tables());
    for (peer, state) in [("10.0.0.2", NeighbourState::Stale), ("10.0.0.3", NeighbourState::Failed)] {
        let neighbour = Neighbour { mac: Some(GATEWAY_MAC), state, kept_by_other: true };
        tables.apply(Change::Neighbour { ifindex: FAST, address: ip(peer), neighbour }, &mut Vec::new());
        let asked = question(&mut book, &tables, peer, at(1));
        book.route_answered(asked, by(peer, None), at(1), &tables);
        assert!(!steps(&mut book).iter().any(|step| matches!(step, Step::Resolve { .. })), "{state:?}");
    }
}

#[test]
fn an_old_answer_is_asked_for_again_while_the_old_one_serves() {
    let (mut book, mut tables) = (book(BookLimits::default()), tables());
    neighbour(&mut book, &mut tables, "10.0.0.2", NeighbourState::Reachable);
    let asked = question(&mut book, &tables, "10.0.0.2", at(1));
    book.route_answered(asked, by("10.0.0.2", None), at(1), &tables);
    steps(&mut book);
    book.ask(ip("10.0.0.2"), None, at(11), &tables);
    let told = steps(&mut book);
    let [first, Step::AskRoute(again)] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!(*first, learn("10.0.0.2", Ok(1500)));
    // While the question is open, further requests do not repeat it.
    book.ask(ip("10.0.0.2"), None, at(22), &tables);
    assert_eq!(steps(&mut book), []);
    // A path MTU learnt meanwhile.
    book.route_answered(*again, by("10.0.0.2", Some(1300)), at(22), &tables);
    assert_eq!(steps(&mut book), [learn("10.0.0.2", Ok(1300))]);
}

#[test]
fn peers_and_questions_are_bounded() {
    let limits = BookLimits { peers: 3, questions: 2, ..BookLimits::default() };
    let (mut book, tables) = (book(limits), tables());
    for peer in 1..=5 {
        book.ask(ip(&format!("10.0.0.{peer}")), None, at(1), &tables);
    }
    let asked = steps(&mut book);
    assert_eq!((asked.len(), book.len(), book.counters().peers_refused), (2, 3, 2));
    let [Step::AskRoute(first), Step::AskRoute(_)] = asked.as_slice() else { panic!("{asked:?}") };
    book.route_answered(*first, Err(KernelReason::NoRoute), at(1), &tables);
    let then = steps(&mut book);
    assert!(
        matches!(then.as_slice(), [Step::Tell(_), Step::AskRoute(third)] if third.peer == ip("10.0.0.3"))
    );
}

#[test]
fn a_full_book_drops_peers_that_were_asked_about_once_and_keeps_active_ones() {
    let limits = BookLimits { peers: 3, ..BookLimits::default() };
    let (mut book, tables) = (book(limits), tables());
    let mut ask = |peer: &str, now| {
        book.ask(ip(peer), None, now, &tables);
        let mut taken = Vec::new();
        while let Some(step) = book.step() {
            if let Step::AskRoute(question) = step {
                book.route_answered(question, Err(KernelReason::NoRoute), now, &tables);
            }
            taken.push(step);
        }
        taken
    };
    let forget = |peer: &str| Step::Tell(Update::Forget { peer: ip(peer) });
    ask("10.0.0.1", at(1));
    ask("10.0.0.2", at(1));
    ask("10.0.0.1", at(2));
    ask("10.0.0.3", at(2));
    assert_eq!(ask("10.0.0.4", at(1)), [], "the clock went back: refused");
    assert!(ask("10.0.0.4", at(2)).contains(&forget("10.0.0.2")), "asked about once, a second ago");
    assert!(!ask("10.0.0.5", at(2)).contains(&forget("10.0.0.3")), "not yet");
    assert!(ask("10.0.0.5", at(3)).contains(&forget("10.0.0.3")));
    ask("10.0.0.4", at(3));
    ask("10.0.0.5", at(3));
    assert!(!ask("10.0.0.6", at(30)).contains(&forget("10.0.0.1")), "active peers stay");
    assert_eq!((book.len(), book.new_peers.len(), book.counters().peers_refused), (3, 0, 3));
    book.sweep(at(63));
    assert!(book.is_empty() && book.new_peers.is_empty() && book.deadline().is_none());
}

/// Seeded: a flood of sources that are asked about once each, at the maximum rate of a worker, while active
/// peers are asked about every ten seconds.
#[test]
fn a_flood_of_questions_costs_no_peer_that_talks_its_entry() {
    for seed in 0..4 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut book, tables) = (book(BookLimits::default()), tables());
        let address = |number: u32| IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + number));
        let ask = |book: &mut EgressBook, number: u32, now| {
            book.ask(address(number), None, now, &tables);
            for step in steps(book) {
                match step {
                    Step::AskRoute(question) => {
                        book.route_answered(question, Err(KernelReason::NoRoute), now, &tables);
                    }
                    Step::Tell(Update::Forget { peer }) => {
                        assert!(peer >= address(1_000), "seed {seed}: {peer} talks");
                    }
                    _ => {}
                }
            }
        };
        for number in 0..200 {
            ask(&mut book, number, at(1));
            ask(&mut book, number, at(1));
        }
        for second in 2..32 {
            for _ in 0..4_096 {
                ask(&mut book, 1_000 + random.u32(0..1 << 22), at(second));
            }
            for number in (0..200).filter(|number| u64::from(*number) % 10 == second % 10) {
                ask(&mut book, number, at(second));
            }
        }
        assert!(book.counters().peers_refused > 0 && book.len() == BookLimits::default().peers);
        // The flood is over: a new peer gets an answer within a second.
        ask(&mut book, 500, at(32));
        ask(&mut book, 500, at(33));
        assert_eq!(book.told(address(500)), Some(Err(KernelReason::NoRoute)), "seed {seed}");
    }
}

#[test]
fn peers_nobody_asks_about_are_forgotten() {
    let (mut book, mut tables) = (book(BookLimits::default()), tables());
    assert_eq!(book.deadline(), None);
    neighbour(&mut book, &mut tables, "10.0.0.2", NeighbourState::Reachable);
    for peer in ["10.0.0.2", "10.0.0.3"] {
        let asked = question(&mut book, &tables, peer, at(1));
        book.route_answered(asked, by("10.0.0.2", None), at(1), &tables);
        steps(&mut book);
    }
    book.ask(ip("10.0.0.3"), None, at(9), &tables);
    steps(&mut book);
    book.sweep(at(60));
    assert_eq!((steps(&mut book), book.len()), (vec![], 2));
    book.sweep(at(61));
    assert_eq!(steps(&mut book), [Step::Tell(Update::Forget { peer: ip("10.0.0.2") })]);
    // Its neighbour affects only the remaining peer.
    neighbour(&mut book, &mut tables, "10.0.0.2", NeighbourState::Failed);
    assert_eq!(steps(&mut book), [learn("10.0.0.3", Err(KernelReason::Unresolved))]);
    assert_eq!(book.deadline(), Some(at(61) + Duration::from_millis(7500)));
}

#[test]
fn two_sources_with_different_routes_are_left_to_the_kernel() {
    let (mut book, mut tables) = (book(BookLimits::default()), tables());
    neighbour(&mut book, &mut tables, "10.0.0.254", NeighbourState::Reachable);
    let mut ask = |source: &str, next_hop: &str, now| {
        book.ask(ip("10.9.9.9"), Some(ip(source)), now, &tables);
        let asked = steps(&mut book).into_iter().find_map(|step| match step {
            Step::AskRoute(question) => Some(question),
            _ => None,
        });
        if let Some(asked) = asked {
            assert_eq!(asked.source, Some(ip(source)));
            book.route_answered(asked, by(next_hop, None), now, &tables);
            steps(&mut book);
        }
        book.told(ip("10.9.9.9")).map(|told| told.map(|egress| egress.mtu))
    };
    assert_eq!(ask("10.0.0.1", "10.0.0.254", at(1)), Some(Ok(1500)));
    assert_eq!(ask("10.0.0.2", "10.0.0.254", at(2)), Some(Ok(1500)));
    assert_eq!(ask("10.0.0.3", "10.0.0.253", at(3)), Some(Err(KernelReason::NotPlain)));
    assert_eq!(ask("10.0.0.1", "10.0.0.254", at(4)), Some(Err(KernelReason::NotPlain)));
}

#[test]
fn interfaces_in_one_vrf_are_looked_up_in_it_and_in_several_nowhere() {
    let mut tables = tables();
    let (one, both) = (BTreeSet::from([FAST]), BTreeSet::from([FAST, OTHER]));
    let peer = ip("10.0.0.2");
    assert_eq!(lookup_interface(peer, &both, &tables), Ok(None));
    let port = |ifindex, vrf| Link { master: Some(vrf), port_kind: "vrf".to_owned(), ..link(ifindex) };
    tables.apply(Change::Link(port(FAST, 20)), &mut Vec::new());
    assert_eq!(lookup_interface(peer, &both, &tables), Err(KernelReason::NotPlain));
    assert_eq!(lookup_interface(peer, &one, &tables), Ok(Some(20)));
    tables.apply(Change::Link(port(OTHER, 20)), &mut Vec::new());
    assert_eq!(lookup_interface(peer, &both, &tables), Ok(Some(20)));
    // A link-local address is valid on one link only.
    assert_eq!(lookup_interface(ip("fe80::2"), &one, &tables), Ok(Some(FAST)));
    assert_eq!(lookup_interface(ip("fe80::2"), &both, &tables), Err(KernelReason::NotPlain));
}

#[test]
fn the_report_names_next_hop_state_and_reason() {
    let (mut book, mut tables) = (book(BookLimits::default()), tables());
    neighbour(&mut book, &mut tables, "10.0.0.254", NeighbourState::Stale);
    let asked = question(&mut book, &tables, "10.9.9.9", at(1));
    book.route_answered(asked, by("10.0.0.254", Some(1400)), at(1), &tables);
    book.ask(ip("10.0.0.7"), None, at(1), &tables);
    let rows = book.report(&tables);
    let text = |row: &report::Neighbour| {
        let mac = row.mac.clone().unwrap_or_default();
        format!(
            "{} {} {} {mac} {} {} {}",
            row.peer, row.next_hop, row.interface, row.state, row.mtu, row.egress
        )
    };
    assert_eq!(text(&rows[0]), "10.0.0.7    none 0 unknown");
    assert_eq!(text(&rows[1]), "10.9.9.9 10.0.0.254 if3 02:00:00:00:00:09 stale 1400 fast");
}

fn connected() -> Tables {
    let mut tables = tables();
    for (address, prefix) in [("10.0.0.1", 16), ("10.0.0.1", 8), ("10.1.0.1", 16)] {
        tables.apply(Change::Address { ifindex: FAST, address: ip(address), prefix }, &mut Vec::new());
    }
    tables
}

#[test]
fn in_a_flood_of_forged_neighbours_few_are_resolved_and_real_ones_are_told_unasked() {
    let (mut book, mut tables) = (book(BookLimits::default()), connected());
    let looks_up = |book: &mut EgressBook, peer: &str| {
        steps(book).iter().any(|step| matches!(step, Step::AskRoute(question) if question.peer == ip(peer)))
    };
    // The kernel knows a neighbour before the flood begins, and no worker has asked about it: this costs
    // nothing.
    neighbour(&mut book, &mut tables, "10.0.0.7", NeighbourState::Stale);
    // Neighbours of another link, of another network, and ones that do not answer are not announced.
    neighbour(&mut book, &mut tables, "10.1.0.7", NeighbourState::Stale);
    neighbour(&mut book, &mut tables, "10.0.0.8", NeighbourState::Failed);
    assert_eq!((steps(&mut book), book.len()), (vec![], 0));

    let mut resolves = 0;
    for number in 0..200 {
        let peer = IpAddr::V4(Ipv4Addr::from_bits(0x0a00_1000 + number));
        book.ask(peer, None, at(1), &tables);
        while let Some(step) = book.step() {
            match step {
                Step::AskRoute(question) => {
                    // A neighbour that the kernel knows is looked up as well.
                    assert!([peer, ip("10.0.0.7")].contains(&question.peer));
                    book.route_answered(question, by(&question.peer.to_string(), None), at(1), &tables);
                }
                Step::Resolve { .. } => resolves += 1,
                Step::Tell(_) => {}
            }
        }
    }
    assert!((60..=70).contains(&resolves), "{resolves} of 200");
    assert!(matches!(book.told(ip("10.0.0.7")), Some(Ok(_))));

    // A new neighbour, which asks the kernel for our address before it sends.
    neighbour(&mut book, &mut tables, "10.0.0.9", NeighbourState::Stale);
    assert!(looks_up(&mut book, "10.0.0.9"));
    neighbour(&mut book, &mut tables, "10.1.0.9", NeighbourState::Stale);
    assert!(!looks_up(&mut book, "10.1.0.9"), "that network has no flood");
}

#[test]
fn the_peers_that_a_flood_could_cost_their_replies_are_kept_until_it_ends() {
    let (mut book, mut tables) = (book(BookLimits::default()), connected());
    neighbour(&mut book, &mut tables, "10.0.0.7", NeighbourState::Reachable);
    let asked = question(&mut book, &tables, "10.0.0.7", at(1));
    book.route_answered(asked, by("10.0.0.7", None), at(1), &tables);
    for number in 0..100 {
        let peer = IpAddr::V4(Ipv4Addr::from_bits(0x0a00_1000 + number));
        steps(&mut book);
        let asked = question(&mut book, &tables, &peer.to_string(), at(100));
        book.route_answered(asked, by(&peer.to_string(), None), at(100), &tables);
    }
    book.sweep(at(101));
    assert!(
        book.told(ip("10.0.0.7")).is_some_and(|told| told.is_ok()),
        "silent for longer than others are kept"
    );
    book.sweep(at(120));
    assert_eq!(book.told(ip("10.0.0.7")), None);
}

#[test]
fn a_peer_that_is_its_own_next_hop_is_told_with_its_network() {
    let (mut book, tables) = (book(BookLimits::default()), connected());
    for (peer, prefix_len) in [("10.0.3.3", 16), ("10.7.0.3", 8), ("192.0.2.1", 24), ("2001:db8::1", 64)] {
        let asked = question(&mut book, &tables, peer, at(1));
        book.route_answered(asked, by(peer, None), at(1), &tables);
        assert_eq!(steps(&mut book)[0], learn(peer, Err(KernelReason::UnresolvedPeer { prefix_len })));
    }
}

/// When a next hop becomes stale, workers are asked about its peers again, until one is found to be in use.
#[test]
fn the_use_of_a_neighbour_that_became_stale_is_asked_for() {
    let (mut book, mut tables) = (book(BookLimits::default()), tables());
    neighbour(&mut book, &mut tables, "10.0.0.254", NeighbourState::Reachable);
    for number in 0..100 {
        let peer = format!("10.9.0.{number}");
        let asked = question(&mut book, &tables, &peer, at(1));
        book.route_answered(asked, by("10.0.0.254", None), at(1), &tables);
        assert_eq!(steps(&mut book), [learn(&peer, Ok(1500))]);
    }
    neighbour(&mut book, &mut tables, "10.0.0.254", NeighbourState::Stale);
    let asks = steps(&mut book);
    assert_eq!((asks[0], asks.len()), (ask_again("10.9.0.0"), 64));
    // One of them is in use: the kernel confirms the neighbour, and the others are not asked about.
    book.ask(ip("10.9.0.5"), None, at(2), &tables);
    let resolve = Step::Resolve { ifindex: FAST, next_hop: ip("10.0.0.254") };
    assert_eq!(steps(&mut book), [resolve, learn("10.9.0.5", Ok(1500))]);
    // Workers ask about peers that have been silent for long when they use them again.
    neighbour(&mut book, &mut tables, "10.0.0.254", NeighbourState::Reachable);
    let stale = Neighbour { mac: Some(GATEWAY_MAC), state: NeighbourState::Stale, kept_by_other: false };
    let change = Change::Neighbour { ifindex: FAST, address: ip("10.0.0.254"), neighbour: stale };
    tables.apply(change, &mut Vec::new());
    book.neighbour_changed(FAST, ip("10.0.0.254"), at(11), &tables);
    assert_eq!(steps(&mut book), [ask_again("10.9.0.5")]);
}

#[test]
fn a_path_that_has_changed_is_asked_for_once_it_has_settled() {
    let (mut book, mut tables) = (book(BookLimits::default()), tables());
    neighbour(&mut book, &mut tables, "10.0.0.2", NeighbourState::Permanent);
    let asked = question(&mut book, &tables, "10.0.0.2", at(1));
    // The kernel has not answered yet, and may answer from its former state.
    book.path_changed(ip("10.0.0.2"), at(1));
    let settles = BookLimits::default().path_settles;
    let due = |book: &EgressBook, n| book.deadline() == Some(at(1) + settles * n);
    assert!(due(&book, 1));
    book.act(at(1) + settles);
    assert_eq!((steps(&mut book).as_slice(), due(&book, 2)), (&[][..], true));
    book.route_answered(asked, by("10.0.0.2", None), at(1) + settles, &tables);
    assert_eq!(steps(&mut book), [learn("10.0.0.2", Ok(1500))]);
    // Many messages cause one question.
    (0..9).for_each(|_| book.path_changed(ip("10.0.0.2"), at(1) + settles));
    book.act(at(1) + settles * 2);
    let [Step::AskRoute(again)] = steps(&mut book)[..] else { panic!("one question expected") };
    book.route_answered(again, by("10.0.0.2", Some(1300)), at(2), &tables);
    assert_eq!(steps(&mut book), [learn("10.0.0.2", Ok(1300))]);
    // For peers that nobody answers, nothing is asked or kept.
    (0..200).for_each(|number| book.path_changed(ip(&format!("10.8.0.{number}")), at(2)));
    assert_eq!(book.deadline(), Some(at(0) + BookLimits::default().keep / 8));
}
