//! Frames between learned addresses, forwarded by the kernel.
//!
//! A worker forwards them by the MAC table, and shows the head of one now and then. If both addresses are where the table says,
//! and the frame leaves unchanged by one port ([`Shared::way`]), an entry has the kernel forward all frames with these addresses
//! that come in by that port. It is void
//!
//! - at once when a worker learns that one of the addresses has moved ([`Moves`]),
//! - at the time when the destination is too old, which is part of the entry,
//! - when none of its frames has come for a while,
//! - when the ports or the configuration change, which control says before workers hear of it.
//!
//! What is forwarded so, workers do not see. So [`Learned::look_after`] goes through the entries from time to time, while there
//! are any: it tells the table of sources that have sent, so that these stay known, and gives entries more time whose
//! destinations have. It may be late: then frames go to workers.

use std::collections::BTreeMap;
use std::sync::Arc;

use twinpath_bpf::{Offload, Unmoved};
use twinpath_forwarding::learning::{Arrival, Shared, Snapshot, Stations, Way};
use twinpath_forwarding::openflow::pipeline::{Inserted, Trace, WhyNot};
use twinpath_time::{Duration, Instant};

use crate::offload::{
    KernelPort, Lifetime, Moves, NotOffloaded, Offloaded, OffloadedHomes, PortForwarded, PortsAlone,
};

/// Idle time after which an entry ends, or half of the ageing time if that is less. If its frames come later, workers
/// soon show one again.
const IDLE_MAX: Duration = Duration::from_secs(10);

/// The same while there is no room for others, so that frames with ever new addresses hold no entry for long.
const IDLE_IF_FULL: Duration = Duration::from_secs(1);

/// How often entries are looked after while there is no room.
const LOOK_IF_FULL: Duration = Duration::from_secs(1);

/// Entries that are looked after before other work gets its turn.
const PART: usize = 1024;

/// The share of the entries that frames of one port may take: frames with ever new addresses from there leave room for others.
const PORT_SHARE: usize = 4;

/// Frames from one address to another that come in by one port.
#[derive(Clone, Copy, Debug)]
struct Pair {
    stations: Stations,
    from: u16,
    to: u16,
    /// When the destination is too old, as the entry says.
    until: Instant,
    unmoved: Unmoved,
    /// When the source was last heard of here.
    heard: Instant,
}

impl Pair {
    /// Its last frame came then. Returns whether the source is still known where it was.
    fn hear(&mut self, used: Instant, shared: &Shared, now: Instant, snapshot: &Snapshot) -> bool {
        // While nothing is learned there, it is told later.
        if used <= self.heard || shared.is_blocked(self.from, now) {
            return true;
        }
        self.heard = used;
        shared.heard(snapshot, (self.stations.source, self.stations.vlan), self.from, used, now)
    }
}

/// The entries for frames between learned addresses.
#[derive(Debug)]
pub struct Learned {
    homes: OffloadedHomes,
    shared: Arc<Shared>,
    moves: Arc<Moves>,
    /// The namespaces' places there.
    places: BTreeMap<usize, u8>,
    /// By their namespaces and numbers. Some may be void already.
    pairs: BTreeMap<(usize, u32), Pair>,
    /// When they are looked after next, or where that goes on if it has begun.
    next: Instant,
    goes_on: Option<(usize, u32)>,
    /// When that has begun last.
    began: Instant,
    /// An entry had no room since then.
    is_full: bool,
    has_begun: bool,
}

impl Learned {
    /// No namespace yet. Workers count moves in `moves`, and learn in `shared`.
    #[must_use]
    pub fn new(shared: Arc<Shared>, moves: Arc<Moves>) -> Self {
        Self {
            homes: OffloadedHomes::default(),
            shared,
            moves,
            places: BTreeMap::new(),
            pairs: BTreeMap::new(),
            next: Instant::NEVER,
            goes_on: None,
            began: Instant::ZERO,
            is_full: false,
            has_begun: false,
        }
    }

    /// Adds a namespace. If there are too many, workers forward its frames.
    pub fn add(&mut self, home: usize, mut offload: Offload) {
        if let Some(place) = self.moves.add(&mut offload) {
            self.places.insert(home, place);
            self.homes.add(home, Offloaded::new(offload));
        }
    }

    /// Removes a namespace whose ports are none any more.
    pub fn remove(&mut self, home: usize, now: Instant, snapshot: &Snapshot) {
        let Some(place) = self.places.remove(&home) else { return };
        self.tell(now, snapshot);
        self.homes.remove(home, &mut PortsAlone);
        self.moves.remove(place);
        self.forget_void();
    }

    #[doc(hidden)]
    pub fn offloaded_mut(&mut self, home: usize) -> Option<&mut Offloaded> {
        self.homes.get_mut(home)
    }

