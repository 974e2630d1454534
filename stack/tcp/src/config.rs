//! What all connections of an engine have in common.

use twinpath_time::Duration;
use twinpath_wire::tcp::UserTimeout;

/// Explicit congestion notification (RFC 3168).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ecn {
    /// Never.
    Off,
    /// If the peer asks for it. Linux's default.
    #[default]
    Accept,
    /// Ask for it, and accept it.
    Request,
}

/// Which congestion control new connections have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CongestionKind {
    /// RFC 9438 with RFC 9406.
    #[default]
    Cubic,
    /// RFC 5681 and RFC 6582.
    NewReno,
}

/// Limits and times. The defaults are those of Linux.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The largest IP packet that the interface sends and receives, bytes.
    pub mtu: u16,
    /// Maximum number of connections, half-open ones and TIME_WAIT apart.
    pub connections: u32,
    /// Maximum number of half-open connections.
    pub half_open: u32,
    /// Maximum number of connections in TIME_WAIT. The oldest makes room for a new one.
    pub time_wait: u32,
    /// Bytes that all buffers may hold together.
    pub memory: u64,
    /// Bytes of the first receive window, and its limit after autotuning.
    pub receive_initial: u32,
    /// See above.
    pub receive_max: u32,
    /// Bytes that a new connection may hold unacknowledged and unsent, and the limit after autotuning: twice the
    /// congestion window.
    pub send_initial: u32,
    /// See above.
    pub send_max: u32,
    /// Whether selective acknowledgements are offered and taken (RFC 2018).
    pub sack: bool,
    /// Whether duplicate segments are reported (RFC 2883).
    pub dsack: bool,
    /// Whether timestamps are offered and taken (RFC 7323).
    pub timestamps: bool,
    /// Whether a window scale is offered and taken (RFC 7323).
    pub window_scale: bool,
    /// Explicit congestion notification.
    pub ecn: Ecn,
    /// SYNs that ask for it, and answers to a SYN that accept it, before it is left out: what drops such segments may
    /// be on the path (RFC 3168 section 6.1.1.1).
    pub ecn_syns: u8,
    /// Congestion control.
    pub congestion: CongestionKind,
    /// Segments of the initial window (RFC 6928).
    pub initial_window: u32,
    /// Segments out of order that are not yet taken for a loss (RFC 5681).
    pub reordering: u32,
    /// Whether RACK finds losses (RFC 8985); otherwise three duplicate acknowledgements do.
    pub rack: bool,
    /// Whether a tail loss probe is sent (RFC 8985 section 7).
    pub tail_loss_probe: bool,
    /// Whether a spurious time-out is recognised by what is acknowledged afterwards (RFC 5682).
    pub frto: bool,
    /// Whether the window restarts after an idle time (RFC 5681 section 4.1).
    pub slow_start_after_idle: bool,
    /// The shortest and the longest retransmission time-out.
    pub rto_min: Duration,
    /// See above.
    pub rto_max: Duration,
    /// The longest time that an acknowledgement waits.
    pub delayed_ack: Duration,
    /// How often SYN, SYN-ACK and other segments are retransmitted until the connection is given up.
    pub syn_retries: u8,
    /// See above.
    pub syn_ack_retries: u8,
    /// See above.
    pub retries: u8,
    /// The same for connections that the program has closed.
    pub orphan_retries: u8,
    /// The shortest and the longest time that a connection with [`Options::advertised_timeout`] keeps data that is not
    /// acknowledged: L_LIMIT and U_LIMIT of RFC 5482 section 3.1.
    pub user_timeout_min: Duration,
    /// See above.
    pub user_timeout_max: Duration,
    /// How long TIME_WAIT lasts, and how long FIN_WAIT_2 does once the program has closed the connection.
    pub time_wait_time: Duration,
    /// See above.
    pub fin_wait_time: Duration,
    /// Challenge acknowledgements per second of all connections (RFC 5961 section 7).
    pub challenges_per_second: u32,
    /// The shortest time between two challenge acknowledgements of one connection.
    pub challenge_interval: Duration,
    /// Whether a RST that lies in the window, but not at its beginning, is answered by a challenge (RFC 5961
    /// section 3.2). Otherwise it resets the connection (RFC 9293 section 3.5.3).
    pub challenge_resets: bool,
    /// The same of a SYN that lies in the window (RFC 5961 section 4.2).
    pub challenge_syns: bool,
    /// Full-sized segments that leave as one at the least, if the windows allow it (Linux's `tcp_min_tso_segs`).
    pub segments_at_once: u32,
    /// The largest payload of one segment that leaves as a whole, to be cut below; 0: nothing is cut.
    pub super_segment: u32,
    /// Whether time-outs of long segments shorten them: the path may lose what is too long without a word, or its word
    /// may not reach this engine (RFC 4821 section 7.7, RFC 2923 section 2.1; Linux's `tcp_mtu_probing`).
    pub black_hole_detection: bool,
    /// The largest window that may be offered in a scaled form; the shift follows from `receive_max`.
    pub scale: Option<u8>,
    /// How many small acknowledgements of data out of order may wait for each other; 0: none.
    pub compressed_acks: u8,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mtu: 1500,
            connections: 65_536,
            half_open: 4096,
            time_wait: 16_384,
            memory: 256 << 20,
            receive_initial: 64 << 10,
            receive_max: 6 << 20,
            send_initial: 128 << 10,
            send_max: 4 << 20,
            sack: true,
            dsack: true,
            timestamps: true,
            window_scale: true,
            ecn: Ecn::Accept,
            ecn_syns: 2,
            congestion: CongestionKind::Cubic,
            initial_window: 10,
            reordering: 3,
            rack: true,
            tail_loss_probe: true,
            frto: true,
            slow_start_after_idle: true,
            rto_min: Duration::from_millis(200),
            rto_max: Duration::from_secs(120),
            delayed_ack: Duration::from_millis(40),
            syn_retries: 6,
            syn_ack_retries: 5,
            retries: 15,
            orphan_retries: 8,
            // R2 of RFC 9293 section 3.8.3 at the least.
            user_timeout_min: Duration::from_secs(100),
            user_timeout_max: Duration::from_secs(3600),
            time_wait_time: Duration::from_secs(60),
            fin_wait_time: Duration::from_secs(60),
            challenges_per_second: 1000,
            challenge_interval: Duration::from_millis(500),
            challenge_resets: true,
            challenge_syns: true,
            segments_at_once: 2,
            super_segment: 65_160,
            black_hole_detection: false,
            scale: None,
            compressed_acks: 0,
        }
    }
}

