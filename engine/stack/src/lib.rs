//! (being written)
pub mod egress;
