//! What a worker counts of its switch.

use twinpath_inspect::Counter;

/// The counters of one worker; control reads them. Dropped frames are counted by the caller, under their reason.
#[derive(Debug, Default)]
pub struct SwitchCounters {
    /// Addresses learned.
    pub learned: Counter,
    /// Addresses that moved from one port to another.
    pub moved: Counter,
    /// Frames whose address was not learned: its port has as many as it may.
    pub mac_limit: Counter,
    /// Frames whose address was not learned: there was no place in the table.
    pub table_full: Counter,
    /// Broadcast frames flooded.
    pub broadcast: Counter,
    /// Multicast frames flooded.
    pub multicast: Counter,
    /// Frames flooded as their destination was not known.
    pub unknown: Counter,
    /// Loops found.
    pub loops: Counter,
}
