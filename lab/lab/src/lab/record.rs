//! The samples of a run, and the rows and ratios computed from them. Pure.

use std::collections::BTreeMap;

use super::model::{Better, Formula, Judged, Ratio, RatioSpec, Row, RowSpec, Sample, Undecided};
use super::stats::{self, INTERVAL_PAIRS_MIN};

/// How many ratios of a lab may be undecided because two runs of the same differ.
const UNSTEADY_MAX: usize = 2;

/// A row that has failed this often without one success is not tried again.
const FAILURES_MAX: usize = 2;

/// Samples and failures by row and round.
#[derive(Debug, Default)]
pub(crate) struct Record {
    samples: BTreeMap<&'static str, BTreeMap<usize, Sample>>,
    failures: BTreeMap<&'static str, Vec<String>>,
}

impl Record {
    /// Records a sample of `row` in `round`.
    pub(crate) fn add(&mut self, row: &'static str, round: usize, sample: Sample) {
        self.samples.entry(row).or_default().insert(round, sample);
    }

    /// Records the reason for a failure of `row`.
    pub(crate) fn fail(&mut self, row: &'static str, reason: String) {
        self.failures.entry(row).or_default().push(reason);
    }

    /// Whether trying `row` again is useless.
    pub(crate) fn is_hopeless(&self, row: &str) -> bool {
        self.samples.get(row).is_none_or(BTreeMap::is_empty)
            && self.failures.get(row).is_some_and(|failures| failures.len() >= FAILURES_MAX)
    }

    /// Whether `row` was measured in `round`.
    pub(crate) fn has(&self, row: &str, round: usize) -> bool {
        self.samples.get(row).is_some_and(|samples| samples.contains_key(&round))
    }

    /// All values of a cell, by round.
    pub(crate) fn by_round(&self, row: &str, value: &str) -> BTreeMap<usize, f64> {
        let samples = self.samples.get(row).into_iter().flatten();
        samples.filter_map(|(round, sample)| Some((*round, *sample.values.get(value)?))).collect()
    }

    /// Median of a cell over the rounds so far.
    pub(crate) fn median(&self, row: &str, value: &str) -> Option<f64> {
        let values: Vec<f64> = self.by_round(row, value).into_values().collect();
        Some(stats::summary(&values)?.median)
    }

