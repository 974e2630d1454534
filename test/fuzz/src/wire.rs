//! Fuzzes header parsing: no bytes cause a panic, and a header that is parsed and written again is the same.

use twinpath_wire::checksum::Sum;
use twinpath_wire::udp_frame::{self, UdpFrame, UdpFrameRepr};
use twinpath_wire::{ChecksumTrust, eth, ipv4, ipv6, tcp, udp};

use crate::{fuzz, seed};

const TRUSTS: [ChecksumTrust; 2] = [ChecksumTrust::Verify, ChecksumTrust::AcceptPartial];

/// Calls every accessor of every view that the bytes allow.
fn walk(frame: &[u8]) {
    let Ok(eth) = eth::Frame::parse(frame) else { return };
    assert_eq!(eth.header_len() + eth.payload().len(), frame.len());
    let _ = (eth.source(), eth.destination(), eth.tag(), eth.ethertype());
    if let Ok(ip) = ipv4::Packet::parse(eth.payload()) {
        assert!(ip.header_len() + ip.payload().len() <= eth.payload().len());
        let _ = (ip.traffic_class(), ip.identification(), ip.is_fragment(), ip.hop_limit(), ip.protocol());
        let _ = (ip.source(), ip.destination());
        walk_transport(ip.payload(), |len| ip.pseudo(len));
    }
    if let Ok(ip) = ipv6::Packet::parse(eth.payload()) {
        assert!(ipv6::HEADER_LEN + ip.payload().len() <= eth.payload().len());
        let _ = (ip.traffic_class(), ip.next_header(), ip.hop_limit(), ip.source(), ip.destination());
        walk_transport(ip.payload(), |len| ip.pseudo(len));
    }
}

fn walk_transport(ip_payload: &[u8], pseudo: impl Fn(u16) -> Sum) {
    let len = u16::try_from(ip_payload.len()).expect("an IP length field has 16 bits");
    if let Ok(datagram) = udp::Datagram::parse(ip_payload) {
        assert_eq!(usize::from(datagram.len()), udp::HEADER_LEN + datagram.payload().len());
        let _ = (datagram.source_port(), datagram.destination_port(), datagram.checksum());
        for trust in TRUSTS {
            let _ = datagram.verify_ipv4(pseudo(datagram.len()), trust);
            let _ = datagram.verify_ipv6(pseudo(datagram.len()), trust);
        }
    }
    if let Ok(segment) = tcp::Segment::parse(ip_payload) {
        assert!(segment.payload().len() <= ip_payload.len());
        let _ = (segment.source_port(), segment.destination_port(), segment.flags());
        for trust in TRUSTS {
            let _ = segment.verify(pseudo(len), trust);
        }
    }
}

/// Writes a parsed frame and parses it again.
fn same_when_written_again(frame: &[u8], read: &UdpFrame) {
    let repr = UdpFrameRepr {
        source_mac: read.source_mac,
        destination_mac: read.destination_mac,
        tag: read.tag,
        source: read.source,
        destination: read.destination,
        hop_limit: read.hop_limit,
        identification: 0,
    };
    let payload = &frame[read.payload.clone()];
    let headers = repr.header_len();
    let mut again = vec![0; headers];
    again.extend_from_slice(payload);
    let written = udp_frame::write_headers(&mut again, &repr, payload.len());
    assert_eq!(written, Ok(headers));
    let reread = udp_frame::parse(&again, ChecksumTrust::Verify).expect("what we write is valid");
    assert_eq!(&again[reread.payload.clone()], payload);
    let UdpFrame { source_mac, destination_mac, tag, source, destination, hop_limit, .. } = reread;
    assert_eq!((source_mac, destination_mac, tag), (read.source_mac, read.destination_mac, read.tag));
    assert_eq!((source, destination, hop_limit), (read.source, read.destination, read.hop_limit));
}

fn check(frame: &[u8]) {
    walk(frame);
    let [verified, lenient] = TRUSTS.map(|trust| udp_frame::parse(frame, trust));
    if let Ok(read) = &lenient {
        same_when_written_again(frame, read);
    }
    if let Ok(read) = verified {
        assert_eq!(
            lenient.map(|lenient| lenient.payload),
            Ok(read.payload),
            "trusting more takes nothing away"
        );
    }
}

#[test]
fn frames() {
    fuzz!("wire__frames", check);
}

#[test]
fn damaged_frames() {
    fuzz!("wire__damaged_frames", |input: &[u8]| check(&seed::damaged_frame(input)));
}
