//! The simulation: two hosts, the network between them, connections that begin and end, and time.

use std::collections::HashMap;
use std::net::SocketAddr;

use twinpath_tcp::{
    ConnectError, ConnectionId, Host as Receiver, IcmpError, Info, ListenerId, Segment, Stream, Verdict,
};
use twinpath_time::{Duration, Instant};

use crate::host::{Host, Ledger};
use crate::network::{Arrival, Network, Packet};
use crate::program::{Ends, Outcome, Side};

/// More steps than any simulation needs that ends.
const STEPS_MAX: u64 = 400_000;

/// A connection that is to be.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    /// The addresses of both ends, by host.
    pub(crate) ends: [SocketAddr; 2],
    /// Which hosts open it: one, or both at once.
    pub(crate) opens: [bool; 2],
    pub(crate) starts_at: Instant,
    /// The one before between the same ends, which has to be over.
    pub(crate) after: Option<usize>,
    pub(crate) sides: [Side; 2],
}

impl Flow {
    fn is_over(&self) -> bool {
        self.sides.iter().all(|side| side.outcome.is_some())
    }

    /// Whether both ends want all bytes.
    fn is_whole(&self) -> bool {
        self.sides.iter().all(|side| matches!(side.program.ends, Ends::Whole | Ends::AfterPeer))
    }
}

/// All of it.
pub(crate) struct Simulation {
    pub(crate) seed: u64,
    pub(crate) random: fastrand::Rng,
    pub(crate) now: Instant,
    pub(crate) hosts: [Host; 2],
    pub(crate) network: Network,
    pub(crate) ledger: Ledger,
    pub(crate) flows: Vec<Flow>,
    pub(crate) listeners: [Option<ListenerId>; 2],
    /// The pause between two connections that a host accepts.
    pub(crate) accepts_every: Duration,
    pub(crate) accepts_at: [Instant; 2],
    /// How likely segments that arrive together are glued.
    pub(crate) glue_share: f64,
    /// Whether every connection has to end as its programs want it.
    pub(crate) must_end_well: bool,
    /// Whether nothing is lost, late or twice, so that nothing has to be sent again.
    pub(crate) is_clean: bool,
    pub(crate) owners: [HashMap<ConnectionId, usize>; 2],
    pub(crate) steps: u64,
}

/// Where bytes arrive: the program that has the connection.
struct Programs<'a> {
    flows: &'a mut [Flow],
    owners: &'a HashMap<ConnectionId, usize>,
    host: usize,
    random: &'a mut fastrand::Rng,
}

impl Receiver for Programs<'_> {
    fn received(&mut self, _: Instant, id: ConnectionId, stream: &mut Stream<'_>) {
        let Some(flow) = self.owners.get(&id) else { return };
        let flow = &mut self.flows[*flow];
        let salt = flow.sides[1 - self.host].salt;
        flow.sides[self.host].arrive(stream, salt, self.random);
    }
}

impl Simulation {
    /// Runs to the end, and checks that nothing is left.
    pub(crate) fn run(&mut self) {
        loop {
            self.steps += 1;
            assert!(self.steps < STEPS_MAX, "no end: {}", self.describe());
            for host in 0..2 {
                self.turn(host);
            }
            let next = self.next();
            if next == Instant::NEVER {
                if self.break_silence() {
                    continue;
                }
                break;
            }
            self.now = self.now.max(next);
            self.deliver();
        }
        self.check_end();
    }

    fn next(&self) -> Instant {
        let hosts = self.hosts.iter().map(Host::next);
        let sides = self.flows.iter().flat_map(|flow| &flow.sides);
        let reads = sides.filter(|side| side.outcome.is_none()).map(|side| side.reads_at);
        let starts = (0..self.flows.len()).filter(|flow| self.may_start(*flow));
        let starts = starts.map(|flow| self.flows[flow].starts_at);
        let first = hosts.chain(reads).chain(starts).fold(self.network.next(), Instant::min);
        self.accepts_at.iter().copied().fold(first, Instant::min)
    }

