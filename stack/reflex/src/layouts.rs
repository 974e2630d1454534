//! Kept replies, as the programs of the kernel read them.
//!
//! Written by `cargo run -p xtask -- bpf` from the sources in stack/bpf/bpf: change those.

pub(crate) const KEPT_SERVICES: usize = 16;
pub(crate) const KEPT_SLOTS: usize = 8;
pub(crate) const KEPT_REQUEST: usize = 256;
pub(crate) const KEPT_REPLY: usize = 1024;
pub(crate) const KEPT_GENERATIONS: usize = 16384;

/// `struct kept` of kept.h: where its fields are, and its length, bytes.
pub(crate) mod kept {
    pub(crate) const LEN: usize = 1344;
    pub(crate) const SEQUENCE_AT: usize = 0;
    pub(crate) const HASH_AT: usize = 8;
    pub(crate) const GENERATION_AT: usize = 16;
    pub(crate) const UNTIL_NS_AT: usize = 24;
    pub(crate) const NAME_AT: usize = 32;
    pub(crate) const SERVICE_AT: usize = 36;
    pub(crate) const SHAPE_AT: usize = 38;
    pub(crate) const REQUEST_LEN_AT: usize = 40;
    pub(crate) const REPLY_LEN_AT: usize = 42;
    pub(crate) const USED_AT: usize = 44;
    pub(crate) const REQUEST_AT: usize = 64;
    pub(crate) const REPLY_AT: usize = 320;
}
