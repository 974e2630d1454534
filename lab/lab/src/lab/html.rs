//! Renders the report as one self-contained HTML file, without scripts, fonts or requests.

use std::fmt::Write;

use plotters::style::RGBColor;

use super::chart::{self, Axis, Line};
use super::model::{Group, LabReport, Ratio, Row, RowSpec};
use super::record::Record;
use super::session::Lab;
use super::stats;
use super::summary::{self, Ahead, Shown};
use super::table::{self, label, of_group, to_base};
use super::values::{VALUES, Value};

/// Warm colours for the kernel, cool ones for twinpath, grey for the floor: legible on light and dark backgrounds.
const KERNEL: [RGBColor; 3] =
    [RGBColor(0xd9, 0x8a, 0x00), RGBColor(0xb8, 0x6a, 0x3c), RGBColor(0xe5, 0x53, 0x4b)];
const OURS: [RGBColor; 4] = [
    RGBColor(0x8b, 0x6c, 0xef),
    RGBColor(0x2f, 0x81, 0xf7),
    RGBColor(0x12, 0xa5, 0x94),
    RGBColor(0x5f, 0xb0, 0x3a),
];
const FLOOR: RGBColor = RGBColor(0x8b, 0x94, 0x9e);

/// The whole page.
pub(crate) fn render(lab: &Lab, report: &LabReport, record: &Record, shown: Shown) -> anyhow::Result<String> {
    let mut page = String::new();
    let title = format!("twinpath-lab {}", report.lab);
    page.push_str(
        &include_str!("report/head.html")
            .replace("{title}", &escape(&title))
            .replace("{style}", include_str!("report/style.css")),
    );
    let _ = write!(
        page,
        "<header><h1>{}</h1><p>{}</p><p class=\"meta\">twinpath {} · Linux {} · client on CPU {}, server on CPU {} · {} · {} in {:.0} s</p></header>",
        escape(&title),
        escape(lab.about),
        escape(&report.version),
        escape(&report.kernel),
        report.cpus.first().copied().unwrap_or_default(),
        report.cpus.get(1).copied().unwrap_or_default(),
        table::utc(report.unix_time_s),
        stats::counted(report.rounds, "round"),
        report.wall_s,
    );
    match shown {
        Shown::Summary => compared(&mut page, lab, record),
        Shown::Targets => targets(&mut page, report),
    }
    for group in [Group::NullOne, Group::NullMany, Group::Rtt, Group::Wake, Group::Walk, Group::Transit] {
        latencies(&mut page, lab, report, record, group)?;
    }
    for group in Group::ALL.iter().copied() {
        rows(&mut page, lab, report, record, group);
    }
    notes(&mut page, report);
    page.push_str("</main></body></html>\n");
    Ok(page)
}

/// The kernel and twinpath side by side.
fn compared(page: &mut String, lab: &Lab, record: &Record) {
    page.push_str("<section><h2>Side by side</h2><div class=\"wide\"><table><thead><tr><th><th>kernel<th>twinpath<th>ahead</tr></thead><tbody>");
    for line in summary::lines(lab, record) {
        let [kernel, ours] = line
            .values
            .map(|value| value.map_or_else(|| "–".to_owned(), |value| summary::with_unit(line.value, value)));
        let class = match line.ahead {
            Ahead::Twinpath(_) => "good",
            Ahead::Kernel(_) => "bad",
            Ahead::Equal | Ahead::Unclear | Ahead::Unknown => "none",
        };
        let _ = write!(
            page,
            "<tr><td class=\"name\">{}<td>{kernel}<td class=\"value\">{ours}<td class=\"{class}\">{}</tr>",
            escape(line.what.trim_start()),
            line.ahead.words(),
        );
    }
    page.push_str("</tbody></table></div></section>");
}

fn targets(page: &mut String, report: &LabReport) {
    if report.ratios.is_empty() {
        return;
    }
    let count = |word| report.ratios.iter().filter(|ratio| table::verdict(ratio).0 == word).count();
    page.push_str("<section><h2>Targets</h2><div class=\"tiles\">");
    for (number, name, class) in [
        (count("holds"), "hold", "good"),
        (count("misses"), "miss", "bad"),
        (count("undecided"), "undecided", "none"),
        (count("not measured"), "not measured", "none"),
    ] {
        let class = if number == 0 { "zero" } else { class };
        let _ = write!(page, "<div class=\"tile {class}\"><b>{number}</b> {name}</div>");
    }
    page.push_str("</div>");
    page.push_str("<div class=\"wide\"><table><thead><tr><th>ratio<th>value<th><th>target<th>spread<th>95 % interval<th>pairs</tr></thead><tbody>");
    for ratio in &report.ratios {
        ratio_line(page, ratio);
    }
    page.push_str("</tbody></table></div></section>");
}