    /// Whether the connection was not opened yet, and the one before it is over.
    fn may_start(&self, flow: usize) -> bool {
        let flow = &self.flows[flow];
        let unopened = (0..2).any(|host| {
            flow.opens[host] && flow.sides[host].id.is_none() && flow.sides[host].outcome.is_none()
        });
        unopened && flow.after.is_none_or(|before| self.flows[before].is_over())
    }

    /// What a host does by itself.
    fn turn(&mut self, host: usize) {
        self.hosts[host].jump(self.now);
        self.open(host);
        self.accept(host);
        self.answer_events(host);
        for flow in 0..self.flows.len() {
            let side = &self.flows[flow].sides[host];
            if side.outcome.is_none() && side.reads_at <= self.now {
                self.work(host, flow);
            }
        }
        self.advance(host);
        self.answer_events(host);
        self.flush(host);
    }

    fn open(&mut self, host: usize) {
        for index in 0..self.flows.len() {
            let flow = &self.flows[index];
            let due = flow.starts_at <= self.now && self.may_start(index);
            let side = &flow.sides[host];
            if !due || !flow.opens[host] || side.id.is_some() || side.outcome.is_some() {
                continue;
            }
            let (local, remote) = (flow.ends[host], flow.ends[1 - host]);
            let options = side.program.options;
            let clock = self.hosts[host].clock(self.now);
            match self.hosts[host].tcp.connect(clock, local, remote, options) {
                Ok(id) => {
                    self.flows[index].sides[host].id = Some(id);
                    self.owners[host].insert(id, index);
                    self.work(host, index);
                }
                // The connection before is still in TIME_WAIT, or ends.
                Err(ConnectError::InUse | ConnectError::Full) => {
                    self.flows[index].starts_at = self.now + Duration::from_secs(1);
                }
            }
        }
    }

    fn accept(&mut self, host: usize) {
        if self.accepts_at[host] > self.now && !self.accepts_every.is_zero() {
            return;
        }
        let Some(listener) = self.listeners[host] else { return };
        while let Some(id) = self.hosts[host].tcp.accept(listener) {
            let Some(tuple) = self.hosts[host].tcp.tuple(id) else { continue };
            let is_it = |flow: &Flow| {
                flow.ends[host] == tuple.local()
                    && flow.ends[1 - host] == tuple.remote()
                    && flow.sides[1 - host].id.is_some()
                    && flow.sides[host].id.is_none()
                    && flow.sides[host].outcome.is_none()
            };
            let Some(index) = self.flows.iter().position(is_it) else {
                let clock = self.hosts[host].clock(self.now);
                self.hosts[host].tcp.abort(clock, id);
                continue;
            };
            self.flows[index].sides[host].id = Some(id);
            self.owners[host].insert(id, index);
            let options = self.flows[index].sides[host].program.options;
            let clock = self.hosts[host].clock(self.now);
            self.hosts[host].tcp.set_options(clock, id, options);
            self.work(host, index);
            if !self.accepts_every.is_zero() {
                self.accepts_at[host] = self.now + self.accepts_every;
                return;
            }
        }
        self.accepts_at[host] = Instant::NEVER;
    }

    fn answer_events(&mut self, host: usize) {
        while let Some((id, events)) = self.hosts[host].tcp.next_event() {
            let Some(flow) = self.owners[host].get(&id).copied() else {
                // It waits to be accepted.
                if self.accepts_at[host] == Instant::NEVER && !self.accepts_every.is_zero() {
                    self.accepts_at[host] = self.now + self.accepts_every;
                }
                continue;
            };
            if Side::is_called_by(events) {
                self.work(host, flow);
            }
        }
    }

