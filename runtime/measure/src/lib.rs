//! What every program that measures has in common: the report of a run, axes of time, signals that come while it runs, and
//! how a result and an error are printed.
//!
//! `twinpath bench` writes a [`report::BenchReport`] and `twinpath-lab` reads it back; what either of them needs alone is not
//! here.

pub mod attend;
pub mod axis;
pub mod report;
pub mod say;

pub use attend::attend;
pub use say::{in_words, print};

/// Why a program that measures could not go on.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// No event loop, or no handler.
    #[error("cannot wait for signals: {0}")]
    Signals(std::io::Error),
    /// Standard output is closed.
    #[error("cannot print the result: {0}")]
    Print(std::io::Error),
}
