//! The frames of a burst in runs: consecutive frames of one flow, which are judged once.

use crate::learning::arrival::Arrival;
use crate::learning::judge::Classified;
use crate::learning::table::BATCH;

/// Frames that a burst may have.
pub const FRAMES_MAX: usize = BATCH;

/// Consecutive frames with the same port, addresses, tag and number of packets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) arrival: Arrival,
    pub(crate) frames: usize,
    pub(crate) classified: Classified,
}

impl Run {
    const NONE: Self = Self { arrival: Arrival::NONE, frames: 0, classified: Classified::NONE };
}

/// The frames of a burst, in order. It is kept from burst to burst, as it is not small.
#[derive(Debug)]
pub struct Runs {
    runs: [Run; FRAMES_MAX],
    count: usize,
}

impl Default for Runs {
    fn default() -> Self {
        Self { runs: [Run::NONE; FRAMES_MAX], count: 0 }
    }
}

impl Runs {
    /// Starts another burst.
    #[inline]
    pub const fn clear(&mut self) {
        self.count = 0;
    }

    /// Adds a frame.
    ///
    /// # Errors
    /// Gives it back if there are [`FRAMES_MAX`] runs.
    #[inline]
    pub fn push(&mut self, arrival: Arrival) -> Result<(), Arrival> {
        if let Some(last) = self.runs[..self.count].last_mut()
            && arrival.is_of_same_flow(&last.arrival)
        {
            last.frames += 1;
            return Ok(());
        }
        let Some(run) = self.runs.get_mut(self.count) else { return Err(arrival) };
        (run.arrival, run.frames) = (arrival, 1);
        self.count += 1;
        Ok(())
    }

    /// Adds this many frames with the port, addresses, tag and number of packets of the frame before, unless that is a
    /// runt.
    #[inline]
    pub fn repeat(&mut self, frames: usize) {
        if let Some(last) = self.runs[..self.count].last_mut() {
            last.frames += frames;
        }
    }

    /// Whether all frames are of one flow.
    #[inline]
    #[must_use]
    pub const fn is_one_flow(&self) -> bool {
        self.count == 1
    }

    #[inline]
    pub(crate) fn as_mut_slice(&mut self) -> &mut [Run] {
        &mut self.runs[..self.count]
    }
}
