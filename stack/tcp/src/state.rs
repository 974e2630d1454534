//! What a connection says of itself: its state, how it sees the network, why it has ended.

/// The states of RFC 9293 section 3.3.2 that a connection has. LISTEN, SYN-RECEIVED after LISTEN, and TIME-WAIT are
/// records of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum State {
    /// A SYN was sent.
    SynSent,
    /// A SYN was sent and one has come: both ends have opened at once.
    SynReceived,
    /// Data flows.
    Established,
    /// FIN was sent.
    FinWait1,
    /// FIN was acknowledged.
    FinWait2,
    /// The peer's FIN has come.
    CloseWait,
    /// Both have sent FIN; ours is not acknowledged.
    Closing,
    /// The peer's FIN has come, then ours was sent.
    LastAck,
    /// Nothing moves any more.
    #[default]
    Closed,
}

/// How the sender sees the network, with Linux's names (`enum tcp_ca_state`, include/uapi/linux/tcp.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Network {
    /// Nothing is in doubt.
    #[default]
    Open,
    /// Something came out of order.
    Disorder,
    /// The window shrinks after a congestion notification.
    Reduced,
    /// Lost segments are retransmitted.
    Recovery,
    /// A time-out has passed.
    Loss,
}

/// Why a connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Both ends have sent FIN.
    Finished,
    /// The peer has reset it.
    Reset,
    /// The peer has refused it.
    Refused,
    /// The peer does not answer any more.
    TimedOut,
    /// The program has given it up.
    Aborted,
    /// The network said that the peer cannot be reached.
    Unreachable,
}

/// What a connection tells its user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events(pub u8);

impl Events {
    /// The handshake is complete.
    pub const CONNECTED: u8 = 1;
    /// Bytes, or the end of the stream, can be read.
    pub const READABLE: u8 = 2;
    /// There is room to write, after there was none.
    pub const WRITABLE: u8 = 4;
    /// The connection has ended: [`Info::ended`](crate::Info::ended) says why.
    pub const ENDED: u8 = 8;
    /// The peer has urgent data, or more of it than was said before: [`Stream::urgent_bytes`](crate::Stream::urgent_bytes)
    /// says how much (RFC 9293 section 3.8.5, MUST-32).
    pub const URGENT: u8 = 16;

    /// Whether any of these bits is set.
    #[must_use]
    pub const fn has(self, bits: u8) -> bool {
        self.0 & bits != 0
    }
}
