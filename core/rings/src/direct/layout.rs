//! The state of a direct ring, and its head.
//!
//! Written by `cargo run -p xtask -- bpf` from the sources in stack/bpf/bpf: change those.

pub(crate) const SLOT_LEN: usize = 2048;

pub(crate) const OPEN: u64 = 0x8000000000000000;
pub(crate) const SINGLE: u64 = 0x4000000000000000;
pub(crate) const PASSED: u64 = 0x2000000000000000;
pub(crate) const POSITION: u64 = 0x1fffffffffffffff;

/// `struct direct` of direct.h: where its fields are, and its length, bytes.
pub(crate) mod direct {
    pub(crate) const LEN: usize = 128;
    pub(crate) const WITHOUT_SOCKET_AT: usize = 0;
    pub(crate) const WANTS_SOCKET_AT: usize = 4;
    pub(crate) const UNTIL_AT: usize = 8;
    pub(crate) const ENDED_AT: usize = 16;
    pub(crate) const HEAD_AT: usize = 64;
    pub(crate) const FULL_AT: usize = 72;
    pub(crate) const LAPSED_AT: usize = 76;
    pub(crate) const PASSED_AT: usize = 80;
    pub(crate) const ODD_AT: usize = 84;
}
