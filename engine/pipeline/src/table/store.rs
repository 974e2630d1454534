//! A flow table as control changes it.

use std::collections::HashMap;
use std::sync::Arc;

use crate::hash::Seed;
use crate::key::Key;
use crate::rule::Rule;
use crate::table::{Node, build, insert, replace};

/// A look-up that costs more has the tree built anew, in comparisons with a rule.
const COST_MAX: u32 = 24;

/// A flow table. Rules with the same match differ in priority, and only the highest can ever be found: it alone is in the
/// tree, so that no look-up passes the others.
#[derive(Debug, Default)]
pub(crate) struct Table {
    root: Option<Node>,
    /// Rules with the match of one in the tree, by mask and value; the highest priority last.
    hidden: HashMap<(Key, Key), Vec<Arc<Rule>>>,
    rules: usize,
    /// Rules that are put in until the tree may be built anew, so that this costs little per rule.
    until_rebuild: usize,
}

impl Table {
    /// What workers read: a version of the tree.
    pub(crate) fn tree(&self) -> Option<Node> {
        self.root.clone()
    }

    /// The tree as it is now.
    pub(crate) const fn root(&self) -> Option<&Node> {
        self.root.as_ref()
    }

    pub(crate) const fn len(&self) -> usize {
        self.rules
    }

    /// The most that a look-up costs, in comparisons with a rule.
    pub(crate) fn cost(&self) -> u32 {
        self.root.as_ref().map_or(0, Node::cost)
    }

    /// Puts a rule in. There is none with the same match and priority.
    pub(crate) fn insert(&mut self, rule: Arc<Rule>, seed: &Seed) {
        self.rules += 1;
        self.until_rebuild = self.until_rebuild.saturating_sub(1);
        let same = self.root.as_ref().and_then(|root| root.find_same(&rule, seed)).map(Arc::clone);
        let Some(own) = same else {
            insert(&mut self.root, rule, seed);
            return self.limit_cost(seed);
        };
        let hidden = if own.priority < rule.priority {
            replace(&mut self.root, &own, Some(rule), seed);
            own
        } else {
            rule
        };
        let others = self.hidden.entry(hidden.match_key()).or_default();
        let at = others.partition_point(|other| other.priority < hidden.priority);
        others.insert(at, hidden);
    }

    /// Takes a rule out.
    pub(crate) fn remove(&mut self, rule: &Rule, seed: &Seed) {
        self.rules -= 1;
        let match_key = rule.match_key();
        let Some(others) = self.hidden.get_mut(&match_key) else {
            return replace(&mut self.root, rule, None, seed);
        };
        match others.iter().position(|other| other.priority == rule.priority) {
            Some(at) => drop(others.remove(at)),
            None => {
                let next = others.pop();
                replace(&mut self.root, rule, next, seed);
            }
        }
        if others.is_empty() {
            self.hidden.remove(&match_key);
        }
    }

    /// Puts a rule in the place of one with the same match and priority.
    pub(crate) fn replace(&mut self, former: &Rule, rule: Arc<Rule>, seed: &Seed) {
        let hidden = self.hidden.get_mut(&former.match_key());
        let hidden =
            hidden.and_then(|others| others.iter_mut().find(|other| other.priority == former.priority));
        match hidden {
            Some(own) => *own = rule,
            None => replace(&mut self.root, former, Some(rule), seed),
        }
    }

    fn limit_cost(&mut self, seed: &Seed) {
        if self.cost() <= COST_MAX || self.until_rebuild > 0 {
            return;
        }
        let mut rules = Vec::new();
        if let Some(root) = &self.root {
            root.each(&mut |rule| rules.push(Arc::clone(rule)));
        }
        self.until_rebuild = rules.len();
        self.root = build(rules, seed);
    }
}
