//! One connection, from SYN to the end of its data (RFC 9293), as a function of (state, now, segment | call).
//!
//! [`segment`](Connection::segment) takes what arrives, [`output`](Connection::output) gives what is to be sent.

mod acknowledge;
mod calls;
mod check;
mod fast;
mod handshake;
mod output;
mod rare;
mod receive;
mod recovery;
mod snapshot;
mod timers;
mod urgent;

use std::collections::VecDeque;
use std::sync::Arc;

use twinpath_time::{Duration, Instant};

use crate::buffer::{Buffer, Pool};
use crate::config::{Config, CongestionKind, Options};
use crate::congestion::{Congestion, Window};
use crate::counters::Counters;
use crate::flight::{Flight, Sent};
use crate::handshake::OpenedBy;
use crate::record::{TimeWait, milliseconds};
use crate::rtt::Rtt;
use crate::segment::Tuple;
use crate::seq::Seq;
use crate::state::{Ended, Events, Network, State};

use self::rare::Apart;
pub use self::snapshot::{Snapshot, Windows};

/// Room that a program is lent at first, and at most, bytes.
const ROOM_MIN: u32 = 4096;
const ROOM_MAX: u32 = 256 << 10;

/// Bits of [`Connection::flags`].
mod flag {
    /// The peer takes SACK options; both send timestamps; both scale windows.
    pub(super) const SACK: u32 = 1 << 0;
    pub(super) const TIMESTAMPS: u32 = 1 << 1;
    pub(super) const SCALED: u32 = 1 << 2;
    /// Congestion notification was agreed on; a mark is to be echoed; CWR is to be sent.
    pub(super) const ECN: u32 = 1 << 3;
    pub(super) const ECHO_CONGESTION: u32 = 1 << 4;
    pub(super) const SEND_CWR: u32 = 1 << 5;
    /// An acknowledgement is to be sent at once; later; a challenge is.
    pub(super) const ACK_NOW: u32 = 1 << 6;
    pub(super) const ACK_LATER: u32 = 1 << 7;
    /// The program sends no more; FIN was sent; it is acknowledged.
    pub(super) const FIN_QUEUED: u32 = 1 << 8;
    pub(super) const FIN_SENT: u32 = 1 << 9;
    /// The peer's FIN has come in order.
    pub(super) const FIN_RECEIVED: u32 = 1 << 10;
    /// The program has closed it.
    pub(super) const ORPHAN: u32 = 1 << 11;
    /// Program and peer answer each other (pingpong in Linux).
    pub(super) const INTERACTIVE: u32 = 1 << 12;
    /// What was sent was limited by the congestion window; by the receiver's window.
    pub(super) const WINDOW_LIMITED: u32 = 1 << 13;
    /// F-RTO looks whether a time-out was spurious.
    pub(super) const FRTO: u32 = 1 << 14;
    /// The probe in flight is a retransmission.
    pub(super) const PROBE_IS_OLD: u32 = 1 << 15;
    /// RACK has delivered something new.
    pub(super) const RACK_ADVANCED: u32 = 1 << 16;
    /// Some write has another end than a piece: there are marks, or urgent data.
    pub(super) const MARKED: u32 = 1 << 17;
    /// The peer is to be told of the user timeout (RFC 5482).
    pub(super) const TIMEOUT_DUE: u32 = 1 << 18;
    /// A reset is to be sent.
    pub(super) const SEND_RESET: u32 = 1 << 19;
    /// The program waits for room to write.
    pub(super) const WANTS_ROOM: u32 = 1 << 20;
    /// Acknowledgements that congestion control was not told of, as the program limits what is sent.
    pub(super) const SKIPPED: u32 = 1 << 21;
    /// What the program has set: a cork, and acknowledgements at once.
    pub(super) const CORKED: u32 = 1 << 23;
    pub(super) const QUICK_ACK: u32 = 1 << 31;
    /// Cork's time has passed: what waits is sent once.
    pub(super) const UNCORK: u32 = 1 << 22;
    /// The retransmission timer is to be set anew once the output is done.
    pub(super) const REARM: u32 = 1 << 24;
    /// Reading is over: the program takes no more.
    pub(super) const READ_CLOSED: u32 = 1 << 25;
    /// The peer's window may be probed: data waits for it and nothing is in flight.
    pub(super) const PERSIST: u32 = 1 << 26;
    /// A SYN of ours was retransmitted.
    pub(super) const SYN_AGAIN: u32 = 1 << 27;
    /// A tail loss probe is due.
    pub(super) const PROBE_DUE: u32 = 1 << 28;
    /// A keepalive, or zero window, probe is due.
    pub(super) const KEEPALIVE_DUE: u32 = 1 << 29;
    /// A SYN, or SYN-ACK, is due.
    pub(super) const SYN_DUE: u32 = 1 << 30;
}

