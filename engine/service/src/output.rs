//! What a service writes to a connection: gathered, bounded, sent once per turn.

/// Bytes to be sent on a connection, up to a limit.
#[derive(Debug)]
pub struct Output<'a> {
    bytes: &'a mut Vec<u8>,
    limit: usize,
}

impl<'a> Output<'a> {
    /// Gathers in `bytes`, which may grow to `limit`.
    #[must_use]
    pub const fn new(bytes: &'a mut Vec<u8>, limit: usize) -> Self {
        Self { bytes, limit }
    }

    /// Bytes that still fit.
    #[must_use]
    pub fn room(&self) -> usize {
        self.limit.saturating_sub(self.bytes.len())
    }

    /// Adds `bytes`, all or nothing; says whether they fitted.
    #[must_use]
    pub fn write(&mut self, bytes: &[u8]) -> bool {
        let fits = bytes.len() <= self.room();
        if fits {
            self.bytes.extend_from_slice(bytes);
        }
        fits
    }
}
