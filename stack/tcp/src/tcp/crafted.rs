//! A server's engine beside a peer whose every segment a test writes.

use twinpath_stream::{Received, Transport as _};
use twinpath_time::{Duration, Instant};
use twinpath_wire::tcp::{self, Flags, Header};

use super::*;
use crate::segment::Outgoing;

pub(super) const SERVER: ([u8; 4], u16) = ([192, 0, 2, 1], 80);
pub(super) const PEER: ([u8; 4], u16) = ([192, 0, 2, 2], 4000);

/// A segment that the engine has sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) seq: u32,
    pub(super) ack: u32,
    pub(super) flags: u8,
    pub(super) window: u16,
    pub(super) options_len: usize,
    pub(super) len: usize,
    pub(super) unit: usize,
}

#[derive(Default)]
pub(super) struct Log(pub(super) Vec<Said>);

impl Sink for Log {
    fn send(&mut self, _: &Tuple, segment: &Outgoing<'_>) -> bool {
        let Header { sequence, acknowledgement, flags, window, .. } = segment.header;
        self.0.push(Said {
            seq: sequence,
            ack: acknowledgement,
            flags: flags.0,
            window,
            options_len: segment.options.len(),
            len: segment.payload.len(),
            unit: usize::from(segment.unit),
        });
        true
    }
}

pub(super) struct Rig {
    pub(super) tcp: Tcp,
    pub(super) id: Option<ConnectionId>,
    pub(super) tuple: Tuple,
    pub(super) now: Instant,
    /// The first number of the engine.
    pub(super) iss: u32,
}

impl Rig {
    /// An established connection; the peer begins at 0.
    pub(super) fn new(config: Config, syn_options: &[u8]) -> Self {
        let tuple = Tuple::new(SERVER.into(), PEER.into());
        let tcp = Tcp::new(config, Unknown::Reset, [1, 2]);
        let mut rig = Self { tcp, id: None, tuple, now: Instant::from_nanos(1 << 40), iss: 0 };
        let listener = rig.tcp.listen(SERVER.into(), 4, Options::default());
        let said = rig.say_with(0, 0, Flags::SYN, 60_000, syn_options, &[]);
        rig.iss = said[0].seq;
        rig.say(1, 1, 60_000, &[]);
        rig.id = rig.tcp.accept(listener);
        rig
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
        let header = Header {
            source_port: PEER.1,
            destination_port: SERVER.1,
            sequence: seq,
            acknowledgement: self.iss.wrapping_add(ack),
            flags: Flags(flags),
            window,
        };
        let mut bytes = vec![0; tcp::HEADER_LEN + options.len() + payload.len()];
        let len = header.emit(options, &mut bytes).expect("a header");
        bytes[len..].copy_from_slice(payload);
        let view = tcp::Segment::parse(&bytes).expect("a segment");
        let mut log = Log::default();
        self.now += Duration::from_millis(1);
        self.tcp.segment(self.now, &self.tuple, &Segment::new(&view, false, 0), &mut Later, &mut log);
        self.tcp.slots.iter().filter_map(|slot| slot.connection.as_ref()).for_each(|one| one.check_flight());
        log.0
    }

    pub(super) fn say(&mut self, seq: u32, ack: u32, window: u16, payload: &[u8]) -> Vec<Said> {
        self.say_with(seq, ack, Flags::ACK, window, &[], payload)
    }

    /// A selective acknowledgement, behind one byte of data.
    pub(super) fn sack(&mut self, ack: u32, window: u16, [start, end]: [u32; 2]) -> Vec<Said> {
        let mut options = tcp::Writer::default();
        options.sack(&[(self.iss.wrapping_add(start), self.iss.wrapping_add(end))]);
        self.say_with(2, ack, Flags::ACK, window, options.bytes(), &[])
    }

    pub(super) fn write(&mut self, len: usize) -> Vec<Said> {
        let mut stream = self.tcp.stream(self.now, self.id.expect("accepted")).expect("is there");
        assert_eq!(stream.write(&vec![7; len]), len);
        self.output()
    }

    pub(super) fn output(&mut self) -> Vec<Said> {
        let mut log = Log::default();
        self.tcp.output(self.now, &mut log);
        log.0
    }

    pub(super) fn pass(&mut self, time: Duration) -> Vec<Said> {
        self.now += time;
        let mut log = Log::default();
        self.tcp.advance(self.now, 100, &mut log);
        log.0
    }
}

/// MSS 1000 and SACK.
pub(super) const SACK: [u8; 8] = [2, 4, 3, 232, 1, 1, 4, 2];

pub(super) fn separate() -> Config {
    Config { super_segment: 0, ..Config::default() }
}