/// What was said of the path. It is believed until a minute of the clock, modulo 256. So a connection that sends nothing
/// for hours may believe it for longer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Said {
    #[default]
    Nothing,
    /// It carries less than the interface.
    Less { until: u8 },
    /// It carries less than every host takes, and routers may cut what is sent.
    Least { until: u8 },
}

/// What the engine has to do about a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// Nothing but the output.
    None,
    /// Answer it by a reset (RFC 9293 section 3.5.2).
    Reset,
}

/// In-order payload that can be read where it lies, as nothing is queued before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fresh {
    /// Its first byte, and its bytes.
    pub(crate) start: usize,
    pub(crate) len: usize,
    /// FIN follows it.
    pub(crate) fin: bool,
}

/// What is due at [`Connection::timer_at`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Timer {
    #[default]
    None,
    /// Retransmission (RFC 6298).
    Retransmit,
    /// A tail loss probe (RFC 8985 section 7).
    Probe,
    /// A segment may be lost by now (RFC 8985 section 6.2, step 5).
    Reordering,
    /// The peer's window is to be probed (RFC 9293 section 3.8.6.1).
    Persist,
}

/// RACK's state (RFC 8985 section 5.3).
#[derive(Clone, Copy, Debug, Default)]
struct Rack {
    at: Instant,
    end: Seq,
    rtt_us: u32,
    /// Until this was sent, no further DSACK counts.
    round: Seq,
    /// The reordering window is this many quarters of the smallest round trip, for so many recoveries.
    steps: u8,
    persist: u8,
    reordering_seen: bool,
}

/// What undoing a reduction needs (RFC 3522, RFC 3708).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Undo {
    /// `snd_una` when the reduction began; `None`: nothing is to be undone.
    marker: Option<Seq>,
    /// Retransmissions that no DSACK has reported yet; `None`: not known.
    retransmissions: Option<u32>,
    /// When the first retransmission was sent, on the timestamp clock.
    stamp: Option<u32>,
    ssthresh: u32,
}

/// Receive window tuning (dynamic right-sizing).
#[derive(Clone, Copy, Debug, Default)]
struct Tuning {
    /// Bytes that the program has read in the round trip before, and when the present one began.
    space: u32,
    copied: u32,
    since: Instant,
    /// A round trip as the receiver sees it, us.
    rtt_us: u32,
    /// When `rcv_nxt` passes this, a round trip is over.
    edge: Seq,
    edge_at: Instant,
}

/// What the sender waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
enum Limit {
    /// Nothing is to be sent.
    #[default]
    Idle,
    /// The network.
    Busy,
    /// The peer's window.
    Receiver,
    /// The program, which could not write more.
    SendBuffer,
}

/// For how long the sender has waited for what.
#[derive(Clone, Copy, Debug, Default)]
struct Limited {
    kind: Limit,
    since: Instant,
    /// Busy, receiver, send buffer; ns.
    total_ns: [u64; 3],
}

impl Limited {
    fn set(&mut self, now: Instant, kind: Limit) {
        if self.kind == kind {
            return;
        }
        if self.kind > Limit::Idle {
            self.total_ns[self.kind as usize - 1] += now.nanos_since(self.since);
        }
        (self.kind, self.since) = (kind, now);
    }

    /// The totals at `now`: busy with what, in all; limited by the receiver; by the send buffer.
    fn totals(mut self, now: Instant) -> [Duration; 3] {
        self.set(now, Limit::Idle);
        [self.total_ns.iter().sum(), self.total_ns[1], self.total_ns[2]].map(Duration::from_nanos)
    }
}

