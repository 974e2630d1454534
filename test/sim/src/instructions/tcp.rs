//! What TCP does for a request of 100 bytes and its reply of as many, on an established connection with timestamps:
//! the segment is read, the service answers where the request lies, the reply is written. Checksums are left out, as
//! interfaces do them, and so is what the client does. The reply acknowledges the request, and the next request the
//! reply.
//!
//! The same by another project's stack is counted beside it; its figure contains the IP header, which it cannot be
//! asked to leave out.

use std::hint::black_box;
use std::net::SocketAddr;

use smoltcp::socket::tcp as smol;
use twinpath_tcp::{
    Config, ConnectionId, Host, Options, Outgoing, Segment, Sink, Stream, Tcp, Tuple, Unknown,
};
use twinpath_test_sim::smoltcp_end::{IP_HEADER_LEN, SmoltcpEnd, ip_header};
use twinpath_time::{Duration, Instant};
use twinpath_wire::tcp::{self, Flags, Header, Timestamps, Writer};

const REQUEST: [u8; 100] = [7; 100];
const REPLY: [u8; 100] = [9; 100];
/// At least as many as are counted.
const REQUESTS_MAX: usize = 3000;
/// Between a reply and the next request.
const PAUSE: Duration = Duration::from_micros(50);
const SERVER: [u8; 4] = [192, 0, 2, 1];
const CLIENT: [u8; 4] = [192, 0, 2, 2];
const PORTS: [u16; 2] = [4000, 80];

/// The other end: it writes requests, and reads of the replies what the next request has to say.
struct Client {
    now: Instant,
    next: u32,
    acknowledgement: u32,
    /// The server's clock, which is echoed.
    echo: u32,
    /// The present segment, with an IPv4 header.
    packet: Vec<u8>,
}

impl Client {
    fn new() -> Self {
        let now = Instant::from_nanos(1 << 40);
        Self { now, next: 1000, acknowledgement: 0, echo: 0, packet: Vec::new() }
    }

    fn stamp(&self) -> Timestamps {
        Timestamps { value: (self.now.as_nanos() / 1_000_000) as u32, echo: self.echo }
    }

    fn write(&mut self, flags: u8, options: &[u8], payload: &[u8]) {
        let header = Header {
            source_port: PORTS[0],
            destination_port: PORTS[1],
            sequence: self.next,
            acknowledgement: self.acknowledgement,
            flags: Flags(flags),
            window: 0xffff,
            urgent: 0,
        };
        let len = tcp::HEADER_LEN + options.len() + payload.len();
        self.packet.resize(IP_HEADER_LEN + len, 0);
        self.packet[..IP_HEADER_LEN].copy_from_slice(&ip_header(len, CLIENT, SERVER));
        let used = header.emit(options, &mut self.packet[IP_HEADER_LEN..]).expect("room");
        self.packet[IP_HEADER_LEN + used..].copy_from_slice(payload);
    }

    fn syn(&mut self) {
        let mut options = Writer::default();
        options.mss(1460);
        options.sack_permitted(false);
        options.timestamps(self.stamp(), false);
        options.scale(7);
        self.write(Flags::SYN, options.bytes(), &[]);
        self.next += 1;
    }

    fn segment(&mut self, payload: &[u8]) {
        let mut options = Writer::default();
        options.timestamps(self.stamp(), true);
        self.write(Flags::ACK | Flags::PSH, options.bytes(), payload);
        self.next = self.next.wrapping_add(payload.len() as u32);
    }

    /// The request behind the one before.
    fn ask_again(&mut self) {
        self.now += PAUSE;
        self.segment(&REQUEST);
    }

    /// Takes SYN-ACK.
    fn take_answer(&mut self, segment: &[u8]) {
        let view = tcp::Segment::parse(segment).expect("a whole segment");
        assert_eq!(view.flags().0, Flags::SYN | Flags::ACK);
        self.acknowledgement = view.sequence().wrapping_add(1);
        self.echo = tcp::Options::parse(view.options()).timestamps.expect("agreed on").value;
    }

    /// Takes a segment with nothing but a reply.
    fn take_reply(&mut self, segment: &[u8]) {
        let view = tcp::Segment::parse(segment).expect("a whole segment");
        assert_eq!(view.payload(), REPLY);
        self.acknowledgement = view.sequence().wrapping_add(REPLY.len() as u32);
        self.echo = tcp::Options::parse(view.options()).timestamps.expect("agreed on").value;
    }
}

/// A stack with a listener.
trait Server {
    fn new(now: Instant) -> Self;

    /// Takes a packet, has a request in it answered, and hands the segment that follows to `take`.
    fn serve(&mut self, now: Instant, packet: &[u8], take: impl FnMut(&[u8]));
}

/// Segments of the client, each with its time.
type Sent = Vec<(Instant, Vec<u8>)>;

