//! The twin: a plain socket of the kernel and one with a lease, on two identical links. Both get the same frames and
//! the same calls, one step at a time, and what programs see of them is compared. The plain side is right by
//! definition.

pub mod compare;
pub mod frame;
pub mod generate;
pub mod known;
pub mod link;
pub mod order;
pub mod soak;
pub mod subject;
pub mod twin;
