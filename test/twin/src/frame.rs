//! Frames as a script describes them, byte by byte: also those that no kernel would send.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use anyhow::{Context as _, Result, bail};

/// The link-layer addresses of both links: the host's end and the peer's.
pub const HOST_MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 1];
/// The peer's.
pub const PEER_MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 2];

const ETH_LEN: usize = 14;
const UDP: u8 = 17;
const ICMP: u8 = 1;
const ICMP6: u8 = 58;
const FRAGMENT: u8 = 44;

/// The words of a step, `key=value` each.
#[derive(Clone, Copy)]
struct Words<'a>(&'a [&'a str]);

impl<'a> Words<'a> {
    fn text(&self, key: &str) -> Option<&'a str> {
        self.0
            .iter()
            .find_map(|word| word.split_once('=').filter(|(name, _)| *name == key).map(|(_, value)| value))
    }

    fn or<T: FromStr>(&self, key: &str, usual: T) -> Result<T> {
        match self.text(key) {
            Some(text) => text.parse().ok().with_context(|| format!("{key}={text}")),
            None => Ok(usual),
        }
    }
}

/// The payload with a number: of `len` bytes, from its first one on the number itself.
#[must_use]
pub fn payload(id: u32, len: usize) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(u64::from(id));
    let mut bytes: Vec<u8> = id.to_be_bytes().into_iter().take(len).collect();
    bytes.extend((bytes.len()..len).map(|_| rng.u8(..)));
    bytes
}

fn sum(bytes: &[u8], mut sum: u32) -> u32 {
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}

