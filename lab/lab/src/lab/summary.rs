//! The summary of a lab: the kernel and twinpath side by side, for readers who know neither the rows nor the targets.
//! Pure.

use std::fmt::Write;

use super::model::{Better, Compared, LabReport};
use super::record::Record;
use super::session::Lab;
use super::stats;
use super::table;

/// The cells of the longest bar.
const BAR: usize = 12;
/// Medians nearer to each other than this are called equal, whatever their pairs say.
const EQUAL: f64 = 0.05;

/// What a report opens with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// The kernel and twinpath side by side.
    Summary,
    /// The ratios with their targets.
    Targets,
}

/// A line of the summary as it is shown.
#[derive(Debug, PartialEq)]
pub(crate) struct Line {
    pub(crate) what: &'static str,
    /// The medians of the kernel and of twinpath; `None` if it was not measured, or the kernel has no such thing.
    pub(crate) values: [Option<f64>; 2],
    /// The name of the value, which ends with its unit.
    pub(crate) value: &'static str,
    pub(crate) ahead: Ahead,
}

/// Which of the two is better, and how many times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Ahead {
    Twinpath(f64),
    Kernel(f64),
    /// The median is close to 1.
    Equal,
    /// The pairs are on both sides of 1.
    Unclear,
    /// One side is missing.
    Unknown,
}

impl Ahead {
    /// By the ratios of twinpath to the kernel, one of each round.
    fn of(pairs: &[f64], better: Better) -> Self {
        let Some(ratio) = stats::summary(pairs).filter(|ratio| ratio.median > 0.0) else {
            return Self::Unknown;
        };
        if (ratio.median - 1.0).abs() < EQUAL {
            return Self::Equal;
        }
        if ratio.min <= 1.0 && ratio.max >= 1.0 {
            return Self::Unclear;
        }
        match (better, ratio.median < 1.0) {
            (Better::Lower, true) => Self::Twinpath(1.0 / ratio.median),
            (Better::Lower, false) => Self::Kernel(ratio.median),
            (Better::Higher, true) => Self::Kernel(1.0 / ratio.median),
            (Better::Higher, false) => Self::Twinpath(ratio.median),
        }
    }

    /// In words.
    pub(crate) fn words(self) -> String {
        match self {
            Self::Twinpath(times) => format!("twinpath, {times:.1} times"),
            Self::Kernel(times) => format!("kernel, {times:.1} times"),
            Self::Equal => "equal".to_owned(),
            Self::Unclear => "rounds disagree".to_owned(),
            Self::Unknown => String::new(),
        }
    }
}

/// The lines of the summary that have been measured, at least on twinpath's side.
pub(crate) fn lines(lab: &Lab, record: &Record) -> Vec<Line> {
    lab.table.summary.iter().filter_map(|compared| line(compared, record)).collect()
}

fn line(compared: &Compared, record: &Record) -> Option<Line> {
    let Compared { what, value, better, .. } = *compared;
    let ours = record.by_round(compared.twinpath, value);
    let kernel = record.best(compared.kernel, value);
    let theirs = kernel.map(|row| record.by_round(row, value)).unwrap_or_default();
    let pairs: Vec<f64> = ours
        .iter()
        .filter_map(|(round, ours)| Some(ours / theirs.get(round).filter(|v| **v > 0.0)?))
        .collect();
    Some(Line {
        what,
        values: [
            kernel.and_then(|row| record.median(row, value)),
            Some(record.median(compared.twinpath, value)?),
        ],
        value,
        ahead: Ahead::of(&pairs, better),
    })
}

/// A bar of block characters, as long as the value is large beside the larger of both.
fn bar(values: [Option<f64>; 2], at: usize) -> String {
    let [Some(kernel), Some(ours)] = values else { return String::new() };
    let share = [kernel, ours][at] / kernel.max(ours).max(f64::MIN_POSITIVE);
    "█".repeat(((share * BAR as f64).round() as usize).max(1))
}

