//! Joins successive TCP segments of one flow to a super-frame: the inverse of [`Segmentation`](crate::offload). A
//! kernel does the same when packets arrive (`tcp_gro_receive`, net/ipv4/tcp_offload.c). This is for packets that
//! did not come through a kernel that does.
//!
//! Segments are joined only if that loses nothing: segmenting the result gives the same packets again. The caller
//! copies the payload.

use crate::checksum::Sum;
use crate::offload::Headers;
use crate::{be16, ipv4, ipv6, tcp};

/// The longest IP packet.
const PACKET_MAX: usize = 65_535;

/// Bits of an IPv4 header's flags: do not fragment (RFC 791 section 3.1).
const DONT_FRAGMENT: u8 = 0x40;

/// The properties of the segments joined so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coalesced {
    headers: Headers,
    /// Payload of each segment but the last one.
    size: usize,
    /// Payload of all.
    payload: usize,
    /// The sequence number after them.
    next: u32,
    /// The last segment has PSH set: nothing may follow.
    pushed: bool,
}

impl Coalesced {
    /// Begins with a frame. `None` if nothing may be joined to it: it is not a TCP segment with payload, does more
    /// than acknowledge, has a checksum that is wrong or left to hardware, or has headers of unusual lengths.
    #[must_use]
    pub fn begin(frame: &[u8]) -> Option<Self> {
        let headers = Headers::find(frame).filter(|headers| headers.is_tcp)?;
        let Headers { ip_at, is_ipv6, transport_at, payload_at, .. } = headers;
        let ip_len = if is_ipv6 { ipv6::HEADER_LEN } else { ipv4::HEADER_LEN };
        let ip = frame.get(ip_at..transport_at).filter(|ip| ip.len() == ip_len)?;
        let payload = frame.len().checked_sub(payload_at).filter(|len| *len > 0)?;
        let is_whole = headers.end(frame) == Some(frame.len());
        // Without fragmentation, the identification has no meaning and may be regenerated (RFC 6864 section 4.1).
        let is_plain = is_ipv6 || (ip[6] == DONT_FRAGMENT && Sum::ZERO.bytes(ip).fold() == 0xffff);
        let header = frame.get(transport_at..payload_at)?;
        let flags = header[13];
        let acknowledges = flags & !tcp::Flags::PSH == tcp::Flags::ACK;
        if !is_whole || !is_plain || !acknowledges || !headers.has_right_checksum(frame) {
            return None;
        }
        Some(Self {
            headers,
            size: payload,
            payload,
            next: sequence(header).wrapping_add(payload as u32),
            pushed: flags & tcp::Flags::PSH != 0,
        })
    }

    /// Joins a frame that follows; `first` is the one that it began with. Returns where the payload of the frame
    /// is. `None` if it is not of this flow, not the next one, or differs in fields that segmentation does not
    /// regenerate.
    pub fn join(&mut self, first: &[u8], frame: &[u8]) -> Option<core::ops::Range<usize>> {
        let Headers { ip_at, is_ipv6, transport_at, payload_at, .. } = self.headers;
        let here = Self::begin(frame).filter(|here| here.headers == self.headers)?;
        let whole = payload_at - ip_at + self.payload + here.payload;
        let is_full = self.pushed
            || !self.payload.is_multiple_of(self.size)
            || here.payload > self.size
            || whole > PACKET_MAX;
        let (ip, transport) = (frame.get(ip_at..transport_at)?, frame.get(transport_at..payload_at)?);
        let is_next = sequence(transport) == self.next && frame.get(..ip_at) == first.get(..ip_at);
        let (first_ip, first_transport) =
            (first.get(ip_at..transport_at)?, first.get(transport_at..payload_at)?);
        // All but length, identification and checksum.
        let same_ip = if is_ipv6 {
            ip[..4] == first_ip[..4] && ip[6..] == first_ip[6..]
        } else {
            ip[..2] == first_ip[..2] && ip[6..10] == first_ip[6..10] && ip[12..] == first_ip[12..]
        };
        // Everything but sequence number, PSH, and checksum.
        let same_transport = transport[..4] == first_transport[..4]
            && transport[8..13] == first_transport[8..13]
            && transport[14..16] == first_transport[14..16]
            && transport[18..] == first_transport[18..];
        if is_full || !is_next || !same_ip || !same_transport {
            return None;
        }
        self.payload += here.payload;
        (self.next, self.pushed) = (here.next, here.pushed);
        Some(payload_at..frame.len())
    }

    /// Whether there is more than one.
    #[must_use]
    pub const fn is_several(&self) -> bool {
        self.payload > self.size
    }

    /// The headers.
    #[must_use]
    pub const fn headers(&self) -> &Headers {
        &self.headers
    }

    /// Payload of each segment but the last one, bytes.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.size
    }

    /// Turns `frame`, which begins with the first segment's headers, into the super-frame. Its transport checksum
    /// is left to be completed: the field holds the pseudo-header's sum.
    ///
    /// # Panics
    /// If `frame` is shorter than the headers.
    pub fn write_headers(&self, frame: &mut [u8]) {
        let Headers { ip_at, is_ipv6, transport_at, payload_at, .. } = self.headers;
        let transport_len = payload_at - transport_at + self.payload;
        let ip_len = (transport_at - ip_at + transport_len) as u16;
        if is_ipv6 {
            put(frame, ip_at + 4, ip_len - ipv6::HEADER_LEN as u16);
        } else {
            put(frame, ip_at + 2, ip_len);
            put(frame, ip_at + 10, 0);
            let checksum = Sum::ZERO.bytes(&frame[ip_at..transport_at]).checksum();
            put(frame, ip_at + 10, checksum);
        }
        if self.pushed {
            frame[transport_at + 13] |= tcp::Flags::PSH;
        }
        let pseudo = self.headers.pseudo(frame, transport_at + transport_len).map_or(0, Sum::fold);
        put(frame, self.headers.checksum_at(), pseudo);
    }
}

fn sequence(header: &[u8]) -> u32 {
    u32::from(be16(header[4], header[5])) << 16 | u32::from(be16(header[6], header[7]))
}

fn put(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
mod tests;