/// Memory that connections take from and give back to.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) pool: Pool,
    pub(crate) flights: Vec<VecDeque<Sent>>,
    pub(crate) counters: Counters,
    pub(crate) config: Config,
    /// Of the configuration, us.
    pub(crate) rto_min_us: u64,
    pub(crate) rto_max_us: u64,
    /// Challenge acknowledgements that are left in this second (RFC 5961 section 7).
    pub(crate) challenges: u32,
    pub(crate) challenges_since: Instant,
    /// From which that number is drawn.
    pub(crate) salt: u64,
}

/// A connection.
#[derive(Debug, Default)]
pub(crate) struct Connection {
    // What each segment needs.
    snd_una: Seq,
    snd_nxt: Seq,
    /// The peer's window, in bytes, and the segment that it was last taken from.
    snd_wnd: u32,
    snd_wl1: Seq,
    rcv_nxt: Seq,
    /// The window last offered began here, and was so large.
    rcv_wup: Seq,
    rcv_wnd: u32,
    flags: u32,
    pub(crate) state: State,
    network: Network,
    snd_scale: u8,
    rcv_scale: u8,
    /// Payload bytes of a full-sized segment.
    mss: u16,
    /// The peer's segments, as seen.
    rcv_mss: u16,
    /// The size of a smaller one that came last.
    rcv_len: u16,
    /// Acknowledgements that are sent at once, before any is delayed.
    quick: u8,
    events: u8,
    timer: Timer,
    backoff: u8,
    ts_recent: u32,
    ts_offset: u32,
    window: Window,
    timer_at: Instant,
    ack_at: Instant,
    /// When the peer has last sent anything; data.
    last_received: Instant,
    data_at: Instant,
    last_sent: Instant,
    flight: Flight,
    pub(crate) send: Buffer,
    pub(crate) receive: Buffer,

    // What some segments need.
    pub(crate) tuple: Tuple,
    rtt: Rtt,
    congestion: Congestion,
    rack: Rack,
    rare: Apart,
    /// What was sent when the last reduction began.
    high_seq: Seq,
    /// The probe in flight ends here (RFC 8985 section 7.3).
    probe_end: Option<Seq>,
    /// The end of the last segment that was not full-sized (RFC 9293 section 3.7.4).
    small_end: Seq,
    reordering: u32,
    /// The largest window that the peer has offered.
    max_window: u32,
    /// When ts_recent was taken, and the number expected then.
    ts_recent_at: Instant,
    /// The echo of the last acknowledgement, on this end's clock.
    last_echo: u32,
    iss: Seq,
    /// Received bytes that the program has seen and not used.
    pub(crate) lent: u32,
    /// Room that it is lent at a time.
    room_hint: u32,
    /// The limits of buffers.
    receive_limit: u32,
    send_limit: u32,
    tuning: Tuning,
    retries: u8,
    probes: u8,
    keepalive_probes: u8,
    /// Since when nothing was acknowledged although something is in flight.
    stalled_since: Instant,
    keepalive_at: Instant,
    /// What the path carries, bytes of an IP packet, and whether somebody has said so.
    mtu: u16,
    said: Said,
    /// The largest segment that the interface takes.
    own_mss: u16,
    /// The largest segment that the peer takes.
    peer_mss: u16,
    pub(crate) ended: Option<Ended>,
    pub(crate) opened_by: OpenedBy,
    /// Shared with the other connections of its listener, until it sets its own.
    pub(crate) options: Arc<Options>,
    limited: Limited,
    window_used: u32,
    window_used_end: Seq,
    /// A segment lost before was sent again up to here (limited transmit, RFC 3042).
    dupacks: u32,
    pub(crate) totals: Totals,
    listed: bool,
    announced: bool,
    /// There was no memory for what the program wants to write.
    starves: bool,
    #[cfg(test)]
    straight: bool,
}

/// Counts of a connection since it began.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) retransmitted: u32,
    pub(crate) segments_in: u32,
    pub(crate) segments_out: u32,
    pub(crate) data_segments_in: u32,
    pub(crate) data_segments_out: u32,
    pub(crate) bytes_acked: u64,
    pub(crate) bytes_received: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_retransmitted: u64,
    pub(crate) delivered: u32,
    pub(crate) delivered_ce: u32,
    pub(crate) duplicates: u32,
    pub(crate) reorderings: u32,
    pub(crate) out_of_order: u32,
}

impl Connection {
    #[inline]
    const fn is(&self, flags: u32) -> bool {
        self.flags & flags != 0
    }