fn ratio_line(page: &mut String, ratio: &Ratio) {
    let class = match ratio.holds {
        Some(true) => "good",
        Some(false) => "bad",
        None => "none",
    };
    let badge = match table::verdict(ratio).0 {
        "" => String::new(),
        word => format!("<span class=\"badge {class}\">{word}</span>"),
    };
    let range = |range: Option<[f64; 2]>| {
        range.map_or_else(
            || "–".to_owned(),
            |[low, high]| format!("{}&#8239;–&#8239;{}", table::short(low), table::short(high)),
        )
    };
    let reason =
        ratio.skipped.as_ref().map_or_else(String::new, |reason| format!("<br><em>{}</em>", escape(reason)));
    let _ = write!(
        page,
        "<tr><td class=\"name\"><b>{}</b><br><span class=\"what\">{}{reason}</span><td class=\"value\">{}<td>{badge}<td>{}<td>{}<td>{}<td>{}</tr>",
        escape(&ratio.id),
        escape(&ratio.what),
        ratio.value.map_or_else(|| "–".to_owned(), table::short),
        escape(&table::target(ratio)),
        range(ratio.spread),
        range(ratio.interval95),
        ratio.pairs,
    );
}

/// Prefixes of the ids of twinpath's rows.
const OUR_ROWS: [&str; 3] = ["twinpath", "direct", "shm"];

fn is_ours(row: &Row) -> bool {
    OUR_ROWS.iter().any(|ours| row.id.starts_with(ours)) || row.id.contains("-twinpath")
}

/// Warm colours for the kernel's rows, cool ones for ours, in turn.
struct Colours {
    kernel: std::iter::Cycle<std::slice::Iter<'static, RGBColor>>,
    ours: std::iter::Cycle<std::slice::Iter<'static, RGBColor>>,
}

impl Colours {
    fn new() -> Self {
        Self { kernel: KERNEL.iter().cycle(), ours: OURS.iter().cycle() }
    }

    fn next(&mut self, is_ours: bool) -> RGBColor {
        let next = if is_ours { self.ours.next() } else { self.kernel.next() };
        *next.unwrap_or(&FLOOR)
    }
}

/// The latency curves of one group; nothing if it was not measured.
fn latencies(
    page: &mut String,
    lab: &Lab,
    report: &LabReport,
    record: &Record,
    group: Group,
) -> anyhow::Result<()> {
    let (mut colours, mut lines, mut legend) = (Colours::new(), Vec::new(), String::new());
    for (spec, row) in of_group(lab, report, group).filter(|(_, row)| row.skipped.is_none()) {
        let is_ours = is_ours(row) || matches!(group, Group::Walk | Group::Transit) && row.path.is_some();
        let next = colours.next(is_ours);
        let colour = if row.path.is_none() { FLOOR } else { next };
        let value =
            |name: &str| row.values.get(name).map_or_else(String::new, |s| table::significant(s.median));
        let RGBColor(red, green, blue) = colour;
        let _ = write!(
            legend,
            "<li><i style=\"background:#{red:02x}{green:02x}{blue:02x}\"></i><span>{}</span><span class=\"meta\">p50 {} · p99 {} us</span></li>",
            escape(&label(spec, row)),
            value("p50_us"),
            value("p99_us"),
        );
        lines.push(Line::new(colour, is_ours, chart::percentiles(&record.histogram(spec.id))));
    }
    let times = || lines.iter().flat_map(|line| &line.points).map(|point| point.y);
    if times().next().is_none() {
        return Ok(());
    }
    let svg = chart::draw(&Axis::percentiles(lines.iter()), &Axis::times(times(), "round trip"), &lines)?;
    let _ = write!(
        page,
        "<section><h2>Latency</h2><figure>{svg}<ul class=\"legend\">{legend}</ul><figcaption>{}, all rounds together. Lower is better; thick lines are twinpath.</figcaption></figure></section>",
        escape(group.title()),
    );
    Ok(())
}

