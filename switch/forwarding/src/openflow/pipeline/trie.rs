//! A map from hashes to values that control changes while workers read former versions of it.
//!
//! A version is a tree of shared nodes, by five bits of the hash per level. A change copies the nodes on its path that a
//! published version also has, and no others: about one per level, whatever the size of the map. Workers only borrow from
//! their version, so they change no reference count.

use std::sync::Arc;

const BITS: u32 = 5;
const CHILDREN: usize = 1 << BITS;
/// Values per leaf: their hashes and tags are 64 bytes. A leaf is not aligned to 64 bytes, as aligned allocations take
/// several times as long.
const LEAF: usize = 7;

/// A map of hashes of 64 bits, which are taken for the keys themselves.
#[derive(Clone, Debug)]
pub(crate) struct Trie<V>(Node<V>);

impl<V> Default for Trie<V> {
    fn default() -> Self {
        Self(Node::Empty)
    }
}

#[derive(Clone, Debug)]
enum Node<V> {
    Empty,
    /// One value alone, with its hash: most have no leaf, and are found with one step less.
    One(u64, V),
    Leaf(Arc<Leaf<V>>),
    Inner(Arc<[Node<V>; CHILDREN]>),
}

#[derive(Clone, Debug)]
#[repr(C)]
struct Leaf<V> {
    /// A byte of each hash, and one that counts for nothing: a look-up compares all of them at once.
    tags: u64,
    hashes: [u64; LEAF],
    /// Values at the front.
    values: [Option<V>; LEAF],
}

