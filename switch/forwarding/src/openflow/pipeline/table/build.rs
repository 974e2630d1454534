//! The shape of a tree: which masks its nodes hash under.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::FixedState;

use crate::openflow::pipeline::hash::{Mask, Seed};
use crate::openflow::pipeline::key::{Key, WORDS};
use crate::openflow::pipeline::rule::Rule;
use crate::openflow::pipeline::table::{
    ALONE_MAX, Alone, LIST_MAX, Node, PROBE_COST, Split, cost_of_split, sort,
};
use crate::openflow::pipeline::trie::Trie;

/// Maximum number of rules that are looked at to choose a mask; of more, a sample is used.
const SAMPLE: usize = 192;

/// Masks of rules from which candidates are made.
const MASKS: usize = 12;

/// Equal rules make equal trees, so no map here has an order of its own.
type Map<K, V> = HashMap<K, V, FixedState>;

/// A tree of rules of which no two have the same match.
pub(super) fn build(mut rules: Vec<Arc<Rule>>, seed: &Seed) -> Option<Node> {
    match rules.as_slice() {
        [] => return None,
        [rule] => return Some(Node::One(Arc::clone(rule))),
        _ if rules.len() <= LIST_MAX => return Some(list(rules)),
        _ => {}
    }
    // Each split goes on with what it leaves over, so that many masks are many turns of this loop, not many calls.
    let mut splits = Vec::new();
    let mut last = None;
    while !rules.is_empty() {
        if rules.len() <= LIST_MAX {
            last = build(rules, seed);
            break;
        }
        let mask = choose(&rules, seed);
        let (covered, rest): (Vec<_>, Vec<_>) =
            rules.into_iter().partition(|rule| mask.is_within(&rule.mask));
        splits.push(split(mask, covered, &rest, seed));
        rules = rest;
    }
    for mut split in splits.into_iter().rev() {
        if let Some(wild) = last {
            split.wild_cost = wild.cost();
            split.priority_max = split.priority_max.max(priority_max(&wild));
            split.wild = Some(wild);
        }
        last = Some(Node::Split(Arc::new(split)));
    }
    last
}

fn priority_max(node: &Node) -> u16 {
    match node {
        Node::One(rule) => rule.priority,
        Node::List(rules) => rules.first().map_or(0, |rule| rule.priority),
        Node::Split(split) => split.priority_max,
    }
}

/// A node of rules whose masks all have the bits of `mask`; the rest is going to be beside it.
fn split(mask: Mask, rules: Vec<Arc<Rule>>, rest: &[Arc<Rule>], seed: &Seed) -> Split {
    let priority_max = rules.iter().map(|rule| rule.priority).max().unwrap_or(0);
    let mut groups: Map<u64, Vec<Arc<Rule>>> = Map::default();
    for rule in rules {
        groups.entry(mask.hash(&rule.value(), seed)).or_default().push(rule);
    }
    let mut alone = Alone::default();
    if groups.len() <= ALONE_MAX {
        alone.add_children(groups.keys().copied());
        for (hash, rules) in &groups {
            let Some(first) = rules.first() else { continue };
            let has_one_value = rules.iter().all(|own| first.can_match_beside(own, &mask));
            if !has_one_value || rest.iter().any(|other| first.can_match_beside(other, &mask)) {
                alone.remove(*hash);
            }
        }
    }
    let sample = groups.values().flatten().next().map_or(Key::ZERO, |rule| rule.value());
    let divides = groups.len() > 1 || !rest.is_empty();
    let (mut children, mut child_cost) = (Trie::default(), 0);
    for (hash, rules) in groups {
        // Different values with one hash are not divided by it.
        let child = if divides { build(rules, seed) } else { Some(list(rules)) };
        if let Some(child) = child {
            child_cost = child_cost.max(child.cost());
            children.set(hash, child);
        }
    }
    Split { mask, priority_max, alone, sample, child_cost, wild_cost: 0, children, wild: None }
}

fn list(mut rules: Vec<Arc<Rule>>) -> Node {
    sort(&mut rules);
    Node::List(Arc::new(rules))
}

