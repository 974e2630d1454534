//! Replies that are longer than an output holds: written in `stream` as far as they fit, and in `writable` from there on.

use std::sync::LazyLock;

use super::*;

/// How a service finds out how much it may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fills {
    /// It asks for the room each time and fills it to the last byte.
    Room,
    /// It writes pieces until one does not fit.
    Pieces,
    /// It asks for the room once per call and leaves some of it: less than a piece.
    Once,
}

const PIECE: usize = 10_007;

/// Answers a line `N` with N bytes, each of which tells its place in the connection's output. It reads no further line meanwhile.
#[derive(Clone)]
struct Stream {
    fills: Fills,
    closes: Arc<Mutex<Vec<Closed>>>,
}

#[derive(Default)]
struct Place {
    written: usize,
    left: usize,
}

/// The bytes of a connection's output from a place on: up to as many as one output or one read holds.
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

    fn close(&mut self, _: Place, why: Closed) {
        self.closes.lock().unwrap().push(why);
    }
}

impl Closing for Stream {
    fn closes(&self) -> Arc<Mutex<Vec<Closed>>> {
        Arc::clone(&self.closes)
    }
}

impl Rig<Stream> {
    fn streaming(fills: Fills, limit: u32) -> Self {
        let limits = TcpLimits { connection_bytes: limit, queued_bytes: 64 << 20, ..LIMITS };
        Self::serving(Stream { fills, closes: Arc::default() }, limits, None)
    }

    /// Takes `want` bytes, `most` at a time with a turn of the server after each; fails if they are not what they should be, or stop
    /// coming while the server has nothing to do.
    fn take(&mut self, stream: &mut TcpStream, want: usize, most: usize) {
        let (mut got, mut idle, mut buffer) = (0, 0, vec![0; most]);
        while got < want {
            let busy = self.turn();
            match stream.read(&mut buffer[..most.min(want - got)]) {
                Ok(0) => panic!("ended after {got} of {want} bytes"),
                Ok(len) => {
                    let right = buffer[..len] == bytes_from(got)[..len];
                    assert!(right, "other bytes than written, within {len} from {got}");
                    (got, idle) = (got + len, 0);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    idle = if busy { 0 } else { idle + 1 };
                    assert!(idle < 1_000, "stalled at {got} of {want} bytes");
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}

const FILLS: [Fills; 3] = [Fills::Room, Fills::Pieces, Fills::Once];
const OUTPUTS: [u32; 3] = [64 << 10, 256 << 10, 2 << 20];

#[test]
fn a_reply_of_any_length_comes_whole_whatever_the_limit() {
    for (fills, limit) in FILLS.into_iter().flat_map(|fills| OUTPUTS.map(|limit| (fills, limit))) {
        let mut rig = Rig::streaming(fills, limit);
        for length in [1, PIECE, 65_536, 262_143, 262_144, 262_145, 786_432, 1_048_602, 5_000_000] {
            let mut stream = rig.connect();
            writeln!(stream, "{length}").unwrap();
            rig.take(&mut stream, length, 1 << 20);
            assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
            drop(stream);
            rig.turns();
            assert_eq!(rig.closes(), [Closed::Ended], "{fills:?}, {limit}, {length}");
        }
        assert_eq!((rig.share.bytes(), rig.serve.queued_bytes.get()), (0, 0));
    }
}

#[test]
fn pipelined_replies_come_whole_and_a_peer_that_has_said_all_it_wants_gets_them_too() {
    for (fills, limit) in FILLS.into_iter().flat_map(|fills| OUTPUTS.map(|limit| (fills, limit))) {
        let mut rig = Rig::streaming(fills, limit);
        let mut stream = rig.connect();
        write!(stream, "{}", "1048602\n".repeat(20)).unwrap();
        rig.take(&mut stream, 20 * 1_048_602, 1 << 20);
        let mut stream = rig.connect();
        writeln!(stream, "{}7", "1048602\n".repeat(3)).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        rig.take(&mut stream, 3 * 1_048_602 + 7, 1 << 20);
        assert_eq!(rig.read(&mut stream, 1), (0, true));
        assert_eq!(rig.closes(), [Closed::Ended], "{fills:?}, {limit}");
    }
}

#[test]
fn a_slow_reader_gets_everything_and_no_more_is_held_for_it_than_the_limit() {
    for fills in FILLS {
        let mut rig = Rig::streaming(fills, 256 << 10);
        let mut stream = rig.connect();
        stream.write_all(b"20000000\n5\n").unwrap();
        rig.turns();
        assert!((1..=2 * (256 << 10)).contains(&rig.serve.queued_bytes.get()), "the peer holds it up");
        rig.take(&mut stream, 20_000_005, 9_000);
        assert_eq!(rig.closes(), []);
        // Time that it takes is not held against it as long as it reads at all.
        stream.write_all(b"20000000\n").unwrap();
        let mut buffer = vec![0; 2 << 20];
        for _ in 0..9 {
            rig.pass(Duration::from_secs(15));
            let mut got = 0;
            while got < 2_000_000 {
                got += stream.read(&mut buffer[got..2_000_000]).unwrap_or(0);
                rig.turn();
            }
        }
        assert_eq!(rig.closes(), []);
    }
}

#[test]
fn replies_without_end_hold_up_nobody_and_the_peers_end_is_heard() {
    let mut rig = Rig::streaming(Fills::Room, 256 << 10);
    let mut endless: Vec<_> = (0..20).map(|_| rig.connect()).collect();
    let mut buffer = vec![0; 1 << 20];
    for stream in &mut endless {
        writeln!(stream, "{}", usize::MAX).unwrap();
    }
    let mut polite = rig.connect_only();
    for round in 0..50 {
        endless.iter_mut().for_each(|stream| while stream.read(&mut buffer).is_ok() {});
        polite.write_all(b"1\n").unwrap();
        let mut turns = 0;
        while polite.read(&mut buffer[..1]).is_err() {
            let before = rig.serve.stream_bytes_out.get();
            rig.turn();
            turns += 1;
            let sent = rig.serve.stream_bytes_out.get() - before;
            assert!(sent <= (1 << 20) + (256 << 10), "{sent} bytes in a turn");
            assert!(turns <= 8, "round {round}: the others first, for {turns} turns");
        }
    }
    drop(endless);
    for _ in 0..1_000 {
        rig.turn();
    }
    assert_eq!(rig.closes(), [Closed::Broken; 20]);
    assert_eq!(rig.share.bytes(), 0);
}
