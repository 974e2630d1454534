//! Messages that a service sends besides its answer: datagrams to any peer, and bytes on any of its
//! connections. They are collected during one call, with limits, and sent after it, before the answer.

use std::net::SocketAddr;

/// Maximum number of datagrams and pieces of bytes in one call.
const SENDS_MAX: usize = 64;

/// Maximum number of bytes in one call.
const BYTES_MAX: usize = 256 << 10;

/// The name of a connection on its worker, which no other connection of that worker ever has. See
/// [`Output::connection`](crate::Output::connection).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ConnectionId {
    number: u32,
    serial: u64,
}

impl ConnectionId {
    /// The connection in place `number` of its worker, as the `serial`th that the worker has opened.
    #[must_use]
    pub const fn new(number: u32, serial: u64) -> Self {
        Self { number, serial }
    }

    /// Its place on the worker.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.number
    }
}

/// The destination of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipient {
    /// A peer, from this address of ours.
    Peer {
        /// Our address and port, at which the service is served.
        local: SocketAddr,
        /// The peer.
        peer: SocketAddr,
    },
    /// A connection of the same worker.
    Connection(ConnectionId),
}

/// The datagrams and bytes that a service sends in one call besides its answer.
#[derive(Debug, Default)]
pub struct Outbox {
    bytes: Vec<u8>,
    /// Each recipient, and the end of its bytes.
    sends: Vec<(Recipient, usize)>,
}

impl Outbox {
    /// Sends a datagram from an address of the service to a peer. Returns whether there was room for it in this call:
    /// for 64 sends and 256 KiB in all.
    ///
    /// It leaves by the path that leads to the peer. If it cannot be sent, it is counted under the reason.
    #[must_use]
    pub fn send_from(&mut self, local: SocketAddr, peer: SocketAddr, datagram: &[u8]) -> bool {
        self.push(Recipient::Peer { local, peer }, datagram)
    }

    /// Sends bytes on a connection of the same worker: immediately, or after a reply that is being written
    /// there. Returns whether there was room in this call, as for [`Self::send_from`].
    ///
    /// They are dropped and counted if the connection is over (`late_reply`), or holds its maximum already
    /// (`outbox_full`).
    #[must_use]
    pub fn send_on(&mut self, connection: ConnectionId, bytes: &[u8]) -> bool {
        self.push(Recipient::Connection(connection), bytes)
    }

    fn push(&mut self, recipient: Recipient, bytes: &[u8]) -> bool {
        let fits = self.sends.len() < SENDS_MAX && self.bytes.len() + bytes.len() <= BYTES_MAX;
        if fits {
            self.bytes.extend_from_slice(bytes);
            self.sends.push((recipient, self.bytes.len()));
        }
        fits
    }

    /// Whether nothing is to be sent.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.sends.is_empty()
    }

    /// The bytes of all that is to be sent.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Everything that is to be sent, oldest first.
    pub fn sends(&self) -> impl Iterator<Item = (Recipient, &[u8])> {
        let mut from = 0;
        self.sends
            .iter()
            .map(move |(recipient, end)| (*recipient, &self.bytes[std::mem::replace(&mut from, *end)..*end]))
    }

    /// Forgets what is to be sent; its memory is used again.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.sends.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_keeps_its_order_and_is_bounded() {
        let (local, peer) = (SocketAddr::from(([192, 0, 2, 1], 7)), SocketAddr::from(([192, 0, 2, 2], 9)));
        let mut outbox = Outbox::default();
        assert!(outbox.send_from(local, peer, b"one") && outbox.send_on(ConnectionId::new(3, 9), b""));
        assert!(outbox.send_from(local, peer, b"three"));
        let sent: Vec<_> = outbox.sends().collect();
        let to_peer = Recipient::Peer { local, peer };
        let on = Recipient::Connection(ConnectionId::new(3, 9));
        assert_eq!(sent, [(to_peer, &b"one"[..]), (on, b""), (to_peer, b"three")]);
        outbox.clear();
        assert!(outbox.is_empty());
        assert!((0..SENDS_MAX).all(|_| outbox.send_from(local, peer, b"x")));
        assert!(!outbox.send_from(local, peer, b"x"));
        outbox.clear();
        assert!(outbox.send_from(local, peer, &[0; BYTES_MAX]) && !outbox.send_from(local, peer, b"x"));
    }
}
