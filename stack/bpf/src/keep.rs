//! Switches whose flows go on without them: each has a folder in a BPF file system, with one for each network namespace that it
//! has ports in (`pins.rs`). A process that has the switch holds a lock on the folder (flock(2)), which ends with the process
//! however it ends: so it is known whether what is there is in use, has been left for the next process, or is of no use any
//! more.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open, statfs};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};
use twinpath_sys::TrustedDir;
use twinpath_time::Instant;

use crate::keep_lease::{LEASE, LeaseWords};
use crate::pins;

/// Where the BPF file system is usually, and our folder there.
const USUAL: [&str; 2] = ["/sys/fs/bpf", "/sys/fs/bpf/twinpath"];
/// Where we mount one if there is none.
const OWN: &str = "/run/twinpath/bpf";

/// linux/magic.h
const BPF_FS_MAGIC: u64 = 0xcafe_4a11;

/// Why flows cannot go on without a switch.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// There is no place for pins.
    #[error(
        "what outlives a process needs a BPF file system; there is none at /sys/fs/bpf, and none could be mounted at {OWN} ({0}): \
         mount one (mount -t bpf bpf /sys/fs/bpf)"
    )]
    NoFileSystem(io::Error),
    /// It would vanish with the process.
    #[error(
        "what outlives a process needs a BPF file system that is mounted for all; there is none at /sys/fs/bpf or {OWN}, and this \
         process has mounts of its own, as under `ip netns exec`: mount one outside (mount -t bpf bpf {OWN}), or name ports as \
         IFACE@NETNS"
    )]
    OwnMounts,
    /// Another process has the switch.
    #[error("another process has switch {switch}{}: end it first, or give one of them another name", of(*.process))]
    Taken {
        /// The switch.
        switch: String,
        /// Its process, if the kernel tells.
        process: Option<u32>,
    },
    /// A folder cannot be used.
    #[error("{}: {error}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

fn of(process: Option<u32>) -> String {
    process.map(|pid| format!(" (pid {pid})")).unwrap_or_default()
}

fn failed(path: &Path) -> impl Fn(io::Error) -> KeepError {
    move |error| KeepError::Folder { path: path.to_owned(), error }
}

fn is_bpf(path: &str) -> bool {
    statfs(path).is_ok_and(|stat| stat.f_type as u64 == BPF_FS_MAGIC)
}

/// Where folders of switches are, as far as there is such a place.
fn places() -> impl Iterator<Item = &'static str> {
    [(OWN, OWN), (USUAL[0], USUAL[1])]
        .into_iter()
        .filter(|(mounted, _)| is_bpf(mounted))
        .map(|(_, folder)| folder)
}

/// Makes that place if need be.
fn place() -> Result<PathBuf, KeepError> {
    let found = places().next();
    let path = match found {
        Some(path) => Path::new(path),
        None => mount_own()?,
    };
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(path)(error)),
        _ => {}
    }
    // Programs and maps of ours, which nobody else may put there or change.
    TrustedDir::open(path).map_err(|error| failed(path)(io::Error::other(error)))?;
    Ok(path.to_owned())
}

fn mount_own() -> Result<&'static Path, KeepError> {
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/mnt"));
    // Where the first process hides, nothing is known of others' mounts.
    if let (Ok(own), Ok(first)) = (namespace("self"), namespace("1"))
        && own != first
    {
        return Err(KeepError::OwnMounts);
    }
    let path = Path::new(OWN);
    TrustedDir::make(path).map_err(|error| failed(path)(io::Error::other(error)))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("bpf", OWN, "bpf", flags, c"mode=0700").map_err(|error| KeepError::NoFileSystem(error.into()))?;
    Ok(path)
}

/// The folder of a switch: names in a BPF file system have no dots.
fn folder_name(switch: &str) -> String {
    switch.replace('.', "=")
}

/// The folder of a switch that this process has. Only one process has it at a time.
#[derive(Debug)]
pub struct Keep {
    switch: String,
    folder: PathBuf,
    _lock: OwnedFd,
}

