//! A reliable, ordered message protocol with a header of its own, for one peer over datagrams that may be lost, doubled and
//! reordered. It has neither socket nor clock: the time is an argument, and datagrams are bytes.
//!
//! | bytes | field |
//! |---|---|
//! | 0..2 | [`MAGIC`] |
//! | 2 | 1 if it carries a message, 0 if it only acknowledges |
//! | 3 | unused, 0 |
//! | 4..8 | number of the message, from 0 on; of the next one if it carries none |
//! | 8..12 | all messages before this number have been received |
//! | 12.. | the message |
//!
//! Numbers are big-endian and wrap.

use std::collections::{BTreeMap, VecDeque};

use twinpath::{Duration, Instant};

/// The first two bytes of each datagram.
pub(crate) const MAGIC: [u8; 2] = [0x74, 0x6d];
/// Bytes of the header.
pub(crate) const HEADER_LEN: usize = 12;
/// Bytes of the longest message: with its header it fits into any path (RFC 8200 section 5) without fragments.
pub(crate) const MESSAGE_MAX: usize = 1200;
/// Messages on their way in one direction, and messages kept because an earlier one is missing.
pub(crate) const WINDOW: u32 = 64;
/// The first time-out of a message; it doubles with each repetition.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(20);
/// Maximum number of retransmissions of one message, about 20 s. After that the peer counts as gone.
pub(crate) const REPEATS_MAX: u32 = 10;

/// The reason that a datagram is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It is not of this protocol, or longer than allowed.
    Malformed,
    /// Its number is further ahead than the window, or it acknowledges what was never sent.
    OutsideWindow,
}

/// A message on its way.
#[derive(Debug)]
struct Sent {
    message: Vec<u8>,
    /// When it is sent next.
    due: Instant,
    repeats: u32,
}

/// One end.
#[derive(Debug, Default)]
pub(crate) struct Connection {
    /// Number of the oldest message that is not acknowledged: the first of `sent`.
    oldest: u32,
    sent: VecDeque<Sent>,
    /// Number of the next message to be received.
    expected: u32,
    /// Messages that came before an earlier one.
    early: BTreeMap<u32, Vec<u8>>,
    received: VecDeque<Vec<u8>>,
    /// Something was received since the last datagram was sent.
    owes_acknowledgement: bool,
}

impl Connection {
    /// Whether [`Connection::send`] has room for another message.
    #[must_use]
    pub(crate) fn has_room(&self) -> bool {
        self.sent.len() < WINDOW as usize
    }

    /// Accepts a message to be sent. `false` if the window is full or the message too long: nothing was accepted.
    #[must_use]
    pub(crate) fn send(&mut self, now: Instant, message: &[u8]) -> bool {
        if !self.has_room() || message.len() > MESSAGE_MAX {
            return false;
        }
        self.sent.push_back(Sent { message: message.to_vec(), due: now, repeats: 0 });
        true
    }

    /// Takes a datagram of the peer.
    ///
    /// # Errors
    /// The reason that it is ignored.
    pub(crate) fn receive(&mut self, datagram: &[u8]) -> Result<(), Refused> {
        let (header, message) = datagram.split_first_chunk::<HEADER_LEN>().ok_or(Refused::Malformed)?;
        let [m, n, kind, _, a, b, c, d, e, f, g, h] = *header;
        if [m, n] != MAGIC || kind > 1 || kind == 0 && !message.is_empty() || message.len() > MESSAGE_MAX {
            return Err(Refused::Malformed);
        }
        let (number, acknowledged) = (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]));
        self.acknowledged(acknowledged)?;
        if kind == 0 {
            return Ok(());
        }
        // An acknowledgement that was lost is sent again for a message that was received before.
        self.owes_acknowledgement = true;
        let ahead = number.wrapping_sub(self.expected);
        if ahead >= WINDOW {
            return if self.expected.wrapping_sub(number) <= WINDOW {
                Ok(())
            } else {
                Err(Refused::OutsideWindow)
            };
        }
        // The application does not keep up: the message is dropped, and the peer repeats it.
        if self.received.len() >= WINDOW as usize {
            return Ok(());
        }
        self.early.insert(number, message.to_vec());
        while let Some(message) = self.early.remove(&self.expected) {
            self.received.push_back(message);
            self.expected = self.expected.wrapping_add(1);
        }
        Ok(())
    }

    fn acknowledged(&mut self, before: u32) -> Result<(), Refused> {
        let count = before.wrapping_sub(self.oldest);
        if count as usize <= self.sent.len() {
            self.sent.drain(..count as usize);
            self.oldest = before;
            return Ok(());
        }
        // An acknowledgement that was overtaken by a later one.
        if self.oldest.wrapping_sub(before) <= WINDOW { Ok(()) } else { Err(Refused::OutsideWindow) }
    }

    /// The next message that was received, in order.
    pub(crate) fn next(&mut self) -> Option<Vec<u8>> {
        self.received.pop_front()
    }

    /// Writes the next datagram that is due by now into `datagram`, replacing its contents. `false` if none
    /// is due.
    pub(crate) fn transmit(&mut self, now: Instant, datagram: &mut Vec<u8>) -> bool {
        let due = self.sent.iter().position(|sent| now >= sent.due);
        let number = self.oldest.wrapping_add(due.unwrap_or(self.sent.len()) as u32);
        if due.is_none() && !self.owes_acknowledgement {
            return false;
        }
        datagram.clear();
        datagram.extend(MAGIC);
        datagram.extend([u8::from(due.is_some()), 0]);
        datagram.extend(number.to_be_bytes());
        datagram.extend(self.expected.to_be_bytes());
        if let Some(sent) = due.and_then(|at| self.sent.get_mut(at)) {
            datagram.extend(&sent.message);
            sent.due = now + TIMEOUT * (1 << sent.repeats.min(REPEATS_MAX));
            sent.repeats += 1;
        }
        self.owes_acknowledgement = false;
        true
    }

    /// When [`Connection::transmit`] next has something to send, if nothing arrives before.
    #[must_use]
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.sent.iter().map(|sent| sent.due).min()
    }

    /// Whether all messages have been acknowledged, and all acknowledgements sent.
    #[must_use]
    pub(crate) fn is_quiet(&self) -> bool {
        self.sent.is_empty() && !self.owes_acknowledgement
    }

    /// Whether the peer has not answered for so long that it counts as gone.
    #[must_use]
    pub(crate) fn is_lost(&self) -> bool {
        self.sent.iter().any(|sent| sent.repeats > REPEATS_MAX)
    }
}
