//! Segments of TCP, as tests inject them and as the kernel answers them.

use std::net::{IpAddr, SocketAddr};

use twinpath_wire::checksum::Sum;

/// Flags of TCP (RFC 9293 section 3.1).
pub(crate) const FIN: u8 = 1;
pub(crate) const SYN: u8 = 2;
pub(crate) const RST: u8 = 4;
pub(crate) const PSH: u8 = 8;
pub(crate) const ACK: u8 = 16;

const ETHERNET_LEN: usize = 14;
const TCP_LEN: usize = 20;

/// A segment from a peer behind the far end to port 7 of the near end.
#[derive(Clone, Copy)]
pub(crate) struct Made<'a> {
    pub(crate) v6: bool,
    /// The peer's address, if it is not that of `v6` and `host`.
    pub(crate) from: Option<IpAddr>,
    /// The last byte of the peer's address. A peer that the far end is not answers nothing.
    pub(crate) host: u8,
    pub(crate) port: u16,
    pub(crate) flags: u8,
    pub(crate) sequence: u32,
    pub(crate) options: &'a [u8],
    pub(crate) payload: &'a [u8],
    /// IPv4 options, or an IPv6 extension header whose first byte is the next header.
    pub(crate) ip_options: &'a [u8],
    /// The segment is sent as two fragments.
    pub(crate) fragmented: bool,
}

/// From port 4000, without options or payload.
pub(crate) const PLAIN: Made<'_> = Made {
    v6: false,
    from: None,
    host: 9,
    port: 4000,
    flags: ACK,
    sequence: 1000,
    options: &[],
    payload: &[],
    ip_options: &[],
    fragmented: false,
};

impl Made<'_> {
    /// The near end and the far end.
    pub(crate) fn ends(&self) -> (SocketAddr, SocketAddr) {
        let [near, far] = [2, self.host].map(|host| match self.v6 {
            true => IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, u16::from(host)]),
            false => IpAddr::from([10, 0, 0, host]),
        });
        (SocketAddr::new(near, 7), SocketAddr::new(self.from.unwrap_or(far), self.port))
    }

    fn segment(&self) -> Vec<u8> {
        let mut segment = [&self.port.to_be_bytes()[..], &[0, 7]].concat();
        segment.extend(self.sequence.to_be_bytes());
        segment.extend(5000_u32.to_be_bytes());
        segment.extend([((TCP_LEN + self.options.len()) << 2) as u8, self.flags, 0xff, 0xff, 0, 0, 0, 0]);
        segment.extend(self.options);
        segment.extend(self.payload);
        let len = segment.len() as u32;
        let (near, far) = self.ends();
        let sum = match (far.ip(), near.ip()) {
            (IpAddr::V4(far), IpAddr::V4(near)) => Sum::ZERO.pseudo_ipv4(far, near, 6, len as u16),
            (IpAddr::V6(far), IpAddr::V6(near)) => Sum::ZERO.pseudo_ipv6(far, near, 6, len),
            _ => unreachable!("both are of one family"),
        };
        let checksum = sum.bytes(&segment).checksum();
        segment[16..18].copy_from_slice(&checksum.to_be_bytes());
        segment
    }

    /// The frames that carry it: one, or two if it is fragmented.
    pub(crate) fn frames(&self) -> Vec<Vec<u8>> {
        let segment = self.segment();
        if !self.fragmented {
            return vec![self.frame(&segment, None)];
        }
        // With IPv6, the first one has to hold the whole header of TCP (RFC 8200 section 4.5).
        let (first, second) = segment.split_at(24);
        vec![self.frame(first, Some((0, true))), self.frame(second, Some((3, false)))]
    }

    /// A packet with this payload; for a fragment, its offset in units of 8 bytes, and whether more follow.
    fn frame(&self, payload: &[u8], fragment: Option<(u16, bool)>) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        let (near, far) = self.ends();
        match (far.ip(), near.ip()) {
            (IpAddr::V4(far), IpAddr::V4(near)) => {
                let len = 20 + self.ip_options.len() + payload.len();
                let place = fragment.map_or(0, |(at, more)| at | u16::from(more) << 13);
                let mut header = vec![0x45 + (self.ip_options.len() / 4) as u8, 0];
                header.extend((len as u16).to_be_bytes());
                header.extend([0, 9]);
                header.extend(place.to_be_bytes());
                header.extend([64, 6, 0, 0]);
                header.extend(far.octets());
                header.extend(near.octets());
                header.extend(self.ip_options);
                let checksum = Sum::ZERO.bytes(&header).checksum();
                header[10..12].copy_from_slice(&checksum.to_be_bytes());
                frame.extend([0x08, 0x00]);
                frame.extend(header);
            }
            (IpAddr::V6(far), IpAddr::V6(near)) => {
                let place = fragment.map(|(at, more)| at << 3 | u16::from(more));
                let extension = place.map_or(self.ip_options.to_vec(), |place| {
                    [&[6, 0][..], &place.to_be_bytes(), &[0, 0, 0, 9]].concat()
                });
                let next = match () {
                    () if place.is_some() => 44,
                    () if !extension.is_empty() => 60,
                    () => 6,
                };
                frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
                frame.extend(((extension.len() + payload.len()) as u16).to_be_bytes());
                frame.extend([next, 64]);
                frame.extend(far.octets());
                frame.extend(near.octets());
                frame.extend(extension);
            }
            _ => unreachable!("both are of one family"),
        }
        frame.extend(payload);
        frame
    }
}

/// The destination port and the flags of a segment in a frame; `None` if it is another one.
pub(crate) fn seen(frame: &[u8]) -> Option<(u16, u8)> {
    let transport = match frame.get(12..14)? {
        [0x08, 0x00] if frame.get(23) == Some(&6) => ETHERNET_LEN + 20,
        [0x86, 0xdd] if frame.get(20) == Some(&6) => ETHERNET_LEN + 40,
        _ => return None,
    };
    let port = u16::from_be_bytes(*frame.get(transport + 2..)?.first_chunk()?);
    Some((port, *frame.get(transport + 13)? & (FIN | SYN | RST | PSH | ACK)))
}
