//! Why programs leave a request to a worker. The list is closed; names are stable, for `show` and metrics.

use crate::why_not::WhyNot;

/// Why a program does not reply to a request of a service with reflexes: a worker gets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum NotReplied {
    /// Control wants workers to see all frames, as a capture runs.
    Suspended = 1,
    /// Lengths that contradict each other, a wrong checksum of the IPv4 header, or a sender that cannot be answered.
    Header = 2,
    /// The datagram has no checksum, and its reply gets one.
    NoChecksum = 3,
    /// From the sender's port no request is served.
    Port = 4,
    /// The way to the peer is not known, or is not the one that the frame came by.
    Peer = 5,
    /// The reply is too long for the path.
    Mtu = 6,
    /// A frame has been waiting for the worker for too long.
    WorkerStuck = 7,
    /// Some go to the worker, so that one that hangs is noticed.
    Canary = 8,
    /// More replies than all sources together may have.
    Rate = 9,
    /// The datagram's checksum is wrong.
    Checksum = 10,
    /// The kernel could not change the frame.
    Failed = 11,
    /// More replies than the source may have. The worker has a limit of its own, by which it drops them.
    SourceRate = 12,
    /// Of a service that keeps replies: the request is longer than any that has one.
    TooLong = 13,
    /// There is no kept reply.
    NotKept = 14,
    /// It has been kept for as long as it may be.
    Expired = 15,
    /// What it was made from has changed.
    Withdrawn = 16,
    /// Many wait at a time: the worker is awake, and answers more of them than the programs would. Or it is being tried.
    Load = 17,
}

impl NotReplied {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 17] = [
        Self::Suspended,
        Self::Header,
        Self::NoChecksum,
        Self::Port,
        Self::Peer,
        Self::Mtu,
        Self::WorkerStuck,
        Self::Canary,
        Self::Rate,
        Self::Checksum,
        Self::Failed,
        Self::SourceRate,
        Self::TooLong,
        Self::NotKept,
        Self::Expired,
        Self::Withdrawn,
        Self::Load,
    ];

    /// The number of its counter.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The stable name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Suspended => "suspended",
            Self::Header => "header",
            Self::NoChecksum => "no_checksum",
            Self::Port => "source_port",
            Self::Peer => "peer_unknown",
            Self::Mtu => "mtu",
            Self::WorkerStuck => "worker_stuck",
            Self::Canary => "canary",
            Self::Rate => "rate",
            Self::Checksum => "checksum",
            Self::Failed => "failed",
            Self::SourceRate => "source_rate",
            Self::TooLong => "request_too_long",
            Self::NotKept => "not_kept",
            Self::Expired => "expired",
            Self::Withdrawn => "withdrawn",
            Self::Load => "load",
        }
    }
}

impl From<WhyNot> for NotReplied {
    fn from(why: WhyNot) -> Self {
        match why {
            WhyNot::RequestTooLong => Self::TooLong,
            WhyNot::Unknown => Self::NotKept,
            WhyNot::Expired => Self::Expired,
            WhyNot::Withdrawn => Self::Withdrawn,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_each_other_and_names_differ() {
        assert!(NotReplied::ALL.iter().zip(1..).all(|(why, number)| why.number() == number));
        let names: std::collections::BTreeSet<_> = NotReplied::ALL.iter().map(|why| why.name()).collect();
        assert_eq!(names.len(), NotReplied::ALL.len());
    }
}
