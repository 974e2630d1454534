use twinpath_frame::Pool;
use twinpath_wire::Mac;

use super::*;

const NEAR: Mac = Mac([2, 0, 0, 0, 0, 1]);
const FAR: Mac = Mac([2, 0, 0, 0, 0, 2]);

fn egress(mtu: u32) -> Egress {
    Egress { ifindex: 3, source_mac: NEAR, next_hop_mac: FAR, mtu }
}

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

#[test]
fn sent_datagrams_are_received_over_both_families() {
    let mut pool = Pool::new(1).expect("pool");
    for (from, to) in [("192.0.2.1:7", "192.0.2.2:4000"), ("[2001:db8::1]:7", "[2001:db8::2]:4000")] {
        let mut frame = pool.take().expect("free");
        send(&mut frame, 5, address(from), address(to), &egress(1500), |payload| {
            payload.copy_from_slice(b"hello")
        })
        .expect("fits");
        let datagram = receive(&frame, false).expect("a right frame, with a right checksum");
        assert_eq!((datagram.source, datagram.destination), (address(from), address(to)));
        assert_eq!((datagram.source_mac, datagram.destination_mac), (NEAR, FAR));
        assert_eq!(&frame.bytes()[datagram.payload.clone()], b"hello");

        // Send it back without moving the payload.
        let (at, len) = (datagram.payload.start, datagram.payload.len());
        send_in_place(&mut frame, at, len, datagram.destination, datagram.source, &egress(1500))
            .expect("fits");
        let reply = receive(&frame, false).expect("a right frame");
        assert_eq!((reply.source, reply.destination), (address(to), address(from)));
        assert_eq!(&frame.bytes()[reply.payload], b"hello");
        pool.release(frame);
    }
}

#[test]
fn the_path_mtu_bounds_a_reply() {
    let mut pool = Pool::new(1).expect("pool");
    let mut frame = pool.take().expect("free");
    let mut try_len =
        |len| send(&mut frame, len, address("192.0.2.1:7"), address("192.0.2.2:4000"), &egress(576), |_| ());
    assert_eq!(try_len(576 - 28), Ok(()));
    assert_eq!(try_len(576 - 27), Err(Reason::FrameTooLarge));
    assert_eq!(try_len(1 << 20), Err(Reason::FrameTooLarge));
    pool.release(frame);
}

#[test]
fn a_flipped_bit_anywhere_is_dropped_or_harmless() {
    let mut pool = Pool::new(2).expect("pool");
    let mut frame = pool.take().expect("free");
    send(&mut frame, 8, address("192.0.2.1:7"), address("192.0.2.2:4000"), &egress(1500), |payload| {
        payload.copy_from_slice(b"12345678");
    })
    .expect("fits");
    let mut dropped = std::collections::HashMap::new();
    // The link's own checksum covers the link-layer addresses, so bits are flipped from the EtherType on.
    for bit in 12 * 8..frame.len() * 8 {
        let mut damaged = pool.take().expect("free");
        damaged.copy_from(frame.bytes()).expect("fits");
        damaged.bytes_mut()[bit / 8] ^= 1 << (bit % 8);
        let reason = receive(&damaged, false).expect_err("every bit is covered by a checksum or a check");
        *dropped.entry(reason.name()).or_insert(0) += 1;
        // A checksum left to hardware can be told from a wrong one only if it is exactly the pseudo-header's sum.
        assert!(receive(&damaged, true).is_err());
        pool.release(damaged);
    }
    for reason in ["ip_header", "ip_checksum", "udp_length", "udp_checksum", "not_claimed"] {
        assert!(dropped.contains_key(reason), "{reason} in {dropped:?}");
    }
    pool.release(frame);
}

#[test]
fn a_checksum_left_to_hardware_is_taken_where_the_port_may_deliver_it() {
    let mut pool = Pool::new(1).expect("pool");
    let mut frame = pool.take().expect("free");
    send(&mut frame, 2, address("192.0.2.1:7"), address("192.0.2.2:4000"), &egress(1500), |payload| {
        payload.copy_from_slice(b"hi");
    })
    .expect("fits");
    assert_eq!(frame.meta().checksum, Checksum::Verified, "it was written here");
    // Summed by hand: c000 + 0201 + c000 + 0202 + 0011 + 000a.
    frame.bytes_mut()[40..42].copy_from_slice(&[0x84, 0x1f]);
    let mut found = |checksum, partial_checksums| {
        frame.meta_mut().checksum = checksum;
        receive(&frame, partial_checksums).map(|datagram| was_partial(&datagram))
    };
    assert_eq!(found(Checksum::Partial, false), Ok(true));
    assert_eq!(found(Checksum::Unverified, true), Ok(true));
    assert_eq!(found(Checksum::Unverified, false), Err(Reason::UdpChecksum));
    assert_eq!(found(Checksum::Verified, false), Ok(false));
    pool.release(frame);
}

#[test]
fn every_contradiction_is_counted_under_its_reason() {
    let of = |reason| ParseError::ALL.into_iter().filter(move |error| super::reason(*error) == reason);
    for (reason, errors) in [
        (Reason::Truncated, "eth_truncated ip_truncated udp_truncated tcp_truncated vxlan_truncated"),
        (Reason::IpHeader, "ip_version ip_header_length ip_length"),
        (Reason::IpChecksum, "ip_header_checksum"),
        (Reason::UdpLength, "udp_length"),
        (Reason::TcpHeader, "tcp_header_length"),
        (Reason::UdpChecksum, "udp_checksum udp_checksum_zero"),
        (Reason::TcpChecksum, "tcp_checksum"),
        (Reason::NotClaimed, "eth_tag ethertype ip_fragment ipv6_extension ip_protocol"),
        (Reason::VxlanFlags, "vxlan_flags"),
    ] {
        assert_eq!(of(reason).map(ParseError::name).collect::<Vec<_>>().join(" "), errors);
    }
}

#[test]
fn a_payload_too_near_to_the_start_of_its_frame_has_no_room_for_headers() {
    let mut pool = Pool::new(1).expect("pool");
    let (from, to) = (address("192.0.2.1:7"), address("192.0.2.2:4000"));
    for (at, outcome) in [(41, Err(Reason::FrameTooLarge)), (42, Ok(())), (43, Ok(()))] {
        let mut frame = pool.take().expect("free");
        frame.set_len(at + 3).expect("fits");
        frame.bytes_mut()[at..].copy_from_slice(b"abc");
        assert_eq!(send_in_place(&mut frame, at, 3, from, to, &egress(1500)), outcome, "{at}");
        if outcome.is_ok() {
            let datagram = receive(&frame, false).expect("a right frame");
            assert_eq!((&frame.bytes()[datagram.payload], datagram.hop_limit), (&b"abc"[..], 64));
            assert_eq!(frame.len(), 45);
        }
        pool.release(frame);
    }
}
