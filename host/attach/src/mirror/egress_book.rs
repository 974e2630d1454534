//! The peers that we answer, and their egress: the open questions to the kernel, and the answers sent to
//! workers.
//!
//! This is a value without I/O. It receives the workers' questions, the kernel's answers and the changes,
//! and returns [`Step`]s, which `mirror` carries out.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};

use twinpath_observe::report;
use twinpath_time::{Duration, Instant};
use twinpath_udp::egress::unresolved::UnresolvedNetworks;
use twinpath_udp::egress::{ASK_INTERVAL, Egress, KernelReason, Update};

use crate::mirror::table::{NeighbourState, Tables};

/// Bounds of the book. Peers beyond a bound are served through the kernel's sockets, and counted.
#[derive(Clone, Copy, Debug)]
pub struct BookLimits {
    /// Maximum number of peers. A new peer beyond that replaces one that was asked about only once, or is
    /// refused. Workers ask again about active peers, so a flood of forged sources cannot displace the
    /// peers in use.
    pub peers: usize,
    /// Maximum number of open route questions to the kernel; further ones wait.
    pub questions: usize,
    /// A peer is dropped if no worker has asked about it for this long.
    pub keep: Duration,
    /// A peer that was asked about only once keeps its place for this long when others need it.
    pub keep_new_peer: Duration,
    /// An answer older than this is refreshed when a worker asks again. The kernel does not announce that
    /// it has learnt about a path, and the message from which it learnt may have been missed
    /// ([`EgressBook::path_changed`]).
    pub refresh: Duration,
    /// How long after a copy of such a message the kernel is asked for the route: the kernel gets the
    /// message after its copies.
    pub path_settles: Duration,
    /// The kernel is asked to resolve or confirm one neighbour at most once in this time.
    pub resolve_again: Duration,
    /// While workers refuse replies to unknown peers of a network, all its neighbours are searched for new
    /// ones at most once in this time.
    pub look_again: Duration,
}

impl Default for BookLimits {
    fn default() -> Self {
        Self {
            peers: 4096,
            questions: 64,
            keep: Duration::from_secs(60),
            keep_new_peer: Duration::from_secs(1),
            refresh: Duration::from_secs(5),
            path_settles: Duration::from_millis(5),
            resolve_again: Duration::from_secs(1),
            look_again: Duration::from_secs(1),
        }
    }
}

/// Maximum number of peers of one next hop that workers are told to ask about when its entry becomes stale.
const STALE_ASKS: u32 = 64;

/// A plain route, as in the kernel's route table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Interface it leaves by.
    pub ifindex: u32,
    /// The receiver of the frame on that link: the peer itself or a gateway, of either family.
    pub next_hop: IpAddr,
    /// MTU of the route or path in bytes, if one is set or was learnt.
    pub mtu: Option<u32>,
}

/// The next action for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Ask the kernel for the route, then call [`EgressBook::route_answered`].
    AskRoute(Question),
    /// Ask the kernel to resolve or confirm a neighbour (`NTF_USE`); the mirror gets the result as a notification.
    Resolve {
        /// The link.
        ifindex: u32,
        /// The neighbour.
        next_hop: IpAddr,
    },
    /// Send this to every worker.
    Tell(Update),
}

/// A question for the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// The peer.
    pub peer: IpAddr,
    /// The source address of replies, if policy routing may depend on it.
    pub source: Option<IpAddr>,
    /// The generation of the routes at the time of the question; returned with the answer.
    pub generation: u64,
}

