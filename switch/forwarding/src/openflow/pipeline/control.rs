//! Control's end of a pipeline: flows, groups, meters and ports, and the versions of them that workers get.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Weak};

use foldhash::fast::FixedState;
use twinpath_openflow_wire::{Bucket, Count, Instruction, Match, number};
use twinpath_time::Instant;

use crate::openflow::pipeline::counters::{Counters, NoCounter, Numbers};
use crate::openflow::pipeline::group::{Choice, Group, GroupConfig};
use crate::openflow::pipeline::hash::{Mask, Seed, mix};
use crate::openflow::pipeline::key::{self, Key};
use crate::openflow::pipeline::meter::{Meter, MeterConfig};
use crate::openflow::pipeline::parse::Ingress;
use crate::openflow::pipeline::port::{Port, Ports};
use crate::openflow::pipeline::rule::{FlowId, Program, Rule};
use crate::openflow::pipeline::snapshot::{FlowMask, Snapshot};
use crate::openflow::pipeline::sync::{AtomicU64, Ordering};
use crate::openflow::pipeline::table::Table;
use crate::openflow::pipeline::trace::{ExactKey, Path, Tables, Trace};
use crate::openflow::pipeline::trie::Trie;
use crate::openflow::pipeline::worker::Worker;

/// Number of tables (OpenFlow 1.3.5, 7.3.5.5: 255 is not a table).
pub const TABLES: usize = number::table::MAX as usize + 1;

/// Maximum depth of groups that watch groups; deeper ones are not live.
const WATCH_DEPTH_MAX: usize = 32;

/// Up to this many rules in all tables are taken to be in a CPU's caches: 64 KiB.
const CACHED_RULES: usize = 256;

/// A flow as it is put in.
#[derive(Clone, Copy, Debug)]
pub struct Flow<'a> {
    /// Its table, below [`TABLES`].
    pub table: u8,
    /// Its priority; the highest wins.
    pub priority: u16,
    /// What it matches.
    pub fields: &'a Match,
    /// What is done then: each kind of instruction once at most, and a later table to go to.
    pub instructions: &'a [Instruction],
    /// What packet-ins say of it.
    pub cookie: u64,
}

/// There is no room for another flow, group or meter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the tables are full: {} flows, groups, buckets, meters and bands are all there may be",
    crate::openflow::pipeline::counters::COUNTERS_MAX
)]
pub struct TableFull;

impl From<NoCounter> for TableFull {
    fn from(NoCounter: NoCounter) -> Self {
        Self
    }
}

/// What a flow has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCount {
    /// Packets and bytes.
    pub count: Count,
    /// When it matched last, as recorded so far; [`Instant::ZERO`]: never.
    pub used: Instant,
}

/// What a table has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableCount {
    /// Flows in it.
    pub flows: usize,
    /// Packets looked up.
    pub lookups: u64,
    /// Packets that matched a flow.
    pub matched: u64,
}

/// What a group or a meter has counted, in all and by bucket or band.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PartsCount {
    /// In all.
    pub whole: Count,
    /// By its buckets or bands, in order.
    pub parts: Box<[Count]>,
}

#[derive(Debug)]
struct GroupEntry {
    config: GroupConfig,
    choice: Choice,
    counter: u32,
    parts: Vec<u32>,
}

#[derive(Debug)]
struct MeterEntry {
    counter: u32,
    parts: Vec<u32>,
}

/// Numbers of counters that are free once every worker has taken a version.
#[derive(Debug)]
struct Leaving {
    version: u64,
    counters: Vec<u32>,
    flows: Vec<u32>,
}

/// Control's end of a pipeline. It belongs to one thread.
#[derive(Debug)]
pub struct Pipeline {
    workers: usize,
    /// Those of each worker; then what was counted elsewhere, if anything was.
    counters: Vec<Arc<Counters>>,
    numbers: Numbers,
    seed: Seed,
    flow_mask: Arc<FlowMask>,
    tables: Box<[Table]>,
    /// By their counters.
    flows: Vec<Option<Arc<Rule>>>,
    flow_count: usize,
    /// Masks in use, so that all flows of a mask share one.
    masks: HashMap<Key, Weak<Mask>, FixedState>,
    groups: BTreeMap<u32, GroupEntry>,
    group_trie: Trie<Arc<Group>>,
    meters: BTreeMap<u32, MeterEntry>,
    meter_trie: Trie<Arc<Meter>>,
    /// Groups that watch a port or group.
    watching: BTreeSet<u32>,
    live_groups: HashSet<u32>,
    ports: Arc<Ports>,
    drop_fragments: bool,
    /// The number of the last version that was published.
    published: u64,
    /// The last version that every worker has taken.
    taken: u64,
    /// A worker with an older version than this drops what arrives for it.
    required: Arc<AtomicU64>,
    has_changed: bool,
    leaving: Vec<Leaving>,
    gone: Vec<(FlowId, FlowCount)>,
}

