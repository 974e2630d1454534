//! What sockets count.

use crate::WhyKernel;

/// What a socket has received, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketCounts {
    /// Datagrams that came by the ring.
    pub by_ring: u64,
    /// Datagrams that came by the kernel's socket.
    pub by_kernel: u64,
    /// Frames in the ring that the kernel would have dropped: wrong checksums, impossible senders.
    pub refused: u64,
    /// Leases taken.
    pub leases: u64,
    /// Leases that the program in the kernel ended, for any reason: the two that follow, or a frame that had to go by the kernel.
    pub ended: u32,
    /// Of these, because the ring was full.
    pub full: u32,
    /// Of these, because no call looked for too long.
    pub lapsed: u32,
    /// Datagrams that were sent as frames.
    pub sent_by_frame: u64,
    /// Datagrams that the kernel has sent although frames were asked for, as it had not sent to the peer just before.
    pub sent_by_kernel: u64,
}

impl SocketCounts {
    /// Why no datagram came by the ring of a socket that has had one; `None` if some did.
    #[must_use]
    pub fn why_none_by_ring(&self) -> Option<WhyKernel> {
        if self.by_ring > 0 {
            return None;
        }
        Some(if self.by_kernel == 0 && self.refused == 0 {
            WhyKernel::NothingCame
        } else if self.leases == 0 {
            WhyKernel::NoCallWaited
        } else if self.refused > 0 {
            WhyKernel::AllRefused
        } else if u64::from(self.ended) > u64::from(self.full) + u64::from(self.lapsed) {
            WhyKernel::ForKernel
        } else if self.full > 0 {
            WhyKernel::RingFull
        } else {
            WhyKernel::CameBetween
        })
    }
}

#[cfg(test)]
mod tests {
    use super::SocketCounts;

    #[test]
    fn each_reason_for_an_empty_ring_has_its_words() {
        let why = |counts: SocketCounts| counts.why_none_by_ring().expect("a reason").to_string();
        let some = SocketCounts { by_kernel: 7, ..SocketCounts::default() };
        assert_eq!(SocketCounts { by_ring: 1, ..some }.why_none_by_ring(), None);
        assert!(why(SocketCounts::default()).contains("receives by other means"));
        assert!(why(some).starts_with("no call waited"));
        let leased = SocketCounts { leases: 5, ..some };
        assert!(why(leased).starts_with("what came did so while"));
        assert!(why(SocketCounts { ended: 2, lapsed: 2, ..leased }).starts_with("what came did so while"));
        assert!(why(SocketCounts { ended: 2, full: 2, ..leased }).contains("full"));
        assert!(why(SocketCounts { ended: 2, full: 1, ..leased }).contains("fragments"));
        assert!(why(SocketCounts { refused: 1, by_kernel: 0, ..leased }).contains("checksums"));
    }
}
