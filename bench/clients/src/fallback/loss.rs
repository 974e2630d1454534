//! Computes a loss from samples: how much slower the kernel's own traffic is with twinpath attached, with its
//! confidence interval.

use std::fmt;

use twinpath_load::{INTERVAL_PAIRS_MIN, interval95, median};

use twinpath_observe::report;

/// A measure of kernel sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Round trip of one small UDP datagram, us.
    Rtt,
    /// Throughput of one TCP connection, Gbit/s.
    Bulk,
    /// UDP requests of 64 bytes answered per second, with many in flight.
    Rate,
}

impl Measure {
    /// All of them, in the order of reports.
    pub const ALL: [Self; 3] = [Self::Rtt, Self::Bulk, Self::Rate];

    /// Stable name, in reports and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rtt => "kernel-rtt",
            Self::Bulk => "kernel-bulk",
            Self::Rate => "kernel-rate",
        }
    }

    /// Unit of its values.
    #[must_use]
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Rtt => "us",
            Self::Bulk => "Gbit/s",
            Self::Rate => "requests/s",
        }
    }

    /// A text for users.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Rtt => "UDP round trip",
            Self::Bulk => "bulk TCP",
            Self::Rate => "64-byte UDP requests",
        }
    }

    /// The share lost for a ratio of after to before: 0.1 is a tenth more time, or a tenth less throughput.
    fn lost(self, ratio: f64) -> f64 {
        match self {
            Self::Rtt => ratio - 1.0,
            Self::Bulk | Self::Rate => 1.0 - ratio,
        }
    }
}

/// One measurement without and one with twinpath attached, directly one after the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    /// Without.
    pub before: f64,
    /// With.
    pub after: f64,
}

/// The loss of one measure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loss {
    /// The measure.
    pub measure: Measure,
    /// Median without.
    pub before: f64,
    /// Median with.
    pub after: f64,
    /// Median of the pairs' ratios of after to before.
    pub ratio: f64,
    /// Exact interval of that median, at least 95 %; the whole spread with fewer than 6 pairs.
    pub interval95: [f64; 2],
    /// Pairs.
    pub pairs: usize,
}

impl Loss {
    /// Judges pairs; `None` without any that can be compared.
    #[must_use]
    pub fn of(measure: Measure, pairs: &[Pair]) -> Option<Self> {
        let pairs: Vec<&Pair> = pairs.iter().filter(|pair| pair.before > 0.0 && pair.after > 0.0).collect();
        let ratios: Vec<f64> = pairs.iter().map(|pair| pair.after / pair.before).collect();
        let befores: Vec<f64> = pairs.iter().map(|pair| pair.before).collect();
        let afters: Vec<f64> = pairs.iter().map(|pair| pair.after).collect();
        Some(Self {
            measure,
            before: median(&befores)?,
            after: median(&afters)?,
            ratio: median(&ratios)?,
            interval95: interval95(&ratios)?,
            pairs: pairs.len(),
        })
    }

    /// The share lost: 0.1 is a tenth more time, or a tenth less throughput. Negative: a gain.
    #[must_use]
    pub fn lost(&self) -> f64 {
        self.measure.lost(self.ratio)
    }

    /// The interval of [`Loss::lost`], lowest first.
    #[must_use]
    pub fn lost_interval(&self) -> [f64; 2] {
        let [a, b] = self.interval95.map(|ratio| self.measure.lost(ratio));
        [a.min(b), a.max(b)]
    }

    /// Whether the loss exceeds `loss_max` beyond noise: the whole interval does, and there are enough
    /// pairs for an interval.
    #[must_use]
    pub fn is_beyond(&self, loss_max: f64) -> bool {
        self.pairs >= INTERVAL_PAIRS_MIN && self.lost_interval()[0] > loss_max
    }