/// The same byte eight times.
const fn repeat(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

/// The byte of a hash that leaves note: its highest, which says nothing of its place in the tree.
#[inline]
const fn tag_of(hash: u64) -> u8 {
    (hash >> 56) as u8
}

impl<V> Leaf<V> {
    const EMPTY: Self = Self { tags: 0, hashes: [0; LEAF], values: [const { None }; LEAF] };

    #[inline]
    fn position(&self, hash: u64) -> Option<usize> {
        let differs = self.tags ^ repeat(tag_of(hash));
        // The highest bit of each byte that is zero, and perhaps of some above it: their hashes tell.
        let mut equal = differs.wrapping_sub(repeat(1)) & !differs & repeat(0x80);
        while equal != 0 {
            let at = equal.trailing_zeros() as usize / 8;
            if self.hashes.get(at) == Some(&hash) {
                return Some(at);
            }
            equal &= equal - 1;
        }
        None
    }

    /// Puts a hash where its value is; zero: there is none.
    const fn note(&mut self, place: usize, hash: u64) {
        self.hashes[place] = hash;
        let shift = place as u32 * 8;
        self.tags = self.tags & !(0xff << shift) | (tag_of(hash) as u64) << shift;
    }

    fn len(&self) -> usize {
        self.values.iter().take_while(|value| value.is_some()).count()
    }
}

const fn index(hash: u64, shift: u32) -> usize {
    (hash >> shift) as usize % CHILDREN
}

impl<V> Trie<V> {
    pub(crate) const fn is_empty(&self) -> bool {
        matches!(self.0, Node::Empty)
    }

    #[inline]
    pub(crate) fn get(&self, hash: u64) -> Option<&V> {
        let (mut node, mut shift) = (&self.0, 0);
        loop {
            match node {
                Node::Empty => return None,
                Node::One(own, value) => return (*own == hash).then_some(value),
                // A hash of zero is found where there is none; its value says so.
                Node::Leaf(leaf) => return leaf.values[leaf.position(hash)?].as_ref(),
                Node::Inner(children) => node = &children[index(hash, shift)],
            }
            shift += BITS;
        }
    }

    /// One of the values.
    pub(crate) fn any(&self) -> Option<&V> {
        fn first<V>(node: &Node<V>) -> Option<&V> {
            match node {
                Node::Empty => None,
                Node::One(_, value) => Some(value),
                Node::Leaf(leaf) => leaf.values.first()?.as_ref(),
                Node::Inner(children) => children.iter().find_map(first),
            }
        }
        first(&self.0)
    }

    /// Calls `each` for every value.
    pub(crate) fn each<'a>(&'a self, each: &mut impl FnMut(&'a V)) {
        fn walk<'a, V>(node: &'a Node<V>, each: &mut impl FnMut(&'a V)) {
            match node {
                Node::Empty => {}
                Node::One(_, value) => each(value),
                Node::Leaf(leaf) => leaf.values.iter().flatten().for_each(each),
                Node::Inner(children) => children.iter().for_each(|child| walk(child, each)),
            }
        }
        walk(&self.0, each);
    }
}

impl<V: Clone> Trie<V> {
    /// Replaces the value of a hash by what `change` makes of it; `None`: there is none.
    pub(crate) fn change(&mut self, hash: u64, change: impl FnOnce(&mut Option<V>)) {
        Self::change_in(&mut self.0, hash, 0, change);
    }

    pub(crate) fn set(&mut self, hash: u64, value: V) {
        self.change(hash, |own| *own = Some(value));
    }

    pub(crate) fn remove(&mut self, hash: u64) {
        self.change(hash, |own| *own = None);
    }

    fn change_in(node: &mut Node<V>, hash: u64, shift: u32, change: impl FnOnce(&mut Option<V>)) {
        match node {
            Node::Empty => {
                let mut value = None;
                change(&mut value);
                *node = value.map_or(Node::Empty, |value| Node::One(hash, value));
            }
            Node::One(own, _) if *own == hash => {
                let Node::One(_, value) = std::mem::replace(node, Node::Empty) else { return };
                let mut value = Some(value);
                change(&mut value);
                *node = value.map_or(Node::Empty, |value| Node::One(hash, value));
            }
            Node::One(..) => {
                let mut value = None;
                change(&mut value);
                if value.is_none() {
                    return;
                }
                let Node::One(own, first) = std::mem::replace(node, Node::Empty) else { return };
                let mut leaf = Leaf::EMPTY;
                leaf.note(0, own);
                leaf.note(1, hash);
                (leaf.values[0], leaf.values[1]) = (Some(first), value);
                *node = Node::Leaf(Arc::new(leaf));
            }
            Node::Leaf(leaf) => {
                let place = leaf.position(hash).filter(|place| leaf.values[*place].is_some());
                let Some(place) = place.or_else(|| (leaf.len() < LEAF).then(|| leaf.len())) else {
                    *node = Self::split(leaf, shift);
                    return Self::change_in(node, hash, shift, change);
                };
                let leaf = Arc::make_mut(leaf);
                change(&mut leaf.values[place]);
                if leaf.values[place].is_some() {
                    leaf.note(place, hash);
                    return;
                }
                // The last one takes the free place.
                let last = (place + 1..LEAF).rev().find(|at| leaf.values[*at].is_some());
                if let Some(last) = last {
                    leaf.values.swap(place, last);
                    leaf.note(place, leaf.hashes[last]);
                }
                leaf.note(last.unwrap_or(place), 0);
                if leaf.len() == 1 {
                    let [hash, ..] = leaf.hashes;
                    *node = leaf.values[0].take().map_or(Node::Empty, |value| Node::One(hash, value));
                }
            }
            Node::Inner(children) => {
                let children = Arc::make_mut(children);
                Self::change_in(&mut children[index(hash, shift)], hash, shift + BITS, change);
                if children.iter().all(|child| matches!(child, Node::Empty)) {
                    *node = Node::Empty;
                }
            }
        }
    }

    /// A full leaf as a node with leaves. At the last bits of the hash, each place has but one hash, so no leaf is full there.
    fn split(leaf: &Leaf<V>, shift: u32) -> Node<V> {
        let mut leaves = [const { Leaf::EMPTY }; CHILDREN];
        for (hash, value) in leaf.hashes.iter().zip(&leaf.values) {
            let into = &mut leaves[index(*hash, shift)];
            let place = into.len();
            into.note(place, *hash);
            into.values[place] = value.clone();
        }
        let node = |mut leaf: Leaf<V>| match leaf.len() {
            0 => Node::Empty,
            1 => leaf.values[0].take().map_or(Node::Empty, |value| Node::One(leaf.hashes[0], value)),
            _ => Node::Leaf(Arc::new(leaf)),
        };
        Node::Inner(Arc::new(leaves.map(node)))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    /// Hashes that share their first bits, their last ones, or nothing.
    fn hash() -> impl Strategy<Value = u64> {
        prop_oneof![0_u64..40, (0_u64..40).prop_map(|high| high << 58), any::<u64>(), Just(0)]
    }

    proptest! {
        #[test]
        fn a_trie_is_a_map_and_former_versions_stay(
            changes in prop::collection::vec((hash(), prop::option::weighted(0.7, 0_u32..1000), any::<bool>()), 0..300),
        ) {
            let (mut trie, mut map) = (Trie::default(), HashMap::new());
            let mut former = Vec::new();
            for (hash, value, publish) in changes {
                if publish {
                    former.push((trie.clone(), map.clone()));
                }
                match value {
                    Some(value) => {
                        trie.set(hash, value);
                        map.insert(hash, value);
                    }
                    None => {
                        trie.remove(hash);
                        map.remove(&hash);
                    }
                }
            }
            former.push((trie, map));
            for (trie, map) in former {
                let mut count = 0;
                trie.each(&mut |_| count += 1);
                prop_assert_eq!((count, trie.is_empty()), (map.len(), map.is_empty()));
                for (hash, value) in map {
                    prop_assert_eq!(trie.get(hash), Some(&value));
                }
            }
        }
    }
}
