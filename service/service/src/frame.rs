//! A whole frame that is being served: for services that claim an EtherType rather than a port.

use crate::Answer;

/// Bytes of the two addresses at the start of a frame (IEEE 802.3, 3.1.1): destination, then source.
const ADDRESSES_LEN: usize = 12;

/// A frame, starting at its destination address, in the buffer in which its answer is built.
#[derive(Debug)]
pub struct EthernetFrame<'a> {
    buffer: &'a mut [u8],
    len: usize,
}

impl<'a> EthernetFrame<'a> {
    /// A frame of `len` bytes at the start of `buffer`; `len` is limited to the buffer's length.
    #[must_use]
    pub fn new(buffer: &'a mut [u8], len: usize) -> Self {
        let len = len.min(buffer.len());
        Self { buffer, len }
    }

    /// The frame as it was received.
    #[must_use]
    pub fn request(&self) -> &[u8] {
        &self.buffer[..self.len]
    }

    /// The whole buffer: the frame, followed by room for a longer answer.
    pub fn buffer(&mut self) -> &mut [u8] {
        self.buffer
    }

    /// Swaps its addresses, so that it returns to its sender. A frame too short for addresses is not
    /// changed.
    pub fn swap_addresses(&mut self) {
        if let Some(addresses) = self.buffer[..self.len].first_chunk_mut::<ADDRESSES_LEN>() {
            addresses.rotate_left(ADDRESSES_LEN / 2);
        }
    }

    /// Answers with the frame as it is now, at the length received.
    pub const fn echo(&self) -> Answer {
        Answer::Reply { len: self.len }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_answer_may_be_built_behind_the_frame() {
        let mut buffer = *b"frame, and room";
        let mut frame = EthernetFrame::new(&mut buffer, 5);
        assert_eq!((frame.request(), frame.echo()), (&b"frame"[..], Answer::Reply { len: 5 }));
        frame.buffer()[4..].copy_from_slice(b"E behind it");
        assert_eq!(frame.buffer().len(), 15);
        assert_eq!(frame.request(), b"framE");
        assert_eq!(EthernetFrame::new(&mut buffer, 99).request().len(), 15, "never beyond it");
    }
}
