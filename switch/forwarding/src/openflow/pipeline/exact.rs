//! The entries by which the kernel's programs forward frames, as control knows them: which entries there are, which
//! flows each of them stands for, and which of them a change makes void.
//!
//! An entry stands for what becomes of all frames that are equal in some bits ([`Trace`]). It has a number from when it
//! is put in until it is forgotten. That is later than when it is made void: a program that is running may have found
//! it before, and counts under the number.
//!
//! A change of a flow costs one look-up per mask, not one per entry. Where the flow's mask lacks bits of the entries'
//! mask, the entries are also kept by the bits that both have ([`OneMask`]), from the first such change on.

use std::collections::{BTreeSet, HashMap};

use twinpath_openflow_wire::Match;

use crate::openflow::pipeline::key::{self, Key};
use crate::openflow::pipeline::rule::FlowId;
use crate::openflow::pipeline::trace::{EXACT_WORDS, ExactKey, Path, Trace, WhyNot};

/// Maximum number of masks that the kernel's programs try.
pub const MASKS: usize = 8;

/// Sets of bits by which the entries of one mask are kept, beside all bits of the mask.
const KEPT_BY_MAX: usize = 6;

type Words = [u64; EXACT_WORDS];

const NONE: Words = [0; EXACT_WORDS];

fn common(one: &Words, other: &Words) -> Words {
    std::array::from_fn(|word| one[word] & other[word])
}

/// An entry.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its fields, and which bits of them count.
    pub key: ExactKey,
    /// The number of its mask, below [`MASKS`].
    pub mask: u8,
    /// What its frames are counted by.
    pub path: Path,
    /// The port that they leave by.
    pub output: u32,
    /// Left by a former process, and no flow has confirmed it. It is valid until a flow contradicts it, or for a while.
    pub is_kept: bool,
    is_void: bool,
}

/// The entries of one mask.
#[derive(Debug)]
struct OneMask {
    mask: Words,
    /// Entries with the mask, void ones included.
    entries: usize,
    by_value: HashMap<Words, u32>,
    /// By fewer bits: the bits, and the entries by their values of these.
    kept_by: Vec<(Words, HashMap<Words, Vec<u32>>)>,
}

impl OneMask {
    fn put(&mut self, number: u32, value: &Words) {
        self.entries += 1;
        self.by_value.insert(*value, number);
        for (bits, kept) in &mut self.kept_by {
            kept.entry(common(value, bits)).or_default().push(number);
        }
    }

    fn take_out(&mut self, number: u32, value: &Words) {
        self.by_value.remove(value);
        for (bits, kept) in &mut self.kept_by {
            let part = common(value, bits);
            let Some(numbers) = kept.get_mut(&part) else { continue };
            numbers.retain(|other| *other != number);
            if numbers.is_empty() {
                kept.remove(&part);
            }
        }
    }

    /// Entries that are equal to `value` in the bits that both masks have.
    fn overlapping(&mut self, value: &Words, mask: &Words) -> Vec<u32> {
        let bits = common(&self.mask, mask);
        let value = common(value, &bits);
        if bits == self.mask {
            return self.by_value.get(&value).copied().into_iter().collect();
        }
        if bits == NONE {
            return self.by_value.values().copied().collect();
        }
        if let Some((_, kept)) = self.kept_by.iter().find(|(own, _)| *own == bits) {
            return kept.get(&value).cloned().unwrap_or_default();
        }
        let mut kept: HashMap<Words, Vec<u32>> = HashMap::new();
        for (own, number) in &self.by_value {
            kept.entry(common(own, &bits)).or_default().push(*number);
        }
        let found = kept.get(&value).cloned().unwrap_or_default();
        if self.kept_by.len() == KEPT_BY_MAX {
            self.kept_by.remove(0);
        }
        self.kept_by.push((bits, kept));
        found
    }
}

/// The number of an entry, and whether it was there before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Inserted {
    Now(u32),
    Before(u32),
}

/// All entries.
#[derive(Debug)]
pub struct ExactEntries {
    capacity: usize,
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    masks: [Option<OneMask>; MASKS],
    /// Entries that are not void, by the counters of their flows.
    by_flow: HashMap<u32, BTreeSet<u32>>,
    /// Entries that are not void, by the port that their frames come in by and their mask.
    by_port: HashMap<(u16, u8), u32>,
}

