//! A flow table as a tree that finds the rule of highest priority for a key.
//!
//! The tree takes its shape from the rules. A few rules are a list ([`Node::List`]). Otherwise a node hashes the key under a
//! mask ([`Split`]): rules whose masks have all its bits are below the child of their hash, all others below `wild`. So
//!
//! - rules with one mask are one hash table: one probe finds the rule;
//! - rules with a few masks are one hash table per mask, searched in turn; those that can no longer win are skipped;
//! - rules with many masks, such as prefixes, share hash tables by what their masks have in common, and are divided again
//!   below ([`build`]): a probe per level, as in a trie. Where no key can match both below a child and in `wild`, only one of
//!   them is searched ([`Alone`]), so prefixes of all lengths are found by halving the lengths.
//!
//! No rule is in two places, and a look-up does no more work than [`Node::cost`] says, whatever the key. Control knows
//! this bound, and builds the tree anew where it has grown too large ([`Table`]). The only exception is a key whose
//! hash, of 64 bits under a secret seed, collides with that of another value. It may take longer, and still finds its
//! rule.
//!
//! Control changes a tree while workers read former versions: nodes are shared, and copied where a published version has
//! them too ([`crate::openflow::pipeline::trie`]).

mod build;
mod store;

use std::sync::Arc;

use crate::openflow::pipeline::hash::{Mask, Seed};
use crate::openflow::pipeline::key::Key;
use crate::openflow::pipeline::rule::Rule;
use crate::openflow::pipeline::trie::Trie;

use self::build::build;
pub(crate) use self::store::Table;

/// Rules of a list. With more, a hash is faster.
const LIST_MAX: usize = 6;

/// Parts of a tree that one call of a look-up has left to look at.
const LEFT_MAX: usize = 8;

/// What a probe of a hash table costs, in comparisons with a rule.
const PROBE_COST: u32 = 2;

/// With more children, none of a node is [`Alone`]: finding that out takes as long as there are children.
const ALONE_MAX: usize = 8;

/// The children of a node that are alone: no key that goes to them could match a rule beside them. They are kept by six
/// bits of the children's hashes. Of children that have these bits in common, all or none are alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Alone {
    is_child: u64,
    is_alone: u64,
}

impl Alone {
    const fn bit(hash: u64) -> u64 {
        1 << (hash >> 58)
    }

    /// Children of a new node, all of them alone.
    fn add_children(&mut self, hashes: impl Iterator<Item = u64>) {
        self.is_child = hashes.fold(0, |bits, hash| bits | Self::bit(hash));
        self.is_alone = self.is_child;
    }

    const fn remove(&mut self, hash: u64) {
        self.is_child |= Self::bit(hash);
        self.is_alone &= !Self::bit(hash);
    }

    #[inline]
    const fn has(self, hash: u64) -> bool {
        self.is_alone & Self::bit(hash) != 0
    }

    const fn is_any(self) -> bool {
        self.is_alone != 0
    }

    const fn is_all(self) -> bool {
        self.is_any() && self.is_alone == self.is_child
    }
}

/// A version of a flow table. A rule that matches every key is beside the tree: what it matches depends on nothing, so no
/// part of the tree has to be searched for it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    root: Option<Node>,
    any: Option<Arc<Rule>>,
}

impl Tree {
    /// The rule for a key.
    #[inline]
    pub(crate) fn find(&self, key: &Key, seed: &Seed) -> Option<&Rule> {
        let any = self.any.as_deref();
        match &self.root {
            Some(root) => root.find(key, seed, any),
            None => any,
        }
    }

    /// The same, and adds all bits that are looked at to `looked_at`: a key that is equal in these bits takes the same way
    /// through the tree.
    pub(crate) fn trace(&self, key: &Key, seed: &Seed, looked_at: &mut Key) -> Option<&Rule> {
        let any = self.any.as_deref();
        match &self.root {
            Some(root) => root.trace(key, seed, any, looked_at),
            None => any,
        }
    }

    /// The most that a look-up costs, in comparisons with a rule.
    fn cost(&self) -> u32 {
        self.root.as_ref().map_or(0, Node::cost)
    }

    /// The rule with just this match.
    fn find_same(&self, wanted: &Rule, seed: &Seed) -> Option<&Arc<Rule>> {
        if wanted.mask.is_empty() {
            return self.any.as_ref();
        }
        self.root.as_ref()?.find_same(wanted, seed)
    }

    /// Puts a rule in; there is none with the same match.
    fn insert(&mut self, rule: Arc<Rule>, seed: &Seed) {
        if rule.mask.is_empty() {
            self.any = Some(rule);
        } else {
            insert(&mut self.root, rule, seed);
        }
    }

    /// Removes the rule with the match of `wanted`, or replaces it by `by`, which has the same match.
    fn replace(&mut self, wanted: &Rule, by: Option<Arc<Rule>>, seed: &Seed) {
        if wanted.mask.is_empty() {
            self.any = by;
        } else {
            replace(&mut self.root, wanted, by, seed);
        }
    }

