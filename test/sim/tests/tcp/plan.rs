//! What a seed stands for: limits of the engines, the network, and what programs do.

use std::collections::HashMap;
use std::net::SocketAddr;

use twinpath_tcp::{Config, CongestionKind, Ecn, Options};
use twinpath_time::{Duration, Instant};

use crate::host::{Host, Ledger};
use crate::network::{Link, Narrow, Network};
use crate::program::{Ends, Program, Side};
use crate::run::{Flow, Simulation};

fn chance(random: &mut fastrand::Rng, share: f64) -> bool {
    random.f64() < share
}

/// A number from `low` to `high`, small ones as often as large ones.
fn scaled(random: &mut fastrand::Rng, low: u64, high: u64) -> u64 {
    let (low_log, high_log) = ((low.max(1) as f64).ln(), (high.max(1) as f64).ln());
    (low_log + (high_log - low_log) * random.f64()).exp() as u64
}

/// What makes a simulation hard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Mood {
    /// Loss, reordering, duplicates and corruption.
    lossy: bool,
    /// A queue that fills.
    narrow: bool,
    /// Small buffers and slow readers.
    tiny: bool,
    /// Connections are cut, clocks jump far, packets vanish for good.
    rough: bool,
}

pub(crate) fn config(random: &mut fastrand::Rng, tiny: bool) -> Config {
    let receive_max = if tiny { scaled(random, 200, 20_000) } else { scaled(random, 4_000, 4 << 20) } as u32;
    Config {
        mtu: *random.choice(&[1500, 1500, 9000, 1280, 600]).expect("some"),
        sack: chance(random, 0.8),
        dsack: chance(random, 0.8),
        timestamps: chance(random, 0.8),
        window_scale: chance(random, 0.8),
        ecn: *random.choice(&[Ecn::Off, Ecn::Accept, Ecn::Request]).expect("some"),
        congestion: *random.choice(&[CongestionKind::Cubic, CongestionKind::NewReno]).expect("some"),
        rack: chance(random, 0.8),
        tail_loss_probe: chance(random, 0.8),
        frto: chance(random, 0.8),
        initial_window: random.u32(1..=10),
        receive_max,
        receive_initial: receive_max.min(scaled(random, 200, 64 << 10) as u32),
        send_max: if tiny { scaled(random, 1, 10_000) } else { scaled(random, 1_000, 4 << 20) } as u32,
        super_segment: if chance(random, 0.5) { 65_160 } else { 0 },
        black_hole_detection: chance(random, 0.5),
        syn_retries: 20,
        syn_ack_retries: 20,
        retries: 30,
        orphan_retries: 30,
        rto_max: Duration::from_secs(if chance(random, 0.5) { 120 } else { 5 }),
        time_wait_time: Duration::from_secs(random.u64(1..=60)),
        ..Config::default()
    }
}

fn link(random: &mut fastrand::Rng, mood: Mood) -> Link {
    let delay = Duration::from_micros(scaled(random, 20, 80_000));
    let mut link = Link { delay, ..Link::default() };
    if mood.lossy {
        let most = if mood.rough { 0.3 } else { 0.1 };
        link.loss = random.f64() * most * f64::from(u8::from(random.bool()));
        if chance(random, 0.3) {
            link.burst = (random.f64() * 0.02, 0.4 + random.f64() * 0.5);
        }
        if chance(random, 0.4) {
            (link.late, link.late_share) = (delay.mul_f64(random.f64() * 4.0), random.f64() * 0.3);
        }
        if chance(random, 0.3) {
            link.jitter = delay.mul_f64(random.f64() * 0.5);
        }
        link.duplicate = random.f64() * 0.1 * f64::from(u8::from(random.bool()));
        link.corrupt = random.f64() * 0.03 * f64::from(u8::from(random.bool()));
        for _ in 0..random.u32(..3) {
            let at = Instant::from_nanos(random.u64(1_000_000_000..3_000_000_000));
            link.changes.push((at, Duration::from_micros(scaled(random, 20, 300_000))));
        }
        link.changes.sort();
    }
    if mood.narrow {
        link.rate = scaled(random, 20_000, 20_000_000);
        link.queue = scaled(random, 3_000, 300_000);
        link.mark_above = if chance(random, 0.5) { link.queue / 4 } else { u64::MAX };
    }
    link
}

