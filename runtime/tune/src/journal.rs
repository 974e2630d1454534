//! What settings were before they were changed, on disk before they are.
//!
//! One file per machine, `/run/twinpath/tune.json`: it lives as long as the settings do, which is until the machine
//! restarts. Should the directory outlive a restart, the boot id tells. Who holds the journal holds a lock, so two of
//! them never work at once, and what is unfinished in it was left by somebody who died.
//!
//! Root acts on what it says. So the folder and the file have to be root's or this user's own, and nobody else may be able to
//! write them ([`TrustedDir`]). An entry says what a setting is, never where it is kept, and its values have the form that such
//! a setting has: whatever a journal says, only settings of ours are ever written.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use twinpath_sys::trusted_dir::{TrustError, TrustedDir};

use super::setting::{Id, Setting};
use super::system::System;

/// Of this layout. Version 1 named files, which cannot be told from files that somebody else wants written.
const VERSION: u32 = 2;

/// Longest journal, bytes: some thousand queues, each with its interface.
const LEN_MAX: u64 = 4 << 20;

/// Where it is unless told otherwise.
pub const DEFAULT: &str = "/run/twinpath/tune.json";

/// A setting that was changed, or was about to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The setting: what it is, never where.
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

impl Entry {
    /// The line that it belongs to.
    #[must_use]
    pub const fn id(&self) -> Id {
        self.setting.place.id()
    }

    /// What is wrong with it, if anything is: it is not of the kind that we write.
    fn fault(&self) -> Option<String> {
        let setting = &self.setting;
        if !setting.is_sound() {
            return Some(format!("{setting:?} is no setting"));
        }
        let values = [Some(&self.former), Some(&self.applied), self.earlier.as_ref()];
        let wrong = values.into_iter().flatten().find(|value| !setting.place.form().is_value(value))?;
        Some(format!("{wrong:?} is no value of {}", self.id()))
    }
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
    folder: TrustedDir,
    name: String,
    /// What it says.
    pub record: Record,
    _lock: File,
}

/// Why there is no journal.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file or its folder cannot be opened, or is not ours alone.
    #[error("no journal of former values: {0}. Run as root, or name another journal with --journal")]
    Trust(#[from] TrustError),
    /// It has no name.
    #[error("{} cannot be a journal: name a file", file.display())]
    Name {
        /// What was named.
        file: PathBuf,
    },
    /// It cannot be locked.
    #[error("cannot lock {}: {error}", file.display())]
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
        let (folder, name) = parts(file)?;
        let folder = TrustedDir::make(folder)?;
        let lock_name = beside(&name, "lock");
        let lock = folder.file(&lock_name, OFlags::RDWR | OFlags::CREATE)?;
        let lock_file = || folder.path().join(&lock_name);
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
            Errno::WOULDBLOCK => JournalError::Busy { file: lock_file() },
            error => JournalError::Lock { file: lock_file(), error },
        })?;
        let boot = boot(system);
        let record = read_in(&folder, &name)?;
        let record = record.unwrap_or(Record { version: VERSION, boot, entries: Vec::new() });
        Ok(Self { folder, name, record, _lock: lock })
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
        let outcome = if self.record.entries.is_empty() { self.remove() } else { self.replace() };
        outcome.map_err(|error| JournalError::Write { file: self.folder.path().join(&self.name), error })
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
        let new = beside(&self.name, "new");
        let mut file = self
            .folder
            .file(&new, OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC)
            .map_err(io::Error::other)?;
        file.write_all(&text)?;
        file.sync_all()?;
        self.folder.rename(&new, &self.name)?;
        self.folder.sync()
    }

    fn remove(&self) -> io::Result<()> {
        self.folder.remove(&self.name)?;
        self.folder.sync()
    }
}

/// What the journal says, without taking hold of it: for those who only look.
///
/// # Errors
/// [`JournalError`]: it cannot be read, others could have written it, or it is not what we write.
pub fn read(file: &Path) -> Result<Option<Record>, JournalError> {
    let (folder, name) = parts(file)?;
    match TrustedDir::open(folder) {
        Ok(folder) => read_in(&folder, &name),
        Err(error) if error.is_absent() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn read_in(folder: &TrustedDir, name: &str) -> Result<Option<Record>, JournalError> {
    let file = match folder.file(name, OFlags::RDONLY) {
        Ok(file) => file,
        Err(error) if error.is_absent() => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let path = || folder.path().join(name);
    let mut text = Vec::new();
    file.take(LEN_MAX).read_to_end(&mut text).map_err(|error| JournalError::Read { file: path(), error })?;
    parse(&text).map(Some).map_err(|error| JournalError::Parse { file: path(), error })
}

/// A journal that we could have written, or why it is none.
fn parse(text: &[u8]) -> Result<Record, String> {
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }
    let Version { version } = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    if version != VERSION {
        return Err(format!("it has version {version}, this program knows {VERSION}"));
    }
    let record: Record = serde_json::from_slice(text).map_err(|error| error.to_string())?;
    match record.entries.iter().find_map(Entry::fault) {
        Some(fault) => Err(fault),
        None => Ok(record),
    }
}

/// The folder of the journal, and its name there.
fn parts(file: &Path) -> Result<(&Path, String), JournalError> {
    let name = file.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| JournalError::Name { file: file.to_owned() })?;
    Ok((file.parent().unwrap_or_else(|| Path::new("/")), name.to_owned()))
}

/// The name of a file beside the journal: its own with another ending.
fn beside(name: &str, ending: &str) -> String {
    Path::new(name).with_extension(ending).to_string_lossy().into_owned()
}

/// This start of the machine; empty where the kernel does not say.
fn boot(system: &dyn System) -> String {
    system.file("proc/sys/kernel/random/boot_id").unwrap_or_default()
}