impl ExactEntries {
    /// No entries yet, and room for this number.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            entries: Vec::new(),
            free: Vec::new(),
            masks: [const { None }; MASKS],
            by_flow: HashMap::new(),
            by_port: HashMap::new(),
        }
    }

    /// Puts in an entry for the frames of a trace, if there is none for them.
    ///
    /// # Errors
    /// Why there can be none.
    pub fn insert(&mut self, trace: &Trace) -> Result<Inserted, WhyNot> {
        let output = trace.verdict()?;
        let key = trace.exact_key()?;
        let same = |own: &Option<OneMask>| own.as_ref().is_some_and(|own| own.mask == key.mask);
        let at = self.masks.iter().position(same);
        let at = at.or_else(|| self.masks.iter().position(Option::is_none)).ok_or(WhyNot::Full)?;
        if let Some(number) = self.masks[at].as_ref().and_then(|own| own.by_value.get(&key.value)) {
            return Ok(Inserted::Before(*number));
        }
        let number = match self.free.pop() {
            Some(number) => number,
            None if self.entries.len() < self.capacity => {
                self.entries.push(None);
                self.entries.len() as u32 - 1
            }
            None => return Err(WhyNot::Full),
        };
        let empty = || OneMask { mask: key.mask, entries: 0, by_value: HashMap::new(), kept_by: Vec::new() };
        self.masks[at].get_or_insert_with(empty).put(number, &key.value);
        let path = trace.path().clone();
        let entry = Entry { key, mask: at as u8, path, output, is_kept: false, is_void: false };
        for step in &entry.path.steps {
            self.by_flow.entry(step.counter).or_default().insert(number);
        }
        *self.by_port.entry((entry.key.in_port(), entry.mask)).or_default() += 1;
        self.entries[number as usize] = Some(entry);
        Ok(Inserted::Now(number))
    }

    /// The entry for the frames of a trace.
    #[must_use]
    pub fn find(&self, trace: &Trace) -> Option<u32> {
        let key = trace.exact_key().ok()?;
        let own = self.masks.iter().flatten().find(|own| own.mask == key.mask)?;
        own.by_value.get(&key.value).copied()
    }

    /// Takes over entries of a former process, with their numbers and the numbers of their masks, as the kernel has
    /// them. There must be no entries yet. Returns those that could not be taken over.
    pub fn restore(&mut self, kept: impl IntoIterator<Item = (u32, u8, ExactKey, u32)>) -> Vec<u32> {
        let mut refused = Vec::new();
        for (number, mask, key, output) in kept {
            let place = self.masks.get(usize::from(mask));
            let is_mask = place.is_some_and(|own| own.as_ref().is_none_or(|own| own.mask == key.mask));
            if !is_mask || number as usize >= self.capacity || self.get(number).is_some() {
                refused.push(number);
                continue;
            }
            if self.entries.len() <= number as usize {
                self.entries.resize_with(number as usize + 1, || None);
            }
            let empty =
                || OneMask { mask: key.mask, entries: 0, by_value: HashMap::new(), kept_by: Vec::new() };
            self.masks[usize::from(mask)].get_or_insert_with(empty).put(number, &key.value);
            *self.by_port.entry((key.in_port(), mask)).or_default() += 1;
            let entry = Entry { key, mask, path: Path::default(), output, is_kept: true, is_void: false };
            self.entries[number as usize] = Some(entry);
        }
        let free = (0..).zip(&self.entries).filter(|(_, entry)| entry.is_none()).map(|(number, _)| number);
        self.free = free.collect();
        refused
    }

    /// From now on a kept entry stands for a trace. The key of the entry must be within that of the trace.
    pub fn confirm(&mut self, number: u32, path: &Path) {
        let Some(Some(entry)) = self.entries.get_mut(number as usize) else { return };
        entry.is_kept = false;
        entry.path = path.clone();
        for step in &entry.path.steps {
            self.by_flow.entry(step.counter).or_default().insert(number);
        }
    }

    /// Kept entries.
    pub fn kept(&self) -> Vec<u32> {
        self.which(|entry| entry.is_kept)
    }

    /// Kept entries of which a flow with this match may take frames.
    pub fn kept_overlapping(&mut self, fields: &Match) -> Vec<u32> {
        let mut found = self.with_common_frames(fields);
        found.retain(|number| self.get(*number).is_some_and(|entry| entry.is_kept));
        found
    }

    /// An entry, void or not.
    #[must_use]
    pub fn get(&self, number: u32) -> Option<&Entry> {
        self.entries.get(number as usize)?.as_ref()
    }

    /// Whether there is an entry of that number that is not void.
    #[must_use]
    pub fn is_in_force(&self, number: u32) -> bool {
        self.get(number).is_some_and(|entry| !entry.is_void)
    }

    /// Entries that are not void and whose frames come in by a port.
    #[must_use]
    pub fn count_from(&self, in_port: u32) -> usize {
        let in_port = key::short_port(in_port);
        let of = |mask: u8| self.by_port.get(&(in_port, mask)).copied().unwrap_or_default() as usize;
        (0..MASKS as u8).map(of).sum()
    }

    /// Entries that are not void.
    pub fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        let valid = |entry: &Option<Entry>| entry.as_ref().is_some_and(|entry| !entry.is_void);
        (0_u32..).zip(&self.entries).filter(move |(_, entry)| valid(entry)).map(|(number, _)| number)
    }

    /// Entries whose frames match a flow.
    pub fn of_flow(&self, flow: FlowId) -> impl Iterator<Item = u32> + '_ {
        self.by_flow.get(&flow.counter()).into_iter().flatten().copied()
    }

    /// Entries that a new flow of this table, priority and match may take frames from.
    pub fn overlapping(&mut self, table: u8, priority: u16, fields: &Match) -> Vec<u32> {
        let (value, mask) = key::compile(fields);
        let mut found = self.with_common_frames(fields);
        found.retain(|number| {
            let Some(entry) = self.get(*number) else { return false };
            let has = |metadata: u64| metadata & mask.0[key::METADATA] == value.0[key::METADATA];
            let path = &entry.path;
            path.steps
                .iter()
                .any(|step| step.table == table && step.priority <= priority && has(step.metadata))
                || path.missed.is_some_and(|(missed, metadata)| missed == table && has(metadata))
        });
        found
    }

    /// Entries with frames that have this match, whatever their metadata.
    fn with_common_frames(&mut self, fields: &Match) -> Vec<u32> {
        let (value, mask) = key::compile(fields);
        let first = |key: &Key| std::array::from_fn(|word| key.0[word]);
        let mut bits: Words = first(&mask);
        // Entries do not have these, as they say nothing that is not known of all of them.
        let (in_port, ext_headers) = (key::IN_PHY_PORT, key::IPV6_EXTHDR);
        bits[in_port.word] &= !(0xffff << in_port.shift | 0xffff << ext_headers.shift);
        let in_phy_port = (mask.0[in_port.word] >> in_port.shift) as u16;
        let wanted_port = (value.0[in_port.word] >> in_port.shift) as u16;
        if value.0[ext_headers.word] as u16 != 0 || value.0[key::TUNNEL_ID] != 0 {
            return Vec::new();
        }
        let masks = self.masks.iter_mut().flatten();
        let mut found: Vec<u32> = masks.flat_map(|own| own.overlapping(&first(&value), &bits)).collect();
        let comes_by =
            |number: &u32| self.get(*number).is_some_and(|entry| entry.key.in_port() == wanted_port);
        if in_phy_port != 0 {
            found.retain(comes_by);
        }
        found
    }

    /// Entries of which something holds, found by looking at all of them.
    pub fn which(&self, holds: impl Fn(&Entry) -> bool) -> Vec<u32> {
        self.numbers().filter(|number| self.get(*number).is_some_and(&holds)).collect()
    }

    /// Entries whose frames come in or leave by a port.
    #[must_use]
    pub fn of_port(&self, port: u32) -> Vec<u32> {
        let short = key::short_port(port);
        self.which(|entry| entry.output == port || entry.key.in_port() == short)
    }

    /// Entries whose frames go through groups.
    #[must_use]
    pub fn of_groups(&self) -> Vec<u32> {
        self.which(|entry| entry.path.has_groups)
    }

    /// Makes an entry void: it is no longer found, and its number stays until [`Self::forget`]. `None`: it was so already.
    pub fn make_void(&mut self, number: u32) -> Option<&Entry> {
        let entry = self.entries.get_mut(number as usize)?.as_mut()?;
        if std::mem::replace(&mut entry.is_void, true) {
            return None;
        }
        for step in &entry.path.steps {
            let Some(numbers) = self.by_flow.get_mut(&step.counter) else { continue };
            numbers.remove(&number);
            if numbers.is_empty() {
                self.by_flow.remove(&step.counter);
            }
        }
        let place = (entry.key.in_port(), entry.mask);
        if let Some(count) = self.by_port.get_mut(&place) {
            *count -= 1;
            if *count == 0 {
                self.by_port.remove(&place);
            }
        }
        if let Some(own) = self.masks.get_mut(usize::from(entry.mask)).and_then(Option::as_mut) {
            own.take_out(number, &entry.key.value);
        }
        Some(entry)
    }

    /// Frees the number of a void entry that no program uses any more.
    pub fn forget(&mut self, number: u32) -> Option<Entry> {
        let place = self.entries.get_mut(number as usize)?;
        let entry = place.take_if(|entry| entry.is_void)?;
        self.free.push(number);
        let place = self.masks.get_mut(usize::from(entry.mask));
        if let Some(place @ Some(_)) = place
            && let Some(own) = place
        {
            own.entries -= 1;
            if own.entries == 0 {
                *place = None;
            }
        }
        Some(entry)
    }

    /// The masks under which there are entries for frames of a port, a bit each.
    #[must_use]
    pub fn masks_of(&self, in_port: u32) -> u8 {
        let in_port = key::short_port(in_port);
        let has = |mask: &u8| self.by_port.contains_key(&(in_port, *mask));
        (0..MASKS as u8).filter(has).fold(0, |masks, mask| masks | 1 << mask)
    }

    /// Entries that are not void.
    #[must_use]
    pub fn len(&self) -> usize {
        self.masks.iter().flatten().map(|own| own.by_value.len()).sum()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
