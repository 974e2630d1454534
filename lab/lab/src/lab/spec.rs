//! The table of a lab, `tables/NAME.txt`: its rows, its ratios and its summary. Pure.
//!
//! A line that begins with `#` is a comment. What the others may be:
//!
//! - `pairs N`: the fewest pairs of each ratio under `--check` that names no other number.
//! - `list NAME = ID ...`: stands for these ids wherever `$NAME` is.
//! - `rows GROUP VALUE` begins rows of that group, with that main value. A row: `ID | LABEL`; before the bar may be
//!   `ID.VALUE` for another main value, `on PATH:MODE` (either may be missing), `against ID ...` (compared with the best of
//!   these), `guest` (measured in a virtual machine only), and, last, `by ...`, which the lab reads itself.
//! - `ratios` begins ratios. One takes two lines, `ID: FORMULA SIGN TARGET, ...` and its description. Without a target, SIGN
//!   is `lower` or `higher`, whichever is better. `<` and `>`: equal is not enough. After it: `N pairs`, `worse end` or
//!   `better end` (of the interval instead of the median), `also CELL < LIMIT`, `steady FACTOR by FORMULA`.
//! - A formula: `CELL`, `CELL - CELL`, `CELL / CELL + ...`. A cell is `ID.VALUE`. The divisor may be `best(VALUE).OTHER ID ...`:
//!   OTHER of the row with the highest median of VALUE; `best(VALUE) ID ... / best(VALUE) ID ...` has the best on both sides.
//! - `summary` begins lines `ID ... / CELL lower | TEXT`: the kernel's rows, twinpath's value.
//! - `needs ID: ID ...`: rows that have to be measured before that one.
//! - `take ID ...`: rows or ratios of lab `fallback`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use anyhow::{Context, bail};

use super::model::{Better, Cell, Compared, Formula, Group, How, Judged, RatioSpec, RowSpec};

/// The lab that others take rows and ratios from.
static FALLBACK: LazyLock<Table> = LazyLock::new(|| Table::of(include_str!("../../tables/fallback.txt")));

/// Ids of rows.
type Ids = &'static [&'static str];

/// What a lab measures, and what is asked of it.
#[derive(Debug)]
pub(crate) struct Table {
    /// In the order in which they are shown.
    pub(crate) rows: &'static [RowSpec],
    pub(crate) ratios: &'static [RatioSpec],
    /// What a run without `--check` and `--only` shows instead of rows and targets; empty: it shows these.
    pub(crate) summary: &'static [Compared],
    /// The fewest pairs of a ratio under `--check` that asks for no other number.
    pub(crate) check_pairs: usize,
    /// Rows that need others measured before them.
    pub(crate) needs: &'static [(&'static str, Ids)],
}

impl Table {
    /// Reads a table that is part of this program.
    pub(crate) fn of(text: &'static str) -> Self {
        Self::parse(text).unwrap_or_else(|error| panic!("a table of this program: {error:#}"))
    }

    fn parse(text: &'static str) -> anyhow::Result<Self> {
        let mut reader = Reader::default();
        for (at, line) in text.lines().enumerate() {
            reader.line(line).with_context(|| format!("line {}: {line}", at + 1))?;
        }
        Ok(Self {
            rows: reader.rows.leak(),
            ratios: reader.ratios.leak(),
            summary: reader.summary.leak(),
            check_pairs: reader.pairs,
            needs: reader.needs.leak(),
        })
    }

