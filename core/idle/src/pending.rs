//! Gaps between packets that are not learnt yet, because there is no time for it while packets come.

/// Gaps shorter than this are stored together: no decision depends on them, and there may be millions per second.
const SHORT_US: f32 = 1.0;

/// Maximum number of gaps that wait; further ones are not learnt.
const PENDING: usize = 64;

/// Maximum number of gaps that are learnt at the beginning of an idle time.
const LEARN_AT_ONCE: usize = 8;

/// The gaps, oldest first, each with the number of packets that came after such a gap.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    gaps: [(f32, u32); PENDING],
    len: usize,
}

impl Pending {
    pub(crate) const fn new() -> Self {
        Self { gaps: [(0.0, 0); PENDING], len: 0 }
    }

    pub(crate) fn push(&mut self, gap_us: f32, count: u32) {
        if let Some((gap, so_far)) = self.gaps[..self.len].last_mut()
            && gap_us < SHORT_US
            && *gap < SHORT_US
        {
            let all = *so_far + count;
            *gap += (gap_us - *gap) * count as f32 / all as f32;
            *so_far = all;
        } else if self.len < PENDING {
            self.gaps[self.len] = (gap_us, count);
            self.len += 1;
        }
    }

    /// The gaps to learn now.
    pub(crate) fn oldest(&self) -> &[(f32, u32)] {
        &self.gaps[..self.len.min(LEARN_AT_ONCE)]
    }

    /// Removes what [`Self::oldest`] returned.
    pub(crate) fn remove_oldest(&mut self) {
        let count = self.len.min(LEARN_AT_ONCE);
        self.gaps.copy_within(count..self.len, 0);
        self.len -= count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_come_out_in_order_a_few_at_a_time_and_short_ones_as_their_mean() {
        let mut pending = Pending::new();
        for gap in 0..10 {
            pending.push(100.0 + gap as f32, 1);
        }
        assert_eq!((pending.oldest().len(), pending.oldest()[7].0), (LEARN_AT_ONCE, 107.0));
        pending.remove_oldest();
        assert_eq!(pending.oldest(), [(108.0, 1), (109.0, 1)]);
        pending.remove_oldest();
        pending.push(0.2, 1);
        pending.push(0.6, 3);
        assert_eq!(pending.oldest(), [(0.5, 4)]);
        (0..2 * PENDING).for_each(|_| pending.push(5.0, 1));
        assert_eq!(pending.len, PENDING, "what does not fit is not learnt");
    }
}