    fn work(&mut self, host: usize, flow: usize) {
        let clock = self.hosts[host].clock(self.now);
        let flow = &mut self.flows[flow];
        let salt = flow.sides[1 - host].salt;
        let side = &mut flow.sides[host];
        let over = side.work(clock, self.now, &mut self.hosts[host].tcp, salt, &mut self.random);
        if over && let Some(id) = side.id {
            self.owners[host].remove(&id);
        }
    }

    fn advance(&mut self, host: usize) {
        let burst = self.random.u32(1..20);
        let before = self.pipe(host);
        let Self { hosts, random, ledger, now, .. } = self;
        let host_ = &mut hosts[host];
        if host_.again_at <= *now {
            host_.again_at = Instant::NEVER;
        }
        if host_.tcp.next_deadline() <= host_.clock(*now) {
            host_.ticks += 1;
        }
        host_.call(*now, random, ledger, |tcp, clock, out| tcp.advance(clock, burst, out));
        self.check_pipe(host, &before);
    }

    /// What a host's connections say of themselves.
    fn pipe(&self, host: usize) -> Vec<(ConnectionId, Info)> {
        let clock = self.hosts[host].clock(self.now);
        let ids = self.owners[host].keys();
        ids.filter_map(|id| Some((*id, self.hosts[host].tcp.info(clock, *id)?))).collect()
    }

    /// Nothing more than the congestion window allows is in flight, but for one probe.
    fn check_pipe(&self, host: usize, before: &[(ConnectionId, Info)]) {
        let clock = self.hosts[host].clock(self.now);
        let pipe = |info: &Info| (info.unacked + info.retransmitting).saturating_sub(info.sacked + info.lost);
        for (id, info) in before {
            let Some(after) = self.hosts[host].tcp.info(clock, *id) else { continue };
            let sends = after.data_segments_out > info.data_segments_out;
            assert!(
                !sends || pipe(&after) <= after.cwnd + 1 || pipe(&after) <= pipe(info) + 1,
                "{} in flight, window {}, {} before: {after:?}",
                pipe(&after),
                after.cwnd,
                pipe(info)
            );
        }
    }

    /// Puts what the host has sent on the network.
    fn flush(&mut self, host: usize) {
        for packet in std::mem::take(&mut self.hosts[host].packets) {
            self.network.send(self.now, 1 - host, packet);
        }
    }

    /// Takes what has arrived to its host.
    fn deliver(&mut self) {
        let mut held: [Option<Packet>; 2] = [None, None];
        while let Some((to, arrival)) = self.network.take(self.now) {
            match arrival {
                Arrival::Segment(packet) => {
                    let glues = self.glue_share > 0.0 && self.random.f64() < self.glue_share;
                    if let Some(first) = &mut held[to]
                        && glues
                        && first.glue(&packet)
                    {
                        continue;
                    }
                    if let Some(first) = held[to].replace(packet) {
                        self.hand_over(to, &first);
                    }
                }
                Arrival::TooBig(tuple, seq, mtu) => {
                    let clock = self.hosts[to].clock(self.now);
                    self.hosts[to].tcp.icmp(clock, &tuple, seq, IcmpError::TooBig(mtu));
                }
            }
        }
        for (to, packet) in held.iter().enumerate() {
            if let Some(packet) = packet {
                self.hand_over(to, packet);
            }
        }
    }

    fn hand_over(&mut self, to: usize, packet: &Packet) {
        let before = self.pipe(to);
        let Self { hosts, random, ledger, flows, owners, now, .. } = self;
        let mut programs = Programs { flows, owners: &owners[to], host: to, random: &mut random.fork() };
        let view = packet.view();
        let segment = Segment::new(&view, packet.marked, packet.unit);
        let verdict = hosts[to].call(*now, random, ledger, |tcp, clock, out| {
            tcp.segment(clock, &packet.tuple, &segment, &mut programs, out)
        });
        let opens = view.flags().opens();
        let is_left = matches!(verdict, Verdict::LeftToKernel | Verdict::Declined);
        assert!(!is_left || opens, "only a SYN is left to the kernel: {view:?}");
        self.check_pipe(to, &before);
        self.answer_events(to);
        self.flush(to);
    }

