//! The closed list of reasons for which a frame, datagram or connection is dropped or refused, each with a stable
//! name and a counter.

use crate::Counter;

/// The reason for which a frame, datagram or connection was dropped or refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum Reason {
    /// The frame is shorter than its headers say.
    Truncated,
    /// The IP version, header length or total length contradicts itself or the frame.
    IpHeader,
    /// The IPv4 header checksum is wrong (RFC 791, 3.1).
    IpChecksum,
    /// The UDP length contradicts the IP length (RFC 768).
    UdpLength,
    /// The UDP checksum is wrong, or absent over IPv6 (RFC 8200, 8.1).
    UdpChecksum,
    /// The steering program in the kernel claimed the frame, but the worker's own check does not: the claim was just
    /// withdrawn, or one of them has a bug.
    NotClaimed,
    /// No host can have the source address: it is unspecified, multicast, broadcast, loopback or our own (RFC 1812,
    /// 5.3.7).
    MartianSource,
    /// The source port belongs to a service that answers every datagram, so that a reply could loop for ever.
    ServiceSourcePort,
    /// The destination address of a datagram from a kernel socket is not one of the interface's.
    NotOwnAddress,
    /// The sender is not on the service's list of sources, or no remote of a VXLAN port.
    SourceNotAllowed,
    /// A reply was not sent: its source had reached the rate limit for replies that are as large as their requests.
    ReplyRate,
    /// The service gave no reply.
    NoReply,
    /// The pool had no free frame.
    PoolEmpty,
    /// The frame was larger than a slot or chunk.
    FrameTooLarge,
    /// The port could not take more frames now.
    PortFull,
    /// Another worker has the port, and has not released enough of the frames that were handed over to it before.
    HandoffFull,
    /// The worker does not keep up, and the port the frame came in by has its share of what may wait for it.
    PortShare,
    /// The port refused the frame or is gone.
    PortDown,
    /// The frame waited while the worker was stuck, or the reply is to such a frame. Its sender has sent again
    /// meanwhile and was answered through the kernel, so it is dropped when the worker moves on.
    WorkerStuck,
    /// The kernel handed back a descriptor that we had not given it.
    BadDescriptor,
    /// The kernel socket could not take the reply now.
    KernelSocketFull,
    /// The kernel socket refused the reply (no route, unreachable, too large).
    KernelSocketRefused,
    /// A connection was refused: the limit of connections is reached and none of them is idle.
    ConnectionLimit,
    /// A connection was closed: it had been idle longest when the limit of connections was reached and a new one
    /// came.
    ConnectionDisplaced,
    /// A connection was refused: its source has reached the limit of connections per source.
    SourceLimit,
    /// A mailbox between control and a worker was full.
    MailboxFull,
    /// The process at the other end of a shared-memory ring broke the ring's rules.
    PeerFault,
    /// Segmentation or a checksum was left to the device, in a form that the port or the kernel does not support.
    OffloadRefused,
    /// A connection was closed: nothing came on it within the idle time-out.
    IdleTimeout,
    /// A connection was closed: a request was not complete within the request time-out.
    RequestTimeout,
    /// A connection was closed: its peer did not read its replies within the send time-out.
    PeerNotReading,
    /// A connection was closed: a request is larger than the buffer of a connection.
    RequestTooLarge,
    /// A connection was closed or a datagram dropped: the bytes violate the protocol served.
    ProtocolError,
    /// A connection was refused by the service.
    ServiceRefused,
    /// A connection was closed: the service had reached its limit of queued bytes, over all its connections.
    ServiceBytes,
    /// A reply was discarded: its connection or session was closed before it came, or its local address was gone.
    LateReply,
    /// A datagram was refused: its peer has no session, and the limit of sessions is reached.
    SessionLimit,
    /// A connection was closed or a datagram not answered: the service's code panicked while it handled the request.
    HandlerFailed,
    /// A datagram was dropped: the queue of the handler threads is full.
    HandlersBusy,
    /// A reply was dropped: it is longer than a datagram may be.
    ReplyTooLarge,
    /// A connection was closed or a datagram not answered: it was not done within the time limit of a drain.
    DrainTimeout,
    /// A connection was closed: an RPC record is larger than the limit.
    RecordTooLarge,
    /// A connection was closed: an RPC record has more fragments than the limit.
    TooManyFragments,
    /// The bytes are no RPC call, or end within its header: a datagram was dropped, or a connection closed.
    RpcHeader,
    /// A call was answered with RPC_MISMATCH: it has another RPC version (RFC 5531, 9).
    RpcVersion,
    /// A call was answered with AUTH_ERROR: its credential or verifier is bad, or of a flavour not served.
    RpcAuth,
    /// A call was answered with PROG_UNAVAIL: the program is not served.
    RpcProgram,
    /// A call was answered with PROG_MISMATCH: the program is served in other versions.
    RpcProgramVersion,
    /// A call was answered with PROC_UNAVAIL: the program has no such procedure.
    RpcProcedure,
    /// A call was answered with GARBAGE_ARGS: its arguments could not be decoded.
    RpcArguments,
    /// A call was answered with SYSTEM_ERR: the program failed.
    RpcFailed,
    /// A switch's access port received a frame with a VLAN tag.
    VlanTag,
    /// The frame's VLAN is not one of the port's, or the frame has no tag and the port no VLAN for such frames.
    VlanNotMember,
    /// The destination is an address that no bridge forwards: 01-80-C2-00-00-00 to -0F (IEEE 802.1Q, table 8-1).
    ReservedAddress,
    /// The destination is on the port that the frame came in by.
    SamePort,
    /// The VLAN has no other port that the frame could be flooded to.
    NoOutputPort,
    /// The port has reached its limit of broadcast, multicast, or unknown unicast packets per second.
    StormLimit,
    /// The frame would be flooded from a port that the loop guard blocks.
    Looped,
    /// A VXLAN header without a network identifier (RFC 7348 section 5).
    VxlanFlags,
    /// A VXLAN header with another network identifier than the port's.
    VxlanNetwork,
    /// No flow of a table matched the frame, and the table has no entry for that (OpenFlow 1.3.5, 5.4).
    TableMiss,
    /// The flows that the frame matched send it nowhere.
    FlowDrop,
    /// The frame exceeded the rate of a meter.
    MeterDrop,
    /// A flow takes one off the frame's TTL, which has run out.
    InvalidTtl,
    /// The frame was for a group that is gone, or has no live bucket for it; or groups led to groups too often.
    NoBucket,
}

