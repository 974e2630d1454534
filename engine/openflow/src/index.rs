//! The flows of a table by what they match.
//!
//! Flows whose matches have the same fields and masks are in one map by a hash of their values. What a change names exactly
//! is found by one look-up; what it includes is found in the maps whose masks include its own, and only these are walked.
//! The maps have numbers of flows alone: the matches are where the flows are, and are compared there.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};

use foldhash::quality::FixedState;
use twinpath_openflow::{Field, Match, MatchField};

use crate::entry::{Entries, NONE};

/// The fields of a match with their masks, by number.
type Shape = Box<[(Field, u128)]>;

/// Flows whose matches have one shape.
#[derive(Clone, Debug)]
struct Alike {
    shape: Shape,
    /// By the hash of their values the last flow that was put in; each names the one before it
    /// ([`crate::entry::FlowEntry::next_same`]).
    by_values: HashMap<u64, u32, FixedState>,
}

#[derive(Clone, Debug)]
pub(crate) struct TableIndex {
    /// By the hash of their shape.
    shapes: HashMap<u64, Vec<Alike>, FixedState>,
    len: usize,
    /// Secret, as controllers make matches of what unknown hosts send.
    seed: FixedState,
}

fn has_shape(shape: &Shape, fields: &[MatchField]) -> bool {
    let pairs = || shape.iter().zip(fields);
    shape.len() == fields.len()
        && pairs().all(|((field, mask), own)| *field == own.field && *mask == own.effective_mask())
}

/// Whether the fields are all in a shape, with at least the same masks.
fn includes(fields: &[MatchField], narrow: &Shape) -> bool {
    fields.iter().all(|wide| {
        let mask = wide.effective_mask();
        narrow.iter().any(|(field, other)| *field == wide.field && other & mask == mask)
    })
}

/// The flow at a place of a map, and those behind it.
fn chain<I>(entries: &Entries<I>, first: u32) -> impl Iterator<Item = u32> {
    let next = |flow: u32| entries.get(flow).map(|entry| entry.next_same);
    std::iter::successors(Some(first), move |flow| next(*flow)).take_while(|flow| *flow != NONE)
}

impl TableIndex {
    /// An index of no flows. `seed` is random and secret.
    pub(crate) fn new(seed: u64) -> Self {
        Self { shapes: HashMap::default(), len: 0, seed: FixedState::with_seed(seed) }
    }

    /// Hashes of the shape and of the values.
    fn hashes(&self, fields: &[MatchField]) -> (u64, u64) {
        let (mut shape, mut values) = (self.seed.build_hasher(), self.seed.build_hasher());
        for field in fields {
            shape.write_u8(field.field.number());
            shape.write_u128(field.mask.unwrap_or(0));
            values.write_u128(field.value);
        }
        (shape.finish(), values.finish())
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Puts a flow in. Returns the flow that it names as the next one at its place.
    pub(crate) fn insert(&mut self, matches: &Match, flow: u32) -> u32 {
        let fields = matches.canonical();
        let (shape, values) = self.hashes(&fields);
        let shapes = self.shapes.entry(shape).or_default();
        let at = shapes.iter().position(|alike| has_shape(&alike.shape, &fields)).unwrap_or_else(|| {
            let shape = fields.iter().map(|field| (field.field, field.effective_mask())).collect();
            shapes.push(Alike { shape, by_values: HashMap::default() });
            shapes.len() - 1
        });
        self.len += 1;
        shapes[at].by_values.insert(values, flow).unwrap_or(NONE)
    }

    /// Takes a flow out, which is still among the entries.
    pub(crate) fn remove<I>(&mut self, entries: &mut Entries<I>, flow: u32) {
        let Some(entry) = entries.get(flow) else { return };
        let (fields, next) = (entry.matches.canonical(), entry.next_same);
        let (shape, values) = self.hashes(&fields);
        let Some(shapes) = self.shapes.get_mut(&shape) else { return };
        let Some(at) = shapes.iter().position(|alike| has_shape(&alike.shape, &fields)) else { return };
        let by_values = &mut shapes[at].by_values;
        let Some(first) = by_values.get(&values).copied() else { return };
        self.len -= 1;
        if first != flow {
            let before = chain(entries, first)
                .find(|other| entries.get(*other).is_some_and(|it| it.next_same == flow));
            if let Some(before) = before.and_then(|before| entries.get_mut(before)) {
                before.next_same = next;
            }
            return;
        }
        if next != NONE {
            by_values.insert(values, next);
            return;
        }
        by_values.remove(&values);
        if by_values.is_empty() {
            shapes.swap_remove(at);
        }
        if shapes.is_empty() {
            self.shapes.remove(&shape);
        }
    }

    /// The flows with this match, however it was written.
    fn same<I>(&self, entries: &Entries<I>, matches: &Match) -> impl Iterator<Item = u32> {
        let fields = matches.canonical();
        let (shape, values) = self.hashes(&fields);
        let shapes = self.shapes.get(&shape).map_or(&[][..], Vec::as_slice);
        let alike = shapes.iter().find(|alike| has_shape(&alike.shape, &fields));
        let first = alike.and_then(|alike| alike.by_values.get(&values)).copied().unwrap_or(NONE);
        let is_same = |flow: &u32| entries.get(*flow).is_some_and(|entry| entry.matches.means(matches));
        chain(entries, first).filter(is_same)
    }

    /// The flow with this match, however it was written, and this priority.
    pub(crate) fn strict<I>(&self, entries: &Entries<I>, matches: &Match, priority: u16) -> Option<u32> {
        let has_priority = |flow: &u32| entries.get(*flow).is_some_and(|entry| entry.priority == priority);
        self.same(entries, matches).find(has_priority)
    }

    /// All flows that this match includes (section 6.4, non-strict), by number.
    pub(crate) fn included<I>(&self, entries: &Entries<I>, matches: &Match) -> Vec<u32> {
        let fields = matches.canonical();
        let mut found = Vec::new();
        for alike in self.shapes.values().flatten() {
            if has_shape(&alike.shape, &fields) {
                found.extend(self.same(entries, matches));
            } else if includes(&fields, &alike.shape) {
                let flows = alike.by_values.values().flat_map(|first| chain(entries, *first));
                let is_included =
                    |flow: &u32| entries.get(*flow).is_some_and(|entry| matches.includes(&entry.matches));
                found.extend(flows.filter(is_included));
            }
        }
        // The maps have no order, and equal requests shall give equal results.
        found.sort_unstable();
        found
    }

    /// Whether a frame could match this and a flow of the same priority (section 6.4).
    pub(crate) fn overlaps<I>(&self, entries: &Entries<I>, matches: &Match, priority: u16) -> bool {
        let mut flows = self
            .shapes
            .values()
            .flatten()
            .flat_map(|alike| alike.by_values.values())
            .flat_map(|first| chain(entries, *first));
        flows.any(|flow| {
            entries
                .get(flow)
                .is_some_and(|entry| entry.priority == priority && entry.matches.overlaps(matches))
        })
    }
}
