//! Frames that leave through a port are those that a sender without offloads would have sent.

use proptest::prelude::*;
use twinpath_frame::HEADROOM;

use super::*;
use crate::GsoKinds;

const NONE: Capabilities = Capabilities {
    frame_len_max: ONE_FRAME as u32,
    super_frame_len_max: 0,
    checksum: false,
    partial_checksums: false,
    segmentation: GsoKinds { tcp: false, udp: false },
    chains: false,
    tags: false,
};
const ALL: Capabilities = Capabilities {
    frame_len_max: 70_000,
    super_frame_len_max: 0,
    checksum: true,
    partial_checksums: false,
    segmentation: GsoKinds::ALL,
    chains: true,
    tags: true,
};

/// A TCP segment over IPv4 from 192.0.2.1:7 to 192.0.2.2:9 whose checksum is left to hardware.
fn tcp(payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0];
    frame.extend((40 + payload.len() as u16).to_be_bytes());
    frame.extend([0, 7, 0x40, 0, 64, 6, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
    frame.extend([0, 7, 0, 9, 1, 2, 3, 4, 5, 6, 7, 8, 0x50, 0x18, 1, 0, 0, 0, 0, 0]);
    frame.extend(payload);
    let pseudo = [0xc000_u32, 0x0201, 0xc000, 0x0202, 6, 20 + payload.len() as u32].iter().sum::<u32>();
    let pseudo = (pseudo >> 16) + (pseudo & 0xffff);
    frame[50..52].copy_from_slice(&(pseudo as u16).to_be_bytes());
    frame
}

fn super_frame(pool: &mut Pool, bytes: &[u8], cut: usize, size: u16) -> Frame {
    let mut frame = pool.copy_of(bytes.chunks(cut)).expect("enough frames");
    let meta = frame.meta_mut();
    (meta.checksum, meta.checksum_start, meta.checksum_offset) = (Checksum::Partial, 34, 16);
    meta.gso = Gso { kind: GsoKind::TcpV4, ecn: false, size };
    (meta.port, meta.queue) = (3, 1);
    frame
}

/// What leaves, as bytes; the metadata are judged here.
fn sent(frame: Frame, port: &Capabilities, pool: &mut Pool) -> (Vec<Vec<u8>>, PortCounters) {
    let counters = PortCounters::default();
    let mut packets = Vec::new();
    fit(frame, port, &counters, pool, |frame, pool| {
        assert!(port.takes(&frame) && (port.tags || frame.meta().vlan.is_none()));
        assert_eq!((frame.meta().port, frame.meta().queue), (3, 1));
        packets.push(frame.pieces(0..usize::MAX).collect::<Vec<_>>().concat());
        pool.release(frame);
    });
    assert_eq!(pool.free(), pool.frames(), "all frames are home");
    (packets, counters)
}

fn rfc_1071(bytes: &[u8]) -> u16 {
    let sum: u32 =
        bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0))).sum();
    let sum = (sum >> 16) + (sum & 0xffff);
    (sum >> 16) as u16 + sum as u16
}

/// Whether the checksums of IP and TCP are right.
fn is_right(packet: &[u8]) -> bool {
    let tcp = &packet[34..];
    let pseudo = [&packet[26..34], &[0, 6], &(tcp.len() as u16).to_be_bytes()[..], tcp].concat();
    rfc_1071(&packet[14..34]) == 0xffff && rfc_1071(&pseudo) == 0xffff
}

