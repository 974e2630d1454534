//! Tests of replies that are longer than an output: written in `stream` until it is full, and continued in
//! `writable`.

use std::net::SocketAddr;
use std::sync::LazyLock;

use twinpath_inspect::Reason;
use twinpath_service::connections::ConnectionLimits;
use twinpath_service::{Closed, Output, Service};
use twinpath_time::{Duration, Instant};

use crate::simulated::{LIMITS, Rig};

/// How a service finds out how much it may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fills {
    /// It asks for the room each time and fills it to the last byte.
    Room,
    /// It writes pieces until one does not fit.
    Pieces,
    /// It asks for the room once per call and leaves less than a piece of it.
    Once,
}

const PIECE: usize = 10_007;

/// Answers a line `N` with N bytes, each of which encodes its position in the connection's output. It reads no further
/// line meanwhile.
struct Stream {
    fills: Fills,
}

#[derive(Default)]
struct Place {
    written: usize,
    left: usize,
}

/// The bytes of a connection's output from a position on: up to as many as one output or one read holds.
fn bytes_from(place: usize) -> &'static [u8] {
    static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| (0..=250).cycle().take((2 << 20) + 251).collect());
    &BYTES[place % 251..]
}

impl Stream {
    fn go_on(&self, place: &mut Place, output: &mut Output<'_>) {
        let mut room = output.room();
        while place.left > 0 {
            let piece = match self.fills {
                Fills::Room => place.left.min(output.room()),
                Fills::Pieces | Fills::Once => place.left.min(PIECE),
            };
            if piece == 0 || self.fills == Fills::Once && piece > room {
                return;
            }
            if !output.write(&bytes_from(place.written)[..piece]) {
                return;
            }
            (place.written, place.left, room) = (place.written + piece, place.left - piece, room - piece);
        }
    }
}

impl Service for Stream {
    type Connection = Place;

    fn accept(&mut self, _now: Instant, _peer: SocketAddr) -> Result<Place, Reason> {
        Ok(Place::default())
    }

    fn stream(&mut self, _: Instant, place: &mut Place, input: &[u8], output: &mut Output<'_>) -> usize {
        let end = input.iter().position(|byte| *byte == b'\n').filter(|_| place.left == 0);
        let Some(end) = end else { return 0 };
        place.left = std::str::from_utf8(&input[..end]).unwrap().parse().unwrap();
        self.go_on(place, output);
        end + 1
    }

    fn writable(&mut self, _now: Instant, place: &mut Place, output: &mut Output<'_>) {
        self.go_on(place, output);
    }
}

fn rig(fills: Fills, bytes: usize) -> Rig<Stream> {
    Rig::new(Stream { fills }, ConnectionLimits { bytes, ..LIMITS }, None)
}

/// The peer takes `want` bytes, up to `most` at a time; fails if they are wrong, or stop coming.
fn take(rig: &mut Rig<Stream>, want: usize, most: usize) {
    let mut got = 0;
    while got < want {
        rig.transport.open_window(most);
        rig.turns();
        let heard = rig.heard();
        assert!(!heard.is_empty(), "stalled at {got} of {want} bytes");
        for chunk in heard.chunks(1 << 20) {
            assert!(chunk == &bytes_from(got)[..chunk.len()], "other bytes than written, from {got}");
            got += chunk.len();
        }
    }
    assert_eq!(got, want);
}

const FILLS: [Fills; 3] = [Fills::Room, Fills::Pieces, Fills::Once];
const OUTPUTS: [usize; 3] = [64 << 10, 256 << 10, 2 << 20];

#[test]
fn a_reply_of_any_length_comes_whole_whatever_the_limit() {
    for (fills, limit) in FILLS.into_iter().flat_map(|fills| OUTPUTS.map(|limit| (fills, limit))) {
        for length in [1, PIECE, 65_536, 262_143, 262_144, 262_145, 786_432, 1_048_602, 5_000_000] {
            // The transport takes everything at once, as a kernel socket may, and refuses nothing.
            let mut rig = rig(fills, limit);
            rig.say(format!("{length}\n"));
            take(&mut rig, length, 0);
            assert_eq!(rig.held(), 0);
            rig.half_close();
            assert_eq!(rig.closed, Some(Closed::Ended), "{fills:?}, {limit}, {length}");
        }
    }
}

#[test]
fn pipelined_replies_come_whole_and_a_peer_that_has_said_all_it_wants_gets_them_too() {
    for (fills, limit) in FILLS.into_iter().flat_map(|fills| OUTPUTS.map(|limit| (fills, limit))) {
        let mut rig = self::rig(fills, limit);
        rig.say("1048602\n".repeat(20));
        take(&mut rig, 20 * 1_048_602, 0);
        let mut rig = self::rig(fills, limit);
        rig.transport.arrive(("1048602\n".repeat(3) + "7\n").as_bytes());
        rig.half_close();
        take(&mut rig, 3 * 1_048_602 + 7, 0);
        assert_eq!(rig.closed, Some(Closed::Ended), "{fills:?}, {limit}");
    }
}

#[test]
fn a_slow_reader_gets_everything_and_no_more_is_held_for_it_than_the_limit() {
    for fills in FILLS {
        let mut rig = rig(fills, 256 << 10);
        rig.transport.close_window();
        rig.say("20000000\n5\n");
        assert!((1..=2 * (256 << 10)).contains(&rig.held()), "the peer holds it up");
        take(&mut rig, 20_000_005, 9_001);
        // The time that the peer takes does not count against it as long as it reads at all.
        rig.transport.close_window();
        rig.say("20000000\n");
        for _ in 0..9 {
            rig.pass(Duration::from_secs(15));
            rig.transport.open_window(2_000_000);
            rig.turns();
        }
        assert!(rig.is_open());
    }
}

#[test]
fn a_reply_without_end_leaves_the_others_their_turns_and_its_peers_end_is_heard() {
    for fills in FILLS {
        let mut rig = rig(fills, 256 << 10);
        rig.transport.arrive(format!("{}\n", usize::MAX).as_bytes());
        for _ in 0..50 {
            assert!(rig.turn(), "it wants another turn");
            let heard = rig.heard().len();
            assert!((1..=(256 << 10) + (256 << 10)).contains(&heard), "{heard} bytes in a turn");
        }
        rig.transport.reset();
        rig.turns();
        assert_eq!(rig.closed, Some(Closed::Broken));
    }
}
