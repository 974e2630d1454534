//! Code shared by programs that measure: the report of a run, axes of time, handling of signals during a run, and the
//! output of results and errors.
//!
//! `twinpath bench` writes a [`report::BenchReport`] or a [`stream::StreamReport`], and `twinpath-lab`
//! reads it. Code that only one of them needs is not here.

pub mod attend;
pub mod axis;
pub mod report;
pub mod say;
pub mod stream;

pub use attend::attend;
pub use say::{in_words, print};

/// The reason that a program that measures could not continue.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// There is no event loop, or no signal handler.
    #[error("cannot wait for signals: {0}")]
    Signals(std::io::Error),
    /// Standard output is closed.
    #[error("cannot print the result: {0}")]
    Print(std::io::Error),
}
