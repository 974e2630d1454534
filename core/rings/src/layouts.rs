//! What else rings and words beside them share with the programs of the kernel.
//!
//! Written by `cargo run -p xtask -- bpf` from the sources in stack/bpf/bpf: change those.

pub(crate) const VLAN_NONE: u16 = 65535;

/// `struct slot` of direct.h: where its fields are, and its length, bytes.
pub(crate) mod slot {
    pub(crate) const BYTES_AT: usize = 16;
}

pub(crate) const WITHDRAWN: u64 = 0x8000000000000000;

pub(crate) const GIVEN_BACK: u64 = 1;

/// `struct pending` of pending.h: where its fields are, and its length, bytes.
pub(crate) mod pending {
    pub(crate) const LEN: usize = 64;
    pub(crate) const SINCE_AT: usize = 0;
    pub(crate) const WORKER_UNTIL_AT: usize = 8;
}

pub(crate) const SAMPLE_LEN: usize = 64;

pub(crate) const SAMPLE_NONE: u32 = 0;
pub(crate) const SAMPLE_ASKED: u32 = 1;
pub(crate) const SAMPLE_WRITTEN: u32 = 3;

/// `struct sample` of lease.c: where its fields are, and its length, bytes.
pub(crate) mod sample {
    pub(crate) const LEN: usize = 128;
    pub(crate) const STATE_AT: usize = 0;
    pub(crate) const LEN_AT: usize = 4;
    pub(crate) const HEAD_AT: usize = 8;
    pub(crate) const ASKED_AT: usize = 72;
}
