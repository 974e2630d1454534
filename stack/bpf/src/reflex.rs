//! Replies that the programs give by themselves (bpf/reflex.h): the peers to which they may reply, their limits,
//! and their counts.

use std::collections::HashMap as Known;
use std::net::IpAddr;
use std::sync::Arc;

use aya::Ebpf;
use aya::maps::{Array, HashMap, MapData, MapError, PerCpuArray, PerCpuValues};
use aya::util::nr_cpus;
use twinpath_claims::{REFLEX_SERVICES_MAX, Table};
use twinpath_reflex::NotReplied;
use twinpath_wire::Mac;
use twinpath_wire::flow_key::address_bytes;

use crate::SteerError;
use crate::kept::{KeptMaps, KeptServices};
use crate::layout::family;
use crate::layouts::{CountWords, CpuWords, PEER_CANARY_NS, Peer, PeerKey, reflex_control};
use crate::mapped::Mapped;
use crate::maps::{failed, gone, typed, wrote};
use crate::taps::{ReflexTap, Taps};

/// Maximum number of peers to which the programs can reply: the same as workers know
/// (`twinpath_udp::egress::PEERS_MAX`).
pub const REFLEX_PEERS_MAX: u32 = 4096;

/// The settings that programs with replies need at load time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReflexPlan {
    /// Whether frames may come with checksums that their senders have left to hardware: the device is virtual.
    pub partial_checksums: bool,
    /// Replies per second to all sources together, at least 1.
    pub rate: u32,
    /// Whether they sometimes leave everything to the worker while there are many replies, and for as long as it
    /// answers more (`twinpath_idle::Answering`).
    pub tries_worker: bool,
}

/// How replies to a peer leave through this interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReflexPeer {
    /// Link-layer address of the next hop. Only a request that came from there gets a reply.
    pub next_hop: Mac,
    /// Our link-layer address.
    pub own: Mac,
    /// Largest IP packet on the path, bytes.
    pub mtu: u32,
}

/// The requests to which programs have replied, by a claim's [place](twinpath_claims::Reflex::place).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReflexCount {
    /// Replies.
    pub replies: u64,
    /// Bytes of the requests, from the Ethernet header on.
    pub bytes: u64,
}

/// Replies that the programs of an interface give by themselves: the peers to which they may reply, and their
/// counts.
pub struct Reflexes {
    peers: HashMap<MapData, PeerKey, Peer>,
    known: Known<IpAddr, ReflexPeer>,
    /// The places of the claims in force: a newly taken one begins to count at 0.
    taken: Vec<u8>,
    /// An invalid entry of a peer could not be removed.
    outdated: bool,
    places: Array<MapData, u64>,
    counts: PerCpuArray<MapData, CountWords>,
    cpus: PerCpuArray<MapData, CpuWords>,
    control: Mapped,
    kept: Option<KeptServices>,
    taps: Taps,
}

/// Words of `struct reflex_control`.
const SUSPENDED: usize = reflex_control::SUSPENDED_AT / 8;
const INTERVAL_NS: usize = reflex_control::INTERVAL_NS_AT / 8;
const FRAME_LEN_MAX: usize = reflex_control::FRAME_LEN_MAX_AT / 8;
const CREDITS: usize = reflex_control::CREDITS_AT / 8;
const TAPS: usize = reflex_control::TAPS_AT / 8;

/// A CPU takes a millisecond's worth of replies from the common bucket in one go, and at most this many.
const CREDITS_PER_S: u32 = 1000;
const CREDITS_MAX: u32 = 64;

/// Requests of a new peer that go to the worker first: more than it takes to become active there
/// (`twinpath_udp::egress::PROVEN_USES`).
const TO_WORKER: u32 = 5;

impl Reflexes {
    pub(crate) fn take(
        object: &mut Ebpf,
        plan: &ReflexPlan,
        kept: Option<&Arc<KeptMaps>>,
    ) -> Result<Self, SteerError> {
        let kept = kept.map(|kept| kept.give(object)).transpose()?;
        let control = Mapped::take(object, "reflex_control", reflex_control::LEN)?;
        control.store(INTERVAL_NS, interval_ns(plan.rate.max(1)));
        control.store(CREDITS, u64::from((plan.rate / CREDITS_PER_S).clamp(1, CREDITS_MAX)));
        Ok(Self {
            peers: typed(object, "peers")?,
            known: Known::new(),
            taken: Vec::new(),
            outdated: false,
            places: typed(object, "reflex_places")?,
            counts: typed(object, "reflex_counts")?,
            cpus: typed(object, "reflex_cpu")?,
            control,
            kept,
            taps: Taps::take(object)?,
        })
    }

    /// Writes the limits of a table's claims, and the properties of their services.
    pub(crate) fn apply(&mut self, table: &Table) -> Result<(), SteerError> {
        self.kept.as_mut().map_or(Ok(()), |kept| kept.apply(table))?;
        let reflexes = || table.claims().iter().filter_map(|claim| claim.reflex);
        for reflex in reflexes() {
            let place = u32::from(reflex.place);
            self.places.set(place, interval_ns(reflex.source_rate), 0).map_err(wrote("reflex_places"))?;
            if !self.taken.contains(&reflex.place) {
                let cpus = nr_cpus().map_err(|(_, error)| failed("reflex_counts", "sizing", error))?;
                let none = PerCpuValues::try_from(vec![CountWords { replies: 0, bytes: 0 }; cpus]);
                let none = none.map_err(|error| failed("reflex_counts", "sizing", error))?;
                self.counts.set(place, none, 0).map_err(wrote("reflex_counts"))?;
            }
        }
        self.taken = reflexes().map(|reflex| reflex.place).collect();
        Ok(())
    }

