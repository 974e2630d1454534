//! A flow table as control changes it.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::openflow::pipeline::hash::Seed;
use crate::openflow::pipeline::key::Key;
use crate::openflow::pipeline::rule::Rule;
use crate::openflow::pipeline::table::Tree;

/// A look-up that costs more has the tree built anew, in comparisons with a rule.
const COST_MAX: u32 = 24;

/// A tree is built anew when this share of its rules has come since: a rule is part of a few such builds, and hostile rules
/// that come one after the other do not leave a tree far from the best one.
const REBUILD_SHARE: usize = 4;

/// By priority. Ports of high numbers have one number in keys, so flows that differ in them may have one match and priority here: their
/// counters tell them apart.
type ByPriority = BTreeMap<(u16, u32), Arc<Rule>>;

/// A flow table. Rules with the same match differ in priority, and only the highest can ever be found: it alone is in the
/// tree, so that no look-up passes the others.
#[derive(Debug, Default)]
pub(crate) struct Table {
    tree: Tree,
    /// Rules with the match of one in the tree, by mask and value.
    hidden: HashMap<(Key, Key), ByPriority>,
    rules: usize,
    /// Rules that are put in until the tree may be built anew, so that this costs little per rule.
    until_rebuild: usize,
}

impl Table {
    /// The tree as it is now; a copy of it is what workers read.
    pub(crate) const fn tree(&self) -> &Tree {
        &self.tree
    }

    pub(crate) const fn len(&self) -> usize {
        self.rules
    }

    /// The most that a look-up costs, in comparisons with a rule.
    pub(crate) fn cost(&self) -> u32 {
        self.tree.cost()
    }

    /// Puts a rule in. There is none with the same match and priority.
    pub(crate) fn insert(&mut self, rule: Arc<Rule>, seed: &Seed) {
        self.rules += 1;
        self.until_rebuild = self.until_rebuild.saturating_sub(1);
        let Some(own) = self.tree.find_same(&rule, seed).map(Arc::clone) else {
            self.tree.insert(rule, seed);
            return self.limit_cost(seed);
        };
        let hidden = if own.priority < rule.priority {
            self.tree.replace(&own, Some(rule), seed);
            own
        } else {
            rule
        };
        self.hidden.entry(hidden.match_key()).or_default().insert((hidden.priority, hidden.counter), hidden);
    }

    /// Takes a rule out.
    pub(crate) fn remove(&mut self, rule: &Rule, seed: &Seed) {
        self.rules -= 1;
        let match_key = rule.match_key();
        let Some(others) = self.hidden.get_mut(&match_key) else {
            return self.tree.replace(rule, None, seed);
        };
        if others.remove(&(rule.priority, rule.counter)).is_none() {
            let next = others.pop_last().map(|(_, next)| next);
            self.tree.replace(rule, next, seed);
        }
        if others.is_empty() {
            self.hidden.remove(&match_key);
        }
    }

    /// Puts a rule in the place of one with the same match and priority.
    pub(crate) fn replace(&mut self, former: &Rule, rule: Arc<Rule>, seed: &Seed) {
        let hidden = self.hidden.get_mut(&former.match_key());
        match hidden.and_then(|others| others.get_mut(&(former.priority, former.counter))) {
            Some(own) => *own = rule,
            None => self.tree.replace(former, Some(rule), seed),
        }
    }

    fn limit_cost(&mut self, seed: &Seed) {
        if self.cost() <= COST_MAX || self.until_rebuild > 0 {
            return;
        }
        self.until_rebuild = self.tree.rebuild(seed) / REBUILD_SHARE;
    }
}
