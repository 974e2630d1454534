//! The closed list of reasons for a loss or refusal that control, a library or the kernel counts. They are shown
//! together with the [`Reason`](crate::Reason)s that workers count.

/// The reason for a loss or refusal that is not counted by a worker's [`Drops`](crate::Drops).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ControlReason {
    /// The kernel had no room in a port's receive ring or socket for a frame.
    RingFull,
    /// A port's descriptor reported an error, such as an interface going down.
    DeviceErrors,
    /// A command of control had to wait, because the worker's mailbox was full.
    ControlMailboxFull,
    /// The kernel's socket sent a reply, because its peer had no room in the egress table.
    EgressTableFull,
    /// The kernel lost notifications for control, which read its tables again.
    NetlinkOverrun,
    /// A notification could not be decoded.
    NetlinkUndecoded,
    /// A neighbour was left out, because control's table of neighbours was full.
    NeighboursRefused,
    /// A peer is answered through the kernel, because the book of peers was full.
    PeersRefused,
    /// A capture did not get a frame, because its ring was full.
    CaptureMissed,
    /// An address was not learned by a switch, because its port had as many as it may.
    MacLimit,
    /// An address was not learned by a switch, because its table had no place for it.
    MacTableFull,
    /// A frame was not sent to OpenFlow controllers, because its port has sent as many as it may.
    PacketInBudget,
    /// A frame was not sent to an OpenFlow controller that does not read.
    PacketInUnread,
    /// Other news were not sent to an OpenFlow controller that does not read.
    NewsUnread,
    /// A connection of an OpenFlow controller was closed at once, or before it had greeted, because there were too many.
    ControllersRefused,
    /// A connection of an OpenFlow controller was closed: what came was no TLS, or from nobody who is believed.
    BrokenTls,
    /// A program was not served by the owner of an interface, because there were too many.
    ProgramsRefused,
    /// A socket of a program got no lease from the owner.
    LeasesRefused,
    /// A program was served no more by the owner: what it had sent was no message.
    ProgramFault,
    /// A datagram was in the ring of a program that has not read it, and its socket was closed.
    RingUnread,
    /// Another instance got our sockets and did not serve.
    TakeOverFailed,
    /// A scraper of metrics was refused, because there were too many.
    MetricsClients,
    /// A scraper of metrics was too slow.
    MetricsCutOff,
}

impl ControlReason {
    /// All of these reasons.
    pub const ALL: [Self; 23] = [
        Self::RingFull,
        Self::DeviceErrors,
        Self::ControlMailboxFull,
        Self::EgressTableFull,
        Self::NetlinkOverrun,
        Self::NetlinkUndecoded,
        Self::NeighboursRefused,
        Self::PeersRefused,
        Self::CaptureMissed,
        Self::MacLimit,
        Self::MacTableFull,
        Self::PacketInBudget,
        Self::PacketInUnread,
        Self::NewsUnread,
        Self::ControllersRefused,
        Self::BrokenTls,
        Self::ProgramsRefused,
        Self::LeasesRefused,
        Self::ProgramFault,
        Self::RingUnread,
        Self::TakeOverFailed,
        Self::MetricsClients,
        Self::MetricsCutOff,
    ];

    /// The stable name that `show` and the metrics use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::RingFull => "ring_full",
            Self::DeviceErrors => "device_errors",
            Self::ControlMailboxFull => "control_mailbox_full",
            Self::EgressTableFull => "egress_table_full",
            Self::NetlinkOverrun => "netlink_overrun",
            Self::NetlinkUndecoded => "netlink_undecoded",
            Self::NeighboursRefused => "neighbours_refused",
            Self::PeersRefused => "peers_refused",
            Self::CaptureMissed => "capture_missed",
            Self::MacLimit => "mac_limit",
            Self::MacTableFull => "mac_table_full",
            Self::PacketInBudget => "packet_in_budget",
            Self::PacketInUnread => "packet_in_unread",
            Self::NewsUnread => "controller_news_unread",
            Self::ControllersRefused => "controllers_refused",
            Self::BrokenTls => "broken_tls",
            Self::ProgramsRefused => "programs_refused",
            Self::LeasesRefused => "leases_refused",
            Self::ProgramFault => "program_fault",
            Self::RingUnread => "ring_unread",
            Self::TakeOverFailed => "take_over_failed",
            Self::MetricsClients => "metrics_clients",
            Self::MetricsCutOff => "metrics_cut_off",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::Reason;

    #[test]
    fn every_reason_has_a_name_that_no_other_has() {
        let names: Vec<_> = ControlReason::ALL
            .map(ControlReason::name)
            .into_iter()
            .chain(Reason::ALL.map(Reason::name))
            .collect();
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len());
    }
}
