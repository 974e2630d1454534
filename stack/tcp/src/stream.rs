//! A connection's bytes, to be read and written by its program.

use twinpath_stream::{Broken, Lent, Received, Transport};
use twinpath_time::Instant;

use crate::connection::{Connection, Shared};
use crate::marks::End;

/// The bytes of a connection. Received ones are read where they lie: in the segment, or in the receive buffer. Those
/// to be sent are written where they stay until they are acknowledged.
#[derive(Debug)]
pub struct Stream<'a> {
    connection: &'a mut Connection,
    shared: &'a mut Shared,
    /// Payload that has just arrived, if nothing is queued before it, and what of it was used.
    fresh: &'a [u8],
    used: usize,
    now: Instant,
}

impl<'a> Stream<'a> {
    #[inline]
    pub(crate) fn new(
        connection: &'a mut Connection,
        shared: &'a mut Shared,
        fresh: &'a [u8],
        now: Instant,
    ) -> Self {
        Self { connection, shared, fresh, used: 0, now }
    }

    #[inline]
    pub(crate) const fn used(&self) -> usize {
        self.used
    }

    /// The bytes that have arrived and were not consumed.
    #[must_use]
    #[inline]
    pub fn received(&self) -> &[u8] {
        if self.fresh.is_empty() { self.connection.receive.bytes() } else { &self.fresh[self.used..] }
    }

    /// Uses up the first `bytes` of them.
    #[inline]
    pub fn consume(&mut self, bytes: usize) {
        if self.fresh.is_empty() {
            let bytes = bytes.min(self.connection.receive.len());
            if bytes > 0 {
                self.connection.discard(bytes, self.shared);
            }
            self.connection.consumed(self.now, bytes, self.shared);
        } else {
            let bytes = bytes.min(self.fresh.len() - self.used);
            self.used += bytes;
            self.connection.consumed(self.now, bytes, self.shared);
        }
    }

    /// Bytes that are still to be consumed until urgent data ends, those included that have not arrived; 0 if there is
    /// none (RFC 9293 section 3.8.5, MUST-33). They are read as all others are.
    #[must_use]
    pub fn urgent_bytes(&self) -> usize {
        self.connection.urgent_left(self.received().len()) as usize
    }

    /// Whether the peer has sent its last byte, and all was read.
    #[must_use]
    pub fn is_at_end(&self) -> bool {
        self.connection.is_at_end()
    }

    /// Whether bytes can be written at all.
    #[must_use]
    #[inline]
    pub fn may_write(&self) -> bool {
        self.connection.may_write()
    }

    /// Bytes that may be written now.
    #[must_use]
    #[inline]
    pub fn room(&self) -> usize {
        if self.connection.may_write() { self.connection.room() as usize } else { 0 }
    }

    /// `count` bytes to be written, of which [`Self::commit_bytes`] sends the first ones. `None` if there is no room
    /// for all, which is announced then.
    #[inline]
    pub fn reserve_exactly(&mut self, count: usize) -> Option<&mut [u8]> {
        if !self.connection.may_write() {
            return None;
        }
        self.connection.reserve(count, self.shared)
    }

    /// Sends the first `count` reserved bytes.
    #[inline]
    pub fn commit_bytes(&mut self, count: usize) {
        self.connection.commit(count);
    }

    /// Takes as many of `bytes` as there is room for; returns how many. Room for the others is announced.
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        self.write_as(bytes, End::Piece)
    }

    /// The same; `end` says what the last byte ends, if all are taken. Bytes that are urgent are so also if others are
    /// left.
    pub fn write_as(&mut self, bytes: &[u8], end: End) -> usize {
        let count = bytes.len().min(self.room());
        if count < bytes.len() {
            self.connection.want_room();
        }
        if count == 0 {
            return 0;
        }
        match self.connection.reserve(count, self.shared) {
            Some(room) => {
                room.copy_from_slice(&bytes[..count]);
                let end = if count < bytes.len() && end != End::Urgent { End::Piece } else { end };
                self.connection.commit_as(count, end, self.shared);
                count
            }
            None => 0,
        }
    }

    /// Nothing more will be written.
    pub fn end(&mut self) {
        self.connection.finish(self.now, self.shared);
    }

    /// The bytes that the peer has acknowledged.
    #[must_use]
    pub const fn acknowledged_bytes(&self) -> u64 {
        self.connection.totals.bytes_acked
    }
}

/// The transport of a service's connection. The number of bytes that were received and not consumed stays the same
/// from one of the connection's turns to the next, so a turn begins where the one before has ended.
impl Transport for Stream<'_> {
    fn receive(&mut self, bytes_max: usize) -> Result<Received, Broken> {
        if self.connection.is_broken() {
            return Err(Broken);
        }
        self.connection.make_room_to_read(bytes_max);
        // Not the trait's, which is this one's user.
        let len = Self::received(self).len();
        let known = self.connection.lent.min(len as u32) as usize;
        let lent = len.min(bytes_max);
        if lent > known {
            self.connection.lent = lent as u32;
            // The end of the stream may have come in the same edge.
            let more = lent < len || self.connection.has_all_but(len);
            return Ok(Received::Bytes { len: lent - known, more });
        }
        Ok(if self.connection.has_all_but(known) { Received::End } else { Received::Nothing })
    }

    fn lend(&mut self, room_max: usize) -> Lent<'_> {
        let Self { connection, shared, fresh, used, .. } = self;
        let received = if fresh.is_empty() { None } else { Some(&fresh[*used..]) };
        let lent = connection.lent as usize;
        let (queued, room) = connection.lend(room_max, shared);
        let received = received.unwrap_or(queued);
        Lent { received: &received[..lent.min(received.len())], room }
    }

    fn consume(&mut self, bytes: usize) {
        Self::consume(self, bytes);
        self.connection.lent = self.connection.lent.saturating_sub(bytes as u32);
    }

    fn commit(&mut self, bytes: usize) -> Result<usize, Broken> {
        if self.connection.is_broken() {
            return Err(Broken);
        }
        self.connection.commit(bytes);
        Ok(bytes)
    }

    fn send(&mut self, bytes: &[u8]) -> Result<usize, Broken> {
        if self.connection.is_broken() {
            return Err(Broken);
        }
        Ok(self.write(bytes))
    }

    fn finish(&mut self) -> Result<(), Broken> {
        if self.connection.is_broken() {
            return Err(Broken);
        }
        self.end();
        Ok(())
    }

    fn acknowledged(&self) -> u64 {
        self.acknowledged_bytes()
    }
}
