use proptest::prelude::*;

use super::*;

fn repr(v6: bool, tag: Option<Tag>) -> UdpFrameRepr {
    let (source, destination) =
        if v6 { ("[fd00::1]:4000", "[fd00::2]:7") } else { ("10.0.0.1:4000", "10.0.0.2:7") };
    UdpFrameRepr {
        source_mac: Mac([2, 0, 0, 0, 0, 1]),
        destination_mac: Mac([2, 0, 0, 0, 0, 2]),
        tag,
        source: source.parse().unwrap(),
        destination: destination.parse().unwrap(),
        hop_limit: 64,
        identification: 0x1234,
    }
}

fn build(repr: &UdpFrameRepr, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; repr.header_len()];
    frame.extend_from_slice(payload);
    let len = write_headers(&mut frame, repr, payload.len()).unwrap();
    assert_eq!(len, repr.header_len());
    frame
}

fn set_udp_checksum(frame: &mut [u8], v6: bool, checksum: u16) {
    let at = 14 + if v6 { 40 } else { 20 } + 6;
    frame[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
}

#[test]
fn a_header_is_as_long_as_its_parts() {
    let tag = Some(Tag::customer(100));
    let lens =
        [(false, None), (false, tag), (true, None), (true, tag)].map(|(v6, tag)| repr(v6, tag).header_len());
    assert_eq!(lens, [42, 46, 62, HEADER_LEN_MAX]);
}

#[test]
fn a_known_datagram_byte_for_byte() {
    // Summed by hand from RFC 791 and RFC 768: 0x141e for the pseudo-header, 0x781a for the datagram.
    let frame = build(&repr(false, None), b"hi");
    assert_eq!(
        frame[14..34],
        [0x45, 0, 0, 30, 0x12, 0x34, 0x40, 0, 64, 17, 0x14, 0x99, 10, 0, 0, 1, 10, 0, 0, 2]
    );
    assert_eq!(frame[34..], [0x0f, 0xa0, 0, 7, 0, 10, 0x73, 0xc7, b'h', b'i']);
}

#[test]
fn padding_is_no_payload_and_tags_shift() {
    for v6 in [false, true] {
        for tag in [None, Some(Tag::customer(100))] {
            let repr = repr(v6, tag);
            let mut frame = build(&repr, b"abc");
            frame.resize(frame.len() + 20, 0xee);
            let parsed = parse(&frame, ChecksumTrust::Verify).unwrap();
            assert_eq!(&frame[parsed.payload.clone()], b"abc");
            assert_eq!((parsed.source, parsed.destination), (repr.source, repr.destination));
            assert_eq!((parsed.source_mac, parsed.destination_mac), (repr.source_mac, repr.destination_mac));
            assert_eq!((parsed.tag, parsed.hop_limit), (tag, 64));
            assert_eq!(parsed.checksum, ChecksumFound::Right);
        }
    }
}

#[test]
fn checksum_zero_partial_and_wrong() {
    use ChecksumTrust::{AcceptPartial, Trusted, Verify};
    for v6 in [false, true] {
        let repr = repr(v6, None);
        let mut frame = build(&repr, b"payload");
        let pseudo = match (repr.source.ip(), repr.destination.ip()) {
            (IpAddr::V4(s), IpAddr::V4(d)) => Sum::ZERO.pseudo_ipv4(s, d, 17, 15),
            (IpAddr::V6(s), IpAddr::V6(d)) => Sum::ZERO.pseudo_ipv6(s, d, 17, 15),
            _ => unreachable!(),
        };
        let found = |frame: &[u8], trust| parse(frame, trust).map(|parsed| parsed.checksum);
        set_udp_checksum(&mut frame, v6, pseudo.fold());
        assert_eq!(found(&frame, Verify), Err(ParseError::UdpChecksum));
        assert_eq!(found(&frame, AcceptPartial), Ok(ChecksumFound::Partial));
        assert_eq!(found(&frame, Trusted), Ok(ChecksumFound::Trusted));
        set_udp_checksum(&mut frame, v6, 0);
        let zero = if v6 { Err(ParseError::UdpChecksumZero) } else { Ok(ChecksumFound::Absent) };
        assert_eq!(found(&frame, Verify), zero);
        assert_eq!(found(&frame, AcceptPartial), zero);
        set_udp_checksum(&mut frame, v6, 0x5555);
        assert_eq!(found(&frame, AcceptPartial), Err(ParseError::UdpChecksum));
    }
}

#[test]
fn a_sum_of_zero_is_sent_as_ones() {
    let repr = repr(false, None);
    // The payload's two bytes are chosen so that the sum comes out as zero.
    let without = build(&repr, &[0, 0]);
    let field = be_field(&without);
    let frame = build(&repr, &field.to_be_bytes());
    assert_eq!(be_field(&frame), 0xffff);
    assert_eq!(parse(&frame, ChecksumTrust::Verify).unwrap().checksum, ChecksumFound::Right);
}

fn be_field(frame: &[u8]) -> u16 {
    u16::from_be_bytes([frame[40], frame[41]])
}

#[test]
fn every_refusal_has_its_own_name() {
    let good4 = build(&repr(false, None), b"12345678");
    let good6 = build(&repr(true, None), b"12345678");
    let with = |frame: &[u8], changes: &[(usize, u8)]| {
        let mut frame = frame.to_vec();
        for &(at, byte) in changes {
            frame[at] = byte;
        }
        // Keep the header checksum right unless it is what is being broken.
        if frame[12] == 8 && !changes.iter().any(|&(at, _)| at == 24) {
            frame[24..26].fill(0);
            let checksum = Sum::ZERO.bytes(&frame[14..34]).checksum();
            frame[24..26].copy_from_slice(&checksum.to_be_bytes());
        }
        parse(&frame, ChecksumTrust::Verify).map(|_| ())
    };
    assert_eq!(with(&good4, &[(12, 8), (13, 6)]), Err(ParseError::EtherType));
    assert_eq!(with(&good4, &[(12, 0x81), (13, 0), (16, 0x88), (17, 0xa8)]), Err(ParseError::EthTag));
    assert_eq!(with(&good4, &[(14, 0x65)]), Err(ParseError::IpVersion));
    assert_eq!(with(&good4, &[(14, 0x44)]), Err(ParseError::IpHeaderLength));
    assert_eq!(with(&good4, &[(14, 0x4f)]), Err(ParseError::IpTruncated));
    assert_eq!(with(&good4, &[(24, 0xaa)]), Err(ParseError::IpHeaderChecksum));
    assert_eq!(with(&good4, &[(16, 1)]), Err(ParseError::IpLength));
    assert_eq!(with(&good4, &[(17, 19)]), Err(ParseError::IpLength));
    assert_eq!(with(&good4, &[(20, 0x20)]), Err(ParseError::IpFragment));
    assert_eq!(with(&good4, &[(23, 6)]), Err(ParseError::IpProtocol));
    assert_eq!(with(&good4, &[(17, 27)]), Err(ParseError::UdpTruncated));
    assert_eq!(with(&good4, &[(39, 7)]), Err(ParseError::UdpLength));
    assert_eq!(with(&good4, &[(39, 17)]), Err(ParseError::UdpLength));
    assert_eq!(with(&good4, &[(45, 0)]), Err(ParseError::UdpChecksum));
    assert_eq!(with(&good6, &[(14, 0x45)]), Err(ParseError::IpVersion));
    assert_eq!(with(&good6, &[(18, 1)]), Err(ParseError::IpLength));
    assert_eq!(with(&good6, &[(20, 44)]), Err(ParseError::IpFragment));
    assert_eq!(with(&good6, &[(20, 0)]), Err(ParseError::Ipv6Extension));
    assert_eq!(with(&good6, &[(20, 58)]), Err(ParseError::IpProtocol));
}

#[test]
fn writing_refuses_what_does_not_fit() {
    let good = repr(false, None);
    let mut buffer = [0; 100];
    assert_eq!(write_headers(&mut buffer, &good, 59), Err(EmitError::BufferTooShort));
    assert_eq!(write_headers(&mut buffer[..13], &good, 0), Err(EmitError::BufferTooShort));
    assert_eq!(write_headers(&mut buffer[..20], &good, 0), Err(EmitError::BufferTooShort));
    assert_eq!(write_headers(&mut buffer, &good, 65_528), Err(EmitError::PayloadTooLong));
    let mixed = UdpFrameRepr { source: repr(true, None).source, ..good };
    assert_eq!(write_headers(&mut buffer, &mixed, 1), Err(EmitError::MixedFamilies));
    let mut huge = vec![0; 65_600];
    assert_eq!(write_headers(&mut huge, &good, 65_508), Err(EmitError::PayloadTooLong));
    assert_eq!(write_headers(&mut huge, &good, 65_507), Ok(42));
}

proptest! {
    #[test]
    fn written_headers_parse_back(v6: bool, id in proptest::option::of(0u16..4096), payload: Vec<u8>) {
        let repr = repr(v6, id.map(Tag::customer));
        let frame = build(&repr, &payload);
        let parsed = parse(&frame, ChecksumTrust::Verify).unwrap();
        prop_assert_eq!(parsed.checksum, ChecksumFound::Right);
        prop_assert_eq!(&frame[parsed.payload.clone()], &payload[..]);
        prop_assert_eq!(parsed.tag, repr.tag);
    }

    #[test]
    fn any_bytes_are_safe(bytes: Vec<u8>, trust in prop_oneof![
        Just(ChecksumTrust::Verify), Just(ChecksumTrust::AcceptPartial), Just(ChecksumTrust::Trusted)
    ]) {
        if let Ok(parsed) = parse(&bytes, trust) {
            prop_assert!(bytes.get(parsed.payload).is_some());
        }
    }

    #[test]
    fn broken_frames_are_safe_and_single_bit_errors_are_found(
        v6: bool, at in 0usize..1000, bit in 0u8..8, cut in 0usize..200, payload: Vec<u8>
    ) {
        let mut frame = build(&repr(v6, None), &payload);
        let at = at % frame.len();
        frame[at] ^= 1 << bit;
        let ip = if v6 { 40 } else { 20 };
        // In the IPv4 header or in the UDP datagram, one flipped bit is always noticed.
        let covered = at >= 14 + ip || (!v6 && at >= 14);
        let result = parse(&frame, ChecksumTrust::Verify);
        let zeroed = matches!(&result, Ok(parsed) if parsed.checksum == ChecksumFound::Absent);
        prop_assert!(!covered || result.is_err() || zeroed);
        frame.truncate(frame.len().saturating_sub(cut + 1));
        let _ = parse(&frame, ChecksumTrust::AcceptPartial).map(|parsed| frame[parsed.payload].len());
    }
}
