//! Finds the peers for which the kernel learns another path, from copies of the ICMP messages that announce
//! it.
//!
//! The kernel validates these messages after it has copied them. The copies tell us for which peer to ask the kernel for
//! the route, and which TCP segment was too long: the kernel knows nothing of connections that are not its own.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd as _, BorrowedFd};

use twinpath_sys::PathMessages;
use twinpath_sys::path_messages::MESSAGE_BYTES;
use twinpath_time::{Duration, Instant};
use twinpath_wire::TooBig;

/// Anybody can send such messages. So the control thread reads at most [`BATCH`] of them in each
/// [`BATCH_TIME`]. Meanwhile the kernel keeps some tens, and drops the rest.
const BATCH: u32 = 64;
const BATCH_TIME: Duration = Duration::from_millis(20);

/// What a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Said {
    /// The peer to which the path has changed.
    pub(super) peer: IpAddr,
    /// The TCP segment that was too long.
    pub(super) too_big: Option<TooBig>,
    /// Its checksum is wrong.
    pub(super) is_damaged: bool,
}

/// The messages of both families that this process may see.
pub(super) struct PathWatch {
    of_ipv4: Option<PathMessages>,
    of_ipv6: Option<PathMessages>,
    began: Instant,
    read: u32,
    /// One of the sockets failed. The control loop has duplicates of their descriptors, so both stay open.
    has_ended: bool,
}

impl PathWatch {
    /// Nothing is seen.
    pub(super) const fn closed() -> Self {
        Self { of_ipv4: None, of_ipv6: None, began: Instant::ZERO, read: 0, has_ended: false }
    }

    /// Opens the sockets that this process may open: it needs CAP_NET_RAW.
    pub(super) fn open() -> Self {
        let watched = |of: io::Result<PathMessages>| {
            of.inspect_err(|error| {
                tracing::debug!(%error, "no copies of ICMP messages: a path that changes is noticed later");
            })
            .ok()
        };
        let (of_ipv4, of_ipv6) = (watched(PathMessages::of_ipv4()), watched(PathMessages::of_ipv6()));
        Self { of_ipv4, of_ipv6, ..Self::closed() }
    }

    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [&self.of_ipv4, &self.of_ipv6].into_iter().flatten().map(|messages| messages.as_fd())
    }

    /// Whether nothing is read any more.
    pub(super) const fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// When reading continues, if too many messages have arrived.
    pub(super) fn deadline(&self) -> Option<Instant> {
        (self.read == BATCH).then(|| self.began + BATCH_TIME)
    }

    /// Takes the next message that names a peer. Does not wait.
    pub(super) fn take(&mut self, now: Instant) -> Option<Said> {
        if now.since(self.began) >= BATCH_TIME {
            (self.began, self.read) = (now, 0);
        }
        while self.read < BATCH && !self.has_ended {
            let of_ipv4 = || read(self.of_ipv4.as_ref(), said_in_ipv4);
            let of_ipv6 = || read(self.of_ipv6.as_ref(), said_in_ipv6);
            // Alternating, so that a flood of one family's messages does not prevent reading the other's.
            let read = if self.read.is_multiple_of(2) {
                of_ipv4().and_then(|read| if read.is_none() { of_ipv6() } else { Ok(read) })
            } else {
                of_ipv6().and_then(|read| if read.is_none() { of_ipv4() } else { Ok(read) })
            };
            match read {
                Ok(Some(said)) => {
                    self.read += 1;
                    if said.is_some() {
                        return said;
                    }
                }
                Ok(None) => return None,
                Err(error) => {
                    tracing::warn!(%error, "no more copies of ICMP messages: a path that changes is noticed later");
                    self.has_ended = true;
                    return None;
                }
            }
        }
        None
    }
}

/// Reads one message, if there is one. Returns what it says, if it names a peer.
fn read(
    messages: Option<&PathMessages>,
    said: impl Fn(&[u8]) -> Option<Said>,
) -> io::Result<Option<Option<Said>>> {
    let Some(messages) = messages else { return Ok(None) };
    let mut message = [0; MESSAGE_BYTES];
    match messages.read(&mut message) {
        Ok(len) => Ok(Some(message.get(..len).and_then(said))),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

fn said_in_ipv4(packet: &[u8]) -> Option<Said> {
    let (peer, too_big) = (peer_in_ipv4(packet)?, TooBig::parse_ipv4(packet));
    Some(Said { peer, too_big, is_damaged: TooBig::is_damaged_ipv4(packet) })
}

fn said_in_ipv6(message: &[u8]) -> Option<Said> {
    // The kernel has verified its checksum.
    Some(Said { peer: peer_in_ipv6(message)?, too_big: TooBig::parse_ipv6(message), is_damaged: false })
}

/// The destination of the packet that an ICMP message is about; the message follows its IP header.
fn peer_in_ipv4(packet: &[u8]) -> Option<IpAddr> {
    let header_len = usize::from(packet.first()? & 0xf) * 4;
    // 8 bytes of ICMP, then the packet's header (RFC 792), whose destination is at byte 16.
    let destination = packet.get(header_len + 8 + 16..)?.first_chunk::<4>()?;
    Some(Ipv4Addr::from(*destination).into())
}

/// The same for an ICMPv6 message, without its IP header.
fn peer_in_ipv6(message: &[u8]) -> Option<IpAddr> {
    const TOO_BIG: u8 = 2;
    const REDIRECT: u8 = 137;
    let destination_at = match *message.first()? {
        // 8 bytes, then the packet's header (RFC 4443, 3.2), whose destination is at byte 24.
        TOO_BIG => 8 + 24,
        // RFC 4861, 4.5.
        REDIRECT => 24,
        _ => return None,
    };
    let destination = message.get(destination_at..)?.first_chunk::<16>()?;
    Some(Ipv6Addr::from(*destination).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_the_peer_that_its_packet_was_for() {
        let mut packet = vec![0; 24 + 8 + 20];
        packet[0] = 0x46;
        packet[24 + 8 + 16..].copy_from_slice(&[192, 0, 2, 7]);
        assert_eq!(peer_in_ipv4(&packet), Some("192.0.2.7".parse().unwrap()));
        let peer: Ipv6Addr = "2001:db8::7".parse().unwrap();
        let mut too_big = vec![0; 8 + 40];
        too_big[0] = 2;
        too_big[8 + 24..].copy_from_slice(&peer.octets());
        assert_eq!(peer_in_ipv6(&too_big), Some(peer.into()));
        let mut redirect = vec![0; 40];
        redirect[0] = 137;
        redirect[24..].copy_from_slice(&peer.octets());
        assert_eq!(peer_in_ipv6(&redirect), Some(peer.into()));
    }

    #[test]
    fn a_message_that_is_cut_off_or_another_one_names_nobody() {
        let mut packet = vec![0; MESSAGE_BYTES];
        (packet[0], packet[15 * 4]) = (0x4f, 3);
        for len in 0..60 + 8 + 20 {
            assert_eq!(peer_in_ipv4(&packet[..len]), None, "{len} bytes");
        }
        for (kind, whole) in [(2, 8 + 40), (137, 40)] {
            packet[0] = kind;
            for len in 0..whole {
                assert_eq!(peer_in_ipv6(&packet[..len]), None, "{len} bytes of type {kind}");
            }
        }
        packet[0] = 1;
        assert_eq!(peer_in_ipv6(&packet), None);
    }
}
