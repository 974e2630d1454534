//! Meters: rates that frames are held to (OpenFlow 1.3.5, 5.7).
//!
//! A band is a token bucket in one word, the time at which it would be full again (GCRA, ITU-T I.371). All workers share
//! it, so that the rate holds for the switch; none waits for another.

use twinpath_openflow_wire::{Band, Count};
use twinpath_time::Instant;

use crate::openflow::pipeline::sync::{AtomicU64, Ordering};

/// Parts of a nanosecond in which a bucket counts: so a frame's share of the highest rate is still a whole number. What
/// fits into a word is 18 years.
const PARTS_PER_NS: u64 = 32;

const PARTS_PER_S: u64 = 1_000_000_000 * PARTS_PER_NS;

/// A band without a burst of its own may take this share of a second at once.
const BURST_PER_S: u64 = 10;

/// How often a worker retries if another one has taken from the same bucket at that moment.
const TRIES: usize = 8;

/// In what a meter counts (`ofp_meter_flags`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MeterUnit {
    /// Kilobits.
    Kilobits,
    /// Packets.
    Packets,
}

/// A meter as it is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeterConfig {
    /// The unit of its rates and bursts.
    pub unit: MeterUnit,
    /// Whether the bursts of its bands count; else each band has one of a tenth of a second.
    pub has_burst: bool,
    /// Its bands; those of experimenters do nothing.
    pub bands: Vec<Band>,
}

/// What a band does with a frame that exceeds its rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Exceeding {
    Drop,
    /// Raises the drop precedence by this many levels.
    Remark(u8),
    Nothing,
}

#[derive(Debug)]
struct Bucket {
    rate: u32,
    /// Time for a unit (a bit, a packet) in parts of a ns, times `rate`; so it is divided once per frame, not rounded before.
    parts_per_unit: u64,
    burst_parts: u64,
    exceeding: Exceeding,
    counter: u32,
    full_at: AtomicU64,
}

/// What becomes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Metered {
    Passes,
    Dropped {
        /// The band's counter.
        counter: u32,
    },
    Remarked {
        counter: u32,
        levels: u8,
    },
    /// It exceeds a band that does nothing.
    Exceeds {
        counter: u32,
    },
}

/// A meter that workers share.
#[derive(Debug)]
pub(crate) struct Meter {
    unit: MeterUnit,
    bands: Box<[Bucket]>,
    pub(crate) counter: u32,
}

impl Meter {
    /// `counters` are those of the meter and of its bands, in order.
    pub(crate) fn new(config: &MeterConfig, counter: u32, band_counters: &[u32]) -> Self {
        // Kilobits to bits.
        let scale = match config.unit {
            MeterUnit::Kilobits => 1000,
            MeterUnit::Packets => 1,
        };
        let bucket = |(band, counter): (&Band, &u32)| {
            let rate = band.rate();
            let parts_per_unit = PARTS_PER_S / scale;
            let burst =
                if config.has_burst { u64::from(band.burst()) } else { u64::from(rate) / BURST_PER_S };
            let burst_parts = u128::from(burst) * u128::from(PARTS_PER_S) / u128::from(rate.max(1));
            Bucket {
                rate,
                parts_per_unit,
                burst_parts: u64::try_from(burst_parts).unwrap_or(u64::MAX / 4).min(u64::MAX / 4),
                exceeding: match band {
                    Band::Drop { .. } => Exceeding::Drop,
                    Band::DscpRemark { prec_level, .. } => Exceeding::Remark(*prec_level),
                    Band::Experimenter { .. } => Exceeding::Nothing,
                },
                counter: *counter,
                full_at: AtomicU64::new(0),
            }
        };
        Self {
            unit: config.unit,
            bands: config.bands.iter().zip(band_counters).map(bucket).collect(),
            counter,
        }
    }

    /// Counts a frame in all bands. Of those that it exceeds, the one with the highest rate decides (5.7.1).
    pub(crate) fn pass(&self, now: Instant, count: Count) -> Metered {
        let units = match self.unit {
            MeterUnit::Kilobits => count.bytes.saturating_mul(8),
            MeterUnit::Packets => count.packets,
        };
        let mut exceeded: Option<&Bucket> = None;
        for band in &self.bands {
            if !band.allows(now, units) && exceeded.is_none_or(|other| other.rate < band.rate) {
                exceeded = Some(band);
            }
        }
        match exceeded.map(|band| (band.exceeding, band.counter)) {
            None => Metered::Passes,
            Some((Exceeding::Drop, counter)) => Metered::Dropped { counter },
            Some((Exceeding::Remark(levels), counter)) => Metered::Remarked { counter, levels },
            Some((Exceeding::Nothing, counter)) => Metered::Exceeds { counter },
        }
    }
}

