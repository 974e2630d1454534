//! A host: an engine, its clock, the way out of it, and what is checked of each segment that leaves.

use std::collections::HashMap;

use twinpath_tcp::{Config, Outgoing, Sink, Tcp, Tuple, Unknown};
use twinpath_time::{Duration, Instant};
use twinpath_wire::tcp::{self, Flags};

use crate::network::Packet;

/// What one end of a connection has said on the wire.
#[derive(Clone, Debug, Default)]
struct Said {
    /// The first number, the number behind the last byte sent, and whether FIN was.
    first: u32,
    sent: u32,
    fin: bool,
    /// The shift of its windows, if its SYN had one; whether timestamps and SACK were offered.
    scale: Option<u8>,
    timestamps: bool,
    mss: u16,
    /// The end of the window that it has offered last.
    edge: Option<u32>,
    acknowledged: Option<u32>,
    /// The first number of the peer that it speaks to.
    peer_first: Option<u32>,
    /// How often it has answered an acknowledgement by a reset before there was a connection.
    refused: u64,
    /// The number of its last answer to a SYN of a connection before: a late copy opens one by half, which says so until
    /// it is forgotten.
    late: Option<u32>,
}

/// Both ends of the connections of a simulation, as the wire shows them: by who has said it.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    said: HashMap<Tuple, Said>,
    /// Segments with data or FIN that were sent a second time.
    pub(crate) repeated: u64,
    pub(crate) resets: u64,
    /// SYNs that were sent a second time as the peer has the connection before in TIME_WAIT: its acknowledgement is
    /// answered by a reset (RFC 9293 section 3.10.7.3), which it ignores (RFC 1337 section 3), and the SYN comes again
    /// until that time is over.
    pub(crate) waited: u64,
    /// Whether each segment is printed.
    traces: bool,
}

fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

impl Ledger {
    pub(crate) fn new() -> Self {
        Self { traces: crate::traces(), ..Self::default() }
    }

    /// Checks a segment that leaves against all that was said before.
    fn check(&mut self, tuple: &Tuple, segment: &Outgoing<'_>, mtu: u16) {
        let header = &segment.header;
        let flags = header.flags.0;
        let options = tcp::Options::parse(segment.options);
        assert!(segment.options.len() <= 40 && segment.options.len().is_multiple_of(4));
        let unit = if segment.unit == 0 { segment.payload.len() } else { usize::from(segment.unit) };
        let ip = if tuple.is_ipv4() { 20 } else { 40 };
        let len = ip + tcp::HEADER_LEN + segment.options.len() + unit;
        assert!(len <= usize::from(mtu), "a packet of {len} bytes, for an interface of {mtu}");
        if flags & Flags::RST != 0 {
            self.resets += 1;
            if let Some(said) = self.said.get_mut(tuple).filter(|said| said.acknowledged.is_none()) {
                said.refused += 1;
            }
            return;
        }
        let peer = self.said.get(&reverse(tuple)).cloned();
        if flags & Flags::SYN != 0 {
            self.check_syn(tuple, segment, &options, peer.as_ref());
            return;
        }
        // A half-open connection and one in TIME_WAIT speak, too, after their ends were forgotten here.
        let Some(said) = self.said.get_mut(tuple) else { return };
        let peer = peer.unwrap_or_default();
        assert!(flags & Flags::ACK != 0, "every segment but the first has ACK");
        if segment.payload.is_empty() && said.late == Some(header.sequence.wrapping_sub(1)) {
            return;
        }
        if *said.peer_first.get_or_insert(peer.first) != peer.first {
            // The peer has begun anew, and this end still speaks of the connection before.
            return;
        }
        let scale = said.scale.filter(|_| peer.scale.is_some()).unwrap_or(0);
        let ack = header.acknowledgement;
        let edge = ack.wrapping_add(u32::from(header.window) << scale);
        assert!(said.acknowledged.is_none_or(|last| !before(ack, last)), "acknowledgements do not go back");
        // Behind FIN a window has no meaning; a part of a unit is lost by the scale (RFC 7323 section 2.4).
        if let Some(last) = said.edge.filter(|_| !peer.fin) {
            assert!(
                before(last, edge.wrapping_add(1 << scale)),
                "the window was offered up to {last}, and now to {edge}"
            );
        }
        if said.edge.is_none_or(|last| before(last, edge)) {
            said.edge = Some(edge);
        }
        said.acknowledged = Some(ack);
        assert!(!before(peer.sent, ack), "{ack} was never sent, but {}", peer.sent);
        let stamps = said.timestamps && peer.timestamps;
        assert_eq!(options.timestamps.is_some(), stamps, "timestamps as agreed on");
        assert!(unit <= usize::from(peer.mss.max(536)), "{unit} bytes for a peer that takes {}", peer.mss);
        self.check_data(tuple, segment, &peer);
    }