fn folded(value: u32) -> u16 {
    !(((value & 0xffff) + (value >> 16)) as u16)
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn pseudo(source: IpAddr, destination: IpAddr, protocol: u8, len: usize) -> u32 {
    let addresses = sum(&octets(destination), sum(&octets(source), 0));
    sum(&(len as u32).to_be_bytes(), addresses + u32::from(protocol))
}

/// The UDP header with the payload, with mistakes as asked for.
fn udp(words: Words<'_>, source: IpAddr, destination: IpAddr) -> Result<Vec<u8>> {
    let (sport, dport) = (words.or("sport", 4000_u16)?, words.or("dport", 7000_u16)?);
    let payload = payload(words.or("id", 0)?, words.or("len", 20)?);
    let len = (8 + payload.len() as i64 + words.or("udplen", 0_i64)?) as u16;
    let mut bytes = Vec::with_capacity(8 + payload.len());
    for field in [sport, dport, len, 0] {
        bytes.extend(field.to_be_bytes());
    }
    bytes.extend(payload);
    // The checksum is over what the header says.
    let covered = bytes.len().min(usize::from(len));
    let sum = folded(sum(&bytes[..covered], pseudo(source, destination, UDP, usize::from(len))));
    let sum = match words.text("udpsum") {
        None => sum.max(u16::from(sum == 0) * 0xffff),
        Some("zero") => 0,
        Some("bad") => sum ^ 0x0101,
        Some(other) => bail!("udpsum={other}"),
    };
    bytes[6..8].copy_from_slice(&sum.to_be_bytes());
    Ok(bytes)
}

fn ipv4_options(words: Words<'_>) -> Result<Vec<u8>> {
    Ok(match words.text("opts") {
        None => Vec::new(),
        Some("nop") => vec![1, 1, 1, 0],
        Some("alert") => vec![148, 4, 0, 0],
        Some("record") => vec![7, 7, 4, 0, 0, 0, 0, 0],
        Some("stamp") => vec![68, 8, 5, 0, 0, 0, 0, 0],
        Some("source-route") => vec![131, 7, 8, 10, 9, 0, 2, 0],
        Some("broken") => vec![7, 40, 4, 0],
        Some(other) => bail!("opts={other}"),
    })
}

/// IPv4 packets with that content: one, or its fragments.
fn ipv4(
    words: Words<'_>,
    source: Ipv4Addr,
    destination: Ipv4Addr,
    protocol: u8,
    content: &[u8],
) -> Result<Vec<Vec<u8>>> {
    let options = ipv4_options(words)?;
    let piece = match words.or("frag", 0_usize)? {
        0 => content.len().max(1),
        piece => piece.next_multiple_of(8),
    };
    let pieces = if content.is_empty() { vec![content] } else { content.chunks(piece).collect() };
    let mut packets = Vec::new();
    for (at, part) in pieces.iter().enumerate() {
        let more = at + 1 < pieces.len();
        let flags = match words.text("flags") {
            Some("df") => 0x4000,
            Some("evil") => 0x8000,
            Some("more") => 0x2000,
            _ => 0,
        };
        let fragment = (at * piece / 8) as u16 | u16::from(more) << 13 | flags;
        let header = 20 + options.len();
        let len = (header as i64 + part.len() as i64 + words.or("iplen", 0_i64)?) as u16;
        let mut bytes = vec![0x40 | (header / 4) as u8, words.or("tos", 0)?];
        for field in [len, words.or("ipid", 1)?, fragment] {
            bytes.extend(field.to_be_bytes());
        }
        bytes.extend([words.or("ttl", 64)?, protocol, 0, 0]);
        bytes.extend(source.octets());
        bytes.extend(destination.octets());
        bytes.extend(&options);
        let sum = folded(sum(&bytes, 0)) ^ u16::from(words.text("ipsum") == Some("bad"));
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        bytes.extend(*part);
        packets.push(bytes);
    }
    Ok(packets)
}

/// IPv6 extension headers, with what follows each: the first one's number, and the bytes.
fn extensions(words: Words<'_>, next: u8) -> Result<(u8, Vec<u8>)> {
    Ok(match words.text("ext") {
        None => (next, Vec::new()),
        Some("hop") => (0, vec![next, 0, 1, 4, 0, 0, 0, 0]),
        Some("alert") => (0, vec![next, 0, 5, 2, 0, 0, 1, 0]),
        Some("dest") => (60, vec![next, 0, 1, 4, 0, 0, 0, 0]),
        Some("route") => (43, vec![next, 0, 253, 0, 0, 0, 0, 0]),
        Some("atom") => (FRAGMENT, vec![next, 0, 0, 0, 0, 0, 0, 9]),
        Some("unknown") => (60, vec![next, 0, 0xbf, 4, 0, 0, 0, 0]),
        Some(other) => bail!("ext={other}"),
    })
}

fn ipv6(
    words: Words<'_>,
    source: Ipv6Addr,
    destination: Ipv6Addr,
    protocol: u8,
    content: &[u8],
) -> Result<Vec<Vec<u8>>> {
    let piece = words.or("frag", 0_usize)?.next_multiple_of(8);
    let pieces: Vec<&[u8]> =
        if piece == 0 || content.is_empty() { vec![content] } else { content.chunks(piece).collect() };
    let mut packets = Vec::new();
    for (at, part) in pieces.iter().enumerate() {
        let mut inner = Vec::new();
        let mut next = protocol;
        if piece > 0 {
            next = FRAGMENT;
            inner.extend([protocol, 0]);
            inner.extend((((at * piece) as u16) | u16::from(at + 1 < pieces.len())).to_be_bytes());
            inner.extend(words.or("ipid", 1_u32)?.to_be_bytes());
        }
        let (first, mut bytes) = extensions(words, next)?;
        bytes.extend(inner);
        bytes.extend(*part);
        let tos = u32::from(words.or("tos", 0_u8)?);
        let mut packet = (6 << 28 | tos << 20 | words.or("flow", 0_u32)?).to_be_bytes().to_vec();
        packet.extend(((bytes.len() as i64 + words.or("iplen", 0_i64)?) as u16).to_be_bytes());
        packet.extend([first, words.or("ttl", 64)?]);
        packet.extend(source.octets());
        packet.extend(destination.octets());
        packet.extend(bytes);
        packets.push(packet);
    }
    Ok(packets)
}

/// An error message: that the datagram `quoted` from the host could not be delivered.
fn icmp(words: Words<'_>, source: IpAddr, destination: IpAddr) -> Result<(u8, Vec<u8>)> {
    let from: IpAddr = words.or("qsrc", destination)?;
    let to: IpAddr = words.or("qdst", source)?;
    let mut quoted = Vec::new();
    for field in [words.or("qsport", 7000_u16)?, words.or("qdport", 4000_u16)?, 8 + 8, 0] {
        quoted.extend(field.to_be_bytes());
    }
    quoted.extend(payload(0, 8));
    let none = Words(&[]);
    let packet = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => ipv4(none, from, to, UDP, &quoted)?,
        (IpAddr::V6(from), IpAddr::V6(to)) => ipv6(none, from, to, UDP, &quoted)?,
        _ => bail!("addresses of two families"),
    }
    .concat();
    let mut bytes = vec![words.or("type", 3)?, words.or("code", 3)?, 0, 0];
    bytes.extend(words.or("info", 0_u32)?.to_be_bytes());
    bytes.extend(packet);
    let start = if source.is_ipv6() { pseudo(source, destination, ICMP6, bytes.len()) } else { 0 };
    let sum = folded(sum(&bytes, start));
    bytes[2..4].copy_from_slice(&sum.to_be_bytes());
    Ok((if source.is_ipv6() { ICMP6 } else { ICMP }, bytes))
}

