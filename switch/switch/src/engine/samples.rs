//! Samples for control: heads of frames, taken now and then. Where the same flows take many frames, control soon hears
//! of them. While the kernel cannot forward the frames of a port, their samples are of no use, and control gets fewer
//! of them.

use twinpath_forwarding::learning::PORT_MAX;
use twinpath_frame::Frame;
use twinpath_time::{Duration, Instant};
use twinpath_worker::Io;

use crate::engine::message::{SAMPLES_MAX, Sample, SwitchEvent, tell_reserved};

/// Minimum time from one sample to the next.
const PAUSE: Duration = Duration::from_millis(2);
/// Maximum number of times that this doubles for one port: once for each sample that was of no use.
const DOUBLED_MAX: u8 = 5;

/// When there may be another sample of a port.
#[derive(Clone, Copy, Debug)]
struct Pause {
    next: Instant,
    /// Of which tables the samples were of no use.
    tables: u32,
    doubled: u8,
}

/// What control has lent.
#[derive(Debug)]
#[allow(clippy::vec_box, reason = "they come and go in mailboxes, which pass pointers on")]
pub(crate) struct Samples {
    lent: Vec<Box<Sample>>,
    next: Instant,
    /// Changes with the tables.
    tables: u32,
    ports: Box<[Pause]>,
}

impl Samples {
    pub(crate) fn new() -> Self {
        let pause = Pause { next: Instant::ZERO, tables: 0, doubled: 0 };
        let ports = vec![pause; usize::from(PORT_MAX) + 1].into_boxed_slice();
        Self { lent: Vec::with_capacity(SAMPLES_MAX), next: Instant::ZERO, tables: 0, ports }
    }

    /// Other frames may be of use now, as the tables have changed.
    pub(crate) const fn tables_changed(&mut self) {
        self.tables = self.tables.wrapping_add(1);
    }

    /// Takes a sample that may be filled again; gives it back if there are as many as there may be.
    pub(crate) fn lend(&mut self, sample: Box<Sample>) -> Option<Box<Sample>> {
        if let Some(pause) = self.ports.get_mut(usize::from(sample.port)) {
            let (doubled, tables) =
                if pause.tables == self.tables { (pause.doubled, self.tables) } else { (0, self.tables) };
            pause.tables = tables;
            pause.doubled = if sample.was_useless { (doubled + 1).min(DOUBLED_MAX) } else { 0 };
        }
        if self.lent.len() == SAMPLES_MAX {
            return Some(sample);
        }
        self.lent.push(sample);
        None
    }

    /// Whether there may be one, of some port at least.
    #[inline]
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        !self.lent.is_empty() && now >= self.next
    }

    /// A sample of a frame, if it is time for one. `in_port` and `tunnel_id` are what the tables are told of it.
    #[inline]
    pub(crate) fn of(
        &mut self,
        now: Instant,
        frame: &Frame,
        in_port: u32,
        tunnel_id: u32,
    ) -> Option<Box<Sample>> {
        if !self.is_due(now) {
            return None;
        }
        let tables = self.tables;
        let pause = self.ports.get_mut(usize::from(frame.meta().port))?;
        if pause.tables == tables && now < pause.next {
            return None;
        }
        let doubled = if pause.tables == tables { pause.doubled } else { 0 };
        *pause = Pause { next: now + PAUSE * (1 << doubled), tables, doubled };
        self.next = now + PAUSE;
        let mut sample = self.lent.pop()?;
        sample.fill(frame, in_port, tunnel_id);
        Some(sample)
    }
}

/// Shows control a sample.
pub(crate) fn tell(sample: Box<Sample>, io: &mut Io<'_, SwitchEvent>) {
    tell_reserved(SwitchEvent::Sample(sample), io);
}

#[cfg(test)]
mod tests {
    use twinpath_frame::Pool;

    use super::*;

    /// How many milliseconds it is until the next sample of a port; its use is said then.
    fn next(
        samples: &mut Samples,
        now: &mut Instant,
        frame: &mut Frame,
        port: u16,
        was_useless: bool,
    ) -> u128 {
        frame.meta_mut().port = port;
        let from = *now;
        loop {
            if let Some(mut sample) = samples.of(*now, frame, port.into(), 0) {
                sample.was_useless = was_useless;
                assert!(samples.lend(sample).is_none());
                return now.since(from).as_millis();
            }
            *now += Duration::from_millis(1);
        }
    }

    #[test]
    fn samples_of_no_use_become_fewer_until_one_is_or_the_tables_change() {
        let (mut pool, mut samples) = (Pool::new(1).expect("pool"), Samples::new());
        let mut frame = pool.take().expect("free");
        frame.copy_from(&[0; 60]).expect("it fits");
        assert!(samples.lend(Box::default()).is_none());
        let mut now = Instant::ZERO;
        let mut next =
            |samples: &mut Samples, port, was_useless| next(samples, &mut now, &mut frame, port, was_useless);
        let pauses: Vec<_> = (0..8).map(|_| next(&mut samples, 1, true)).collect();
        assert_eq!(pauses, [0, 2, 4, 8, 16, 32, 64, 64]);
        // Another port does not wait for longer because of that.
        assert_eq!([next(&mut samples, 2, false), next(&mut samples, 2, false)], [2, 2]);
        // The next time was set with the sample itself.
        assert_eq!([next(&mut samples, 1, false), next(&mut samples, 1, true)], [60, 64]);
        assert_eq!([next(&mut samples, 1, true), next(&mut samples, 1, true)], [2, 4]);
        samples.tables_changed();
        assert_eq!([next(&mut samples, 1, true), next(&mut samples, 1, true)], [2, 2]);
        assert_eq!(next(&mut samples, 1, true), 4);
        pool.release(frame);
    }
}