    /// Sets how replies to a peer leave; `None`: the programs do not reply to it. `now_ns`: CLOCK_MONOTONIC.
    ///
    /// # Errors
    /// [`SteerError::Map`].
    pub fn set_peer(
        &mut self,
        address: IpAddr,
        peer: Option<ReflexPeer>,
        now_ns: u64,
    ) -> Result<(), SteerError> {
        if self.known.get(&address) == peer.as_ref() {
            // The programs' part of the entry stays as it is.
            return Ok(());
        }
        let Some(new) = peer else { return self.remove(address) };
        self.put(address, new, now_ns)
    }

    /// Sends the next requests of a peer to the worker, which learns from them that the peer is in use. `now_ns`:
    /// CLOCK_MONOTONIC.
    ///
    /// # Errors
    /// [`SteerError::Map`].
    pub fn show_to_worker(&mut self, address: IpAddr, now_ns: u64) -> Result<(), SteerError> {
        let Some(known) = self.known.get(&address).copied() else { return Ok(()) };
        self.put(address, known, now_ns)
    }

    /// Rewrites a peer's entry, including the programs' part of it.
    fn put(&mut self, address: IpAddr, new: ReflexPeer, now_ns: u64) -> Result<(), SteerError> {
        let key = PeerKey::of(address);
        let entry = Peer {
            next_hop: new.next_hop.0,
            own: new.own.0,
            mtu: new.mtu,
            full_at_ns: [0; REFLEX_SERVICES_MAX],
            canary_ns: now_ns + PEER_CANARY_NS,
            to_worker: TO_WORKER,
            reserved: 0,
        };
        if let Err(error) = self.peers.insert(key, entry, 0) {
            // The former entry is out of date.
            self.remove(address)?;
            return Err(wrote("peers")(error));
        }
        self.known.insert(address, new);
        Ok(())
    }

    /// The programs no longer reply to this peer. If its entry cannot be removed, they reply to nobody.
    fn remove(&mut self, address: IpAddr) -> Result<(), SteerError> {
        if !self.known.contains_key(&address) {
            return Ok(());
        }
        let removed = gone(self.peers.remove(&PeerKey::of(address)), "peers");
        match &removed {
            Ok(()) => drop(self.known.remove(&address)),
            Err(_) => {
                self.outdated = true;
                self.suspend(true);
            }
        }
        removed
    }

    /// The programs no longer reply to any peer.
    ///
    /// # Errors
    /// [`SteerError::Map`].
    pub fn clear_peers(&mut self) -> Result<(), SteerError> {
        let known: Vec<IpAddr> = self.known.keys().copied().collect();
        let mut removed = Ok(());
        for address in known {
            removed = removed.and(self.remove(address));
        }
        removed
    }

    /// Sets the longest frame that the interface sends, bytes, from the Ethernet header on. Datagrams have the
    /// limit of their [egress](ReflexPeer::mtu).
    pub fn set_frame_len_max(&self, bytes: u32) {
        self.control.store(FRAME_LEN_MAX, u64::from(bytes));
    }

    /// While suspended, every request goes to a worker.
    pub fn suspend(&self, suspended: bool) {
        self.control.store(SUSPENDED, u64::from(suspended || self.outdated));
    }

    /// From now on only these taps get copies of requests and their replies; at most [`TAPS_MAX`](crate::TAPS_MAX).
    ///
    /// # Errors
    /// [`SteerError::Map`]; some of them may get copies, and those that are no longer wanted get none.
    pub fn set_taps(&mut self, taps: &[&ReflexTap]) -> Result<(), SteerError> {
        let Self { taps: places, control, .. } = self;
        places.set(taps, |bits| control.store(TAPS, bits))
    }

    /// The places of the claims in force.
    pub fn places(&self) -> impl Iterator<Item = u8> {
        self.taken.iter().copied()
    }

    /// The counts of a claim, by its place.
    ///
    /// # Errors
    /// [`SteerError::Map`].
    pub fn count(&self, place: u8) -> Result<ReflexCount, SteerError> {
        let cpus = self.counts.get(&u32::from(place), 0).map_err(cannot_read("reflex_counts"))?;
        Ok(cpus.iter().fold(ReflexCount::default(), |sum, cpu| ReflexCount {
            replies: sum.replies.wrapping_add(cpu.replies),
            bytes: sum.bytes.wrapping_add(cpu.bytes),
        }))
    }

    /// Number of requests of claims with reflexes to which the programs did not reply, by reason.
    ///
    /// # Errors
    /// [`SteerError::Map`].
    pub fn not_replied(&self) -> Result<Vec<(NotReplied, u64)>, SteerError> {
        let cpus = self.cpus.get(&0, 0).map_err(cannot_read("reflex_cpu"))?;
        let sum = |why: NotReplied| {
            cpus.iter().fold(0u64, |sum, cpu| sum.wrapping_add(cpu.why[usize::from(why.number())]))
        };
        Ok(NotReplied::ALL.iter().map(|&why| (why, sum(why))).collect())
    }
}

fn cannot_read(map: &'static str) -> impl Fn(MapError) -> SteerError {
    move |error| SteerError::Map { map, action: "reading", error: Box::new(error) }
}

const fn interval_ns(rate: u32) -> u64 {
    if rate == 0 { 0 } else { 1_000_000_000 / rate as u64 }
}

impl PeerKey {
    fn of(address: IpAddr) -> Self {
        Self { family: family(address), reserved: [0; 3], address: address_bytes(address) }
    }
}