    /// Notes what another stack says, of which nothing is asked.
    pub(crate) fn hear(&mut self, tuple: &Tuple, view: &tcp::Segment<'_>) {
        let (flags, options) = (view.flags().0, tcp::Options::parse(view.options()));
        let (first, ack) = (view.sequence(), view.acknowledgement());
        if self.traces {
            let len = view.payload().len();
            eprintln!(
                "{} -> {}: {flags:02x} {first} + {len} ack {ack} {options:?}",
                tuple.local(),
                tuple.remote()
            );
        }
        let acks = flags & Flags::ACK != 0;
        if flags & Flags::SYN != 0 {
            let said = Said {
                first,
                sent: first.wrapping_add(1),
                fin: false,
                scale: options.scale,
                timestamps: options.timestamps.is_some(),
                mss: options.mss.unwrap_or(536),
                edge: acks.then(|| ack.wrapping_add(view.window().into())),
                acknowledged: acks.then_some(ack),
                peer_first: acks.then(|| ack.wrapping_sub(1)),
                refused: 0,
                late: None,
            };
            self.said.insert(*tuple, said);
            return;
        }
        let scaled = self.said.get(&reverse(tuple)).is_some_and(|peer| peer.scale.is_some());
        let Some(said) = self.said.get_mut(tuple) else { return };
        let fin = flags & Flags::FIN != 0;
        let end = first.wrapping_add(view.payload().len() as u32 + u32::from(fin));
        if before(said.sent, end) {
            said.sent = end;
        }
        let scale = said.scale.filter(|_| scaled).unwrap_or(0);
        let edge = ack.wrapping_add(u32::from(view.window()) << scale);
        if acks && said.edge.is_none_or(|last| before(last, edge)) {
            said.edge = Some(edge);
        }
    }

    fn check_syn(
        &mut self,
        tuple: &Tuple,
        segment: &Outgoing<'_>,
        options: &tcp::Options,
        peer: Option<&Said>,
    ) {
        let (header, answers) = (&segment.header, segment.header.flags.0 & Flags::ACK != 0);
        let first = header.sequence;
        if let Some(peer) = peer.filter(|_| answers) {
            if header.acknowledgement != peer.first.wrapping_add(1) {
                // An answer to a SYN of the connection before.
                assert!(before(header.acknowledgement, peer.first), "a SYN that was never sent");
                if let Some(said) = self.said.get_mut(tuple) {
                    said.late = Some(first);
                }
                return;
            }
            assert!(options.scale.is_none() || peer.scale.is_some(), "an option that was not offered");
            assert!(options.timestamps.is_none() || peer.timestamps, "an option that was not offered");
        }
        if let Some(known) = self.said.get_mut(tuple).filter(|said| said.first == first) {
            if known.refused > 0 {
                known.refused -= 1;
                self.waited += 1;
            }
            return;
        }
        let said = Said {
            first,
            sent: first.wrapping_add(1),
            fin: false,
            scale: options.scale,
            timestamps: options.timestamps.is_some(),
            mss: options.mss.unwrap_or(536),
            edge: answers.then(|| header.acknowledgement.wrapping_add(header.window.into())),
            acknowledged: answers.then_some(header.acknowledgement),
            peer_first: answers.then(|| header.acknowledgement.wrapping_sub(1)),
            refused: 0,
            late: None,
        };
        self.said.insert(*tuple, said);
    }

    fn check_data(&mut self, tuple: &Tuple, segment: &Outgoing<'_>, peer: &Said) {
        let Some(said) = self.said.get_mut(tuple) else { return };
        let header = &segment.header;
        let fin = header.flags.0 & Flags::FIN != 0;
        let len = segment.payload.len() as u32 + u32::from(fin);
        if len == 0 {
            return;
        }
        let end = header.sequence.wrapping_add(len);
        if before(header.sequence, said.sent) {
            self.repeated += 1;
        }
        assert!(!before(said.sent, header.sequence), "a gap before {}", header.sequence);
        if before(said.sent, end) {
            assert!(!said.fin, "bytes behind FIN");
            if let Some(edge) = peer.edge {
                assert!(!before(edge, end), "{end} lies behind the window, which ends at {edge}");
            }
            (said.sent, said.fin) = (end, fin);
        }
    }
}

