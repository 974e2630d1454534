//! The virtio-net header, which carries a frame's offloads across a TAP or a packet socket with PACKET_VNET_HDR.
//!
//! `struct virtio_net_hdr` of linux/virtio_net.h in its legacy form: 10 bytes, in the machine's own byte order.

use twinpath_frame::{Checksum, Gso, GsoKind, Meta};

/// Bytes in front of each frame.
pub const LEN: usize = 10;

const NEEDS_CSUM: u8 = 1;
const DATA_VALID: u8 = 2;

const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;

/// A kind of segmentation that is not supported (UDP fragmentation, or a later one).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownKind;

/// Reads `header` into `meta`.
///
/// # Errors
/// [`UnknownKind`].
pub fn decode(header: &[u8; LEN], meta: &mut Meta) -> Result<(), UnknownKind> {
    let [flags, kind, h0, h1, g0, g1, s0, s1, o0, o1] = *header;
    meta.gso = Gso {
        kind: match kind & !GSO_ECN {
            GSO_NONE => GsoKind::None,
            GSO_TCPV4 => GsoKind::TcpV4,
            GSO_TCPV6 => GsoKind::TcpV6,
            GSO_UDP_L4 => GsoKind::UdpSegments,
            _ => return Err(UnknownKind),
        },
        ecn: kind & GSO_ECN != 0,
        size: u16::from_ne_bytes([g0, g1]),
    };
    meta.headers_len = u16::from_ne_bytes([h0, h1]);
    if flags & NEEDS_CSUM != 0 {
        meta.checksum = Checksum::Partial;
        meta.checksum_start = u16::from_ne_bytes([s0, s1]);
        meta.checksum_offset = u16::from_ne_bytes([o0, o1]);
    } else {
        meta.checksum = if flags & DATA_VALID != 0 { Checksum::Verified } else { Checksum::Unverified };
        (meta.checksum_start, meta.checksum_offset) = (0, 0);
    }
    Ok(())
}

/// The header for `meta`.
#[must_use]
pub fn encode(meta: &Meta) -> [u8; LEN] {
    let mut header = [0; LEN];
    match meta.checksum {
        // Without the offsets, the kernel cannot complete the checksum; the receiver will check it as sent.
        Checksum::Partial if meta.checksum_start != 0 => {
            header[0] = NEEDS_CSUM;
            header[6..8].copy_from_slice(&meta.checksum_start.to_ne_bytes());
            header[8..10].copy_from_slice(&meta.checksum_offset.to_ne_bytes());
        }
        Checksum::Verified => header[0] = DATA_VALID,
        Checksum::Partial | Checksum::Unverified => {}
    }
    if meta.gso.kind != GsoKind::None {
        header[1] = match meta.gso.kind {
            GsoKind::None => GSO_NONE,
            GsoKind::TcpV4 => GSO_TCPV4,
            GsoKind::TcpV6 => GSO_TCPV6,
            GsoKind::UdpSegments => GSO_UDP_L4,
        } | if meta.gso.ecn { GSO_ECN } else { 0 };
        header[2..4].copy_from_slice(&meta.headers_len.to_ne_bytes());
        header[4..6].copy_from_slice(&meta.gso.size.to_ne_bytes());
    }
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(flags: u8, kind: u8, fields: [u16; 4]) -> [u8; LEN] {
        let mut header = [flags, kind, 0, 0, 0, 0, 0, 0, 0, 0];
        for (at, field) in fields.into_iter().enumerate() {
            header[2 + 2 * at..4 + 2 * at].copy_from_slice(&field.to_ne_bytes());
        }
        header
    }

    #[test]
    fn every_header_we_know_reads_back_as_it_was() {
        for header in [
            bytes(0, 0, [0; 4]),
            bytes(NEEDS_CSUM, GSO_NONE, [0, 0, 34, 6]),
            bytes(NEEDS_CSUM, GSO_TCPV4, [66, 1448, 34, 16]),
            bytes(NEEDS_CSUM, GSO_TCPV4 | GSO_ECN, [70, 1448, 38, 16]),
            bytes(NEEDS_CSUM, GSO_TCPV6, [86, 1428, 54, 16]),
            bytes(NEEDS_CSUM, GSO_UDP_L4, [42, 1400, 34, 6]),
            bytes(DATA_VALID, GSO_NONE, [0; 4]),
        ] {
            let mut meta = Meta::default();
            decode(&header, &mut meta).expect("a kind we know");
            assert_eq!(encode(&meta), header);
        }
    }

    #[test]
    fn header_fields_match_the_kernels_definition() {
        let mut meta = Meta::default();
        decode(&bytes(NEEDS_CSUM, GSO_TCPV6 | GSO_ECN, [86, 1428, 54, 16]), &mut meta).expect("known");
        assert_eq!(meta.gso, Gso { kind: GsoKind::TcpV6, ecn: true, size: 1428 });
        assert_eq!((meta.checksum, meta.headers_len), (Checksum::Partial, 86));
        assert_eq!((meta.checksum_start, meta.checksum_offset), (54, 16));
        // Values of the previous frame in the same memory are cleared.
        decode(&bytes(0, 0, [0, 0, 54, 16]), &mut meta).expect("known");
        assert_eq!((meta.checksum, meta.checksum_start), (Checksum::Unverified, 0));
        assert_eq!(meta.gso, Gso::default());
    }

    #[test]
    fn an_unknown_kind_is_refused() {
        for kind in [2, 3, 6, 0x7f] {
            assert_eq!(decode(&bytes(0, kind, [0; 4]), &mut Meta::default()), Err(UnknownKind));
        }
    }
}