fn mac_of(words: Words<'_>, destination: IpAddr) -> Result<[u8; 6]> {
    Ok(match (words.text("mac"), destination) {
        (Some("broadcast"), _) => [0xff; 6],
        (Some("other"), _) => [0x02, 0, 0, 0, 0, 9],
        (Some("multicast"), IpAddr::V4(address)) => {
            let [_, b, c, d] = address.octets();
            [0x01, 0, 0x5e, b & 0x7f, c, d]
        }
        (Some("multicast"), IpAddr::V6(address)) => {
            let [.., a, b, c, d] = address.octets();
            [0x33, 0x33, a, b, c, d]
        }
        (None, _) => HOST_MAC,
        (Some(other), _) => bail!("mac={other}"),
    })
}

/// What `send dst=ADDRESS dport=PORT id=NUMBER len=BYTES gso=BYTES` sends, and where.
#[derive(Debug)]
pub struct Sent {
    /// The bytes of the datagram, or of all of them.
    pub payload: Vec<u8>,
    /// The length of each datagram, if it leaves as one frame of several (UDP_SEGMENT, linux/udp.h); else 0.
    pub segment_len: u16,
    /// The destination.
    pub to: SocketAddr,
}

/// The datagram or datagrams of such a step.
///
/// # Errors
/// A word with no meaning.
pub fn datagram(step: &[&str]) -> Result<Sent> {
    let words = Words(step);
    let to = SocketAddr::new(words.or("dst", Ipv4Addr::new(10, 9, 0, 1).into())?, words.or("dport", 7000)?);
    let payload = payload(words.or("id", 0)?, words.or("len", 20)?);
    Ok(Sent { payload, segment_len: words.or("gso", 0)?, to })
}

/// The frames that a step describes, in the order in which they are sent. The first word says of which kind they are.
///
/// # Errors
/// A word with no meaning.
pub fn frames(step: &[&str]) -> Result<Vec<Vec<u8>>> {
    let words = Words(&step[1..]);
    let source: IpAddr = words.or("src", Ipv4Addr::new(10, 9, 0, 2).into())?;
    let destination: IpAddr = words.or("dst", Ipv4Addr::new(10, 9, 0, 1).into())?;
    let (protocol, content) = match step[0] {
        "udp" => (UDP, udp(words, source, destination)?),
        "icmp" => icmp(words, source, destination)?,
        other => bail!("no kind of frame: {other}"),
    };
    let (ethertype, mut packets) = match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            (0x0800_u16, ipv4(words, source, destination, protocol, &content)?)
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            (0x86dd, ipv6(words, source, destination, protocol, &content)?)
        }
        _ => bail!("addresses of two families"),
    };
    match words.text("order") {
        None => {}
        Some("reverse") => packets.reverse(),
        Some("twice") => packets.extend(packets.clone()),
        Some("no-first") => drop(packets.remove(0)),
        Some("no-last") => drop(packets.pop()),
        Some(other) => bail!("order={other}"),
    }
    let mac = mac_of(words, destination)?;
    let vlan: Option<u16> = words.text("vlan").map(str::parse).transpose()?;
    let framed = packets.into_iter().map(|packet| {
        let mut frame = Vec::with_capacity(ETH_LEN + 4 + packet.len());
        frame.extend(mac);
        frame.extend(PEER_MAC);
        if let Some(tag) = vlan {
            frame.extend(0x8100_u16.to_be_bytes());
            frame.extend(tag.to_be_bytes());
        }
        frame.extend(ethertype.to_be_bytes());
        frame.extend(packet);
        // Behind the packet: padding, as in a frame of least length.
        frame.resize(frame.len() + words.or("pad", 0).unwrap_or(0), 0xee);
        frame
    });
    Ok(framed.collect())
}
