//! The flow of a frame, which determines the UDP source port (RFC 7348 section 5). Networks and receivers spread
//! flows by that port, and frames of one flow keep their order.

use twinpath_wire::offload::Headers;

/// A number that is the same for all frames of a flow: a hash of addresses and ports, or of Ethernet addresses and
/// type if there are no ports. All fragments of a packet have the same number.
#[inline]
pub(crate) fn of(frame: &[u8]) -> u32 {
    let Some(headers) = Headers::find(frame) else {
        return mixed(frame.get(..14).unwrap_or(frame));
    };
    let addresses = if headers.is_ipv6 {
        headers.ip_at + 8..headers.ip_at + 40
    } else {
        headers.ip_at + 12..headers.ip_at + 20
    };
    let ports = headers.transport_at..headers.transport_at + 4;
    let [addresses, ports] = [addresses, ports].map(|range| frame.get(range).unwrap_or_default());
    mixed(addresses).rotate_left(7) ^ mixed(ports)
}

/// FNV-1a, four bytes at a time, and then mixed.
fn mixed(bytes: &[u8]) -> u32 {
    let hash = bytes.chunks(4).fold(0xcbf2_9ce4_8422_2325_u64, |hash, chunk| {
        let word = chunk.iter().fold(0_u64, |word, byte| word << 8 | u64::from(*byte));
        (hash ^ word).wrapping_mul(0x0100_0000_01b3)
    });
    // Only a few of the bits are used, so each must depend on all bytes.
    let hash = (hash ^ hash >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    (hash >> 32) as u32
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// A UDP datagram over IPv4 between these ports, with `tail` behind its headers.
    fn datagram(from: u16, to: u16, fragment: u8, tail: &[u8]) -> Vec<u8> {
        let len = (28 + tail.len()) as u16;
        let ip = [
            &[0x45, 0][..],
            &len.to_be_bytes(),
            &[0, 0, fragment, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2],
        ]
        .concat();
        let udp = [from.to_be_bytes(), to.to_be_bytes(), (len - 20).to_be_bytes(), [0, 0]].concat();
        [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0][..], &ip, &udp, tail].concat()
    }

    #[test]
    fn frames_of_a_flow_have_one_number_and_flows_differ() {
        assert_eq!(of(&datagram(5, 6, 0, b"one")), of(&datagram(5, 6, 0, b"another")));
        let places: BTreeSet<u32> = (0..64).map(|port| of(&datagram(1000 + port, 7, 0, b"")) % 16).collect();
        assert!(places.len() > 12, "64 flows use {} of 16 places", places.len());
        // Fragments have no ports but in the first one.
        assert_eq!(of(&datagram(5, 6, 0x20, b"")), of(&datagram(9, 9, 0x20, b"rest")));
        for len in 0..14 {
            of(&datagram(5, 6, 0, b"")[..len]);
        }
    }
}
