//! Tests of connections over a simulated transport: short reads and writes, refusals, edges in any order, half closes
//! and resets, and work that completes when the test says so.
#![allow(clippy::unwrap_used, reason = "all of it is a test")]

mod asked;
mod later;
mod lengths;
mod outside;
mod schedules;
mod simulated;
mod streaming;