/// The mask under which rules are divided best. It divides them: some are below it, and not all of them below one child.
fn choose(rules: &[Arc<Rule>], seed: &Seed) -> Mask {
    let step = rules.len().div_ceil(SAMPLE);
    let sample: Vec<&Rule> = rules.iter().step_by(step).map(Arc::as_ref).collect();
    let own = masks_of(&sample);
    // Rules of one mask differ in their values, so each gets a child of its own.
    if let [(mask, ..)] = own.as_slice()
        && rules.iter().all(|rule| rule.mask.key() == mask.key())
    {
        return Mask::clone(mask);
    }
    let mut candidates: Vec<Mask> = own.iter().take(MASKS).map(|(mask, ..)| Mask::clone(mask)).collect();
    for (number, (one, ..)) in own.iter().take(MASKS).enumerate() {
        candidates.extend(own.iter().take(number).map(|(other, ..)| one.common(other)));
    }
    candidates.extend(parts(&own));
    candidates.retain(|mask| !mask.is_empty());
    let estimated = |mask: &Mask| estimate(mask, &sample, seed);
    let best =
        candidates.iter().filter_map(|mask| Some((estimated(mask)?, mask))).min_by_key(|(cost, _)| *cost);
    match best {
        Some((_, mask)) => mask.clone(),
        // What the sample does not show: the mask with most bits leaves over all rules of other masks.
        None => rules
            .iter()
            .max_by_key(|rule| rule.mask.bits())
            .map_or_else(|| Mask::new(Key::default()), |rule| Mask::clone(&rule.mask)),
    }
}

/// Masks of one field each, or of fields that are beside each other: the bits that some masks have of half a word. Those of
/// prefixes of a medium length divide rules with prefixes of all lengths into two halves.
fn parts(masks: &[(&Mask, u16, usize)]) -> Vec<Mask> {
    let mut parts = Vec::new();
    for (word, half) in (0..WORDS).flat_map(|word| [(word, u64::MAX << 32), (word, u64::MAX >> 32)]) {
        let mut bits: Vec<u64> = masks.iter().map(|(mask, ..)| mask.key().0[word] & half).collect();
        bits.sort_unstable_by_key(|bits| (bits.count_ones(), *bits));
        let mut chosen: Vec<u64> = (1..4).map(|quarter| bits[bits.len() * quarter / 4]).collect();
        chosen.dedup();
        parts.extend(chosen.into_iter().map(|bits| {
            let mut key = Key::ZERO;
            key.0[word] = bits;
            Mask::new(key)
        }));
    }
    parts
}

/// The different masks, those of the highest priority first, and then those of most rules.
fn masks_of<'a>(rules: &[&'a Rule]) -> Vec<(&'a Mask, u16, usize)> {
    let mut masks: Map<&[u64], (&Mask, u16, usize)> = Map::default();
    for rule in rules {
        let (_, priority, count) = masks.entry(&rule.mask.key().0).or_insert((&rule.mask, 0, 0));
        *priority = (*priority).max(rule.priority);
        *count += 1;
    }
    let mut masks: Vec<_> = masks.into_values().collect();
    masks.sort_by_key(|(mask, priority, count)| (std::cmp::Reverse((*priority, *count)), mask.key().0));
    masks
}

/// About what a look-up costs if these rules are divided under a mask: the most costly child, and what is left over, or
/// one of both if no key needs both. `None`: the mask does not divide them.
fn estimate(mask: &Mask, rules: &[&Rule], seed: &Seed) -> Option<u32> {
    let mut children: Map<u64, Vec<&Rule>> = Map::default();
    let mut rest = Vec::new();
    for rule in rules {
        if mask.is_within(&rule.mask) {
            children.entry(mask.hash(&rule.value(), seed)).or_default().push(rule);
        } else {
            rest.push(*rule);
        }
    }
    let largest = children.values().map(Vec::len).max()?;
    if largest == rules.len() {
        return None;
    }
    let child = children.values().map(|rules| cost_of(rules)).max()?;
    let is_alone = |rules: &Vec<&Rule>| {
        rules.first().is_some_and(|own| !rest.iter().any(|other| own.can_match_beside(other, mask)))
    };
    let all_alone = children.len() <= ALONE_MAX && children.values().all(is_alone);
    Some(cost_of_split(child, cost_of(&rest), all_alone))
}

/// About what rules cost that are not divided yet: a probe for each mask, or a comparison with each rule.
fn cost_of(rules: &[&Rule]) -> u32 {
    if rules.len() <= LIST_MAX {
        return rules.len() as u32;
    }
    let masks = masks_of(rules).len() as u32;
    (rules.len() as u32).min(masks * (PROBE_COST + 1))
}
