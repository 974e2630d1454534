//! An engine beside a peer whose every segment a test writes.
//!
//! Numbers are relative: those of the peer count from 0, which is its SYN; those of the engine from its SYN.

use twinpath_wire::tcp::{self, Flags, Header, Timestamps, Writer};

use super::*;
use crate::segment::Outgoing;

pub(super) const SERVER: ([u8; 4], u16) = ([192, 0, 2, 1], 80);
pub(super) const PEER: ([u8; 4], u16) = ([192, 0, 2, 2], 4000);

/// The window of the peer's segments, if a test does not say another.
pub(super) const WINDOW: u16 = 60_000;

/// MSS 1000 and SACK.
pub(super) const SACK: [u8; 8] = [2, 4, 3, 232, 1, 1, 4, 2];

/// A segment that the engine has sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) seq: u32,
    pub(super) ack: u32,
    pub(super) flags: u8,
    pub(super) window: u16,
    pub(super) urgent: u16,
    pub(super) options: Vec<u8>,
    pub(super) len: usize,
    pub(super) unit: usize,
    pub(super) capable: bool,
    pub(super) id: Option<u16>,
}

impl Said {
    pub(super) fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }

    /// Whether it is an acknowledgement of `ack`, and nothing else.
    pub(super) fn is_ack(&self, ack: u32) -> bool {
        self.flags & !Flags::ECE == Flags::ACK && self.len == 0 && self.ack == ack
    }

    pub(super) fn parsed(&self) -> tcp::Options<'_> {
        tcp::Options::parse(&self.options)
    }

    /// The blocks of SACK.
    pub(super) fn blocks(&self) -> Vec<(u32, u32)> {
        self.parsed().sack_blocks().collect()
    }

    /// The value and the echo of the timestamps.
    pub(super) fn stamps(&self) -> Option<(u32, u32)> {
        self.parsed().timestamps.map(|times| (times.value, times.echo))
    }
}

/// Takes all segments, or none if it is full.
#[derive(Default)]
pub(super) struct Log {
    pub(super) iss: u32,
    pub(super) said: Vec<Said>,
    pub(super) is_full: bool,
}

impl Sink for Log {
    fn send(&mut self, _: &Tuple, segment: &Outgoing<'_>) -> bool {
        if self.is_full {
            return false;
        }
        let Header { sequence, acknowledgement, flags, window, urgent, .. } = segment.header;
        self.said.push(Said {
            seq: sequence.wrapping_sub(self.iss),
            ack: acknowledgement,
            flags: flags.0,
            window,
            urgent,
            options: segment.options.to_vec(),
            len: segment.payload.len(),
            unit: usize::from(segment.unit),
            capable: segment.capable,
            id: segment.id,
        });
        true
    }
}

/// A segment of the peer. By default: an acknowledgement of the engine's SYN.
#[derive(Clone, Copy)]
pub(super) struct Crafted<'a> {
    pub(super) seq: u32,
    pub(super) ack: u32,
    pub(super) flags: u8,
    pub(super) window: u16,
    pub(super) urgent: u16,
    pub(super) options: &'a [u8],
    pub(super) payload: &'a [u8],
    /// Whether a router has marked it: "congestion experienced".
    pub(super) marked: bool,
    /// Bytes of the segments that it was made of; 0 if it is one.
    pub(super) unit: u16,
}

impl Default for Crafted<'_> {
    fn default() -> Self {
        Self {
            seq: 1,
            ack: 1,
            flags: Flags::ACK,
            window: WINDOW,
            urgent: 0,
            options: &[],
            payload: &[],
            marked: false,
            unit: 0,
        }
    }
}

/// The options of a SYN.
#[derive(Clone, Copy, Default)]
pub(super) struct Offer {
    pub(super) mss: u16,
    pub(super) sack: bool,
    pub(super) stamp: Option<u32>,
    pub(super) scale: Option<u8>,
}

impl Offer {
    pub(super) fn bytes(self) -> Vec<u8> {
        let mut options = Writer::default();
        if self.mss > 0 {
            options.mss(self.mss);
        }
        if self.sack {
            options.sack_permitted(true);
        }
        if let Some(value) = self.stamp {
            options.timestamps(Timestamps { value, echo: 0 }, true);
        }
        if let Some(scale) = self.scale {
            options.scale(scale);
        }
        options.bytes().to_vec()
    }
}