    /// The loss in the form of the report.
    #[must_use]
    pub fn report(&self) -> report::FallbackMeasure {
        report::FallbackMeasure {
            name: self.measure.name().to_owned(),
            unit: self.measure.unit().to_owned(),
            before: self.before,
            after: self.after,
            ratio: self.ratio,
            ratio_interval95: self.interval95,
            pairs: self.pairs as u32,
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { measure, before, after, .. } = self;
        let [low, high] = self.lost_interval().map(|lost| lost * 100.0);
        let digits = if *measure == Measure::Rate { 0 } else { 2 };
        write!(
            f,
            "{} {before:.digits$} {unit} before, {after:.digits$} after: {:.1} % lost ({low:.1} to {high:.1} with 95 % confidence)",
            measure.label(),
            self.lost() * 100.0,
            unit = measure.unit(),
        )
    }
}

/// The reason for giving up a path: every measure that lost more than `loss_max`; `None` if none did.
#[must_use]
pub fn beyond(losses: &[Loss], loss_max: f64) -> Option<String> {
    let beyond: Vec<String> =
        losses.iter().filter(|loss| loss.is_beyond(loss_max)).map(ToString::to_string).collect();
    (!beyond.is_empty()).then(|| {
        format!(
            "the kernel's own traffic would lose more than the {:.0} % of interface.fallback_loss_max: {}",
            loss_max * 100.0,
            beyond.join("; ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(ratios: &[f64]) -> Vec<Pair> {
        ratios.iter().map(|ratio| Pair { before: 20.0, after: 20.0 * ratio }).collect()
    }

    #[test]
    fn more_time_and_less_throughput_are_both_losses() {
        let slower = pairs(&[1.2, 1.21, 1.19, 1.2, 1.22, 1.18]);
        let rtt = Loss::of(Measure::Rtt, &slower).unwrap();
        let bulk = Loss::of(Measure::Bulk, &slower).unwrap();
        assert!((rtt.lost() - 0.2).abs() < 1e-9 && (bulk.lost() + 0.2).abs() < 1e-9);
        assert!(rtt.is_beyond(0.1) && !bulk.is_beyond(0.1));
        let [low, high] = bulk.lost_interval();
        assert!((low + 0.22).abs() < 1e-9 && (high + 0.18).abs() < 1e-9, "{low} {high}");
    }

    #[test]
    fn noise_around_the_bound_is_no_reason_to_leave_a_path() {
        // The median loss is 15 %, but one pair in six shows 5 %: the interval reaches below the bound.
        let noisy = pairs(&[0.95, 0.85, 0.84, 0.85, 0.86, 0.80]);
        let rate = Loss::of(Measure::Rate, &noisy).unwrap();
        assert!((rate.lost() - 0.15).abs() < 1e-9);
        assert!(!rate.is_beyond(0.1) && rate.is_beyond(0.04));
        // Too few pairs for an interval decide nothing, however large the loss.
        assert!(!Loss::of(Measure::Rate, &pairs(&[0.1; 5])).unwrap().is_beyond(0.1));
        assert!(Loss::of(Measure::Rate, &pairs(&[0.1; 6])).unwrap().is_beyond(0.1));
    }

    #[test]
    fn measurements_that_gave_nothing_are_left_out() {
        assert_eq!(Loss::of(Measure::Rtt, &[]), None);
        let mut some = pairs(&[1.0; 6]);
        some.push(Pair { before: 0.0, after: 20.0 });
        some.push(Pair { before: 20.0, after: f64::NAN });
        assert_eq!(Loss::of(Measure::Rtt, &some).unwrap().pairs, 6);
    }

    #[test]
    fn the_reason_holds_the_figures_of_what_is_beyond_and_nothing_else() {
        let rtt = Loss::of(Measure::Rtt, &pairs(&[1.0; 6])).unwrap();
        let rate = Loss::of(Measure::Rate, &pairs(&[0.5; 6])).unwrap();
        assert_eq!(beyond(&[rtt], 0.1), None);
        assert_eq!(
            beyond(&[rtt, rate], 0.1).unwrap(),
            "the kernel's own traffic would lose more than the 10 % of interface.fallback_loss_max: 64-byte UDP \
             requests 20 requests/s before, 10 after: 50.0 % lost (50.0 to 50.0 with 95 % confidence)"
        );
    }
}