impl Reason {
    /// All reasons, in the order of their counters.
    pub const ALL: [Self; 65] = [
        Self::Truncated,
        Self::IpHeader,
        Self::IpChecksum,
        Self::UdpLength,
        Self::UdpChecksum,
        Self::NotClaimed,
        Self::MartianSource,
        Self::ServiceSourcePort,
        Self::NotOwnAddress,
        Self::SourceNotAllowed,
        Self::ReplyRate,
        Self::NoReply,
        Self::PoolEmpty,
        Self::FrameTooLarge,
        Self::PortFull,
        Self::HandoffFull,
        Self::PortShare,
        Self::PortDown,
        Self::WorkerStuck,
        Self::BadDescriptor,
        Self::KernelSocketFull,
        Self::KernelSocketRefused,
        Self::ConnectionLimit,
        Self::ConnectionDisplaced,
        Self::SourceLimit,
        Self::MailboxFull,
        Self::PeerFault,
        Self::OffloadRefused,
        Self::IdleTimeout,
        Self::RequestTimeout,
        Self::PeerNotReading,
        Self::RequestTooLarge,
        Self::ProtocolError,
        Self::ServiceRefused,
        Self::ServiceBytes,
        Self::LateReply,
        Self::SessionLimit,
        Self::HandlerFailed,
        Self::HandlersBusy,
        Self::ReplyTooLarge,
        Self::DrainTimeout,
        Self::RecordTooLarge,
        Self::TooManyFragments,
        Self::RpcHeader,
        Self::RpcVersion,
        Self::RpcAuth,
        Self::RpcProgram,
        Self::RpcProgramVersion,
        Self::RpcProcedure,
        Self::RpcArguments,
        Self::RpcFailed,
        Self::VlanTag,
        Self::VlanNotMember,
        Self::ReservedAddress,
        Self::SamePort,
        Self::NoOutputPort,
        Self::StormLimit,
        Self::Looped,
        Self::VxlanFlags,
        Self::VxlanNetwork,
        Self::TableMiss,
        Self::FlowDrop,
        Self::MeterDrop,
        Self::InvalidTtl,
        Self::NoBucket,
    ];

