//! The interface to the transport that moves the bytes of one connection.

/// Moves bytes in order, in both directions, and never blocks.
///
/// Bytes are lent, not copied. Received bytes are read where the transport has them, and stay there until they are
/// consumed. Bytes to be sent are written where the transport sends them from.
///
/// It reports changes by edges: the host wakes the connection, which works, each time that input arrives, or room
/// for output appears, after there was none at the connection's last call. An edge without a change is allowed.
///
/// All methods are called on the worker's thread. After one has returned [`Broken`], none is called any more.
pub trait Transport {
    /// Looks for bytes that have arrived. [`Self::lend`] lends them, behind those that were not consumed.
    /// [`Self::consume`] is called after each receive that returns bytes, and before the host turns to another
    /// connection, unless the connection is closed.
    ///
    /// `bytes_max` is at least one more than the bytes that were not consumed. Both together are at most this many.
    /// It is the longest request that the service accepts, so a transport must be able to lend that many in one
    /// piece: it reads no more than it can keep.
    ///
    /// # Errors
    /// The transport has failed: no more bytes move in either direction.
    fn receive(&mut self, bytes_max: usize) -> Result<Received, Broken>;

    /// Lends the received bytes that were not consumed, in one piece, and room for up to `room_max` bytes to be sent.
    ///
    /// The room is one piece, too, and may be shorter than `room_max`, or empty, if less is free. If it is empty, an
    /// edge announces when there is some. A transport lends as much as it can, because what a service writes beyond
    /// the room is copied into it later.
    ///
    /// The content of the room is arbitrary. Until the next [`Self::commit`], each call lends the same bytes of the
    /// transport, so that a reply may be written in several steps. Room that is never committed must not stay
    /// allocated when the host turns to another connection.
    fn lend(&mut self, room_max: usize) -> Lent<'_>;

    /// The first `bytes` of the received bytes are used up, and not lent again; 0 is allowed. The others are lent
    /// again, with what follows.
    fn consume(&mut self, bytes: usize);

    /// The received bytes from `from` up to `used`, for somebody who keeps them: a buffer, and where in it they begin. All
    /// before `used` are consumed. A transport that has them in a buffer of their own moves it if that saves a long copy.
    fn take(&mut self, from: usize, used: usize) -> (Vec<u8>, usize) {
        let bytes = self.received().get(from..used).unwrap_or_default().to_vec();
        self.consume(used);
        (bytes, 0)
    }

    /// Sends the first `bytes` of the room, which is at least one, and at most as many as were lent. Returns how many
    /// it takes. A transport that lends its own send buffer takes all of them.
    ///
    /// If it takes fewer, the others stay where they are in the room until the next call of [`Self::commit`] or
    /// [`Self::send`]; the caller keeps them in a place of its own, and an edge announces when more are taken.
    ///
    /// # Errors
    /// As for [`Self::receive`].
    fn commit(&mut self, bytes: usize) -> Result<usize, Broken>;

    /// Takes `bytes`, at least one, from another place than the room; returns how many. If it does not take all of
    /// them, an edge announces when it takes more. No byte of the room is written but not committed.
    ///
    /// # Errors
    /// As for [`Self::receive`].
    fn send(&mut self, bytes: &[u8]) -> Result<usize, Broken> {
        let mut sent = 0;
        while sent < bytes.len() {
            let rest = &bytes[sent..];
            let room = self.reserve(rest.len());
            let len = room.len().min(rest.len());
            if len == 0 {
                break;
            }
            room[..len].copy_from_slice(&rest[..len]);
            let taken = self.commit(len)?;
            sent += taken;
            if taken < len {
                break;
            }
        }
        Ok(sent)
    }

    /// Announces to the peer that nothing more will be sent, after all bytes that were taken. The peer may still send
    /// for any length of time.
    ///
    /// # Errors
    /// As for [`Self::receive`].
    fn finish(&mut self) -> Result<(), Broken>;

    /// How many of the bytes that it has taken the peer has acknowledged, since the connection was opened
    /// (SND.UNA of RFC 9293, 3.3.1, as a count of bytes that does not wrap). This may cost a system call.
    fn acknowledged(&self) -> u64;

    /// The received bytes that were not consumed: a part of what [`Self::lend`] lends.
    fn received(&mut self) -> &[u8] {
        self.lend(0).received
    }

    /// Room for up to `bytes_max` bytes to be sent: a part of what [`Self::lend`] lends.
    fn reserve(&mut self, bytes_max: usize) -> &mut [u8] {
        self.lend(bytes_max).room
    }
}

/// What a transport lends for a call of the service.
#[derive(Debug)]
pub struct Lent<'a> {
    /// The bytes that have been received and not consumed.
    pub received: &'a [u8],
    /// Room for bytes to be sent.
    pub room: &'a mut [u8],
}

/// The result of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// New bytes.
    Bytes {
        /// How many, at least one.
        len: usize,
        /// Whether the next receive may find more without a further edge.
        more: bool,
    },
    /// Nothing yet; an edge announces the next bytes.
    Nothing,
    /// The peer has sent its last byte. Bytes that were not consumed are still lent.
    End,
}

/// The transport has failed: the peer has reset the connection, or does not answer any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;
