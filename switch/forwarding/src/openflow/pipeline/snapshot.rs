//! A published version of the tables: what workers judge by.

use std::sync::Arc;

use crate::openflow::pipeline::group::Group;
use crate::openflow::pipeline::hash::{Mask, Seed, mix};
use crate::openflow::pipeline::key::{self, Key};
use crate::openflow::pipeline::meter::Meter;
use crate::openflow::pipeline::port::Ports;
use crate::openflow::pipeline::table::Tree;
use crate::openflow::pipeline::trie::Trie;

/// A version of tables, groups, meters and ports. Versions share what has not changed.
#[derive(Debug)]
pub struct Snapshot {
    pub(crate) number: u64,
    pub(crate) tables: Box<[Tree]>,
    pub(crate) groups: Trie<Arc<Group>>,
    pub(crate) meters: Trie<Arc<Meter>>,
    pub(crate) ports: Arc<Ports>,
    pub(crate) seed: Seed,
    pub(crate) flow_mask: Arc<FlowMask>,
    pub(crate) cold_cost: u32,
    pub(crate) drop_fragments: bool,
}

impl Snapshot {
    /// Its number: later versions have higher ones.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// The most that the look-ups for a frame cost, in comparisons with a rule; 0 if all rules are taken to be in the CPU's
    /// caches.
    #[must_use]
    pub const fn cold_cost(&self) -> u32 {
        self.cold_cost
    }

    #[inline]
    pub(crate) fn group(&self, number: u32) -> Option<&Group> {
        self.groups.get(mix(u64::from(number))).map(Arc::as_ref)
    }

    #[inline]
    pub(crate) fn meter(&self, number: u32) -> Option<&Meter> {
        self.meters.get(mix(u64::from(number))).map(Arc::as_ref)
    }
}

/// Which fields say what flow a frame is of, when a group chooses a bucket for it.
#[derive(Debug)]
pub(crate) struct FlowMask {
    whole: Mask,
    /// All fragments of a packet are of one flow, and only the first has ports.
    without_ports: Mask,
}

impl FlowMask {
    pub(crate) fn new() -> Self {
        let mut key = Key([u64::MAX; key::WORDS]);
        // Neither the port that it came in by, nor what is not among its bytes, nor what differs from packet to packet.
        key.0[0] = 0xffff_ffff << 32;
        key.0[1] = !0xff;
        key.0[2] = !0xffff;
        key.0[3] = 0xffff_ffff << 32;
        (8..key::WORDS).for_each(|word| key.0[word] = 0);
        let whole = Mask::new(key);
        key.0[3] = 0;
        Self { whole, without_ports: Mask::new(key) }
    }

    pub(crate) fn hash(&self, key: &Key, is_fragment: bool, seed: &Seed) -> u64 {
        if is_fragment { &self.without_ports } else { &self.whole }.hash(key, seed)
    }
}
