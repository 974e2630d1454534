//! How the workers serve the kernel's TCP sockets: through the epoll that each has anyway, or through a ring of its own.

use twinpath_serve::Uring;
use twinpath_uring::{RingError, probe};

use super::workers::StartError;
use crate::config::Sockets;

/// What `auto` takes (docs/decisions/0006).
const BETTER: Sockets = Sockets::Epoll;

/// The way taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SocketsWay {
    /// Not `Auto`.
    pub(super) way: Sockets,
    /// Why that one: one sentence.
    pub(super) why: String,
}

impl SocketsWay {
    /// Settles it. What is asked for by name works, or is refused.
    pub(super) fn settle(asked: Sockets) -> Result<Self, StartError> {
        Self::judge(asked, BETTER, probe).map_err(StartError::Sockets)
    }

    fn judge(
        asked: Sockets,
        better: Sockets,
        probe: impl FnOnce() -> Result<(), RingError>,
    ) -> Result<Self, RingError> {
        match (asked, better) {
            (Sockets::Epoll, _) => Ok(Self { way: Sockets::Epoll, why: "it was asked for".to_owned() }),
            (Sockets::IoUring, _) => {
                probe().map(|()| Self { way: Sockets::IoUring, why: "it was asked for".to_owned() })
            }
            (Sockets::Auto, Sockets::IoUring) => Ok(match probe() {
                Ok(()) => Self { way: Sockets::IoUring, why: "the better one as measured".to_owned() },
                Err(error) => Self { way: Sockets::Epoll, why: error.to_string() },
            }),
            (Sockets::Auto, _) => {
                Ok(Self { way: Sockets::Epoll, why: "the better one as measured".to_owned() })
            }
        }
    }

    /// A ring for a worker, if it is to have one.
    pub(super) fn ring(&self) -> Result<Option<Uring>, StartError> {
        (self.way == Sockets::IoUring).then(Uring::new).transpose().map_err(StartError::Sockets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_works_or_is_refused_and_auto_says_why_not() {
        let refused = || Err(RingError::NoReceiveLimit);
        let judged = |asked, better, probe: fn() -> Result<(), RingError>| {
            SocketsWay::judge(asked, better, probe).map(|judged| judged.way)
        };
        for better in [Sockets::Epoll, Sockets::IoUring] {
            assert_eq!(judged(Sockets::Epoll, better, refused), Ok(Sockets::Epoll));
            assert_eq!(judged(Sockets::IoUring, better, || Ok(())), Ok(Sockets::IoUring));
            assert_eq!(judged(Sockets::IoUring, better, refused), Err(RingError::NoReceiveLimit));
            assert_eq!(judged(Sockets::Auto, better, || Ok(())), Ok(better));
            assert_eq!(judged(Sockets::Auto, better, refused), Ok(Sockets::Epoll));
        }
        let degraded = SocketsWay::judge(Sockets::Auto, Sockets::IoUring, refused).unwrap();
        assert_eq!(degraded.why, RingError::NoReceiveLimit.to_string());
    }
}