impl Bucket {
    /// Takes a frame's units if the bucket is not empty; then it may go into debt, so that a frame larger than the burst
    /// passes at times.
    fn allows(&self, now: Instant, units: u64) -> bool {
        if self.rate == 0 {
            return false;
        }
        let now = now.as_nanos().saturating_mul(PARTS_PER_NS);
        let cost = u128::from(units) * u128::from(self.parts_per_unit) / u128::from(self.rate);
        let cost = u64::try_from(cost).unwrap_or(u64::MAX / 4);
        let mut full_at = self.full_at.load(Ordering::Relaxed);
        for _ in 0..TRIES {
            if full_at > now.saturating_add(self.burst_parts) {
                return false;
            }
            let next = full_at.max(now).saturating_add(cost);
            match self.full_at.compare_exchange_weak(full_at, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(other) => full_at = other,
            }
        }
        false
    }
}

/// The DSCP with a higher drop precedence, for the classes that have one (assured forwarding, RFC 2597, 6). Others stay.
pub(crate) const fn remarked(dscp: u8, levels: u8) -> u8 {
    let (class, precedence) = (dscp >> 3, dscp >> 1 & 3);
    if dscp & 1 != 0 || class < 1 || class > 4 || precedence == 0 {
        return dscp;
    }
    let precedence = precedence.saturating_add(levels);
    class << 3 | if precedence > 3 { 3 } else { precedence } << 1
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const NS_PER_S: u64 = 1_000_000_000;

    fn drop_at(rate: u32, burst: u32) -> Band {
        Band::Drop { rate, burst }
    }

    fn meter(unit: MeterUnit, has_burst: bool, bands: Vec<Band>) -> Meter {
        let counters: Vec<u32> = (10..10 + bands.len() as u32).collect();
        Meter::new(&MeterConfig { unit, has_burst, bands }, 1, &counters)
    }

    /// How many of `count` frames of 125 bytes (a kilobit) pass, one every `every_ns`.
    fn passed(meter: &Meter, from_ns: u64, count: u64, every_ns: u64) -> u64 {
        let frame = Count { packets: 1, bytes: 125 };
        let pass = |number| meter.pass(Instant::from_nanos(from_ns + number * every_ns), frame);
        (0..count).filter(|number| pass(*number) == Metered::Passes).count() as u64
    }

    #[test]
    fn a_rate_holds_in_both_units() {
        for unit in [MeterUnit::Kilobits, MeterUnit::Packets] {
            let meter = meter(unit, false, vec![drop_at(1000, 0)]);
            let passed = passed(&meter, NS_PER_S, 100_000, 100_000);
            assert!((10_000..=10_101).contains(&passed), "{unit:?}: {passed} in ten seconds");
        }
    }

    #[test]
    fn a_burst_passes_at_once() {
        let meter = meter(MeterUnit::Packets, true, vec![drop_at(10, 50)]);
        assert_eq!(passed(&meter, NS_PER_S, 100, 0), 51, "the last one leaves a debt");
    }

    #[test]
    fn the_lowest_and_the_highest_rate_are_themselves() {
        let none = meter(MeterUnit::Packets, true, vec![drop_at(0, u32::MAX)]);
        assert_eq!(passed(&none, NS_PER_S, 10, NS_PER_S), 0);
        let all = meter(MeterUnit::Kilobits, true, vec![drop_at(u32::MAX, u32::MAX)]);
        assert_eq!(passed(&all, NS_PER_S, 100_000, 1), 100_000);
        let slow = meter(MeterUnit::Packets, false, vec![drop_at(1, 0)]);
        assert_eq!(passed(&slow, 5 * NS_PER_S, 100, NS_PER_S / 10), 10);
    }

    #[test]
    fn the_highest_rate_that_is_exceeded_decides() {
        let remark = Band::DscpRemark { rate: 10, burst: 1, prec_level: 1 };
        let meter = meter(MeterUnit::Packets, true, vec![drop_at(20, 5), remark]);
        let frame = Count { packets: 1, bytes: 60 };
        let results: Vec<_> = (0..9).map(|_| meter.pass(Instant::from_nanos(NS_PER_S), frame)).collect();
        assert_eq!(results[..2], [Metered::Passes; 2]);
        assert_eq!(results[2], Metered::Remarked { counter: 11, levels: 1 });
        assert_eq!(results[8], Metered::Dropped { counter: 10 });
    }

    #[test]
    fn only_assured_forwarding_has_a_drop_precedence() {
        assert_eq!((remarked(10, 1), remarked(10, 2), remarked(10, 9), remarked(38, 1)), (12, 14, 14, 38));
        assert_eq!((remarked(0, 1), remarked(46, 1), remarked(8, 1), remarked(48, 3)), (0, 46, 8, 48));
        assert_eq!(remarked(10, 255), 14);
    }
}
