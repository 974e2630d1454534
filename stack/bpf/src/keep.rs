//! Switches whose flows survive them. Each has a folder in a BPF file system, with one subfolder for each network
//! namespace in which it has ports (`pins.rs`). The process that runs the switch holds a lock on the folder
//! (flock(2)), which ends with the process however it ends. So it is known whether the contents are in use, were
//! left for the next process, or are obsolete.

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

/// The usual place of the BPF file system, and our folder there.
const USUAL: [&str; 2] = ["/sys/fs/bpf", "/sys/fs/bpf/twinpath"];
/// Where we mount one if there is none.
const OWN: &str = "/run/twinpath/bpf";

/// linux/magic.h
const BPF_FS_MAGIC: u64 = 0xcafe_4a11;

/// Why a switch's flows cannot survive it.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// There is no place for pins.
    #[error(
        "what outlives a process needs a BPF file system; there is none at /sys/fs/bpf, and none could be mounted at {OWN} ({0}): \
         mount one (mount -t bpf bpf /sys/fs/bpf)"
    )]
    NoFileSystem(io::Error),
    /// The place would vanish with the process.
    #[error(
        "what outlives a process needs a BPF file system that is mounted for all; there is none at /sys/fs/bpf or {OWN}, and this \
         process has mounts of its own, as under `ip netns exec`: mount one outside (mount -t bpf bpf {OWN}), or name ports as \
         IFACE@NETNS"
    )]
    OwnMounts,
    /// Another process runs the switch.
    #[error("another process has switch {switch}{}: end it first, or give one of them another name", of(*.process))]
    Taken {
        /// The switch.
        switch: String,
        /// Its process, if the kernel reports it.
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

/// Possible places for the folders of switches.
fn places() -> impl Iterator<Item = &'static str> {
    [(OWN, OWN), (USUAL[0], USUAL[1])]
        .into_iter()
        .filter(|(mounted, _)| is_bpf(mounted))
        .map(|(_, folder)| folder)
}

/// Returns that place, and makes it if necessary.
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
    // It holds our programs and maps, which nobody else may add or change.
    TrustedDir::open(path).map_err(|error| failed(path)(io::Error::other(error)))?;
    Ok(path.to_owned())
}

fn mount_own() -> Result<&'static Path, KeepError> {
    let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/mnt"));
    // If the first process is hidden, nothing is known of the mounts of others.
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

/// The folder of a switch, locked by this process. Only one process has it at a time.
#[derive(Debug)]
pub struct Keep {
    switch: String,
    folder: PathBuf,
    _lock: OwnedFd,
}

impl Keep {
    /// Locks the folder of a switch, and makes it if it does not exist.
    ///
    /// # Errors
    /// [`KeepError`]. [`KeepError::Taken`] also for a moment after its process was killed.
    pub fn take(switch: &str) -> Result<Self, KeepError> {
        let folder = place()?.join(folder_name(switch));
        match fs::DirBuilder::new().mode(0o700).create(&folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(&folder)(error)),
            _ => {}
        }
        Self::lock(switch, folder)
    }

    /// The same, but only if the folder exists; `None`: nothing was left of such a switch.
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

    /// The folder, in which this process makes and removes subfolders.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The subfolder of the calling thread's network namespace, whether or not it exists.
    ///
    /// # Errors
    /// [`KeepError::Folder`].
    pub fn home(&self) -> Result<PathBuf, KeepError> {
        const NAMESPACE: &str = "/proc/thread-self/ns/net";
        let namespace = fs::metadata(NAMESPACE).map_err(failed(Path::new(NAMESPACE)))?;
        Ok(self.folder.join(format!("net-{}", namespace.ino())))
    }

    /// What a former process has left, as of now.
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

    /// Removes everything that can be removed. The rest has no effect once its lease has ended.
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

/// The remains of a switch whose flows survive it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// The switch.
    pub switch: String,
    /// The process that runs it now, if the kernel reports it.
    pub process: Option<u32>,
    /// When its flows end; `None`: they have ended, or a process runs the switch.
    pub until: Option<Instant>,
    /// Number of interfaces with programs.
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

/// The remains of all switches, with their folders.
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

/// The remains of switches whose processes have ended.
#[must_use]
pub fn kept(now: Instant) -> Vec<Left> {
    all(now).into_iter().map(|(left, _)| left).filter(|left| left.process.is_none()).collect()
}

/// Removes remains whose lease has ended. If a switch is named, also its flows that are still forwarded. Nothing is
/// removed of a switch that a process runs. Returns what was removed.
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

/// The switch, without a process, that left a program with this number. It does not matter whether its lease has
/// ended.
pub(crate) fn switch_of(program: u32) -> Option<Left> {
    let has = |folder: &PathBuf| homes_in(folder).iter().any(|home| pins::programs(home).contains(&program));
    all(Instant::ZERO)
        .into_iter()
        .find(|(left, folder)| left.process.is_none() && has(folder))
        .map(|(left, _)| left)
}
