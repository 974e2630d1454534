use std::collections::HashMap;
use std::collections::hash_map::Entry;

use proptest::prelude::*;

use super::*;
use crate::openflow::pipeline::key::WORDS;

const SEED: [u64; 2] = [5, 6];

fn key(words: &[(usize, u64)]) -> Key {
    let mut key = Key([0; WORDS]);
    words.iter().for_each(|(word, bits)| key.0[*word] = *bits);
    key
}

fn rule(mask: Key, value: Key, priority: u16) -> Rule {
    let value = Key(std::array::from_fn(|word| value.0[word] & mask.0[word]));
    let mask = Arc::new(Mask::new(mask));
    Rule::new(0, mask, &value, priority, 0)
}

/// The priority that a linear search finds.
fn linear(rules: &[Arc<Rule>], key: &Key) -> Option<u16> {
    rules.iter().filter(|rule| rule.matches(key)).map(|rule| rule.priority).max()
}

fn found(tree: &Tree, key: &Key, seed: &Seed) -> Option<u16> {
    tree.find(key, seed).map(|rule| rule.priority)
}

/// Masks of prefixes of two words, of whole words, and of any bits; values of few bits, so that rules overlap.
fn any_rule() -> impl Strategy<Value = Rule> {
    let prefix = |len: u32| if len == 0 { 0 } else { u64::MAX << (8 - len) & 0xff };
    let mask = prop_oneof![
        (0_u32..9, 0_u32..9).prop_map(move |(one, two)| key(&[(1, prefix(one)), (4, prefix(two))])),
        (0_u32..8).prop_map(|words| key(&[
            (0, 0xff * u64::from(words & 1)),
            (1, 0xff * u64::from(words >> 1 & 1)),
            (9, 0xff * u64::from(words >> 2))
        ])),
        (0_u64..256, 0_u64..256).prop_map(|(one, two)| key(&[(1, one), (9, two)])),
    ];
    (mask, any_key(), 0_u16..20).prop_map(|(mask, value, priority)| rule(mask, value, priority))
}

fn any_key() -> impl Strategy<Value = Key> {
    let bits =
        || prop_oneof![Just(0_u64), Just(0xff), 0_u64..4, (0_u64..4).prop_map(|bits| bits << 6), 0_u64..256];
    (bits(), bits(), bits(), bits()).prop_map(|(a, b, c, d)| key(&[(0, a), (1, b), (4, c), (9, d)]))
}

#[derive(Clone, Debug)]
enum Step {
    Insert(Arc<Rule>),
    Remove(usize),
    Replace(usize),
    Publish,
}

impl Clone for Rule {
    fn clone(&self) -> Self {
        self.with_program(self.program.clone(), self.cookie)
    }
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => any_rule().prop_map(|rule| Step::Insert(Arc::new(rule))),
        3 => any::<usize>().prop_map(Step::Remove),
        1 => any::<usize>().prop_map(Step::Replace),
        1 => Just(Step::Publish),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_table_finds_what_a_linear_search_finds_in_every_version(
        steps in prop::collection::vec(step(), 0..120), keys in prop::collection::vec(any_key(), 1..40),
        has_equal_hashes: bool,
    ) {
        let seed = if has_equal_hashes { Seed::WEAK } else { Seed::new(SEED) };
        let (mut table, mut rules) = (Table::default(), Vec::<Arc<Rule>>::new());
        let mut versions = Vec::new();
        for step in steps {
            match step {
                Step::Insert(rule) => {
                    let is_there = |own: &Arc<Rule>| own.has_match_of(&rule) && own.priority == rule.priority;
                    if !rules.iter().any(is_there) {
                        table.insert(Arc::clone(&rule), &seed);
                        rules.push(rule);
                    }
                }
                Step::Remove(number) if !rules.is_empty() => {
                    let rule = rules.swap_remove(number % rules.len());
                    table.remove(&rule, &seed);
                }
                Step::Replace(number) if !rules.is_empty() => {
                    let number = number % rules.len();
                    let new = Arc::new(Rule::clone(&rules[number]));
                    table.replace(&rules[number], Arc::clone(&new), &seed);
                    rules[number] = new;
                }
                Step::Publish => versions.push((table.tree().clone(), rules.clone())),
                Step::Remove(_) | Step::Replace(_) => {}
            }
            prop_assert_eq!(table.len(), rules.len());
        }
        versions.push((table.tree().clone(), rules));
        for (tree, rules) in versions {
            for key in &keys {
                prop_assert_eq!(found(&tree, key, &seed), linear(&rules, key));
            }
        }
    }
}

#[test]
fn a_table_of_one_mask_is_one_hash_table() {
    let (seed, mut table) = (Seed::new(SEED), Table::default());
    let mask = key(&[(0, u64::MAX), (4, u64::MAX)]);
    for number in 0..5000 {
        table.insert(Arc::new(rule(mask, key(&[(4, number)]), 7)), &seed);
    }
    assert_eq!(table.cost(), PROBE_COST + 1);
    assert_eq!(found(table.tree(), &key(&[(4, 4999)]), &seed), Some(7));
    assert_eq!(found(table.tree(), &key(&[(4, 5000)]), &seed), None);
}

