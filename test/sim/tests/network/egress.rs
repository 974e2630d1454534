//! Simulates the egress table with a kernel whose routes change, and a mailbox that delays and loses messages: what a
//! worker uses was true a moment ago, and is true again once nothing changes any more.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};

use twinpath_time::Instant;
use twinpath_udp::egress::{Egress, EgressTable, KernelReason, Update};
use twinpath_wire::Mac;

type Answer = Result<Egress, KernelReason>;

/// Number of peers; fewer than the table holds.
const PEERS: u32 = 200;
/// Maximum number of updates in transit; a further one is lost, as with a full mailbox.
const MAILBOX: usize = 16;
/// Longest time that an update is in transit, ns.
const DELAY_NS: u64 = 5_000_000;

fn peer(number: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + number))
}

struct Kernel {
    truth: HashMap<IpAddr, Answer>,
    /// When the kernel's answer for each peer last changed, ns.
    changed: HashMap<IpAddr, u64>,
    under_way: VecDeque<(u64, Update)>,
    lost: u64,
}

impl Kernel {
    fn post(&mut self, at: u64, update: Update) {
        if self.under_way.len() < MAILBOX {
            self.under_way.push_back((at, update));
        } else {
            self.lost += 1;
        }
    }

    fn change(&mut self, random: &mut fastrand::Rng, now: u64) {
        let peer = peer(random.u32(0..PEERS));
        let answer = match random.u8(0..6) {
            0 => Err(KernelReason::Unresolved),
            1 => Err(KernelReason::OtherInterface),
            _ => {
                let mac = Mac([2, 0, 0, 0, random.u8(..), random.u8(..)]);
                Ok(Egress { ifindex: 3, source_mac: Mac([2; 6]), next_hop_mac: mac, mtu: 1500 })
            }
        };
        self.truth.insert(peer, answer);
        self.changed.insert(peer, now);
        self.post(now + random.u64(1..DELAY_NS), Update::Learn { peer, answer });
    }
}

#[test]
fn a_worker_uses_only_recent_answers_and_converges_to_the_present_ones() {
    for seed in crate::seeds() {
        simulate(seed);
    }
}

fn simulate(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut table = EgressTable::new(1);
    let mut kernel =
        Kernel { truth: HashMap::new(), changed: HashMap::new(), under_way: VecDeque::new(), lost: 0 };
    let mut now = 0;
    for _ in 0..20_000 {
        now += random.u64(1..200_000);
        if random.u8(0..20) == 0 {
            kernel.change(&mut random, now);
        }
        deliver(&mut kernel, &mut table, now);
        let asked = peer(random.u32(0..PEERS));
        let found = table.lookup(asked, Instant::from_nanos(now));
        if found.ask {
            let answer = kernel.truth.get(&asked).copied().unwrap_or(Err(KernelReason::NoRoute));
            kernel.post(now + random.u64(1..DELAY_NS), Update::Learn { peer: asked, answer });
        }
        if let Ok(believed) = found.answer
            && kernel.lost == 0
            && kernel.truth.get(&asked) != Some(&Ok(believed))
        {
            // It was true until a moment ago, and the update is in transit.
            let since = now - kernel.changed[&asked];
            assert!(since <= 2 * DELAY_NS, "seed {seed}: believed {since} ns after it had changed");
        }
    }
    // Nothing changes any more: control is asked about every peer again in time.
    for _ in 0..3 {
        for number in 0..PEERS {
            now += 60_000_000;
            let asked = peer(number);
            if table.lookup(asked, Instant::from_nanos(now)).ask {
                let answer = kernel.truth.get(&asked).copied().unwrap_or(Err(KernelReason::NoRoute));
                kernel.post(now, Update::Learn { peer: asked, answer });
            }
            deliver(&mut kernel, &mut table, now + DELAY_NS);
        }
    }
    for (peer, truth) in &kernel.truth {
        assert_eq!(table.lookup(*peer, Instant::from_nanos(now)).answer, *truth, "seed {seed}: {peer}");
    }
}

fn deliver(kernel: &mut Kernel, table: &mut EgressTable, now: u64) {
    while let Some((at, update)) = kernel.under_way.pop_front() {
        if at > now {
            kernel.under_way.push_front((at, update));
            return;
        }
        table.update(update, Instant::from_nanos(at));
    }
}