    /// The stable name that `show` and the metrics use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Truncated => "truncated",
            Self::IpHeader => "ip_header",
            Self::IpChecksum => "ip_checksum",
            Self::UdpLength => "udp_length",
            Self::UdpChecksum => "udp_checksum",
            Self::NotClaimed => "not_claimed",
            Self::MartianSource => "martian_source",
            Self::ServiceSourcePort => "service_source_port",
            Self::NotOwnAddress => "not_own_address",
            Self::SourceNotAllowed => "source_not_allowed",
            Self::ReplyRate => "reply_rate",
            Self::NoReply => "no_reply",
            Self::PoolEmpty => "pool_empty",
            Self::FrameTooLarge => "frame_too_large",
            Self::PortFull => "port_full",
            Self::HandoffFull => "handoff_full",
            Self::PortShare => "port_share",
            Self::PortDown => "port_down",
            Self::WorkerStuck => "worker_stuck",
            Self::BadDescriptor => "bad_descriptor",
            Self::KernelSocketFull => "kernel_socket_full",
            Self::KernelSocketRefused => "kernel_socket_refused",
            Self::ConnectionLimit => "connection_limit",
            Self::ConnectionDisplaced => "connection_displaced",
            Self::SourceLimit => "source_limit",
            Self::MailboxFull => "mailbox_full",
            Self::PeerFault => "peer_fault",
            Self::OffloadRefused => "offload_refused",
            Self::IdleTimeout => "idle_timeout",
            Self::RequestTimeout => "request_timeout",
            Self::PeerNotReading => "peer_not_reading",
            Self::RequestTooLarge => "request_too_large",
            Self::ProtocolError => "protocol_error",
            Self::ServiceRefused => "service_refused",
            Self::ServiceBytes => "service_bytes",
            Self::LateReply => "late_reply",
            Self::HandlerFailed => "handler_failed",
            Self::SessionLimit => "session_limit",
            Self::HandlersBusy => "handlers_busy",
            Self::ReplyTooLarge => "reply_too_large",
            Self::DrainTimeout => "drain_timeout",
            Self::RecordTooLarge => "record_too_large",
            Self::TooManyFragments => "too_many_fragments",
            Self::RpcHeader => "rpc_header",
            Self::RpcVersion => "rpc_version",
            Self::RpcAuth => "rpc_auth",
            Self::RpcProgram => "rpc_program",
            Self::RpcProgramVersion => "rpc_program_version",
            Self::RpcProcedure => "rpc_procedure",
            Self::RpcArguments => "rpc_arguments",
            Self::RpcFailed => "rpc_failed",
            Self::VlanTag => "vlan_tag",
            Self::VlanNotMember => "vlan_not_member",
            Self::ReservedAddress => "reserved_address",
            Self::SamePort => "same_port",
            Self::NoOutputPort => "no_output_port",
            Self::StormLimit => "storm_limit",
            Self::Looped => "looped",
            Self::VxlanFlags => "vxlan_flags",
            Self::VxlanNetwork => "vxlan_network",
            Self::TableMiss => "table_miss",
            Self::FlowDrop => "flow_drop",
            Self::MeterDrop => "meter_drop",
            Self::InvalidTtl => "invalid_ttl",
            Self::NoBucket => "no_bucket",
        }
    }
}

/// One counter per [`Reason`].
#[derive(Debug)]
pub struct Drops([Counter; Reason::ALL.len()]);

impl Default for Drops {
    fn default() -> Self {
        Self([const { Counter::new() }; Reason::ALL.len()])
    }
}

impl Drops {
    /// Counts `count` drops for `reason`.
    #[inline]
    pub fn add(&self, reason: Reason, count: u64) {
        self.0[reason as usize].add(count);
    }

    /// Drops for `reason` so far.
    #[must_use]
    pub fn get(&self, reason: Reason) -> u64 {
        self.0[reason as usize].get()
    }

    /// The reasons with a count above zero.
    pub fn happened(&self) -> impl Iterator<Item = (Reason, u64)> + '_ {
        Reason::ALL.into_iter().map(|reason| (reason, self.get(reason))).filter(|(_, count)| *count > 0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_reason_has_its_own_counter_and_name() {
        let drops = Drops::default();
        for (at, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, at, "ALL is in declaration order");
            drops.add(reason, at as u64 + 1);
        }
        let happened: Vec<_> = drops.happened().map(|(_, count)| count).collect();
        assert_eq!(happened, (1..=Reason::ALL.len() as u64).collect::<Vec<_>>());
        let names: HashSet<_> = Reason::ALL.map(Reason::name).into_iter().collect();
        assert_eq!(names.len(), Reason::ALL.len());
    }
}
