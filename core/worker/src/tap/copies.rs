//! The ring between a tap and its capture. A copy that is longer than a slot takes several, so that super-frames
//! are complete, and short frames do not take the memory of long ones.

use twinpath_rings::slots::{self, BadShape, Note, Shape, SlotConsumer, SlotProducer};

/// Maximum number of bytes per slot: a frame that is not a super-frame.
const SLOT_BYTES_MAX: u32 = 2048;

/// Why the ring could not be made.
#[derive(Debug, thiserror::Error)]
pub enum CopiesError {
    /// The number of slots or of bytes is not possible.
    #[error(transparent)]
    Shape(#[from] BadShape),
    /// The kernel's error.
    #[error(transparent)]
    Memory(#[from] rustix::io::Errno),
}

/// A ring of `slots` slots, for copies of at most `snaplen` bytes.
///
/// # Errors
/// [`CopiesError`]
pub fn copies(slots: u32, snaplen: u32) -> Result<(CopyProducer, CopyConsumer), CopiesError> {
    let slot_bytes = snaplen.min(SLOT_BYTES_MAX);
    let (producer, consumer) = slots::ring(Shape::new(slots, slot_bytes)?)?;
    let room = vec![0; slot_bytes as usize].into_boxed_slice();
    let consumer = CopyConsumer { ring: consumer, snaplen, room, copy: Vec::new(), is_whole: false };
    Ok((CopyProducer { ring: producer, snaplen }, consumer))
}

/// The tap's end.
#[derive(Debug)]
pub struct CopyProducer {
    ring: SlotProducer,
    snaplen: u32,
}

impl CopyProducer {
    /// Maximum number of bytes of a copy.
    pub(super) const fn snaplen(&self) -> u32 {
        self.snaplen
    }

    /// Copies a packet, or its beginning if it is longer than `snaplen`; `note` holds its full length. Returns
    /// whether there was room.
    pub(super) fn push(&mut self, note: Note, bytes: &[u8]) -> bool {
        let bytes = &bytes[..bytes.len().min(self.snaplen as usize)];
        let slot_bytes = self.ring.shape().slot_bytes();
        let slots = (bytes.len() as u32).div_ceil(slot_bytes).max(1);
        if !self.ring.has_room(slots) {
            return false;
        }
        let (first, rest) = bytes.split_at(bytes.len().min(slot_bytes as usize));
        let pieces = [first].into_iter().chain(rest.chunks(slot_bytes as usize));
        self.ring.push_each(pieces.map(|piece| (note, piece))).1.is_none()
    }

    /// As [`SlotProducer::publish`].
    pub(super) fn publish(&mut self) -> bool {
        self.ring.publish()
    }
}

/// The capture's end.
#[derive(Debug)]
pub struct CopyConsumer {
    ring: SlotConsumer,
    snaplen: u32,
    /// The contents of one slot.
    room: Box<[u8]>,
    /// The part of the copy received so far.
    copy: Vec<u8>,
    is_whole: bool,
}

impl CopyConsumer {
    /// The next copy, once all of it is there.
    pub fn pop(&mut self) -> Option<(Note, &[u8])> {
        if std::mem::take(&mut self.is_whole) {
            self.copy.clear();
        }
        loop {
            let Ok(slot) = self.ring.pop_into(&mut self.room)? else {
                // Not written by one of our workers.
                self.copy.clear();
                continue;
            };
            self.copy.extend_from_slice(&self.room[..slot.len.min(self.room.len())]);
            if self.copy.len() >= slot.note.original_len.min(self.snaplen) as usize {
                self.is_whole = true;
                return Some((slot.note, &self.copy));
            }
        }
    }

    /// As [`SlotConsumer::arm`].
    pub fn arm(&mut self) {
        self.ring.arm();
    }

    /// As [`SlotConsumer::look`].
    #[must_use]
    pub fn look(&self) -> bool {
        self.ring.look()
    }

    /// As [`SlotConsumer::disarm`].
    pub fn disarm(&mut self) {
        self.ring.disarm();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(original_len: usize) -> Note {
        Note { original_len: original_len as u32, ..Note::default() }
    }

    #[test]
    fn a_copy_of_any_length_is_whole_or_not_there() {
        for snaplen in [1, 2047, 2048, 2049, 65_535, 262_144] {
            let (mut producer, mut consumer) = copies(64, snaplen).expect("a ring");
            for len in [0, 1, 2047, 2048, 2049, 4096, 9014, 65_549, 65_535] {
                let packet: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
                assert!(producer.push(note(len), &packet), "{snaplen}, {len}");
                let _ = producer.publish();
                let kept = &packet[..len.min(snaplen as usize)];
                let (found, copy) = consumer.pop().expect("a copy");
                assert!(found.original_len as usize == len && copy == kept, "{snaplen}, {len}");
                assert!(consumer.pop().is_none());
            }
        }
    }

    #[test]
    fn without_room_for_all_of_a_copy_none_of_it_is_pushed() {
        let (mut producer, mut consumer) = copies(4, 65_535).expect("a ring");
        let packet = vec![7; 3 * 2048];
        assert!(producer.push(note(packet.len()), &packet));
        assert!(!producer.push(note(packet.len()), &packet), "there is one slot left");
        assert!(producer.push(note(1), &[1]));
        let _ = producer.publish();
        assert_eq!(consumer.pop().map(|(_, copy)| copy.len()), Some(packet.len()));
        assert_eq!(consumer.pop().map(|(_, copy)| copy.to_vec()), Some(vec![1]));
        assert!(producer.push(note(packet.len()), &packet));
    }
}
