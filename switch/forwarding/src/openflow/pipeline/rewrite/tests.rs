//! What the fuzz target, which compares with an interpreter, does not see: what stands beside a frame's bytes.

use twinpath_frame::{Checksum, Frame, Pool};
use twinpath_openflow_wire::{Action, Field};

use super::*;
use crate::openflow::pipeline::parse::Ingress;

/// An IPv4 packet with UDP, whose checksum is left to hardware.
fn packet(pool: &mut Pool) -> Packet {
    let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 9, 8, 0];
    bytes.extend([0x45, 0, 0, 30, 0, 0, 0, 0, 64, 17, 0x66, 0xcd, 10, 0, 0, 1, 10, 0, 0, 2]);
    // The sum of the pseudo-header: addresses, protocol, length.
    bytes.extend([0, 80, 0, 81, 0, 10, 0x14, 0x1e, 1, 2]);
    let mut frame = pool.take().expect("free");
    frame.copy_from(&bytes).expect("it fits");
    let meta = frame.meta_mut();
    (meta.checksum, meta.checksum_start, meta.checksum_offset, meta.headers_len) =
        (Checksum::Partial, 34, 6, 42);
    let mut packet = Packet::new(frame, Ingress::default());
    assert!(packet.read());
    packet
}

fn after(actions: &[Action], check: impl FnOnce(&Frame)) {
    let mut pool = Pool::new(2).expect("pool");
    let mut packet = packet(&mut pool);
    for action in actions {
        rewrite(&mut packet, action).expect("done");
    }
    check(&packet.frame);
    pool.release(packet.frame);
}

#[test]
fn of_a_checksum_that_is_left_to_hardware_only_the_pseudo_header_changes() {
    let ports = Action::SetField { field: Field::UdpDst, value: 9 };
    after(std::slice::from_ref(&ports), |frame| assert_eq!(frame.bytes()[40..42], [0x14, 0x1e]));
    let address = Action::SetField { field: Field::Ipv4Src, value: 0x0a00_0005 };
    after(&[ports, address], |frame| assert_eq!(frame.bytes()[40..42], [0x14, 0x22]));
}

/// The sum of a transport header, its payload and its pseudo-header with this protocol number: 0xffff if its checksum is right.
fn sum_with(frame: &Frame, protocol: u8, is_ipv6: bool) -> u16 {
    let (addresses, segment) =
        if is_ipv6 { frame.bytes()[22..].split_at(32) } else { frame.bytes()[26..].split_at(8) };
    let pseudo = [addresses, &(segment.len() as u32).to_be_bytes(), &[0, protocol]].concat();
    let words = pseudo.chunks(2).chain(segment.chunks(2));
    let sum: u32 = words.map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    ((sum & 0xffff) + (sum >> 16)) as u16
}

#[test]
fn the_checksum_of_the_transport_header_is_over_the_number_of_its_protocol() {
    let set = Action::SetField { field: Field::IpProto, value: 17 };
    for is_ipv6 in [false, true] {
        let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 9];
        if is_ipv6 {
            bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, 6, 64]);
            bytes.extend([[0x20; 16], [0x21; 16]].concat());
        } else {
            bytes.extend([8, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0x66, 0xce, 10, 0, 0, 1, 10, 0, 0, 2]);
        }
        bytes.extend([0, 80, 0, 81, 0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
        let checksum_at = bytes.len() - 4;
        let mut pool = Pool::new(1).expect("pool");
        let mut frame = pool.take().expect("free");
        frame.copy_from(&bytes).expect("it fits");
        let checksum = !sum_with(&frame, 6, is_ipv6);
        frame.bytes_mut()[checksum_at..checksum_at + 2].copy_from_slice(&checksum.to_be_bytes());
        let mut packet = Packet::new(frame, Ingress::default());
        assert!(packet.read());
        rewrite(&mut packet, &set).expect("done");
        assert_eq!(sum_with(&packet.frame, 17, is_ipv6), 0xffff);
        assert_eq!(packet.key().0[crate::openflow::pipeline::key::IP_PROTO.word] >> 8 & 0xff, 17);
        pool.release(packet.frame);
    }
}

#[test]
fn the_protocol_of_a_checksum_that_is_left_to_hardware_changes_in_the_pseudo_header() {
    let set = Action::SetField { field: Field::IpProto, value: 6 };
    after(&[set], |frame| {
        assert_eq!((&frame.bytes()[40..42], frame.bytes()[23]), (&[0x14, 0x13][..], 6));
        assert_eq!(frame.bytes()[24..26], [0x66, 0xd8]);
    });
}

#[test]
fn places_in_the_metadata_move_with_the_headers() {
    let places = |frame: &Frame| (frame.meta().checksum_start, frame.meta().headers_len);
    after(&[Action::PushVlan(0x88a8)], |frame| assert_eq!(places(frame), (38, 46)));
    after(&[Action::PushVlan(0x88a8), Action::PopVlan], |frame| assert_eq!(places(frame), (34, 42)));
    after(&[Action::PushPbb(0x88e7), Action::PushMpls(0x8847)], |frame| assert_eq!(places(frame), (56, 64)));
    after(&[Action::PushPbb(0x88e7), Action::PopPbb], |frame| assert_eq!(places(frame), (34, 42)));
}

#[test]
fn a_customer_tag_stands_beside_the_bytes_unless_it_is_not_the_outermost() {
    after(&[Action::PushVlan(0x8100)], |frame| {
        assert_eq!((frame.meta().vlan, frame.bytes().len()), (Some(0), 44));
    });
    let id = Action::SetField { field: Field::VlanVid, value: 0x1007 };
    after(&[Action::PushVlan(0x8100), id, Action::PushVlan(0x8100)], |frame| {
        assert_eq!((frame.meta().vlan, &frame.bytes()[12..18]), (Some(7), &[0x81, 0, 0, 7, 8, 0][..]));
    });
}

#[test]
fn a_header_that_finds_no_room_is_not_put_in() {
    let mut pool = Pool::new(1).expect("pool");
    let mut packet = packet(&mut pool);
    let results: Vec<_> = (0..20).map(|_| rewrite(&mut packet, &Action::PushPbb(0x88e7))).collect();
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 256 / 18);
    assert_eq!(results.last(), Some(&Err(CannotRewrite::NoRoom)));
    pool.release(packet.frame);
}
