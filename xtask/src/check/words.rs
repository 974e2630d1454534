//! Rules about words: retired terms stay retired, and documents have lines of a readable length.
//!
//! A term is retired when it was coined here, or stood for several things, while the field has a word for it.
//! docs/terms.md lists the terms in use.

use std::collections::BTreeMap;

use super::{Finding, Tree, tier_of};

/// Most columns of a line of Markdown.
const MARKDOWN_COLUMNS: usize = 120;

/// A retired term and what to write instead.
struct Retired {
    /// In lower case, singular; a `*` at its end stands for any letters.
    word: &'static str,
    instead: &'static str,
}

const RETIRED: &[Retired] = &[
    Retired { word: "clairvoyant*", instead: "the oracle" },
    Retired { word: "crowd*", instead: "other active connections, or co-located load" },
    Retired { word: "desk", instead: "the handler pool" },
    Retired { word: "favourite*", instead: "the connection that is read directly" },
    Retired { word: "gather*", instead: "batch, collect or coalesce" },
    Retired { word: "glue*", instead: "coalesce (GSO, GRO)" },
    Retired { word: "neighbour*", instead: NEIGHBOUR },
    Retired { word: "newcomer*", instead: "the new peer, session or connection" },
    Retired { word: "standing", instead: "a state; an instance is standby" },
    Retired { word: "stranger*", instead: "an unknown peer, process or protocol" },
    Retired { word: "ways", instead: "directions, modes or setups" },
    Retired { word: "whoever", instead: "the process, thread or peer, by its name" },
];

const NEIGHBOUR: &str = "a competing process or co-located load (on the same CPU), or a foreign program (at a hook); \
     a neighbour is an entry of the kernel's ARP or ND table";

/// Where ARP and ND do not come in, so that a neighbour would be something else.
const NO_NEIGHBOUR_AT: &[&str] = &[
    "lab/lab/",
    "cli/tests/interop/machine.rs",
    "bench/load/",
    "service/rpc/",
    "service/service/",
    "io/",
    "mem/",
    "pure/",
    "service/handlers/",
    "service/kernel_tcp/",
    "service/serve/",
    "core/thread/",
    "core/worker/",
    "xtask/",
];

/// The files in there that mean the kernel's table.
const NEIGHBOUR_AT: &[&str] = &[
    "lab/lab/src/lab/peers.rs",
    "lab/lab/src/lab/rpc/peers.rs",
    "lab/lab/tables/reflex.txt",
    "lab/lab/tables/wakeup.txt",
    "bench/socket_load/src/error.rs",
    "stack/bpf/tests/device/lab.rs",
    "core/inspect/src/control_reason.rs",
];

/// Names of types that each stand for several things, and how many definitions there still are, as of 2026-11-22: one may
/// keep the name (none of `Asked`). The numbers only shrink.
const TYPES: &[(&str, usize)] = &[
    ("Asked", 0),
    ("Found", 2),
    ("Limits", 1),
    ("Placed", 1),
    ("Plan", 1),
    ("Served", 1),
    ("Share", 0),
    ("Slot", 3),
];

/// How often a retired term is still used: `(folder, term, uses)`, as of 2026-11-22. The numbers only shrink.
const STILL: &[(&str, &str, usize)] = &[];

/// Files that name retired terms in order to retire them, and what is not ours to word.
const EXCEPT: &[&str] =
    &["xtask/src/check/words.rs", "xtask/src/check/tests.rs", "docs/terms.md", "Cargo.lock"];

/// Retired terms are not used, in names, comments and documents.
pub(super) fn retired_words_stay_retired(tree: &Tree) -> Vec<Finding> {
    let mut found: BTreeMap<(&str, &str), Vec<Finding>> = BTreeMap::new();
    for (path, text) in tree.texts.iter().filter(|(path, _)| !EXCEPT.contains(&path.as_str())) {
        for (index, line) in text.lines().enumerate() {
            for retired in retired_in(line).filter(|retired| !is_of_arp(retired, path)) {
                let message = format!("`{}` is retired: write {}", retired.word, retired.instead);
                let finding = Finding::error(path, index + 1, message);
                found.entry((folder_of(path), retired.word)).or_default().push(finding);
            }
        }
    }
    allowed(found, STILL)
}

/// Takes the uses that are `still` allowed off the findings, and says where the numbers have shrunk.
pub(super) fn allowed<'a>(
    mut found: BTreeMap<(&'a str, &'a str), Vec<Finding>>,
    still: &[(&'a str, &'a str, usize)],
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (folder, word, uses) in still {
        let here = found.get(&(*folder, *word)).map_or(0, Vec::len);
        if here <= *uses {
            found.remove(&(*folder, *word));
        }
        if here < *uses {
            let message =
                format!("`{word}` is used {here} times in {folder}/ now: lower its number {uses} in STILL");
            findings.push(Finding::warning("xtask/src/check/words.rs", 0, message));
        }
    }
    findings.extend(found.into_values().flatten());
    findings
}