#[test]
fn a_super_frame_behind_pushed_headers_is_segmented() {
    // Two labels, of which the second is the last; a service tag with another frame's addresses, and a label behind it; a tag
    // and a label.
    let labels = [&[0x88, 0x47][..], &[0, 1, 0, 64, 0, 2, 1, 64]].concat();
    let label = [&[0x88, 0x48][..], &[0, 2, 1, 64]].concat();
    let service = [&[0x88, 0xe7, 0, 0, 0, 7][..], &[4; 12], &label].concat();
    let tagged = [&[0x88, 0xa8, 0, 5][..], &label].concat();
    let payload: Vec<u8> = (0..4000_u32).map(|number| number as u8).collect();
    let plain = tcp(&payload);
    for pushed in [labels, label, service, tagged] {
        // In place of the EtherType of what is behind.
        let bytes = [&plain[..12], &pushed[..], &plain[14..]].concat();
        let more = pushed.len() - 2;
        let mut pool = Pool::new(16).expect("pool");
        let mut frame = super_frame(&mut pool, &bytes, 2000, 1000);
        frame.meta_mut().checksum_start += more as u16;
        let port = Capabilities { chains: false, ..NONE };
        assert_eq!(crate::packets_of(&frame), 4);
        let (packets, counters) = sent(frame, &port, &mut pool);
        assert_eq!((packets.len(), counters.super_frames_segmented.get()), (4, 1));
        for (number, packet) in packets.iter().enumerate() {
            assert_eq!(packet[..12 + pushed.len()], bytes[..12 + pushed.len()], "pushed headers are on each");
            let inner = [&plain[..14], &packet[14 + more..]].concat();
            assert!(is_right(&inner), "{number}");
            assert_eq!(inner[54..], payload[number * 1000..][..1000]);
        }
        // The packet's position could not be described to any port.
        let mut frame = super_frame(&mut pool, &bytes, 2000, 1000);
        frame.meta_mut().checksum_start += more as u16;
        assert_eq!(sent(frame, &ALL, &mut pool).0, packets);
        // A port with less room drops it under a name.
        let mut frame = super_frame(&mut pool, &bytes, 2000, 1600);
        frame.meta_mut().checksum_start += more as u16;
        let narrow = Capabilities { frame_len_max: 1500, ..port };
        let (packets, counters) = sent(frame, &narrow, &mut pool);
        assert_eq!((packets.len(), counters.drops.get(Reason::FrameTooLarge)), (0, 1));
    }
}

proptest! {
    #[test]
    fn a_super_frame_is_segmented_however_its_chain_is_divided(
        payload in proptest::collection::vec(any::<u8>(), 0..9_000), cut in 60usize..2_500, size in 40u16..1_700,
    ) {
        let mut pool = Pool::new(512).expect("pool");
        let whole = tcp(&payload);
        let frame = super_frame(&mut pool, &whole, cut, size);
        let (packets, counters) = sent(frame, &NONE, &mut pool);
        prop_assert_eq!(counters.super_frames_segmented.get(), 1);
        prop_assert_eq!(packets.iter().flat_map(|packet| packet[54..].to_vec()).collect::<Vec<_>>(), payload);
        for (number, packet) in packets.iter().enumerate() {
            let last = number + 1 == packets.len();
            prop_assert!(packet.len() == 54 + usize::from(size) || last);
            prop_assert!(is_right(packet));
            let sequence = 0x0102_0304 + number as u32 * u32::from(size);
            prop_assert_eq!(packet[38..42].to_vec(), sequence.to_be_bytes());
            prop_assert_eq!(packet[47], if last { 0x18 } else { 0x10 });
        }
    }

    #[test]
    fn a_checksum_is_completed_over_a_whole_chain(
        payload in proptest::collection::vec(any::<u8>(), 0..9_000), cut in 60usize..2_500, known in any::<bool>(),
    ) {
        let mut pool = Pool::new(16).expect("pool");
        let mut frame = super_frame(&mut pool, &tcp(&payload), cut, 0);
        frame.meta_mut().gso = Gso::default();
        if !known {
            frame.meta_mut().checksum_start = 0;
        }
        let (packets, counters) = sent(frame, &Capabilities { checksum: false, ..ALL }, &mut pool);
        // The IP header's checksum is the sender's own work.
        let mut packet = packets[0].clone();
        packet[24..26].fill(0);
        let sum = !rfc_1071(&packet[14..34]);
        packet[24..26].copy_from_slice(&sum.to_be_bytes());
        prop_assert!(is_right(&packet));
        prop_assert_eq!((counters.checksums_completed.get(), packets[0].len()), (1, 54 + payload.len()));
    }
}

#[test]
fn a_port_that_takes_all_gets_frames_as_they_are() {
    let mut pool = Pool::new(16).expect("pool");
    let whole = tcp(&[7; 9_000]);
    let mut frame = super_frame(&mut pool, &whole, 2_000, 1_448);
    frame.meta_mut().vlan = Some(100);
    let counters = PortCounters::default();
    fit(frame, &ALL, &counters, &mut pool, |frame, pool| {
        assert_eq!((frame.meta().gso.size, frame.meta().vlan), (1_448, Some(100)));
        assert_eq!((frame.chain_len(), frame.meta().checksum_start), (whole.len(), 34));
        pool.release(frame);
    });
    assert_eq!((counters.super_frames_segmented.get(), counters.checksums_completed.get()), (0, 0));
}

