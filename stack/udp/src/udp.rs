//! UDP on the fast path: parses a frame to a datagram, and turns a reply into a frame.

use std::net::SocketAddr;

use twinpath_frame::{Checksum, Frame};
use twinpath_inspect::Reason;
use twinpath_wire::udp_frame::{self, HEADER_LEN_MAX, UdpFrame, UdpFrameRepr};
use twinpath_wire::{ChecksumFound, ChecksumTrust, ParseError};

use crate::egress::Egress;

/// Hop limit of our packets: the kernel's default (net.ipv4.ip_default_ttl).
const HOP_LIMIT: u8 = 64;

/// Parses a claimed frame. `partial_checksums`: the port may deliver checksums that the sender left to hardware.
///
/// # Errors
/// The reason under which to drop it.
#[inline]
pub fn receive(frame: &Frame, partial_checksums: bool) -> Result<UdpFrame, Reason> {
    udp_frame::parse(frame.bytes(), trust(frame, partial_checksums)).map_err(reason)
}

/// How far the transport checksum of a received frame is trusted. `partial_checksums`: as for [`receive`].
#[inline]
#[must_use]
pub fn trust(frame: &Frame, partial_checksums: bool) -> ChecksumTrust {
    match frame.meta().checksum {
        Checksum::Verified => ChecksumTrust::Trusted,
        Checksum::Partial => ChecksumTrust::AcceptPartial,
        Checksum::Unverified if partial_checksums => ChecksumTrust::AcceptPartial,
        Checksum::Unverified => ChecksumTrust::Verify,
    }
}

/// Whether the sender had left its checksum to hardware.
#[must_use]
pub fn was_partial(datagram: &UdpFrame) -> bool {
    datagram.checksum == ChecksumFound::Partial
}

/// Why a claimed frame that does not parse is dropped. The verdict claimed it by its headers. If they now contradict
/// that, it was corrupted or forged.
#[must_use]
pub const fn reason(error: ParseError) -> Reason {
    match error {
        ParseError::EthTruncated
        | ParseError::IpTruncated
        | ParseError::UdpTruncated
        | ParseError::TcpTruncated
        | ParseError::VxlanTruncated => Reason::Truncated,
        ParseError::IpVersion | ParseError::IpHeaderLength | ParseError::IpLength => Reason::IpHeader,
        ParseError::IpHeaderChecksum => Reason::IpChecksum,
        ParseError::UdpLength => Reason::UdpLength,
        ParseError::UdpChecksum | ParseError::UdpChecksumZero => Reason::UdpChecksum,
        ParseError::TcpHeaderLength => Reason::TcpHeader,
        ParseError::TcpChecksum => Reason::TcpChecksum,
        ParseError::EthTag
        | ParseError::EtherType
        | ParseError::IpFragment
        | ParseError::Ipv6Extension
        | ParseError::IpProtocol => Reason::NotClaimed,
        ParseError::VxlanFlags => Reason::VxlanFlags,
    }
}

/// Turns `frame`, whose payload of `payload_len` bytes begins `payload_at` bytes into its data, into a datagram
/// from `source` to `destination` that leaves through `egress`. The payload is not moved.
///
/// # Errors
/// [`Reason::FrameTooLarge`] if it exceeds the path's MTU, or the headers do not fit in front.
#[inline]
pub fn send_in_place(
    frame: &mut Frame,
    payload_at: usize,
    payload_len: usize,
    source: SocketAddr,
    destination: SocketAddr,
    egress: &Egress,
) -> Result<(), Reason> {
    let repr = UdpFrameRepr {
        source_mac: egress.source_mac,
        destination_mac: egress.next_hop_mac,
        tag: None,
        source,
        destination,
        hop_limit: HOP_LIMIT,
        // "Don't fragment" is set, so the value does not matter (RFC 6864, 4.1).
        identification: 0,
    };
    let header_len = repr.header_len();
    if !fits(header_len + payload_len, egress) {
        return Err(Reason::FrameTooLarge);
    }
    let start = payload_at.checked_sub(header_len).ok_or(Reason::FrameTooLarge)?;
    frame.advance(start).map_err(|_| Reason::FrameTooLarge)?;
    frame.set_len(header_len + payload_len).map_err(|_| Reason::FrameTooLarge)?;
    udp_frame::write_headers(frame.bytes_mut(), &repr, payload_len).map_err(|_| Reason::FrameTooLarge)?;
    frame.meta_mut().checksum = Checksum::Verified;
    Ok(())
}

/// Whether a frame of `frame_len` bytes is within the path's MTU.
fn fits(frame_len: usize, egress: &Egress) -> bool {
    frame_len <= egress.mtu as usize + twinpath_wire::eth::HEADER_LEN
}

/// Turns an empty `frame` into a datagram; `write` writes its payload of `payload_len` bytes.
///
/// # Errors
/// As [`send_in_place`].
#[inline]
pub fn send(
    frame: &mut Frame,
    payload_len: usize,
    source: SocketAddr,
    destination: SocketAddr,
    egress: &Egress,
    write: impl FnOnce(&mut [u8]),
) -> Result<(), Reason> {
    frame.set_len(HEADER_LEN_MAX + payload_len).map_err(|_| Reason::FrameTooLarge)?;
    write(&mut frame.bytes_mut()[HEADER_LEN_MAX..]);
    send_in_place(frame, HEADER_LEN_MAX, payload_len, source, destination, egress)
}

#[cfg(test)]
mod tests;
