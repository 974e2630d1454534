//! Changes settings to the advised values: first all former values are written to the journal, then the settings are
//! changed one after another.

use serde::Serialize;

use super::journal::{Entry, Journal, JournalError, Stage};
use super::setting::{Id, Setting};
use super::survey::{Line, State, value_of};
use super::system::{System, Trouble};

/// The asker for settings that belong to no interface.
pub const MACHINE: &str = "machine";

/// The result for one setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// The setting.
    pub id: Id,
    /// The subject; empty for the machine.
    pub subject: String,
    /// The value before.
    pub was: String,
    /// The value now; none if it is not known.
    pub is: Option<String>,
    /// The kind of result.
    pub what: Done,
    /// An explanation; empty if none is needed.
    pub note: String,
}

/// The kinds of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Done {
    /// Set to the advised value.
    Applied,
    /// The device chose another value than the one written.
    Rounded,
    /// The kernel refused it.
    Failed,
    /// Restored to its former value.
    Restored,
    /// It already had its former value.
    Already,
    /// Another process has changed it since, so it was not touched.
    Foreign,
    /// The setting no longer exists.
    Gone,
    /// It belongs to another network namespace, so its entry stays in the journal.
    Elsewhere,
}

/// Sets the lines in state [`State::Change`] to the advised values, for `asker`. Settings that are in the journal
/// already keep their first former value. The changes of an apply that died must be undone by
/// [`super::restore::recover`] before the lines are read.
///
/// # Errors
/// [`JournalError`]: nothing was changed that is not in the journal.
pub fn apply(
    system: &mut dyn System,
    journal: &mut Journal,
    lines: &[Line],
    asker: &str,
) -> Result<Vec<Outcome>, JournalError> {
    if journal.is_of_another_boot(system) {
        journal.start_anew(system);
    }
    let mut changes = Vec::new();
    for line in lines {
        let Some(setting) = &line.setting else { continue };
        let known = journal.record.entries.iter().position(|entry| same(&entry.setting, setting));
        let (State::Change, Some(now), Some(advised)) = (line.state, &line.now, &line.advised) else {
            if let (State::AsAdvised, Some(known)) = (line.state, known) {
                add_asker(&mut journal.record.entries[known], asker);
            }
            continue;
        };
        let place = known.unwrap_or_else(|| {
            journal.record.entries.push(Entry {
                setting: setting.clone(),
                former: now.clone(),
                applied: now.clone(),
                earlier: None,
                stage: Stage::Intended,
                askers: Vec::new(),
            });
            journal.record.entries.len() - 1
        });
        let entry = &mut journal.record.entries[place];
        add_asker(entry, asker);
        if *now != entry.applied && Some(now) != entry.earlier.as_ref() {
            // Another process has set it since; that value is restored later, not the older one.
            entry.former.clone_from(now);
        }
        entry.earlier = Some(std::mem::replace(&mut entry.applied, advised.clone()));
        entry.stage = Stage::Intended;
        changes.push((place, now.clone()));
    }
    journal.store()?;
    let mut outcomes = Vec::with_capacity(changes.len());
    for (place, now) in changes {
        outcomes.push(change(system, &mut journal.record.entries[place], now));
    }
    for entry in &mut journal.record.entries {
        entry.stage = Stage::Done;
        entry.earlier = None;
    }
    // A setting that was refused and is unchanged need not be restored.
    journal.record.entries.retain(|entry| entry.applied != entry.former);
    journal.bring_up_to_date()?;
    Ok(outcomes)
}

/// Writes one setting, and records the result in its entry.
fn change(system: &mut dyn System, entry: &mut Entry, was: String) -> Outcome {
    let wanted = entry.applied.clone();
    let written = write(system, &entry.setting, &wanted);
    let is = value_of(system, &entry.setting).ok();
    // The value is read back, because a device may choose one near it, and a refused write may have changed it.
    if let Some(is) = &is {
        entry.applied.clone_from(is);
    } else if written.is_err() {
        entry.applied.clone_from(&was);
    }
    let (what, note) = match (written, &is) {
        (Ok(()), Some(is)) if *is == wanted => (Done::Applied, String::new()),
        (Ok(()), Some(_)) => (Done::Rounded, format!("asked for {wanted}")),
        (Ok(()), None) => (Done::Applied, "it cannot be read back".to_owned()),
        (Err(trouble), _) => (Done::Failed, trouble.to_string()),
    };
    Outcome { id: entry.id(), subject: entry.setting.subject(), was, is, what, note }
}

pub(crate) fn write(system: &mut dyn System, setting: &Setting, value: &str) -> Result<(), Trouble> {
    let at = setting.at(system).ok_or(Trouble::Absent)?;
    system.write(&at, &setting.place.form().raw(value))
}

fn add_asker(entry: &mut Entry, asker: &str) {
    if !entry.askers.iter().any(|known| known == asker) {
        entry.askers.push(asker.to_owned());
    }
}

/// Whether both are the same setting, even if its interface was renamed.
fn same(one: &Setting, other: &Setting) -> bool {
    let owner =
        |setting: &Setting| setting.owner.as_ref().map(|owner| (owner.ifindex, owner.namespace.clone()));
    one.place == other.place && owner(one) == owner(other)
}
