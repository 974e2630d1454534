//! The committed answers of Open vSwitch, and where this switch answers differently, with the reason.

use std::collections::BTreeMap;

use super::asked::Answers;
use super::differences::KNOWN;

/// What Open vSwitch 3.1.0 answers: by field, each value with its answer.
const ANSWERS: &str = include_str!("answers.tsv");

/// The committed answers, by field and value.
#[must_use]
pub fn committed() -> BTreeMap<(String, String), Answers> {
    let mut all = BTreeMap::new();
    for line in ANSWERS.lines() {
        let Some((field, answers)) = line.split_once('\t') else { continue };
        for (value, answer) in answers.split(' ').filter_map(|one| one.split_once('=')) {
            all.insert((field.to_owned(), value.to_owned()), Answers(answer.to_owned()));
        }
    }
    all
}

/// A difference that is meant.
#[derive(Clone, Copy, Debug)]
pub struct Difference {
    /// Fields, with spaces between them; a `*` stands for anything.
    pub fields: &'static str,
    /// Values, with spaces between them; empty for all.
    pub values: &'static str,
    /// What Open vSwitch answers, with spaces between them.
    pub theirs: &'static str,
    /// What this switch answers.
    pub ours: &'static str,
    /// Why.
    pub why: &'static str,
}

/// Whether a name is one of these.
fn is_one_of(names: &str, name: &str) -> bool {
    names.split(' ').any(|pattern| {
        let mut parts = pattern.split('*');
        let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
        let mut ends = rest.is_empty();
        for part in parts {
            ends = part.is_empty() || rest.ends_with(part);
            match rest.find(part) {
                Some(at) => rest = &rest[at + part.len()..],
                None => return false,
            }
        }
        ends
    })
}

/// All differences that are meant.
#[must_use]
pub const fn differences() -> &'static [Difference] {
    KNOWN
}

/// The difference that says why a case is answered differently.
#[must_use]
pub fn known(field: &str, value: &str, theirs: &Answers, ours: &Answers) -> Option<&'static Difference> {
    KNOWN.iter().find(|it| {
        is_one_of(it.fields, field)
            && (it.values.is_empty() || it.values.split(' ').any(|one| one == value))
            && is_one_of(it.theirs, &theirs.0)
            && is_one_of(it.ours, &ours.0)
    })
}