/// The summary as text for a terminal.
pub(crate) fn render(lab: &Lab, report: &LabReport, record: &Record) -> String {
    let lines = lines(lab, record);
    let number = |line: &Line, at: usize| {
        line.values[at].map_or_else(|| "-".to_owned(), |value| with_unit(line.value, value))
    };
    let width = |of: &dyn Fn(&Line) -> String| lines.iter().map(|line| of(line).chars().count()).max();
    let name = width(&|line| line.what.to_owned()).unwrap_or_default();
    let numbers = [0, 1].map(|at| width(&|line| number(line, at)).unwrap_or_default().max(8));
    let mut text = String::new();
    let _ = writeln!(text, "\n{}\n", lab.about);
    let _ = writeln!(
        text,
        " {:name$}   {:>kernel$} {:BAR$}   {:>ours$} {:BAR$}   ahead",
        "",
        "kernel",
        "",
        "twinpath",
        "",
        kernel = numbers[0],
        ours = numbers[1],
    );
    for line in &lines {
        let _ = writeln!(
            text,
            " {:name$}   {:>kernel$} {:BAR$}   {:>ours$} {:BAR$}   {}",
            line.what,
            number(line, 0),
            bar(line.values, 0),
            number(line, 1),
            bar(line.values, 1),
            line.ahead.words(),
            kernel = numbers[0],
            ours = numbers[1],
        );
    }
    let _ = write!(
        text,
        "\nMedians of {} in {:.0} s, both sides in each. Shorter bars are better, but for rates. Every row with its\n\
         percentiles is in the report; targets and verdicts: twinpath-lab {} --check.",
        stats::counted(report.rounds, "round"),
        report.wall_s,
        lab.name,
    );
    for line in failures(lab, report) {
        let _ = write!(text, "\n{line}");
    }
    text
}

/// A line for each row of the summary that could not be measured, with its reason.
fn failures(lab: &Lab, report: &LabReport) -> Vec<String> {
    let shown = |id: &str| {
        lab.table.summary.iter().any(|compared| compared.twinpath == id || compared.kernel.contains(&id))
    };
    let rows = report.rows.iter().filter(|row| shown(&row.id));
    rows.filter_map(|row| Some(format!("not measured: {}: {}", row.label, row.skipped.as_ref()?))).collect()
}

/// A value with its unit.
pub(crate) fn with_unit(name: &str, value: f64) -> String {
    match name {
        "requests_per_s" => format!("{}/s", table::thousands(value)),
        "cpu_us_per_reply" => format!("{value:.2} us"),
        "gbit_per_s" | "cpu_server" => super::values::with_unit(name, value),
        _ => format!("{} us", table::significant(value)),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::model::Sample;
    use super::*;

    const COMPARED: Compared = Compared {
        what: "round trip",
        kernel: &["slow", "fast"],
        twinpath: "ours",
        value: "p50_us",
        better: Better::Lower,
    };

    fn record(rounds: &[(&'static str, usize, f64)]) -> Record {
        let mut record = Record::default();
        for (row, round, value) in rounds {
            let values = BTreeMap::from([("p50_us", *value)]);
            record.add(row, *round, Sample { values, ..Sample::default() });
        }
        record
    }

    #[test]
    fn who_is_ahead_is_said_only_where_the_pairs_agree() {
        let of = |pairs: &[f64]| Ahead::of(pairs, Better::Lower);
        assert_eq!(of(&[0.5, 0.5, 0.25]), Ahead::Twinpath(2.0));
        assert_eq!(of(&[2.0, 1.5]), Ahead::Kernel(1.75));
        assert_eq!(of(&[0.5, 0.5, 1.5]), Ahead::Unclear, "a round says the opposite");
        assert_eq!(of(&[0.96, 0.97]), Ahead::Equal, "too close to call");
        assert_eq!(of(&[]), Ahead::Unknown);
        assert_eq!(Ahead::of(&[3.0, 3.0], Better::Higher), Ahead::Twinpath(3.0));
        assert_eq!(Ahead::of(&[0.5, 0.5], Better::Higher).words(), "kernel, 2.0 times");
    }

    #[test]
    fn pairs_are_of_one_round() {
        let record = record(&[("fast", 0, 8.0), ("fast", 1, 4.0), ("ours", 1, 2.0), ("ours", 2, 100.0)]);
        let line = line(&COMPARED, &record).unwrap();
        assert_eq!(line.ahead, Ahead::Twinpath(2.0), "round 1 is the only one with both");
        assert_eq!(line.values, [Some(6.0), Some(51.0)]);
    }

    #[test]
    fn a_line_needs_our_side_only() {
        assert_eq!(line(&COMPARED, &record(&[("fast", 0, 8.0)])), None);
        let alone = line(&COMPARED, &record(&[("ours", 0, 8.0)])).unwrap();
        assert_eq!((alone.values, alone.ahead), ([None, Some(8.0)], Ahead::Unknown));
        assert_eq!(bar(alone.values, 1), "", "there is nothing to compare it with");
    }

    #[test]
    fn bars_are_as_long_as_the_values_are_large() {
        let values = [Some(6.0), Some(3.0)];
        assert_eq!([0, 1].map(|at| bar(values, at).chars().count()), [BAR, BAR / 2]);
        assert_eq!(bar([Some(0.001), Some(50.0)], 0).chars().count(), 1, "what was measured is seen");
    }
}
