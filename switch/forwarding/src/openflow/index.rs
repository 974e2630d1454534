//! The flows of a table by what they match.
//!
//! Flows whose matches have the same fields and masks are in one map, by a hash of their values. A strict change takes
//! one look-up. A non-strict one walks only the maps whose masks include its own. The maps hold numbers of flows; the
//! matches stay with the flows, and are compared there.

use std::collections::hash_map::Entry as Slot;
use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, Hasher};

use foldhash::quality::FixedState;
use twinpath_openflow_wire::{Field, Match, MatchField};

use crate::openflow::entry::{Entries, FlowEntry};

/// The fields of a match with their masks, by number.
type Shape = Box<[(Field, u128)]>;

/// Flows whose matches have one shape.
#[derive(Clone, Debug)]
struct Alike {
    shape: Shape,
    /// By the hash of their values.
    by_values: HashMap<u64, Same, FixedState>,
}

/// Flows whose values have one hash: nearly always the same values.
#[derive(Clone, Debug)]
enum Same {
    One(u32),
    Many(Box<ByPriority>),
}

/// Flows with their priorities, of which there may be 65,536.
#[derive(Clone, Debug)]
struct ByPriority(BTreeSet<(u16, u32)>);

impl Same {
    fn flows(&self) -> impl Iterator<Item = u32> {
        let (one, many) = match self {
            Self::One(flow) => (Some(*flow), None),
            Self::Many(flows) => (None, Some(flows.0.iter().map(|(_, flow)| *flow))),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }

    /// Those that may have this priority.
    fn with(&self, priority: u16) -> impl Iterator<Item = u32> {
        let (one, many) = match self {
            Self::One(flow) => (Some(*flow), None),
            Self::Many(flows) => {
                let range = flows.0.range((priority, 0)..=(priority, u32::MAX));
                (None, Some(range.map(|(_, flow)| *flow)))
            }
        };
        one.into_iter().chain(many.into_iter().flatten())
    }
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

    /// Puts a flow in, which is not among the entries yet.
    pub(crate) fn insert<I>(&mut self, entries: &Entries<I>, matches: &Match, priority: u16, flow: u32) {
        let fields = matches.canonical();
        let (shape, values) = self.hashes(&fields);
        let shapes = self.shapes.entry(shape).or_default();
        let at = shapes.iter().position(|alike| has_shape(&alike.shape, &fields)).unwrap_or_else(|| {
            let shape = fields.iter().map(|field| (field.field, field.effective_mask())).collect();
            shapes.push(Alike { shape, by_values: HashMap::default() });
            shapes.len() - 1
        });
        self.len += 1;
        match shapes[at].by_values.entry(values) {
            Slot::Vacant(slot) => drop(slot.insert(Same::One(flow))),
            Slot::Occupied(slot) => {
                let same = slot.into_mut();
                match same {
                    Same::Many(flows) => drop(flows.0.insert((priority, flow))),
                    Same::One(one) => {
                        let other = entries.get(*one).map(|entry| (entry.priority, *one));
                        let both = other.into_iter().chain([(priority, flow)]);
                        *same = Same::Many(Box::new(ByPriority(both.collect())));
                    }
                }
            }
        }
    }

    /// Takes a flow out, which is still among the entries.
    pub(crate) fn remove<I>(&mut self, entries: &Entries<I>, flow: u32) {
        let Some(entry) = entries.get(flow) else { return };
        let fields = entry.matches.canonical();
        let (shape, values) = self.hashes(&fields);
        let Some(shapes) = self.shapes.get_mut(&shape) else { return };
        let Some(at) = shapes.iter().position(|alike| has_shape(&alike.shape, &fields)) else { return };
        let by_values = &mut shapes[at].by_values;
        let Some(same) = by_values.get_mut(&values) else { return };
        self.len -= 1;
        if let Same::Many(flows) = same {
            flows.0.remove(&(entry.priority, flow));
            if let (1, Some((_, last))) = (flows.0.len(), flows.0.first()) {
                *same = Same::One(*last);
            }
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

    /// The flows that may have this match.
    fn place(&self, matches: &Match) -> Option<&Same> {
        let fields = matches.canonical();
        let (shape, values) = self.hashes(&fields);
        let shapes = self.shapes.get(&shape)?;
        shapes.iter().find(|alike| has_shape(&alike.shape, &fields))?.by_values.get(&values)
    }

    /// The flow with this match, however it was written, and this priority.
    pub(crate) fn strict<I>(&self, entries: &Entries<I>, matches: &Match, priority: u16) -> Option<u32> {
        self.place(matches)?.with(priority).find(|flow| {
            let is_it = |entry: &FlowEntry<I>| entry.priority == priority && entry.matches.means(matches);
            entries.get(*flow).is_some_and(is_it)
        })
    }

    /// All flows that this match includes (section 6.4, non-strict), by number.
    pub(crate) fn included<I>(&self, entries: &Entries<I>, matches: &Match) -> Vec<u32> {
        let fields = matches.canonical();
        let mut found = Vec::new();
        for alike in self.shapes.values().flatten() {
            if has_shape(&alike.shape, &fields) {
                let is_same =
                    |flow: &u32| entries.get(*flow).is_some_and(|entry| entry.matches.means(matches));
                found.extend(self.place(matches).into_iter().flat_map(Same::flows).filter(is_same));
            } else if includes(&fields, &alike.shape) {
                let flows = alike.by_values.values().flat_map(Same::flows);
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
        let mut flows =
            self.shapes.values().flatten().flat_map(|alike| alike.by_values.values()).flat_map(Same::flows);
        flows.any(|flow| {
            entries
                .get(flow)
                .is_some_and(|entry| entry.priority == priority && entry.matches.overlaps(matches))
        })
    }
}
