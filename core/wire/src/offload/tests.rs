//! Super-frames against packets that a plain writer built one by one.

use proptest::prelude::*;

use super::*;

/// What a packet says, in all that distinguishes one of a super-frame from the next.
#[derive(Clone, Debug)]
struct Plain {
    ipv6: bool,
    /// Tags in the frame, and bytes of extension headers or options.
    tags: usize,
    extensions: usize,
    is_tcp: bool,
    /// Words of options of the TCP header.
    options: usize,
    identification: u16,
    sequence: u32,
    flags: u8,
    payload: Vec<u8>,
}

/// RFC 1071 section 4.1, in its simplest form.
fn plain_sum(bytes: &[u8]) -> u16 {
    let mut sum = 0u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

impl Plain {
    fn transport_header_len(&self) -> usize {
        if self.is_tcp { 20 + 4 * self.options } else { 8 }
    }

    fn number(&self) -> u8 {
        if self.is_tcp { 6 } else { 17 }
    }

    fn headers_len(&self) -> usize {
        14 + 4 * self.tags + if self.ipv6 { 40 } else { 20 } + self.extensions + self.transport_header_len()
    }

    /// The frame; its transport checksum is complete, or left to hardware.
    fn write(&self, is_partial: bool) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
        for tag in 0..self.tags {
            frame.extend([if tag == 0 && self.tags == 2 { 0x88 } else { 0x81 }, 0, 0x60, 100]);
            if frame[frame.len() - 4] == 0x88 {
                let at = frame.len() - 3;
                frame[at] = 0xa8;
            }
        }
        frame.extend(if self.ipv6 { [0x86, 0xdd] } else { [8, 0] });
        let transport_len = self.transport_header_len() + self.payload.len();
        let addresses = if self.ipv6 {
            let mut addresses = [0x20; 32];
            (addresses[15], addresses[31]) = (1, 2);
            let next = if self.extensions > 0 { 60 } else { self.number() };
            frame.extend([0x61, 0x23, 0x45, 0x67]);
            frame.extend(((self.extensions + transport_len) as u16).to_be_bytes());
            frame.extend([next, 61]);
            frame.extend(addresses);
            if self.extensions > 0 {
                frame.extend([self.number(), (self.extensions / 8 - 1) as u8]);
                frame.extend(vec![0; self.extensions - 2]);
            }
            addresses.to_vec()
        } else {
            let addresses = [192, 0, 2, 1, 192, 0, 2, 2];
            let ip_at = frame.len();
            frame.extend([0x45 + (self.extensions / 4) as u8, 3]);
            frame.extend(((20 + self.extensions + transport_len) as u16).to_be_bytes());
            frame.extend(self.identification.to_be_bytes());
            frame.extend([0x40, 0, 61, self.number(), 0, 0]);
            frame.extend(addresses);
            frame.extend(vec![1; self.extensions]);
            let sum = !plain_sum(&frame[ip_at..]);
            frame[ip_at + 10..ip_at + 12].copy_from_slice(&sum.to_be_bytes());
            addresses.to_vec()
        };
        let transport_at = frame.len();
        frame.extend([0x30, 0x39, 0x10, 0xe1]);
        let checksum_at = if self.is_tcp {
            frame.extend(self.sequence.to_be_bytes());
            frame.extend([0, 0, 0, 9, ((5 + self.options) << 4) as u8, self.flags, 1, 0, 0, 0, 0, 0]);
            frame.extend(vec![1; 4 * self.options]);
            transport_at + 16
        } else {
            frame.extend((transport_len as u16).to_be_bytes());
            frame.extend([0, 0]);
            transport_at + 6
        };
        frame.extend(&self.payload);
        let mut pseudo = addresses;
        pseudo.extend([0, 0, 0, self.number()]);
        pseudo.extend((transport_len as u32).to_be_bytes());
        let checksum = if is_partial {
            plain_sum(&pseudo)
        } else {
            pseudo.extend(&frame[transport_at..]);
            match !plain_sum(&pseudo) {
                0 if !self.is_tcp => 0xffff,
                checksum => checksum,
            }
        };
        frame[checksum_at..checksum_at + 2].copy_from_slice(&checksum.to_be_bytes());
        frame
    }

    /// The packets that a sender without offloads would have sent in place of this one.
    fn divided(&self, size: usize) -> Vec<Vec<u8>> {
        let chunks: Vec<&[u8]> =
            if self.payload.is_empty() { vec![&[]] } else { self.payload.chunks(size).collect() };
        let mut packets = Vec::new();
        for (number, payload) in chunks.iter().enumerate() {
            let mut packet = self.clone();
            packet.payload = payload.to_vec();
            packet.identification = self.identification.wrapping_add(number as u16);
            packet.sequence = self.sequence.wrapping_add((number * size) as u32);
            if number + 1 < chunks.len() {
                packet.flags &= !0x09;
            }
            if number > 0 {
                packet.flags &= !0x80;
            }
            packets.push(packet.write(false));
        }
        packets
    }
}