    #[inline]
    const fn set(&mut self, flags: u32) {
        self.flags |= flags;
    }

    #[inline]
    const fn clear(&mut self, flags: u32) {
        self.flags &= !flags;
    }

    #[inline]
    const fn tell(&mut self, events: u8) {
        self.events |= events;
    }

    /// Takes the events since the last call. A program that has closed the connection is told nothing.
    #[inline]
    pub(crate) const fn take_events(&mut self) -> Events {
        self.announced = false;
        let events = core::mem::replace(&mut self.events, 0);
        Events(if self.is(flag::ORPHAN) { 0 } else { events })
    }

    /// Whether the engine's lists have it already; it is listed from now on if `listed`.
    #[inline]
    pub(crate) const fn list(&mut self, listed: bool) -> bool {
        core::mem::replace(&mut self.listed, listed)
    }

    /// Tells its user what was told before.
    pub(crate) fn tell_again(&mut self) {
        if !self.receive.is_empty() || self.is(flag::FIN_RECEIVED) {
            self.tell(Events::READABLE);
        }
        if self.urgent_left(self.receive.len()) > 0 {
            self.tell(Events::URGENT);
        }
        if self.state == State::Closed {
            self.tell(Events::ENDED | Events::READABLE);
        }
    }

    /// Whether it waits for memory; this is asked once.
    pub(crate) const fn begins_to_starve(&mut self) -> bool {
        core::mem::replace(&mut self.starves, false)
    }

    /// There is memory again.
    pub(crate) const fn is_fed(&mut self) {
        if self.is(flag::WANTS_ROOM) {
            self.clear(flag::WANTS_ROOM);
            self.tell(Events::WRITABLE);
        }
    }

    /// Whether there are events that the engine's list does not have yet: a host that takes none gets one entry.
    #[inline]
    pub(crate) const fn announces(&mut self) -> bool {
        self.events != 0 && !core::mem::replace(&mut self.announced, true)
    }

    /// The number behind the last byte that was written.
    #[inline]
    fn write_end(&self) -> Seq {
        self.data_start() + self.send.len() as u32
    }

    /// The number of the first byte in the send buffer: `snd_una`, but for SYN.
    #[inline]
    fn data_start(&self) -> Seq {
        self.snd_una + u32::from(matches!(self.state, State::SynSent | State::SynReceived))
    }

    /// The number behind the last byte that the peer's window allows.
    #[inline]
    fn window_end(&self) -> Seq {
        self.snd_una + self.snd_wnd
    }

    /// Timestamps: a clock of 1 kHz (RFC 7323 section 5.4), as Linux has it, with an offset of its own.
    #[inline]
    const fn stamp(&self, now: Instant) -> u32 {
        ((now.as_nanos() / 1_000_000) as u32).wrapping_add(self.ts_offset)
    }

    fn kind(&self, config: &Config) -> CongestionKind {
        self.options.congestion.unwrap_or(config.congestion)
    }

    /// Whether it can be forgotten: nothing moves, and nobody reads.
    pub(crate) const fn is_over(&self) -> bool {
        matches!(self.state, State::Closed) && self.is(flag::ORPHAN) && !self.is(flag::SEND_RESET)
    }

    /// Whether a reset is still to be sent.
    pub(crate) const fn has_reset_to_send(&self) -> bool {
        self.is(flag::SEND_RESET)
    }

    /// The record that takes over when both have sent FIN.
    pub(crate) fn time_wait(&self, now: Instant, time: Duration) -> TimeWait {
        TimeWait {
            snd_nxt: self.snd_nxt,
            rcv_nxt: self.rcv_nxt,
            rcv_wnd: self.rcv_wnd,
            ts_recent: self.is(flag::TIMESTAMPS).then_some(self.ts_recent),
            ts_offset: self.ts_offset,
            scale: self.rcv_scale,
            heard_ms: milliseconds(now),
            until: now + time,
            acked_at: Instant::ZERO,
        }
    }

    /// Whether both have sent FIN and ours is acknowledged, so that the peer's last segments are to be answered.
    pub(crate) const fn goes_to_time_wait(&self) -> bool {
        matches!(self.state, State::Closed)
            && matches!(self.ended, Some(Ended::Finished))
            && !matches!(self.opened_by, OpenedBy::Detached)
    }

