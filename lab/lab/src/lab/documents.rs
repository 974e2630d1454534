//! The tables of docs/generated/labs.md are made from the definitions of rows and ratios.
//!
//! `make documents` writes them; without `WRITE_DOCUMENTS` in the environment they are compared.

use std::fmt::Write;
use std::path::Path;

use super::LABS;
use super::model::{Better, Cell, Formula, Judged, RatioSpec, RowSpec};

const HEAD: &str = "# Rows and ratios of the labs

Written by `make documents` from the tables in `lab/lab/tables`. [How the labs measure](../measuring.md) explains
pairs, intervals and verdicts, and has a page for each lab.
";

fn quoted<'a>(names: impl IntoIterator<Item = &'a &'static str>) -> String {
    names.into_iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

fn cell((row, value): &Cell) -> String {
    format!("`{value}` of `{row}`")
}

fn formula(formula: &Formula) -> String {
    match formula {
        Formula::Over { top, bottom } => {
            let bottom: Vec<_> = bottom.iter().map(cell).collect();
            format!("{} over {}", cell(top), bottom.join(" plus "))
        }
        Formula::OverBest { top, rows, by, value } => {
            format!("{} over `{value}` of the row with the highest `{by}` among {}", cell(top), quoted(*rows))
        }
        Formula::BestOverBest { tops, rows, by } => {
            format!("the highest `{by}` of {} over the highest of {}", quoted(*tops), quoted(*rows))
        }
        Formula::Difference { from, less } => format!("{} less {}", cell(from), cell(less)),
        Formula::Value(of) => cell(of),
    }
}

/// The target, with whatever else a verdict depends on.
fn target(ratio: &RatioSpec) -> String {
    let Some(target) = ratio.target else { return "none".to_owned() };
    let sign = match (ratio.better, ratio.judged) {
        (Better::Lower, Judged::MedianStrictly) => "<",
        (Better::Higher, Judged::MedianStrictly) => ">",
        (Better::Lower, _) => "≤",
        (Better::Higher, _) => "≥",
    };
    let of = match ratio.judged {
        Judged::Median | Judged::MedianStrictly => "",
        Judged::IntervalEnd => ", for the worse end of the interval",
        Judged::IntervalBest => ", for the better end of the interval",
    };
    let mut text = format!("{sign} {target}{of}");
    for (also, limit) in ratio.also {
        let _ = write!(text, "; {} < {limit}", cell(also));
    }
    if let Some((twice, factor)) = &ratio.steady {
        let _ = write!(text, "; undecided if {} differs from 1 by a factor above {factor}", formula(twice));
    }
    text
}

fn ratio(ratio: &RatioSpec) -> String {
    let (id, what, pairs) = (ratio.id, ratio.what, ratio.check_pairs);
    format!("| `{id}` | {what} | {} | {} | {pairs} |\n", formula(&ratio.formula), target(ratio))
}

fn row(row: &RowSpec) -> String {
    let (path, mode) = (row.path.unwrap_or_default(), row.mode.unwrap_or_default());
    let (id, label, main) = (row.id, row.label, row.main);
    format!("| `{id}` | {} | {label} | {path} | {mode} | `{main}` |\n", row.group.title())
}

/// The whole page.
fn page() -> String {
    let mut text = HEAD.to_owned();
    for lab in LABS {
        let _ = write!(text, "\n## {}\n\n{}.\n", lab.name, lab.about);
        text += "\n| ratio | what | formula | target | pairs for a verdict with `--check` |\n|---|---|---|---|---|\n";
        text.extend(lab.table.ratios.iter().map(ratio));
        text += "\n| row | group | what | path | mode | main value |\n|---|---|---|---|---|---|\n";
        text.extend(lab.table.rows.iter().map(row));
    }
    // An empty cell has one space.
    while text.contains("|  |") {
        text = text.replace("|  |", "| |");
    }
    text
}

#[test]
fn the_page_of_rows_and_ratios_is_made_from_their_definitions() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/generated/labs.md");
    let page = page();
    if std::env::var_os("WRITE_DOCUMENTS").is_some() {
        std::fs::write(&path, &page).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    let advice = "docs/generated/labs.md is not what the labs define: run `make documents`";
    let differs = page.lines().zip(written.lines()).find(|(made, there)| made != there);
    assert_eq!(differs, None, "{advice}");
    assert!(page == written, "{advice}");
}