#[test]
fn a_lost_segment_behind_a_window_that_has_shrunk_waits() {
    let mut rig = Rig::new(separate(), &SACK);
    rig.say(1, 1, 60_000, &[7]);
    assert_eq!(rig.write(8000).len(), 8);
    // The last three have arrived, and there is room for the first only.
    let said = rig.sack(1, 1000, [5001, 8001]);
    assert!(said.iter().all(|said| said.seq == rig.iss.wrapping_add(1)), "{said:?}");
    let said = rig.sack(1001, 60_000, [5001, 8001]);
    assert!(!said.is_empty(), "the window has opened");
}

#[test]
fn blocks_of_sack_make_no_segment_longer_than_the_path_takes() {
    let mut rig = Rig::new(separate(), &SACK);
    rig.say(5001, 1, 60_000, &[7; 100]);
    for said in rig.write(3500) {
        assert!(said.options_len + said.len <= 1000, "{said:?}");
    }
    // An acknowledgement alone has them.
    assert_eq!(rig.say(7001, 1, 60_000, &[7; 100])[0].options_len, 20);
}

#[test]
fn a_request_longer_than_the_first_window_is_lent_in_one_piece() {
    let config = Config { receive_initial: 8192, ..separate() };
    let mut rig = Rig::new(config, &[2, 4, 3, 232, 1, 3, 3, 7]);
    let (mut seq, mut edge) = (1_u32, 1 + 8192_u32);
    let id = rig.id.expect("accepted");
    for _ in 0..200 {
        while seq + 1000 <= edge {
            for said in rig.say(seq, 1, 60_000, &[7; 1000]) {
                edge = edge.max(said.ack + (u32::from(said.window) << 7));
            }
            seq += 1000;
        }
        let mut stream = rig.tcp.stream(rig.now, id).expect("is there");
        let received = stream.receive(100_000).expect("works");
        let lent = stream.lend(0).received.len();
        // The service waits for all of it.
        stream.consume(0);
        assert!(received != Received::End && lent <= 100_000);
        if lent == 100_000 {
            return;
        }
        for said in rig.pass(Duration::from_millis(50)) {
            edge = edge.max(said.ack + (u32::from(said.window) << 7));
        }
    }
    panic!("{} bytes came, and the window ends at {edge}", seq - 1);
}

#[test]
fn records_of_time_wait_that_were_replaced_leave_nothing() {
    let mut rig = Rig::new(separate(), &SACK);
    let mut seq = 1_u32;
    for _ in 0..50 {
        let id = rig.id.expect("accepted");
        rig.tcp.stream(rig.now, id).expect("is there").end();
        rig.output();
        rig.say_with(seq, 2, Flags::ACK | Flags::FIN, 60_000, &[], &[]);
        rig.tcp.close(rig.now, id);
        rig.output();
        assert_eq!(rig.tcp.count(), (0, 0, 1));
        // A new connection takes its place (RFC 6191).
        seq = seq.wrapping_add(100_000);
        let said = rig.say_with(seq, 0, Flags::SYN, 60_000, &SACK, &[]);
        rig.iss = said[0].seq;
        seq += 1;
        rig.say(seq, 1, 60_000, &[]);
        rig.id = rig.tcp.accept(ListenerId(0));
    }
    let id = rig.id.expect("accepted");
    rig.tcp.abort(rig.now, id);
    rig.pass(Duration::from_secs(70));
    assert_eq!(rig.tcp.count(), (0, 0, 0));
    assert!(rig.tcp.time_wait_order.is_empty());
    assert_eq!(rig.tcp.next_deadline(), Instant::NEVER);
}

#[test]
fn a_program_that_found_no_memory_is_told_when_there_is_some() {
    let mut rig = Rig::new(Config { memory: 8 << 10, ..separate() }, &SACK);
    let id = rig.id.expect("accepted");
    let hoarder = rig.tcp.connect(rig.now, PEER.into(), SERVER.into(), Options::default()).expect("opens");
    let mut stream = rig.tcp.stream(rig.now, hoarder).expect("is there");
    assert_eq!(stream.write(&[1; 8000]), 8000);
    while rig.tcp.next_event().is_some() {}
    let mut stream = rig.tcp.stream(rig.now, id).expect("is there");
    assert_eq!(stream.write(&[1; 100]), 0);
    rig.output();
    assert_eq!(rig.tcp.next_event(), None);
    rig.tcp.abort(rig.now, hoarder);
    rig.output();
    let (told, events) = rig.tcp.next_event().expect("an event");
    assert!(told == id && events.has(Events::WRITABLE));
}
