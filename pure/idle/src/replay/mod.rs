//! Replays arrival traces against rules on a simulated machine.

pub mod clairvoyant;
pub mod fixed;
pub mod machine;
pub mod simulate;
pub mod table;
pub mod traces;
