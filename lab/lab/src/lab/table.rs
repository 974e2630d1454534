//! Renders the report as tables for a terminal.

use std::fmt::Write;
use std::io::IsTerminal;
use std::time::{Duration, UNIX_EPOCH};

use comfy_table::presets::NOTHING;
use comfy_table::{
    Attribute, Cell, CellAlignment, Color, ColumnConstraint, ContentArrangement, Table, TableComponent,
};

use super::model::{Better, Group, LabReport, Ratio, Row, RowSpec};
use super::record::Record;
use super::session::Lab;
use super::stats;
use super::values::with_unit;
pub(crate) use super::values::{percent, short, significant, thousands};

/// The width in a file or a pipe.
const WIDTH_WITHOUT_TERMINAL: u16 = 150;

/// Rows by group, then the ratios, then the notes.
pub(crate) fn render(lab: &Lab, report: &LabReport, record: &Record) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "{}", measurements(lab, report, record));
    if !report.ratios.is_empty() {
        let _ = writeln!(text, "{}", ratios(report));
    }
    for line in remarks(report) {
        let _ = writeln!(text, "{line}");
    }
    let _ = write!(
        text,
        "{} in {:.0} s; medians over the rounds; ratios are medians of pairs measured in the same round",
        stats::counted(report.rounds, "round"),
        report.wall_s
    );
    text
}

const COLUMNS: [&str; 12] = [
    "us",
    "min",
    "avg",
    "p50",
    "p90",
    "p99",
    "p99.9",
    "max",
    "requests/s",
    "CPU of
server",
    "CPU of
client",
    "ratio to
kernel",
];