#[test]
fn a_tag_beside_a_frame_is_put_in_before_anything_else_is_done() {
    let mut pool = Pool::new(32).expect("pool");
    let mut frame = super_frame(&mut pool, &tcp(&[7; 4_000]), 2_000, 1_448);
    frame.meta_mut().vlan = Some(0x6064);
    let (packets, _) = sent(frame, &NONE, &mut pool);
    assert_eq!(packets.len(), 3);
    for packet in packets {
        assert_eq!(packet[12..18], [0x81, 0, 0x60, 0x64, 8, 0]);
        assert!(is_right(&[&packet[..12], &packet[16..]].concat()));
    }
    let mut frame = super_frame(&mut pool, &tcp(b"short"), 2_000, 0);
    (frame.meta_mut().gso, frame.meta_mut().vlan) = (Gso::default(), Some(0x6064));
    let (packets, _) = sent(frame, &Capabilities { tags: false, ..ALL }, &mut pool);
    assert_eq!(packets[0][12..18], [0x81, 0, 0x60, 0x64, 8, 0]);
}

#[test]
fn what_cannot_be_made_to_fit_is_dropped_under_a_reason() {
    let refused = |change: &dyn Fn(&mut Meta), port: &Capabilities| {
        let mut pool = Pool::new(32).expect("pool");
        let mut frame = super_frame(&mut pool, &tcp(&[7; 4_000]), 2_000, 1_448);
        change(frame.meta_mut());
        let (packets, counters) = sent(frame, port, &mut pool);
        assert!(packets.is_empty());
        counters.drops.happened().collect::<Vec<_>>()
    };
    let none = Gso::default();
    // Of another kind than its headers, with a checksum elsewhere or done, in too many packets.
    let changes: [&dyn Fn(&mut Meta); 6] = [
        &|meta| meta.gso.kind = GsoKind::TcpV6,
        &|meta| meta.gso.kind = GsoKind::UdpSegments,
        &|meta| meta.gso.size = 0,
        &|meta| meta.gso.size = 1,
        &|meta| meta.checksum = Checksum::Verified,
        &|meta| meta.checksum_start = 14,
    ];
    for change in changes {
        assert_eq!(refused(change, &NONE), [(Reason::OffloadRefused, 1)]);
    }
    // Packets, a chain and a frame that are too long for the port.
    assert_eq!(refused(&|meta| meta.gso.size = 1_800, &NONE), [(Reason::FrameTooLarge, 1)]);
    let short = Capabilities { frame_len_max: 1_000, ..ALL };
    let whole = Capabilities { segmentation: GsoKinds::default(), ..short };
    assert_eq!(refused(&|_| {}, &whole), [(Reason::FrameTooLarge, 1)]);
    assert_eq!(refused(&|meta| meta.gso = none, &short), [(Reason::FrameTooLarge, 1)]);
    assert_eq!(
        refused(&|meta| meta.gso = none, &Capabilities { chains: false, ..ALL }),
        [(Reason::FrameTooLarge, 1)]
    );
    // The checksum's field is not within the first frame, or nowhere.
    for (start, offset) in [(34, 5_000), (u16::MAX, u16::MAX)] {
        let change =
            |meta: &mut Meta| (meta.gso, meta.checksum_start, meta.checksum_offset) = (none, start, offset);
        assert_eq!(refused(&change, &Capabilities { checksum: false, ..ALL }), [(Reason::OffloadRefused, 1)]);
    }
}

