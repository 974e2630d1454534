//! What is sent by a path: kept until TCP has acknowledged it, and sent again by the next connection.

use std::collections::VecDeque;

use twinpath_rds_wire::{Flags, HEADER_LEN, Header};

use crate::values::{Piece, Token};

/// The flags among the bytes of a header.
const FLAGS: usize = 24;

/// What a message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A program's message.
    Message(Token),
    /// The answer to a ping or a probe.
    Answer,
    /// It asks for an answer by this connection: it is not sent again by another one.
    Probe,
}

#[derive(Debug)]
struct Entry {
    sequence: u64,
    header: [u8; HEADER_LEN],
    len: usize,
    purpose: Purpose,
    /// Where it ends among the bytes of the connection, once it was written whole.
    end: Option<u64>,
}

/// The messages of a path, in the order of their places.
#[derive(Debug)]
pub(crate) struct Queue {
    entries: VecDeque<Entry>,
    /// The place of the next message.
    next: u64,
    /// How many entries were written whole.
    whole: usize,
    /// How many bytes of the next one were written.
    part: usize,
    /// A message without a place, which is written before the next entry, and how many bytes of it were.
    urgent: Option<(Box<[u8]>, usize)>,
    /// Bytes written to the connection.
    written: u64,
    /// Bytes of programs' messages.
    bytes: usize,
    answers: usize,
}

impl Default for Queue {
    fn default() -> Self {
        Self {
            entries: VecDeque::new(),
            next: 1,
            whole: 0,
            part: 0,
            urgent: None,
            written: 0,
            bytes: 0,
            answers: 0,
        }
    }
}

impl Queue {
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Bytes of programs' messages.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Answers to pings and probes that wait.
    pub(crate) fn answers(&self) -> usize {
        self.answers
    }

    /// The place of the next message.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Whether no message had a place ever.
    pub(crate) fn is_fresh(&self) -> bool {
        self.next == 1
    }

    /// The next message is placed there.
    pub(crate) fn go_on_at(&mut self, next: u64) {
        self.next = self.next.max(next);
    }

    /// Adds a message at the next place, which is returned.
    pub(crate) fn push(&mut self, mut header: Header, purpose: Purpose) -> u64 {
        header.sequence = self.next;
        self.next += 1;
        self.note(header.len as usize, purpose);
        self.entries.push_back(Entry::new(&header, purpose));
        header.sequence
    }

    /// Adds a message that was placed in a former life of the host.
    pub(crate) fn restore(&mut self, mut header: Header, purpose: Purpose) {
        self.go_on_at(header.sequence + 1);
        header.flags = Flags::RETRANSMITTED;
        self.note(header.len as usize, purpose);
        let at = self.entries.partition_point(|other| other.sequence < header.sequence);
        self.entries.insert(at, Entry::new(&header, purpose));
    }

    fn note(&mut self, len: usize, purpose: Purpose) {
        match purpose {
            Purpose::Message(_) => self.bytes += len,
            Purpose::Answer => self.answers += 1,
            Purpose::Probe => {}
        }
    }

    /// A connection begins: the first message is this one, at the place before all that the peer may miss. Where a
    /// message was placed before, it says that it is sent again: a peer that has seen that place drops it, and one that has
    /// started anew takes it.
    pub(crate) fn begin_with(&mut self, mut header: Header) {
        header.sequence = self.entries.front().map_or(self.next, |entry| entry.sequence) - 1;
        if !self.is_fresh() {
            header.flags = Flags::RETRANSMITTED;
        }
        self.entries.push_front(Entry::new(&header, Purpose::Probe));
    }

    /// Whether the next byte is the first one of a message.
    pub(crate) fn is_at_boundary(&self) -> bool {
        self.part == 0 && self.urgent.is_none()
    }

    /// Adds a message without a place, at a boundary.
    pub(crate) fn set_urgent(&mut self, header: &Header, payload: &[u8]) {
        self.urgent = Some(([&header.to_bytes()[..], payload].concat().into(), 0));
    }

    /// Whether there is something to write.
    pub(crate) fn has_more(&self) -> bool {
        self.urgent.is_some() || self.whole < self.entries.len()
    }

    /// The next bytes for the connection; only to the next boundary if `one`.
    pub(crate) fn pieces(&self, one: bool) -> impl Iterator<Item = Piece<'_>> {
        let urgent = self.urgent.iter().map(|(bytes, from)| Piece::Bytes(&bytes[*from..]));
        let count = if one { usize::from(self.urgent.is_none()) } else { usize::MAX };
        let entries = self.entries.iter().skip(self.whole).take(count).enumerate();
        let entries = entries.flat_map(|(number, entry)| {
            let from = if number == 0 { self.part } else { 0 };
            let header = entry.header.get(from..).filter(|rest| !rest.is_empty()).map(Piece::Bytes);
            let payload = match entry.purpose {
                Purpose::Message(token) if entry.len > 0 => {
                    Some(Piece::Payload { token, from: from.saturating_sub(HEADER_LEN) })
                }
                _ => None,
            };
            header.into_iter().chain(payload)
        });
        urgent.chain(entries)
    }

    /// The first `len` bytes of [`Self::pieces`] were written.
    pub(crate) fn advance(&mut self, mut len: usize) {
        while len > 0 {
            let took = if let Some((bytes, from)) = &mut self.urgent {
                let took = len.min(bytes.len() - *from);
                *from += took;
                if *from == bytes.len() {
                    self.urgent = None;
                }
                self.written += took as u64;
                took
            } else {
                let Some(entry) = self.entries.get_mut(self.whole) else { return };
                let took = len.min(HEADER_LEN + entry.len - self.part);
                self.part += took;
                self.written += took as u64;
                if self.part == HEADER_LEN + entry.len {
                    entry.end = Some(self.written);
                    (self.whole, self.part) = (self.whole + 1, 0);
                }
                took
            };
            len -= took;
        }
    }

    /// Bytes written to this connection.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Whether a message was written that is not acknowledged.
    pub(crate) fn is_waiting(&self) -> bool {
        self.whole > 0
    }

    /// TCP has acknowledged the first `bytes` of the connection. Returns the next message that this delivers.
    pub(crate) fn acknowledged(&mut self, bytes: u64) -> Option<Purpose> {
        self.entries.front()?.end.filter(|&end| end <= bytes)?;
        self.whole -= 1;
        let entry = self.entries.pop_front()?;
        match entry.purpose {
            Purpose::Message(_) => self.bytes -= entry.len,
            Purpose::Answer => self.answers -= 1,
            Purpose::Probe => {}
        }
        Some(entry.purpose)
    }

    /// The connection has ended: the next one starts with the first message that is not acknowledged.
    pub(crate) fn restart(&mut self) {
        let sent = self.whole + usize::from(self.part > 0);
        for (number, entry) in self.entries.iter_mut().enumerate() {
            entry.end = None;
            if number < sent {
                entry.header[FLAGS] |= Flags::RETRANSMITTED.0;
            }
        }
        self.entries.retain(|entry| entry.purpose != Purpose::Probe);
        (self.whole, self.part, self.urgent, self.written) = (0, 0, None, 0);
    }
}

impl Entry {
    fn new(header: &Header, purpose: Purpose) -> Self {
        let (sequence, len) = (header.sequence, header.len as usize);
        Self { sequence, header: header.to_bytes(), len, purpose, end: None }
    }
}