fn rows(page: &mut String, lab: &Lab, report: &LabReport, record: &Record, group: Group) {
    let measured = of_group(lab, report, group).filter(|(_, row)| row.skipped.is_none());
    let rows: Vec<(&RowSpec, &Row)> = measured.collect();
    if rows.is_empty() {
        return;
    }
    let measured = |name: &str| rows.iter().any(|(_, row)| row.values.contains_key(name));
    let columns: Vec<&Value> = VALUES.iter().filter(|value| measured(value.name)).collect();
    let _ =
        write!(page, "<section><h2>{}</h2><div class=\"wide\"><table><thead><tr><th>", escape(group.title()));
    for column in &columns {
        let _ = write!(page, "<th>{}", column.heading);
    }
    let to_kernel: Vec<Option<f64>> = rows.iter().map(|(spec, _)| to_base(spec, record)).collect();
    let has_ratios = to_kernel.iter().any(Option::is_some);
    page.push_str(if has_ratios {
        "<th>ratio to kernel</tr></thead><tbody>"
    } else {
        "</tr></thead><tbody>"
    });
    for ((spec, row), to_kernel) in rows.into_iter().zip(to_kernel) {
        let ours = is_ours(row) || row.path.as_deref().is_some_and(|path| path != "kernel");
        let class = if ours { " class=\"ours\"" } else { "" };
        let _ = write!(page, "<tr{class}><td class=\"name\">{}", escape(&label(spec, row)));
        for Value { name, write, .. } in &columns {
            match row.values.get(*name) {
                Some(s) => {
                    let _ = write!(
                        page,
                        "<td title=\"{} to {} over {}\">{}",
                        write(s.min),
                        write(s.max),
                        stats::counted(row.n, "round"),
                        write(s.median)
                    );
                }
                None => page.push_str("<td>"),
            }
        }
        if has_ratios {
            let _ = write!(page, "<td>{}", to_kernel.map_or_else(String::new, |ratio| format!("{ratio:.2}")));
        }
        page.push_str("</tr>");
    }
    page.push_str("</tbody></table></div></section>");
}

fn notes(page: &mut String, report: &LabReport) {
    page.push_str("<section><h2>Notes</h2><ul class=\"notes\">");
    for remark in table::remarks(report) {
        let _ = write!(page, "<li>{}</li>", escape(&remark));
    }
    page.push_str(include_str!("report/notes.html"));
    page.push_str("</ul></section>");
}

