//! The closed list of reasons for which a frame, datagram or connection is dropped or refused, each with a stable
//! name and a counter.

use crate::Counter;

/// Makes the enum, the list of all reasons, and their names from one list.
macro_rules! reasons {
    (
        $(#[$about_all:meta])*
        pub enum $Reason:ident;
        $($(#[$about:meta])* $reason:ident => $name:literal,)*
    ) => {
        $(#[$about_all])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(usize)]
        pub enum $Reason {
            $($(#[$about])* $reason,)*
        }

        impl $Reason {
            /// All reasons, in the order of their counters.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$reason),*];

            /// The stable name that `show` and the metrics use.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$reason => $name,)*
                }
            }
        }
    };
}

pub(crate) use reasons;

reasons! {
    /// The reason for which a frame, datagram or connection was dropped or refused.
    pub enum Reason;

    /// The frame is shorter than its headers say.
    Truncated => "truncated",
    /// The IP version, header length or total length contradicts itself or the frame.
    IpHeader => "ip_header",
    /// The IPv4 header checksum is wrong (RFC 791, 3.1).
    IpChecksum => "ip_checksum",
    /// The UDP length contradicts the IP length (RFC 768).
    UdpLength => "udp_length",
    /// The UDP checksum is wrong, or absent over IPv6 (RFC 8200, 8.1).
    UdpChecksum => "udp_checksum",
    /// The steering program in the kernel claimed the frame, but the worker's own check does not: the claim was just
    /// withdrawn, or one of them has a bug.
    NotClaimed => "not_claimed",
    /// No host can have the source address: it is unspecified, multicast, broadcast, loopback or our own (RFC 1812,
    /// 5.3.7).
    MartianSource => "martian_source",
    /// The source port belongs to a service that answers every datagram, so that a reply could loop for ever
    /// (`limits.any_source_port`); or it is 0, to which nothing can be sent.
    ServiceSourcePort => "service_source_port",
    /// The destination address of a datagram from a kernel socket is not one of this host's: a broadcast address, one of
    /// another VRF, or one that only a local route names.
    NotOwnAddress => "not_own_address",
    /// The sender is not on the service's list of sources, or no remote of a VXLAN port.
    SourceNotAllowed => "source_not_allowed",
    /// A reply was not sent: its source had reached the rate limit for replies that are as large as their requests.
    ReplyRate => "reply_rate",
    /// A reply was not sent: too many addresses of its peer's network do not resolve, as in a flood with forged sources,
    /// and this peer's is not known.
    UnresolvedPeers => "unresolved_peers",
    /// The service gave no reply.
    NoReply => "no_reply",
    /// The pool had no free frame.
    PoolEmpty => "pool_empty",
    /// The frame was larger than a slot or chunk.
    FrameTooLarge => "frame_too_large",
    /// The port could not take more frames now.
    PortFull => "port_full",
    /// Another worker has the port, and has not released enough of the frames that were handed over to it before.
    HandoffFull => "handoff_full",
    /// The worker does not keep up, and the port the frame came in by has its share of what may wait for it.
    PortShare => "port_share",
    /// The port refused the frame or is gone.
    PortDown => "port_down",
    /// The frame waited while the worker was stuck, or the reply is to such a frame. Its sender has sent again
    /// meanwhile and was answered through the kernel, so it is dropped when the worker moves on.
    WorkerStuck => "worker_stuck",
    /// The kernel handed back a descriptor that we had not given it.
    BadDescriptor => "bad_descriptor",
    /// The kernel socket could not take the reply now.
    KernelSocketFull => "kernel_socket_full",
    /// The kernel socket refused the reply (no route, unreachable, too large).
    KernelSocketRefused => "kernel_socket_refused",
    /// A connection was refused: the limit of connections is reached and none of them is idle.
    ConnectionLimit => "connection_limit",
    /// A connection was closed: it had been idle longest when the limit of connections was reached and a new one
    /// came.
    ConnectionDisplaced => "connection_displaced",
    /// A connection was refused: its source has reached the limit of connections per source.
    SourceLimit => "source_limit",
    /// A mailbox between control and a worker was full.
    MailboxFull => "mailbox_full",
    /// The process at the other end of a shared-memory ring broke the ring's rules.
    PeerFault => "peer_fault",
    /// Segmentation or a checksum was left to the device, in a form that the port or the kernel does not support.
    OffloadRefused => "offload_refused",
    /// A connection was closed: nothing came on it within the idle time-out.
    IdleTimeout => "idle_timeout",
    /// A connection was closed: a request was not complete within the request time-out.
    RequestTimeout => "request_timeout",
    /// A connection was closed: its peer did not read its replies within the send time-out.
    PeerNotReading => "peer_not_reading",
    /// A connection was closed: a request is larger than the buffer of a connection.
    RequestTooLarge => "request_too_large",
    /// A connection was closed or a datagram dropped: the bytes violate the protocol served.
    ProtocolError => "protocol_error",
    /// A connection was refused by the service.
    ServiceRefused => "service_refused",
    /// A connection was closed: the service had reached its limit of queued bytes, over all its connections.
    ServiceBytes => "service_bytes",
    /// A reply was discarded: its connection or session was closed before it came, or its local address was gone.
    LateReply => "late_reply",
    /// A datagram was refused: its peer has no session, and the limit of sessions is reached.
    SessionLimit => "session_limit",
    /// A connection was closed or a datagram not answered: the service's code panicked while it handled the request.
    HandlerFailed => "handler_failed",
    /// A datagram was dropped: the queue of the handler threads is full.
    HandlersBusy => "handlers_busy",
    /// Bytes that a service sent on a connection outside of a reply were dropped: the connection held as many as it may.
    OutboxFull => "outbox_full",
    /// A message of another thread to a worker was refused: as many waited for the worker as may.
    SendQueueFull => "send_queue_full",
    /// A reply was dropped: it is longer than a datagram may be.
    ReplyTooLarge => "reply_too_large",
    /// A connection was closed or a datagram not answered: it was not done within the time limit of a drain.
    DrainTimeout => "drain_timeout",
    /// A connection was closed: an RPC record is larger than the limit.
    RecordTooLarge => "record_too_large",
    /// A connection was closed: an RPC record has more fragments than the limit.
    TooManyFragments => "too_many_fragments",
    /// The bytes are no RPC call, or end within its header: a datagram was dropped, or a connection closed.
    RpcHeader => "rpc_header",
    /// A call was answered with RPC_MISMATCH: it has another RPC version (RFC 5531, 9).
    RpcVersion => "rpc_version",
    /// A call was answered with AUTH_ERROR: its credential or verifier is bad, or of a flavour not served.
    RpcAuth => "rpc_auth",
    /// A call was answered with PROG_UNAVAIL: the program is not served.
    RpcProgram => "rpc_program",
    /// A call was answered with PROG_MISMATCH: the program is served in other versions.
    RpcProgramVersion => "rpc_program_version",
    /// A call was answered with PROC_UNAVAIL: the program has no such procedure.
    RpcProcedure => "rpc_procedure",
    /// A call was answered with GARBAGE_ARGS: its arguments could not be decoded.
    RpcArguments => "rpc_arguments",
    /// A call was answered with SYSTEM_ERR: the program failed.
    RpcFailed => "rpc_failed",
    /// A controller has fragments of IP packets dropped (OpenFlow 1.3.5, 7.3.2: OFPC_FRAG_DROP).
    Fragment => "fragment",
    /// A switch's access port received a frame with a VLAN tag, or a port one with a VLAN tag behind a priority tag.
    VlanTag => "vlan_tag",
    /// The frame's VLAN is not one of the port's, or the frame has no tag and the port no VLAN for such frames.
    VlanNotMember => "vlan_not_member",
    /// The destination is an address that no bridge forwards: 01-80-C2-00-00-00 to -0F (IEEE 802.1Q, table 8-1).
    ReservedAddress => "reserved_address",
    /// The destination is on the port that the frame came in by.
    SamePort => "same_port",
    /// The VLAN has no other port that the frame could be flooded to.
    NoOutputPort => "no_output_port",
    /// The port has reached its limit of broadcast, multicast, or unknown unicast packets per second.
    StormLimit => "storm_limit",
    /// The frame would be flooded from a port that the loop guard blocks.
    Looped => "looped",
    /// A VXLAN header without a network identifier (RFC 7348 section 5).
    VxlanFlags => "vxlan_flags",
    /// A VXLAN header with another network identifier than the port's.
    VxlanNetwork => "vxlan_network",
    /// No flow of a table matched the frame, and the table has no entry for that (OpenFlow 1.3.5, 5.4).
    TableMiss => "table_miss",
    /// The flows that the frame matched send it nowhere.
    FlowDrop => "flow_drop",
    /// The frame exceeded the rate of a meter.
    MeterDrop => "meter_drop",
    /// A flow takes one off the frame's TTL, which has run out.
    InvalidTtl => "invalid_ttl",
    /// The frame was for a group that is gone, or has no live bucket for it; or groups led to groups too often.
    NoBucket => "no_bucket",
    /// A frame was not sent to the controllers: the port that it came in by has sent them as many as it may.
    PacketInRate => "packet_in_rate",
    /// A frame was not sent to the controllers: those before it wait to be read, in all the memory that there is for them.
    PacketInFull => "packet_in_full",
    /// The TCP header is longer than the segment, or shorter than a header may be (RFC 9293 section 3.1).
    TcpHeader => "tcp_header",
    /// The TCP checksum is wrong.
    TcpChecksum => "tcp_checksum",
    /// A claimed TCP segment belongs to no connection of the worker: the connection has just ended.
    NoConnection => "no_connection",
    /// A TCP segment was not sent: the next hop of its peer is not known at present. It is sent again later.
    NoNextHop => "no_next_hop",
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