#[test]
fn rules_of_one_match_are_one_comparison() {
    let (seed, mut table) = (Seed::new(SEED), Table::default());
    let rules: Vec<_> =
        (0..1000).map(|priority| Arc::new(rule(key(&[(4, 1)]), key(&[(4, 1)]), priority))).collect();
    rules.iter().for_each(|rule| table.insert(Arc::clone(rule), &seed));
    assert_eq!((table.cost(), table.len()), (1, 1000));
    for rule in rules.iter().rev() {
        assert_eq!(found(table.tree(), &key(&[(4, 1)]), &seed), Some(rule.priority));
        table.remove(rule, &seed);
    }
    assert!(matches!(table.tree(), Tree { root: None, any: None }));
}

/// Rules with prefixes of all lengths of two fields, each of which leaves an address behind at another bit, as
/// tuple-space explosion has them: a mask for each pair of lengths.
fn explosion(random: &mut fastrand::Rng) -> Vec<Arc<Rule>> {
    let differ = |len: u32, rest: u64| 1_u64 << (32 - len) | rest & ((1 << (32 - len)) - 1);
    let mut rules = Vec::new();
    for (one, two) in (1..=32).flat_map(|one| (1..=32).map(move |two| (one, two))) {
        let mask = |len: u32| u64::from(u32::MAX << (32 - len));
        let value = key(&[(4, differ(one, random.u64(..))), (5, differ(two, random.u64(..)))]);
        rules.push(Arc::new(rule(key(&[(4, mask(one)), (5, mask(two))]), value, random.u16(1..))));
    }
    rules
}

#[test]
fn prefixes_that_exclude_each_other_are_found_by_halving_their_lengths() {
    let (seed, mut random) = (Seed::new(SEED), fastrand::Rng::with_seed(2));
    let rules = explosion(&mut random);
    let mut table = Table::default();
    // One that matches every key hides none of it.
    table.insert(Arc::new(rule(key(&[]), key(&[]), 0)), &seed);
    rules.iter().for_each(|rule| table.insert(Arc::clone(rule), &seed));
    assert!(table.cost() < 48, "{}", table.cost());
    for _ in 0..500 {
        let key = rules[random.usize(..rules.len())].value();
        assert_eq!(found(table.tree(), &key, &seed), linear(&rules, &key));
        // Another rule where it was taken to be alone.
        let other = Arc::new(rule(Key([u64::MAX; WORDS]), key, random.u16(..)));
        if table.tree().find_same(&other, &seed).is_none() {
            table.insert(Arc::clone(&other), &seed);
            let all: Vec<_> = rules.iter().chain([&other]).map(Arc::clone).collect();
            assert_eq!(found(table.tree(), &key, &seed), linear(&all, &key));
            table.remove(&other, &seed);
        }
    }
}

/// Some values have equal hashes by bad luck: a key with such a value is no reason to leave rules out.
#[test]
fn a_key_with_the_hash_of_another_value_finds_its_rule() {
    let mut random = fastrand::Rng::with_seed(4);
    let mut rules = explosion(&mut random);
    random.shuffle(&mut rules);
    rules.truncate(64);
    let (seed, mut table) = (Seed::WEAK, Table::default());
    rules.iter().for_each(|rule| table.insert(Arc::clone(rule), &seed));
    for _ in 0..20_000 {
        let one = rules[random.usize(..rules.len())].value().0[4];
        let two = rules[random.usize(..rules.len())].value().0[5];
        let key = key(&[(4, one), (5, two)]);
        assert_eq!(found(table.tree(), &key, &seed), linear(&rules, &key));
    }
}

#[test]
fn equal_rules_make_equal_trees() {
    let seed = Seed::new(SEED);
    let tree = || {
        let mut table = Table::default();
        explosion(&mut fastrand::Rng::with_seed(3)).into_iter().for_each(|rule| table.insert(rule, &seed));
        format!("{:?}", table.tree())
    };
    assert!(tree() == tree());
}

/// Prefixes of all lengths of two fields: 1,089 masks, which one after the other would cost three each.
#[test]
fn many_masks_cost_far_less_than_a_probe_each() {
    let (seed, mut table) = (Seed::new(SEED), Table::default());
    let mut random = fastrand::Rng::with_seed(1);
    let prefix = |len: u32| if len == 0 { 0 } else { u64::MAX << (64 - len) };
    let mut rules: HashMap<(Key, Key), Arc<Rule>> = HashMap::new();
    for number in 0..5_000_u32 {
        let mask = key(&[(4, prefix(number % 33)), (5, prefix(number / 33 % 33))]);
        let rule = Arc::new(rule(mask, key(&[(4, random.u64(..)), (5, random.u64(..))]), random.u16(1..)));
        if let Entry::Vacant(place) = rules.entry(rule.match_key()) {
            table.insert(Arc::clone(&rule), &seed);
            place.insert(rule);
        }
    }
    assert!(table.cost() < 300, "{}", table.cost());
    let rules: Vec<_> = rules.into_values().collect();
    for _ in 0..1000 {
        let key = key(&[(4, random.u64(..)), (5, random.u64(..))]);
        assert_eq!(found(table.tree(), &key, &seed), linear(&rules, &key));
    }
}
