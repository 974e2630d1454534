//! A client that sends fragmented datagrams: fragments in any order, some of them twice, two datagrams interleaved,
//! and whole datagrams of the same flow in between. It counts how often each is answered, and compares the answers
//! with what it sent.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use twinpath_load::PAYLOAD_MAX;
use twinpath_socket_load::SocketError;
use twinpath_sys::packet_socket::interface_index;
use twinpath_sys::udp_socket::enlarge_buffers;
use twinpath_sys::{PacketSocket, clock};
use twinpath_time::{Duration, Instant};
use twinpath_wire::checksum::Sum;
use twinpath_wire::{EtherType, Mac, eth, ipv4, ipv6, udp};

/// Most fragments of one datagram: the largest UDP datagram over Ethernet.
pub const FRAGMENTS_MAX: usize = 45;

/// Bytes after the IP header in a frame of 1500 bytes, in units of fragment offsets (8 bytes): after an IPv4 header
/// of 20, or an IPv6 header of 40 and a fragment header of 8.
const UNITS_MAX_V4: usize = (1500 - ipv4::HEADER_LEN) / 8;
const UNITS_MAX_V6: usize = (1500 - ipv6::HEADER_LEN - FRAGMENT_HEADER_LEN) / 8;

/// Length of the fragment header (RFC 8200, 4.5).
const FRAGMENT_HEADER_LEN: usize = 8;

/// Two fragmented datagrams, then a whole one. Interleaving only two keeps the fragments of one datagram within the
/// distance that the kernel accepts (`net.ipv4.ipfrag_max_dist`, 64).
const FRAGMENTED_PER_GROUP: u64 = 2;

/// An answer is missing after this time. A second answer that comes later than this after the last datagram is not
/// seen.
const ANSWER_DEADLINE: Duration = Duration::from_secs(2);
const STRAGGLER_WAIT: Duration = Duration::from_millis(200);

/// The datagrams of the client, and their target.
#[derive(Clone, Copy, Debug)]
pub struct FragmentsConfig<'a> {
    /// The local interface that leads to the server.
    pub interface: &'a str,
    /// The server's link-layer address.
    pub mac: [u8; 6],
    /// The server's address and port.
    pub target: SocketAddr,
    /// How many fragmented datagrams to send.
    pub datagrams: u64,
    /// The seed of all choices.
    pub seed: u64,
}

/// The result. Only fragmented datagrams count, except in `whole_*`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FragmentsOutcome {
    /// Fragmented datagrams sent.
    pub sent: u64,
    /// Frames sent for them, duplicates included.
    pub frames: u64,
    /// Those answered exactly once, with the right bytes.
    pub answered_once: u64,
    /// Those answered more than once.
    pub answered_again: u64,
    /// Those not answered.
    pub missing: u64,
    /// Answers, to any datagram, whose bytes were wrong.
    pub corrupt: u64,
    /// Whole datagrams sent.
    pub whole_sent: u64,
    /// Those answered exactly once.
    pub whole_answered_once: u64,
}

/// Runs the client on the calling thread, in its network namespace.
///
/// # Errors
/// A socket could not be opened, or the interface has no link-layer address. Missing answers are counted instead.
pub fn ask_in_fragments(config: &FragmentsConfig<'_>) -> Result<FragmentsOutcome, SocketError> {
    let mut client = Client::open(config)?;
    let groups = config.datagrams.div_ceil(FRAGMENTED_PER_GROUP);
    for group in 0..groups {
        client.send_group(group)?;
        client.collect(clock::now() + ANSWER_DEADLINE, true)?;
    }
    client.collect(clock::now() + STRAGGLER_WAIT, false)?;
    Ok(client.outcome())
}

/// A seeded sequence of choices (splitmix64).
struct Choices(u64);

impl Choices {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number from `from` to `to`, both included.
    fn within(&mut self, from: usize, to: usize) -> usize {
        from + (self.next() % (to - from + 1) as u64) as usize
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.within(0, at));
        }
    }
}

/// The payload of datagram `id`: its number, then bytes derived from it and the seed.
fn payload(seed: u64, id: u64, len: usize) -> Vec<u8> {
    let mut bytes = Choices(seed ^ id.rotate_left(32));
    let mut payload = id.to_be_bytes().to_vec();
    while payload.len() < len {
        payload.extend(bytes.next().to_be_bytes());
    }
    payload.truncate(len);
    payload
}

/// Start and end of the fragments of an IP payload: 2 to 45 of them, each but the last a multiple of 8 bytes long.
fn cut(choices: &mut Choices, units_max: usize) -> Vec<(usize, usize)> {
    let count = choices.within(2, FRAGMENTS_MAX);
    // One in four has the maximum length.
    let full = choices.within(0, 3) == 0;
    // The limit of IPv4, over IPv6 as well.
    let limit = PAYLOAD_MAX + udp::HEADER_LEN;
    let (mut pieces, mut at) = (Vec::with_capacity(count), 0);
    for number in 0..count {
        let units = if full { units_max } else { choices.within(1, units_max) };
        // The first fragment holds the UDP header and the datagram's number; the last one may be as short as a byte,
        // but not empty.
        let len = if number + 1 == count && number > 1 { choices.within(1, units * 8) } else { units * 8 };
        let end = (at + len).min(limit);
        if end > at {
            pieces.push((at, end));
        }
        at = end;
    }
    pieces
}