impl Pipeline {
    /// A pipeline without flows for this number of workers. `seed` is random and secret.
    #[must_use]
    pub fn new(workers: usize, seed: [u64; 2]) -> Self {
        Self {
            workers,
            counters: (0..workers).map(|_| Arc::new(Counters::new())).collect(),
            numbers: Numbers::default(),
            seed: Seed::new(seed),
            flow_mask: Arc::new(FlowMask::new()),
            tables: (0..TABLES).map(|_| Table::default()).collect(),
            flows: Vec::new(),
            flow_count: 0,
            masks: HashMap::with_hasher(FixedState::with_seed(seed[0])),
            groups: BTreeMap::new(),
            group_trie: Trie::default(),
            meters: BTreeMap::new(),
            meter_trie: Trie::default(),
            watching: BTreeSet::new(),
            live_groups: HashSet::new(),
            ports: Arc::default(),
            drop_fragments: false,
            published: 0,
            taken: 0,
            required: Arc::new(AtomicU64::new(0)),
            has_changed: false,
            leaving: Vec::new(),
            gone: Vec::new(),
        }
    }

    /// What becomes of frames like this one by the flows, groups and ports as they are now, published or not. `head` is the
    /// frame, or all of its headers; `beside` the tag control information of a VLAN tag that is not among the bytes.
    #[must_use]
    pub fn trace(&self, head: &[u8], beside: Option<u16>, ingress: &Ingress) -> Trace {
        let table = |number: u8| self.tables.get(usize::from(number)).map(Table::tree);
        let (groups, drop_fragments) = (&self.group_trie, self.drop_fragments);
        let tables = Tables { table, groups, ports: &self.ports, seed: &self.seed, drop_fragments };
        tables.trace(head, beside, ingress)
    }

    /// The same for frames that are known only by a key. The result is right about all of them if the key is
    /// [within](ExactKey::is_within) that of the result. The port must not be a reserved one.
    #[must_use]
    pub fn trace_key(&self, key: &ExactKey) -> Trace {
        let table = |number: u8| self.tables.get(usize::from(number)).map(Table::tree);
        let (groups, drop_fragments) = (&self.group_trie, self.drop_fragments);
        let tables = Tables { table, groups, ports: &self.ports, seed: &self.seed, drop_fragments };
        tables.trace_key(key)
    }

    /// Counts frames that something other than a worker, such as the kernel, forwarded as a trace says; the last of
    /// them at `used`. None of the trace's flows, groups and buckets has been reported as gone.
    pub fn record(&mut self, path: &Path, count: Count, used: Instant) {
        if self.counters.len() == self.workers {
            self.counters.push(Arc::new(Counters::new()));
        }
        let Some(elsewhere) = self.counters.get(self.workers) else { return };
        let flows = path.steps.iter().map(|step| step.counter);
        for number in flows.chain(path.others.iter().copied()) {
            elsewhere.allocate(number);
            let latest = elsewhere.get(number).map_or(used, |counter| counter.used().max(used));
            elsewhere.add(number, latest, count);
        }
        path.steps.iter().for_each(|step| elsewhere.add_lookup(step.table, true, count.packets));
        path.missed.iter().for_each(|(table, _)| elsewhere.add_lookup(*table, false, count.packets));
    }

    /// A worker's end, by the number of the worker; `None`: there are fewer workers. It judges by the last version that
    /// was published.
    #[must_use]
    pub fn worker(&self, worker: usize) -> Option<Worker> {
        Some(Worker::new(
            Arc::new(self.snapshot()),
            Arc::clone(self.counters.get(..self.workers)?.get(worker)?),
            Arc::clone(&self.required),
        ))
    }

    /// Puts a flow in. The table has none with the same match and priority.
    ///
    /// # Errors
    /// [`TableFull`].
    pub fn add_flow(&mut self, flow: &Flow<'_>) -> Result<FlowId, TableFull> {
        let counter = self.numbers.take(&self.counters)?;
        let rule = Arc::new(self.rule(flow, counter));
        if let Some(table) = self.tables.get_mut(usize::from(flow.table)) {
            table.insert(Arc::clone(&rule), &self.seed);
        }
        let place = counter as usize;
        if place >= self.flows.len() {
            self.flows.resize(place + 1, None);
        }
        self.flows[place] = Some(rule);
        self.flow_count += 1;
        self.has_changed = true;
        Ok(FlowId::of(counter))
    }

