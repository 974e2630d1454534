//! NewReno (RFC 5681, RFC 6582): one segment more per round trip, half of the window at a loss.

use twinpath_time::{Duration, Instant};

use super::{Acked, Control, Window};

/// The state of NewReno, which has almost none.
#[derive(Clone, Debug, Default)]
pub struct NewReno {
    /// The window before the last reduction.
    prior_cwnd: u32,
}

impl NewReno {
    /// The state of a new connection.
    #[must_use]
    pub const fn new() -> Self {
        Self { prior_cwnd: 0 }
    }
}

impl Control for NewReno {
    fn name(&self) -> &'static str {
        "reno"
    }

    /// RFC 5681 section 3.1, counting what was acknowledged and not the ACKs (RFC 3465). As in Linux there is no bound
    /// L on what one ACK may add, because a peer whose receive path merges segments sends few ACKs.
    fn on_ack(&mut self, window: &mut Window, acked: &Acked) {
        if !acked.is_limited {
            return;
        }
        let mut segments = acked.segments;
        if window.is_slow_start() {
            segments = window.slow_start(segments);
        }
        if segments > 0 {
            window.grow(window.cwnd, segments);
        }
    }

    /// RFC 5681 section 3.1, equation 4, of the window instead of the flight, as in Linux: the engine does not let the
    /// window grow beyond what the application uses.
    fn ssthresh(&mut self, window: &Window, _now: Instant) -> u32 {
        self.prior_cwnd = window.cwnd;
        (window.cwnd / 2).max(2)
    }

    fn on_timeout(&mut self) {}

    fn undo(&mut self, window: &Window) -> u32 {
        window.cwnd.max(self.prior_cwnd)
    }

    fn on_idle_end(&mut self, _now: Instant, _idle: Duration) {}
}
