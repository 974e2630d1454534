//! Compares the present values with the advised ones.

use serde::Serialize;

use super::advise::{Advice, Wanted};
use super::setting::{Id, Setting};
use super::system::{System, Trouble};

/// The result of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// As advised.
    AsAdvised,
    /// `--apply` would change it.
    Change,
    /// It should differ, but only the operator can change it.
    ForYou,
    /// It is only shown; any value is fine.
    Either,
    /// The advised value depends on the workers' CPUs.
    NeedsCpu,
    /// Not on this device or kernel.
    Absent,
    /// It cannot be read.
    Unreadable,
}

/// One line of the output of `tune`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    /// The line's name.
    pub id: Id,
    /// The subject; empty for the machine.
    pub subject: String,
    /// The present value; none if it is not known.
    pub now: Option<String>,
    /// The advised value; none without advice.
    pub advised: Option<String>,
    /// The result.
    pub state: State,
    /// Whether `--apply` can set it.
    pub settable: bool,
    /// The reason for the advice.
    pub why: String,
    /// The possible cost; empty for none.
    pub cost: String,
    /// The reason that it cannot be read or set; empty if it can.
    pub trouble: String,
    /// The setting, where there is one.
    #[serde(skip)]
    pub setting: Option<Setting>,
}

/// Reads the present values. Changes nothing.
#[must_use]
pub fn survey(system: &dyn System, advice: Vec<Advice>) -> Vec<Line> {
    advice.into_iter().map(|advice| line(system, advice)).collect()
}

/// The present value of a setting, in our format.
pub(crate) fn value_of(system: &dyn System, setting: &Setting) -> Result<String, Trouble> {
    let at = setting.at(system).ok_or(Trouble::Absent)?;
    system.read(&at).map(|raw| setting.place.form().canonical(&raw))
}

fn line(system: &dyn System, advice: Advice) -> Line {
    let Advice { id, subject, wanted, why, cost } = advice;
    let empty = Line {
        id,
        subject,
        now: None,
        advised: None,
        state: State::Absent,
        settable: false,
        why,
        cost,
        trouble: String::new(),
        setting: None,
    };
    let mut least = None;
    let (setting, any_of, otherwise) = match wanted {
        Wanted::Absent => return empty,
        Wanted::Advised { now, should_be } => {
            let state = if should_be.is_some() { State::ForYou } else { State::Either };
            return Line { now: Some(now), advised: should_be, state, ..empty };
        }
        Wanted::Value { setting, any_of } => (setting, any_of, State::Change),
        Wanted::AtLeast { setting, least: wanted } => {
            least = Some(wanted);
            (setting, vec![wanted.to_string()], State::Change)
        }
        Wanted::Shown { setting } => (setting, Vec::new(), State::Either),
        Wanted::WorkersUnknown { setting } => (setting, Vec::new(), State::NeedsCpu),
    };
    let now = match value_of(system, &setting) {
        Ok(now) => now,
        Err(Trouble::Absent) => return empty,
        Err(trouble) => {
            let (advised, trouble) = (any_of.into_iter().next(), trouble.to_string());
            return Line { advised, state: State::Unreadable, trouble, ..empty };
        }
    };
    // A device that lacks a part of it need not have the advised value for that part.
    let any_of: Vec<String> = any_of.into_iter().map(|value| parts_in_common(&value, &now)).collect();
    // A larger number is as good.
    let is_enough = least.is_some_and(|least| now.parse::<u64>().is_ok_and(|now| now >= least));
    let any_of = if is_enough { vec![now.clone()] } else { any_of };
    let (state, advised) = match any_of.iter().find(|value| **value == now) {
        Some(value) => (State::AsAdvised, Some(value.clone())),
        None => (otherwise, any_of.first().cloned()),
    };
    let may_be_set = || setting.at(system).is_some_and(|at| system.settable(&at));
    let (state, trouble) = match state {
        State::Change if !may_be_set() => (State::ForYou, "the kernel lets nobody set it".to_owned()),
        // A change could not be undone.
        State::Change if !setting.is_sound() || !setting.place.form().is_value(&now) => {
            (State::Unreadable, "the kernel's own value is not of the form known here".to_owned())
        }
        state => (state, String::new()),
    };
    let settable = state == State::Change;
    Line { now: Some(now), advised, state, settable, trouble, setting: Some(setting), ..empty }
}

/// Of `name value, name value`, the parts whose names the other text has too. Other texts are not changed.
fn parts_in_common(wanted: &str, now: &str) -> String {
    let name = |part: &str| part.split_once(' ').map(|(name, _)| name.to_owned());
    let has: Vec<String> = now.split(", ").filter_map(name).collect();
    let common = wanted.split(", ").filter(|part| name(part).is_none_or(|name| has.contains(&name)));
    common.collect::<Vec<_>>().join(", ")
}
