//! What is stored: values by key, shared by all workers.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use twinpath::{Duration, Instant};

/// Most bytes of a value: it fits one datagram with its key.
pub(crate) const VALUE_MAX: usize = 60_000;

/// Most keys, and most bytes of all keys and values.
const KEYS_MAX: usize = 1_000_000;
const BYTES_MAX: usize = 256 << 20;

/// A value.
#[derive(Clone)]
pub(crate) struct Item {
    /// The client's own.
    pub(crate) flags: u32,
    pub(crate) value: Arc<[u8]>,
    /// From when on it is there no more.
    pub(crate) until: Instant,
}

#[derive(Default)]
struct Values {
    items: HashMap<Box<[u8]>, Item>,
    /// Of all keys and values.
    bytes: usize,
}

/// Values by key.
#[derive(Default)]
pub(crate) struct Store {
    values: RwLock<Values>,
}

impl Store {
    fn read(&self) -> RwLockReadGuard<'_, Values> {
        self.values.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Values> {
        self.values.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value of a key.
    pub(crate) fn get(&self, now: Instant, key: &[u8]) -> Option<Item> {
        self.read().items.get(key).filter(|item| item.until > now).cloned()
    }

    /// Stores a value, for so many seconds: none means for ever, a negative number not at all. Returns whether there
    /// was room for it; if not, the key has no value.
    pub(crate) fn set(&self, now: Instant, key: &[u8], flags: u32, seconds: i64, value: &[u8]) -> bool {
        let until = match u64::try_from(seconds) {
            Ok(0) => Instant::NEVER,
            Ok(seconds) => now + Duration::from_secs(seconds),
            Err(_) => now,
        };
        let (values, len) = (&mut *self.write(), key.len() + value.len());
        values.remove(key);
        if !values.has_room(len) {
            values.remove_expired(now);
        }
        if !values.has_room(len) {
            return false;
        }
        values.bytes += len;
        values.items.insert(key.into(), Item { flags, value: value.into(), until });
        true
    }

    /// Removes a key; returns whether it had a value.
    pub(crate) fn delete(&self, now: Instant, key: &[u8]) -> bool {
        self.write().remove(key).is_some_and(|item| item.until > now)
    }

    /// Removes all.
    pub(crate) fn clear(&self) {
        *self.write() = Values::default();
    }
}

impl Values {
    fn has_room(&self, len: usize) -> bool {
        self.items.len() < KEYS_MAX && self.bytes + len <= BYTES_MAX
    }

    fn remove(&mut self, key: &[u8]) -> Option<Item> {
        let item = self.items.remove(key)?;
        self.bytes -= key.len() + item.value.len();
        Some(item)
    }

    fn remove_expired(&mut self, now: Instant) {
        let bytes = &mut self.bytes;
        self.items.retain(|key, item| {
            let stays = item.until > now;
            if !stays {
                *bytes -= key.len() + item.value.len();
            }
            stays
        });
    }
}
