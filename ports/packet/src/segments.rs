//! Joins runs of UDP datagrams to super-frames, which the kernel or the device segments (`UDP_SEGMENT` for packet
//! sockets).
//!
//! Consecutive datagrams of one flow and one length become one frame: the headers of the first, all payloads, and a
//! virtio-net header with the segment size. The last one may be shorter. The kernel then runs its send path once
//! for all of them, and segments if the device cannot. This file works only on bytes and knows no socket.

use twinpath_frame::{Checksum, Gso, GsoKind, Meta};
use twinpath_port::vnet_header;
use twinpath_wire::checksum::Sum;
use twinpath_wire::{eth, ipv4, ipv6, udp};

/// Largest super-frame with its virtio-net header: bounded by the length field of IPv4.
pub(crate) const SUPER_FRAME_MAX: usize = vnet_header::LEN + eth::HEADER_LEN + IP_LEN_MAX;

const IP_LEN_MAX: usize = u16::MAX as usize;
const UDP: u8 = 17;
const DONT_FRAGMENT: u16 = 0x4000;
/// Offset of the checksum in a UDP header.
pub(crate) const CHECKSUM_AT: u16 = 6;

/// The offsets at which the headers of a UDP frame end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    version: u8,
    headers_len: usize,
}

impl Shape {
    /// The shape of a frame that is one whole UDP datagram with a payload, headers without options, and no bytes
    /// after it.
    fn of(frame: &[u8]) -> Option<Self> {
        let field = |at: usize| frame.get(at..at + 2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
        let ip = eth::HEADER_LEN;
        let (version, ip_header_len, ip_len) = match field(12)? {
            0x0800 => {
                let plain = *frame.get(ip)? == 0x45
                    && field(ip + 6)? & !DONT_FRAGMENT == 0
                    && *frame.get(ip + 9)? == UDP;
                plain.then_some((4, ipv4::HEADER_LEN, usize::from(field(ip + 2)?)))?
            }
            0x86dd => {
                let plain = *frame.get(ip)? >> 4 == 6 && *frame.get(ip + 6)? == UDP;
                plain.then_some((6, ipv6::HEADER_LEN, ipv6::HEADER_LEN + usize::from(field(ip + 4)?)))?
            }
            _ => return None,
        };
        let headers_len = ip + ip_header_len + udp::HEADER_LEN;
        let udp_len = usize::from(field(ip + ip_header_len + 4)?);
        let whole = ip + ip_len == frame.len()
            && ip + ip_header_len + udp_len == frame.len()
            && frame.len() > headers_len;
        whole.then_some(Self { version, headers_len })
    }

    /// Whether `other`, of the same shape, has the same headers except for lengths, identification and checksums.
    fn same_flow(self, frame: &[u8], other: &[u8]) -> bool {
        // The ranges of the headers without lengths, identification and checksums.
        let ranges: [std::ops::Range<usize>; 3] =
            if self.version == 4 { [0..16, 20..24, 26..38] } else { [0..18, 20..58, 0..0] };
        ranges.into_iter().all(|range| frame[range.clone()] == other[range])
    }
}

/// How many of `frames`, from the first on, form one super-frame; 1 if the second one does not fit.
pub(crate) fn run<'a>(mut frames: impl Iterator<Item = &'a [u8]>) -> usize {
    let Some(first) = frames.next() else { return 0 };
    let Some(shape) = Shape::of(first) else { return 1 };
    let (mut count, mut len) = (1, first.len());
    for frame in frames {
        // A longer one does not fit, and a shorter one ends the run.
        if frame.len() > first.len() || Shape::of(frame) != Some(shape) || !shape.same_flow(first, frame) {
            break;
        }
        len += frame.len() - shape.headers_len;
        if len > eth::HEADER_LEN + IP_LEN_MAX {
            break;
        }
        count += 1;
        if frame.len() < first.len() {
            break;
        }
    }
    count
}

