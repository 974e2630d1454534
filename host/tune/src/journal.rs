//! The journal of former values, which are stored on disk before settings are changed.
//!
//! There is one file per machine, `/run/twinpath/tune.json`. It lives as long as the settings do, that is,
//! until the machine restarts. If the directory survives a restart, the boot id shows it. The journal is
//! locked while it is open, so two processes never use it at the same time, and an unfinished entry was
//! left by a process that died.
//!
//! Root acts on the journal's content. So the folder and the file must belong to root or this user, and must not be
//! writable for others ([`TrustedDir`]). An entry identifies a setting but contains no path, and its values must have
//! the format of that setting: whatever a journal contains, only settings known here are ever written.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use twinpath_sys::trusted_dir::{TrustError, TrustedDir};

use super::setting::{Id, Setting};
use super::system::System;

/// The version of this format. Version 1 contained paths of files, which could be any file.
const VERSION: u32 = 2;

/// Longest journal, bytes: some thousand queues, each with its interface.
const LEN_MAX: u64 = 4 << 20;

/// The default path.
pub const DEFAULT: &str = "/run/twinpath/tune.json";

/// A setting that was changed, or was about to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The setting, without a path.
    pub setting: Setting,
    /// The value before the first change by this program.
    pub former: String,
    /// The value that was written.
    pub applied: String,
    /// The value that an earlier apply had written, while a later one is in progress.
    pub earlier: Option<String>,
    /// The progress of the change.
    pub stage: Stage,
    /// The interfaces that asked for it; `machine` for the machine alone.
    pub askers: Vec<String>,
}

impl Entry {
    /// The line that it belongs to.
    #[must_use]
    pub const fn id(&self) -> Id {
        self.setting.place.id()
    }

    /// Describes what is wrong with it, if it is not an entry that this program could have written.
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

/// The progress of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// The setting may or may not have been changed.
    Intended,
    /// The setting was changed, and so were all others of the same apply.
    Done,
}

/// The content of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    version: u32,
    /// The boot id at the time of the entries.
    pub boot: String,
    /// The entries, in the order of changes.
    pub entries: Vec<Entry>,
}

/// The open and locked journal.
#[derive(Debug)]
pub struct Journal {
    folder: TrustedDir,
    name: String,
    /// Its content.
    pub record: Record,
    _lock: File,
}

/// An error of the journal.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file or its folder cannot be opened, or others may write it.
    #[error("no journal of former values: {0}. Run as root, or name another journal with --journal")]
    Trust(#[from] TrustError),
    /// The path has no file name.
    #[error("{} cannot be a journal: name a file", file.display())]
    Name {
        /// The path.
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
    /// Another process holds the lock.
    #[error("another `twinpath tune` is at work: it holds {}; wait for it", file.display())]
    Busy {
        /// The lock.
        file: PathBuf,
    },
    /// It exists but cannot be read.
    #[error("cannot read the journal {}: {error}", file.display())]
    Read {
        /// The journal.
        file: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// This program could not have written it.
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
    /// Storing it succeeded before the changes, but not after them.
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
    /// Opens and locks it. A missing file is an empty journal.
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

    /// The machine has restarted since the journal was written, so all settings in it are gone.
    #[must_use]
    pub fn is_of_another_boot(&self, system: &dyn System) -> bool {
        let boot = boot(system);
        !boot.is_empty() && !self.record.boot.is_empty() && boot != self.record.boot
    }

    /// Removes all entries and records the present boot id; not yet on disk.
    pub(crate) fn start_anew(&mut self, system: &dyn System) {
        self.record = Record { version: VERSION, boot: boot(system), entries: Vec::new() };
    }

    /// Writes it to disk atomically; removes the file if it is empty.
    ///
    /// # Errors
    /// [`JournalError::Write`]; the former file is still there.
    pub(crate) fn store(&self) -> Result<(), JournalError> {
        let outcome = if self.record.entries.is_empty() { self.remove() } else { self.replace() };
        outcome.map_err(|error| JournalError::Write { file: self.folder.path().join(&self.name), error })
    }

    /// Like [`Self::store`], after settings have been changed.
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

/// Reads the journal without locking it.
///
/// # Errors
/// [`JournalError`]: it cannot be read, others may have written it, or this program could not have written it.
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

/// Parses a journal; the error says why this program could not have written it.
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

/// The journal's folder, and its file name.
fn parts(file: &Path) -> Result<(&Path, String), JournalError> {
    let name = file.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| JournalError::Name { file: file.to_owned() })?;
    Ok((file.parent().unwrap_or_else(|| Path::new("/")), name.to_owned()))
}

/// The name of a file beside the journal: the same name with another extension.
fn beside(name: &str, ending: &str) -> String {
    Path::new(name).with_extension(ending).to_string_lossy().into_owned()
}

/// The present boot id; empty if the kernel does not report it.
fn boot(system: &dyn System) -> String {
    system.file("proc/sys/kernel/random/boot_id").unwrap_or_default()
}