/// `endures`: the engine gets along with a path that never says so.
fn narrow(random: &mut fastrand::Rng, endures: bool, least: u16) -> Narrow {
    let from = Instant::from_nanos(random.u64(1_000_000_000..1_500_000_000));
    let says_so = random.bool();
    let until =
        if says_so || endures { Instant::NEVER } else { from + Duration::from_secs(random.u64(1..20)) };
    Narrow { from, until, mtu: random.u16(least..1400), says_so }
}

fn program(random: &mut fastrand::Rng, mood: Mood, flows: u64) -> Program {
    let most = if mood.tiny { 8_000 } else { 300_000 } / flows;
    let bytes = if chance(random, 0.2) { 0 } else { scaled(random, 1, most) };
    let slow = mood.tiny || chance(random, 0.2);
    let ends = match random.u8(..10) {
        0..=5 => Ends::Whole,
        6..=7 => Ends::AfterPeer,
        8 if mood.rough => Ends::Aborts(random.u64(0..=bytes)),
        9 if mood.rough => Ends::Closes,
        _ => Ends::Whole,
    };
    let optional =
        |random: &mut fastrand::Rng, low, high| chance(random, 0.2).then(|| scaled(random, low, high) as u32);
    let options = Options {
        no_delay: random.bool(),
        cork: chance(random, 0.1),
        quick_ack: chance(random, 0.2),
        mss: if chance(random, 0.2) { random.u16(64..1400) } else { 0 },
        receive_buffer: optional(random, 100, 100_000),
        send_buffer: optional(random, 100, 100_000),
        syn_retries: Some(20),
        advertised_timeout: Duration::from_secs(if chance(random, 0.2) { 3000 } else { 0 }),
        ..Options::default()
    };
    Program {
        bytes,
        write_max: scaled(random, 1, 20_000).max(bytes / 300 + 1),
        read_max: if slow {
            (scaled(random, 50, 4_000) as usize).max(bytes as usize / 200)
        } else {
            usize::MAX / 2
        },
        read_every: if slow { Duration::from_micros(scaled(random, 10, 300_000)) } else { Duration::ZERO },
        reads_at_once: random.bool(),
        rests: false,
        // Not drawn, so that it changes no other seed.
        urges: bytes % 4 == 1,
        ends,
        options,
    }
}

/// Both ends cannot wait for each other.
fn flow(random: &mut fastrand::Rng, mood: Mood, number: u16, flows: u64) -> Flow {
    let (one, other) =
        if chance(random, 0.3) { ("[2001:db8::1]", "[2001:db8::2]") } else { ("192.0.2.1", "192.0.2.2") };
    let opener = usize::from(random.bool());
    let both = chance(random, 0.1);
    let port = |host: usize| if host == opener || both { 4000 + number } else { 80 };
    let address =
        |text: &str, port: u16| -> SocketAddr { format!("{text}:{port}").parse().expect("an address") };
    let ends = [address(one, port(0)), address(other, port(1))];
    let mut opens = [both; 2];
    opens[opener] = true;
    let mut programs = [program(random, mood, flows), program(random, mood, flows)];
    if programs.iter().all(|program| program.ends == Ends::AfterPeer) {
        programs[0].ends = Ends::Whole;
    }
    let salts = [random.u64(..), random.u64(..)];
    let [one, other] = programs;
    let starts_at = Instant::from_nanos(1_000_000_000 + random.u64(..500_000_000));
    Flow {
        ends,
        opens,
        starts_at,
        after: None,
        sides: [Side::new(one, salts[0]), Side::new(other, salts[1])],
    }
}

fn flows(random: &mut fastrand::Rng, mood: Mood) -> Vec<Flow> {
    let count = if chance(random, 0.5) { 1 } else { random.u16(1..=6) };
    let mut flows: Vec<Flow> =
        (0..count).map(|number| flow(random, mood, number, u64::from(count))).collect();
    if count == 1 && chance(random, 0.3) {
        // An idle connection, in the middle of it.
        for side in &mut flows[0].sides {
            side.program.rests = true;
        }
    }
    if !mood.rough && chance(random, 0.3) && flows.iter().all(|flow| flow.opens != [true; 2]) {
        // The same ends again, as soon as the program can.
        for _ in 0..random.usize(1..=3) {
            let before = flows.len() - 1;
            let mut again = flow(random, mood, 0, u64::from(count));
            (again.ends, again.opens) = (flows[before].ends, flows[before].opens);
            (again.after, again.starts_at) = (Some(before), Instant::ZERO);
            flows.push(again);
        }
    }
    flows
}

