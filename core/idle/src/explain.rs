//! A report of the policy's decisions and their reasons, for users.

use std::fmt;

use twinpath_time::Instant;

use crate::expert::Expert;
use crate::gaps::is_silence;
use crate::plan::IdlePlan;

/// Counted since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets reported to the policy.
    pub packets: u64,
    /// Stretches of spinning.
    pub spins: u64,
    /// Sleeps.
    pub sleeps: u64,
    /// Wake-ups by a packet.
    pub woken_by_packet: u64,
    /// Wake-ups ahead of a predicted arrival.
    pub woken_by_prediction: u64,
    /// Other wake-ups: commands, other deadlines, the release of a latency request.
    pub woken_by_other: u64,
    /// Time spent spinning, ns.
    pub spun_ns: u64,
    /// Time spent asleep, ns.
    pub slept_ns: u64,
    /// The part of [`Self::slept_ns`] with the latency request held, ns.
    pub held_ns: u64,
    /// Plans made.
    pub plans: u64,
    /// Changes of the leading expert.
    pub leader_changes: u64,
}

/// A snapshot of the policy's state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Explanation {
    /// The expert whose plan is followed.
    pub leader: Expert,
    /// Its plan for an idle time that would begin now.
    pub plan: IdlePlan,
    /// The value of a us of CPU, in us of latency.
    pub weight: f32,
    /// How far each expert is behind the best, us of latency, in the order of [`Expert::ALL`].
    pub behind_us: [f32; Expert::ALL.len()],
    /// How long after an arrival the latency request is held, us; 0 if not at all.
    pub release_us: f32,
    /// Wake-up latency without and with a request: median and p99, us.
    pub wake_us: [[f32; 2]; 2],
    /// Lateness of timers, without and with a request: median and p99, us.
    pub overshoot_us: [[f32; 2]; 2],
    /// Counted since the start.
    pub counts: Counts,
}

/// The policy's current behaviour and its reason, as a few numbers that fit into counters. Shown as a sentence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    /// The leading expert; `None` if a user has fixed how long to spin.
    pub leader: Option<Expert>,
    /// Whether it sleeps at once because others compete for the CPU.
    pub gives_way: bool,
    /// Number of gaps learnt.
    pub gaps: u64,
    /// Mean of the last eight gaps, us.
    pub gap_us: f32,
    /// When the last packet came; zero before the first.
    pub last: Instant,
    /// The timer set, us after the last arrival; infinite if none is.
    pub wake_us: f32,
    /// Where spinning ends, us after the last arrival; 0 if it sleeps at once.
    pub until_us: f32,
    /// The latency of a wake-up, us.
    pub cost_us: f32,
    /// How long after an arrival a latency request is held, us.
    pub release_us: f32,
    /// The value of a us of CPU, in us of latency.
    pub weight: f32,
}

/// The bit of the first word that holds `gives_way`.
const GIVES_WAY_BIT: u32 = 32;

impl Summary {
    /// Length of the encoding in words.
    pub const WORDS: usize = 9;

    /// Encodes it as words.
    #[must_use]
    pub fn to_words(&self) -> [u64; Self::WORDS] {
        let leader = self.leader.and_then(|leader| Expert::ALL.iter().position(|expert| *expert == leader));
        let word = |value: f32| u64::from(value.to_bits());
        [
            leader.map_or(0, |at| at as u64 + 1) | (u64::from(self.gives_way) << GIVES_WAY_BIT),
            self.gaps,
            word(self.gap_us),
            word(self.wake_us),
            word(self.until_us),
            word(self.cost_us),
            word(self.release_us),
            word(self.weight),
            self.last.as_nanos(),
        ]
    }

    /// Decodes it from words, whatever they contain.
    #[must_use]
    pub fn of_words(words: [u64; Self::WORDS]) -> Self {
        let value = |at: usize| f32::from_bits(words[at] as u32);
        let leader = usize::try_from(words[0] & ((1 << GIVES_WAY_BIT) - 1))
            .ok()
            .and_then(|at| Expert::ALL.get(at.checked_sub(1)?))
            .copied();
        Self {
            leader,
            gives_way: (words[0] >> GIVES_WAY_BIT) & 1 == 1,
            gaps: words[1],
            gap_us: value(2),
            wake_us: value(3),
            until_us: value(4),
            cost_us: value(5),
            release_us: value(6),
            weight: value(7),
            last: Instant::from_nanos(words[8]),
        }
    }

