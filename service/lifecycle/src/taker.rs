//! A new instance, as the former one sees it.

use twinpath_time::Instant;

use crate::event::TakerId;

/// A new instance that has the sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taker {
    pub(crate) id: TakerId,
    pub(crate) stage: Stage,
}

/// How far a new instance has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It has the sockets, and has changed nothing yet.
    HasSockets {
        /// When it has been silent for too long: standbys do not serve while it may.
        until: Instant,
    },
    /// It waits until the programs are detached and the queues are closed.
    Waits {
        /// When it has been silent for too long.
        until: Instant,
    },
    /// It may attach its programs.
    MayAttach {
        /// When it has been silent for too long.
        until: Instant,
    },
}

impl Taker {
    /// Its number.
    #[must_use]
    pub const fn id(&self) -> TakerId {
        self.id
    }

    /// Whether this instance's programs must stay detached for it.
    #[must_use]
    pub const fn is_aside(&self) -> bool {
        !matches!(self.stage, Stage::HasSockets { .. })
    }

    pub(crate) const fn silent_at(&self) -> Instant {
        match self.stage {
            Stage::HasSockets { until } | Stage::Waits { until } | Stage::MayAttach { until } => until,
        }
    }
}