/// What the client sends for the handshake, and for so many requests: the next one follows from the reply.
fn record<S: Server>() -> (Sent, Sent) {
    let mut client = Client::new();
    let mut server = S::new(client.now);
    let (mut handshake, mut requests) = (Sent::new(), Sent::new());
    client.syn();
    handshake.push((client.now, client.packet.clone()));
    let mut answer = Vec::new();
    server.serve(client.now, &client.packet, |segment| answer = segment.to_vec());
    client.take_answer(&answer);
    client.segment(&[]);
    handshake.push((client.now, client.packet.clone()));
    server.serve(client.now, &client.packet, |_| {});
    for _ in 0..REQUESTS_MAX {
        client.ask_again();
        requests.push((client.now, client.packet.clone()));
        server.serve(client.now, &client.packet, |segment| answer = segment.to_vec());
        client.take_reply(&answer);
    }
    (handshake, requests)
}

/// So many requests, one after the other. Their segments are recorded before, always as many, so that what the client
/// does is not counted. The server is another one, which does the same.
fn replay<S: Server>(count: u64) {
    let (handshake, requests) = record::<S>();
    let mut server = S::new(handshake[0].0);
    handshake.iter().for_each(|(now, packet)| server.serve(*now, packet, |_| {}));
    let requests = requests.get(..count as usize).expect("no more than are recorded");
    let mut replies = 0;
    for (now, packet) in requests {
        server.serve(*now, black_box(packet), |segment| {
            assert_eq!(black_box(segment).len(), tcp::HEADER_LEN + 12 + REPLY.len());
            replies += 1;
        });
    }
    assert_eq!(replies, count, "each request was answered at once");
}

/// Where segments of the engine go: into one buffer.
struct Buffer {
    bytes: [u8; 2048],
    len: usize,
}

impl Sink for Buffer {
    fn send(&mut self, _: &Tuple, segment: &Outgoing<'_>) -> bool {
        let len = segment.header.emit(segment.options, &mut self.bytes).expect("room");
        self.len = len + segment.payload.len();
        self.bytes[len..self.len].copy_from_slice(segment.payload);
        true
    }
}

struct Replies;

impl Host for Replies {
    fn received(&mut self, _: Instant, _: ConnectionId, stream: &mut Stream<'_>) {
        let room = stream.reserve_exactly(REPLY.len());
        if let Some(room) = room.and_then(|room| room.first_chunk_mut()) {
            *room = REPLY;
            stream.commit_bytes(REPLY.len());
        }
        stream.consume(stream.received().len());
    }
}

struct Engine {
    tcp: Tcp,
    tuple: Tuple,
    buffer: Buffer,
}

impl Server for Engine {
    fn new(_: Instant) -> Self {
        let server = SocketAddr::from((SERVER, PORTS[1]));
        let tuple = Tuple::new(server, SocketAddr::from((CLIENT, PORTS[0])));
        let mut tcp = Tcp::new(Config::default(), Unknown::Reset, [1, 2]);
        tcp.listen(server, 8, Options { no_delay: true, ..Options::default() });
        Self { tcp, tuple, buffer: Buffer { bytes: [0; 2048], len: 0 } }
    }

    fn serve(&mut self, now: Instant, packet: &[u8], mut take: impl FnMut(&[u8])) {
        let view = tcp::Segment::parse(&packet[IP_HEADER_LEN..]).expect("a whole segment");
        let segment = Segment::new(&view, false, 0);
        self.buffer.len = 0;
        self.tcp.segment(now, &self.tuple, &segment, &mut Replies, &mut self.buffer);
        while self.tcp.next_event().is_some() {}
        if self.buffer.len > 0 {
            take(&self.buffer.bytes[..self.buffer.len]);
        }
    }
}

/// Requests that the engine answers.
pub(crate) fn request_reply(count: u64) {
    replay::<Engine>(count);
}

impl Server for SmoltcpEnd {
    fn new(now: Instant) -> Self {
        // A ring in which no request crosses the end.
        let buffer = || smol::SocketBuffer::new(vec![0; 600 * REQUEST.len()]);
        let mut socket = smol::Socket::new(buffer(), buffer());
        socket.set_tsval_generator(Some(|| 1));
        socket.set_nagle_enabled(false);
        socket.listen(PORTS[1]).expect("a port");
        Self::new(now, SERVER, 0, socket)
    }

    fn serve(&mut self, now: Instant, packet: &[u8], take: impl FnMut(&[u8])) {
        self.arrives(&[packet]);
        // One packet in, then what is to be sent, as its manual has it.
        self.read_one(now);
        let socket = self.socket();
        if socket.can_recv() {
            let len = socket.recv(|bytes| (bytes.len(), bytes.len())).expect("established");
            assert_eq!(len, REQUEST.len());
            socket.send_slice(&REPLY).expect("established");
        }
        self.write(now);
        self.sent(take);
    }
}

/// The same by smoltcp.
pub(crate) fn request_reply_smoltcp(count: u64) {
    replay::<SmoltcpEnd>(count);
}
