//! What TCP does for a request of 100 bytes and its reply of as many, on an established connection with timestamps:
//! the segment is read, the service answers where the request lies, the reply is written. Checksums are left out, as
//! interfaces do them. The reply acknowledges the request, and the next request the reply.
//!
//! The same by another project's stack is counted beside it; its figure contains the IP header, which it cannot be
//! asked to leave out.

use std::hint::black_box;
use std::net::{Ipv4Addr, SocketAddr};

use smoltcp::iface::{Config as SmolConfig, Interface, SocketSet};
use smoltcp::phy::{ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp as smol;
use smoltcp::wire::{HardwareAddress, IpCidr};
use twinpath_tcp::{
    Config, ConnectionId, Host, Options, Outgoing, Segment, Sink, Stream, Tcp, Tuple, Unknown,
};
use twinpath_time::{Duration, Instant};
use twinpath_wire::tcp::{self, Flags, Header, Timestamps, Writer};

const REQUEST: [u8; 100] = [7; 100];
const REPLY: [u8; 100] = [9; 100];
/// Between a reply and the next request.
const PAUSE: Duration = Duration::from_micros(50);
const IP_HEADER_LEN: usize = 20;
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
    replies: u64,
}

impl Client {
    fn new() -> Self {
        let now = Instant::from_nanos(1 << 40);
        Self { now, next: 1000, acknowledgement: 0, echo: 0, packet: Vec::with_capacity(2048), replies: 0 }
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
        let len = IP_HEADER_LEN + tcp::HEADER_LEN + options.len() + payload.len();
        self.packet.resize(len, 0);
        let [high, low] = (len as u16).to_be_bytes();
        self.packet[..12].copy_from_slice(&[0x45, 0, high, low, 0, 0, 0x40, 0, 64, 6, 0, 0]);
        self.packet[12..16].copy_from_slice(&CLIENT);
        self.packet[16..20].copy_from_slice(&SERVER);
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

    /// The request behind the one before. Little is done for it, as it is counted with the server's work.
    fn ask_again(&mut self) {
        self.now += PAUSE;
        let Timestamps { value, echo } = self.stamp();
        let fields = [(4, self.next), (8, self.acknowledgement), (24, value), (28, echo)];
        for (at, field) in fields {
            let place = self.packet[IP_HEADER_LEN + at..].first_chunk_mut().expect("a whole segment");
            *place = field.to_be_bytes();
        }
        self.next = self.next.wrapping_add(REQUEST.len() as u32);
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
        assert_eq!(segment.len(), 32 + REPLY.len());
        let field = |at: usize| u32::from_be_bytes(*segment[at..].first_chunk().expect("a whole segment"));
        self.acknowledgement = field(4).wrapping_add(REPLY.len() as u32);
        self.echo = field(24);
        self.replies += 1;
    }
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
        if let Some(room) = stream.reserve_exactly(REPLY.len()) {
            room.copy_from_slice(&REPLY);
            stream.commit_bytes(REPLY.len());
        }
        stream.consume(stream.received().len());
    }
}

/// Takes the client's segment to the engine.
fn serve(tcp: &mut Tcp, tuple: &Tuple, client: &Client, buffer: &mut Buffer) {
    let view = tcp::Segment::parse(black_box(&client.packet[IP_HEADER_LEN..])).expect("a whole segment");
    tcp.segment(client.now, tuple, &Segment::new(&view, false, 0), &mut Replies, buffer);
}

/// So many requests, one after the other.
pub(crate) fn request_reply(count: u64) {
    let server = SocketAddr::from((SERVER, PORTS[1]));
    let tuple = Tuple::new(server, SocketAddr::from((CLIENT, PORTS[0])));
    let mut tcp = Tcp::new(Config::default(), Unknown::Reset, [1, 2]);
    let listener = tcp.listen(server, 8, Options { no_delay: true, ..Options::default() });
    let (mut client, mut buffer) = (Client::new(), Buffer { bytes: [0; 2048], len: 0 });
    client.syn();
    serve(&mut tcp, &tuple, &client, &mut buffer);
    client.take_answer(&buffer.bytes[..buffer.len]);
    client.segment(&[]);
    serve(&mut tcp, &tuple, &client, &mut buffer);
    assert!(tcp.accept(listener).is_some(), "established");
    client.segment(&REQUEST);
    for _ in 0..count {
        serve(&mut tcp, &tuple, &client, &mut buffer);
        client.take_reply(black_box(&buffer.bytes[..buffer.len]));
        while tcp.next_event().is_some() {}
        client.ask_again();
    }
    assert_eq!(client.replies, count, "each request was answered at once");
}