/// Counts of events in the book, for `show`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BookCounters {
    /// Peers refused because the book was full.
    pub peers_refused: u64,
    /// Peers dropped because no worker asked about them any more, or only once and others needed their places.
    pub peers_dropped: u64,
    /// Route questions sent to the kernel.
    pub questions: u64,
    /// Requests to the kernel to resolve or confirm a neighbour.
    pub resolves: u64,
    /// How often everything was forgotten because routes, links or addresses changed.
    pub clears: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// Waits to be asked.
    Queued,
    /// The kernel has been asked, and has not answered yet.
    Asked,
    /// Answered at this time.
    Answered(Instant),
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    source: Option<IpAddr>,
    asked_at: Instant,
    /// It was asked about once, at `asked_at`.
    is_new: bool,
    progress: Progress,
    route: Option<Result<Route, KernelReason>>,
    /// Workers asked about it with two local addresses, and the kernel has different routes for these. A
    /// table indexed only by peer cannot express that.
    by_source: bool,
    /// The open question is the first one with this source.
    comparing: bool,
    told: Option<Result<Egress, KernelReason>>,
    told_at: Instant,
    resolved_at: Option<Instant>,
}

/// The book of peers.
#[derive(Debug)]
pub struct EgressBook {
    limits: BookLimits,
    /// Interfaces served on a fast path.
    fast: BTreeSet<u32>,
    entries: HashMap<IpAddr, Entry>,
    /// (interface, next hop, peer): the peers that a neighbour's change affects.
    by_next_hop: BTreeSet<(u32, IpAddr, IpAddr)>,
    /// Peers that were asked about only once, the oldest first.
    new_peers: BTreeSet<(Instant, IpAddr)>,
    queue: VecDeque<IpAddr>,
    /// Peers whose path has changed, and when to ask for their routes; limited like questions.
    paths: VecDeque<(Instant, IpAddr)>,
    with_kernel: usize,
    generation: u64,
    steps: VecDeque<Step>,
    swept_at: Instant,
    /// The same counts as those of the workers.
    unresolved: UnresolvedNetworks,
    /// When all neighbours were last searched for peers.
    looked_at: Option<Instant>,
    counters: BookCounters,
}

impl EgressBook {
    /// An empty book.
    #[must_use]
    pub fn new(limits: BookLimits) -> Self {
        Self {
            limits,
            fast: BTreeSet::new(),
            entries: HashMap::new(),
            by_next_hop: BTreeSet::new(),
            new_peers: BTreeSet::new(),
            queue: VecDeque::new(),
            paths: VecDeque::new(),
            with_kernel: 0,
            generation: 0,
            steps: VecDeque::new(),
            swept_at: Instant::ZERO,
            unresolved: UnresolvedNetworks::default(),
            looked_at: None,
            counters: BookCounters::default(),
        }
    }

    /// The counters.
    #[must_use]
    pub const fn counters(&self) -> BookCounters {
        self.counters
    }

    /// The interfaces that are served on a fast path.
    #[must_use]
    pub const fn fast(&self) -> &BTreeSet<u32> {
        &self.fast
    }

    /// Peers known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no peer is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Sets the interfaces that are served on a fast path. Forgets everything if they have changed.
    pub fn serve_on(&mut self, ifindexes: impl IntoIterator<Item = u32>) {
        let fast: BTreeSet<u32> = ifindexes.into_iter().collect();
        if fast != self.fast {
            self.fast = fast;
            self.routes_changed();
        }
    }

    /// A worker asks for the egress of `peer`, or still uses it.
    pub fn ask(&mut self, peer: IpAddr, source: Option<IpAddr>, now: Instant, tables: &Tables) {
        let Some(entry) = self.entries.get_mut(&peer) else {
            self.admit(peer, source, now);
            return;
        };
        if std::mem::take(&mut entry.is_new) {
            self.new_peers.remove(&(entry.asked_at, peer));
        }
        entry.asked_at = now;
        let Progress::Answered(at) = entry.progress else { return };
        let other_source = source.is_some() && source != entry.source && !entry.by_source;
        if other_source || now.since(at) >= self.limits.refresh {
            entry.source = if other_source { source } else { entry.source };
            entry.comparing = other_source;
            self.ask_kernel(peer);
        }
        let Some(entry) = self.entries.get(&peer) else { return };
        let before = entry.told;
        self.settle(peer, now, tables);
        // A worker that asks again may no longer have the answer in its own table.
        if let Some(answer) = self.told(peer).filter(|answer| before == Some(*answer)) {
            self.steps.push_back(Step::Tell(Update::Learn { peer, answer }));
        }
    }