/// The simulation of a seed.
pub(crate) fn plan(seed: u64) -> Simulation {
    let mut random = fastrand::Rng::with_seed(seed);
    let mood = Mood {
        lossy: chance(&mut random, 0.7),
        narrow: chance(&mut random, 0.3),
        tiny: chance(&mut random, 0.2),
        rough: chance(&mut random, 0.2),
    };
    let config = |random: &mut fastrand::Rng| config(random, mood.tiny);
    let mut hosts = [Host::new(config(&mut random), seed), Host::new(config(&mut random), !seed)];
    let mut links = [link(&mut random, mood), link(&mut random, mood)];
    for host in &mut hosts {
        if chance(&mut random, 0.15) {
            host.full_share = random.f64() * 0.5;
        }
        if chance(&mut random, 0.15) {
            let at = Instant::from_nanos(random.u64(1_000_000_000..4_000_000_000));
            let most = if mood.rough { 30_000_000 } else { 90_000 };
            host.jumps.push((at, Duration::from_millis(scaled(&mut random, 1, most))));
        }
    }
    let flows = flows(&mut random, mood);
    let is_narrow = chance(&mut random, 0.1);
    if is_narrow {
        // Every path carries so much (RFC 8200 section 5, RFC 791).
        let least = if flows.iter().any(|flow| flow.ends[0].is_ipv6()) { 1280 } else { 576 };
        let way = random.usize(..2);
        let endures = mood.rough || hosts[1 - way].tcp.config().black_hole_detection;
        links[way].narrow = Some(narrow(&mut random, endures, least));
    }
    let backlog = if chance(&mut random, 0.3) { 1 } else { 16 };
    let mut listeners = [None, None];
    for (host, listener) in hosts.iter_mut().zip(&mut listeners) {
        let any = SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, 80));
        *listener = Some(host.tcp.listen(any, backlog, Options::default()));
    }
    let slow = Duration::from_millis(random.u64(1..500));
    let mut network = Network::new(random.fork(), links);
    network.keeps_whole = random.bool();
    let mut simulation = Simulation {
        seed,
        now: Instant::from_nanos(1_000_000_000),
        hosts,
        network,
        ledger: Ledger::new(),
        flows,
        listeners,
        accepts_every: if chance(&mut random, 0.2) { slow } else { Duration::ZERO },
        accepts_at: [Instant::NEVER; 2],
        glue_share: if random.bool() { random.f64() } else { 0.0 },
        must_end_well: !mood.rough,
        is_clean: false,
        owners: [HashMap::new(), HashMap::new()],
        steps: 0,
        random,
    };
    simulation.is_clean = mood == Mood::default()
        && backlog > 1
        && simulation.accepts_every.is_zero()
        && simulation.hosts.iter().all(|host| host.jumps.is_empty() && host.full_share == 0.0)
        && !is_narrow;
    simulation
}

/// An engine, a network, and its program, for a peer that is another stack: one that does not probe a closed window, so
/// none is closed, and that leaves no room for timestamps in its segments.
pub(crate) fn against(random: &mut fastrand::Rng, seed: u64) -> (Host, Network, Program) {
    let mood = Mood { lossy: chance(random, 0.7), narrow: chance(random, 0.3), ..Mood::default() };
    let config = Config { mtu: 1480, receive_initial: 65_536, receive_max: 1 << 20, ..config(random, false) };
    let links = [link(random, mood), link(random, mood)];
    let mut program = program(random, mood, 3);
    (program.reads_at_once, program.read_max, program.read_every) = (false, usize::MAX / 2, Duration::ZERO);
    program.urges = false;
    program.options.receive_buffer = None;
    (Host::new(config, seed), Network::new(random.fork(), links), program)
}