impl Config {
    /// The shift of the receive window.
    pub(crate) fn scale(&self) -> u8 {
        if !self.window_scale {
            return 0;
        }
        self.scale.unwrap_or_else(|| {
            (0..14).find(|shift| 65_535 << shift >= u64::from(self.receive_max)).unwrap_or(14)
        })
    }
}

/// How long acknowledgements of data in order wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Acks {
    /// As Linux does it: none while a connection is new or data goes one way, then until more than one full-sized
    /// segment has come.
    #[default]
    Adaptive,
    /// As BSD does it: until a second segment has come, of any size.
    EverySecond,
}

/// What a program sets on a connection, or on a listener for the connections that it accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Small segments do not wait for acknowledgements (RFC 9293 section 3.7.4).
    pub no_delay: bool,
    /// Only full-sized segments leave, until this is cleared or 200 ms have passed.
    pub cork: bool,
    /// Acknowledge at once.
    pub quick_ack: bool,
    /// Otherwise: which acknowledgements wait, for [`Config::delayed_ack`] at most (RFC 9293 section 3.8.6.3).
    pub acks: Acks,
    /// Idle time until the first keepalive probe; [`Duration::MAX`]: none is sent.
    pub keepalive: Duration,
    /// Time between keepalive probes.
    pub keepalive_interval: Duration,
    /// Unanswered keepalive probes until the connection is given up.
    pub keepalive_count: u8,
    /// How long data may stay unacknowledged (RFC 5482); [`Duration::MAX`]: the number of retries decides.
    pub user_timeout: Duration,
    /// What the peer is told of that time (RFC 5482), in whole seconds or minutes, rounded up; zero: the option is
    /// neither sent nor heeded. While `user_timeout` is [`Duration::MAX`], the longer one of this time and the peer's
    /// applies, within [`Config::user_timeout_min`] and [`Config::user_timeout_max`]; otherwise the peer's says nothing.
    pub advertised_timeout: Duration,
    /// The largest payload that the program wants in a segment; 0: what the path carries.
    pub mss: u16,
    /// Bytes of the receive window at most, if the program has set it: it is not autotuned then.
    pub receive_buffer: Option<u32>,
    /// Bytes of the send buffer at most.
    pub send_buffer: Option<u32>,
    /// How often a SYN is retransmitted; `None`: [`Config::syn_retries`].
    pub syn_retries: Option<u8>,
    /// How long FIN_WAIT_2 lasts after the close; `None`: [`Config::fin_wait_time`].
    pub fin_wait: Option<Duration>,
    /// Unsent bytes above which no room is announced.
    pub unsent_low: u32,
    /// Congestion control; `None`: [`Config::congestion`].
    pub congestion: Option<CongestionKind>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            no_delay: false,
            cork: false,
            quick_ack: false,
            acks: Acks::Adaptive,
            keepalive: Duration::MAX,
            keepalive_interval: Duration::from_secs(75),
            keepalive_count: 9,
            user_timeout: Duration::MAX,
            advertised_timeout: Duration::ZERO,
            mss: 0,
            receive_buffer: None,
            send_buffer: None,
            syn_retries: None,
            fin_wait: None,
            unsent_low: u32::MAX,
            congestion: None,
        }
    }
}

impl Options {
    /// The option that says [`Self::advertised_timeout`].
    pub(crate) fn user_timeout_option(&self) -> Option<UserTimeout> {
        let time = self.advertised_timeout;
        UserTimeout::from_seconds(time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0)))
    }
}