    /// The kernel answered a question.
    pub fn route_answered(
        &mut self,
        question: Question,
        answer: Result<Route, KernelReason>,
        now: Instant,
        tables: &Tables,
    ) {
        self.with_kernel = self.with_kernel.saturating_sub(1);
        // The question was asked under former routes. Workers that still need the answer have asked again.
        if question.generation != self.generation {
            return;
        }
        let peer = question.peer;
        let Some(entry) = self.entries.get_mut(&peer) else { return };
        let before = entry.route.replace(answer);
        entry.progress = Progress::Answered(now);
        if let Some(Ok(before)) = before {
            self.by_next_hop.remove(&(before.ifindex, before.next_hop, peer));
            let same_way =
                answer.is_ok_and(|now| (now.ifindex, now.next_hop) == (before.ifindex, before.next_hop));
            entry.by_source |= entry.comparing && !same_way;
        }
        entry.comparing = false;
        if entry.by_source {
            entry.route = Some(Err(KernelReason::NotPlain));
        }
        if let Some(Ok(route)) = entry.route {
            self.by_next_hop.insert((route.ifindex, route.next_hop, peer));
        }
        self.settle(peer, now, tables);
    }

    fn ask_kernel(&mut self, peer: IpAddr) {
        let Some(entry) = self.entries.get_mut(&peer) else { return };
        entry.progress = Progress::Queued;
        self.queue.push_back(peer);
    }

    /// The kernel has learnt of another path to `peer`, or of another MTU on it. It announces neither.
    pub fn path_changed(&mut self, peer: IpAddr, now: Instant) {
        let waits = self.paths.iter().any(|(_, waiting)| *waiting == peer);
        if self.entries.contains_key(&peer) && !waits && self.paths.len() < self.limits.questions {
            self.paths.push_back((now + self.limits.path_settles, peer));
        }
    }

