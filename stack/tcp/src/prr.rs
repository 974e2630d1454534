//! Proportional Rate Reduction (RFC 9937): how the window falls to the threshold during one round trip.
//!
//! Counts are in segments, as in Linux, whose decisions these are. The engine enters on loss and on a mark (ECN), asks
//! [`Prr::allowed`] at each acknowledgement, reports what it sends, and sets the window to the threshold at the end.

/// A reduction that is going on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Prr {
    /// The window on entry. It stands for RecoverFS: the flight of a sender that the window limits.
    prior_cwnd: u32,
    ssthresh: u32,
    /// Segments delivered since entry.
    delivered: u32,
    /// Segments sent since entry, retransmissions and new data.
    sent: u32,
}

impl Prr {
    /// Recovery or a reduction by ECN begins with a window of `cwnd`; `ssthresh` is the new threshold.
    #[must_use]
    pub(crate) const fn enter(cwnd: u32, ssthresh: u32) -> Self {
        Self { prior_cwnd: if cwnd > 0 { cwnd } else { 1 }, ssthresh, delivered: 0, sent: 0 }
    }

    /// `segments` were sent, retransmissions or new data.
    pub(crate) fn sent(&mut self, segments: u32) {
        self.sent = self.sent.saturating_add(segments);
    }

    /// The window after an acknowledgement that delivered `delivered` segments, cumulatively or selectively, and left
    /// `in_flight`. `None`: it delivered nothing, and the window stays.
    ///
    /// `safe_ack`: it advanced SND.UNA and told of no further loss. An ACK with ECE is not safe: it tells of further
    /// congestion. A timer that detects loss (RACK) counts as an acknowledgement of one segment that is not safe.
    pub(crate) fn allowed(&mut self, delivered: u32, in_flight: u32, safe_ack: bool) -> Option<u32> {
        if delivered == 0 {
            return None;
        }
        self.delivered = self.delivered.saturating_add(delivered);
        let mut send = if in_flight > self.ssthresh {
            let share =
                (u64::from(self.ssthresh) * u64::from(self.delivered)).div_ceil(self.prior_cwnd.into());
            u32::try_from(share).unwrap_or(u32::MAX).saturating_sub(self.sent)
        } else {
            // Conservative Reduction Bound, and Slow Start Reduction Bound while all goes well.
            let bound = self.delivered.saturating_sub(self.sent).max(delivered);
            bound.saturating_add(safe_ack.into()).min(self.ssthresh - in_flight)
        };
        if self.sent == 0 {
            // The first segment that is lost is sent again at once, whatever is in flight.
            send = send.max(1);
        }
        Some(in_flight.saturating_add(send))
    }
}

#[cfg(test)]
mod tests;