    /// A row that the table must have.
    pub(crate) fn row(&self, id: &str) -> Option<&'static RowSpec> {
        self.rows.iter().find(|row| row.id == id)
    }

    /// The rows that this one is compared with.
    pub(crate) fn against(&self, id: &str) -> Ids {
        self.row(id).map_or(&[], |row| row.base)
    }

    /// The most pairs that a ratio of this row needs under `--check`; `None` if no ratio is made of it.
    pub(crate) fn pairs_of(&self, row: &str) -> Option<usize> {
        let has = |ratio: &&RatioSpec| {
            ratio.formula.rows().contains(&row) || ratio.also.iter().any(|((also, _), _)| *also == row)
        };
        self.ratios.iter().filter(has).map(|ratio| ratio.check_pairs).max()
    }

    /// The fewest pairs under `--check` of a ratio.
    pub(crate) fn pairs(&self, ratio: &str) -> usize {
        self.ratios.iter().find(|spec| spec.id == ratio).map_or(1, |spec| spec.check_pairs)
    }
}

#[derive(Default)]
enum Section {
    #[default]
    None,
    Rows(Group, &'static str),
    Ratios,
    Summary,
}

#[derive(Default)]
struct Reader {
    section: Section,
    pairs: usize,
    lists: BTreeMap<&'static str, Ids>,
    rows: Vec<RowSpec>,
    ratios: Vec<RatioSpec>,
    summary: Vec<Compared>,
    needs: Vec<(&'static str, Ids)>,
}

impl Reader {
    fn line(&mut self, line: &'static str) -> anyhow::Result<()> {
        if line.is_empty() || line.starts_with('#') {
            return Ok(());
        }
        if let Some(text) = line.strip_prefix("    ") {
            return self.text(text);
        }
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "pairs" => self.pairs = rest.parse()?,
            "list" => {
                let (name, ids) = rest.split_once(" = ").context("a list is NAME = ID ...")?;
                self.lists.insert(name, self.ids(ids)?);
            }
            "take" => self.take(rest)?,
            "needs" => {
                let (row, ids) = rest.split_once(": ").context("needs is ID: ID ...")?;
                self.needs.push((row, self.ids(ids)?));
            }
            "rows" => {
                let (group, main) = rest.split_once(' ').context("rows have a group and a value")?;
                self.section = Section::Rows(Group::named(group).context("no such group")?, main);
            }
            "ratios" => self.section = Section::Ratios,
            "summary" => self.section = Section::Summary,
            _ => self.entry(line)?,
        }
        Ok(())
    }

    /// A line of the section.
    fn entry(&mut self, line: &'static str) -> anyhow::Result<()> {
        match self.section {
            Section::None => bail!("it belongs to nothing"),
            Section::Rows(group, main) => self.rows.push(self.row(line, group, main)?),
            Section::Ratios => self.ratios.push(self.ratio(line)?),
            Section::Summary => self.summary.push(self.compared(line)?),
        }
        Ok(())
    }

    /// The text of the last entry.
    fn text(&mut self, text: &'static str) -> anyhow::Result<()> {
        match self.section {
            Section::Ratios => self.ratios.last_mut().context("a text of no ratio")?.what = text,
            _ => bail!("a text of nothing"),
        }
        Ok(())
    }

    fn take(&mut self, ids: &'static str) -> anyhow::Result<()> {
        for id in ids.split(' ') {
            let table = &*FALLBACK;
            let ratio = table.ratios.iter().find(|ratio| ratio.id == id);
            self.rows.extend(table.row(id));
            self.ratios.extend(ratio);
            anyhow::ensure!(ratio.is_some() || table.row(id).is_some(), "lab fallback has no {id}");
        }
        Ok(())
    }

    /// Ids, with those of lists in the places of their names.
    fn ids(&self, text: &'static str) -> anyhow::Result<Ids> {
        let mut ids = Vec::new();
        for word in text.split_whitespace() {
            match word.strip_prefix('$') {
                Some(list) => ids.extend(*self.lists.get(list).with_context(|| format!("no list {list}"))?),
                None => ids.push(word),
            }
        }
        Ok(ids.leak())
    }

