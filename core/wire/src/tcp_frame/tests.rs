use proptest::prelude::*;

use super::*;
use crate::tcp::{Flags, Header};

const HEADER: Header = Header {
    source_port: 7,
    destination_port: 4000,
    sequence: 0x0102_0304,
    acknowledgement: 0x0506_0708,
    flags: Flags(Flags::ACK | Flags::PSH),
    window: 0x0910,
    urgent: 0,
};

fn repr(is_ipv6: bool, ecn_capable: bool) -> TcpFrameRepr {
    let address = |text: &str| text.parse::<IpAddr>().expect("an address");
    let (source, destination) = if is_ipv6 {
        (address("2001:db8::1"), address("2001:db8::2"))
    } else {
        (address("192.0.2.1"), address("192.0.2.2"))
    };
    TcpFrameRepr {
        source_mac: Mac([2, 0, 0, 0, 0, 1]),
        destination_mac: Mac([2, 0, 0, 0, 0, 2]),
        source,
        destination,
        hop_limit: 64,
        ecn_capable,
        id: None,
    }
}

proptest! {
    #[test]
    fn a_written_frame_is_read_back(
        is_ipv6: bool, ecn_capable: bool, words in 0..11_usize, payload in prop::collection::vec(any::<u8>(), 0..1600), bit: u16
    ) {
        let (repr, options) = (repr(is_ipv6, ecn_capable), vec![1; 4 * words]);
        let mut frame = vec![0xee; HEADER_LEN_MAX + payload.len()];
        let len = repr.write(&mut frame, &HEADER, &options, &payload).expect("room");
        prop_assert_eq!(len, repr.frame_len(options.len(), payload.len()));
        prop_assert!(repr.write(&mut frame[..len - 1], &HEADER, &options, &payload).is_err());
        let len = repr.write(&mut frame, &HEADER, &options, &payload).expect("room");
        // A short frame is padded.
        let padded = &frame[..frame.len().min(len + 5)];
        let found = parse(padded, ChecksumTrust::Verify).expect("right");
        prop_assert_eq!((found.source, found.destination), (SocketAddr::new(repr.source, 7), SocketAddr::new(repr.destination, 4000)));
        prop_assert_eq!((found.checksum, found.congestion), (ChecksumFound::Right, false));
        prop_assert_eq!((found.segment.sequence(), found.segment.acknowledgement()), (0x0102_0304, 0x0506_0708));
        prop_assert_eq!((found.segment.flags(), found.segment.window()), (HEADER.flags, HEADER.window));
        prop_assert_eq!((found.segment.options(), found.segment.payload()), (&options[..], &payload[..]));
        let ecn = if is_ipv6 { frame[15] >> 4 & ECN } else { frame[15] & ECN };
        prop_assert_eq!(ecn, if ecn_capable { ECT_0 } else { 0 });
        let ends_at = (found.source, found.destination);
        prop_assert_eq!(ends(&frame[..len - payload.len()]), Some(ends_at));
        // Headers alone, with the payload elsewhere, are the same but for the rest of the checksum.
        let mut headers = [0xee; HEADER_LEN_MAX];
        let (tcp_at, headers_len) =
            repr.write_partial(&mut headers, &HEADER, &options, payload.len()).expect("room");
        prop_assert!(repr.write_partial(&mut headers[..headers_len - 1], &HEADER, &options, payload.len()).is_err());
        let parts = [&headers[tcp_at..headers_len], &payload[..]];
        let at = tcp_at + TCP_CHECKSUM_AT..tcp_at + TCP_CHECKSUM_AT + 2;
        let checksum = crate::offload::completed(parts).to_be_bytes();
        // All bits set, which UDP has in place of 0, is the same sum.
        let is_same = checksum == [0xff; 2] && frame[at.clone()] == [0; 2];
        headers[at].copy_from_slice(if is_same { &[0; 2] } else { &checksum });
        prop_assert_eq!(&headers[..headers_len], &frame[..len - payload.len()]);
        // A flipped bit of the addresses, the ports or the rest of the segment is detected.
        let from = if is_ipv6 { 22 } else { 26 };
        let bit = usize::from(bit) % (8 * (len - from));
        frame[from + bit / 8] ^= 1 << (bit % 8);
        prop_assert!(parse(&frame[..len], ChecksumTrust::Verify).is_err());
    }
}

#[test]
fn the_frame_says_when_congestion_was_experienced() {
    for is_ipv6 in [false, true] {
        let mut frame = [0; 100];
        let len = repr(is_ipv6, true).write(&mut frame, &HEADER, &[], b"x").expect("room");
        if is_ipv6 {
            frame[15] |= CONGESTION_EXPERIENCED << 4;
        } else {
            frame[15] |= CONGESTION_EXPERIENCED;
            (frame[24], frame[25]) = (0, 0);
            let checksum = Sum::ZERO.bytes(&frame[14..34]).checksum().to_be_bytes();
            frame[24..26].copy_from_slice(&checksum);
        }
        assert!(parse(&frame[..len], ChecksumTrust::Verify).expect("right").congestion, "{is_ipv6}");
    }
}

#[test]
fn what_is_no_whole_tcp_segment_is_refused() {
    for is_ipv6 in [false, true] {
        let mut frame = [0; 100];
        let len = repr(is_ipv6, false).write(&mut frame, &HEADER, &[], b"payload").expect("room");
        for short in 0..len {
            assert!(parse(&frame[..short], ChecksumTrust::Trusted).is_err(), "{short}");
        }
        let protocol_at = if is_ipv6 { 20 } else { 23 };
        frame[protocol_at] = 17;
        assert!(parse(&frame[..len], ChecksumTrust::Trusted).is_err());
    }
    let mixed = TcpFrameRepr { source: repr(true, false).source, ..repr(false, false) };
    assert_eq!(mixed.write(&mut [0; 100], &HEADER, &[], &[]), Err(EmitError::MixedFamilies));
}

#[test]
fn a_packet_that_routers_may_cut_says_so_and_has_an_identification() {
    for ecn_capable in [false, true] {
        let mut frame = [0; 100];
        for (id, field) in [(None, [0, 0, 0x40, 0]), (Some(0x1234), [0x12, 0x34, 0, 0])] {
            let repr = TcpFrameRepr { id, ..repr(false, ecn_capable) };
            let len = repr.write(&mut frame, &HEADER, &[], b"payload").expect("room");
            assert_eq!((&frame[18..22], frame[15] & ECN), (&field[..], u8::from(ecn_capable) * ECT_0));
            assert!(parse(&frame[..len], ChecksumTrust::Verify).is_ok());
        }
    }
}

#[test]
fn a_checksum_that_was_left_to_hardware_is_accepted_where_it_may_be() {
    let mut frame = [0; 100];
    let repr = repr(false, false);
    let len = repr.write(&mut frame, &HEADER, &[], b"payload").expect("room");
    let (IpAddr::V4(source), IpAddr::V4(destination)) = (repr.source, repr.destination) else {
        unreachable!()
    };
    let pseudo = Sum::ZERO.pseudo_ipv4(source, destination, 6, (len - 34) as u16).fold().to_be_bytes();
    frame[34 + TCP_CHECKSUM_AT..][..2].copy_from_slice(&pseudo);
    let found = parse(&frame[..len], ChecksumTrust::AcceptPartial).map(|frame| frame.checksum);
    assert_eq!(found, Ok(ChecksumFound::Partial));
    let found = parse(&frame[..len], ChecksumTrust::Verify).map(|frame| frame.checksum);
    assert_eq!(found, Err(ParseError::TcpChecksum));
}
