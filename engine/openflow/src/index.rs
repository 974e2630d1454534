//! The flows of a table by what they match.
//!
//! Flows whose matches have the same fields and masks are in one map by their values. What a change names exactly is found
//! by one look-up; what it includes is found in the maps whose masks include its own, and only these are walked. All maps
//! are ordered, so that equal requests give equal results.

use std::collections::BTreeMap;

use twinpath_openflow::{Field, Match};

/// The fields of a match with their masks, by number.
type Shape = Box<[(Field, u128)]>;

/// Numbers of flows by their values, each with its priority.
type Flows = BTreeMap<Box<[u128]>, Vec<(u16, u32)>>;

#[derive(Clone, Debug, Default)]
pub(crate) struct TableIndex {
    shapes: BTreeMap<Shape, Flows>,
    len: usize,
}

fn parts(matches: &Match) -> (Shape, Box<[u128]>) {
    let fields = matches.canonical();
    (
        fields.iter().map(|field| (field.field, field.effective_mask())).collect(),
        fields.iter().map(|field| field.value).collect(),
    )
}

/// For each field of `wide` its place in `narrow`, if all of them are there with at least the same mask.
fn places(wide: &Shape, narrow: &Shape) -> Option<Vec<usize>> {
    let place = |(field, mask): &(Field, u128)| {
        narrow.iter().position(|(other, other_mask)| other == field && other_mask & mask == *mask)
    };
    wide.iter().map(place).collect()
}

impl TableIndex {
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn insert(&mut self, matches: &Match, priority: u16, flow: u32) {
        let (shape, values) = parts(matches);
        self.shapes.entry(shape).or_default().entry(values).or_default().push((priority, flow));
        self.len += 1;
    }

    pub(crate) fn remove(&mut self, matches: &Match, flow: u32) {
        let (shape, values) = parts(matches);
        let Some(flows) = self.shapes.get_mut(&shape) else { return };
        let Some(here) = flows.get_mut(&values) else { return };
        let before = here.len();
        here.retain(|(_, other)| *other != flow);
        self.len -= before - here.len();
        if here.is_empty() {
            flows.remove(&values);
        }
        if flows.is_empty() {
            self.shapes.remove(&shape);
        }
    }

    /// The flow with this match, however it was written, and this priority.
    pub(crate) fn strict(&self, matches: &Match, priority: u16) -> Option<u32> {
        let (shape, values) = parts(matches);
        let here = self.shapes.get(&shape)?.get(&values)?;
        here.iter().find(|(other, _)| *other == priority).map(|(_, flow)| *flow)
    }

    /// All flows that this match includes (section 6.4, non-strict).
    pub(crate) fn included(&self, matches: &Match) -> Vec<u32> {
        let (shape, values) = parts(matches);
        let mut found = Vec::new();
        for (narrow, flows) in &self.shapes {
            if *narrow == shape {
                found.extend(flows.get(&values).into_iter().flatten().map(|(_, flow)| *flow));
                continue;
            }
            let Some(places) = places(&shape, narrow) else { continue };
            for (other, here) in flows {
                let agrees = |((place, value), (_, mask)): ((&usize, &u128), &(Field, u128))| {
                    other[*place] & mask == *value
                };
                if places.iter().zip(&values).zip(&shape).all(agrees) {
                    found.extend(here.iter().map(|(_, flow)| *flow));
                }
            }
        }
        found
    }

    /// Whether a frame could match this and a flow of the same priority (section 6.4).
    pub(crate) fn overlaps(&self, matches: &Match, priority: u16) -> bool {
        let (shape, values) = parts(matches);
        self.shapes.iter().any(|(other_shape, flows)| {
            // Places of common fields, with the bits that both compare.
            let mut common = Vec::new();
            for (place, (field, mask)) in shape.iter().enumerate() {
                if let Some(other) = other_shape.iter().position(|(other, _)| other == field) {
                    common.push((place, other, mask & other_shape[other].1));
                }
            }
            flows.iter().any(|(other, here)| {
                here.iter().any(|(other, _)| *other == priority)
                    && common.iter().all(|(own, its, mask)| (values[*own] ^ other[*its]) & mask == 0)
            })
        })
    }
}
