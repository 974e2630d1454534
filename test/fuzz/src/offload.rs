//! Fuzzes what is done in software for a port that does not take a frame as it is: whatever a frame and its metadata
//! say, what leaves is what the port takes, no byte of the payload is lost, and all frames come home.

use twinpath_frame::{Checksum, Frame, Gso, GsoKind, Pool};
use twinpath_port::fit::fit;
use twinpath_port::{Capabilities, GsoKinds, PortCounters};
use twinpath_wire::offload::Headers;

use crate::{fuzz, seed};

/// Bytes of an input in front of the edits.
const HEAD_LEN: usize = 9;

fn bytes(frame: &Frame) -> Vec<u8> {
    frame.pieces(0..usize::MAX).flatten().copied().collect()
}

/// The port's capabilities by the bits of a byte.
fn port(bits: u8) -> Capabilities {
    let has = |bit: u8| bits & 1 << bit != 0;
    Capabilities {
        frame_len_max: if has(0) { 1_792 } else { 70_000 },
        super_frame_len_max: 0,
        checksum: has(1),
        partial_checksums: false,
        segmentation: GsoKinds { tcp: has(2), udp: has(3) },
        chains: has(4),
        tags: has(5),
    }
}

fn check(input: &[u8]) {
    let Some((head, edits)) = input.split_first_chunk::<HEAD_LEN>() else { return };
    let [chosen, cut, capabilities, kind, size_high, size_low, start, offset, vlan] = *head;
    let frames = seed::super_frames();
    let mut whole = frames[usize::from(chosen) % frames.len()].clone();
    seed::damage(&mut whole, edits);

    let mut pool = Pool::new(256).expect("memory");
    let mut frame = pool.copy_of(whole.chunks(60 + 8 * usize::from(cut))).expect("enough frames");
    let meta = frame.meta_mut();
    let kinds = [GsoKind::None, GsoKind::TcpV4, GsoKind::TcpV6, GsoKind::UdpSegments];
    meta.gso = Gso {
        kind: kinds[usize::from(kind) % 4],
        ecn: kind & 4 != 0,
        size: u16::from_be_bytes([size_high, size_low]),
    };
    meta.checksum = if kind & 8 != 0 { Checksum::Verified } else { Checksum::Partial };
    (meta.checksum_start, meta.checksum_offset) = (u16::from(start), u16::from(offset));
    meta.vlan = (vlan & 1 != 0).then_some(u16::from(vlan));

    let (port, counters) = (port(capabilities), PortCounters::default());
    let tagged = vlan & 1 != 0 && !port.tags;
    let mut sent = Vec::new();
    fit(frame, &port, &counters, &mut pool, |frame, pool| {
        assert!(port.takes(&frame));
        sent.push(bytes(&frame));
        pool.release(frame);
    });
    assert_eq!(pool.free(), pool.frames(), "all frames are home");
    let dropped: u64 = counters.drops.happened().map(|(_, count)| count).sum();
    assert!(dropped > 0 || !sent.is_empty(), "it leaves, or is counted");
    if tagged && !sent.is_empty() {
        whole.splice(12..12, [0x81, 0, 0, vlan]);
    }
    if counters.super_frames_segmented.get() > 0 {
        let headers = Headers::find(&whole).expect("it was segmented by them").payload_at;
        let payload: Vec<u8> = sent.iter().flat_map(|packet| packet[headers..].to_vec()).collect();
        // The pool may have run out, which is counted.
        assert!(whole[headers..].starts_with(&payload));
        assert!(dropped > 0 || whole.len() == headers + payload.len());
    } else if let [packet] = &sent[..] {
        let changed = packet.iter().zip(&whole).filter(|(sent, was)| sent != was).count();
        assert!(packet.len() == whole.len() && changed <= 2, "nothing but a checksum changes");
    }
}

#[test]
fn frames() {
    fuzz!("offload__frames", check);
}
