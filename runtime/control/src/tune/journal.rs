//! What settings were before they were changed, on disk before they are.
//!
//! One file per machine, `/run/twinpath/tune.json`: it lives as long as the settings do, which is until the machine
//! restarts. Should the directory outlive a restart, the boot id tells. Who holds the journal holds a lock, so two of
//! them never work at once, and what is unfinished in it was left by somebody who died.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, Mode, OFlags, flock, open};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::setting::{Id, Setting};
use super::system::System;

/// Of this layout.
const VERSION: u32 = 1;

/// Where it is unless told otherwise.
pub const DEFAULT: &str = "/run/twinpath/tune.json";

/// A setting that was changed, or was about to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its name.
    pub id: Id,
    /// Of what, as it was shown.
    pub subject: String,
    /// The setting.
    pub setting: Setting,
    /// What it was before anybody here touched it.
    pub former: String,
    /// What it was set to.
    pub applied: String,
    /// What an earlier apply had set it to, while a later one is under way.
    pub earlier: Option<String>,
    /// How far that got.
    pub stage: Stage,
    /// For whom: names of interfaces, `machine` for the machine alone.
    pub askers: Vec<String>,
}

/// How far an entry got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// It may or may not have been set.
    Intended,
    /// It was set, and all that was asked for with it.
    Done,
}

/// The content of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    version: u32,
    /// The machine's start that the entries belong to.
    pub boot: String,
    /// In the order in which they were changed.
    pub entries: Vec<Entry>,
}

/// The journal, held.
#[derive(Debug)]
pub struct Journal {
    file: PathBuf,
    /// What it says.
    pub record: Record,
    _lock: OwnedFd,
}

/// Why there is no journal.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Its directory cannot be made.
    #[error("cannot make the directory {} for the journal: {error}; run as root, or name another with --journal", directory.display())]
    Directory {
        /// The directory.
        directory: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Its lock cannot be opened.
    #[error("cannot open {}: {error}; run as root, or name another journal with --journal", file.display())]
    Lock {
        /// The lock.
        file: PathBuf,
        /// Why.
        error: Errno,
    },
    /// Somebody else holds it.
    #[error("another `twinpath tune` is at work: it holds {}; wait for it", file.display())]
    Busy {
        /// The lock.
        file: PathBuf,
    },
    /// It is there and cannot be read.
    #[error("cannot read the journal {}: {error}", file.display())]
    Read {
        /// The journal.
        file: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It is not what we wrote.
    #[error(
        "the journal {} cannot be understood ({error}), so nothing was touched: it holds the values before \
         `tune --apply`; put them back by hand, or move it away to go on without it",
        file.display()
    )]
    Parse {
        /// The journal.
        file: PathBuf,
        /// Why.
        error: String,
    },
    /// It could be written before, but not after.
    #[error(
        "what was asked for is done, but the journal {} could not be brought up to date ({error}): it still has the former \
         values, and `tune --restore` puts back what is not",
        file.display()
    )]
    Behind {
        /// The journal.
        file: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It cannot be written.
    #[error("cannot write the journal {}: {error}; nothing is changed without it", file.display())]
    Write {
        /// The journal.
        file: PathBuf,
        /// Why.
        error: io::Error,
    },
}

impl Journal {
    /// Takes hold of it. One that is not there is empty.
    ///
    /// # Errors
    /// [`JournalError`].
    pub fn open(file: &Path, system: &dyn System) -> Result<Self, JournalError> {
        let directory = file.parent().unwrap_or_else(|| Path::new("/"));
        std::fs::create_dir_all(directory)
            .map_err(|error| JournalError::Directory { directory: directory.to_owned(), error })?;
        let lock_file = file.with_extension("lock");
        let lock = open(&lock_file, OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC, Mode::RUSR | Mode::WUSR)
            .map_err(|error| JournalError::Lock { file: lock_file.clone(), error })?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
            Errno::WOULDBLOCK => JournalError::Busy { file: lock_file.clone() },
            error => JournalError::Lock { file: lock_file.clone(), error },
        })?;
        let boot = boot(system);
        let record = read(file)?.unwrap_or(Record { version: VERSION, boot, entries: Vec::new() });
        Ok(Self { file: file.to_owned(), record, _lock: lock })
    }

    /// The machine has started anew since it was written: the kernel has forgotten all that it tells of.
    #[must_use]
    pub fn is_of_another_boot(&self, system: &dyn System) -> bool {
        let boot = boot(system);
        !boot.is_empty() && !self.record.boot.is_empty() && boot != self.record.boot
    }

    /// Forgets everything, and belongs to this start of the machine. Not yet on disk.
    pub(crate) fn start_anew(&mut self, system: &dyn System) {
        self.record = Record { version: VERSION, boot: boot(system), entries: Vec::new() };
    }

    /// Puts it on disk, whole or not at all; removes it if it is empty.
    ///
    /// # Errors
    /// [`JournalError::Write`]; what was on disk is still there.
    pub(crate) fn store(&self) -> Result<(), JournalError> {
        let outcome = if self.record.entries.is_empty() { remove(&self.file) } else { self.replace() };
        outcome.map_err(|error| JournalError::Write { file: self.file.clone(), error })
    }

    /// The same, when settings have been changed since it was stored last.
    ///
    /// # Errors
    /// [`JournalError::Behind`].
    pub(crate) fn bring_up_to_date(&self) -> Result<(), JournalError> {
        self.store().map_err(|error| match error {
            JournalError::Write { file, error } => JournalError::Behind { file, error },
            other => other,
        })
    }

    fn replace(&self) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(&self.record).map_err(io::Error::other)?;
        let beside = self.file.with_extension("new");
        let mut file = std::fs::File::create(&beside)?;
        file.write_all(&text)?;
        file.sync_all()?;
        std::fs::rename(&beside, &self.file)?;
        sync_directory(&self.file)
    }
}

/// What the journal says, without taking hold of it: for those who only look.
///
/// # Errors
/// [`JournalError::Read`], [`JournalError::Parse`].
pub fn read(file: &Path) -> Result<Option<Record>, JournalError> {
    let text = match std::fs::read(file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(JournalError::Read { file: file.to_owned(), error }),
    };
    let wrong = |error: String| JournalError::Parse { file: file.to_owned(), error };
    let record: Record = serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
    match record.version {
        VERSION => Ok(Some(record)),
        other => Err(wrong(format!("it has version {other}, this program knows {VERSION}"))),
    }
}

fn remove(file: &Path) -> io::Result<()> {
    match std::fs::remove_file(file) {
        Ok(()) => sync_directory(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

fn sync_directory(file: &Path) -> io::Result<()> {
    std::fs::File::open(file.parent().unwrap_or_else(|| Path::new("/")))?.sync_all()
}

/// This start of the machine; empty where the kernel does not say.
fn boot(system: &dyn System) -> String {
    system.file("proc/sys/kernel/random/boot_id").unwrap_or_default()
}
