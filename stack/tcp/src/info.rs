//! What a connection says of itself, with the meanings of Linux's `struct tcp_info` (include/uapi/linux/tcp.h).

use twinpath_time::Duration;

use crate::state::{Ended, Network};

/// The states with Linux's numbers (include/net/tcp_states.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum TcpState {
    /// Data flows.
    Established = 1,
    /// SYN was sent.
    SynSent,
    /// SYN was received and answered.
    SynRecv,
    /// FIN was sent.
    FinWait1,
    /// FIN was acknowledged.
    FinWait2,
    /// Both have ended; late segments are answered.
    TimeWait,
    /// It has ended.
    Close,
    /// The peer has sent FIN.
    CloseWait,
    /// Both have sent FIN, the peer first.
    LastAck,
    /// Peers are accepted.
    Listen,
    /// Both have sent FIN at once.
    Closing,
}

/// A connection, as operators and suites see it. Times in us, sizes in bytes, windows in segments where Linux counts
/// them so.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// `tcpi_state`.
    pub state: TcpState,
    /// `tcpi_ca_state`.
    pub network: Network,
    /// Why it has ended.
    pub ended: Option<Ended>,
    /// `tcpi_options`: timestamps, SACK, window scale, ECN.
    pub has_timestamps: bool,
    /// See above.
    pub has_sack: bool,
    /// See above.
    pub has_scale: bool,
    /// See above.
    pub has_ecn: bool,
    /// `tcpi_snd_wscale`.
    pub send_scale: u8,
    /// `tcpi_rcv_wscale`.
    pub receive_scale: u8,
    /// `tcpi_retransmits`.
    pub retries: u8,
    /// `tcpi_probes`.
    pub probes: u8,
    /// `tcpi_backoff`.
    pub backoff: u8,
    /// `tcpi_rto`.
    pub rto_us: u32,
    /// `tcpi_rtt`.
    pub srtt_us: u32,
    /// `tcpi_rttvar`.
    pub rttvar_us: u32,
    /// `tcpi_min_rtt`.
    pub min_rtt_us: u32,
    /// `tcpi_rcv_rtt`.
    pub receive_rtt_us: u32,
    /// `tcpi_snd_cwnd`.
    pub cwnd: u32,
    /// `tcpi_snd_ssthresh`.
    pub ssthresh: u32,
    /// `tcpi_snd_mss`.
    pub mss: u16,
    /// `tcpi_rcv_mss`.
    pub receive_mss: u16,
    /// `tcpi_advmss`.
    pub advertised_mss: u16,
    /// `tcpi_pmtu`.
    pub mtu: u16,
    /// `tcpi_unacked`.
    pub unacked: u32,
    /// `tcpi_sacked`.
    pub sacked: u32,
    /// `tcpi_lost`.
    pub lost: u32,
    /// `tcpi_retrans`.
    pub retransmitting: u32,
    /// `tcpi_total_retrans`.
    pub retransmitted: u32,
    /// `tcpi_reordering`.
    pub reordering: u32,
    /// `tcpi_reord_seen`.
    pub reorderings: u32,
    /// `tcpi_delivered`.
    pub delivered: u32,
    /// `tcpi_delivered_ce`.
    pub delivered_ce: u32,
    /// `tcpi_dsack_dups`.
    pub duplicates: u32,
    /// `tcpi_rcv_ooopack`.
    pub out_of_order: u32,
    /// `tcpi_segs_in`.
    pub segments_in: u32,
    /// `tcpi_segs_out`.
    pub segments_out: u32,
    /// `tcpi_data_segs_in`.
    pub data_segments_in: u32,
    /// `tcpi_data_segs_out`.
    pub data_segments_out: u32,
    /// `tcpi_bytes_acked`.
    pub bytes_acked: u64,
    /// `tcpi_bytes_received`.
    pub bytes_received: u64,
    /// `tcpi_bytes_sent`, without retransmissions.
    pub bytes_sent: u64,
    /// `tcpi_bytes_retrans`.
    pub bytes_retransmitted: u64,
    /// `tcpi_notsent_bytes`.
    pub unsent: u32,
    /// Bytes to be read: `SIOCINQ`.
    pub queued: u32,
    /// Bytes that are not acknowledged: `SIOCOUTQ`.
    pub unacknowledged: u32,
    /// `tcpi_snd_wnd`.
    pub send_window: u32,
    /// The largest window that the peer has offered.
    pub peak_window: u32,
    /// `tcpi_rcv_wnd`.
    pub receive_window: u32,
    /// How long data may stay unacknowledged; [`Duration::MAX`]: the number of retries decides.
    pub user_timeout: Duration,
    /// `tcpi_last_data_sent`.
    pub since_sent: Duration,
    /// `tcpi_last_data_recv`.
    pub since_received: Duration,
    /// `tcpi_busy_time`, `tcpi_rwnd_limited`, `tcpi_sndbuf_limited`: how long something was to be sent, and what it
    /// waited for.
    pub busy: Duration,
    /// See above.
    pub receiver_limited: Duration,
    /// See above.
    pub buffer_limited: Duration,
    /// Bytes of memory that the connection holds, in all.
    pub memory: u64,
}
