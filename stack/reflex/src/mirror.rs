//! Mirrors: replies that equal their request. The programs of `stack/bpf` (`bpf/reflex.h`) decide and reply as this
//! code does, which is what a worker would have sent.

use core::net::IpAddr;

use twinpath_wire::udp_frame::{self, UdpFrameRepr};
use twinpath_wire::{ChecksumFound, ChecksumTrust, Mac, eth, udp};

use crate::not_replied::NotReplied;
use crate::ports::answers_by_itself;

/// How replies to a peer leave through the interface on which its requests arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// Link-layer address of the next hop.
    pub next_hop: Mac,
    /// Our link-layer address.
    pub own: Mac,
    /// Largest IP packet on the path, bytes.
    pub mtu: u32,
}

/// The kernel's knowledge of a datagram's checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// None: it must be summed.
    Nothing,
    /// On a virtual device, whether it was left to hardware.
    Partial(bool),
}

/// Hop limit of packets from workers (`stack/udp/src/udp.rs`).
const HOP_LIMIT: u8 = 64;

/// The reply to a datagram that matched a claim with a mirror; `way` finds the egress to its sender.
///
/// # Errors
/// Why there is none. Rates, canaries and stuck workers are not considered here.
pub fn datagram(
    frame: &[u8],
    known: Known,
    way: impl FnOnce(IpAddr) -> Option<Way>,
) -> Result<Vec<u8>, NotReplied> {
    let request = udp_frame::parse(frame, ChecksumTrust::Trusted).map_err(|_| NotReplied::Header)?;
    let (payload, source, destination) = (request.payload, request.source, request.destination);
    let udp_at = payload.start - udp::HEADER_LEN;
    let be16 = |at: usize| {
        frame.get(at..at + 2).and_then(<[u8]>::first_chunk).map_or(0, |pair| u16::from_be_bytes(*pair))
    };
    let (length_at, ip_header_len) = if source.is_ipv4() { (2, 20) } else { (4, 0) };
    let ip_payload_len = usize::from(be16(eth::HEADER_LEN + length_at)).wrapping_sub(ip_header_len);
    if request.tag.is_some() || ip_payload_len != payload.len() + udp::HEADER_LEN {
        return Err(NotReplied::Header);
    }
    if be16(udp_at + 6) == 0 {
        return Err(NotReplied::NoChecksum);
    }
    if answers_by_itself(source.port(), destination.port()) {
        return Err(NotReplied::Port);
    }
    let way = way(source.ip()).ok_or(NotReplied::Peer)?;
    if (way.next_hop, way.own) != (request.source_mac, request.destination_mac) {
        return Err(NotReplied::Peer);
    }
    if payload.end - eth::HEADER_LEN > way.mtu as usize {
        return Err(NotReplied::Mtu);
    }
    let trust = if known == Known::Nothing { ChecksumTrust::Verify } else { ChecksumTrust::AcceptPartial };
    let checked = udp_frame::parse(frame, trust).map_err(|_| NotReplied::Checksum)?;
    if checked.checksum == ChecksumFound::Partial && known != Known::Partial(true) {
        return Err(NotReplied::Checksum);
    }
    let repr = UdpFrameRepr {
        source_mac: way.own,
        destination_mac: way.next_hop,
        tag: None,
        source: destination,
        destination: source,
        hop_limit: HOP_LIMIT,
        identification: 0,
    };
    let mut reply = frame.get(..payload.end).unwrap_or_default().to_vec();
    udp_frame::write_headers(&mut reply, &repr, payload.len()).map_err(|_| NotReplied::Header)?;
    Ok(reply)
}

/// The reply to a frame of a claimed EtherType: it goes back to its sender. `len_max`: the longest frame that the
/// interface sends.
///
/// # Errors
/// [`NotReplied::Header`]: its sender is a group, or ourselves. [`NotReplied::Mtu`].
pub fn frame(frame: &[u8], len_max: u32) -> Result<Vec<u8>, NotReplied> {
    let view = eth::Frame::parse(frame).map_err(|_| NotReplied::Header)?;
    let (source, destination) = (view.source(), view.destination());
    if source.is_group() || source == destination {
        return Err(NotReplied::Header);
    }
    if frame.len() > len_max as usize {
        return Err(NotReplied::Mtu);
    }
    let mut reply = frame.to_vec();
    reply[..6].copy_from_slice(&source.0);
    reply[6..12].copy_from_slice(&destination.0);
    Ok(reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAY: Way = Way { next_hop: Mac([2, 0, 0, 0, 0, 9]), own: Mac([2, 0, 0, 0, 0, 1]), mtu: 1500 };

    fn request(source: &str, payload: &[u8]) -> Vec<u8> {
        let repr = UdpFrameRepr {
            source_mac: WAY.next_hop,
            destination_mac: WAY.own,
            tag: None,
            source: source.parse().expect("an address"),
            destination: "192.0.2.1:7000".parse().expect("an address"),
            hop_limit: 3,
            identification: 99,
        };
        let mut frame = [&[0; 42][..], payload].concat();
        udp_frame::write_headers(&mut frame, &repr, payload.len()).expect("it fits");
        frame
    }

    fn reply(frame: &[u8]) -> Result<Vec<u8>, NotReplied> {
        datagram(frame, Known::Nothing, |_| Some(WAY))
    }

    #[test]
    fn the_reply_has_the_payload_and_headers_of_its_own() {
        let mut padded = request("192.0.2.9:4000", b"hello");
        padded.resize(60, 0);
        let answer =
            udp_frame::parse(&reply(&padded).expect("a reply"), ChecksumTrust::Verify).expect("whole");
        assert_eq!((answer.source.port(), answer.destination.port(), answer.hop_limit), (7000, 4000, 64));
        assert_eq!(
            (answer.source_mac, answer.destination_mac, answer.payload),
            (WAY.own, WAY.next_hop, 42..47)
        );
    }

    #[test]
    fn what_is_not_certain_is_left_to_a_worker() {
        let good = request("192.0.2.9:4000", b"hello");
        let with = |at: usize, byte: u8| {
            let mut frame = good.clone();
            frame[at] ^= byte;
            reply(&frame)
        };
        assert_eq!(with(24, 1), Err(NotReplied::Header), "the checksum of the IPv4 header");
        assert_eq!(with(44, 1), Err(NotReplied::Checksum));
        assert_eq!(with(6, 4), Err(NotReplied::Peer), "another station's frame");
        assert_eq!(reply(&request("192.0.2.9:7", b"hello")), Err(NotReplied::Port));
        assert_eq!(reply(&request("192.0.2.9:7000", b"hello")), Err(NotReplied::Port));
        assert_eq!(datagram(&good, Known::Nothing, |_| None), Err(NotReplied::Peer));
        let narrow = Way { mtu: 32, ..WAY };
        assert_eq!(datagram(&good, Known::Nothing, |_| Some(narrow)), Err(NotReplied::Mtu));
        let mut none = good.clone();
        none[40..42].fill(0);
        assert_eq!(reply(&none), Err(NotReplied::NoChecksum));
    }

    #[test]
    fn a_frame_goes_back_to_its_sender_alone() {
        assert_eq!(frame(b"ddddddssssss\x88\xb5x", 99), Err(NotReplied::Header), "`s` is a group address");
        let reply = frame(b"\x02ddddd\x02sssss\x88\xb5x", 99).expect("a reply");
        assert_eq!(reply, b"\x02sssss\x02ddddd\x88\xb5x");
        assert_eq!(frame(&reply, 14), Err(NotReplied::Mtu));
        assert_eq!(frame(&[2; 20], 99), Err(NotReplied::Header));
    }
}
