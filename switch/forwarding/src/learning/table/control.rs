//! What control does with the MAC table: static entries, flushing, and going through it.

use twinpath_time::{Duration, Instant};
use twinpath_wire::Mac;

use super::entry::{Age, Name};
use super::{Ageing, MacTable, Place, TICK_BITS, tick_of};
use crate::learning::arrival::{mac_of, number_of};
use crate::learning::config::PORT_MAX;
use crate::learning::sync::{AtomicU64, Ordering};

/// An entry, as [`MacTable::visit`] shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The address.
    pub mac: Mac,
    /// Its VLAN; 0 where the switch has none.
    pub vlan: u16,
    /// The number of its port.
    pub port: u16,
    /// For how long no frame has come from it, to about a second and 1/32 of the ageing time; `None`: a static entry.
    pub age: Option<Duration>,
}

/// There is no free place for a static entry: its two buckets have nothing but other static entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{mac} in VLAN {vlan} finds no place among the other static entries: give the table a larger capacity"
)]
pub struct NoPlace {
    /// The address.
    pub mac: Mac,
    /// Its VLAN.
    pub vlan: u16,
}

impl MacTable {
    /// Forgets all addresses that were learned on a port, immediately. Their places are freed gradually, or by
    /// [`Self::sweep`].
    pub fn flush_port(&self, port: u16) {
        if let Some(state) = self.ports.get(usize::from(port)) {
            state.generation.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Forgets all learned addresses, at once.
    pub fn flush(&self) {
        (0..=PORT_MAX).for_each(|port| self.flush_port(port));
    }

    /// Forgets an address, if it was learned.
    pub fn forget(&self, mac: Mac, vlan: u16) {
        let place = self.place(number_of(mac), vlan);
        if let Some(found) = self.find(&place).filter(|found| !found.name.is_static()) {
            self.remove_name(found.name_at, found.name);
        }
    }

    /// Enters a static entry; replaces what was learned. Called by control.
    ///
    /// # Errors
    /// [`NoPlace`], which takes 16 static entries in the same two buckets.
    pub(crate) fn set_static(&self, mac: Mac, vlan: u16, port: u16) -> Result<(), NoPlace> {
        let place = self.place(number_of(mac), vlan);
        self.remove_static(mac, vlan);
        // A learned address gives way if there is no empty place: it is learned again where there is room.
        let entered = [Name::is_empty as fn(Name) -> bool, |former| !former.is_static()]
            .into_iter()
            .any(|may_take| self.enter_static(&place, port, may_take));
        if entered { Ok(()) } else { Err(NoPlace { mac, vlan }) }
    }

    /// Enters a static entry in the first place that it may take.
    fn enter_static(&self, place: &Place, port: u16, may_take: fn(Name) -> bool) -> bool {
        for (choice, bucket) in place.buckets.into_iter().enumerate() {
            let name = Name::new(place, choice, port).into_static();
            for name_at in self.bucket(bucket).names {
                let former = Name(name_at.load(Ordering::Acquire));
                if !may_take(former)
                    || name_at
                        .compare_exchange(former.0, name.0, Ordering::AcqRel, Ordering::Relaxed)
                        .is_err()
                {
                    continue;
                }
                if !former.is_empty() {
                    self.free(former.port());
                }
                self.remove_double(place, name_at, name, |_| ());
                return true;
            }
        }
        false
    }

    /// Removes a static entry, if there is one. Called by control.
    pub(crate) fn remove_static(&self, mac: Mac, vlan: u16) {
        let place = self.place(number_of(mac), vlan);
        if let Some(found) = self.find(&place).filter(|found| found.name.is_static()) {
            self.remove_name(found.name_at, found.name);
        }
    }

    /// Number of parts into which [`Self::visit`] and [`Self::sweep`] divide the table: 8 entries each.
    #[must_use]
    pub fn parts(&self) -> usize {
        self.lines.as_slice().len() / 2
    }

    /// Shows the entries in a range of [`Self::parts`] that are neither too old nor flushed. Control goes through a large table in
    /// pieces, and does other work in between.
    pub fn visit(
        &self,
        parts: core::ops::Range<usize>,
        now: Instant,
        ageing: Duration,
        mut each: impl FnMut(Entry),
    ) {
        self.each(parts, tick_of(now), Ageing::new(ageing), |_, _, entry| {
            entry.into_iter().for_each(&mut each);
        });
    }

    /// Frees the places in a range of [`Self::parts`] whose entries are too old, flushed, or refused by `keep`. The
    /// latter is how the addresses of a VLAN are flushed. Static entries stay. Returns how many were freed.
    pub fn sweep(
        &self,
        parts: core::ops::Range<usize>,
        now: Instant,
        ageing: Duration,
        mut keep: impl FnMut(&Entry) -> bool,
    ) -> usize {
        let mut freed = 0;
        self.each(parts, tick_of(now), Ageing::new(ageing), |name_at, name, entry| {
            let kept = name.is_static() || entry.as_ref().is_some_and(&mut keep);
            freed += usize::from(!kept && self.remove_name(name_at, name));
        });
        freed
    }

    /// Goes through the entries of some buckets; gives no [`Entry`] for those that no look-up would find.
    pub(super) fn each(
        &self,
        parts: core::ops::Range<usize>,
        tick: u32,
        ageing: Ageing,
        mut each: impl FnMut(&AtomicU64, Name, Option<Entry>),
    ) {
        for number in parts.start..parts.end.min(self.parts()) {
            let bucket = self.bucket(number as u32);
            for (name_at, age_at) in bucket.names.iter().zip(bucket.ages) {
                let name = Name(name_at.load(Ordering::Acquire));
                if name.is_empty() {
                    continue;
                }
                let (mac, vlan) = self.places.back(name.upper(), number as u32, name.choice());
                let entry = |age| Entry { mac: mac_of(mac), vlan, port: name.port(), age };
                let age = Age(age_at.load(Ordering::Acquire));
                let ticks = self.ticks(name, age, tick).filter(|ticks| *ticks <= ageing.max);
                let age = |ticks: u32| Duration::from_nanos(u64::from(ticks) << TICK_BITS);
                let shown = if name.is_static() {
                    Some(entry(None))
                } else {
                    ticks.map(|ticks| entry(Some(age(ticks))))
                };
                each(name_at, name, shown);
            }
        }
    }
}
