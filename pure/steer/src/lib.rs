//! What is ours; all else is the kernel's.
//!
//! A [`Table`] says which frames of one interface are claimed; [`verdict`] decides one frame. The same decision is
//! made inside the kernel by the programs of `io/steer_bpf`; the [`corpus`] of frames and verdicts holds them
//! together.
//!
//! Never here: a guess. A frame that is not understood passes to the kernel, with the reason.

pub mod corpus;
pub mod ethertypes;
mod table;
mod verdict;

pub use table::{
    ADDRESSES_MAX, CLAIMS_MAX, Claim, ClaimKind, FRAME_LEN_MIN, Prefix, PrefixError, SOURCES_MAX,
    SOURCES_TOTAL_MAX, Table, TableError,
};
pub use verdict::{Context, PassReason, Verdict, verdict};