    /// A neighbour's entry in the mirror changed.
    ///
    /// A failed neighbour is resolved again only when a worker asks for the peer.
    pub fn neighbour_changed(&mut self, ifindex: u32, next_hop: IpAddr, now: Instant, tables: &Tables) {
        self.take_neighbour(ifindex, next_hop, now, tables);
        // The lowest of all addresses, so that the range starts at the first peer of that next hop.
        let lowest = (ifindex, next_hop, IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let peers: Vec<IpAddr> = self
            .by_next_hop
            .range(lowest..)
            .take_while(|(index, hop, _)| (*index, *hop) == (ifindex, next_hop))
            .map(|(_, _, peer)| *peer)
            .collect();
        let is_stale =
            tables.neighbour(ifindex, next_hop).is_some_and(|known| known.state == NeighbourState::Stale);
        // One peer in use is enough. Workers ask about the others when they use them again.
        let in_use = |entry: &Entry| now.since(entry.asked_at.max(entry.told_at)) < ASK_INTERVAL;
        let mut to_ask = if is_stale { STALE_ASKS } else { 0 };
        for peer in peers {
            self.refresh_told(peer, now, tables);
            if to_ask > 0 && self.entries.get(&peer).is_some_and(in_use) {
                to_ask -= 1;
                self.steps.push_back(Step::Tell(Update::AskAgain { peer }));
            }
        }
    }

    /// While workers refuse replies to unknown peers of a network, they are told of peers that the kernel
    /// has resolved, before those peers send anything: in a flood of forged sources, workers ask about few
    /// peers.
    fn take_neighbour(&mut self, ifindex: u32, address: IpAddr, now: Instant, tables: &Tables) {
        if self.fast.contains(&ifindex)
            && self.unresolved.refuses(address, now)
            && tables.neighbour(ifindex, address).is_some_and(|known| known.state.usable())
            && self.entries.len() < self.limits.peers
            && !self.entries.contains_key(&address)
        {
            self.admit(address, None, now);
        }
    }

    /// The same for all neighbours in the network of `address`.
    fn take_neighbours_of(&mut self, address: IpAddr, now: Instant, tables: &Tables) {
        if !self.unresolved.refuses(address, now)
            || self.looked_at.is_some_and(|at| now.since(at) < self.limits.look_again)
        {
            return;
        }
        self.looked_at = Some(now);
        for (ifindex, address, _) in tables.neighbours() {
            self.take_neighbour(ifindex, address, now, tables);
        }
    }

    /// Routes, links or addresses changed: all peers are forgotten, and learnt again when workers ask.
    pub fn routes_changed(&mut self) {
        self.generation += 1;
        // Waiting updates are followed by one that clears everything.
        if self.entries.is_empty() {
            return;
        }
        self.steps.clear();
        self.entries.clear();
        self.by_next_hop.clear();
        self.new_peers.clear();
        self.queue.clear();
        self.paths.clear();
        self.counters.clears += 1;
        self.steps.push_back(Step::Tell(Update::Clear));
    }

    /// Does the work that is due: asks for the routes that have changed, and drops the peers that no worker
    /// asks about. Call it when [`Self::deadline`] is reached.
    pub fn act(&mut self, now: Instant) {
        while let Some((_, peer)) = self.paths.front().copied().filter(|(due, _)| *due <= now) {
            self.paths.pop_front();
            match self.entries.get(&peer).map(|entry| entry.progress) {
                Some(Progress::Answered(_)) => self.ask_kernel(peer),
                // The kernel may have answered that question already, from its former state.
                Some(Progress::Asked) => self.paths.push_back((now + self.limits.path_settles, peer)),
                Some(Progress::Queued) | None => {}
            }
        }
        if now >= self.sweeps_at() {
            self.sweep(now);
        }
    }

    fn sweep(&mut self, now: Instant) {
        self.swept_at = now;
        let keep = self.limits.keep;
        let idle: Vec<IpAddr> = self
            .entries
            .iter()
            .filter(|(_, entry)| now.since(entry.asked_at) >= keep && entry.progress != Progress::Queued)
            // A worker that had forgotten this peer would refuse its replies.
            .filter(|(peer, entry)| {
                !matches!(entry.told, Some(Ok(_))) || !self.unresolved.refuses(**peer, now)
            })
            .map(|(peer, _)| *peer)
            .collect();
        for peer in idle {
            self.drop_peer(peer);
        }
    }

    fn drop_peer(&mut self, peer: IpAddr) {
        let Some(entry) = self.entries.remove(&peer) else { return };
        if entry.is_new {
            self.new_peers.remove(&(entry.asked_at, peer));
        }
        if let Some(Ok(route)) = entry.route {
            self.by_next_hop.remove(&(route.ifindex, route.next_hop, peer));
        }
        self.counters.peers_dropped += 1;
        self.steps.push_back(Step::Tell(Update::Forget { peer }));
    }

    /// When to call [`Self::act`]; `None` while the book is empty. An idle peer is dropped late by at most
    /// an eighth of the keeping time.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        let path = self.paths.front().map(|(due, _)| *due);
        let sweep = (!self.entries.is_empty()).then(|| self.sweeps_at());
        [path, sweep].into_iter().flatten().min()
    }

    fn sweeps_at(&self) -> Instant {
        self.swept_at + self.limits.keep / 8
    }