    fn row(&self, line: &'static str, group: Group, main: &'static str) -> anyhow::Result<RowSpec> {
        let (head, label) = line.split_once(" | ").context("a row has a label")?;
        let (head, how) = head.split_once(" by ").unwrap_or((head, ""));
        let (head, in_guest) = head.strip_suffix(" guest").map_or((head, false), |head| (head, true));
        let (head, base) = head.split_once(" against ").unwrap_or((head, ""));
        let (head, on) = head.split_once(" on ").unwrap_or((head, ""));
        let (path, mode) = on.split_once(':').map_or((on, None), |(path, mode)| (path, Some(mode)));
        let (id, main) = head.split_once('.').unwrap_or((head, main));
        let path = (!path.is_empty()).then_some(path);
        Ok(RowSpec { id, label, group, path, mode, main, base: self.ids(base)?, in_guest, how: How(how) })
    }

    fn ratio(&self, line: &'static str) -> anyhow::Result<RatioSpec> {
        let (id, rest) = line.split_once(": ").context("a ratio has a formula")?;
        let mut parts = rest.split(", ");
        let asked = parts.next().unwrap_or_default();
        let (formula, better, target, judged) = self.asked(asked)?;
        let mut ratio = RatioSpec {
            id,
            what: "",
            formula,
            target,
            better,
            judged,
            check_pairs: self.pairs,
            also: &[],
            steady: None,
        };
        let mut also = Vec::new();
        for part in parts {
            if let Some(pairs) = part.strip_suffix(" pairs") {
                ratio.check_pairs = pairs.parse()?;
            } else if let Some(limit) = part.strip_prefix("also ") {
                let (at, limit) = limit.split_once(" < ").context("also is CELL < LIMIT")?;
                also.push((cell(at)?, limit.parse()?));
            } else if let Some(steady) = part.strip_prefix("steady ") {
                let (factor, formula) = steady.split_once(" by ").context("steady is FACTOR by FORMULA")?;
                ratio.steady = Some((self.formula(formula)?, factor.parse()?));
            } else {
                ratio.judged = match part {
                    "worse end" => Judged::IntervalEnd,
                    "better end" => Judged::IntervalBest,
                    _ => bail!("what is {part}?"),
                };
            }
        }
        ratio.also = also.leak();
        Ok(ratio)
    }

    /// A formula and what is asked of it.
    fn asked(&self, text: &'static str) -> anyhow::Result<(Formula, Better, Option<f64>, Judged)> {
        for (sign, better) in [(" lower", Better::Lower), (" higher", Better::Higher)] {
            if let Some(formula) = text.strip_suffix(sign) {
                return Ok((self.formula(formula)?, better, None, Judged::Median));
            }
        }
        let signs = [
            (" <= ", Better::Lower, Judged::Median),
            (" >= ", Better::Higher, Judged::Median),
            (" < ", Better::Lower, Judged::MedianStrictly),
            (" > ", Better::Higher, Judged::MedianStrictly),
        ];
        let split = |(sign, better, judged)| Some((text.split_once(sign)?, better, judged));
        let ((formula, target), better, judged) =
            signs.into_iter().find_map(split).context("a ratio has a target, or says what is better")?;
        Ok((self.formula(formula)?, better, Some(target.parse()?), judged))
    }

    fn formula(&self, text: &'static str) -> anyhow::Result<Formula> {
        if let Some((from, less)) = text.split_once(" - ") {
            return Ok(Formula::Difference { from: cell(from)?, less: cell(less)? });
        }
        let Some((top, bottom)) = text.split_once(" / ") else { return Ok(Formula::Value(cell(text)?)) };
        Ok(match (self.best(top)?, self.best(bottom)?) {
            (Some((by, _, tops)), Some((_, _, rows))) => Formula::BestOverBest { tops, rows, by },
            (None, Some((by, value, rows))) => Formula::OverBest { top: cell(top)?, rows, by, value },
            (_, None) => {
                let bottom = bottom.split(" + ").map(cell).collect::<anyhow::Result<Vec<_>>>()?;
                Formula::Over { top: cell(top)?, bottom: bottom.leak() }
            }
        })
    }