    /// Gives a flow other instructions and another cookie. It goes on counting.
    pub fn change_flow(&mut self, id: FlowId, instructions: &[Instruction], cookie: u64) {
        let Some(Some(former)) = self.flows.get_mut(id.counter() as usize) else { return };
        let rule = Arc::new(former.with_program(Program::compile(instructions), cookie));
        if let Some(table) = self.tables.get_mut(usize::from(rule.table)) {
            table.replace(former, Arc::clone(&rule), &self.seed);
        }
        *former = rule;
        self.has_changed = true;
    }

    /// Takes a flow out. If `report`, [`Self::take_gone`] has what it has counted, once no worker judges by it any more.
    pub fn remove_flow(&mut self, id: FlowId, report: bool) {
        let Some(rule) = self.flows.get_mut(id.counter() as usize).and_then(Option::take) else { return };
        self.flow_count -= 1;
        if let Some(table) = self.tables.get_mut(usize::from(rule.table)) {
            table.remove(&rule, &self.seed);
        }
        let mask = *rule.mask.key();
        drop(rule);
        if self.masks.get(&mask).is_some_and(|own| own.strong_count() == 0) {
            self.masks.remove(&mask);
        }
        let leaving = self.leaving();
        if report { &mut leaving.flows } else { &mut leaving.counters }.push(id.counter());
    }

    /// What goes with the next version.
    fn leaving(&mut self) -> &mut Leaving {
        self.has_changed = true;
        let version = self.published + 1;
        if self.leaving.last().is_none_or(|last| last.version != version) {
            self.leaving.push(Leaving { version, counters: Vec::new(), flows: Vec::new() });
        }
        let last = self.leaving.len() - 1;
        &mut self.leaving[last]
    }

    fn rule(&mut self, flow: &Flow<'_>, counter: u32) -> Rule {
        let (value, mask) = key::compile(flow.fields);
        let mask = self.shared_mask(mask);
        Rule::new(flow.table, mask, &value, flow.priority, counter)
            .with(Program::compile(flow.instructions), flow.cookie)
    }

    fn shared_mask(&mut self, key: Key) -> Arc<Mask> {
        let own = self.masks.entry(key).or_default();
        own.upgrade().unwrap_or_else(|| {
            let mask = Arc::new(Mask::new(key));
            *own = Arc::downgrade(&mask);
            mask
        })
    }

    /// Puts a group in, or replaces the one with its number. Its counters begin at zero.
    ///
    /// # Errors
    /// [`TableFull`].
    pub fn set_group(&mut self, group: u32, config: GroupConfig) -> Result<(), TableFull> {
        let counters = self.take_counters(1 + config.buckets.len())?;
        let (counter, parts) = (counters[0], counters[1..].to_vec());
        let choice = Choice::new(&config, |bucket| self.is_live(bucket));
        let built = Group::new(&config, choice.clone(), counter, &parts);
        self.group_trie.set(mix(u64::from(group)), Arc::new(built));
        let entry = GroupEntry { config: config.clone(), choice, counter, parts };
        if let Some(former) = self.groups.insert(group, entry) {
            self.leaving().counters.extend(former.parts.into_iter().chain([former.counter]));
        }
        self.has_changed = true;
        self.note_group(group, Some(&config));
        Ok(())
    }

    /// Takes a group out. Actions that name it do nothing from then on.
    pub fn remove_group(&mut self, group: u32) {
        let Some(former) = self.groups.remove(&group) else { return };
        self.group_trie.remove(mix(u64::from(group)));
        self.leaving().counters.extend(former.parts.into_iter().chain([former.counter]));
        self.note_group(group, None);
    }

    /// Puts a meter in, or replaces the one with its number. Its counters begin at zero.
    ///
    /// # Errors
    /// [`TableFull`].
    pub fn set_meter(&mut self, meter: u32, config: &MeterConfig) -> Result<(), TableFull> {
        let counters = self.take_counters(1 + config.bands.len())?;
        let (counter, parts) = (counters[0], counters[1..].to_vec());
        self.meter_trie.set(mix(u64::from(meter)), Arc::new(Meter::new(config, counter, &parts)));
        self.has_changed = true;
        if let Some(former) = self.meters.insert(meter, MeterEntry { counter, parts }) {
            self.leaving().counters.extend(former.parts.into_iter().chain([former.counter]));
        }
        Ok(())
    }

