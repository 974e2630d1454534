//! Files of this host, as the server of NFS needs them ([`twinpath_nfs::Files`]): by handle, with the caller's rights,
//! never outside the export.
//!
//! Operations wait for disks. A thread that uses them has called
//! [`own_mask`](twinpath_sys::file_rights::own_mask), as [`HostThreads`] does, and has root's rights between two
//! operations.
//!
//! A file is a descriptor of `O_PATH`, which needs no right and opens no device. Where data is needed, it is opened
//! again through `/proc/self/fd`, and the kernel checks the rights that the thread has at that moment.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::Errno;
use twinpath_nfs::{Caller, Fault, FileId, FileKey, OpenAs, WriteVerifier};
use twinpath_rpc::nfs3_types::nfs3::nfsstat3;
use twinpath_sys::file_handle::FileHandle;
use twinpath_sys::file_rights::{Acting, act_as};

mod cache;
mod directory;
mod operations;
mod programs;
mod quick;
mod secret;
mod status;
mod threads;
mod turns;
mod unsynced;

pub use directory::{Directory, RootError};
pub use programs::programs;
pub use quick::QuickFiles;
pub use secret::{SecretError, handle_secret};
pub use status::status;
pub use threads::HostThreads;

use cache::{Cache, Checked, Shared};
use turns::{Turn, Turns};
use unsynced::Syncs;

/// Room for entries of a directory that are read at once, bytes.
const ENTRIES_LEN: usize = 32 << 10;
/// How many directories are climbed to find out whether one is in the export.
const DEPTH_MAX: usize = 4096;

/// A file of an export.
#[derive(Clone, Debug)]
pub struct HostFile {
    fd: Shared,
    export: u32,
    checked: Arc<Checked>,
}

impl HostFile {
    fn new(fd: OwnedFd, export: u32) -> Self {
        Self { fd: Shared::new(Arc::new(fd)), export, checked: Arc::default() }
    }

    /// Its name in `/proc/self/fd`.
    fn name(&self) -> String {
        self.fd.as_raw_fd().to_string()
    }
}

/// The root of an export.
struct Root {
    number: u32,
    directory: Arc<Directory>,
    file: HostFile,
    cache: Cache,
}

/// `/proc/self/fd`.
#[derive(Debug)]
struct Descriptors(OwnedFd);

impl Descriptors {
    fn new() -> Result<Self, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open("/proc/self/fd", flags, Mode::empty()).map(Self)
    }

    /// Opens a file again, with the rights that the thread has.
    fn reopen(&self, file: &HostFile, flags: OFlags) -> Result<OwnedFd, Errno> {
        // A device or pipe is not opened here: should a file be one nonetheless, opening it does not wait.
        let flags = flags | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        rustix::fs::openat(&self.0, file.name(), flags, Mode::empty())
    }
}

impl AsFd for Descriptors {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The directories that are exported, for all threads.
pub struct HostExports {
    roots: Vec<Root>,
    descriptors: Arc<Descriptors>,
    syncs: Arc<Syncs>,
    names: Arc<Turns<Place>>,
}

impl HostExports {
    /// Exports directories by these numbers. If `former` exports may still be in use, syncs of one file, and changes of
    /// the names in one directory, follow each other through both. The verifier changes if a sync fails that no client has asked for.
    ///
    /// # Errors
    /// `/proc` is not there.
    pub fn new(
        directories: Vec<(u32, Arc<Directory>)>,
        former: Option<&Self>,
        verifier: &Arc<WriteVerifier>,
    ) -> Result<Self, RootError> {
        let descriptors = Arc::new(Descriptors::new().map_err(RootError::Proc)?);
        let exports = directories.len();
        let root = |(number, directory): (u32, Arc<Directory>)| {
            let fd = Shared::new(Arc::clone(directory.root()));
            let file = HostFile { fd, export: number, checked: Arc::default() };
            Root { number, directory, file, cache: Cache::new(exports) }
        };
        let new = || Arc::new(Syncs::new(Arc::clone(&descriptors), Arc::clone(verifier)));
        let syncs = former.map_or_else(new, |former| Arc::clone(&former.syncs));
        let names = former.map(|former| Arc::clone(&former.names)).unwrap_or_default();
        Ok(Self { roots: directories.into_iter().map(root).collect(), descriptors, syncs, names })
    }

