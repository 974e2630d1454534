//! Changing settings to what is advised: first all former values into the journal, then one after the other.

use serde::Serialize;

use super::journal::{Entry, Journal, JournalError, Stage};
use super::setting::{Id, Setting};
use super::survey::{Line, State, value_of};
use super::system::{System, Trouble};

/// Who asks for what belongs to no interface.
pub const MACHINE: &str = "machine";

/// What became of a setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// The setting.
    pub id: Id,
    /// Of what; empty for the machine.
    pub subject: String,
    /// What it was.
    pub was: String,
    /// What it is now; none where nobody knows.
    pub is: Option<String>,
    /// What happened.
    pub what: Done,
    /// The same in words; empty where there is nothing to add.
    pub note: String,
}

/// What happened to a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Done {
    /// Set to what is advised.
    Applied,
    /// The device took another value than it was given.
    Rounded,
    /// The kernel would not.
    Failed,
    /// Put back to what it was.
    Restored,
    /// It was already what it had been.
    Already,
    /// Somebody else has changed it since; left alone.
    Foreign,
    /// It is gone, and its value with it.
    Gone,
    /// It belongs to another network namespace; the journal keeps it.
    Elsewhere,
}

/// Makes the lines in state [`State::Change`] what is advised, for `asker`. What was journalled before keeps its first
/// value. What an apply that died has left is for [`super::restore::recover`], before the lines are read.
///
/// # Errors
/// [`JournalError`]: then nothing was changed that is not in the journal.
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
            // Somebody else has set it since: that is what comes back, not what had been before.
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
    // What was refused and is as it was needs no putting back.
    journal.record.entries.retain(|entry| entry.applied != entry.former);
    journal.bring_up_to_date()?;
    Ok(outcomes)
}

/// Writes one setting, and notes in its entry what came of it.
fn change(system: &mut dyn System, entry: &mut Entry, was: String) -> Outcome {
    let wanted = entry.applied.clone();
    let written = write(system, &entry.setting, &wanted);
    let is = value_of(system, &entry.setting).ok();
    // Read back, as a device may take a value near the one it was given; a refusal may have set it all the same.
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

/// The same setting, whatever its interface is called now.
fn same(one: &Setting, other: &Setting) -> bool {
    let owner =
        |setting: &Setting| setting.owner.as_ref().map(|owner| (owner.ifindex, owner.namespace.clone()));
    one.place == other.place && owner(one) == owner(other)
}
