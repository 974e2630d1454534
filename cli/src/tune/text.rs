//! Formats the report of `tune` as text of at most 120 columns.

use std::fmt::Write as _;

use twinpath_tune::apply::{Done, Outcome};
use twinpath_tune::{Line, State};

use super::Report;
use crate::wrap::{WIDTH, wrapped};

/// The state of all settings, with those that need attention first.
pub(super) fn lines(report: &Report) -> String {
    let mut text = head(report);
    let of = |state: State| report.lines.iter().filter(move |line| line.state == state).collect::<Vec<_>>();
    for (state, title) in [
        (State::Change, "would be changed by --apply"),
        (State::ForYou, "for you to change: it can't be set from here"),
        (State::NeedsCpu, "depends on the workers' CPUs: name them with --cpu, as given to serve"),
        (State::Unreadable, "can't be read"),
        (State::AsAdvised, "as advised"),
        (State::Either, "shown only: nothing to change"),
    ] {
        let lines = of(state);
        if !lines.is_empty() {
            let _ = write!(text, "\n\n{title}:");
            groups(&lines).iter().for_each(|group| block(&mut text, group));
        }
    }
    let mut absent: Vec<&str> = of(State::Absent).iter().map(|line| line.id.name()).collect();
    absent.dedup();
    if !absent.is_empty() {
        text.push_str("\n\n");
        text.push_str(&wrapped(
            &format!("not on this device or kernel, or not to be seen from here: {}", absent.join(", ")),
            0,
        ));
    }
    if let Some(costs) = &report.wake_ups {
        text.push('\n');
        for line in crate::show::machine::render(costs).lines() {
            // Its tables are narrow enough; its sentences begin with two spaces.
            let wide = line.chars().count() > WIDTH;
            let _ = write!(text, "\n{}", if wide { wrapped(line, 2) } else { line.to_owned() });
        }
    }
    text.push_str(&journal(report));
    text
}

fn head(report: &Report) -> String {
    let what = report.interface.as_deref().unwrap_or("this machine");
    let cpus: Vec<String> = report.cpus.iter().map(usize::to_string).collect();
    let on = if cpus.is_empty() { String::new() } else { format!(", workers on CPU {}", cpus.join(", ")) };
    let count = |state: State| report.lines.iter().filter(|line| line.state == state).count();
    let open = match (count(State::Change), count(State::ForYou)) {
        (0, 0) => "nothing to change".to_owned(),
        (settable, 0) => format!("{settable} not as advised"),
        (settable, yours) => {
            format!("{} not as advised, {yours} of them for you to change", settable + yours)
        }
    };
    let from = report.instance.as_ref().map(|name| format!(" (as {name}, runs)")).unwrap_or_default();
    let mut head = format!("{what}, for mode {}{on}{from}: {open}", report.mode);
    if !report.stands_on.is_empty() {
        let _ = write!(head, "\n{what} stands on {}: tune that as well", report.stands_on.join(", "));
    }
    head
}

/// Groups lines that differ only in their names.
fn groups<'a>(lines: &[&'a Line]) -> Vec<Vec<&'a Line>> {
    let mut groups: Vec<Vec<&Line>> = Vec::new();
    for line in lines {
        let same = |group: &&mut Vec<&Line>| {
            let first = group[0];
            (&first.now, &first.advised, &first.why) == (&line.now, &line.advised, &line.why)
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.push(line),
            None => groups.push(vec![line]),
        }
    }
    groups
}