    /// Takes a meter out. Flows that name it let their frames through from then on.
    pub fn remove_meter(&mut self, meter: u32) {
        let Some(former) = self.meters.remove(&meter) else { return };
        self.meter_trie.remove(mix(u64::from(meter)));
        self.leaving().counters.extend(former.parts.into_iter().chain([former.counter]));
    }

    /// All of them or none.
    fn take_counters(&mut self, count: usize) -> Result<Vec<u32>, TableFull> {
        let mut taken = Vec::with_capacity(count);
        for _ in 0..count {
            match self.numbers.take(&self.counters) {
                Ok(number) => taken.push(number),
                Err(NoCounter) => {
                    taken.into_iter().for_each(|number| self.numbers.give_back(number));
                    return Err(TableFull);
                }
            }
        }
        Ok(taken)
    }

    /// Replaces what is known of the ports. Groups that watch them follow.
    pub fn set_ports(&mut self, ports: Vec<Port>) {
        self.ports = Arc::new(Ports::new(ports));
        self.has_changed = true;
        self.renew_choices();
    }

    /// Whether fragments of IP packets are dropped before they come to the tables (OpenFlow 1.3.5, 7.3.2: OFPC_FRAG_DROP).
    pub fn set_drop_fragments(&mut self, drop: bool) {
        self.has_changed |= self.drop_fragments != drop;
        self.drop_fragments = drop;
    }

    /// Whether a bucket is live: its port or group is, or it watches neither (OpenFlow 1.3.5, 6.5).
    fn is_live(&self, bucket: &Bucket) -> bool {
        let is_watched = self.ports.get(bucket.watch_port).is_some_and(|port| port.is_live)
            || self.live_groups.contains(&bucket.watch_group);
        is_watched || !bucket.watches()
    }

    fn is_group_live(&self, config: &GroupConfig) -> bool {
        config.buckets.iter().any(|bucket| self.is_live(bucket))
    }

    /// Has groups whose buckets have become live, or are so no longer, choose again.
    fn renew_choices(&mut self) {
        // Groups that watch each other alone are not live, so it begins with those that are so by themselves.
        let watching = &self.watching;
        self.live_groups.retain(|group| !watching.contains(group) && self.groups.contains_key(group));
        for _ in 0..WATCH_DEPTH_MAX {
            let watching = self.watching.iter().filter(|group| !self.live_groups.contains(group));
            let more: Vec<u32> = watching
                .filter(|group| self.groups.get(group).is_some_and(|entry| self.is_group_live(&entry.config)))
                .copied()
                .collect();
            if more.is_empty() {
                break;
            }
            self.live_groups.extend(more);
        }
        for number in self.watching.clone() {
            let Some(entry) = self.groups.get(&number) else { continue };
            let choice = Choice::new(&entry.config, |bucket| self.is_live(bucket));
            if choice == entry.choice {
                continue;
            }
            let group = Group::new(&entry.config, choice.clone(), entry.counter, &entry.parts);
            self.group_trie.set(mix(u64::from(number)), Arc::new(group));
            self.has_changed = true;
            if let Some(entry) = self.groups.get_mut(&number) {
                entry.choice = choice;
            }
        }
    }

    /// Notes what a group watches, and whether it is live; `None`: it is gone.
    fn note_group(&mut self, group: u32, config: Option<&GroupConfig>) {
        let does_watch = config.is_some_and(|config| config.buckets.iter().any(Bucket::watches));
        if does_watch {
            self.watching.insert(group)
        } else {
            self.watching.remove(&group)
        };
        let is_live = config.is_some_and(|config| self.is_group_live(config));
        let was_live =
            if is_live { !self.live_groups.insert(group) } else { self.live_groups.remove(&group) };
        if is_live != was_live && !self.watching.is_empty() {
            self.renew_choices();
        }
    }

    fn snapshot(&self) -> Snapshot {
        let is_cold = self.tables.iter().map(Table::len).sum::<usize>() > CACHED_RULES;
        Snapshot {
            cold_cost: if is_cold { self.tables.iter().map(Table::cost).sum() } else { 0 },
            number: self.published,
            tables: self.tables.iter().map(|table| table.tree().clone()).collect(),
            groups: self.group_trie.clone(),
            meters: self.meter_trie.clone(),
            ports: Arc::clone(&self.ports),
            seed: self.seed,
            flow_mask: Arc::clone(&self.flow_mask),
            drop_fragments: self.drop_fragments,
        }
    }

