//! Heads of frames for control, now and then: where the same flows take many frames, control soon hears of them. While it has
//! no use for them, as the kernel cannot forward such frames, it gets fewer.

use twinpath_frame::Frame;
use twinpath_time::{Duration, Instant};

use crate::message::{SAMPLES_MAX, Sample};

/// From one sample to the next, at least. The pause doubles with each sample that was of no use, up to the longest.
const PAUSE: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(64);

/// What control has lent.
#[derive(Debug)]
#[allow(clippy::vec_box, reason = "they come and go in mailboxes, which pass pointers on")]
pub(crate) struct Samples {
    lent: Vec<Box<Sample>>,
    next: Instant,
    pause: Duration,
}

impl Samples {
    pub(crate) fn new() -> Self {
        Self { lent: Vec::with_capacity(SAMPLES_MAX), next: Instant::ZERO, pause: PAUSE }
    }

    /// Other frames may be of use now, as the tables have changed.
    pub(crate) const fn tables_changed(&mut self) {
        self.pause = PAUSE;
    }

    /// Takes a sample that may be filled again; gives it back if there are as many as there may be.
    pub(crate) fn lend(&mut self, sample: Box<Sample>) -> Option<Box<Sample>> {
        self.pause = if sample.was_useless { (self.pause * 2).min(PAUSE_MAX) } else { PAUSE };
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
        self.next = now + self.pause;
        let mut sample = self.lent.pop()?;
        sample.fill(frame, in_port);
        Some(sample)
    }
}

#[cfg(test)]
mod tests {
    use twinpath_frame::Pool;

    use super::*;

    #[test]
    fn samples_of_no_use_become_fewer_until_one_is_or_the_tables_change() {
        let (mut pool, mut samples) = (Pool::new(1).expect("pool"), Samples::new());
        let mut frame = pool.take().expect("free");
        frame.copy_from(&[0; 60]).expect("it fits");
        assert!(samples.lend(Box::default()).is_none());
        let mut now = Instant::ZERO;
        // How long it is until the next sample, whose use is then said.
        let mut next = |was_useless: bool, samples: &mut Samples| {
            let from = now;
            loop {
                if let Some(mut sample) = samples.of(now, &frame, 1) {
                    sample.was_useless = was_useless;
                    assert!(samples.lend(sample).is_none());
                    return now.since(from).as_millis();
                }
                now += Duration::from_millis(1);
            }
        };
        let pauses: Vec<_> = (0..8).map(|_| next(true, &mut samples)).collect();
        assert_eq!(pauses, [0, 2, 4, 8, 16, 32, 64, 64]);
        // The next time was set with the sample itself.
        assert_eq!([next(false, &mut samples), next(true, &mut samples)], [64, 64]);
        assert_eq!([next(true, &mut samples), next(true, &mut samples)], [2, 4]);
        samples.tables_changed();
        assert_eq!([next(true, &mut samples), next(true, &mut samples)], [8, 2]);
        pool.release(frame);
    }
}
