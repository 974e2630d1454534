//! The frame header of datagrams (doc/protocol.txt of memcached, "UDP protocol"): the client's ID, the
//! datagram's number, the number of datagrams, and two bytes that are 0.

use twinpath::{Answer, Datagram, Reason};

pub(crate) const HEADER_LEN: usize = 8;

/// Maximum length of a datagram that we send, bytes: it passes everywhere without fragmentation. memcached
/// uses the same.
const DATAGRAM_MAX: usize = 1400;

/// Maximum number of datagrams in one reply. This also limits amplification by requests with a forged
/// source.
const DATAGRAMS_MAX: usize = 64;

/// Maximum length of a reply in all of its datagrams, bytes.
pub(crate) const REPLY_MAX: usize = DATAGRAMS_MAX * (DATAGRAM_MAX - HEADER_LEN);

/// The client's ID, and the command after the header. A command takes one datagram.
pub(crate) fn unframe(datagram: &[u8]) -> Option<([u8; 2], &[u8])> {
    match datagram {
        [high, low, 0, 0, 0, 1, _, _, command @ ..] => Some(([*high, *low], command)),
        _ => None,
    }
}

/// The header of one datagram of several.
pub(crate) const fn header([high, low]: [u8; 2], number: u16, of: u16) -> [u8; HEADER_LEN] {
    let ([number_high, number_low], [of_high, of_low]) = (number.to_be_bytes(), of.to_be_bytes());
    [high, low, number_high, number_low, of_high, of_low, 0, 0]
}

/// Whether a reply, with its header, takes one datagram.
pub(crate) const fn is_one(framed: &[u8]) -> bool {
    framed.len() <= DATAGRAM_MAX
}

/// Answers by as many datagrams as the reply takes; it is at most [`REPLY_MAX`] bytes long.
pub(crate) fn answer_by_several(datagram: &mut Datagram<'_>, id: [u8; 2], reply: &[u8]) -> Answer {
    let parts = reply.chunks(DATAGRAM_MAX - HEADER_LEN);
    let of = parts.len() as u16;
    let mut framed = Vec::with_capacity(DATAGRAM_MAX);
    for (number, part) in (0..of).zip(parts) {
        framed.clear();
        framed.extend_from_slice(&header(id, number, of));
        framed.extend_from_slice(part);
        if number + 1 < of && !datagram.send(&framed) {
            return Answer::Drop(Reason::OutboxFull);
        }
    }
    datagram.answer(&framed)
}