    /// A sentence about the state as of `now`.
    #[must_use]
    pub fn said_at(&self, now: Instant) -> String {
        let silent_us = now.nanos_since(self.last) as f32 / 1e3;
        if self.gaps == 0 || !is_silence(silent_us, self.gap_us) {
            return self.to_string();
        }
        let (silent, gap) = (Time(silent_us), Time(self.gap_us));
        format!("nothing has come for {silent}: sleeps until packets come; the last came about every {gap}")
    }
}

/// Formats a time with three digits and a suitable unit.
struct Time(f32);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            us if us < 9.95 => write!(f, "{us:.1} us"),
            us if us < 9_950.0 => write!(f, "{us:.0} us"),
            us if us < 1e6 => write!(f, "{:.0} ms", us / 1e3),
            us => write!(f, "{:.0} s", us / 1e6),
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.gaps == 0 {
            return f.write_str("sleeps until packets come: nothing is known of them yet");
        }
        let (gap, until, cost) = (Time(self.gap_us), Time(self.until_us), Time(self.cost_us));
        let Some(leader) = self.leader else {
            return write!(f, "spins for {until} after each packet, then sleeps, as set");
        };
        write!(f, "packets come about every {gap}")?;
        if leader == Expert::InBurst {
            f.write_str(", in bursts")?;
        }
        if self.gives_way {
            f.write_str(": sleeps at once, as others want the CPU and it has no priority over them")?;
        } else if self.wake_us.is_finite() {
            let lead = Time((self.gap_us - self.wake_us).max(0.0));
            write!(
                f,
                ": sleeps until {lead} before the next is due, then spins until {until} after the last"
            )?;
        } else if self.until_us <= 0.0 {
            write!(f, ": sleeps at once, as a wake-up takes {cost} and waiting awake would cost more")?;
        } else {
            write!(f, ", a wake-up takes {cost}: spins for {until} after each packet, then sleeps")?;
        }
        if self.release_us > 0.0 {
            write!(f, "; holds a latency request for {} after a packet", Time(self.release_us))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use twinpath_time::Duration;

    use super::*;

    #[test]
    fn a_summary_survives_as_numbers_and_reads_as_a_sentence() {
        let summary = Summary {
            leader: Some(Expert::Last512),
            gives_way: false,
            gaps: 1_000,
            gap_us: 352.0,
            last: Instant::from_nanos(5_000_000_000),
            wake_us: 334.0,
            until_us: 361.0,
            cost_us: 80.0,
            release_us: 0.0,
            weight: 0.25,
        };
        assert_eq!(Summary::of_words(summary.to_words()), summary);
        assert_eq!(
            summary.to_string(),
            "packets come about every 352 us: sleeps until 18 us before the next is due, then spins until 361 us after the last"
        );
        let gives_way = Summary { gives_way: true, ..summary };
        assert_eq!(Summary::of_words(gives_way.to_words()), gives_way);
        assert!(
            gives_way.to_string().starts_with("packets come about every 352 us: sleeps at once, as others")
        );
        assert_eq!(Summary::of_words([u64::MAX; Summary::WORDS]).leader, None);
        let later = |seconds| summary.said_at(summary.last + Duration::from_secs(seconds));
        assert_eq!(later(0), summary.to_string());
        assert_eq!(
            later(12),
            "nothing has come for 12 s: sleeps until packets come; the last came about every 352 us"
        );
        let asleep = Summary { wake_us: f32::INFINITY, until_us: 0.0, release_us: 3e6, ..summary };
        assert_eq!(
            asleep.to_string(),
            "packets come about every 352 us: sleeps at once, as a wake-up takes 80 us and waiting awake would cost more; holds a \
             latency request for 3 s after a packet"
        );
    }
}
