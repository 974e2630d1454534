//! Replies that are longer than an output holds: written in `stream` until it is full, then in `writable`.

use std::sync::LazyLock;

use super::*;

/// Answers a line `N` with N bytes, each of which tells its position in the connection's output. It reads no
/// further line meanwhile.
#[derive(Clone)]
struct Stream {
    closes: Arc<Mutex<Vec<Closed>>>,
}

#[derive(Default)]
struct Place {
    written: usize,
    left: usize,
}

/// The bytes of a connection's output from a position on: as many as one output or one read holds.
fn bytes_from(place: usize) -> &'static [u8] {
    static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| (0..=250).cycle().take((2 << 20) + 251).collect());
    &BYTES[place % 251..]
}

impl Stream {
    fn go_on(place: &mut Place, output: &mut Output<'_>) {
        let piece = place.left.min(output.room());
        assert!(output.write(&bytes_from(place.written)[..piece]));
        (place.written, place.left) = (place.written + piece, place.left - piece);
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
        Self::go_on(place, output);
        end + 1
    }

    fn writable(&mut self, _now: Instant, place: &mut Place, output: &mut Output<'_>) {
        Self::go_on(place, output);
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
    fn streaming(limit: u32) -> Self {
        let limits = TcpLimits { connection_bytes: limit, queued_bytes: 64 << 20, ..LIMITS };
        Self::serving(Stream { closes: Arc::default() }, limits, None)
    }

    /// Reads `want` bytes, at most `most` at a time with a turn of the server after each. Fails if they are
    /// wrong, or stop coming while the server has nothing to do.
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

const OUTPUTS: [u32; 3] = [64 << 10, 256 << 10, 2 << 20];

#[test]
fn a_reply_of_any_length_comes_whole_whatever_the_limit() {
    for limit in OUTPUTS {
        let mut rig = Rig::streaming(limit);
        for length in [1, 65_536, 262_145, 1_048_602, 5_000_000] {
            let mut stream = rig.connect();
            writeln!(stream, "{length}").unwrap();
            rig.take(&mut stream, length, 1 << 20);
            assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock);
            drop(stream);
            rig.turns();
            assert_eq!(rig.closes(), [Closed::Ended], "{limit}, {length}");
        }
        assert_eq!((rig.totals.bytes(), rig.serve.tcp.queued_bytes.get()), (0, 0));
    }
}

#[test]
fn replies_without_end_hold_up_nobody_and_the_peers_end_is_heard() {
    let mut rig = Rig::streaming(256 << 10);
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
            let before = rig.serve.tcp.stream_bytes_out.get();
            rig.turn();
            turns += 1;
            let sent = rig.serve.tcp.stream_bytes_out.get() - before;
            assert!(sent <= (1 << 20) + (256 << 10), "{sent} bytes in a turn");
            assert!(turns <= 8, "round {round}: the others first, for {turns} turns");
        }
    }
    drop(endless);
    for _ in 0..1_000 {
        rig.turn();
    }
    assert_eq!(rig.closes(), [Closed::Broken; 20]);
    assert_eq!(rig.totals.bytes(), 0);
}
