//! What a service counts by itself.

use twinpath_inspect::{Counter, Drops};

/// Counters of one clone of a service: its worker writes them, whoever asks reads them.
#[derive(Debug, Default)]
pub struct ServiceCounters {
    /// Requests answered, by whichever transport; refusals are answers too.
    pub answered: Counter,
    /// Of those: answered again, with a reply that had been kept.
    pub repeated: Counter,
    /// Kept replies that made room for others before their age.
    pub forgotten: Counter,
    /// Of those answered: told that they were refused, by reason.
    pub refused: Drops,
    /// UDP peers that have a session.
    pub sessions: Counter,
    /// Sessions made so far.
    pub sessions_opened: Counter,
    /// Of those, ended for their age.
    pub sessions_aged: Counter,
    /// Of those, ended to make room for others.
    pub sessions_displaced: Counter,
}
