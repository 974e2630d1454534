//! Frames of every kind, drawn from a seed.

use std::net::{Ipv4Addr, Ipv6Addr};

use fastrand::Rng;
use twinpath_wire::checksum::Sum;

/// Bytes of the virtio-net header, and its words (linux/virtio_net.h).
pub(super) const VNET_HEADER_LEN: usize = 10;
const NEEDS_CSUM: u8 = 1;
const DATA_VALID: u8 = 2;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;

const TCP: u8 = 6;
const UDP: u8 = 17;

/// Types that mean something to somebody, and the lengths that stand in their place (IEEE 802.3).
const TYPES: [u16; 22] = [
    0x0800, 0x0806, 0x86dd, 0x8847, 0x8848, 0x8863, 0x8864, 0x8035, 0x88cc, 0x8809, 0x8808, 0x888e, 0x88e7,
    0x88f7, 0x9000, 0x22f3, 0x88b5, 0x6558, 0x0000, 0x0026, 0x05dc, 0xffff,
];
/// Tags: of a customer, of a service (IEEE 802.1ad), and what was there before that.
const TAGS: [u16; 4] = [0x8100, 0x8100, 0x88a8, 0x9100];
/// Numbers of VLANs that are special, and two that are not.
const VLANS: [u16; 5] = [0, 1, 10, 2748, 4095];

/// A frame as a host sends it.
#[derive(Clone)]
pub(super) struct Frame {
    /// What it is.
    pub(super) what: String,
    /// In front of it: what its sender leaves to the device.
    pub(super) header: [u8; VNET_HEADER_LEN],
    pub(super) bytes: Vec<u8>,
    /// Whether the host's tunnel takes it, which puts it into a datagram.
    pub(super) in_tunnel: bool,
}

/// What a frame may be.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    /// The longest packet that its sender's interface takes, bytes.
    pub(super) mtu: usize,
    /// The longest packet that every interface takes.
    pub(super) mtu_min: usize,
    pub(super) super_frames: bool,
    pub(super) tunnels: bool,
}

/// The transport's checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Checksum {
    Right,
    Wrong,
    /// None, as UDP over IPv4 may have it.
    Absent,
    /// Left to the device: only the pseudo-header's sum is there.
    Open,
    /// Right, and said to be.
    Verified,
}

/// A packet behind the frame's header.
struct Packet {
    what: String,
    ethertype: u16,
    bytes: Vec<u8>,
    flags: u8,
    gso: u8,
    /// Bytes of payload in each packet of a super-frame.
    gso_size: u16,
    /// Where the headers of the super-frame end, where the checksum that is open begins, and where it goes from there; from the
    /// packet's first byte.
    headers_len: usize,
    start: usize,
    offset: u16,
}

impl Packet {
    fn new(what: String, ethertype: u16, bytes: Vec<u8>) -> Self {
        Self { what, ethertype, bytes, flags: 0, gso: 0, gso_size: 0, headers_len: 0, start: 0, offset: 0 }
    }
}

/// A frame from one address to another.
pub(super) fn frame(random: &mut Rng, to: [u8; 6], from: [u8; 6], bounds: Bounds) -> Frame {
    let in_tunnel = bounds.tunnels && random.u32(0..6) == 0;
    // What a tunnel over IPv4 has in front of a packet.
    let [mtu, mtu_min] = [bounds.mtu, bounds.mtu_min].map(|mtu| if in_tunnel { mtu - 50 } else { mtu });
    let packet = packet(random, Bounds { mtu, mtu_min, ..bounds }, in_tunnel);
    let tags = if random.u32(0..3) == 0 { random.usize(1..4) } else { 0 };
    let mut bytes = [to, from].concat();
    let mut what = String::new();
    for _ in 0..tags {
        let tag = TAGS[random.usize(..TAGS.len())];
        let control = u16::from(random.u8(0..8)) << 13
            | u16::from(random.bool()) << 12
            | VLANS[random.usize(..VLANS.len())];
        bytes.extend(tag.to_be_bytes());
        bytes.extend(control.to_be_bytes());
        what += &format!("{tag:04x}:{control:04x} ");
    }
    bytes.extend(packet.ethertype.to_be_bytes());
    let packet_at = bytes.len();
    bytes.extend(&packet.bytes);
    let mut header = [0; VNET_HEADER_LEN];
    (header[0], header[1]) = (packet.flags, packet.gso);
    let at = |of: usize| ((packet_at + of) as u16).to_ne_bytes();
    if packet.gso != 0 {
        header[2..4].copy_from_slice(&at(packet.headers_len));
        header[4..6].copy_from_slice(&packet.gso_size.to_ne_bytes());
    }
    if packet.flags & NEEDS_CSUM != 0 {
        header[6..8].copy_from_slice(&at(packet.start));
        header[8..10].copy_from_slice(&packet.offset.to_ne_bytes());
    }
    what += &packet.what;
    let tunnel = if in_tunnel { "in a tunnel: " } else { "" };
    Frame { what: format!("{tunnel}{what}, {} bytes", bytes.len()), header, bytes, in_tunnel }
}

