//! The counts of an echo server.

/// The counts of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EchoCounts {
    /// Requests received.
    pub received: u64,
    /// Replies that the kernel accepted.
    pub sent: u64,
    /// Replies that the kernel refused.
    pub refused: u64,
}