fn measurements(lab: &Lab, report: &LabReport, record: &Record) -> Table {
    let mut table = new_table();
    let mut groups: Vec<(Group, Vec<Vec<String>>)> = Vec::new();
    for group in Group::ALL.iter().copied() {
        let rows = of_group(lab, report, group).filter(|(_, row)| row.skipped.is_none());
        let lines: Vec<_> = rows.map(|(spec, row)| line(spec, row, record)).collect();
        if !lines.is_empty() {
            groups.push((group, lines));
        }
    }
    // A column without any value is left out.
    let has_value = |at: &usize| groups.iter().flat_map(|(_, lines)| lines).any(|line| !line[*at].is_empty());
    let shown: Vec<usize> = (0..COLUMNS.len()).filter(|at| *at == 0 || has_value(at)).collect();
    table.set_header(shown.iter().map(|at| Cell::new(COLUMNS[*at]).add_attribute(Attribute::Bold)));
    for (group, lines) in &groups {
        let title = Cell::new(group.title()).add_attribute(Attribute::Bold).fg(Color::Cyan);
        table.add_row([""]);
        table.add_row(vec![title]);
        for line in lines {
            table.add_row(shown.iter().map(|at| &line[*at]));
        }
    }
    for column in 1..shown.len() {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

fn line(spec: &RowSpec, row: &Row, record: &Record) -> Vec<String> {
    let value = |name: &str| row.values.get(name).map(|summary| summary.median);
    let us = |name| value(name).map_or_else(String::new, significant);
    let share = |name| value(name).map_or_else(String::new, percent);
    let mut cells = vec![format!("  {}", label(spec, row))];
    cells.extend(["min_us", "mean_us", "p50_us", "p90_us", "p99_us", "p99_9_us", "max_us"].map(us));
    let middle = match spec.main {
        "p50_us" => "requests_per_s",
        "cpu_server" => "wakeups_per_s",
        // These have columns of their own.
        "mean_us" => "",
        "p99_9_us" => "turn_max_us",
        main => main,
    };
    cells.push(value(middle).map_or_else(String::new, |value| with_unit(middle, value)));
    cells.extend(["cpu_server", "cpu_client"].map(share));
    cells.push(to_base(spec, record).map_or_else(String::new, |ratio| format!("{ratio:.2}")));
    cells
}

/// The label, with the path if it is not the kernel's.
pub(crate) fn label(spec: &RowSpec, row: &Row) -> String {
    match row.path.as_deref() {
        Some(path) if path != "kernel" && spec.path.is_some() => format!("{} ({path})", row.label),
        _ => row.label.clone(),
    }
}

/// The median ratio of the row's main value to that of the best row it is compared with, by pairs.
pub(crate) fn to_base(spec: &RowSpec, record: &Record) -> Option<f64> {
    let base = record.best(spec.base, spec.main)?;
    let by_round = record.by_round(base, spec.main);
    let own = record.by_round(spec.id, spec.main);
    let pairs: Vec<_> = own.iter().filter_map(|(round, value)| Some(value / by_round.get(round)?)).collect();
    Some(stats::summary(&pairs)?.median)
}

fn ratios(report: &LabReport) -> Table {
    let mut table = new_table();
    let header = ["ratio", "value", "spread", "95 % interval", "pairs", "target", "", "what"];
    table.set_header(header.map(|name| Cell::new(name).add_attribute(Attribute::Bold)));
    // Only the last column is shortened on a narrow terminal.
    for column in table.column_iter_mut().take(header.len() - 1) {
        column.set_constraint(ColumnConstraint::ContentWidth);
    }
    for ratio in &report.ratios {
        let range = |range: Option<[f64; 2]>| {
            range.map_or_else(|| "-".to_owned(), |[low, high]| format!("{} .. {}", short(low), short(high)))
        };
        let (word, colour) = verdict(ratio);
        table.add_row(vec![
            Cell::new(&ratio.id),
            Cell::new(ratio.value.map_or_else(|| "-".to_owned(), short)).add_attribute(Attribute::Bold),
            Cell::new(range(ratio.spread)),
            Cell::new(range(ratio.interval95)),
            Cell::new(ratio.pairs),
            Cell::new(target(ratio)),
            Cell::new(word).fg(colour),
            Cell::new(what(ratio)),
        ]);
    }
    table
}

/// The ratio's description, and the reason if it was not judged: for a missing row only its name, as its reason is
/// listed below.
fn what(ratio: &Ratio) -> String {
    match ratio.skipped.as_deref().map(|reason| reason.split_once(": ").map_or(reason, |(row, _)| row)) {
        Some(missing) => format!("{} ({missing})", ratio.what),
        None => ratio.what.clone(),
    }
}

/// The verdict on the ratio, in a word.
pub(crate) fn verdict(ratio: &Ratio) -> (&'static str, Color) {
    match (ratio.holds, ratio.target) {
        (Some(true), _) => ("holds", Color::Green),
        (Some(false), _) => ("misses", Color::Red),
        (None, Some(_)) if ratio.value.is_some() => ("undecided", Color::Yellow),
        (None, Some(_)) => ("not measured", Color::Yellow),
        (None, None) => ("", Color::Reset),
    }
}

/// The target as a condition.
pub(crate) fn target(ratio: &Ratio) -> String {
    let sign = match (ratio.better, ratio.judged.ends_with("strictly")) {
        (Better::Lower, false) => "≤",
        (Better::Lower, true) => "<",
        (Better::Higher, false) => "≥",
        (Better::Higher, true) => ">",
    };
    let of = if ratio.judged.ends_with("interval95") { " (interval)" } else { "" };
    ratio.target.map_or_else(String::new, |target| format!("{sign} {target}{of}"))
}

/// The rows that were not measured, one line per reason; then notes on rows and run.
pub(crate) fn remarks(report: &LabReport) -> Vec<String> {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for row in &report.rows {
        if let Some(reason) = &row.skipped {
            match reasons.iter_mut().find(|(known, _)| known == reason) {
                Some((_, rows)) => rows.push(&row.id),
                None => reasons.push((reason, vec![&row.id])),
            }
        }
    }
    let mut lines: Vec<_> =
        reasons.into_iter().map(|(reason, rows)| format!("skipped {}: {reason}", rows.join(", "))).collect();
    let mut notes: Vec<(&str, Vec<&str>)> = Vec::new();
    for row in &report.rows {
        for note in &row.notes {
            match notes.iter_mut().find(|(known, _)| known == note) {
                Some((_, rows)) => rows.push(&row.id),
                None => notes.push((note, vec![&row.id])),
            }
        }
    }
    lines.extend(notes.into_iter().map(|(note, rows)| format!("{}: {note}", rows.join(", "))));
    lines.extend(report.notes.iter().cloned());
    lines
}

/// The definitions and results of a group's rows.
pub(crate) fn of_group<'a>(
    lab: &'a Lab,
    report: &'a LabReport,
    group: Group,
) -> impl Iterator<Item = (&'a RowSpec, &'a Row)> {
    let specs = lab.table.rows.iter().filter(move |spec| spec.group == group);
    specs.filter_map(|spec| Some((spec, report.rows.iter().find(|row| row.id == spec.id)?)))
}

/// `2026-01-31T23:59:59Z`, from seconds since 1970.
pub(crate) fn utc(unix_s: u64) -> String {
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(unix_s)).to_string()
}

/// A table with a line under the header, and none between rows.
fn new_table() -> Table {
    let mut table = Table::new();
    table.load_preset(NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    for part in [TableComponent::HeaderLines, TableComponent::MiddleHeaderIntersections] {
        table.set_style(part, '─');
    }
    if !std::io::stdout().is_terminal() {
        table.set_width(WIDTH_WITHOUT_TERMINAL);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_for_people() {
        let cases = [(0.0, "0"), (999.4, "999"), (1000.0, "1,000"), (1_234_567.8, "1,234,568")];
        for (value, text) in cases {
            assert_eq!(thousands(value), text);
        }
        assert_eq!([significant(2.034), significant(79.96), significant(181.2)], ["2.03", "80.0", "181"]);
        assert_eq!([0.0, 0.0004, 0.0904, 0.654, 16.0].map(short), ["0", "4e-4", "0.090", "0.65", "16.0"]);
        assert_eq!([percent(0.0041), percent(0.994)], ["0.41 %", "99 %"]);
    }
}