    /// Nothing moves and no timer runs. Programs that rested go on; otherwise all must be over.
    fn break_silence(&mut self) -> bool {
        let mut goes_on = false;
        for index in 0..self.flows.len() {
            let over = self.flows[index].is_over();
            for host in 0..2 {
                let flow = &mut self.flows[index];
                let whole = flow.is_whole();
                let side = &mut flow.sides[host];
                if over || side.outcome.is_some() {
                    continue;
                }
                if side.program.rests && !side.rested && side.id.is_some() {
                    // A long time later.
                    self.now += Duration::from_secs(self.random.u64(1..7200));
                    side.rested = true;
                    goes_on = true;
                    self.work(host, index);
                } else if side.id.is_none() && !flow.opens[host] && (!whole || !self.must_end_well) {
                    // The peer has given up before this end heard of it.
                    side.outcome = Some(Outcome::Closed);
                    goes_on = true;
                } else if !whole || !self.must_end_well {
                    // The peer is gone, and its reset was lost: only keepalives would find out.
                    let clock = self.hosts[host].clock(self.now);
                    let id = side.id;
                    side.outcome = Some(Outcome::Closed);
                    if let Some(id) = id {
                        self.hosts[host].tcp.abort(clock, id);
                    }
                    goes_on = true;
                }
            }
            if goes_on {
                break;
            }
        }
        goes_on
    }

    fn check_end(&mut self) {
        for (index, flow) in self.flows.iter().enumerate() {
            for (host, side) in flow.sides.iter().enumerate() {
                let peer = &flow.sides[1 - host];
                assert!(side.outcome.is_some(), "silence before the end of {index}: {}", self.describe());
                assert!(side.received <= peer.sent, "more bytes than were sent");
                if self.must_end_well && flow.is_whole() {
                    assert_eq!(side.outcome, Some(Outcome::Closed), "flow {index}: {}", self.describe());
                    assert_eq!(side.received, peer.program.bytes, "flow {index}: {}", self.describe());
                }
            }
        }
        if self.is_clean {
            // A tail loss probe may come too soon (RFC 8985 section 7.2).
            let counted = self.hosts.each_ref().map(|host| host.tcp.counters());
            let again: u64 = counted.iter().map(|counters| counters.retransmitted).sum();
            let probes: u64 = counted.iter().map(|counters| counters.probes).sum();
            let few = again <= probes + self.ledger.waited;
            assert!(few, "{again} sent again for nothing: {}", self.describe());
        }
        for host in &self.hosts {
            assert_eq!(host.tcp.count(), (0, 0, 0), "all records are gone: {}", self.describe());
            assert_eq!(host.tcp.memory(), 0, "all memory is given back");
            assert_eq!(host.tcp.next_deadline(), Instant::NEVER);
        }
    }

    /// What a failure shows.
    pub(crate) fn describe(&self) -> String {
        let mut text = format!("seed {} at {:?} after {} steps", self.seed, self.now, self.steps);
        for host in &self.hosts {
            text += &format!("\n{:?}", host.tcp.counters());
        }
        for (index, flow) in self.flows.iter().enumerate() {
            for (host, side) in flow.sides.iter().enumerate() {
                let peer = &flow.sides[1 - host];
                text += &format!(
                    "\n{index}.{host}: sent {} of {}, received {} of {}, {:?} {:?} {:?}",
                    side.sent,
                    side.program.bytes,
                    side.received,
                    peer.program.bytes,
                    side.program.ends,
                    side.outcome,
                    side.id.map(|id| self.hosts[host].tcp.debug(id))
                );
            }
        }
        text
    }
}