    /// Builds the tree anew. Returns how many rules it has.
    fn rebuild(&mut self, seed: &Seed) -> usize {
        let mut rules = Vec::new();
        if let Some(root) = &self.root {
            root.each(&mut |rule| rules.push(Arc::clone(rule)));
        }
        let count = rules.len();
        self.root = build(rules, seed);
        count
    }
}

/// A part of a tree. Every part has a rule at least.
#[derive(Clone, Debug)]
enum Node {
    One(Arc<Rule>),
    /// Highest priority first.
    List(Arc<Vec<Arc<Rule>>>),
    Split(Arc<Split>),
}

/// Rules below a mask.
#[derive(Clone, Debug)]
struct Split {
    mask: Mask,
    /// No rule below has a higher priority.
    priority_max: u16,
    /// The children that are alone: a key that goes to one need not be looked for anywhere else. The rules of such a
    /// child have one value under the mask.
    alone: Alone,
    /// The value of one of its rules. It need not be there any more: where the value counts, all rules have the same.
    sample: Key,
    /// No child costs more.
    child_cost: u32,
    wild_cost: u32,
    children: Trie<Node>,
    /// Rules whose masks lack bits of this one.
    wild: Option<Node>,
}

/// The most that a look-up costs in a node with children and rules beside them that cost as much.
fn cost_of_split(child: u32, wild: u32, all_alone: bool) -> u32 {
    PROBE_COST + if all_alone { child.max(wild) } else { child + wild }
}

impl Split {
    /// The child for a key, if there is one, and the rules beside the children, if any of them could match the key, too. Keys
    /// with different values can have one hash, so the rules beside a child are left out for keys with its value alone.
    #[inline]
    fn look_up(&self, key: &Key, seed: &Seed) -> (Option<&Node>, Option<&Node>) {
        let hash = self.mask.hash(key, seed);
        let child = self.children.get(hash);
        let has_all = |child: &&Node| {
            self.wild.is_some() && self.alone.has(hash) && child.has_value_of(key, &self.mask)
        };
        let wild = if child.as_ref().is_some_and(has_all) { None } else { self.wild.as_ref() };
        (child, wild)
    }

    /// A rule goes to those beside the children: those that it can match beside are no longer alone.
    fn note_wild(&mut self, rule: &Rule, seed: &Seed) {
        if !self.alone.is_any() {
            return;
        }
        let mut others = Vec::new();
        self.children.each(&mut |child| others.extend(child.any()));
        let hashes: Vec<u64> = others
            .into_iter()
            .filter(|own| own.can_match_beside(rule, &self.mask))
            .map(|own| self.mask.hash(&own.value(), seed))
            .collect();
        hashes.into_iter().for_each(|hash| self.alone.remove(hash));
    }
}

impl Node {
    /// Whether a key has the value of a child in the bits of its parent's mask, if all rules of the child have one value there.
    #[inline]
    fn has_value_of(&self, key: &Key, mask: &Mask) -> bool {
        match self {
            Self::One(rule) => rule.has_value_of(key, mask),
            Self::List(rules) => rules.first().is_some_and(|rule| rule.has_value_of(key, mask)),
            Self::Split(split) => mask.agree(key, &split.sample),
        }
    }

    /// One of its rules.
    fn any(&self) -> Option<&Arc<Rule>> {
        match self {
            Self::One(rule) => Some(rule),
            Self::List(rules) => rules.first(),
            Self::Split(split) => {
                let child = split.children.any();
                child.or(split.wild.as_ref())?.any()
            }
        }
    }

    /// The most that a look-up costs here, in comparisons with a rule.
    fn cost(&self) -> u32 {
        match self {
            Self::One(_) => 1,
            Self::List(rules) => rules.len() as u32,
            Self::Split(split) => cost_of_split(split.child_cost, split.wild_cost, split.alone.is_all()),
        }
    }

    /// The rule for a key, if there is one of higher priority than `best`; else `best`.
    #[inline]
    fn find<'a>(&'a self, key: &Key, seed: &Seed, mut best: Option<&'a Rule>) -> Option<&'a Rule> {
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
                    let (child, wild) = split.look_up(key, seed);
                    if let Some(child) = child {
                        best = child.find_below(key, seed, best);
                    }
                    match wild {
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
                    let (child, wild) = split.look_up(key, seed);
                    if let Some(wild) = wild {
                        left[count % LEFT_MAX] = wild;
                        count += 1;
                    }
                    let Some(child) = child else { continue };
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

    /// As [`Tree::trace`], if there is a rule of higher priority than `best`.
    fn trace<'a>(
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
                let (child, wild) = split.look_up(key, seed);
                if let Some(child) = child {
                    best = child.trace(key, seed, best, looked_at);
                }
                match wild {
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
                let (child_cost, alone, mask) = (&mut split.child_cost, &mut split.alone, &split.mask);
                split.children.change(hash, |child| {
                    if child.as_ref().is_none_or(|child| !child.has_value_of(&rule.value(), mask)) {
                        alone.remove(hash);
                    }
                    insert(child, rule, seed);
                    *child_cost = (*child_cost).max(child.as_ref().map_or(0, Node::cost));
                });
            } else {
                split.note_wild(&rule, seed);
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

/// Removes the rule with the match of `wanted` from a tree, or replaces it by `by`, which has the same match. Costs and
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