/// Timestamps alone.
pub(super) fn stamps(value: u32, echo: u32) -> Vec<u8> {
    let mut options = Writer::default();
    options.timestamps(Timestamps { value, echo }, true);
    options.bytes().to_vec()
}

pub(super) fn milliseconds(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// No segment leaves as several.
pub(super) fn separate() -> Config {
    Config { super_segment: 0, ..Config::default() }
}

pub(super) struct Rig {
    pub(super) tcp: Tcp,
    pub(super) listener: Option<ListenerId>,
    pub(super) id: Option<ConnectionId>,
    pub(super) tuple: Tuple,
    pub(super) now: Instant,
    /// The first number of the engine.
    pub(super) iss: u32,
}

impl Rig {
    /// An engine that listens.
    pub(super) fn listening(config: Config) -> Self {
        Self::listening_with(config, Options::default())
    }

    /// An engine that listens, for connections with `options`.
    pub(super) fn listening_with(config: Config, options: Options) -> Self {
        let mut rig = Self {
            tcp: Tcp::new(config, Unknown::Reset, [1, 2]),
            listener: None,
            id: None,
            tuple: Tuple::new(SERVER.into(), PEER.into()),
            now: Instant::from_nanos(1 << 40),
            iss: 0,
        };
        rig.listener = Some(rig.tcp.listen(SERVER.into(), 100_000, options));
        rig
    }

    /// An established connection that the peer has opened.
    pub(super) fn new(config: Config, syn_options: &[u8]) -> Self {
        let mut rig = Self::listening(config);
        rig.open(0, syn_options);
        rig
    }

    /// A connection that the engine opens; its SYN has left.
    pub(super) fn connecting(config: Config, options: Options) -> (Self, Said) {
        let mut rig = Self::listening(config);
        let id = rig.tcp.connect(rig.now, SERVER.into(), PEER.into(), options);
        rig.id = Some(id.expect("opens"));
        let mut said = rig.output();
        rig.iss = said[0].seq;
        said[0].seq = 0;
        (rig, said.remove(0))
    }

    /// Another peer.
    pub(super) fn peer(&mut self, number: u16) {
        let host = 2 + (number / 30_000) as u8;
        let peer = ([192, 0, 2, host], PEER.1 + number % 30_000);
        self.tuple = Tuple::new(SERVER.into(), peer.into());
    }

    /// The peer opens a connection by a SYN with number `seq`; returns what answers the SYN.
    pub(super) fn open(&mut self, seq: u32, syn_options: &[u8]) -> Said {
        let mut answers = self.syn(seq, Flags::SYN, syn_options);
        self.say(seq + 1, 1, WINDOW, &[]);
        self.id = self.tcp.accept(self.listener.expect("listens"));
        answers.remove(0)
    }

    /// The peer sends a SYN; the numbers of the engine count from its answer.
    pub(super) fn syn(&mut self, seq: u32, flags: u8, options: &[u8]) -> Vec<Said> {
        self.iss = 0;
        let mut said = self.say_with(seq, 0, flags, WINDOW, options, &[]);
        self.iss = said[0].seq;
        said[0].seq = 0;
        said
    }

    /// The peer's segment arrives a millisecond later.
    pub(super) fn take(&mut self, crafted: Crafted<'_>) -> Vec<Said> {
        self.take_with(crafted, &mut Later, false)
    }

    pub(super) fn take_with(
        &mut self,
        crafted: Crafted<'_>,
        host: &mut impl Host,
        is_full: bool,
    ) -> Vec<Said> {
        let header = Header {
            source_port: self.tuple.remote_port(),
            destination_port: self.tuple.local_port(),
            sequence: crafted.seq,
            acknowledgement: self.iss.wrapping_add(crafted.ack),
            flags: Flags(crafted.flags),
            window: crafted.window,
            urgent: crafted.urgent,
        };
        let mut bytes = vec![0; tcp::HEADER_LEN + crafted.options.len() + crafted.payload.len()];
        let len = header.emit(crafted.options, &mut bytes).expect("a header");
        bytes[len..].copy_from_slice(crafted.payload);
        let view = tcp::Segment::parse(&bytes).expect("a segment");
        let mut log = Log { iss: self.iss, is_full, ..Log::default() };
        self.now += milliseconds(1);
        let segment = Segment::new(&view, crafted.marked, crafted.unit);
        self.tcp.segment(self.now, &self.tuple, &segment, host, &mut log);
        self.tcp.slots.iter().filter_map(|slot| slot.connection.as_ref()).for_each(|one| one.check_flight());
        log.said
    }

    pub(super) fn say_with(
        &mut self,
        seq: u32,
        ack: u32,
        flags: u8,
        window: u16,
        options: &[u8],
        payload: &[u8],
    ) -> Vec<Said> {
        self.take(Crafted { seq, ack, flags, window, options, payload, ..Crafted::default() })
    }

    pub(super) fn say(&mut self, seq: u32, ack: u32, window: u16, payload: &[u8]) -> Vec<Said> {
        self.say_with(seq, ack, Flags::ACK, window, &[], payload)
    }

    /// Data of the peer, `len` bytes from `seq` on.
    pub(super) fn data(&mut self, seq: u32, len: usize) -> Vec<Said> {
        self.say(seq, 1, WINDOW, &vec![7; len])
    }

    /// A selective acknowledgement, behind one byte of data.
    pub(super) fn sack(&mut self, ack: u32, window: u16, [start, end]: [u32; 2]) -> Vec<Said> {
        let mut options = Writer::default();
        options.sack(&[(self.iss.wrapping_add(start), self.iss.wrapping_add(end))]);
        self.say_with(2, ack, Flags::ACK, window, options.bytes(), &[])
    }

    /// An ICMP error that quotes the segment `seq`.
    pub(super) fn icmp(&mut self, seq: u32, error: IcmpError) -> Vec<Said> {
        self.tcp.icmp(self.now, &self.tuple, self.iss.wrapping_add(seq), error);
        self.output()
    }

    pub(super) fn id(&self) -> ConnectionId {
        self.id.expect("there is a connection")
    }

    pub(super) fn stream(&mut self) -> Stream<'_> {
        self.tcp.stream(self.now, self.id.expect("there is a connection")).expect("it is there")
    }

    pub(super) fn write(&mut self, len: usize) -> Vec<Said> {
        assert_eq!(self.stream().write(&vec![7; len]), len);
        self.output()
    }

    /// The program reads `len` bytes of those that are queued.
    pub(super) fn read(&mut self, len: usize) -> Vec<Said> {
        self.stream().consume(len);
        self.output()
    }

    pub(super) fn set(&mut self, options: Options) {
        self.tcp.set_options(self.now, self.id(), options);
    }

    /// The program writes no more.
    pub(super) fn end(&mut self) -> Vec<Said> {
        self.stream().end();
        self.output()
    }

    /// The program is done with it.
    pub(super) fn close(&mut self) -> Vec<Said> {
        self.tcp.close(self.now, self.id());
        self.output()
    }

    pub(super) fn output(&mut self) -> Vec<Said> {
        let mut log = Log { iss: self.iss, ..Log::default() };
        self.tcp.output(self.now, &mut log);
        log.said
    }

    pub(super) fn pass(&mut self, time: Duration) -> Vec<Said> {
        self.pass_with(time, false)
    }

    pub(super) fn pass_with(&mut self, time: Duration, is_full: bool) -> Vec<Said> {
        self.now += time;
        let mut log = Log { iss: self.iss, is_full, ..Log::default() };
        self.tcp.advance(self.now, 1_000_000, &mut log);
        log.said
    }

    /// Until the next thing is due, or `most`, if that is sooner.
    pub(super) fn pass_to_deadline(&mut self, most: Duration) -> Vec<Said> {
        let wait = self.tcp.next_deadline().since(self.now).max(milliseconds(1));
        self.pass(wait.min(most))
    }

    pub(super) fn info(&self) -> Info {
        self.tcp.info(self.now, self.id()).expect("it is there")
    }

    pub(super) fn state(&self) -> TcpState {
        self.info().state
    }

    pub(super) fn counters(&self) -> Counters {
        *self.tcp.counters()
    }
}
