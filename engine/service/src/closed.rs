//! Why a connection was closed.

use twinpath_inspect::Reason;

/// What a service is told when a connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// Its peer or the service ended it, and everything asked was answered.
    Ended,
    /// The peer or the network broke it off.
    Broken,
    /// The instance stops.
    Stopped,
    /// Closed by us for a reason, under which it is counted.
    For(Reason),
}

impl Closed {
    /// The stable name, for `show` and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ended => "ended",
            Self::Broken => "broken",
            Self::Stopped => "stopped",
            Self::For(reason) => reason.name(),
        }
    }
}
