//! The interface to the transport that moves the bytes of one connection.

/// Moves bytes in order, in both directions, and never blocks.
///
/// It reports changes by edges: the host wakes the connection, which works, each time that input arrives, or room
/// for output appears, after there was none at the connection's last call.
pub trait Transport {
    /// Appends received bytes to `into`, up to its capacity, which must leave some room. If it appends fewer than
    /// fit, there are no more for now, and an edge announces the next ones.
    ///
    /// # Errors
    /// The transport has failed: no more bytes move in either direction.
    fn receive(&mut self, into: &mut Vec<u8>) -> Result<Received, Broken>;

    /// Takes `bytes` to be sent; returns how many. If it does not take all of them, an edge announces when it takes
    /// more.
    ///
    /// # Errors
    /// As for [`Self::receive`].
    fn send(&mut self, bytes: &[u8]) -> Result<usize, Broken>;

    /// Announces to the peer that nothing more will be sent. The peer may still send for any length of time.
    ///
    /// # Errors
    /// As for [`Self::receive`].
    fn finish(&mut self) -> Result<(), Broken>;
}

/// The result of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// This many bytes, at least one.
    Bytes(usize),
    /// Nothing yet.
    Nothing,
    /// The peer has sent its last byte.
    End,
}

/// The transport has failed: the peer has reset the connection, or does not answer any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;