    /// No other thread of this server takes a name from what it stands for in this directory, until the result is dropped:
    /// between two steps, a name could come to stand for another file.
    fn turn_of(&self, dir: &HostFile) -> Result<Turn<'_, Place>, Fault> {
        Ok(self.names.take(place(dir)?))
    }

    /// The same for two directories, which may be one.
    fn turns_of(&self, one: &HostFile, other: &HostFile) -> Result<[Option<Turn<'_, Place>>; 2], Fault> {
        let (one, other) = (place(one)?, place(other)?);
        // In the order of all threads, so that none waits for a second one while another has that and waits for the first.
        let first = self.names.take(one.min(other));
        Ok([Some(first), (one != other).then(|| self.names.take(one.max(other)))])
    }

    /// Opens a file for its data by the caller's rights or the server's; the thread acts for the caller from then on.
    fn open_data(
        &self,
        who: &Caller,
        open_as: OpenAs,
        file: &HostFile,
        flags: OFlags,
    ) -> Result<(OwnedFd, Acting), Fault> {
        match open_as {
            OpenAs::Caller => {
                let acting = acting(who)?;
                Ok((self.descriptors.reopen(file, flags).map_err(fault)?, acting))
            }
            OpenAs::Server => {
                let data = self.descriptors.reopen(file, flags).map_err(fault)?;
                Ok((data, acting(who)?))
            }
        }
    }
}

/// A file by its handle, and as what it is synced.
struct Kept {
    id: FileId,
    synced: Synced,
}

/// The files of exports, for one thread.
pub struct HostFiles {
    exports: Arc<HostExports>,
    entries: Vec<MaybeUninit<u8>>,
}

impl HostFiles {
    /// The files of these exports, for the calling thread. It may wait for files from now on.
    #[must_use]
    pub fn new(exports: Arc<HostExports>) -> Self {
        cache::may_wait();
        Self { exports, entries: vec![MaybeUninit::uninit(); ENTRIES_LEN] }
    }

    fn export(&self, number: u32) -> Result<&Root, Fault> {
        let root = self.exports.roots.iter().find(|root| root.number == number);
        root.ok_or(Fault::Status(nfsstat3::NFS3ERR_STALE))
    }

    /// The name of a file in `/proc/self/fd`.
    fn name(&self, file: &HostFile) -> String {
        file.name()
    }

    /// The file of a name, with the rights that the thread has.
    fn find(&self, dir: &HostFile, name: &[u8]) -> Result<HostFile, Fault> {
        find(dir, name, ResolveFlags::empty()).map_err(fault)
    }

    /// A file that is about to lose a name, if it may be kept open.
    fn kept(&self, dir: &HostFile, name: &[u8]) -> Option<Kept> {
        let directory = &self.export(dir.export).ok()?.directory;
        if !directory.is_quick() && directory.unsynced().is_empty() {
            return None;
        }
        let file = self.find(dir, name).ok()?;
        let synced = synced(&file).ok()?;
        Some(Kept { id: FileId { export: dir.export, key: synced.2 }, synced })
    }

    /// Closes a file that has lost a name, unless it is in use.
    fn forget(&self, gone: Option<Kept>) {
        if let Some(gone) = gone
            && let Ok(root) = self.export(gone.id.export)
        {
            root.cache.forget(&gone.id);
            root.directory.unsynced().lost_name(&gone.synced);
        }
    }