    /// Whether the kernel may forward something for the first time: workers then get memory for what they show, and keep it.
    pub fn begins(&mut self) -> bool {
        !self.homes.is_empty() && !std::mem::replace(&mut self.has_begun, true)
    }

    /// Entries believed to be in force.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.homes.entries()
    }

    /// Says what ports are, by their numbers.
    pub fn set_ports(
        &mut self,
        ports: &[(u32, Option<(usize, KernelPort)>)],
        now: Instant,
        snapshot: &Snapshot,
    ) {
        self.tell(now, snapshot);
        self.homes.set_ports(ports);
        for (number, port) in ports {
            let place = port.as_ref().and_then(|(home, _)| self.places.get(home));
            self.moves.set_port(*number, place.copied());
        }
        self.forget_void();
    }

    /// Has workers forward all frames, or no longer.
    pub fn suspend(&mut self, is_suspended: bool, now: Instant, snapshot: &Snapshot) {
        if is_suspended != self.homes.is_suspended() {
            self.tell(now, snapshot);
            self.homes.suspend(is_suspended);
            self.forget_void();
        }
    }

    /// Tells the table of all sources that have sent.
    pub fn tell(&mut self, now: Instant, snapshot: &Snapshot) {
        for ((home, number), pair) in &mut self.pairs {
            if let Some(offloaded) = self.homes.get_mut(*home) {
                pair.hear(offloaded.offload().used(*number), &self.shared, now, snapshot);
            }
        }
    }

    /// Drops what belongs to entries that are void, and adds what these have counted.
    fn forget_void(&mut self) {
        let homes = &mut self.homes;
        self.pairs.retain(|(home, number), _| {
            homes.get_mut(*home).is_some_and(|offloaded| offloaded.entries().is_in_force(*number))
        });
        homes.settle(&mut PortsAlone);
        if self.pairs.is_empty() {
            (self.next, self.goes_on) = (Instant::NEVER, None);
        }
    }

    fn idle(snapshot: &Snapshot) -> Duration {
        IDLE_MAX.min(snapshot.ageing() / 2)
    }

    /// How often entries are looked after: often enough that an address which sends is known all the time, and that those which
    /// are not used give their room back.
    fn interval(snapshot: &Snapshot) -> Duration {
        (snapshot.ageing() / 8).min(IDLE_MAX * 2)
    }

    /// A worker has forwarded a frame that begins so, and came in by that port with that tag beside it. Returns whether the
    /// kernel forwards something by that which it did not before.
    pub fn sampled(
        &mut self,
        now: Instant,
        snapshot: &Snapshot,
        in_port: u16,
        head: &[u8],
        tag: Option<u16>,
    ) -> bool {
        if self.homes.is_suspended() {
            return false;
        }
        let arrival = Arrival::read(in_port, head, tag, 1);
        let Some(stations) = snapshot.stations(&arrival) else { return false };
        let Some((home, offloaded)) = self.homes.of_port(in_port.into()) else { return false };
        // First, so that a move from now on is not missed.
        let addresses = [stations.source, stations.destination];
        let unmoved = offloaded.offload().moves().unmoved(addresses, stations.vlan);
        let Some(Way { port, until }) = self.shared.way(snapshot, now, &arrival, &stations) else {
            return false;
        };
        let vlans = snapshot.config().vlans;
        let trace = Trace::between_stations(head, tag, in_port.into(), vlans, port.into());
        let Some(trace) = trace else { return false };
        let pair = Pair { stations, from: in_port, to: port, until, unmoved, heard: now };
        let known = offloaded
            .entries()
            .find(&trace)
            .and_then(|number| self.pairs.get(&(home, number)).map(|pair| (number, pair)));
        // The frame is older than the entry, or one that the kernel leaves to workers.
        if known.is_some_and(|(number, known)| {
            known.to == port && is_in_force(offloaded, number, known, now, Self::idle(snapshot))
        }) {
            return false;
        }
        match offer(offloaded, now, &trace, &pair, Self::idle(snapshot)) {
            Ok(number) => {
                self.pairs.insert((home, number), pair);
                self.next = self.next.min(now + Self::interval(snapshot));
                true
            }
            Err(NotOffloaded::WhyNot(WhyNot::Full)) => {
                self.is_full = true;
                self.next = self.next.min(self.began + LOOK_IF_FULL);
                false
            }
            Err(NotOffloaded::WhyNot(_)) => false,
            Err(NotOffloaded::Kernel(error)) => {
                self.homes.note(Err(error));
                false
            }
        }
    }

    /// When [`Self::look_after`] is due.
    #[must_use]
    pub const fn deadline(&self) -> Instant {
        if self.goes_on.is_some() { Instant::ZERO } else { self.next }
    }

    /// Looks after some entries, if that is due.
    pub fn look_after(&mut self, now: Instant, snapshot: &Snapshot) {
        if now < self.deadline() {
            return;
        }
        if self.goes_on.is_none() {
            self.began = now;
        }
        let idle = if self.is_full { Self::idle(snapshot).min(IDLE_IF_FULL) } else { Self::idle(snapshot) };
        let from = self.goes_on.take().unwrap_or_default();
        let part: Vec<_> = self.pairs.range(from..).take(PART + 1).map(|(key, pair)| (*key, *pair)).collect();
        self.goes_on = part.get(PART).map(|(key, _)| *key);
        let mut outcome = Ok(());
        let mut has_ended = false;
        for ((home, number), mut pair) in part.into_iter().take(PART) {
            let Some(offloaded) = self.homes.get_mut(home) else { continue };
            match review(offloaded, &self.shared, (now, idle), snapshot, number, &mut pair) {
                Some(is_later) => {
                    if is_later {
                        let lifetime = lifetime(&pair, Self::idle(snapshot));
                        outcome = outcome.and(offloaded.prolong(number, lifetime));
                    }
                    self.pairs.insert((home, number), pair);
                }
                None => {
                    outcome = outcome.and(offloaded.end([number]));
                    has_ended = true;
                }
            }
        }
        self.homes.note(outcome);
        if has_ended {
            self.forget_void();
        }
        if self.goes_on.is_none() {
            self.is_full = false;
            let next = now + Self::interval(snapshot);
            self.next = if self.pairs.is_empty() { Instant::NEVER } else { next };
        }
    }

    /// Adds to the ports what the kernel has counted.
    pub fn record(&mut self, now: Instant) {
        self.homes.record(now, &mut PortsAlone);
    }

    /// What the kernel has forwarded from and to a port, as recorded so far.
    #[must_use]
    pub fn forwarded(&self, port: u16) -> PortForwarded {
        self.homes.forwarded(port.into())
    }
}

