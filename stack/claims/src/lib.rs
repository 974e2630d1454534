//! Decides which frames of an interface the fast path takes; all others stay with the kernel.
//!
//! A [`Table`] holds the claims of one interface; [`verdict`] decides one frame. The programs of `stack/bpf` make
//! the same decision inside the kernel. The [`corpus`] of frames and verdicts ensures that the two implementations
//! agree.
//!
//! Never here: a guess. A frame that is not understood passes to the kernel, with the reason.

pub mod corpus;
pub mod ethertypes;
mod table;
mod verdict;

pub use table::{
    ADDRESSES_MAX, Answers, CLAIMS_MAX, Claim, ClaimKind, FRAME_LEN_MIN, Prefix, PrefixError,
    REFLEX_CLAIMS_MAX, REFLEX_PLACES, REFLEX_SERVICES_MAX, Reflex, SOURCES_MAX, SOURCES_TOTAL_MAX, Table,
    TableError,
};
pub use verdict::{Context, DATAGRAMS_MAX, Known, PassReason, Verdict, verdict};