fn block(text: &mut String, group: &[&Line]) {
    let line = group[0];
    let subjects = few(group.iter().map(|line| line.subject.as_str()));
    let mut name = few(group.iter().map(|line| line.id.name()));
    if !subjects.is_empty() {
        let _ = write!(name, " ({subjects})");
    }
    let now = line.now.as_deref().unwrap_or("?");
    let stands = match (line.state, &line.advised) {
        (State::ForYou, Some(advised)) if !line.trouble.is_empty() => {
            format!("{now} -> {advised} ({})", line.trouble)
        }
        (State::Change | State::ForYou, Some(advised)) => format!("{now} -> {advised}"),
        (State::Unreadable, _) => line.trouble.clone(),
        _ => now.to_owned(),
    };
    let _ = write!(text, "\n{}", wrapped(&format!("{name}: {stands}"), 2));
    let _ = write!(text, "\n{}", wrapped(&line.why, 6));
    // A setting that is as advised has no further cost.
    let pays = matches!(line.state, State::Change | State::ForYou | State::NeedsCpu);
    if pays && !line.cost.is_empty() {
        let _ = write!(text, "\n{}", wrapped(&format!("may cost: {}", line.cost), 6));
    }
}

/// Up to four names; more are counted.
fn few<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut names: Vec<&str> = names.filter(|name| !name.is_empty()).collect();
    names.dedup();
    match names.as_slice() {
        [first, .., last] if names.len() > 4 => format!("{first} ... {last}, {} in all", names.len()),
        names => names.join(", "),
    }
}

/// The changes, and what remains for the operator.
pub(super) fn applied(report: &Report) -> String {
    let mut text = done(report).unwrap_or_else(|| "nothing was to be changed".to_owned());
    for (state, title) in [
        (State::ForYou, "for you to change: it can't be set from here"),
        (State::NeedsCpu, "left as they are, without --cpu"),
    ] {
        let lines = report.lines.iter().filter(|line| line.state == state).collect::<Vec<_>>();
        if !lines.is_empty() {
            let _ = write!(text, "\n\n{title}:");
            groups(&lines).iter().for_each(|group| block(&mut text, group));
        }
    }
    text.push_str(&journal(report));
    text
}

/// The restored settings.
pub(super) fn restored(report: &Report) -> String {
    let nothing =
        || format!("nothing is to be put back: {} has nothing for it", report.journal.file.display());
    done(report).unwrap_or_else(nothing) + &journal(report)
}

/// The result for each setting; `None` if there is none.
fn done(report: &Report) -> Option<String> {
    let lines: Vec<String> = report.outcomes.iter().map(|outcome| wrapped(&said(outcome), 2)).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

pub(super) fn said(outcome: &Outcome) -> String {
    let Outcome { id, subject, was, is, what, note } = outcome;
    let name = if subject.is_empty() { id.to_string() } else { format!("{id}, {subject}") };
    let is = is.as_deref().unwrap_or("?");
    let word = match what {
        Done::Applied => format!("{was} -> {is}"),
        Done::Rounded => format!("{was} -> {is}, which is not what it was given"),
        Done::Failed => format!("still {is}"),
        Done::Restored => format!("put back, {was} -> {is}"),
        Done::Already => format!("was already back: {is}"),
        Done::Foreign => format!("left alone at {is}"),
        Done::Gone => "nothing to put back".to_owned(),
        Done::Elsewhere => "not put back".to_owned(),
    };
    if note.is_empty() { format!("{name}: {word}") } else { format!("{name}: {word} ({note})") }
}

fn journal(report: &Report) -> String {
    let journal = &report.journal;
    let sentence = match (journal.trouble.as_str(), journal.unfinished, journal.entries) {
        ("", 0, 0) => return String::new(),
        ("", 0, entries) => {
            format!("{entries} former values are in {}: --restore puts them back", journal.file.display())
        }
        ("", unfinished, _) => format!(
            "an apply died before it was through: {unfinished} settings may be as before or as advised; --restore puts \
             all back, --apply starts anew"
        ),
        (trouble, ..) => trouble.to_owned(),
    };
    format!("\n\n{}", wrapped(&sentence, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_names_are_counted() {
        assert_eq!(few(["", "rx-0", "rx-0", "rx-1"].into_iter()), "rx-0, rx-1");
        assert_eq!(few(["a", "b", "c", "d", "e"].into_iter()), "a ... e, 5 in all");
    }
}