    /// Ends it, without a word to the peer.
    fn end(&mut self, why: Ended, shared: &mut Shared) {
        if self.state == State::Closed {
            return;
        }
        self.state = State::Closed;
        self.ended = Some(why);
        self.flight.clear();
        self.flight.release(&mut shared.flights);
        self.send.release(&mut shared.pool);
        self.flags &= !flag::MARKED;
        if let Some(rare) = self.rare.there() {
            rare.marks.clear(&mut shared.pool);
            rare.urgent = 0;
            if !matches!(why, Ended::Finished) {
                // Bytes that have arrived in order can still be read, as from a socket of Linux.
                rare.reassembly.clear();
            }
            (rare.end_at, rare.cork_at) = (Instant::NEVER, Instant::NEVER);
        }
        (self.timer, self.timer_at, self.ack_at) = (Timer::None, Instant::NEVER, Instant::NEVER);
        self.keepalive_at = Instant::NEVER;
        self.clear(
            flag::ACK_LATER | flag::PROBE_DUE | flag::KEEPALIVE_DUE | flag::SYN_DUE | flag::TIMEOUT_DUE,
        );
        if !matches!(why, Ended::Finished) {
            self.clear(flag::ACK_NOW);
        }
        self.tell(Events::ENDED | Events::READABLE | Events::WRITABLE);
        self.release(shared);
    }

    /// Gives back the memory that holds nothing.
    fn release(&mut self, shared: &mut Shared) {
        if self.receive.is_empty() && self.rare.reassembly.is_empty() {
            self.receive.release(&mut shared.pool);
        }
        if self.send.is_empty() {
            self.send.release(&mut shared.pool);
        }
    }

    /// Gives back the memory of what is rare, if it is over.
    #[inline]
    pub(crate) fn tidy(&mut self, now: Instant, shared: &Shared) {
        if !self.rare.is_none() && self.network == Network::Open {
            self.tidy_rare(now, shared);
        }
    }

    #[cold]
    fn tidy_rare(&mut self, now: Instant, shared: &Shared) {
        let read = self.totals.bytes_received - self.receive.len() as u64;
        // Until then, a duplicate of what was sent again may be reported.
        let is_behind = self.flight.is_empty() && self.snd_una.after(self.high_seq);
        if let Some(rare) = self.rare.there() {
            rare.forget(now, shared.config.challenge_interval, read, is_behind);
        }
        self.rare.tidy();
    }

    /// Whether it has memory for what is rare.
    #[cfg(test)]
    pub(crate) const fn has_rare(&self) -> bool {
        !self.rare.is_none()
    }

    /// Gives everything back.
    pub(crate) fn drop_buffers(&mut self, shared: &mut Shared) {
        self.flight.clear();
        self.flight.release(&mut shared.flights);
        self.send.release(&mut shared.pool);
        if let Some(rare) = self.rare.there() {
            rare.reassembly.clear();
            rare.marks.clear(&mut shared.pool);
        }
        self.receive.release(&mut shared.pool);
    }

    /// Checks that the counts of what is in flight are right.
    #[cfg(test)]
    pub(crate) fn check_flight(&self) {
        self.flight.check();
    }

    pub(crate) fn debug(&self) -> String {
        format!(
            "{:?} {:?} {:?} listed {} {:?} at {:?} flags {:b} una {:?} nxt {:?} wnd {} cwnd {:?} rcv {:?} len {} send {} {:?} {:?}",
            self.state,
            self.ended,
            self.opened_by,
            self.listed,
            self.timer,
            self.timer_at,
            self.flags,
            self.snd_una,
            self.snd_nxt,
            self.snd_wnd,
            self.window,
            self.rcv_nxt,
            self.receive.len(),
            self.send.len(),
            self.flight,
            self.deadline()
        )
    }

    /// Bytes of memory that it holds beside itself.
    pub(crate) fn memory(&self) -> usize {
        self.send.memory()
            + self.receive.memory()
            + self.rare.marks.memory()
            + self.flight.memory()
            + self.rare.reassembly.memory()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_costs_three_quarters_of_a_kibibyte() {
        // The engine's table, place and wheel; services have a quarter beside it.
        let each = size_of::<Connection>() + 16 + 16 + twinpath_time::Wheel::BYTES_EACH;
        assert!(each <= 768, "{each} bytes, {} of them the connection", size_of::<Connection>());
    }
}