    /// Whether a directory is beneath the root, or is it.
    fn is_within(&self, root: &HostFile, dir: &HostFile) -> Result<bool, Fault> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = FileHandle::of(root.fd.as_fd()).map_err(fault)?;
        let mut fd = rustix::fs::openat(&*dir.fd, ".", flags, Mode::empty()).map_err(fault)?;
        let mut here = FileHandle::of(fd.as_fd()).map_err(fault)?;
        for _ in 0..DEPTH_MAX {
            if here == root {
                return Ok(true);
            }
            fd = rustix::fs::openat(&fd, "..", flags, Mode::empty()).map_err(above)?;
            let above = FileHandle::of(fd.as_fd()).map_err(fault)?;
            if above == here {
                return Ok(false);
            }
            here = above;
        }
        Ok(false)
    }
}

/// The file of a name, with the rights that the thread has.
fn find(dir: &HostFile, name: &[u8], how: ResolveFlags) -> Result<HostFile, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let within = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    match rustix::fs::openat2(&*dir.fd, name, flags, Mode::empty(), within | how) {
        Ok(fd) => Ok(HostFile::new(fd, dir.export)),
        // Another file system is mounted there: it is not exported.
        Err(Errno::XDEV) => Err(Errno::ACCESS),
        Err(errno) => Err(errno),
    }
}

/// Whether a right is there, by the answer of the kernel.
fn permitted(answer: Result<(), Errno>) -> Result<bool, Fault> {
    match answer {
        Ok(()) => Ok(true),
        Err(Errno::ACCESS | Errno::ROFS | Errno::PERM | Errno::TXTBSY) => Ok(false),
        Err(errno) => Err(fault(errno)),
    }
}

/// A directory, whichever exports it is in: the device of its file system, and its number there.
type Place = (u32, u32, u64);

fn place(dir: &HostFile) -> Result<Place, Fault> {
    let stat = rustix::fs::statx(&*dir.fd, "", AtFlags::EMPTY_PATH, StatxFlags::INO).map_err(fault)?;
    Ok((stat.stx_dev_major, stat.stx_dev_minor, stat.stx_ino))
}

/// What a sync is of: the device of a file system, and the key of a file in it. The export is no part of it, as a directory
/// may be exported twice.
type Synced = (u32, u32, FileKey);

fn synced(file: &HostFile) -> Result<Synced, Fault> {
    let stat = rustix::fs::statx(&*file.fd, "", AtFlags::EMPTY_PATH, StatxFlags::TYPE).map_err(fault)?;
    Ok((stat.stx_dev_major, stat.stx_dev_minor, key(file)?))
}

fn key(file: &HostFile) -> Result<FileKey, Fault> {
    key_of(file.fd.as_fd())
}

fn key_of(file: BorrowedFd<'_>) -> Result<FileKey, Fault> {
    key_from(&FileHandle::of(file).map_err(fault)?)
}

fn key_from(handle: &FileHandle) -> Result<FileKey, Fault> {
    let kind = u8::try_from(handle.kind()).ok();
    let key = kind.and_then(|kind| FileKey::new(kind, handle.bytes()));
    key.ok_or(Fault::Status(nfsstat3::NFS3ERR_NOTSUPP))
}

/// The thread acts for a caller.
fn acting(who: &Caller) -> Result<Acting, Fault> {
    act_as(who.uid, who.gid, who.groups()).map_err(|_| Fault::Status(nfsstat3::NFS3ERR_SERVERFAULT))
}

/// Why a directory has no parent: beneath the root of the mount each has one.
fn above(errno: Errno) -> Fault {
    match errno {
        Errno::NOENT => nfsstat3::NFS3ERR_STALE.into(),
        errno => fault(errno),
    }
}

fn fault(errno: Errno) -> Fault {
    Fault::Status(status(errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_two_file_systems_are_not_taken_for_one() {
        let open =
            |path: &str, export| HostFile::new(std::fs::File::open(path).expect("there").into(), export);
        let [memory, other] = ["/dev/shm", "/"].map(|path| synced(&open(path, 1)).expect("it has handles"));
        // The roots of two ext4 have the same key.
        assert_ne!((memory.0, memory.1), (other.0, other.1));
        assert_eq!(synced(&open("/dev/shm", 2)).expect("as before"), memory, "by whichever export");
    }
}
