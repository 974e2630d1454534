//! Tests of the programs without a device, by the kernel's own test runs.
#![allow(clippy::unwrap_used, reason = "a test says what it needs")]

#[path = "../common/mod.rs"]
mod common;
mod direct_ring;
mod fail_open;
mod frames;
mod interrupted;
mod kept;
mod leases;
#[path = "../common/mirrors.rs"]
mod mirrors;
mod offload;
mod reflex;
mod reflex_at_xdp;
mod taps;
mod verdicts;