#[test]
fn a_super_frame_may_be_longer_than_any_other_frame_of_the_port() {
    let mut pool = Pool::new(16).expect("pool");
    let port = Capabilities { frame_len_max: 1_514, super_frame_len_max: 5_054, ..ALL };
    for (len, whole) in [(5_000, true), (5_001, false)] {
        let frame = super_frame(&mut pool, &tcp(&vec![7; len]), 2_000, 1_400);
        assert_eq!(port.takes(&frame), whole);
        if whole {
            assert_eq!(sent(frame, &port, &mut pool).0.len(), 1);
        } else {
            let counters = PortCounters::default();
            fit(frame, &port, &counters, &mut pool, |_, _| unreachable!("it does not fit"));
            assert_eq!(counters.drops.get(Reason::FrameTooLarge), 1);
        }
    }
    let mut packet = super_frame(&mut pool, &tcp(&[7; 4_000]), 2_000, 1_400);
    packet.meta_mut().gso = Gso::default();
    assert!(!port.takes(&packet), "one packet is bound by the MTU");
    pool.release(packet);
}

#[test]
fn a_pool_that_runs_out_loses_the_last_packets_and_counts_each() {
    let mut pool = Pool::new(4).expect("pool");
    let frame = super_frame(&mut pool, &tcp(&[7; 3_000]), 2_000, 500);
    let counters = PortCounters::default();
    let mut held = Vec::new();
    fit(frame, &NONE, &counters, &mut pool, |frame, _| held.push(frame));
    assert_eq!((held.len(), counters.drops.get(Reason::PoolEmpty)), (2, 4));
    held.into_iter().for_each(|frame| pool.release(frame));
    assert_eq!(pool.free(), 4);
}

#[test]
fn inserting_a_tag_adjusts_the_checksum_and_header_offsets() {
    let mut pool = Pool::new(1).expect("pool");
    let mut frame = pool.take().expect("free");
    let untagged: Vec<u8> = (0..60).collect();
    frame.copy_from(&untagged).expect("fits");
    let meta = frame.meta_mut();
    (meta.checksum, meta.checksum_start, meta.checksum_offset, meta.headers_len) =
        (Checksum::Partial, 34, 16, 54);
    assert!(insert_tag(&mut frame, [0x81, 0, 0x60, 0x64]));
    assert_eq!(frame.bytes()[..12], untagged[..12]);
    assert_eq!(frame.bytes()[12..16], [0x81, 0, 0x60, 0x64]);
    assert_eq!(frame.bytes()[16..], untagged[12..]);
    let meta = frame.meta();
    assert_eq!((meta.checksum_start, meta.checksum_offset, meta.headers_len), (38, 16, 58));
    frame.place(HEADROOM, 13).expect("fits");
    assert!(!insert_tag(&mut frame, [0x81, 0, 0, 1]), "no header to insert it into");
    pool.release(frame);
}

#[test]
fn a_super_frame_counts_as_the_packets_that_it_becomes() {
    let mut pool = Pool::new(16).expect("pool");
    let counters = PortCounters::default();
    for (len, size, packets) in [(0, 1_448, 1), (1_448, 1_448, 1), (9_000, 1_448, 7), (9_000, 0, 1)] {
        let frame = super_frame(&mut pool, &tcp(&vec![7; len]), 2_000, size);
        let before = counters.segments_in.get();
        counters.count_super_frame_in(&frame);
        assert_eq!(counters.segments_in.get() - before, packets, "{len} bytes by {size}");
        pool.release(frame);
    }
    assert_eq!(counters.super_frames_in.get(), 4);
    let mut frame = super_frame(&mut pool, &tcp(b"plain"), 2_000, 0);
    frame.meta_mut().gso = Gso::default();
    counters.count_super_frame_out(&frame);
    assert_eq!(counters.super_frames_out.get(), 0);
    pool.release(frame);
}

#[test]
fn a_tag_that_is_taken_out_leaves_the_frame_as_it_was_before() {
    let mut pool = Pool::new(4).expect("pool");
    let bytes = tcp(&[7; 40]);
    let mut frame = super_frame(&mut pool, &bytes, 2_000, 20);
    frame.meta_mut().headers_len = 54;
    assert!(insert_tag(&mut frame, [0x81, 0, 0, 7]));
    assert_eq!(frame.bytes()[12..16], [0x81, 0, 0, 7]);
    assert!(remove_tag(&mut frame));
    assert_eq!(frame.bytes(), bytes);
    let meta = frame.meta();
    assert_eq!((meta.checksum_start, meta.checksum_offset, meta.headers_len), (34, 16, 54));
    assert!(frame.set_len(17).is_ok() && !remove_tag(&mut frame), "too short to have one");
    pool.release(frame);
}