/// A device with one packet in and one out.
struct Wire {
    incoming: Vec<u8>,
    arrived: bool,
    outgoing: Vec<u8>,
}

struct In<'a>(&'a [u8]);
struct Out<'a>(&'a mut Vec<u8>);

impl RxToken for In<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(self.0)
    }
}

impl TxToken for Out<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, write: F) -> R {
        self.0.resize(len, 0);
        write(self.0)
    }
}

impl Device for Wire {
    type RxToken<'a> = In<'a>;
    type TxToken<'a> = Out<'a>;

    fn receive(&mut self, _: smoltcp::time::Instant) -> Option<(In<'_>, Out<'_>)> {
        std::mem::take(&mut self.arrived).then_some((In(&self.incoming), Out(&mut self.outgoing)))
    }

    fn transmit(&mut self, _: smoltcp::time::Instant) -> Option<Out<'_>> {
        Some(Out(&mut self.outgoing))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = 1500;
        capabilities.checksum = ChecksumCapabilities::ignored();
        capabilities
    }
}

/// The other stack, with one connection.
struct Other {
    wire: Wire,
    interface: Interface,
    sockets: SocketSet<'static>,
    handle: smoltcp::iface::SocketHandle,
}

impl Other {
    fn new(client: &Client) -> Self {
        let mut wire = Wire { incoming: Vec::new(), arrived: false, outgoing: Vec::new() };
        let config = SmolConfig::new(HardwareAddress::Ip);
        let mut interface = Interface::new(config, &mut wire, at(client));
        interface.update_ip_addrs(|addresses| {
            addresses.push(IpCidr::new(Ipv4Addr::from(SERVER).into(), 24)).expect("room for an address");
        });
        // A ring in which no request crosses the end.
        let buffer = || smol::SocketBuffer::new(vec![0; 600 * REQUEST.len()]);
        let mut socket = smol::Socket::new(buffer(), buffer());
        socket.set_tsval_generator(Some(|| 1));
        socket.set_nagle_enabled(false);
        socket.listen(PORTS[1]).expect("a port");
        let mut sockets = SocketSet::new(Vec::new());
        let handle = sockets.add(socket);
        Self { wire, interface, sockets, handle }
    }

    fn poll(&mut self, client: &Client) {
        self.wire.incoming.clone_from(&client.packet);
        self.wire.arrived = true;
        // One packet in, then what is to be sent, as its manual has it.
        self.interface.poll_ingress_single(at(client), &mut self.wire, &mut self.sockets);
        let socket = self.sockets.get_mut::<smol::Socket<'_>>(self.handle);
        if socket.can_recv() {
            let len = socket.recv(|bytes| (bytes.len(), bytes.len())).expect("established");
            assert_eq!(len, REQUEST.len());
            socket.send_slice(&REPLY).expect("established");
        }
        self.interface.poll_egress(at(client), &mut self.wire, &mut self.sockets);
    }

    fn sent(&self) -> &[u8] {
        &self.wire.outgoing[IP_HEADER_LEN..]
    }
}

fn at(client: &Client) -> smoltcp::time::Instant {
    smoltcp::time::Instant::from_micros((client.now.as_nanos() / 1000) as i64)
}

/// The same by smoltcp.
pub(crate) fn request_reply_smoltcp(count: u64) {
    let mut client = Client::new();
    let mut other = Other::new(&client);
    client.syn();
    other.poll(&client);
    client.take_answer(other.sent());
    client.segment(&[]);
    other.poll(&client);
    client.segment(&REQUEST);
    for _ in 0..count {
        other.poll(&client);
        client.take_reply(other.sent());
        client.ask_again();
    }
    assert_eq!(client.replies, count, "each request was answered at once");
}
