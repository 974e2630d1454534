//! The closed list of reasons for a loss or refusal that control, a library or the kernel counts. They are shown
//! together with the [`Reason`](crate::Reason)s that workers count.

use crate::reason::reasons;

reasons! {
    /// The reason for a loss or refusal that is not counted by a worker's [`Drops`](crate::Drops).
    pub enum ControlReason;

    /// The kernel had no room in a port's receive ring or socket for a frame.
    RingFull => "ring_full",
    /// A port's descriptor reported an error, such as an interface going down.
    DeviceErrors => "device_errors",
    /// A command of control had to wait, because the worker's mailbox was full.
    ControlMailboxFull => "control_mailbox_full",
    /// The kernel's socket sent a reply, because its peer had no room in the egress table.
    EgressTableFull => "egress_table_full",
    /// The kernel lost notifications for control, which read its tables again.
    NetlinkOverrun => "netlink_overrun",
    /// A notification could not be decoded.
    NetlinkUndecoded => "netlink_undecoded",
    /// A router's message that a packet was too long has a wrong checksum: TCP on the fast path does not believe it.
    PathMessageDamaged => "path_message_damaged",
    /// A neighbour was left out, because control's table of neighbours was full.
    NeighboursRefused => "neighbours_refused",
    /// A peer is answered through the kernel, because the book of peers was full.
    PeersRefused => "peers_refused",
    /// A capture did not get a frame, because its ring was full.
    CaptureMissed => "capture_missed",
    /// An address was not learned by a switch, because its port had as many as it may.
    MacLimit => "mac_limit",
    /// An address was not learned by a switch, because its table had no place for it.
    MacTableFull => "mac_table_full",
    /// A frame was not sent to OpenFlow controllers, because its port has sent as many as it may.
    PacketInBudget => "packet_in_budget",
    /// A frame was not sent to an OpenFlow controller that does not read.
    PacketInUnread => "packet_in_unread",
    /// Other news were not sent to an OpenFlow controller that does not read.
    NewsUnread => "controller_news_unread",
    /// A connection of an OpenFlow controller was closed at once, or before it had greeted, because there were too many.
    ControllersRefused => "controllers_refused",
    /// A connection of an OpenFlow controller was closed: what came was no TLS, or from nobody who is believed.
    BrokenTls => "broken_tls",
    /// A program was not served by the owner of an interface, because there were too many.
    ProgramsRefused => "programs_refused",
    /// A socket of a program got no lease from the owner.
    LeasesRefused => "leases_refused",
    /// A program was served no more by the owner: what it had sent was no message.
    ProgramFault => "program_fault",
    /// A datagram was in the ring of a program that has not read it, and its socket was closed.
    RingUnread => "ring_unread",
    /// Another instance got our sockets and did not serve.
    TakeOverFailed => "take_over_failed",
    /// A scraper of metrics was refused, because there were too many.
    MetricsClients => "metrics_clients",
    /// A scraper of metrics was too slow.
    MetricsCutOff => "metrics_cut_off",
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