fn plain() -> impl Strategy<Value = Plain> {
    let shape = (any::<bool>(), 0usize..3, 0usize..5, any::<bool>(), 0usize..11);
    let numbers = (any::<u16>(), any::<u32>(), any::<u8>());
    let payload = proptest::collection::vec(any::<u8>(), 0..4_000);
    (shape, numbers, payload).prop_map(|((ipv6, tags, extensions, tcp, options), numbers, payload)| Plain {
        ipv6,
        tags,
        extensions: 8 * extensions,
        is_tcp: tcp,
        options,
        identification: numbers.0,
        sequence: numbers.1,
        flags: numbers.2,
        payload,
    })
}

fn segments(frame: &[u8], size: u16) -> Result<Vec<Vec<u8>>, CannotSegment> {
    Ok(packets_of(frame, &Segmentation::of(frame, frame.len(), size)?))
}

fn packets_of(frame: &[u8], segmentation: &Segmentation) -> Vec<Vec<u8>> {
    let packets = (0..segmentation.count()).map(|number| {
        let payload = &frame[segmentation.payload(number)];
        let mut packet = [&frame[..segmentation.headers().payload_at], payload].concat();
        assert!(packet.len() <= segmentation.packet_len_max());
        segmentation.write_headers(number, &mut packet, Sum::ZERO.bytes(payload));
        packet
    });
    packets.collect()
}

/// A tunnel's headers.
#[derive(Clone, Copy, Debug)]
struct Tunnel {
    ipv6: bool,
    /// The number of what IP carries: UDP, GRE or IP.
    number: u8,
    has_checksum: bool,
    identification: u16,
}

