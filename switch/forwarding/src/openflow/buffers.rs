//! Frames that the switch holds for controllers (section 7.4.1).

use twinpath_openflow_wire::number;

/// Maximum number of frames held.
pub const BUFFERS: usize = 256;
/// Longest frame that is held, bytes; others are sent whole.
const BUFFER_LEN_MAX: usize = 2048;

/// A frame, and where it came in.
#[derive(Clone, Debug)]
pub(crate) struct Buffered {
    pub(crate) in_port: u32,
    pub(crate) frame: Box<[u8]>,
}

/// The frames held. A new one takes the place of the oldest.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    places: Vec<Option<Buffered>>,
    /// How many frames there have been; the number of one is its count.
    count: u32,
}

impl Buffers {
    /// Holds a frame; `None` if it is too long.
    pub(crate) fn put(&mut self, in_port: u32, frame: &[u8]) -> Option<u32> {
        if frame.len() > BUFFER_LEN_MAX {
            return None;
        }
        self.count = self.count.wrapping_add(1);
        if self.count == number::NO_BUFFER {
            self.count = 0;
        }
        let number = self.count;
        if self.places.is_empty() {
            self.places.resize(BUFFERS, None);
        }
        self.places[number as usize % BUFFERS] = Some(Buffered { in_port, frame: frame.into() });
        Some(number)
    }

    /// Takes a frame; each can be taken once.
    pub(crate) fn take(&mut self, number: u32) -> Option<Buffered> {
        let is_recent = self.count.wrapping_sub(number) < BUFFERS as u32;
        if is_recent { self.places.get_mut(number as usize % BUFFERS)?.take() } else { None }
    }
}
