//! Restores settings to the values in the journal.

use super::apply::{Done, Outcome, write};
use super::journal::{Entry, Journal, JournalError, Stage};
use super::napi;
use super::setting::{Id, present_name};
use super::survey::value_of;
use super::system::{System, Trouble};

/// The entries to restore.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Which<'a> {
    /// Only changes for this asker alone; none: for all.
    pub asker: Option<&'a str>,
    /// Only these settings; empty: all.
    pub ids: &'a [Id],
}

/// Restores settings, the last change first. A value that another process has changed since is not touched.
///
/// # Errors
/// [`JournalError`]: the values were restored, but the journal still contains them; another restore does no
/// harm.
pub fn restore(
    system: &mut dyn System,
    journal: &mut Journal,
    which: &Which<'_>,
) -> Result<Vec<Outcome>, JournalError> {
    put_back_where(system, journal, |entry| {
        (which.ids.is_empty() || which.ids.contains(&entry.id())) && released(entry, which.asker)
    })
}

/// Undoes the changes of an apply that died, if there was one.
///
/// # Errors
/// As for [`restore`].
pub fn recover(system: &mut dyn System, journal: &mut Journal) -> Result<Vec<Outcome>, JournalError> {
    put_back_where(system, journal, |entry| entry.stage == Stage::Intended)
}

fn put_back_where(
    system: &mut dyn System,
    journal: &mut Journal,
    mut wanted: impl FnMut(&mut Entry) -> bool,
) -> Result<Vec<Outcome>, JournalError> {
    let of_another_boot = journal.is_of_another_boot(system);
    let (mut outcomes, mut kept) = (Vec::new(), Vec::new());
    for mut entry in std::mem::take(&mut journal.record.entries).into_iter().rev() {
        if !wanted(&mut entry) {
            kept.push(entry);
            continue;
        }
        let outcome = if of_another_boot { forgotten(system, &entry) } else { put_back(system, &entry) };
        if matches!(outcome.what, Done::Failed | Done::Elsewhere) {
            kept.push(entry);
        }
        outcomes.push(outcome);
    }
    kept.reverse();
    journal.record.entries = kept;
    journal.bring_up_to_date()?;
    Ok(outcomes)
}

/// Removes `asker` from an entry; returns whether no one needs it any more.
fn released(entry: &mut Entry, asker: Option<&str>) -> bool {
    let Some(asker) = asker else { return true };
    if !entry.askers.iter().any(|known| known == asker) {
        return false;
    }
    if entry.askers.len() > 1 {
        entry.askers.retain(|known| known != asker);
        return false;
    }
    true
}

fn outcome(entry: &Entry, is: Option<String>, what: Done, note: impl Into<String>) -> Outcome {
    let was = entry.applied.clone();
    Outcome { id: entry.id(), subject: entry.setting.subject(), was, is, what, note: note.into() }
}

fn forgotten(system: &dyn System, entry: &Entry) -> Outcome {
    let is = value_of(system, &entry.setting).ok();
    let note = "the machine has restarted since, which put it back; what it is now is not our doing";
    outcome(entry, is, Done::Gone, note)
}

fn put_back(system: &mut dyn System, entry: &Entry) -> Outcome {
    let Entry { setting, former, .. } = entry;
    let mut note = String::new();
    if let Some(owner) = &setting.owner {
        let here = system.link("proc/thread-self/ns/net").unwrap_or_default();
        if owner.namespace != here {
            let note = format!(
                "{} is in another network namespace ({}): restore it there",
                owner.name, owner.namespace
            );
            return outcome(entry, None, Done::Elsewhere, note);
        }
        match present_name(owner, system) {
            None => {
                let note = format!("{} is gone; it was {former} there", owner.name);
                return outcome(entry, None, Done::Gone, note);
            }
            Some(name) if name != owner.name => note = format!("{} is called {name} now", owner.name),
            Some(_) => {}
        }
    }
    let now = match value_of(system, setting) {
        Ok(now) => now,
        Err(Trouble::Absent) => {
            return outcome(entry, None, Done::Gone, format!("it is not there any more; it was {former}"));
        }
        Err(trouble) => return outcome(entry, None, Done::Failed, trouble.to_string()),
    };
    if now == *former {
        return outcome(entry, Some(now), Done::Already, note);
    }
    let half_done = setting.is_of_napi()
        && (napi::is_between(&now, &entry.applied, former)
            || entry.earlier.as_ref().is_some_and(|earlier| napi::is_between(&now, &entry.applied, earlier)));
    let may_be_ours = half_done || entry.stage == Stage::Intended && setting.rounds();
    if now != entry.applied && Some(&now) != entry.earlier.as_ref() && !may_be_ours {
        let note =
            format!("somebody has changed it since, so it stays; before `tune --apply` it was {former}");
        return outcome(entry, Some(now), Done::Foreign, note);
    }
    let written = write(system, setting, former);
    let is = value_of(system, setting).ok();
    match written {
        Err(trouble) => outcome(entry, is, Done::Failed, trouble.to_string()),
        Ok(()) if is.as_ref() == Some(former) => outcome(entry, is, Done::Restored, note),
        Ok(()) => outcome(entry, is, Done::Rounded, format!("it was {former} before")),
    }
}
