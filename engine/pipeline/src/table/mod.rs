//! A flow table as a tree that finds the rule of highest priority for a key.
//!
//! The tree takes its shape from the rules. A few rules are a list ([`Node::List`]). Otherwise a node hashes the key under a
//! mask ([`Split`]): rules whose masks have all its bits are below the child of their hash, all others below `wild`. So
//!
//! - rules with one mask are one hash table: one probe finds the rule;
//! - rules with some masks are one hash table after the other, those that can no longer win left out;
//! - rules with many masks, such as prefixes, share hash tables by what their masks have in common, and are divided again
//!   below ([`build`]): a probe per level, as in a trie.
//!
//! No rule is in two places, and a look-up does no more work than [`Node::cost`] says, whatever the key: control knows it,
//! and builds the tree anew where it has grown too large ([`Table`]).
//!
//! Control changes a tree while workers read former versions: nodes are shared, and copied where a published version has
//! them too ([`crate::trie`]).

mod build;
mod store;

use std::sync::Arc;

use crate::hash::{Mask, Seed};
use crate::key::Key;
use crate::rule::Rule;
use crate::trie::Trie;

use self::build::build;
pub(crate) use self::store::Table;

/// Rules of a list. With more, a hash is faster.
const LIST_MAX: usize = 6;

/// Parts of a tree that one call of a look-up has left to look at.
const LEFT_MAX: usize = 8;

/// What a probe of a hash table costs, in comparisons with a rule.
const PROBE_COST: u32 = 2;

/// A part of a tree. Every part has a rule at least.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    One(Arc<Rule>),
    /// Highest priority first.
    List(Arc<Vec<Arc<Rule>>>),
    Split(Arc<Split>),
}

/// Rules below a mask.
#[derive(Clone, Debug)]
pub(crate) struct Split {
    mask: Mask,
    /// No rule below has a higher priority.
    priority_max: u16,
    /// No child costs more.
    child_cost: u32,
    wild_cost: u32,
    children: Trie<Node>,
    /// Rules whose masks lack bits of this one.
    wild: Option<Node>,
}

impl Node {
    /// The most that a look-up costs here, in comparisons with a rule.
    pub(crate) fn cost(&self) -> u32 {
        match self {
            Self::One(_) => 1,
            Self::List(rules) => rules.len() as u32,
            Self::Split(split) => PROBE_COST + split.child_cost + split.wild_cost,
        }
    }

    /// The rule for a key, if there is one of higher priority than `best`; else `best`.
    #[inline]
    pub(crate) fn find<'a>(&'a self, key: &Key, seed: &Seed, mut best: Option<&'a Rule>) -> Option<&'a Rule> {
        let mut node = self;
        loop {
            match node {
                Self::One(rule) => {
                    let wins = best.is_none_or(|best| best.priority < rule.priority) && rule.matches(key);
                    return if wins { Some(rule) } else { best };
                }
                Self::List(rules) => return first_match(rules, key, best),
                Self::Split(split) => {
                    if best.is_some_and(|best| best.priority >= split.priority_max) {
                        return best;
                    }
                    if let Some(child) = split.children.get(split.mask.hash(key, seed)) {
                        best = child.find_below(key, seed, best);
                    }
                    match &split.wild {
                        Some(wild) => node = wild,
                        None => return best,
                    }
                }
            }
        }
    }

    /// As [`Self::find`]; most children are single rules.
    #[inline]
    fn find_below<'a>(&'a self, key: &Key, seed: &Seed, best: Option<&'a Rule>) -> Option<&'a Rule> {
        match self {
            Self::One(rule) => {
                let wins = best.is_none_or(|best| best.priority < rule.priority) && rule.matches(key);
                if wins { Some(rule) } else { best }
            }
            Self::List(_) | Self::Split(_) => self.find_deep(key, seed, best),
        }
    }

    /// As [`Self::find`], for a part with several levels below: what is left to be looked at is noted, as calls cost more.
    #[inline(never)]
    fn find_deep<'a>(&'a self, key: &Key, seed: &Seed, mut best: Option<&'a Rule>) -> Option<&'a Rule> {
        let (mut left, mut count) = ([self; LEFT_MAX], 1);
        while count > 0 {
            count -= 1;
            match left[count % LEFT_MAX] {
                Self::One(rule) => {
                    if best.is_none_or(|best| best.priority < rule.priority) && rule.matches(key) {
                        best = Some(rule);
                    }
                }
                Self::List(rules) => best = first_match(rules, key, best),
                Self::Split(split) => {
                    if best.is_some_and(|best| best.priority >= split.priority_max) {
                        continue;
                    }
                    if let Some(wild) = &split.wild {
                        left[count % LEFT_MAX] = wild;
                        count += 1;
                    }
                    let Some(child) = split.children.get(split.mask.hash(key, seed)) else { continue };
                    if count < LEFT_MAX {
                        left[count] = child;
                        count += 1;
                    } else {
                        best = child.find_deep(key, seed, best);
                    }
                }
            }
        }
        best
    }

