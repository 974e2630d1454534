//! Replays arrival traces with the policy, fixed settings or an oracle on a simulated machine.

pub mod fixed;
pub mod machine;
pub mod oracle;
pub mod simulate;
pub mod table;
pub mod traces;
