//! The groups of a switch (sections 5.6, 6.5 and 7.3.4.2).

use std::collections::{BTreeMap, BTreeSet};

use twinpath_openflow_wire::{Bucket, ErrorCode, GroupMod, GroupModFailed, GroupType, number};
use twinpath_time::Instant;

use crate::openflow::check::{self, Place, References, groups_of};

/// Maximum number of buckets in a group.
pub(crate) const BUCKETS_MAX: usize = 256;

#[derive(Clone, Debug)]
pub(crate) struct GroupEntry {
    pub(crate) group_type: GroupType,
    pub(crate) buckets: Box<[Bucket]>,
    pub(crate) created: Instant,
    /// Flows that send to it.
    pub(crate) flows: u32,
    /// Groups that send to it.
    pub(crate) groups: u32,
}

impl GroupEntry {
    /// Groups that its buckets send to.
    fn next(&self) -> impl Iterator<Item = u32> {
        next_of(&self.buckets)
    }
}

/// Groups that buckets send to.
fn next_of(buckets: &[Bucket]) -> impl Iterator<Item = u32> {
    groups_of(buckets.iter().flat_map(|bucket| bucket.actions.iter()))
}

/// All groups of a switch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Groups {
    pub(crate) entries: BTreeMap<u32, GroupEntry>,
}

impl Groups {
    /// Whether another group sends to it.
    pub(crate) fn is_chained(&self, group_id: u32) -> bool {
        self.entries.get(&group_id).is_some_and(|entry| entry.groups > 0)
    }

    /// Flows and groups that send to it.
    pub(crate) fn ref_count(&self, group_id: u32) -> u32 {
        self.entries.get(&group_id).map_or(0, |entry| entry.flows.saturating_add(entry.groups))
    }

    /// Makes a group, or gives one another type and other buckets, after [`Self::check`].
    pub(crate) fn set(&mut self, now: Instant, group_id: u32, group_type: GroupType, buckets: Box<[Bucket]>) {
        let former = self.remove(group_id);
        let (flows, groups) = former.map_or((0, 0), |former| (former.flows, former.groups));
        self.count_group(next_of(&buckets), 1);
        self.entries.insert(group_id, GroupEntry { group_type, buckets, created: now, flows, groups });
    }

    pub(crate) fn remove(&mut self, group_id: u32) -> Option<GroupEntry> {
        let removed = self.entries.remove(&group_id)?;
        self.count_group(removed.next(), -1);
        Some(removed)
    }

    /// One group more (`1`) or fewer (`-1`) sends to these groups.
    fn count_group(&mut self, groups: impl Iterator<Item = u32>, by: i32) {
        for group in groups.collect::<BTreeSet<_>>() {
            if let Some(entry) = self.entries.get_mut(&group) {
                entry.groups = entry.groups.saturating_add_signed(by);
            }
        }
    }

    /// Whether a frame that is sent to one of these groups can come to `group_id`.
    fn reaches(&self, from: impl Iterator<Item = u32>, group_id: u32) -> bool {
        let (mut open, mut seen) = (from.collect::<Vec<_>>(), BTreeSet::new());
        while let Some(group) = open.pop() {
            if group == group_id {
                return true;
            }
            if seen.insert(group)
                && let Some(entry) = self.entries.get(&group)
            {
                open.extend(entry.next());
            }
        }
        false
    }

    /// Checks a group that is to be made or changed, except whether it is there.
    ///
    /// # Errors
    /// As section 7.4.4 says.
    pub(crate) fn check(&self, change: &GroupMod, references: &impl References) -> Result<(), ErrorCode> {
        if change.group_id > number::group::MAX {
            return Err(GroupModFailed::InvalidGroup.into());
        }
        if change.buckets.len() > BUCKETS_MAX {
            return Err(GroupModFailed::OutOfBuckets.into());
        }
        // A group of this type has one bucket (section 5.6.1).
        if change.group_type == GroupType::Indirect && change.buckets.len() != 1 {
            return Err(GroupModFailed::InvalidGroup.into());
        }
        // Only what is chosen by weights has some (section 7.3.4.2).
        if change.group_type != GroupType::Select && change.buckets.iter().any(|bucket| bucket.weight != 0) {
            return Err(GroupModFailed::InvalidGroup.into());
        }
        // Only these choose buckets by liveness: elsewhere a watched port or group has no effect (section 7.3.4.2).
        let is_chosen = matches!(change.group_type, GroupType::Select | GroupType::FastFailover);
        if !is_chosen && change.buckets.iter().any(Bucket::watches) {
            return Err(GroupModFailed::WatchUnsupported.into());
        }
        if self.reaches(next_of(&change.buckets), change.group_id) {
            return Err(GroupModFailed::Loop.into());
        }
        for bucket in &change.buckets {
            let watches_group = bucket.watch_group != number::group::ANY;
            let watches_port = bucket.watch_port != number::port::ANY;
            if watches_group && !self.entries.contains_key(&bucket.watch_group)
                || watches_port
                    && bucket.watch_port > number::port::MAX
                    && bucket.watch_port != number::port::LOCAL
                || watches_port && bucket.watch_port == 0
            {
                return Err(GroupModFailed::BadWatch.into());
            }
            // Without one it could not be known to be live (section 6.5).
            if change.group_type == GroupType::FastFailover && !watches_group && !watches_port {
                return Err(GroupModFailed::InvalidGroup.into());
            }
            check::actions(&bucket.actions, Place::Bucket, references)?;
        }
        Ok(())
    }

    /// One flow more (`1`) or fewer (`-1`) sends to this group.
    pub(crate) fn count_flow(&mut self, group: u32, by: i32) {
        if let Some(entry) = self.entries.get_mut(&group) {
            entry.flows = entry.flows.saturating_add_signed(by);
        }
    }
}