/// The retired terms of a line, once for each use.
fn retired_in(line: &str) -> impl Iterator<Item = &'static Retired> {
    let words = words_of(&without_ids(line));
    let mut found = Vec::new();
    for (at, word) in words.iter().enumerate() {
        // Two names that are not ours to change: the offload tx-scatter-gather, and the metric twinpath_standing_by.
        let named =
            (at > 0 && words[at - 1] == "scatter") || words.get(at + 1).is_some_and(|next| next == "by");
        found.extend(RETIRED.iter().filter(|retired| !named && is(word, retired.word)));
    }
    found.into_iter()
}

/// The line without quoted identifiers, such as `"kernel-sleeping-neighbour"`: users know them, so they stay.
fn without_ids(line: &str) -> String {
    let is_id = |text: &str| {
        text.contains(['-', '_'])
            && text.chars().all(|at| at.is_ascii_lowercase() || "-_,0123456789".contains(at))
    };
    let parts: Vec<_> =
        line.split('"').enumerate().filter(|(at, part)| at % 2 == 0 || !is_id(part)).collect();
    parts.into_iter().map(|(_, part)| part).collect::<Vec<_>>().join(" ")
}

fn is(word: &str, retired: &str) -> bool {
    match retired.strip_suffix('*') {
        Some(stem) => word.starts_with(stem),
        None => word == retired,
    }
}

fn is_of_arp(retired: &Retired, path: &str) -> bool {
    let elsewhere = NO_NEIGHBOUR_AT.iter().any(|place| path.starts_with(place));
    retired.instead == NEIGHBOUR && (!elsewhere || NEIGHBOUR_AT.contains(&path))
}

/// The words of a line in lower case: names are cut at underscores and at capitals.
fn words_of(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut before_lower = false;
    for letter in line.chars() {
        let starts = letter.is_ascii_uppercase() && before_lower;
        if (starts || !letter.is_ascii_alphabetic()) && !word.is_empty() {
            words.push(std::mem::take(&mut word));
        }
        if letter.is_ascii_alphabetic() {
            word.push(letter.to_ascii_lowercase());
        }
        before_lower = letter.is_ascii_lowercase();
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

/// A tier, or the crate where one crate of a tier is counted by itself.
fn folder_of(path: &str) -> &str {
    ["core/idle", "service/service", "service/connection"]
        .into_iter()
        .find(|folder| path.starts_with(folder))
        .unwrap_or(tier_of(path))
}

/// A name that has meant several types means one, or none.
pub(super) fn ambiguous_types_are_defined_once(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, definitions) in TYPES {
        let mut places = Vec::new();
        for source in &tree.sources {
            let Some(text) = tree.texts.get(&source.path) else { continue };
            for (index, line) in text.lines().enumerate() {
                if defines(line, name) {
                    places.push((source.path.as_str(), index + 1));
                }
            }
        }
        let all: Vec<_> = places.iter().map(|(path, line)| format!("{path}:{line}")).collect();
        for (path, line) in places.iter().skip(*definitions) {
            let message =
                format!("`{name}` names several types ({}): give this one a name of its own", all.join(", "));
            findings.push(Finding::error(path, *line, message));
        }
        if places.len() < *definitions {
            let message =
                format!("`{name}` is defined {} times now: lower its number in TYPES", places.len());
            findings.push(Finding::warning("xtask/src/check/words.rs", 0, message));
        }
    }
    findings
}

fn defines(line: &str, name: &str) -> bool {
    let line = line.trim_start();
    let rest = ["struct ", "enum ", "type ", "trait "].iter().find_map(|kind| {
        let at = line.find(kind)?;
        let before = &line[..at];
        (before.is_empty() || before.starts_with("pub")).then(|| &line[at + kind.len()..])
    });
    let Some(rest) = rest.and_then(|rest| rest.strip_prefix(name)) else { return false };
    !rest.starts_with(|letter: char| letter.is_alphanumeric() || letter == '_')
}

/// Markdown can be read in a terminal. The row of a table cannot be cut, so tables are excepted; so is a line that
/// is one word, such as a long link.
pub(super) fn markdown_lines_are_short(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts.iter().filter(|(path, _)| path.ends_with(".md")) {
        for (index, line) in text.lines().enumerate() {
            let columns = line.chars().count();
            let row = line.trim_start().starts_with('|');
            if columns > MARKDOWN_COLUMNS && !row && line.split_whitespace().count() > 1 {
                let message = format!("{columns} columns of {MARKDOWN_COLUMNS}: break the line");
                findings.push(Finding::error(path, index + 1, message));
            }
        }
    }
    findings
}

/// A source file that a document names in backticks exists: by its path, or by the end of it.
pub(super) fn named_files_exist(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let documents =
        tree.texts.iter().filter(|(path, _)| path.ends_with(".md") && !path.starts_with("docs/decisions/"));
    for (path, text) in documents {
        for (index, line) in text.lines().enumerate() {
            for name in line.split('`').skip(1).step_by(2).filter(|name| is_source(name)) {
                let end = format!("/{name}");
                if !tree.paths.iter().any(|tracked| tracked == name || tracked.ends_with(&end)) {
                    let message = format!("`{name}`: there is no such file");
                    findings.push(Finding::error(path, index + 1, message));
                }
            }
        }
    }
    findings
}

fn is_source(name: &str) -> bool {
    let ends = [".rs", ".c", ".h"].iter().any(|end| name.ends_with(end));
    ends && name.chars().all(|letter| letter.is_ascii_alphanumeric() || "_-./".contains(letter))
}