struct Client<'a> {
    config: &'a FragmentsConfig<'a>,
    choices: Choices,
    frames: PacketSocket,
    socket: UdpSocket,
    local: SocketAddr,
    ethernet: eth::Repr,
    /// Per datagram sent: its length, whether it was whole, and how often it was answered.
    sent: Vec<(usize, bool, u32)>,
    open: usize,
    frames_sent: u64,
    corrupt: u64,
}

impl<'a> Client<'a> {
    fn open(config: &'a FragmentsConfig<'a>) -> Result<Self, SocketError> {
        let target = config.target;
        let connect = |source| SocketError::Connect { target, source };
        let any: IpAddr = if target.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() };
        let address = SocketAddr::new(any, 0);
        let socket = UdpSocket::bind(address).map_err(|source| SocketError::Bind { address, source })?;
        enlarge_buffers(&socket);
        socket.connect(target).map_err(connect)?;
        socket.set_nonblocking(true).map_err(connect)?;
        let local = socket.local_addr().map_err(connect)?;
        let ifindex = interface_index(config.interface).map_err(connect)?;
        // Protocol 0: the socket only sends.
        let frames = PacketSocket::open(ifindex, 0).map_err(connect)?;
        let source = frames.mac().map_err(connect)?.ok_or_else(|| connect(Errno::NODEV.into()))?;
        let ethertype = if target.is_ipv4() { EtherType::IPV4 } else { EtherType::IPV6 };
        let ethernet = eth::Repr { destination: Mac(config.mac), source: Mac(source), tag: None, ethertype };
        let (choices, sent) = (Choices(config.seed), Vec::new());
        Ok(Self {
            config,
            choices,
            frames,
            socket,
            local,
            ethernet,
            sent,
            open: 0,
            frames_sent: 0,
            corrupt: 0,
        })
    }

    fn send_group(&mut self, group: u64) -> Result<(), SocketError> {
        let units_max = if self.config.target.is_ipv4() { UNITS_MAX_V4 } else { UNITS_MAX_V6 };
        let left = self.config.datagrams - group * FRAGMENTED_PER_GROUP;
        let mut frames = Vec::new();
        for _ in 0..left.min(FRAGMENTED_PER_GROUP) {
            let pieces = cut(&mut self.choices, units_max);
            let len = pieces.last().map_or(0, |piece| piece.1);
            let id = self.sent.len() as u64;
            let whole = self.datagram(id, len - udp::HEADER_LEN);
            let mut own: Vec<_> = pieces.iter().map(|&piece| self.fragment(id, &whole, piece)).collect();
            for _ in 0..self.choices.within(0, 3) {
                // Never the first fragment: a second set of all fragments would be a second datagram, rightly
                // answered twice.
                own.push(own[self.choices.within(1, pieces.len() - 1)].clone());
            }
            frames.extend(own);
            self.sent.push((len - udp::HEADER_LEN, false, 0));
        }
        self.choices.shuffle(&mut frames);
        let send = |source: Errno| SocketError::Send { target: self.config.target, source: source.into() };
        for frame in &frames {
            self.frames.send(frame).map_err(send)?;
        }
        self.frames_sent += frames.len() as u64;
        self.open = left.min(FRAGMENTED_PER_GROUP) as usize + 1;
        let len = self.choices.within(8, 1400);
        let whole = payload(self.config.seed, self.sent.len() as u64, len);
        self.socket
            .send(&whole)
            .map_err(|source| SocketError::Send { target: self.config.target, source })?;
        self.sent.push((len, true, 0));
        Ok(())
    }

    /// The UDP datagram with this number, header and checksum included.
    fn datagram(&self, id: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; udp::HEADER_LEN];
        bytes.extend(payload(self.config.seed, id, len));
        let total = bytes.len();
        let pseudo = match (self.local.ip(), self.config.target.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                Sum::ZERO.pseudo_ipv4(source, destination, 17, total as u16)
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                Sum::ZERO.pseudo_ipv6(source, destination, 17, total as u32)
            }
            _ => Sum::ZERO,
        };
        let header = udp::Repr {
            source_port: self.local.port(),
            destination_port: self.config.target.port(),
            payload_len: len,
        };
        header.emit(&mut bytes, pseudo).expect("there is room, and it fits 16 bits");
        bytes
    }

    /// The frame that carries bytes `from..to` of a datagram.
    fn fragment(&self, id: u64, whole: &[u8], (from, to): (usize, usize)) -> Vec<u8> {
        let more = to < whole.len();
        let mut frame = vec![0; eth::HEADER_LEN];
        self.ethernet.emit(&mut frame).expect("there is room");
        match (self.local.ip(), self.config.target.ip()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let mut header = [0; ipv4::HEADER_LEN];
                let identification = id as u16;
                let repr = ipv4::Repr {
                    source,
                    destination,
                    protocol: 17,
                    hop_limit: 64,
                    identification,
                    payload_len: to - from,
                };
                repr.emit(&mut header).expect("there is room");
                make_fragment(&mut header, from, more);
                frame.extend(header);
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let mut header = [0; ipv6::HEADER_LEN];
                let payload_len = FRAGMENT_HEADER_LEN + to - from;
                let repr = ipv6::Repr {
                    source,
                    destination,
                    next_header: ipv6::FRAGMENT,
                    hop_limit: 64,
                    payload_len,
                };
                repr.emit(&mut header).expect("there is room");
                frame.extend(header);
                let [offset_high, offset_low] = (from as u16 | u16::from(more)).to_be_bytes();
                frame.extend([17, 0, offset_high, offset_low]);
                frame.extend((id as u32).to_be_bytes());
            }
            _ => {}
        }
        frame.extend(&whole[from..to]);
        frame
    }

    /// Receives answers until every outstanding datagram has one (if `enough`), or until the deadline.
    fn collect(&mut self, deadline: Instant, enough: bool) -> Result<(), SocketError> {
        let mut buffer = vec![0; PAYLOAD_MAX + 1];
        while !(enough && self.open == 0) {
            match self.socket.recv(&mut buffer) {
                Ok(len) => self.judge(&buffer[..len]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let left = deadline.since(clock::now());
                    if left.is_zero() {
                        return Ok(());
                    }
                    let timeout = Timespec {
                        tv_sec: left.as_secs().cast_signed(),
                        tv_nsec: left.subsec_nanos().into(),
                    };
                    let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
                    poll(&mut fds, Some(&timeout)).map_err(|error| SocketError::Poll(error.into()))?;
                }
                // ICMP says that nobody listens, or that a fragment was late: the answer will be counted as missing.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) => return Err(SocketError::Receive(error)),
            }
        }
        Ok(())
    }

    fn judge(&mut self, answer: &[u8]) {
        let id = answer.first_chunk().map(|number| u64::from_be_bytes(*number));
        let Some((id, sent)) = id.and_then(|id| Some((id, self.sent.get_mut(id as usize)?))) else {
            self.corrupt += 1;
            return;
        };
        if answer != payload(self.config.seed, id, sent.0) {
            self.corrupt += 1;
            return;
        }
        sent.2 += 1;
        if sent.2 == 1 {
            self.open = self.open.saturating_sub(1);
        }
    }

    fn outcome(&self) -> FragmentsOutcome {
        let count = |whole: bool, so: fn(u32) -> bool| {
            self.sent.iter().filter(|sent| sent.1 == whole && so(sent.2)).count() as u64
        };
        FragmentsOutcome {
            sent: count(false, |_| true),
            frames: self.frames_sent,
            answered_once: count(false, |answers| answers == 1),
            answered_again: count(false, |answers| answers > 1),
            missing: count(false, |answers| answers == 0),
            corrupt: self.corrupt,
            whole_sent: count(true, |_| true),
            whole_answered_once: count(true, |answers| answers == 1),
        }
    }
}

