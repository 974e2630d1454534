//! Secrets that peers must not be able to guess, for tables that are keyed by what they send.

use std::hash::{BuildHasher as _, RandomState};

/// A random secret for a table.
pub(crate) fn secret() -> [u64; 2] {
    let random = || RandomState::new().hash_one(std::process::id());
    [random(), random()]
}
