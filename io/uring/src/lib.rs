//! Kernel sockets through io_uring: receives that stay armed and fill registered buffers, sends that are submitted together.
//!
//! One [`Ring`] belongs to one thread. Nothing here waits: [`Ring::has_news`] looks into memory shared with the kernel,
//! [`Ring::enter`] is the one system call, and its descriptor tells, if asked to, when there is something to enter for. What a
//! connection is, and what its bytes mean, is the caller's.

mod buffers;
mod error;
mod probe;
mod ring;

pub use buffers::Lent;
pub use error::RingError;
pub use probe::probe;
pub use ring::{Completion, Key, Ring, RingConfig};