    /// The row of `rows` with the highest median of `value` so far.
    pub(crate) fn best(&self, rows: &[&'static str], value: &str) -> Option<&'static str> {
        let medians = rows.iter().filter_map(|row| Some((*row, self.median(row, value)?)));
        medians.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(row, _)| row)
    }

    /// Round trips of a row, all rounds together, in ascending order.
    pub(crate) fn histogram(&self, row: &str) -> Vec<(u64, u64)> {
        let mut merged = BTreeMap::new();
        for (value, count) in
            self.samples.get(row).into_iter().flatten().flat_map(|(_, sample)| &sample.histogram)
        {
            *merged.entry(*value).or_insert(0) += count;
        }
        merged.into_iter().collect()
    }

    /// The row as reported.
    pub(crate) fn row(&self, spec: &RowSpec) -> Row {
        let empty = BTreeMap::new();
        let samples = self.samples.get(spec.id).unwrap_or(&empty);
        let mut columns: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        let mut notes: Vec<String> = Vec::new();
        let mut path = spec.path.map(str::to_owned);
        for sample in samples.values() {
            for (name, value) in &sample.values {
                columns.entry((*name).to_owned()).or_default().push(*value);
            }
            for note in &sample.notes {
                if !notes.contains(note) {
                    notes.push(note.clone());
                }
            }
            if sample.path.is_some() {
                path.clone_from(&sample.path);
            }
        }
        let failures = self.failures.get(spec.id).map(Vec::as_slice).unwrap_or_default();
        if !samples.is_empty()
            && let Some(reason) = failures.last()
        {
            notes.push(format!(
                "{} of {} tries failed: {reason}",
                failures.len(),
                failures.len() + samples.len()
            ));
        }
        let skipped =
            samples.is_empty().then(|| failures.last().map_or("not run", String::as_str).to_owned());
        Row {
            id: spec.id.to_owned(),
            label: spec.label.to_owned(),
            path,
            mode: spec.mode.map(str::to_owned),
            n: samples.len(),
            values: columns.into_iter().filter_map(|(name, v)| Some((name, stats::summary(&v)?))).collect(),
            skipped,
            notes,
        }
    }

    /// The ratio of every round that measured all it needs, in the order of rounds.
    pub(crate) fn pairs(&self, formula: &Formula) -> Vec<f64> {
        let (top, bottom) = match formula {
            Formula::Over { top, bottom } => (top, bottom.to_vec()),
            Formula::OverBest { top, rows, by, value } => match self.best(rows, by) {
                Some(best) => (top, vec![(best, *value)]),
                None => return Vec::new(),
            },
            Formula::BestOverBest { tops, rows, by } => match (self.best(tops, by), self.best(rows, by)) {
                (Some(top), Some(best)) => (&(top, *by), vec![(best, *by)]),
                _ => return Vec::new(),
            },
            Formula::Difference { from, less } => {
                let less = self.by_round(less.0, less.1);
                let from = self.by_round(from.0, from.1);
                return from.iter().filter_map(|(round, from)| Some(from - less.get(round)?)).collect();
            }
            Formula::Value(cell) => return self.by_round(cell.0, cell.1).into_values().collect(),
        };
        let bottoms: Vec<_> = bottom.iter().map(|(row, value)| self.by_round(row, value)).collect();
        let over = |(round, top): (usize, f64)| {
            let sum: f64 =
                bottoms.iter().map(|by_round| by_round.get(&round).copied()).sum::<Option<f64>>()?;
            (sum > 0.0).then(|| top / sum)
        };
        self.by_round(top.0, top.1).into_iter().filter_map(over).collect()
    }

    /// The ratio as reported. It is undecided with too few pairs: under `--check` fewer than the ratio requires,
    /// otherwise fewer than an interval of the median needs, or than the ratio requires if that is less.
    pub(crate) fn ratio(&self, spec: &RatioSpec, check: bool) -> Ratio {
        let values = self.pairs(&spec.formula);
        let summary = stats::summary(&values);
        // With fewer pairs it would be the spread, or have no width, which is not an interval.
        let interval95 = (values.len() >= INTERVAL_PAIRS_MIN).then(|| stats::interval95(&values)).flatten();
        let mut holds = spec.target.and_then(|target| {
            let value = match (spec.judged, spec.better) {
                (Judged::IntervalEnd, Better::Lower) | (Judged::IntervalBest, Better::Higher) => {
                    interval95?[1]
                }
                (Judged::IntervalEnd, Better::Higher) | (Judged::IntervalBest, Better::Lower) => {
                    interval95?[0]
                }
                _ => summary?.median,
            };
            Some(match spec.better {
                _ if value == target => spec.judged != Judged::MedianStrictly,
                Better::Lower => value < target,
                Better::Higher => value > target,
            })
        });
        let mut undecided = values.is_empty().then(|| self.why_missing(&spec.formula));
        for ((row, value), limit) in spec.also {
            match self.median(row, value) {
                Some(median) => holds = holds.map(|holds| holds && median < *limit),
                None => {
                    undecided.get_or_insert_with(|| self.why_row(row).unwrap_or(Undecided::NoPair));
                }
            }
        }
        let needed = if check { spec.check_pairs } else { spec.check_pairs.min(INTERVAL_PAIRS_MIN) };
        let has_few = spec.target.is_some() && values.len() < needed;
        let undecided = undecided
            .or_else(|| self.why_unsteady(spec))
            .or_else(|| has_few.then_some(Undecided::FewPairs(values.len(), needed)));
        if undecided.is_some() {
            holds = None;
        }
        let skipped = undecided.as_ref().map(|undecided| self.in_full(undecided));
        Ratio {
            id: spec.id.to_owned(),
            what: spec.what.to_owned(),
            value: summary.map(|summary| summary.median),
            spread: summary.map(|summary| [summary.min, summary.max]),
            interval95,
            target: spec.target,
            better: spec.better,
            holds,
            skipped,
            undecided,
            pairs: values.len(),
            judged: judged_name(spec).to_owned(),
            values,
        }
    }

    /// Why two runs of the same do not let the ratio be judged.
    fn why_unsteady(&self, spec: &RatioSpec) -> Option<Undecided> {
        let (twice, factor) = spec.steady.as_ref()?;
        let Some(pairs) = stats::summary(&self.pairs(twice)) else { return Some(self.why_missing(twice)) };
        let is_steady = (1.0 / factor..=*factor).contains(&pairs.median);
        (!is_steady).then_some(Undecided::Unsteady(pairs.median))
    }

    fn why_missing(&self, formula: &Formula) -> Undecided {
        formula.rows().iter().find_map(|row| self.why_row(row)).unwrap_or(Undecided::NoPair)
    }

    /// Why a row has no sample.
    fn why_row(&self, row: &str) -> Option<Undecided> {
        let is_missing = self.samples.get(row).is_none_or(BTreeMap::is_empty);
        let why = if self.failures.contains_key(row) { Undecided::NotMeasured } else { Undecided::NotRun };
        is_missing.then(|| why(row.to_owned()))
    }

    /// A reason with what the row said when it failed.
    fn in_full(&self, undecided: &Undecided) -> String {
        match undecided {
            Undecided::NotMeasured(row) => {
                let failure = self.failures.get(row.as_str()).and_then(|failures| failures.last());
                format!("{row}: {}", failure.map_or("not measured", String::as_str))
            }
            other => other.to_string(),
        }
    }
}

fn judged_name(spec: &RatioSpec) -> &'static str {
    match (spec.judged, spec.better) {
        (Judged::IntervalEnd, Better::Lower) | (Judged::IntervalBest, Better::Higher) => {
            "upper end of interval95"
        }
        (Judged::IntervalEnd, Better::Higher) | (Judged::IntervalBest, Better::Lower) => {
            "lower end of interval95"
        }
        (Judged::MedianStrictly, _) => "median, strictly",
        _ => "median",
    }
}

/// The exit code of `--check`: 1 if a ratio misses its target, else 3 if one could not be measured, or more than
/// [`UNSTEADY_MAX`] are undecided because two runs of the same differ, else 0.
pub(crate) fn check_code(ratios: &[Ratio]) -> u8 {
    let undecided = |ratio: &&Ratio| ratio.holds.is_none() && ratio.target.is_some();
    let unsteady = ratios.iter().filter(|ratio| ratio.is_unsteady()).count();
    if ratios.iter().any(|ratio| ratio.holds == Some(false)) {
        1
    } else if unsteady > UNSTEADY_MAX || ratios.iter().filter(undecided).count() > unsteady {
        3
    } else {
        0
    }
}

/// A sentence on the confidence of intervals with this many rounds.
pub(crate) fn interval_note(rounds: usize) -> Option<String> {
    (rounds < INTERVAL_PAIRS_MIN).then(|| {
        let pairs = stats::counted(rounds, "pair");
        let verb = if rounds == 1 { "is" } else { "are" };
        format!(
            "{pairs} {verb} too few for a 95 % interval of a median: give --repeat {INTERVAL_PAIRS_MIN} or more for a verdict on every ratio"
        )
    })
}

#[cfg(test)]
#[path = "record/tests.rs"]
mod tests;
