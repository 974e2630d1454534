//! Why a connection was closed.

use twinpath_inspect::Reason;

/// The reason that a service gets when its connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    /// The peer or the service ended it, and all requests were answered.
    Ended,
    /// The peer or the network broke it off.
    Broken,
    /// The instance is stopping.
    Stopped,
    /// We closed it, and counted it under this reason.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_close_for_a_reason_has_its_name() {
        let names = [Closed::Ended, Closed::Broken, Closed::Stopped].map(Closed::name);
        assert_eq!(names, ["ended", "broken", "stopped"]);
        assert_eq!(Closed::For(Reason::IdleTimeout).name(), "idle_timeout");
    }
}
