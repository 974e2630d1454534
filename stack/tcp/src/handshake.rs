//! What both ends of a connection agree on.

use twinpath_wire::tcp::{Flags, UserTimeout};

use crate::config::{Config, Ecn};
use crate::segment::{Segment, Tuple};
use crate::seq::Seq;

/// A payload that every host takes (RFC 9293 section 3.7.1), by address family.
pub(crate) const MSS_DEFAULT: [u16; 2] = [536, 1220];

/// The smallest payload of a segment that is believed: less would make this host send many small segments (Linux's
/// `TCP_MIN_SND_MSS`, include/net/tcp.h, without options).
pub(crate) const MSS_MIN: u16 = 48;

/// Who has opened a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum OpenedBy {
    /// This host.
    #[default]
    Us,
    /// A peer, at the listener of this number.
    Peer(u32),
    /// Its tuple belongs to a record, or to nobody, by now.
    Detached,
}

/// What both ends have agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handshake {
    pub(crate) iss: Seq,
    pub(crate) irs: Seq,
    pub(crate) peer_mss: u16,
    /// The window of the peer's SYN.
    pub(crate) window: u16,
    /// The shift of the peer's windows, if both scale.
    pub(crate) scale: Option<u8>,
    /// The shift of this end's windows, as its SYN-ACK said; `None`: its SYN said it.
    pub(crate) own_scale: Option<u8>,
    pub(crate) sack: bool,
    /// The peer's clock, if both send timestamps.
    pub(crate) timestamps: Option<u32>,
    pub(crate) ecn: bool,
    /// What the peer says of its user timeout.
    pub(crate) user_timeout: Option<UserTimeout>,
}

impl Handshake {
    /// What a peer's SYN offers, as far as this host takes it.
    pub(crate) fn offered(iss: Seq, syn: &Segment<'_>, tuple: &Tuple, config: &Config) -> Self {
        let options = &syn.options;
        let default = MSS_DEFAULT[usize::from(!tuple.is_ipv4())];
        // RFC 3168 section 6.1.1. A SYN with AE as well asks for accurate notification; the answer to both is ECE
        // without CWR and AE (RFC 9768 section 3.1.2).
        let asks = syn.flags.0 & (Flags::ECE | Flags::CWR) == Flags::ECE | Flags::CWR;
        Self {
            iss,
            irs: syn.seq,
            peer_mss: options.mss.filter(|mss| *mss > 0).unwrap_or(default).max(MSS_MIN),
            window: syn.window,
            scale: options.scale.filter(|_| config.window_scale),
            own_scale: None,
            sack: options.sack_permitted && config.sack,
            timestamps: options.timestamps.filter(|_| config.timestamps).map(|times| times.value),
            ecn: asks && config.ecn != Ecn::Off && !syn.congestion,
            user_timeout: options.user_timeout,
        }
    }
}
