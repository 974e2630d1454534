use proptest::prelude::*;

use super::*;
use crate::checksum::PiecewiseSum;
use crate::offload::Segmentation;

/// A super-frame of TCP with this payload, over IPv4 or IPv6, whose checksum is left to hardware.
fn super_frame(is_ipv6: bool, payload: usize, options: usize, flags: u8) -> Vec<u8> {
    let transport_len = 20 + options + payload;
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    if is_ipv6 {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
        frame.extend((transport_len as u16).to_be_bytes());
        frame.extend([6, 64]);
        frame.extend([0xfd; 16]);
        frame.extend([0xfe; 16]);
    } else {
        frame.extend([8, 0, 0x45, 0]);
        frame.extend((20 + transport_len as u16).to_be_bytes());
        frame.extend([0x12, 0x34, DONT_FRAGMENT, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        let checksum = Sum::ZERO.bytes(&frame[14..]).checksum();
        put(&mut frame, 24, checksum);
    }
    let transport_at = frame.len();
    frame.extend([
        0,
        7,
        0,
        9,
        0xff,
        0xff,
        0xf0,
        0,
        1,
        2,
        3,
        4,
        ((20 + options) / 4 * 16) as u8,
        flags,
        1,
        0,
        0,
        0,
        0,
        0,
    ]);
    frame.extend((0..options + payload).map(|at| (at % 251) as u8));
    let headers = Headers::find(&frame).expect("headers");
    let pseudo = headers.pseudo(&frame, frame.len()).expect("addresses").fold();
    put(&mut frame, transport_at + 16, pseudo);
    frame
}

/// The packets that a super-frame becomes.
fn packets(whole: &[u8], size: u16) -> Vec<Vec<u8>> {
    let segmentation = Segmentation::of(whole, whole.len(), size).expect("valid");
    let packet = |number| {
        let payload = &whole[segmentation.payload(number)];
        let mut packet = [&whole[..segmentation.headers().payload_at], payload].concat();
        let mut sum = PiecewiseSum::default();
        sum.add(payload);
        segmentation.write_headers(number, &mut packet, sum.sum());
        packet
    };
    (0..segmentation.count()).map(packet).collect()
}

/// Joins as many packets as possible; returns the super-frame, and how many packets it contains.
fn joined(packets: &[Vec<u8>]) -> Option<(Vec<u8>, usize, Coalesced)> {
    let first = packets.first()?;
    let (mut whole, mut count, mut coalesced) = (first.clone(), 1, Coalesced::begin(first)?);
    while let Some(payload) = packets.get(count).and_then(|next| coalesced.join(first, next)) {
        whole.extend_from_slice(&packets[count][payload]);
        count += 1;
    }
    coalesced.write_headers(&mut whole);
    Some((whole, count, coalesced))
}

const ACK: u8 = tcp::Flags::ACK;
const PSH: u8 = tcp::Flags::PSH;

proptest! {
    #[test]
    fn what_was_segmented_is_joined_to_the_same(
        is_ipv6: bool, payload in 1usize..60_000, options in 0usize..10, size in 100u16..9_000, ends: bool,
    ) {
        let whole = super_frame(is_ipv6, payload, options * 4, ACK | if ends { PSH } else { 0 });
        let packets = packets(&whole, size);
        let (again, count, coalesced) = joined(&packets).expect("TCP");
        prop_assert_eq!(count, packets.len());
        prop_assert_eq!(coalesced.is_several(), count > 1);
        prop_assert_eq!(coalesced.size(), payload.min(size.into()));
        prop_assert!(again == whole);
    }

    #[test]
    fn a_damaged_packet_is_never_joined(at in 0usize..1_054, bit in 0u8..8, is_ipv6: bool) {
        let whole = super_frame(is_ipv6, 3_000, 0, ACK);
        let mut packets = packets(&whole, 1_000);
        let at = at.min(packets[1].len() - 1);
        // A label of IPv6 and addresses of Ethernet have no checksum; they have to be the same.
        packets[1][at] ^= 1 << bit;
        let (_, count, _) = joined(&packets).expect("the first is right");
        prop_assert_eq!(count, 1);
    }

    #[test]
    fn no_bytes_cause_a_panic(first in proptest::collection::vec(any::<u8>(), 0..120), edits in any::<[(u8, u8); 4]>()) {
        let _ = Coalesced::begin(&first);
        let mut packets = packets(&super_frame(false, 300, 8, ACK), 100);
        for (at, value) in edits {
            let len = packets[1].len();
            packets[1][usize::from(at) % len] = value;
        }
        packets[1].truncate(40 + usize::from(edits[0].0));
        let _ = joined(&packets);
    }
}

#[test]
fn only_what_follows_is_joined() {
    let whole = super_frame(false, 5_000, 0, ACK);
    let original = packets(&whole, 1_000);
    let count = |packets: &[Vec<u8>]| joined(packets).map_or(0, |(_, count, _)| count);
    assert_eq!(count(&original), 5);
    // One is missing, twice, or of another window.
    assert_eq!(count(&[&original[..2], &original[3..]].concat()), 2);
    assert_eq!(count(&[&original[..2], &original[1..]].concat()), 2);
    // After a short segment, or the end of a message, nothing follows.
    let odd = packets(&super_frame(false, 2_500, 0, ACK), 1_000);
    assert_eq!(count(&odd), 3);
    let pushed = packets(&super_frame(false, 1_000, 0, ACK | PSH), 1_000);
    assert_eq!(count(&[pushed, original[1..].to_vec()].concat()), 1);
    for flags in [0x12, 0x11, 0x14, 0x30, 0x90, 0x50, 0x08] {
        assert_eq!(count(&[super_frame(false, 500, 0, flags)]), 0, "{flags:#x}");
    }
    assert_eq!(count(&[super_frame(false, 0, 0, ACK)]), 0, "an acknowledgement alone");
    assert_eq!(count(std::slice::from_ref(&whole)), 0, "its checksum is left to hardware");
    // No more than an IP packet holds.
    let long = packets(&super_frame(false, 65_000, 0, ACK), 1_000);
    let more = packets(&super_frame(false, 1_000, 0, ACK), 1_000);
    let mut next = more[0].clone();
    next[38..42].copy_from_slice(&(0xffff_f000_u32.wrapping_add(65_000)).to_be_bytes());
    put(&mut next, 50, 0);
    let headers = Headers::find(&next).expect("headers");
    let sum = headers.pseudo(&next, next.len()).expect("addresses").bytes(&next[34..]).checksum();
    put(&mut next, 50, sum);
    assert!(Coalesced::begin(&next).is_some());
    assert_eq!(count(&[long, vec![next]].concat()), 65);
}
