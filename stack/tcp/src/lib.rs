//! A TCP engine as a value: (state, now, segment | call) -> segments, events.
//!
//! It reads no clock, owns no descriptor and allocates nothing per segment.

pub mod congestion;
pub mod prr;
pub mod rtt;