fn reverse(tuple: &Tuple) -> Tuple {
    Tuple::new(tuple.remote(), tuple.local())
}

/// The way out of a host.
pub(crate) struct Out<'a> {
    pub(crate) ledger: &'a mut Ledger,
    pub(crate) packets: &'a mut Vec<Packet>,
    /// Segments that it takes before it is full.
    pub(crate) room: usize,
    pub(crate) mtu: u16,
    pub(crate) refused: bool,
    pub(crate) clock: Instant,
}

impl Sink for Out<'_> {
    fn send(&mut self, tuple: &Tuple, segment: &Outgoing<'_>) -> bool {
        if self.room == 0 {
            self.refused = true;
            return false;
        }
        self.room -= 1;
        if self.ledger.traces {
            let header = &segment.header;
            eprintln!(
                "{:?} {} -> {}: {:02x} {} + {} ack {} win {} unit {}",
                self.clock,
                tuple.local(),
                tuple.remote(),
                header.flags.0,
                header.sequence,
                segment.payload.len(),
                header.acknowledgement,
                header.window,
                segment.unit
            );
        }
        self.ledger.check(tuple, segment, self.mtu);
        self.packets.push(Packet::new(tuple, segment));
        true
    }
}

/// An engine with its clock.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) tcp: Tcp,
    /// How far its clock is ahead of the network's.
    pub(crate) ahead: Duration,
    /// When its clock jumps next, and how far.
    pub(crate) jumps: Vec<(Instant, Duration)>,
    /// How often the way out is full after a few segments.
    pub(crate) full_share: f64,
    /// A full way out is tried again at this time.
    pub(crate) again_at: Instant,
    pub(crate) packets: Vec<Packet>,
    /// Times at which it was called for a timer.
    pub(crate) ticks: u64,
    pub(crate) config: Config,
}

impl Host {
    pub(crate) fn new(config: Config, secret: u64) -> Self {
        Self {
            tcp: Tcp::new(config.clone(), Unknown::Reset, [secret, secret.rotate_left(7) ^ 0x5bd1]),
            ahead: Duration::ZERO,
            jumps: Vec::new(),
            full_share: 0.0,
            again_at: Instant::NEVER,
            packets: Vec::new(),
            ticks: 0,
            config,
        }
    }

    /// Its time.
    pub(crate) fn clock(&self, now: Instant) -> Instant {
        now + self.ahead
    }

    /// When it wants to be called, in the network's time.
    pub(crate) fn next(&self) -> Instant {
        let own = self.tcp.next_deadline();
        let own = if own == Instant::NEVER {
            own
        } else {
            Instant::from_nanos(own.as_nanos().saturating_sub(self.ahead.as_nanos() as u64))
        };
        let own = if self.again_at == Instant::NEVER { own } else { self.again_at };
        let jump = self.jumps.last().map_or(Instant::NEVER, |(at, _)| *at);
        own.min(jump)
    }

    /// The clock jumps that are due.
    pub(crate) fn jump(&mut self, now: Instant) {
        while let Some((at, far)) = self.jumps.last().copied() {
            if at > now {
                break;
            }
            self.ahead += far;
            self.jumps.pop();
        }
    }

    /// Calls the engine with a way out that may be full, and notes that it was.
    pub(crate) fn call<R>(
        &mut self,
        now: Instant,
        random: &mut fastrand::Rng,
        ledger: &mut Ledger,
        call: impl FnOnce(&mut Tcp, Instant, &mut Out<'_>) -> R,
    ) -> R {
        let is_full = self.full_share > 0.0 && random.f64() < self.full_share;
        let room = if is_full { random.usize(..3) } else { usize::MAX };
        let mtu = self.config.mtu;
        let clock = now + self.ahead;
        let mut out = Out { ledger, packets: &mut self.packets, room, mtu, refused: false, clock };
        let result = call(&mut self.tcp, clock, &mut out);
        if out.refused {
            self.again_at = now + Duration::from_micros(random.u64(1..2000));
        }
        self.tcp.check();
        result
    }
}
