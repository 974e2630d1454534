//! The rules in the kernel's maps, and how they change while programs run.

use std::collections::{HashMap as Known, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use aya::Ebpf;
use aya::maps::lpm_trie::{Key, LpmTrie};
use aya::maps::of_maps::ArrayOfMaps;
use aya::maps::{Array, HashMap, Map, MapData, MapError, PerCpuArray};
use twinpath_claims::{Table, Verdict};

use crate::SteerError;
use crate::layout::{
    AddressKey, ClaimKey, ClaimValue, FlowKeyBytes, PROGRAM_COUNTERS, PerCpu, SourceKey, State,
};
use crate::rules::Rules;

/// The maps of one loaded object.
pub(crate) struct Maps {
    state: Array<MapData, State>,
    claims: HashMap<MapData, ClaimKey, ClaimValue>,
    addresses: HashMap<MapData, AddressKey, u32>,
    flows: HashMap<MapData, FlowKeyBytes, u32>,
    sources: LpmTrie<MapData, SourceKey, u32>,
    per_cpu: PerCpuArray<MapData, PerCpu>,
    grace: Arc<Mutex<Grace>>,
    /// Waits for the programs that may use the retired entries. All entries that are retired were retired when the
    /// wait began.
    settling: Option<JoinHandle<Result<(), SteerError>>>,
    /// A copy of the state that the kernel has.
    written: Box<State>,
    /// Whether the programs can claim connections of TCP.
    connections: bool,
    /// The table in force.
    table: Option<Table>,
    /// Entries in the maps of the generation in force.
    current: Entries,
    /// Entries of the other generation, to be removed once no program can be using them.
    retired: Entries,
}

/// The map whose update returns when all programs that were running have ended.
struct Grace {
    outer: ArrayOfMaps<MapData, Array<MapData, u32>>,
    token: Array<MapData, u32>,
}

impl Grace {
    fn wait(&mut self) -> Result<(), SteerError> {
        self.outer.set(0, &self.token, 0).map_err(wrote("grace"))
    }
}

/// Keys that are in the maps.
#[derive(Default)]
struct Entries {
    claims: Vec<ClaimKey>,
    addresses: Vec<AddressKey>,
    sources: Vec<(u32, SourceKey)>,
    flows: Known<FlowKeyBytes, u32>,
}

impl Entries {
    fn is_empty(&self) -> bool {
        self.claims.is_empty()
            && self.addresses.is_empty()
            && self.sources.is_empty()
            && self.flows.is_empty()
    }

    fn extend(&mut self, more: Self) {
        self.claims.extend(more.claims);
        self.addresses.extend(more.addresses);
        self.sources.extend(more.sources);
        self.flows.extend(more.flows);
    }
}

impl Maps {
    pub(crate) fn take(object: &mut Ebpf, connections: bool) -> Result<Self, SteerError> {
        Ok(Self {
            state: typed(object, ".bss")?,
            claims: typed(object, "claims")?,
            addresses: typed(object, "addresses")?,
            flows: typed(object, "flows")?,
            sources: typed(object, "sources")?,
            per_cpu: typed(object, "per_cpu")?,
            grace: Arc::new(Mutex::new(Grace {
                outer: typed(object, "grace")?,
                token: typed(object, "grace_token")?,
            })),
            settling: None,
            written: Box::new(State::EMPTY),
            connections,
            table: None,
            current: Entries::default(),
            retired: Entries::default(),
        })
    }

    /// Makes the maps equal the table. After an error, the old rules are in force, or the new ones if only removing
    /// the old ones failed; the next call removes those.
    pub(crate) fn apply(&mut self, table: &Table) -> Result<(), SteerError> {
        self.replace(table)?;
        self.reclaim()
    }

    /// As [`Self::apply`], but never waits: the former entries are removed by the next change. While programs may
    /// still see the rules of the last change, nothing is changed.
    pub(crate) fn apply_unless_waits(&mut self, table: &Table) -> Result<(), SteerError> {
        let waits =
            self.settling.as_ref().map_or(!self.retired.is_empty(), |settling| !settling.is_finished());
        if waits || !self.replace(table)? || self.retired.is_empty() {
            return Ok(());
        }
        let grace = Arc::clone(&self.grace);
        let wait = move || grace.lock().unwrap_or_else(PoisonError::into_inner).wait();
        let started = thread::Builder::new().name("twinpath-settle".to_owned()).spawn(wait);
        // Without a thread, the next change waits.
        self.settling = started.ok();
        Ok(())
    }

    /// As [`Self::apply`], but returns only when all programs that began before have ended, even if the table was
    /// in force already.
    pub(crate) fn apply_and_settle(&mut self, table: &Table) -> Result<(), SteerError> {
        let is_new = self.replace(table)?;
        // Nothing is removed after the first table, for example.
        if is_new && !self.retired.is_empty() { self.reclaim() } else { self.settle() }
    }

    /// Puts the table in force, if it is not, and retires the entries of the former one. Returns whether there was
    /// a change.
    fn replace(&mut self, table: &Table) -> Result<bool, SteerError> {
        if self.table.as_ref() == Some(table) {
            return Ok(false);
        }
        self.reclaim()?;
        let generation = self.written.active as usize ^ 1;
        let rules = Rules::of(table, generation as u8, self.connections);
        let mut new = Entries::default();
        if let Err(error) = self.insert(&rules, &mut new) {
            // Entries of the other generation, so that they can be removed immediately; flows that were there
            // before stay.
            new.flows.retain(|key, _| !self.current.flows.contains_key(key));
            self.retired = new;
            self.reclaim()?;
            return Err(error);
        }
        self.written.config[generation] = rules.config;
        self.written.plain[generation] = *rules.plain;
        self.written.ports[generation] = *rules.ports;
        self.write_state()?;
        self.written.active = generation as u32;
        self.write_state()?;
        self.table = Some(table.clone());
        self.retired = std::mem::replace(&mut self.current, new);
        let kept: HashSet<_> = self.current.flows.keys().copied().collect();
        self.retired.flows.retain(|key, _| !kept.contains(key));
        Ok(true)
    }

    /// Withdraws all claims, and returns when no program that still saw them is running.
    pub(crate) fn withdraw(&mut self) -> Result<(), SteerError> {
        let generation = self.written.active as usize ^ 1;
        self.written.config[generation] = State::EMPTY.config[0];
        self.written.plain[generation] = State::EMPTY.plain[0];
        self.written.ports[generation] = State::EMPTY.ports[0];
        self.write_state()?;
        self.written.active = generation as u32;
        self.write_state()?;
        self.table = None;
        self.retired.extend(std::mem::take(&mut self.current));
        // It began before these were retired.
        self.settling = None;
        self.reclaim()
    }

    fn insert(&mut self, rules: &Rules, new: &mut Entries) -> Result<(), SteerError> {
        for (key, value) in &rules.claims {
            self.claims.insert(key, value, 0).map_err(wrote("claims"))?;
            new.claims.push(*key);
        }
        for key in &rules.addresses {
            self.addresses.insert(key, 1, 0).map_err(wrote("addresses"))?;
            new.addresses.push(*key);
        }
        for (len, key) in &rules.sources {
            self.sources.insert(&Key::new(*len, *key), 1, 0).map_err(wrote("sources"))?;
            new.sources.push((*len, *key));
        }
        for (key, index) in &rules.flows {
            if self.current.flows.get(key) != Some(index) {
                self.flows.insert(key, index, 0).map_err(wrote("flows"))?;
            }
            new.flows.insert(*key, *index);
        }
        Ok(())
    }

    fn write_state(&mut self) -> Result<(), SteerError> {
        let state: &State = &self.written;
        self.state.set(0, state, 0).map_err(wrote(".bss"))
    }

    /// Returns when all programs that were running have ended. The kernel handles a frame, from its arrival to the
    /// receive buffer of a socket, in one RCU read-side section, so the frames that those programs passed are then
    /// in their sockets.
    fn settle(&mut self) -> Result<(), SteerError> {
        self.grace.lock().unwrap_or_else(PoisonError::into_inner).wait()
    }

    /// Removes the entries out of force, after waiting until no program can be using them.
    fn reclaim(&mut self) -> Result<(), SteerError> {
        if self.retired.is_empty() {
            return Ok(());
        }
        let settled = self.settling.take().and_then(|settling| settling.join().ok());
        if !matches!(settled, Some(Ok(()))) {
            self.settle()?;
        }
        let retired = std::mem::take(&mut self.retired);
        for key in &retired.claims {
            gone(self.claims.remove(key), "claims")?;
        }
        for key in &retired.addresses {
            gone(self.addresses.remove(key), "addresses")?;
        }
        for (len, key) in &retired.sources {
            gone(self.sources.remove(&Key::new(*len, *key)), "sources")?;
        }
        for key in retired.flows.keys() {
            gone(self.flows.remove(key), "flows")?;
        }
        Ok(())
    }

    /// Every counter, summed over all CPUs.
    pub(crate) fn counters(&self) -> Result<Vec<(&'static str, u64)>, SteerError> {
        let cpus = self.per_cpu.get(&0, 0).map_err(|error| SteerError::Map {
            map: "per_cpu",
            action: "reading",
            error: Box::new(error),
        })?;
        let sum = |index: usize| cpus.iter().fold(0u64, |sum, cpu| sum.wrapping_add(cpu.counters[index]));
        let verdicts = (0..Verdict::NUMBERS as u8)
            .filter_map(|number| Some((Verdict::name_of(number)?, sum(usize::from(number)))));
        Ok(verdicts.chain(PROGRAM_COUNTERS.iter().map(|&(index, name)| (name, sum(index)))).collect())
    }
}

/// The map of this name, as the type it must have.
pub(crate) fn typed<M: TryFrom<Map, Error = MapError>>(
    object: &mut Ebpf,
    name: &'static str,
) -> Result<M, SteerError> {
    let map = object.take_map(name).ok_or(SteerError::Missing(name))?;
    M::try_from(map).map_err(|error| SteerError::Map { map: name, action: "opening", error: Box::new(error) })
}

/// The error of an operation on a map.
pub(crate) fn failed(map: &'static str, action: &'static str, error: std::io::Error) -> SteerError {
    SteerError::Map { map, action, error: Box::new(MapError::IoError(error)) }
}

pub(crate) fn wrote(map: &'static str) -> impl Fn(MapError) -> SteerError {
    move |error| SteerError::Map { map, action: "writing", error: Box::new(error) }
}

/// Removing a missing entry is not an error.
pub(crate) fn gone(result: Result<(), MapError>, map: &'static str) -> Result<(), SteerError> {
    match result {
        Ok(()) | Err(MapError::KeyNotFound) => Ok(()),
        Err(MapError::SyscallError(error)) if error.io_error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(SteerError::Map { map, action: "removing from", error: Box::new(error) }),
    }
}
