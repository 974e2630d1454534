//! The stored values, shared by all workers, and the changes that commands make to them.
//!
//! A change withdraws the kept replies of its key before anybody is told of the change.

use std::sync::{PoisonError, RwLock, RwLockWriteGuard};

use twinpath::{Instant, KeptReplies};

use crate::table::{Item, Table};

/// Maximum length of a value, bytes.
pub(crate) const VALUE_MAX: usize = 1 << 20;

/// The minimum memory of a store: a value of any size fits.
const BYTES_MIN: usize = 2 * VALUE_MAX;

/// The condition under which a value is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    Always,
    Absent,
    Present,
    /// It still has this CAS number.
    Unchanged(u64),
}

/// The outcome of storing a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Stored,
    NotStored,
    /// It has changed meanwhile.
    Exists,
    NotFound,
}

/// Why a number was not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotCounted {
    NotFound,
    NoNumber,
}

struct Values {
    table: Table,
    /// The CAS number of the last change.
    cas: u64,
}

/// Values by key.
pub(crate) struct Store {
    values: RwLock<Values>,
    kept: KeptReplies,
}

impl Store {
    /// A store of at most this many bytes (2 MiB if they are fewer), whose replies may be kept in `kept`.
    pub(crate) fn new(bytes_max: usize, kept: KeptReplies) -> Self {
        let table = Table::new(bytes_max.max(BYTES_MIN));
        Self { values: RwLock::new(Values { table, cas: 0 }), kept }
    }

    /// The kept replies that are made from it.
    pub(crate) const fn kept(&self) -> &KeptReplies {
        &self.kept
    }

    fn write(&self) -> RwLockWriteGuard<'_, Values> {
        self.values.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The item of a key.
    pub(crate) fn get(&self, now: Instant, key: &[u8]) -> Option<Item> {
        self.values.read().unwrap_or_else(PoisonError::into_inner).table.get(now, key).cloned()
    }

    /// Stores a value of at most [`VALUE_MAX`] bytes.
    pub(crate) fn store(
        &self,
        now: Instant,
        when: When,
        key: &[u8],
        flags: u32,
        until: Instant,
        value: &[u8],
    ) -> Outcome {
        let value = value.into();
        let mut values = self.write();
        match (when, values.table.get(now, key)) {
            (When::Absent, Some(_)) | (When::Present, None) => return Outcome::NotStored,
            (When::Unchanged(_), None) => return Outcome::NotFound,
            (When::Unchanged(cas), Some(item)) if item.cas != cas => return Outcome::Exists,
            _ => self.put(&mut values, now, key, Item { flags, cas: 0, until, value }),
        }
        Outcome::Stored
    }

    /// Adds to a key's number, which wraps to 0 after 2^64 - 1, or subtracts from it, down to 0. A result
    /// with fewer digits is padded with spaces, as in memcached.
    pub(crate) fn count(&self, now: Instant, key: &[u8], adds: bool, delta: u64) -> Result<u64, NotCounted> {
        let mut values = self.write();
        let item = values.table.get(now, key).ok_or(NotCounted::NotFound)?.clone();
        let number = std::str::from_utf8(item.value.trim_ascii()).ok().and_then(|text| text.parse().ok());
        let number: u64 = number.ok_or(NotCounted::NoNumber)?;
        let number = if adds { number.wrapping_add(delta) } else { number.saturating_sub(delta) };
        let value = format!("{number:<width$}", width = item.value.len()).into_bytes().into();
        self.put(&mut values, now, key, Item { value, ..item });
        Ok(number)
    }

    /// Changes the expiry of a key; returns whether it has a value.
    pub(crate) fn touch(&self, now: Instant, key: &[u8], until: Instant) -> bool {
        let mut values = self.write();
        let Some(item) = values.table.get(now, key).cloned() else { return false };
        values.table.put(now, key, Item { until, ..item }, |_| ());
        self.kept.withdraw(key);
        true
    }

    /// Removes a key; returns whether it had a value.
    pub(crate) fn delete(&self, now: Instant, key: &[u8]) -> bool {
        let removed = self.write().table.remove(key);
        self.kept.withdraw(key);
        removed.is_some_and(|item| item.until > now)
    }

    /// Removes all.
    pub(crate) fn clear(&self) {
        self.write().table.clear();
        self.kept.withdraw_all();
    }

    /// Stores a value with the next CAS number.
    fn put(&self, values: &mut Values, now: Instant, key: &[u8], item: Item) {
        values.cas += 1;
        let item = Item { cas: values.cas, ..item };
        values.table.put(now, key, item, |gone| self.kept.withdraw(gone));
        self.kept.withdraw(key);
    }
}