    /// By which value a row is the best, its value, and the rows.
    fn best(&self, text: &'static str) -> anyhow::Result<Option<(&'static str, &'static str, Ids)>> {
        let Some((of, rows)) = text.strip_prefix("best(").and_then(|rest| rest.split_once(' ')) else {
            return Ok(None);
        };
        let (by, value) = of.split_once(')').context("best(VALUE) is not closed")?;
        let value = value.strip_prefix('.').unwrap_or(by);
        Ok(Some((by, value, self.ids(rows)?)))
    }

    fn compared(&self, line: &'static str) -> anyhow::Result<Compared> {
        let (head, what) = line.split_once(" | ").context("a line of a summary has a text")?;
        let (kernel, ours) = head.split_once("/ ").context("a line of a summary has two sides")?;
        let (ours, better) = ours.split_once(' ').context("a line of a summary says what is better")?;
        let better = if better == "lower" { Better::Lower } else { Better::Higher };
        let (twinpath, value) = cell(ours)?;
        Ok(Compared { what, kernel: self.ids(kernel)?, twinpath, value, better })
    }
}

fn cell(text: &'static str) -> anyhow::Result<Cell> {
    text.split_once('.').with_context(|| format!("{text} names no value"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::LABS;
    use super::*;

    #[test]
    fn every_id_is_there_once_and_whatever_names_a_row_names_one() {
        for lab in LABS {
            let ids: BTreeSet<_> = lab.table.rows.iter().map(|row| row.id).collect();
            assert_eq!(ids.len(), lab.table.rows.len(), "{}", lab.name);
            let ratios: BTreeSet<_> = lab.table.ratios.iter().map(|ratio| ratio.id).collect();
            assert_eq!(ratios.len(), lab.table.ratios.len(), "{}", lab.name);
            let named = lab.table.rows.iter().flat_map(|row| row.base.iter().copied());
            let named = named.chain(lab.table.ratios.iter().flat_map(|ratio| ratio.formula.rows()));
            let named =
                named.chain(lab.table.ratios.iter().flat_map(|ratio| ratio.also).map(|also| also.0.0));
            let named =
                named.chain(lab.table.needs.iter().flat_map(|(row, ids)| ids.iter().chain([row])).copied());
            for id in named {
                assert!(ids.contains(id), "{}: {id}", lab.name);
            }
            assert!(lab.table.ratios.iter().all(|ratio| !ratio.what.is_empty()), "{}", lab.name);
        }
    }

    #[test]
    fn a_table_that_is_wrong_says_where() {
        for (text, why) in [
            ("rows rtt p50_us\na against $none | label\n", "line 2: a against $none | label: no list none"),
            ("rows nothing p50_us\n", "no such group"),
            ("ratios\nr: a.x\n", "a ratio has a target"),
            ("ratios\nr: a.x <= 1, always\n", "what is always?"),
            ("a | label\n", "it belongs to nothing"),
        ] {
            let error = format!("{:#}", Table::parse(text).unwrap_err());
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn formulas_are_read_as_they_are_written() {
        let text = "pairs 4\nlist two = a b\nratios\nr: c.x / best(y).x $two < 1, 2 pairs, also a.z < 3\n    what\n\
                    s: best(y) $two / best(y) c higher\n    other\n";
        let table = Table::parse(text).unwrap();
        let [r, s] = table.ratios else { panic!("two ratios") };
        assert_eq!((r.what, r.check_pairs, r.also), ("what", 2, &[(("a", "z"), 3.0)][..]));
        assert!(matches!(
            r.formula,
            Formula::OverBest { top: ("c", "x"), rows: ["a", "b"], by: "y", value: "x" }
        ));
        assert!(matches!(s.formula, Formula::BestOverBest { tops: ["a", "b"], rows: ["c"], by: "y" }));
        assert_eq!((s.target, s.better, s.check_pairs), (None, Better::Higher, 4));
    }
}