/// Escapes text for elements and attributes.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::lab::model::Sample;
    use crate::lab::quick;
    use crate::lab::record;

    /// A run with every row measured, except one that has a reason why not.
    fn made_up() -> (LabReport, Record) {
        let lab = &quick::LAB;
        let mut record = Record::default();
        for (index, row) in lab.table.rows.iter().enumerate() {
            if row.id == "idle-adaptive" {
                record.fail(row.id, "refused: a peer may send <coalesced> segments".to_owned());
                continue;
            }
            for round in 0..6 {
                let p50 = [79.0, 7.5, 4.1, 7.0, 2.1, 2.0, 4.2].get(index).copied().unwrap_or(5.0)
                    + 0.05 * f64::from(round);
                let names =
                    ["p50_us", "p99_us", "requests_per_s", "cpu_server", "cpu_us_per_reply", "gbit_per_s"];
                let values = [p50, p50 * 3.0, 1e6 / p50, 0.5, p50 / 5.0, 20.0 - p50];
                let mut values: BTreeMap<_, _> = names.into_iter().zip(values).collect();
                values.extend([
                    ("allocations_per_packet", 0.0),
                    ("pool_mib_per_queue", 8.0),
                    ("wakeups_per_s", 2.0),
                ]);
                values.extend([
                    ("min_us", p50 * 0.9),
                    ("p90_us", p50 * 1.2),
                    ("p99_9_us", p50 * 9.0),
                    ("max_us", 900.0),
                ]);
                values.extend([("request_held", 0.0), ("cpu_client", 0.99)]);
                let ns = (p50 * 1000.0) as u64;
                let histogram =
                    vec![(ns, 60_000), (ns * 2, 9000), (ns * 3, 500), (ns * 10, 40), (900_000, 1)];
                record.add(row.id, round as usize, Sample { values, histogram, ..Sample::default() });
            }
        }
        let report = LabReport {
            lab: lab.name.to_owned(),
            version: "0.1.0".to_owned(),
            kernel: "6.18.0".to_owned(),
            cpus: vec![0, 1],
            rows: lab.table.rows.iter().map(|spec| record.row(spec)).collect(),
            ratios: lab.table.ratios.iter().map(|spec| record.ratio(spec, false)).collect(),
            unix_time_s: 1_700_000_000,
            wall_s: 47.0,
            rounds: 6,
            notes: Vec::new(),
        };
        assert_eq!(record::check_code(&report.ratios), 1);
        (report, record)
    }

    #[test]
    fn the_page_needs_nothing_from_elsewhere_and_takes_text_as_text() {
        let (report, record) = made_up();
        let page = render(&quick::LAB, &report, &record, Shown::Targets).unwrap();
        if let Ok(path) = std::env::var("LAB_SAMPLE") {
            std::fs::write(path, &page).unwrap();
        }
        for outside in ["<script", "src=", "@import", "url(", "href="] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert_eq!(page.matches("http").count(), page.matches("http://www.w3.org/2000/svg").count());
        assert!(page.contains("&lt;coalesced&gt;") && !page.contains("<coalesced>"));
        for ratio in quick::LAB.table.ratios {
            assert!(page.contains(ratio.id), "{}", ratio.id);
        }
        assert_eq!(page.matches("<svg").count(), 1);
        let summary = render(&quick::LAB, &report, &record, Shown::Summary).unwrap();
        assert!(summary.contains("Side by side") && !summary.contains("Targets"));
        assert!(summary.contains("twinpath, ") && summary.contains(" times"), "it says who is ahead");
    }

    /// A run of one round: one pair per ratio, and rows without a kernel row for comparison.
    #[test]
    fn a_single_pair_is_undecided_and_a_column_without_values_is_left_out() {
        let lab = &quick::LAB;
        let (mut report, _) = made_up();
        let mut record = Record::default();
        for row in ["twinpath-poll", "kernel-spinning"] {
            let p50 = if row == "twinpath-poll" { 4.0 } else { 8.0 };
            let values = BTreeMap::from([("p50_us", p50), ("cpu_server", 0.5)]);
            record.add(row, 0, Sample { values, ..Sample::default() });
        }
        let mut shown = |record: &Record, rows: &[&str]| {
            let rows = lab.table.rows.iter().filter(|spec| rows.contains(&spec.id));
            report.rows = rows.map(|spec| record.row(spec)).collect();
            report.ratios = lab
                .table
                .ratios
                .iter()
                .filter(|spec| spec.id == "udp-rtt-poll")
                .map(|spec| record.ratio(spec, false))
                .collect();
            report.rounds = 1;
            report.notes = record::interval_note(1).into_iter().collect();
            let page = render(lab, &report, record, Shown::Targets).unwrap();
            [table::render(lab, &report, record), page.replace(include_str!("report/style.css"), "")]
        };
        for text in shown(&record, &["twinpath-poll", "kernel-spinning"]) {
            assert!(text.contains("undecided") && text.contains("only 1 of"), "{text}");
            assert!(text.contains("1 round in") && !text.contains("1 rounds"), "{text}");
            assert!(!text.contains("holds<") && !text.contains("class=\"badge good"), "{text}");
            assert!(!text.contains("ratio to") && !text.contains("p99.9") && text.contains("p50"), "{text}");
        }
        // The row that one of ours is compared with is measured, too.
        let values = BTreeMap::from([("p50_us", 8.0)]);
        record.add("kernel-sleeping", 0, Sample { values, ..Sample::default() });
        for text in shown(&record, &["twinpath-poll", "kernel-sleeping"]) {
            assert!(text.contains("ratio to") && text.contains("0.50"), "{text}");
        }
    }

    #[test]
    fn the_terminal_shows_every_row_ratio_and_reason() {
        let (report, record) = made_up();
        let text = table::render(&quick::LAB, &report, &record);
        for word in [
            "kernel, sleeping",
            "udp-rtt-interrupt-vs-kernel",
            "idle-adaptive",
            "refused: a peer",
            "6 rounds",
        ] {
            assert!(text.contains(word), "{word}\n{text}");
        }
    }
}
