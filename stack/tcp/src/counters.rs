//! What an engine counts, with the names of Linux's counters where there is one (net/ipv4/proc.c).

/// Counts since the engine was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Segments taken, and given.
    pub segments_in: u64,
    /// See above.
    pub segments_out: u64,
    /// Segments retransmitted.
    pub retransmitted: u64,
    /// Connections opened by this host, and by peers.
    pub active_opens: u64,
    /// See above.
    pub passive_opens: u64,
    /// Connections that ended before they were established.
    pub failed_opens: u64,
    /// Established connections that were reset.
    pub resets: u64,
    /// Resets sent.
    pub resets_out: u64,
    /// SYNs left to the kernel: the listener's backlog, or a table, was full.
    pub overflows: u64,
    /// Segments refused: an old timestamp (RFC 7323 section 5).
    pub paws_rejected: u64,
    /// Segments refused: outside of the window.
    pub out_of_window: u64,
    /// Segments refused: an acknowledgement of what was never sent, or long ago.
    pub ack_out_of_range: u64,
    /// Segments refused: without ACK, or with flags that do not fit the state.
    pub bad_flags: u64,
    /// Segments refused: no memory, or too many gaps.
    pub no_memory: u64,
    /// Data that was there already.
    pub duplicates_in: u64,
    /// Data that came out of order.
    pub out_of_order: u64,
    /// Challenge acknowledgements sent, and not sent as there were too many (RFC 5961).
    pub challenges: u64,
    /// See above.
    pub challenges_suppressed: u64,
    /// Retransmission time-outs.
    pub timeouts: u64,
    /// Tail loss probes sent, and those that repaired a loss.
    pub probes: u64,
    /// See above.
    pub probe_recoveries: u64,
    /// Recoveries begun.
    pub recoveries: u64,
    /// Reductions undone.
    pub undos: u64,
    /// DSACKs received.
    pub dsacks_in: u64,
    /// Acknowledgements sent late.
    pub delayed_acks: u64,
    /// Connections in TIME_WAIT, that were replaced by a new one (RFC 6191).
    pub time_wait_reused: u64,
    /// Connections ended as the peer did not answer.
    pub timed_out: u64,
    /// ICMP errors taken, and refused as they quote nothing in flight.
    pub icmp_in: u64,
    /// See above.
    pub icmp_refused: u64,
    /// Paths that were taken for one that loses long segments without a word.
    pub black_holes: u64,
    /// Zero window probes sent.
    pub window_probes: u64,
    /// Keepalive probes sent.
    pub keepalives: u64,
}
