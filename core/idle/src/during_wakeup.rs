//! The additional cost of a wake-up: further packets that arrive while a worker is being woken for an earlier one.

use crate::gaps::{CLASSES, class_of};

/// Measured per class of the gap that a wake-up ends.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// Mean cost of finding the further packets late, minus the cost if each had come alone, us of latency.
    more: f32,
    /// Mean cost per packet of always sleeping, us.
    share: f32,
    count: u8,
}

/// A simulated worker that always sleeps at once, and what was measured on it.
#[derive(Clone, Debug, Default)]
pub(crate) struct DuringWakeup {
    seen: [Seen; CLASSES],
    /// The current wake-up: the class of its gap, its duration, the lateness it has caused for further packets so
    /// far, and the cost of those packets if each had come alone.
    class: usize,
    wake_us: f32,
    ahead_us: f32,
    late: f32,
    spared: f32,
    packets: f32,
}

impl DuringWakeup {
    /// `count` packets came, each `gap_us` after the one before.
    pub(crate) fn learn(&mut self, gap_us: f32, count: f32, wake_us: &[f32; CLASSES], weight: f32) {
        let class = class_of(gap_us);
        let seen = self.seen[class];
        let share = if seen.count > 0 { seen.share } else { wake_us[class] };
        let mut left = count;
        for _ in 0..4 {
            let within = if gap_us > 0.0 { (self.ahead_us / gap_us).floor().min(left) } else { left };
            self.late += within * self.ahead_us - gap_us * within * (within + 1.0) / 2.0;
            self.spared += within * (weight * gap_us).min(share);
            self.packets += within;
            self.ahead_us = (self.ahead_us - within * gap_us).max(0.0);
            left -= within;
            if left <= 0.0 {
                break;
            }
            self.close();
            (self.class, self.wake_us) = (class, wake_us[class]);
            (self.ahead_us, self.packets) = (self.wake_us, 1.0);
            left -= 1.0;
        }
    }

    fn close(&mut self) {
        let (late, spared) = (std::mem::take(&mut self.late), std::mem::take(&mut self.spared));
        if self.packets == 0.0 {
            return;
        }
        let seen = &mut self.seen[self.class];
        seen.count = (seen.count + 1).min(64);
        let rate = 1.0 / f32::from(seen.count);
        seen.more += (late - spared - seen.more) * rate;
        seen.share += ((self.wake_us + late) / self.packets - seen.share) * rate;
    }

    /// See [`Seen::more`].
    pub(crate) fn more(&self, class: usize) -> f32 {
        self.seen[class].more
    }
}
