//! Messages in a byte stream.

use crate::message::{HEADER_LEN, Header};

/// Bytes of its buffer that a reader keeps between messages.
const KEPT_MAX: usize = 1024;

/// A message says that it is shorter than its own head: where the next one starts is unknown. The answer is
/// `OFPBRC_BAD_LEN`, and the end of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message of {} bytes, which is less than its head", header.len)]
pub struct LostFraming {
    /// The head of that message.
    pub header: Header,
}

/// Takes messages from a stream that arrives in pieces of any size. It keeps the received part of an incomplete
/// message, and nothing else: at most 65,535 bytes, and never more than have come.
///
/// A message that is complete in one piece is returned in place.
#[derive(Debug, Default)]
pub struct Frames {
    /// The received part of an incomplete message, or the message returned last.
    kept: Vec<u8>,
    handed_out: bool,
}

/// Bytes that the first message of a stream has, or that its head needs at least.
fn needed(stream: &[u8]) -> Result<usize, LostFraming> {
    match Header::of(stream) {
        None => Ok(HEADER_LEN),
        Some(header) if usize::from(header.len) < HEADER_LEN => Err(LostFraming { header }),
        Some(header) => Ok(header.len.into()),
    }
}

impl Frames {
    /// A reader at the start of a stream.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The next message. It consumes what it reads of `input`: after `None`, `input` is empty and the rest of the
    /// message has not come yet.
    ///
    /// # Errors
    /// The stream cannot be read any further.
    pub fn next<'r, 'i: 'r>(&'r mut self, input: &mut &'i [u8]) -> Result<Option<&'r [u8]>, LostFraming> {
        if std::mem::take(&mut self.handed_out) {
            self.kept.clear();
            self.kept.shrink_to(KEPT_MAX);
        }
        if self.kept.is_empty()
            && let Some((message, rest)) = input.split_at_checked(needed(input)?)
        {
            *input = rest;
            return Ok(Some(message));
        }
        loop {
            let missing = needed(&self.kept)?.saturating_sub(self.kept.len());
            if missing == 0 {
                self.handed_out = true;
                return Ok(Some(&self.kept));
            }
            if input.is_empty() {
                return Ok(None);
            }
            let (more, rest) = input.split_at(missing.min(input.len()));
            *input = rest;
            self.kept.extend_from_slice(more);
        }
    }

    /// Whether part of a message has been received.
    #[must_use]
    pub const fn is_unfinished(&self) -> bool {
        !self.handed_out && !self.kept.is_empty()
    }
}
