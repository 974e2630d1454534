//! Fuzzes VXLAN headers: they are read as RFC 7348 describes them, and what is written reads back.

use twinpath_wire::{ParseError, vxlan};

use crate::fuzz;

/// The header as RFC 7348 section 5 draws it, field by field: the network identifier, and where the frame begins.
fn by_the_drawing(payload: &[u8]) -> Result<(u32, usize), ParseError> {
    let bit = |at: usize| payload[at / 8] >> (7 - at % 8) & 1;
    match payload.len() {
        0..8 => Err(ParseError::VxlanTruncated),
        // R|R|R|R|I|R|R|R
        _ if bit(4) == 0 => Err(ParseError::VxlanFlags),
        8..22 => Err(ParseError::VxlanTruncated),
        _ => Ok(((32..56).fold(0, |vni, at| vni << 1 | u32::from(bit(at))), 8)),
    }
}

fn check(payload: &[u8]) {
    let read = vxlan::Packet::parse(payload);
    let wanted = by_the_drawing(payload);
    assert_eq!(read.map(|packet| (packet.vni(), payload.len() - packet.frame().len())), wanted);
    let Ok(packet) = read else { return };
    let again = [&vxlan::header(packet.vni())[..], packet.frame()].concat();
    assert_eq!(vxlan::Packet::parse(&again), Ok(packet));
}

#[test]
fn payloads() {
    fuzz!("vxlan__payloads", |input: &[u8]| check(input));
}