    /// Takes the next action.
    pub fn step(&mut self) -> Option<Step> {
        if let Some(step) = self.steps.pop_front() {
            return Some(step);
        }
        while self.with_kernel < self.limits.questions {
            let peer = self.queue.pop_front()?;
            let Some(entry) = self.entries.get_mut(&peer) else { continue };
            entry.progress = Progress::Asked;
            self.with_kernel += 1;
            self.counters.questions += 1;
            let generation = self.generation;
            return Some(Step::AskRoute(Question { peer, source: entry.source, generation }));
        }
        None
    }

    /// The answer that workers have for `peer`; `None` until the kernel has answered.
    #[must_use]
    pub fn told(&self, peer: IpAddr) -> Option<Result<Egress, KernelReason>> {
        self.entries.get(&peer)?.told
    }

    /// The peers and their egress, for `show`, in order of address.
    #[must_use]
    pub fn report(&self, tables: &Tables) -> Vec<report::Neighbour> {
        let mut peers: Vec<_> = self.entries.iter().collect();
        peers.sort_by_key(|(peer, _)| **peer);
        peers.into_iter().map(|(peer, entry)| row(*peer, entry, tables)).collect()
    }

    fn admit(&mut self, peer: IpAddr, source: Option<IpAddr>, now: Instant) {
        if self.entries.len() >= self.limits.peers && !self.drop_new_peer(now) {
            self.counters.peers_refused += 1;
            return;
        }
        let entry = Entry {
            source,
            asked_at: now,
            is_new: true,
            progress: Progress::Queued,
            route: None,
            by_source: false,
            comparing: false,
            told: None,
            told_at: now,
            resolved_at: None,
        };
        self.entries.insert(peer, entry);
        self.new_peers.insert((now, peer));
        self.queue.push_back(peer);
    }

    /// Drops the oldest peer that was asked about only once, if it is old enough. Returns whether it did.
    fn drop_new_peer(&mut self, now: Instant) -> bool {
        let Some((asked_at, peer)) = self.new_peers.first().copied() else { return false };
        // A peer that is still queued must stay: it could get into the queue a second time.
        let queued = self.entries.get(&peer).is_some_and(|entry| entry.progress == Progress::Queued);
        let drops = now.since(asked_at) >= self.limits.keep_new_peer && !queued;
        if drops {
            self.drop_peer(peer);
        }
        drops
    }

    /// Combines the route with the tables, sends what has changed, and asks the kernel for the neighbour if that helps.
    fn settle(&mut self, peer: IpAddr, now: Instant, tables: &Tables) {
        let Some((answer, route)) = self.refresh_told(peer, now, tables) else { return };
        let wanted = match answer {
            Ok(_) => tables
                .neighbour(route.ifindex, route.next_hop)
                .is_some_and(|known| known.state == NeighbourState::Stale && !known.kept_by_other),
            // Its entry could exceed the size of the kernel's table.
            Err(KernelReason::UnresolvedPeer { .. }) if self.unresolved.refuses(peer, now) => false,
            Err(reason) if reason.is_unresolved() => tables
                .neighbour(route.ifindex, route.next_hop)
                .is_none_or(|known| known.state != NeighbourState::Incomplete && !known.kept_by_other),
            Err(_) => false,
        };
        let Some(entry) = self.entries.get_mut(&peer) else { return };
        let again = self.limits.resolve_again;
        if wanted && entry.resolved_at.is_none_or(|at| now.since(at) >= again) {
            entry.resolved_at = Some(now);
            self.counters.resolves += 1;
            self.steps.push_back(Step::Resolve { ifindex: route.ifindex, next_hop: route.next_hop });
        }
    }

    /// Sends workers the present answer for `peer` if it differs from the last one.
    fn refresh_told(
        &mut self,
        peer: IpAddr,
        now: Instant,
        tables: &Tables,
    ) -> Option<(Result<Egress, KernelReason>, Route)> {
        let entry = self.entries.get_mut(&peer)?;
        let route = entry.route?;
        let answer = route.and_then(|route| egress(&self.fast, peer, &route, tables));
        if entry.told != Some(answer) {
            self.unresolved.answered(peer, entry.told, answer, now);
            (entry.told, entry.told_at) = (Some(answer), now);
            self.steps.push_back(Step::Tell(Update::Learn { peer, answer }));
            self.take_neighbours_of(peer, now, tables);
        }
        route.ok().map(|route| (answer, route))
    }
}