/// Makes an IPv4 header one of a fragment (RFC 791, 3.1): sets the offset in units of 8 bytes and the "more
/// fragments" bit.
fn make_fragment(header: &mut [u8; ipv4::HEADER_LEN], offset: usize, more: bool) {
    let field = (offset / 8) as u16 | if more { 0x2000 } else { 0 };
    header[6..8].copy_from_slice(&field.to_be_bytes());
    header[10..12].fill(0);
    let checksum = Sum::ZERO.bytes(header).checksum();
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_a_datagram_without_gap_and_as_ip_wants_them() {
        let mut choices = Choices(3);
        let mut counts = [0; FRAGMENTS_MAX + 1];
        for _ in 0..5_000 {
            let pieces = cut(&mut choices, UNITS_MAX_V4);
            counts[pieces.len()] += 1;
            let mut at = 0;
            for (number, &(from, to)) in pieces.iter().enumerate() {
                assert!(from == at && to > from && to - from <= UNITS_MAX_V4 * 8, "{pieces:?}");
                assert!(number + 1 == pieces.len() || (to - from) % 8 == 0, "{pieces:?}");
                at = to;
            }
            assert!((16..=PAYLOAD_MAX + udp::HEADER_LEN).contains(&at), "a number fits: {pieces:?}");
        }
        assert!(counts[2..].iter().all(|count| *count > 0), "every count occurs: {counts:?}");
        assert_eq!(counts[..2], [0, 0]);
    }
}
