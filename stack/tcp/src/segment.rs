//! Segments as the engine takes and gives them.

use core::hash::{Hash, Hasher};
use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use twinpath_wire::tcp::{self, Flags};

use crate::seq::Seq;

/// The two ends of a connection.
#[derive(Clone, Copy, Debug, Default, Eq)]
pub struct Tuple {
    /// Addresses as four words, IPv4 ones as mapped into IPv6 (RFC 4291 section 2.5.5.2).
    local: [u64; 2],
    remote: [u64; 2],
    local_port: u16,
    remote_port: u16,
}

impl Hash for Tuple {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        for part in self.parts() {
            state.write_u64(part);
        }
    }
}

impl PartialEq for Tuple {
    /// Without a branch for each part, or a call: it is asked for each segment.
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        let addresses = (self.local[0] ^ other.local[0])
            | (self.local[1] ^ other.local[1])
            | (self.remote[0] ^ other.remote[0])
            | (self.remote[1] ^ other.remote[1]);
        let ports = (self.local_port ^ other.local_port) | (self.remote_port ^ other.remote_port);
        addresses | u64::from(ports) == 0
    }
}

impl Tuple {
    /// The tuple of a connection between `local` and `remote`, of the same family.
    #[must_use]
    pub fn new(local: SocketAddr, remote: SocketAddr) -> Self {
        Self {
            local: words(local.ip()),
            remote: words(remote.ip()),
            local_port: local.port(),
            remote_port: remote.port(),
        }
    }

    /// This host's end.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        SocketAddr::new(address(self.local), self.local_port)
    }

    /// The peer's end.
    #[must_use]
    pub fn remote(&self) -> SocketAddr {
        SocketAddr::new(address(self.remote), self.remote_port)
    }

    /// Whether the addresses are IPv4.
    #[inline]
    #[must_use]
    pub const fn is_ipv4(&self) -> bool {
        self.local[0] == 0 && self.local[1] >> 32 == 0xffff
    }

    /// The local port.
    #[inline]
    #[must_use]
    pub const fn local_port(&self) -> u16 {
        self.local_port
    }

    /// The peer's port.
    #[inline]
    #[must_use]
    pub const fn remote_port(&self) -> u16 {
        self.remote_port
    }

    /// Bytes of IP and TCP headers, without options of either.
    #[inline]
    pub(crate) const fn headers(&self) -> u16 {
        if self.is_ipv4() { 40 } else { 60 }
    }

    /// Bytes of the packets that every path is taken to carry: those which no host refuses (RFC 1191 section 3; Linux's
    /// `ip_rt_min_pmtu`), or no link (RFC 8200 section 5).
    #[inline]
    pub(crate) const fn mtu_min(&self) -> u16 {
        if self.is_ipv4() { 552 } else { 1280 }
    }

    /// Its parts, for a keyed hash.
    #[inline]
    pub(crate) const fn parts(&self) -> [u64; 5] {
        let ports = (self.local_port as u64) << 16 | self.remote_port as u64;
        [self.local[0], self.local[1], self.remote[0], self.remote[1], ports]
    }
}

fn words(address: IpAddr) -> [u64; 2] {
    let bits = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    };
    [(bits >> 64) as u64, bits as u64]
}

fn address(words: [u64; 2]) -> IpAddr {
    Ipv6Addr::from_bits(u128::from(words[0]) << 64 | u128::from(words[1])).to_canonical()
}

/// A segment that has arrived, its checksum verified.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    /// The sequence number of SYN or of the first byte.
    pub seq: Seq,
    /// The acknowledgement number.
    pub ack: Seq,
    /// The control bits.
    pub flags: Flags,
    /// The bit AE (RFC 9768).
    pub accurate_ecn: bool,
    /// The window as sent, without its scale.
    pub window: u16,
    /// How far behind `seq` urgent data ends, bytes. It has a meaning if URG is set.
    pub urgent: u16,
    /// The options.
    pub options: tcp::Options<'a>,
    /// Whether the IP header says "congestion experienced" (RFC 3168).
    pub congestion: bool,
    /// Payload bytes of each segment that this one was made of by the interface or the peer's kernel; 0 if it is one.
    pub unit: u16,
    /// The payload.
    pub payload: &'a [u8],
}

impl<'a> Segment<'a> {
    /// The segment in a view whose checksum was verified. `congestion` and `unit`: see the fields.
    #[inline]
    #[must_use]
    pub fn new(view: &tcp::Segment<'a>, congestion: bool, unit: u16) -> Self {
        match tcp::Options::usual(view.options()) {
            Some(options) => Self::with(view, options, congestion, unit),
            None => Self::unusual(view, congestion, unit),
        }
    }

    #[inline(never)]
    fn unusual(view: &tcp::Segment<'a>, congestion: bool, unit: u16) -> Self {
        Self::with(view, tcp::Options::parse(view.options()), congestion, unit)
    }

    #[inline(always)]
    fn with(view: &tcp::Segment<'a>, options: tcp::Options<'a>, congestion: bool, unit: u16) -> Self {
        Self {
            seq: Seq(view.sequence()),
            ack: Seq(view.acknowledgement()),
            flags: view.flags(),
            accurate_ecn: view.accurate_ecn(),
            window: view.window(),
            urgent: view.urgent(),
            options,
            congestion,
            unit,
            payload: view.payload(),
        }
    }

    #[inline]
    pub(crate) const fn has(&self, flags: u8) -> bool {
        self.flags.0 & flags != 0
    }

    /// The sequence number behind its last byte, SYN and FIN included.
    #[inline]
    pub(crate) fn end(&self) -> Seq {
        self.seq + self.len()
    }

    /// The sequence numbers that it fills.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.payload.len() as u32 + u32::from(self.has(Flags::SYN)) + u32::from(self.has(Flags::FIN))
    }
}

/// A segment that is sent.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// Ports, numbers, control bits and window.
    pub header: tcp::Header,
    /// The bytes of the options.
    pub options: &'a [u8],
    /// The payload.
    pub payload: &'a [u8],
    /// Payload bytes of each segment that it must be cut into before it leaves the host; 0 if it is one. PSH, FIN and
    /// CWR then belong to the last and the first one, as segmentation offload does it.
    pub unit: u16,
    /// Whether its IP header says that the transport understands congestion notification: ECT(0), RFC 3168.
    pub capable: bool,
    /// The identification of its IPv4 packet, which routers may cut; that of the next packet is one more, if it is cut
    /// into several before. `None`: none may cut it, as it says "don't fragment".
    pub id: Option<u16>,
}

/// Where segments go.
pub trait Sink {
    /// Sends a segment; false if there is no room: the engine offers it again at its next
    /// [`output`](crate::Tcp::output). If it was to leave as several, the first of them alone is offered at once.
    fn send(&mut self, tuple: &Tuple, segment: &Outgoing<'_>) -> bool;
}