impl Keep {
    /// Takes the folder of a switch, which is made if it is not there.
    ///
    /// # Errors
    /// [`KeepError`]; [`KeepError::Taken`] for a moment also after the process was killed that had it.
    pub fn take(switch: &str) -> Result<Self, KeepError> {
        let folder = place()?.join(folder_name(switch));
        match fs::DirBuilder::new().mode(0o700).create(&folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(&folder)(error)),
            _ => {}
        }
        Self::lock(switch, folder)
    }

    /// The same only if there is something; `None`: nothing was left of such a switch.
    ///
    /// # Errors
    /// [`KeepError`].
    pub fn take_left(switch: &str) -> Result<Option<Self>, KeepError> {
        let mut folders = places().map(|place| Path::new(place).join(folder_name(switch)));
        folders.find(|folder| folder.is_dir()).map(|folder| Self::lock(switch, folder)).transpose()
    }

    fn lock(switch: &str, folder: PathBuf) -> Result<Self, KeepError> {
        let taken = || KeepError::Taken { switch: switch.to_owned(), process: holder(&folder) };
        let lock = lock(&folder).map_err(failed(&folder))?.ok_or_else(taken)?;
        Ok(Self { switch: switch.to_owned(), folder, _lock: lock })
    }

    /// The folder, in which this process makes others and removes them.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The folder of the calling thread's network namespace, there or not.
    ///
    /// # Errors
    /// [`KeepError::Folder`].
    pub fn home(&self) -> Result<PathBuf, KeepError> {
        const NAMESPACE: &str = "/proc/thread-self/ns/net";
        let namespace = fs::metadata(NAMESPACE).map_err(failed(Path::new(NAMESPACE)))?;
        Ok(self.folder.join(format!("net-{}", namespace.ino())))
    }

    /// What a former process has left, now.
    #[must_use]
    pub fn left(&self, now: Instant) -> Left {
        Left::of(self.switch.clone(), &self.folder, None, now)
    }

    /// Removes what was left of network namespaces that have no folder among these.
    ///
    /// # Errors
    /// [`KeepError::Folder`].
    pub fn retain(&self, homes: &[PathBuf]) -> Result<(), KeepError> {
        let other = homes_in(&self.folder).into_iter().filter(|home| !homes.contains(home));
        other.into_iter().try_for_each(|home| pins::remove_folder(&home).map_err(failed(&home)))
    }

    /// Removes everything, as far as that is possible: what stays has no effect once its lease has ended.
    ///
    /// # Errors
    /// [`KeepError::Folder`].
    pub fn remove(self) -> Result<(), KeepError> {
        self.retain(&[])?;
        fs::remove_dir(&self.folder).map_err(failed(&self.folder))
    }
}

/// The lock of a folder; `None`: another process has it.
fn lock(folder: &Path) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = open(folder, flags, Mode::empty())?;
    match flock(&fd, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(fd)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The process that has locked a folder.
fn holder(folder: &Path) -> Option<u32> {
    let inode = fs::metadata(folder).ok()?.ino().to_string();
    let locks = fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip_while(|word| *word != "FLOCK");
        let (process, file) = (words.nth(3)?, words.next()?);
        (file.rsplit(':').next() == Some(&inode)).then(|| process.parse().ok())?
    })
}

fn homes_in(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .collect()
}

/// What there is of a switch whose flows go on without it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// The switch.
    pub switch: String,
    /// The process that has it now, as far as the kernel tells.
    pub process: Option<u32>,
    /// Until when flows go on; `None`: they go on no longer, or there is a process.
    pub until: Option<Instant>,
    /// Interfaces on which programs are.
    pub interfaces: usize,
}

impl Left {
    fn of(switch: String, folder: &Path, process: Option<u32>, now: Instant) -> Self {
        let homes = homes_in(folder);
        let leases = homes.iter().filter_map(|home| LeaseWords::pinned(&home.join(LEASE)));
        let ends = leases.filter_map(|lease| lease.ends()).filter(|ends| *ends > now).max();
        let interfaces = homes.iter().map(|home| pins::interfaces(home).len()).sum();
        Self { switch, process, until: ends.filter(|_| process.is_none()), interfaces }
    }
}

/// What there is of switches, with their folders.
fn all(now: Instant) -> Vec<(Left, PathBuf)> {
    let folders = places().flat_map(|place| homes_in(Path::new(place)));
    let left = |folder: PathBuf| {
        let switch = folder.file_name()?.to_str()?.replace('=', ".");
        let is_free = lock(&folder).ok()?.is_some();
        let process = if is_free { None } else { Some(holder(&folder).unwrap_or_default()) };
        Some((Left::of(switch, &folder, process, now), folder))
    };
    folders.filter_map(left).collect()
}

/// What processes that have ended have left of their switches.
#[must_use]
pub fn kept(now: Instant) -> Vec<Left> {
    all(now).into_iter().map(|(left, _)| left).filter(|left| left.process.is_none()).collect()
}

/// Removes what is of no use any more, as its lease has ended, and the flows of a switch that still go on, if it is named.
/// Nothing of a switch that a process has. Returns what was removed.
///
/// # Errors
/// [`KeepError::Folder`].
pub fn remove_kept(switch: Option<&str>, now: Instant) -> Result<Vec<Left>, KeepError> {
    let mut removed = Vec::new();
    for (left, folder) in all(now) {
        let is_named = switch == Some(&left.switch);
        if left.process.is_some() || left.until.is_some() && !is_named {
            continue;
        }
        // Another process may have taken it meanwhile.
        let Some(lock) = lock(&folder).map_err(failed(&folder))? else { continue };
        Keep { switch: left.switch.clone(), folder, _lock: lock }.remove()?;
        removed.push(left);
    }
    Ok(removed)
}

/// The switch, without a process, of which a program with this number was left. When its lease ends is not looked at.
pub(crate) fn switch_of(program: u32) -> Option<Left> {
    let has = |folder: &PathBuf| homes_in(folder).iter().any(|home| pins::programs(home).contains(&program));
    all(Instant::ZERO)
        .into_iter()
        .find(|(left, folder)| left.process.is_none() && has(folder))
        .map(|(left, _)| left)
}