/// Joins frames that are a [`run`] into `into`, with the virtio-net header in front, and returns the length. `None`
/// if they are not a run.
pub(crate) fn join<'a>(mut frames: impl Iterator<Item = &'a [u8]>, into: &mut [u8]) -> Option<usize> {
    let first = frames.next()?;
    let Shape { version, headers_len } = Shape::of(first)?;
    let mut end = vnet_header::LEN + first.len();
    into.get_mut(vnet_header::LEN..end)?.copy_from_slice(first);
    for frame in frames {
        let payload = frame.get(headers_len..)?;
        into.get_mut(end..end + payload.len())?.copy_from_slice(payload);
        end += payload.len();
    }
    let (vnet, frame) = into.split_at_mut(vnet_header::LEN);
    let udp_at = headers_len - udp::HEADER_LEN;
    let segment_len = (first.len() - headers_len) as u16;
    vnet.copy_from_slice(&vnet_header::encode(&Meta {
        checksum: Checksum::Partial,
        checksum_start: udp_at as u16,
        checksum_offset: CHECKSUM_AT,
        headers_len: headers_len as u16,
        gso: Gso { kind: GsoKind::UdpSegments, size: segment_len, ecn: false },
        ..Meta::default()
    }));
    let ip = &mut frame[eth::HEADER_LEN..end - vnet_header::LEN];
    let ip_len = ip.len() as u16;
    let udp_len = (end - vnet_header::LEN - udp_at) as u16;
    let addresses = if version == 4 {
        ip[2..4].copy_from_slice(&ip_len.to_be_bytes());
        ip[10..12].fill(0);
        let checksum = Sum::ZERO.bytes(&ip[..ipv4::HEADER_LEN]).checksum();
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        12..20
    } else {
        ip[4..6].copy_from_slice(&udp_len.to_be_bytes());
        8..40
    };
    // The kernel completes this: the pseudo-header's sum, not complemented
    // (Documentation/networking/checksum-offloads).
    let pseudo = Sum::ZERO.bytes(&ip[addresses]).field(u16::from(UDP)).field(udp_len).fold();
    let udp = &mut ip[udp_at - eth::HEADER_LEN..];
    udp[4..6].copy_from_slice(&udp_len.to_be_bytes());
    udp[6..8].copy_from_slice(&pseudo.to_be_bytes());
    Some(end)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use twinpath_wire::udp_frame::{UdpFrameRepr, parse, write_headers};
    use twinpath_wire::{ChecksumFound, ChecksumTrust, Mac};

    use super::*;

    fn frame(source: &str, destination: &str, payload: &[u8]) -> Vec<u8> {
        let repr = UdpFrameRepr {
            source_mac: Mac([2, 0, 0, 0, 0, 1]),
            destination_mac: Mac([2, 0, 0, 0, 0, 2]),
            tag: None,
            source: source.parse::<SocketAddr>().expect("address"),
            destination: destination.parse::<SocketAddr>().expect("address"),
            hop_limit: 64,
            identification: 0,
        };
        let mut frame = vec![0; repr.header_len()];
        frame.extend_from_slice(payload);
        write_headers(&mut frame, &repr, payload.len()).expect("it fits");
        frame
    }

    fn v4(payload: &[u8]) -> Vec<u8> {
        frame("192.0.2.1:7", "192.0.2.2:4000", payload)
    }

    fn run_of(frames: &[Vec<u8>]) -> usize {
        run(frames.iter().map(Vec::as_slice))
    }

    #[test]
    fn a_run_ends_with_a_shorter_one_and_before_what_is_longer_or_of_another_flow() {
        assert_eq!(run_of(&[]), 0);
        assert_eq!(run_of(&[v4(b"one")]), 1);
        assert_eq!(run_of(&[v4(b"one"), v4(b"two"), v4(b"s"), v4(b"e")]), 3);
        assert_eq!(run_of(&[v4(b"one"), v4(b"two"), v4(b"longer")]), 2);
        for other in [
            frame("192.0.2.1:8", "192.0.2.2:4000", b"two"),
            frame("192.0.2.1:7", "192.0.2.2:4001", b"two"),
            frame("192.0.2.1:7", "192.0.2.3:4000", b"two"),
            frame("[2001:db8::1]:7", "[2001:db8::2]:4000", b"two"),
            v4(b""),
            vec![0; 60],
            v4(b"two")[..40].to_vec(),
            [v4(b"two"), vec![0]].concat(),
        ] {
            assert_eq!(run_of(&[v4(b"one"), other.clone(), v4(b"two")]), 1);
            assert!(run_of(&[other, v4(b"one")]) <= 1);
        }
        let mut marked = v4(b"two");
        marked[15] = 3;
        assert_eq!(run_of(&[v4(b"one"), marked]), 1, "a congestion mark is of one datagram");
        // The limit of an IPv4 packet's length.
        let large = vec![v4(&[0; 1472]); 64];
        assert_eq!(run_of(&large), (IP_LEN_MAX - 28) / 1472);
    }

    #[test]
    fn a_super_frame_has_the_headers_of_the_first_and_all_payloads() {
        for (source, destination) in
            [("192.0.2.1:7", "192.0.2.2:4000"), ("[2001:db8::1]:7", "[2001:db8::2]:4000")]
        {
            let frames: Vec<_> =
                [b"abc", b"def", b"ghi"].iter().map(|part| frame(source, destination, *part)).collect();
            let mut into = vec![0xff; SUPER_FRAME_MAX];
            let len = join(frames.iter().map(Vec::as_slice), &mut into).expect("a run");
            let (vnet, whole) = into[..len].split_at(vnet_header::LEN);
            let headers_len = (frames[0].len() - 3) as u16;
            let field = |at: usize| u16::from_ne_bytes([vnet[at], vnet[at + 1]]);
            // VIRTIO_NET_HDR_F_NEEDS_CSUM and VIRTIO_NET_HDR_GSO_UDP_L4.
            assert_eq!((vnet[0], vnet[1]), (1, 5));
            assert_eq!([field(2), field(4), field(6), field(8)], [headers_len, 3, headers_len - 8, 6]);
            // Its lengths and the IP checksum are right, and the UDP checksum is the pseudo-header's sum.
            let parsed = parse(whole, ChecksumTrust::AcceptPartial).expect("a datagram");
            assert_eq!(parsed.checksum, ChecksumFound::Partial);
            assert_eq!(&whole[parsed.payload], b"abcdefghi");
        }
    }
}