    /// As [`Self::find`], and adds all bits that are looked at to `looked_at`: a key that is equal in these bits takes the
    /// same way through the tree.
    pub(crate) fn trace<'a>(
        &'a self,
        key: &Key,
        seed: &Seed,
        mut best: Option<&'a Rule>,
        looked_at: &mut Key,
    ) -> Option<&'a Rule> {
        let mut compare = |rule: &Rule| {
            looked_at.add(rule.mask.key());
            rule.matches(key)
        };
        match self {
            Self::One(rule) => {
                let wins = best.is_none_or(|best| best.priority < rule.priority) && compare(rule);
                if wins { Some(rule) } else { best }
            }
            Self::List(rules) => {
                let may_win = |rule: &&Arc<Rule>| best.is_none_or(|best| best.priority < rule.priority);
                let found = rules.iter().take_while(may_win).find(|rule| compare(rule));
                found.map_or(best, |rule| Some(rule))
            }
            Self::Split(split) => {
                if best.is_some_and(|best| best.priority >= split.priority_max) {
                    return best;
                }
                looked_at.add(split.mask.key());
                if let Some(child) = split.children.get(split.mask.hash(key, seed)) {
                    best = child.trace(key, seed, best, looked_at);
                }
                match &split.wild {
                    Some(wild) => wild.trace(key, seed, best, looked_at),
                    None => best,
                }
            }
        }
    }

    /// The rule with just this match.
    fn find_same(&self, wanted: &Rule, seed: &Seed) -> Option<&Arc<Rule>> {
        match self {
            Self::One(rule) => rule.has_match_of(wanted).then_some(rule),
            Self::List(rules) => rules.iter().find(|rule| rule.has_match_of(wanted)),
            Self::Split(split) if split.mask.is_within(&wanted.mask) => {
                split.children.get(split.mask.hash(&wanted.value(), seed))?.find_same(wanted, seed)
            }
            Self::Split(split) => split.wild.as_ref()?.find_same(wanted, seed),
        }
    }

    fn each<'a>(&'a self, each: &mut impl FnMut(&'a Arc<Rule>)) {
        match self {
            Self::One(rule) => each(rule),
            Self::List(rules) => rules.iter().for_each(each),
            Self::Split(split) => {
                let mut children = Vec::new();
                split.children.each(&mut |child| children.push(child));
                children.into_iter().chain(&split.wild).for_each(|child| child.each(each));
            }
        }
    }
}

/// The first rule of a list that matches, if its priority is higher than that of `best`; else `best`.
#[inline]
fn first_match<'a>(rules: &'a [Arc<Rule>], key: &Key, best: Option<&'a Rule>) -> Option<&'a Rule> {
    for rule in rules {
        if best.is_some_and(|best| best.priority >= rule.priority) {
            return best;
        }
        if rule.matches(key) {
            return Some(rule);
        }
    }
    best
}

/// Puts a rule into a tree that has none with the same match.
fn insert(node: &mut Option<Node>, rule: Arc<Rule>, seed: &Seed) {
    match node {
        None => *node = Some(Node::One(rule)),
        Some(Node::One(own)) => {
            let mut rules = vec![Arc::clone(own), rule];
            sort(&mut rules);
            *node = Some(Node::List(Arc::new(rules)));
        }
        Some(Node::List(own)) if own.len() < LIST_MAX => {
            let rules = Arc::make_mut(own);
            rules.push(rule);
            sort(rules);
        }
        Some(Node::List(own)) => {
            let mut rules = Vec::clone(own);
            rules.push(rule);
            *node = build(rules, seed);
        }
        Some(Node::Split(own)) => {
            let split = Arc::make_mut(own);
            split.priority_max = split.priority_max.max(rule.priority);
            if split.mask.is_within(&rule.mask) {
                let hash = split.mask.hash(&rule.value(), seed);
                let child_cost = &mut split.child_cost;
                split.children.change(hash, |child| {
                    insert(child, rule, seed);
                    *child_cost = (*child_cost).max(child.as_ref().map_or(0, Node::cost));
                });
            } else {
                insert(&mut split.wild, rule, seed);
                split.wild_cost = split.wild.as_ref().map_or(0, Node::cost);
            }
        }
    }
}

/// Highest priority first; among equals the order does not matter.
fn sort(rules: &mut [Arc<Rule>]) {
    rules.sort_by_key(|rule| std::cmp::Reverse(rule.priority));
}

/// Takes the rule with the match of `wanted` out of a tree, or puts `by` in its place, which has the same match. Costs and
/// priorities stay as they were: they are bounds.
fn replace(node: &mut Option<Node>, wanted: &Rule, by: Option<Arc<Rule>>, seed: &Seed) {
    match node {
        None => {}
        Some(Node::One(own)) if own.has_match_of(wanted) => *node = by.map(Node::One),
        Some(Node::One(_)) => {}
        Some(Node::List(own)) => {
            let rules = Arc::make_mut(own);
            rules.retain(|rule| !rule.has_match_of(wanted));
            rules.extend(by);
            sort(rules);
            if let [rule] = rules.as_slice() {
                *node = Some(Node::One(Arc::clone(rule)));
            }
        }
        Some(Node::Split(own)) => {
            let split = Arc::make_mut(own);
            let priority = by.as_ref().map_or(0, |by| by.priority);
            split.priority_max = split.priority_max.max(priority);
            if split.mask.is_within(&wanted.mask) {
                let hash = split.mask.hash(&wanted.value(), seed);
                split.children.change(hash, |child| replace(child, wanted, by, seed));
            } else {
                replace(&mut split.wild, wanted, by, seed);
                split.wild_cost = split.wild.as_ref().map_or(0, Node::cost);
            }
            if split.children.is_empty() {
                *node = split.wild.take();
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
