//! An engine beside a peer whose every segment a test writes, at times that the test sets: what acknowledgements change,
//! and when timers fire.

mod acknowledging;
mod steps;
mod timing;
mod user_timeout;

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
}

/// MSS 1000 and SACK.
pub(super) const SACK: [u8; 8] = [2, 4, 3, 232, 1, 1, 4, 2];

pub(super) fn separate() -> Config {
    Config { super_segment: 0, ..Config::default() }
}