/// A length of up to `max`: any, a short one, or one at the end.
fn len(random: &mut Rng, max: usize) -> usize {
    match random.u32(0..8) {
        0 => random.usize(0..=max.min(4)),
        1 | 2 => random.usize(0..=max.min(100)),
        3 => max - random.usize(0..=max.min(5)),
        4..7 => random.usize(0..=max.min(1500)),
        _ => random.usize(0..=max),
    }
}

fn content(random: &mut Rng, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    random.fill(&mut bytes);
    bytes
}

fn packet(random: &mut Rng, bounds: Bounds, in_tunnel: bool) -> Packet {
    // A bridge does not look at how long the packets of a super-frame are; the switch does where it has to cut one, in a tunnel.
    let mtu_of_packets = if in_tunnel { bounds.mtu_min } else { bounds.mtu };
    match random.u32(0..16) {
        0..3 => plain(random, bounds),
        3 => open_anywhere(random, bounds.mtu),
        4 => fragment(random, bounds.mtu),
        5 => damaged(random, bounds.mtu),
        6..11 if bounds.super_frames => super_frame(random, mtu_of_packets),
        _ => whole(random, bounds.mtu),
    }
}

/// Of any type, and of no sense.
fn plain(random: &mut Rng, bounds: Bounds) -> Packet {
    let ethertype = if random.bool() { TYPES[random.usize(..TYPES.len())] } else { random.u16(..) };
    // A few bytes more than there may be, as far as the sender's interface takes them.
    let len = if random.u32(0..4) == 0 {
        (bounds.mtu_min - 4 + random.usize(0..9)).min(bounds.mtu)
    } else {
        len(random, bounds.mtu + 4)
    };
    let len = len.max(least(ethertype));
    Packet::new(format!("type {ethertype:04x}"), ethertype, content(random, len))
}

/// Bytes that a packet of this type must have: the bridge's netfilter drops a session's frame of PPPoE that has no header for PPP.
const fn least(ethertype: u16) -> usize {
    if ethertype == 0x8864 { 8 } else { 0 }
}

/// Of any type, with a checksum left open anywhere.
fn open_anywhere(random: &mut Rng, mtu: usize) -> Packet {
    // Behind tags, the bridge takes a type of 0 for none if a checksum is open.
    let ethertype = TYPES[random.usize(..TYPES.len())].max(1);
    let len = len(random, mtu).max(4).max(least(ethertype));
    let start = random.usize(0..=(len - 2).min(200));
    let offset = random.usize(0..=(len - 2 - start).min(40)) as u16;
    let bytes = content(random, len);
    let what = format!("type {ethertype:04x} with a checksum open from {start} at {offset}");
    Packet { flags: NEEDS_CSUM, start, offset, ..Packet::new(what, ethertype, bytes) }
}

/// Addresses and ports: few, so that flows go on.
struct Flow {
    is_ipv6: bool,
    hosts: [u8; 2],
    ports: [u16; 2],
}

impl Flow {
    fn draw(random: &mut Rng) -> Self {
        let ports = [random.u16(5000..5003), [7, 53, 4789, 6081, 9000][random.usize(..5)]];
        Self { is_ipv6: random.bool(), hosts: [random.u8(1..4), random.u8(4..7)], ports }
    }

    fn v4(&self) -> [Ipv4Addr; 2] {
        self.hosts.map(|host| Ipv4Addr::new(10, 77, 0, host))
    }

    fn v6(&self) -> [Ipv6Addr; 2] {
        self.hosts.map(|host| Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, host.into()))
    }

    fn pseudo(&self, protocol: u8, len: usize) -> Sum {
        if self.is_ipv6 {
            let [from, to] = self.v6();
            Sum::ZERO.pseudo_ipv6(from, to, protocol, len as u32)
        } else {
            let [from, to] = self.v4();
            Sum::ZERO.pseudo_ipv4(from, to, protocol, len as u16)
        }
    }
}

