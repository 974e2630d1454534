//! A connection as a value, with which another implementation of TCP can go on.

use twinpath_time::Instant;

use super::{Connection, Ended, Shared, State, flag};
use crate::config::Options;
use crate::segment::Tuple;
use crate::seq::Seq;

/// All of a connection that its peer can tell from another one, and the bytes that are not delivered.
///
/// What is estimated (round trips, the congestion window) is not here, and neither is what the peer has sent out of
/// order: it was not acknowledged, so the peer sends it again, also if SACK has reported it (RFC 2018 section 8). Urgent
/// bytes are among the others, without their mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot<'a> {
    /// The two ends.
    pub tuple: Tuple,
    /// What the program has set.
    pub options: Options,
    /// Bytes of the largest segment behind a header without options that the peer takes and, as far as is known now, the
    /// path carries.
    pub mss: u16,
    /// By how many bits the windows that the peer offers, and those offered to it, are scaled; `None`: they are not.
    pub scales: Option<(u8, u8)>,
    /// Whether the peer takes selective acknowledgements.
    pub sack: bool,
    /// The next value of this end's clock of timestamps, which ticks once per millisecond; `None`: there are none.
    pub timestamp: Option<u32>,
    /// The number of the first byte of `unacknowledged`. If there is none: of the first one that will be sent, or, once
    /// the program has finished, of this end's FIN, whether it was sent and acknowledged or not.
    pub send_number: Seq,
    /// The bytes that were sent.
    pub unacknowledged: &'a [u8],
    /// The bytes that were not sent, behind those.
    pub unsent: &'a [u8],
    /// Nothing more will be written: FIN follows these bytes.
    pub is_finished: bool,
    /// That FIN was sent, and perhaps acknowledged.
    pub fin_sent: bool,
    /// The number that is expected next. It is behind the peer's FIN if `is_ended`.
    pub receive_number: Seq,
    /// The bytes that have arrived in order and were not consumed.
    pub received: &'a [u8],
    /// How many of them the program was lent, and has left.
    pub lent: usize,
    /// The peer's FIN has arrived, behind these bytes.
    pub is_ended: bool,
    /// The windows.
    pub windows: Windows,
    /// Bytes that the peer has acknowledged since the connection was opened.
    pub acknowledged: u64,
    /// Pieces that have arrived out of order.
    pub gaps: usize,
    /// The program is done with it: what was written is to be delivered yet.
    pub is_orphan: bool,
}

/// The windows of a connection, with the names of RFC 9293 section 3.3.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// SND.WL1: the number of the segment that the peer's window was last taken from.
    pub snd_wl1: Seq,
    /// SND.WND: the peer's window, bytes.
    pub snd_wnd: u32,
    /// The largest window that the peer has offered, bytes.
    pub max_window: u32,
    /// RCV.WND: the window last offered to the peer, bytes.
    pub rcv_wnd: u32,
    /// Where that window begins.
    pub rcv_wup: Seq,
}

impl Connection {
    /// It as a value at `now`. `None`: its handshake is under way, or it has ended.
    pub(crate) fn snapshot(&self, now: Instant) -> Option<Snapshot<'_>> {
        if matches!(self.state, State::SynSent | State::SynReceived | State::Closed) {
            return None;
        }
        // Our FIN is acknowledged in this state alone.
        let send_number =
            if self.state == State::FinWait2 { Seq(self.snd_una.0.wrapping_sub(1)) } else { self.snd_una };
        let sent = self.send.len() - self.unsent() as usize;
        let (unacknowledged, unsent) = self.send.bytes().split_at(sent);
        let is_orphan = self.is(flag::ORPHAN);
        let received = if is_orphan { &[] } else { self.receive.bytes() };
        Some(Snapshot {
            tuple: self.tuple,
            options: *self.options,
            mss: self.mss_allowed(),
            scales: self.is(flag::SCALED).then_some((self.snd_scale, self.rcv_scale)),
            sack: self.is(flag::SACK),
            timestamp: self.is(flag::TIMESTAMPS).then(|| self.stamp(now)),
            send_number,
            unacknowledged,
            unsent,
            is_finished: self.is(flag::FIN_QUEUED),
            fin_sent: self.is(flag::FIN_SENT),
            receive_number: self.rcv_nxt,
            received,
            lent: received.len().min(self.lent as usize),
            is_ended: self.is(flag::FIN_RECEIVED),
            windows: Windows {
                snd_wl1: self.snd_wl1,
                snd_wnd: self.snd_wnd,
                max_window: self.max_window.max(self.snd_wnd),
                rcv_wnd: self.rcv_wnd,
                rcv_wup: self.rcv_wup,
            },
            acknowledged: self.totals.bytes_acked,
            gaps: self.rare.reassembly.len(),
            is_orphan,
        })
    }

    /// Whether its program is done with it.
    pub(crate) const fn is_orphan(&self) -> bool {
        self.is(flag::ORPHAN)
    }

    /// Another implementation has it now: it ends without a word to the peer.
    pub(crate) fn forget(&mut self, shared: &mut Shared) {
        self.set(flag::ORPHAN);
        self.clear(flag::SEND_RESET);
        self.end(Ended::Aborted, shared);
        self.drop_buffers(shared);
    }
}
