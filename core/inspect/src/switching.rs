//! The counters of a worker's part of a switch.

use crate::{Counter, counters};

counters! {
    /// The counters of one worker; control reads them. Dropped frames are counted by the caller, under their reason.
    pub struct SwitchCounters {
        /// What the workers of a switch have counted, in a report.
        #[derive(Copy, PartialEq, Eq)]
        SwitchCounts {
            /// Broadcast frames flooded.
            flooded_broadcast: Counter => counter("twinpath_switch_flooded"), about(FLOODED), label("kind", "broadcast");
            /// Multicast frames flooded.
            flooded_multicast: Counter => counter("twinpath_switch_flooded"), about(FLOODED), label("kind", "multicast");
            /// Frames flooded as their destination was not known.
            flooded_unknown: Counter => counter("twinpath_switch_flooded"), about(FLOODED), label("kind", "unknown");
            /// Addresses learned so far.
            learned: Counter => counter("twinpath_switch_addresses_learned");
            /// Addresses that moved from one port to another.
            moved: Counter => counter("twinpath_switch_addresses_moved");
            /// Loops of two ports found.
            loops: Counter => counter("twinpath_switch_loops");
        }
    } and {
        /// Frames whose address was not learned: its port has as many as it may.
        pub mac_limit: Counter,
        /// Frames whose address was not learned: there was no place in the table.
        pub table_full: Counter,
    }
}

const FLOODED: &str = "Frames flooded, by kind of destination.";