/// An IP packet, and where its payload begins. `fragment` is the field with flags and offset.
fn ip(
    random: &mut Rng,
    flow: &Flow,
    protocol: u8,
    payload: &[u8],
    more: bool,
    fragment: u16,
) -> (Vec<u8>, usize) {
    let mut bytes = Vec::new();
    if flow.is_ipv6 {
        let extension = more.then_some([protocol, 0, 1, 4, 0, 0, 0, 0]);
        let parts = (fragment != 0).then(|| {
            let [a, b] = ((fragment & 0x1fff) << 3 | fragment >> 13 & 1).to_be_bytes();
            [protocol, 0, a, b, 0, 0, 0x12, random.u8(..)]
        });
        let further: Vec<u8> = parts.or(extension).into_iter().flatten().collect();
        let next = if parts.is_some() {
            44
        } else if extension.is_some() {
            60
        } else {
            protocol
        };
        bytes.extend([0x60, random.u8(0..16), 0, 7]);
        bytes.extend(((further.len() + payload.len()) as u16).to_be_bytes());
        bytes.extend([next, 64]);
        flow.v6().iter().for_each(|address| bytes.extend(address.octets()));
        bytes.extend(further);
    } else {
        // A router alert, or nothing.
        let options: &[u8] = if more { &[0x94, 4, 0, 0] } else { &[] };
        let header_len = 20 + options.len();
        bytes.extend([0x40 | (header_len / 4) as u8, random.u8(0..8)]);
        bytes.extend(((header_len + payload.len()) as u16).to_be_bytes());
        bytes.extend(random.u16(..).to_be_bytes());
        bytes.extend(fragment.to_be_bytes());
        bytes.extend([64, protocol, 0, 0]);
        flow.v4().iter().for_each(|address| bytes.extend(address.octets()));
        bytes.extend(options);
        let checksum = Sum::ZERO.bytes(&bytes).checksum();
        bytes[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
    let at = bytes.len();
    bytes.extend(payload);
    (bytes, at)
}

/// A TCP segment or UDP datagram, and the length of its header.
fn transport(
    random: &mut Rng,
    flow: &Flow,
    protocol: u8,
    payload_len: usize,
    checksum: Checksum,
) -> (Vec<u8>, usize) {
    let mut bytes = Vec::new();
    flow.ports.iter().for_each(|port| bytes.extend(port.to_be_bytes()));
    let (header_len, field) = if protocol == TCP {
        // Time stamps, or nothing.
        let options: &[u8] = if random.bool() { &[1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8] } else { &[] };
        bytes.extend(random.u32(..).to_be_bytes());
        bytes.extend(random.u32(..).to_be_bytes());
        // ACK, with FIN, PSH, ECE or CWR at times.
        let flags = 0x10 | [0, 1, 8, 0x40, 0x80][random.usize(..5)];
        bytes.extend([(((20 + options.len()) / 4) << 4) as u8, flags, 0x20, 0, 0, 0, 0, 0]);
        bytes.extend(options);
        (20 + options.len(), 16)
    } else {
        bytes.extend(((8 + payload_len) as u16).to_be_bytes());
        bytes.extend([0, 0]);
        (8, 6)
    };
    bytes.extend(content(random, payload_len));
    let pseudo = flow.pseudo(protocol, bytes.len());
    let right = pseudo.bytes(&bytes).checksum();
    let sum = match checksum {
        Checksum::Right | Checksum::Verified => right,
        Checksum::Wrong => right ^ 1 << random.u32(0..16),
        Checksum::Absent => 0,
        Checksum::Open => pseudo.fold(),
    };
    bytes[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    (bytes, header_len)
}

const fn field_of(protocol: u8) -> u16 {
    if protocol == TCP { 16 } else { 6 }
}

fn name(flow: &Flow, protocol: u8) -> String {
    format!("{} over IPv{}", if protocol == TCP { "TCP" } else { "UDP" }, if flow.is_ipv6 { 6 } else { 4 })
}

const fn type_of(flow: &Flow) -> u16 {
    if flow.is_ipv6 { 0x86dd } else { 0x0800 }
}

/// A segment or datagram of one packet, perhaps with bytes behind it.
fn whole(random: &mut Rng, mtu: usize) -> Packet {
    let flow = Flow::draw(random);
    let protocol = if random.bool() { TCP } else { UDP };
    let checksums = [
        Checksum::Right,
        Checksum::Wrong,
        Checksum::Absent,
        Checksum::Open,
        Checksum::Open,
        Checksum::Verified,
    ];
    let checksum = checksums[random.usize(..checksums.len())];
    let more = random.u32(0..6) == 0;
    // The longest headers: IPv6 with an extension header, TCP with time stamps.
    let payload_len = len(random, mtu.min(65_535) - 80);
    let (segment, _) = transport(random, &flow, protocol, payload_len, checksum);
    let (mut bytes, start) = ip(random, &flow, protocol, &segment, more, 0);
    // Behind a checksum that is open there is nothing: the device would take it into the sum.
    let trailer = if checksum == Checksum::Open || random.u32(0..8) > 0 { 0 } else { random.usize(1..50) };
    let trailer = trailer.min(mtu - bytes.len());
    bytes.extend(content(random, trailer));
    let what = format!(
        "{}, checksum {checksum:?}, further headers: {more}, {trailer} bytes behind",
        name(&flow, protocol)
    );
    let flags = match checksum {
        Checksum::Open => NEEDS_CSUM,
        Checksum::Verified => DATA_VALID,
        _ => 0,
    };
    Packet { flags, start, offset: field_of(protocol), ..Packet::new(what, type_of(&flow), bytes) }
}

/// A segment or datagram that the device is to cut.
fn super_frame(random: &mut Rng, mtu: usize) -> Packet {
    let flow = Flow::draw(random);
    let protocol = if random.u32(0..3) > 0 { TCP } else { UDP };
    let room = mtu.min(65_535) - 80;
    let gso_size = match random.u32(0..4) {
        0 => random.usize(48..=room.min(200)),
        1 => room,
        _ => random.usize(48..=room),
    };
    // At most as many packets as the kernel makes of a datagram.
    let max = (65_535 - 200).min(gso_size * 60);
    let payload_len = match random.u32(0..3) {
        0 => max,
        1 => (gso_size * random.usize(1..4)).min(max),
        _ => random.usize(1..=max),
    };
    let (segment, header_len) = transport(random, &flow, protocol, payload_len, Checksum::Open);
    let more = random.u32(0..8) == 0;
    let (bytes, start) = ip(random, &flow, protocol, &segment, more, 0);
    let gso = match (protocol, flow.is_ipv6) {
        (UDP, _) => GSO_UDP_L4,
        (_, true) => GSO_TCPV6,
        (_, false) => GSO_TCPV4,
    };
    let ecn = if protocol == TCP && segment[13] & 0x80 != 0 { GSO_ECN } else { 0 };
    let what = format!("{} in packets of {gso_size}, further headers: {more}", name(&flow, protocol));
    Packet {
        flags: NEEDS_CSUM,
        gso: gso | ecn,
        gso_size: gso_size as u16,
        headers_len: start + header_len,
        start,
        offset: field_of(protocol),
        ..Packet::new(what, type_of(&flow), bytes)
    }
}

/// A fragment: the first, one in the middle, or the last.
fn fragment(random: &mut Rng, mtu: usize) -> Packet {
    let flow = Flow::draw(random);
    let protocol = if random.bool() { TCP } else { UDP };
    let field = [0x2000, 0x2000 | random.u16(1..4000), random.u16(1..4000)][random.usize(..3)];
    let len = len(random, mtu.min(65_535) - 80);
    let payload = content(random, len);
    let (bytes, _) = ip(random, &flow, protocol, &payload, false, field);
    Packet::new(format!("a fragment {field:04x} of {}", name(&flow, protocol)), type_of(&flow), bytes)
}

/// A packet of which a few bytes of the headers are others, or which is cut off.
fn damaged(random: &mut Rng, mtu: usize) -> Packet {
    let mut packet = whole(random, mtu);
    let len = packet.bytes.len();
    if random.bool() {
        packet.bytes.truncate(random.usize(0..=len));
    } else {
        for _ in 0..random.usize(1..4) {
            packet.bytes[random.usize(..len.min(60))] ^= 1 << random.u32(0..8);
        }
    }
    // What is open may be where nothing is.
    if packet.start + usize::from(packet.offset) + 2 > packet.bytes.len() {
        packet.flags = 0;
    }
    packet.what = format!("damaged: {}", packet.what);
    packet
}