/// The interface to name when asking for the route to `peer`: the VRF whose table applies, the link of a link-local
/// address, or none.
///
/// # Errors
/// [`KernelReason::NotPlain`] if the peer's address alone is ambiguous: the interfaces are in several VRFs, or
/// the address could be local to several links.
pub fn lookup_interface(
    peer: IpAddr,
    fast: &BTreeSet<u32>,
    tables: &Tables,
) -> Result<Option<u32>, KernelReason> {
    if matches!(peer, IpAddr::V6(v6) if v6.is_unicast_link_local()) {
        return if fast.len() > 1 { Err(KernelReason::NotPlain) } else { Ok(fast.first().copied()) };
    }
    let vrf = |ifindex: &u32| {
        tables.link(*ifindex).filter(|link| link.port_kind == "vrf").and_then(|link| link.master)
    };
    let mut all = fast.iter().map(vrf);
    let Some(first) = all.next() else { return Ok(None) };
    if all.all(|other| other == first) { Ok(first) } else { Err(KernelReason::NotPlain) }
}

/// The egress of replies to `peer` along a plain route.
fn egress(
    fast: &BTreeSet<u32>,
    peer: IpAddr,
    route: &Route,
    tables: &Tables,
) -> Result<Egress, KernelReason> {
    if !fast.contains(&route.ifindex) {
        return Err(KernelReason::OtherInterface);
    }
    let link = tables.link(route.ifindex).filter(|link| link.up).ok_or(KernelReason::NoRoute)?;
    let source_mac = link.mac.filter(|_| !link.loopback).ok_or(KernelReason::NotPlain)?;
    let neighbour = tables.neighbour(route.ifindex, route.next_hop).filter(|known| known.state.usable());
    let unresolved = || {
        if peer != route.next_hop {
            return KernelReason::Unresolved;
        }
        let network = tables.connected_network(route.ifindex, peer);
        let usual_len = if peer.is_ipv4() { 24 } else { 64 };
        KernelReason::UnresolvedPeer { prefix_len: network.map_or(usual_len, |network| network.len()) }
    };
    let next_hop_mac = neighbour.and_then(|known| known.mac).ok_or_else(unresolved)?;
    let mtu = route.mtu.map_or(link.mtu, |mtu| mtu.min(link.mtu));
    Ok(Egress { ifindex: route.ifindex, source_mac, next_hop_mac, mtu })
}

fn row(peer: IpAddr, entry: &Entry, tables: &Tables) -> report::Neighbour {
    let route = entry.route.and_then(Result::ok);
    let known = route.and_then(|route| tables.neighbour(route.ifindex, route.next_hop));
    let link = route.and_then(|route| tables.link(route.ifindex));
    let link_mtu = link.map_or(0, |link| link.mtu);
    report::Neighbour {
        peer: peer.to_string(),
        next_hop: route.map_or_else(String::new, |route| route.next_hop.to_string()),
        interface: link.map_or_else(String::new, |link| link.name.clone()),
        mac: known.and_then(|known| known.mac).map(|mac| mac.to_string()),
        state: known.map_or("none", |known| known.state.name()).to_owned(),
        mtu: route.and_then(|route| route.mtu).map_or(link_mtu, |mtu| mtu.min(link_mtu)),
        egress: match entry.told {
            Some(Ok(_)) => "fast",
            Some(Err(reason)) => reason.name(),
            None => KernelReason::Unknown.name(),
        }
        .to_owned(),
    }
}

#[cfg(test)]
mod tests;
