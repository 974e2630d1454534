//! What moves the bytes of one connection.

/// Moves bytes in order, both ways, and never waits.
///
/// It tells by edges: whoever hosts the connection calls [`Connection::woken`](crate::Connection::woken), and has it work, each time that
/// there is something to receive, or room to send, where there was none when the connection asked last.
pub trait Transport {
    /// Appends bytes that have come to `into`, as many as its capacity has room for; there is some. If it appends fewer than that, there is
    /// no more, and an edge tells when there is.
    ///
    /// # Errors
    /// It failed; nothing more comes and nothing more leaves.
    fn receive(&mut self, into: &mut Vec<u8>) -> Result<Received, Broken>;

    /// Takes `bytes` to be sent; returns how many. If these are not all, an edge tells when it takes more.
    ///
    /// # Errors
    /// As [`Self::receive`].
    fn send(&mut self, bytes: &[u8]) -> Result<usize, Broken>;

    /// Says to the peer that nothing more will be sent. It may send for as long as it likes.
    ///
    /// # Errors
    /// As [`Self::receive`].
    fn finish(&mut self) -> Result<(), Broken>;
}

/// What a transport had when it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// So many bytes, at least one.
    Bytes(usize),
    /// Nothing yet.
    Nothing,
    /// The peer has sent its last byte.
    End,
}

/// A transport has failed: the peer has reset it, or it has given the peer up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken;