impl Tunnel {
    /// A frame in it.
    fn around(self, frame: &[u8]) -> Vec<u8> {
        let inner = Headers::find(frame).expect("headers");
        let number = if self.number == 4 && inner.is_ipv6 { 41 } else { self.number };
        let mut carried = match self.number {
            17 => [&[0xff, 0xff, 0x12, 0xb5, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 7, 0][..], frame].concat(),
            47 if self.has_checksum => [&[0x80, 0, 0x65, 0x58, 0, 0, 0, 0][..], frame].concat(),
            47 => [&[0x20, 0, 0x65, 0x58, 0, 0, 0, 9][..], frame].concat(),
            _ => frame[inner.ip_at..].to_vec(),
        };
        let addresses = if self.ipv6 { vec![0xfd; 32] } else { vec![10, 0, 0, 1, 10, 0, 0, 2] };
        let len = carried.len() as u16;
        if self.number == 17 {
            carried[4..6].copy_from_slice(&len.to_be_bytes());
        }
        if self.has_checksum && matches!(self.number, 17 | 47) {
            let mut summed = carried.clone();
            if self.number == 17 {
                summed = [addresses.clone(), vec![0, 17, len.to_be_bytes()[0], len.to_be_bytes()[1]], summed]
                    .concat();
            }
            let at = if self.number == 17 { 6 } else { 4 };
            let sum = match !plain_sum(&summed) {
                0 if self.number == 17 => 0xffff,
                sum => sum,
            };
            carried[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        }
        let mut outer = vec![2, 0, 0, 0, 0, 4, 2, 0, 0, 0, 0, 3];
        if self.ipv6 {
            outer.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            outer.extend(len.to_be_bytes());
            outer.extend([number, 64]);
            outer.extend(addresses);
        } else {
            outer.extend([8, 0, 0x45, 0]);
            outer.extend((len + 20).to_be_bytes());
            outer.extend(self.identification.to_be_bytes());
            outer.extend([0x40, 0, 64, number, 0, 0]);
            outer.extend(addresses);
            let sum = !plain_sum(&outer[14..]);
            outer[24..26].copy_from_slice(&sum.to_be_bytes());
        }
        [outer, carried].concat()
    }
}

fn tunnel() -> impl Strategy<Value = Tunnel> {
    let number = prop_oneof![Just(17_u8), Just(47), Just(4)];
    (any::<bool>(), number, any::<bool>(), any::<u16>()).prop_map(
        |(ipv6, number, has_checksum, identification)| Tunnel { ipv6, number, has_checksum, identification },
    )
}

/// One's complement has two zeros; TCP allows either in its checksum.
fn same(ours: &[u8], theirs: &[u8]) -> bool {
    let at = Headers::find(theirs).expect("headers").checksum_at();
    let mut ours = ours.to_vec();
    if ours.get(at..at + 2) == Some(&[0xff, 0xff]) && theirs[at..at + 2] == [0, 0] {
        ours[at..at + 2].fill(0);
    }
    ours == theirs
}

proptest! {
    #[test]
    fn a_super_frame_becomes_what_a_sender_without_offloads_sends(plain in plain(), size in 4u16..2_000) {
        let frame = plain.write(true);
        let headers = Headers::find(&frame).expect("headers");
        prop_assert_eq!(headers.payload_at, plain.headers_len());
        prop_assert!(headers.has_partial_checksum(&frame));
        prop_assert_eq!(headers.end(&frame), Some(frame.len()));
        let (ours, theirs) = (segments(&frame, size).expect("a super-frame"), plain.divided(usize::from(size)));
        prop_assert_eq!(ours.len(), theirs.len());
        for (ours, theirs) in ours.iter().zip(&theirs) {
            prop_assert!(same(ours, theirs), "{:02x?}\n{:02x?}", ours, theirs);
        }
    }

    #[test]
    fn datagrams_of_a_super_frame_may_leave_their_checksums_to_hardware(plain in plain(), size in 4u16..2_000) {
        let plain = Plain { is_tcp: false, ..plain };
        let whole = plain.write(true);
        let headers_len = plain.headers_len();
        let segmentation = Segmentation::of(&whole[..headers_len], whole.len(), size);
        prop_assume!(segmentation.is_ok());
        let segmentation = segmentation.expect("assumed");
        for number in 0..segmentation.count() {
            let mut packet = whole[..headers_len].to_vec();
            packet.extend_from_slice(&whole[segmentation.payload(number)]);
            let mut complete = packet.clone();
            let payload = Sum::ZERO.bytes(&packet[headers_len..]);
            segmentation.write_headers(number, &mut complete, payload);
            segmentation.write_datagram_headers(number, &mut packet);
            let headers = Headers::find(&packet).expect("headers");
            prop_assert!(headers.has_partial_checksum(&packet));
            let checksum = completed([&packet[headers.transport_at..]]);
            packet[headers.checksum_at()..][..2].copy_from_slice(&checksum.to_be_bytes());
            prop_assert!(packet == complete);
        }
    }

    #[test]
    fn a_super_frame_in_a_tunnel_becomes_packets_in_it(plain in plain(), tunnel in tunnel(), size in 4u16..2_000) {
        let inner = plain.write(true);
        let headers = Headers::find(&inner).expect("headers");
        let frame = tunnel.around(&inner);
        let moved = frame.len() - inner.len();
        let (start, checksum_at) = (headers.transport_at + moved, headers.checksum_at() + moved);
        let ours = Segmentation::in_tunnel(&frame, frame.len(), size, start, checksum_at).expect("a super-frame");
        prop_assert!(ours.is_in_tunnel());
        let ours = packets_of(&frame, &ours);
        let theirs = plain.divided(usize::from(size));
        prop_assert_eq!(ours.len(), theirs.len());
        for (number, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
            let identification = tunnel.identification.wrapping_add(number as u16);
            let expected = Tunnel { identification, ..tunnel }.around(theirs);
            let mut ours = ours.clone();
            // One's complement has two zeros.
            if ours[checksum_at..checksum_at + 2] == [0xff, 0xff] && expected[checksum_at..checksum_at + 2] == [0, 0] {
                ours[checksum_at..checksum_at + 2].fill(0);
            }
            prop_assert_eq!(&ours, &expected);
        }
        // The checksum left to hardware would be that of the outer packet, or of none.
        for (start, checksum_at) in [(0, checksum_at), (start + 4, checksum_at), (start, checksum_at + 2)] {
            prop_assert!(Segmentation::in_tunnel(&frame, frame.len(), size, start, checksum_at).is_err());
        }
    }

    #[test]
    fn what_is_no_tunnel_is_refused(
        plain in plain(), tunnel in tunnel(), size in any::<u16>(), at in 0usize..120, value in any::<u8>(),
        len in any::<usize>(), start in 0usize..200, offset in prop_oneof![Just(16_usize), Just(6), any::<u8>().prop_map(usize::from)],
    ) {
        let mut frame = tunnel.around(&plain.write(true));
        if let Some(byte) = frame.get_mut(at) {
            *byte ^= value;
        }
        frame.truncate(len % (frame.len() + 1));
        if let Ok(found) = Segmentation::in_tunnel(&frame, frame.len(), size, start, start + offset) {
            let packets = packets_of(&frame, &found);
            let headers = found.headers().payload_at;
            let payload: usize = packets.iter().map(|packet| packet.len() - headers).sum();
            prop_assert_eq!(headers + payload, frame.len(), "no byte of the payload is lost");
        }
    }

    #[test]
    fn a_checksum_left_to_hardware_is_completed(plain in plain(), cut in 1usize..500) {
        let (mut ours, theirs) = (plain.write(true), plain.write(false));
        let headers = Headers::find(&ours).expect("headers");
        let checksum = completed(ours[headers.transport_at..].chunks(cut));
        ours[headers.checksum_at()..headers.checksum_at() + 2].copy_from_slice(&checksum.to_be_bytes());
        prop_assert!(same(&ours, &theirs));
    }

    #[test]
    fn what_cannot_be_segmented_is_refused(
        plain in plain(), size in any::<u16>(), at in 0usize..120, value in any::<u8>(), len in any::<usize>(),
    ) {
        let mut frame = plain.write(true);
        if let Some(byte) = frame.get_mut(at) {
            *byte ^= value;
        }
        frame.truncate(len % (frame.len() + 1));
        if let Ok(packets) = segments(&frame, size) {
            prop_assert!(packets.len() <= SEGMENTS_MAX);
            let headers = Headers::find(&frame).expect("headers").payload_at;
            let payload: usize = packets.iter().map(|packet| packet.len() - headers).sum();
            prop_assert_eq!(headers + payload, frame.len(), "no byte of the payload is lost");
        }
    }
}

#[test]
fn what_has_no_transport_header_in_sight_is_left_alone() {
    let whole = Plain {
        ipv6: false,
        tags: 0,
        extensions: 0,
        is_tcp: false,
        options: 0,
        identification: 1,
        sequence: 0,
        flags: 0,
        payload: b"some bytes".to_vec(),
    };
    let frame = whole.write(false);
    let headers = Headers::find(&frame).expect("headers");
    assert_eq!((headers.ip_at, headers.transport_at, headers.payload_at), (14, 34, 42));
    assert!(!headers.has_partial_checksum(&frame), "it is complete");
    let changed = |at: usize, value: u8| {
        let mut frame = frame.clone();
        frame[at] = value;
        Headers::find(&frame)
    };
    // ARP, IP version 5, a header of 16 bytes, a first and a later fragment, ICMP.
    for (at, value) in [(13, 6), (14, 0x55), (14, 0x44), (20, 0x20), (21, 1), (23, 1)] {
        assert_eq!(changed(at, value), None, "{at}: {value:#x}");
    }
    assert_eq!(Headers::find(&frame[..41]), None);
    // Padding behind the packet is no part of it.
    let padded = [&frame[..], &[0; 8]].concat();
    assert_eq!(headers.end(&padded), Some(frame.len()));
    assert_eq!(segments(&padded, 4), Err(CannotSegment));
    assert_eq!(segments(&frame, 0), Err(CannotSegment));
    let long = Plain { payload: vec![0; SEGMENTS_MAX + 1], ..whole }.write(true);
    assert_eq!(segments(&long, 1), Err(CannotSegment));
    assert_eq!(segments(&long, 2).map(|packets| packets.len()), Ok(SEGMENTS_MAX.div_ceil(2)));
}

/// UDP 192.0.2.1:7 to 192.0.2.2:9 without a payload.
///
/// The pseudo-header gives 0x841d (c000 + 0201 + c000 + 0202 + 0011 + 0008); with 7 + 9 + 8 it is 0x8435, complemented
/// 0x7bca.
#[test]
fn a_checksum_worked_out_by_hand() {
    assert_eq!(completed([&[0, 7, 0, 9, 0, 8, 0x84, 0x1d][..]]), 0x7bca);
    // The sum is 0xffff, whose complement would read "no checksum".
    assert_eq!(completed([&[0xff, 0xfe, 0, 1][..]]), 0xffff);
}