    /// A new version for every worker, if anything has changed since the last one. It costs the same however much has
    /// changed; so while workers have not taken one, later changes should wait for the next.
    pub fn publish(&mut self) -> Option<Arc<Snapshot>> {
        if !std::mem::take(&mut self.has_changed) {
            return None;
        }
        self.published += 1;
        Some(Arc::new(self.snapshot()))
    }

    /// Every worker has taken this version, or a later one.
    pub fn taken(&mut self, version: u64) {
        self.taken = self.taken.max(version);
        let left = self.leaving.iter().take_while(|leaving| leaving.version <= self.taken).count();
        for Leaving { counters, flows, .. } in self.leaving.drain(..left).collect::<Vec<_>>() {
            let counts: Vec<_> = flows.iter().map(|flow| (FlowId::of(*flow), self.count_of(*flow))).collect();
            self.gone.extend(counts);
            counters.into_iter().chain(flows).for_each(|number| self.numbers.give_back(number));
        }
    }

    /// From now on a worker that has not taken this version, or a later one, drops new arrivals until it has
    /// ([`Worker::is_outdated`]). So the version is in force even if a worker is stuck.
    pub fn require(&mut self, version: u64) {
        self.required.fetch_max(version, Ordering::Release);
    }

    /// The version that has all changes until now. They are in force once no worker judges by an older one
    /// ([`Self::is_in_force`]): a barrier's reply waits for that.
    #[must_use]
    pub const fn barrier(&self) -> u64 {
        self.published + self.has_changed as u64
    }

    /// Whether no worker judges new arrivals by an older version, as far as [`Self::taken`] and [`Self::require`] were
    /// told.
    #[must_use]
    pub fn is_in_force(&self, version: u64) -> bool {
        self.taken.max(self.required.load(Ordering::Acquire)) >= version
    }

    /// Flows that were removed and that no worker judges by any more, with what they have counted in all.
    pub fn take_gone(&mut self) -> Vec<(FlowId, FlowCount)> {
        std::mem::take(&mut self.gone)
    }

    fn count_of(&self, number: u32) -> FlowCount {
        FlowCount {
            count: self.numbers.count(number, &self.counters),
            used: self.numbers.used(number, &self.counters),
        }
    }

    /// What a flow has counted until now; `None`: it was removed.
    #[must_use]
    pub fn flow_count(&self, id: FlowId) -> Option<FlowCount> {
        self.flows.get(id.counter() as usize)?.as_ref().map(|_| self.count_of(id.counter()))
    }

    /// Has a flow count from zero.
    pub fn reset_flow_count(&mut self, id: FlowId) {
        self.numbers.reset(id.counter(), &self.counters);
    }

    /// What a table has counted.
    #[must_use]
    pub fn table_count(&self, table: u8) -> TableCount {
        let sums = self.counters.iter().map(|worker| worker.lookups(table));
        let [lookups, matched] =
            sums.fold([0; 2], |[one, two], [lookups, matched]| [one + lookups, two + matched]);
        TableCount { flows: self.tables.get(usize::from(table)).map_or(0, Table::len), lookups, matched }
    }

    /// The most that a look-up in a table costs, in comparisons with a flow; a probe of a hash table counts as two.
    #[must_use]
    pub fn lookup_cost(&self, table: u8) -> u32 {
        self.tables.get(usize::from(table)).map_or(0, Table::cost)
    }

    /// What a group has counted; `None`: there is none.
    #[must_use]
    pub fn group_count(&self, group: u32) -> Option<PartsCount> {
        self.groups.get(&group).map(|entry| self.parts_count(entry.counter, &entry.parts))
    }

    /// What a meter has counted; `None`: there is none.
    #[must_use]
    pub fn meter_count(&self, meter: u32) -> Option<PartsCount> {
        self.meters.get(&meter).map(|entry| self.parts_count(entry.counter, &entry.parts))
    }

    fn parts_count(&self, counter: u32, parts: &[u32]) -> PartsCount {
        let count = |number: &u32| self.numbers.count(*number, &self.counters);
        PartsCount { whole: count(&counter), parts: parts.iter().map(count).collect() }
    }

    /// Flows that there are.
    #[must_use]
    pub fn flows(&self) -> usize {
        self.flow_count
    }

    /// Bytes that the counters occupy.
    #[must_use]
    pub fn counter_bytes(&self) -> usize {
        self.counters.iter().map(|worker| worker.memory_bytes()).sum()
    }
}

#[cfg(all(test, loom))]
mod model;
