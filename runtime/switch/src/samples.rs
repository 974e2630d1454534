//! Heads of frames for control, now and then: where the same flows take many frames, control soon hears of them.

use twinpath_frame::Frame;
use twinpath_time::{Duration, Instant};

use crate::message::{SAMPLES_MAX, Sample};

/// From one sample to the next, at least.
const EVERY: Duration = Duration::from_millis(2);

/// What control has lent.
#[derive(Debug)]
#[allow(clippy::vec_box, reason = "they come and go in mailboxes, which pass pointers on")]
pub(crate) struct Samples {
    lent: Vec<Box<Sample>>,
    next: Instant,
}

impl Samples {
    pub(crate) fn new() -> Self {
        Self { lent: Vec::with_capacity(SAMPLES_MAX), next: Instant::ZERO }
    }

    /// Takes an empty sample; gives it back if there are as many as there may be.
    pub(crate) fn lend(&mut self, sample: Box<Sample>) -> Option<Box<Sample>> {
        if self.lent.len() == SAMPLES_MAX {
            return Some(sample);
        }
        self.lent.push(sample);
        None
    }

    /// A sample of a frame, if it is time for one.
    #[inline]
    pub(crate) fn of(&mut self, now: Instant, frame: &Frame, in_port: u32) -> Option<Box<Sample>> {
        if self.lent.is_empty() || now < self.next {
            return None;
        }
        self.next = now + EVERY;
        let mut sample = self.lent.pop()?;
        sample.fill(frame, in_port);
        Some(sample)
    }
}