const fn lifetime(pair: &Pair, idle: Duration) -> Lifetime {
    let deadline = if pair.until.as_nanos() == Instant::NEVER.as_nanos() { None } else { Some(pair.until) };
    Lifetime { deadline, idle: Some(idle), unmoved: Some(pair.unmoved) }
}

/// Whether the kernel forwards by an entry, if its ports are what they were.
fn is_in_force(offloaded: &Offloaded, number: u32, pair: &Pair, now: Instant, idle: Duration) -> bool {
    let offload = offloaded.offload();
    now < pair.until && now.since(offload.used(number)) <= idle && offload.moves().holds(&pair.unmoved)
}

/// Puts an entry in, or makes one that is there right again. Returns its number.
fn offer(
    offloaded: &mut Offloaded,
    now: Instant,
    trace: &Trace,
    pair: &Pair,
    idle: Duration,
) -> Result<u32, NotOffloaded> {
    let lifetime = lifetime(pair, idle);
    let entries = offloaded.entries();
    let has_room =
        entries.count_from(pair.from.into()) < offloaded.offload().capacity() as usize / PORT_SHARE;
    if !has_room && entries.find(trace).is_none() {
        return Err(WhyNot::Full.into());
    }
    let number = match offloaded.offer(now, trace, lifetime)? {
        Inserted::Now(number) => return Ok(number),
        Inserted::Before(number) => number,
    };
    let leads_elsewhere =
        offloaded.entries().get(number).is_some_and(|entry| entry.output != u32::from(pair.to));
    if leads_elsewhere {
        offloaded.end([number])?;
        offloaded.settle(&mut PortsAlone)?;
        let (Inserted::Now(number) | Inserted::Before(number)) = offloaded.offer(now, trace, lifetime)?;
        return Ok(number);
    }
    offloaded.prolong(number, lifetime)?;
    Ok(number)
}

/// Tells the table that the source of an entry has sent. `None`: the entry is no longer right, or not used. Otherwise
/// returns whether the entry should soon be updated, as its destination is now known for longer than the entry says.
fn review(
    offloaded: &Offloaded,
    shared: &Shared,
    (now, idle): (Instant, Duration),
    snapshot: &Snapshot,
    number: u32,
    pair: &mut Pair,
) -> Option<bool> {
    let Pair { stations: Stations { destination, vlan, .. }, to, .. } = *pair;
    let offload = offloaded.offload();
    let used = offload.used(number);
    if !offloaded.entries().is_in_force(number) || !pair.hear(used, shared, now, snapshot) {
        return None;
    }
    if !offload.moves().holds(&pair.unmoved) || now.since(used) > idle {
        return None;
    }
    let until = shared.known_until(snapshot, (destination, vlan), to, now)?;
    let is_later = until > pair.until && pair.until < now + snapshot.ageing() / 2;
    if is_later {
        pair.until = until;
    }
    Some(is_later)
}
