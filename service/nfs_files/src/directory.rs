//! A directory that is exported, open for as long as it is.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{OpenTreeFlags, open_tree};
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, capabilities_secure_bits};
use twinpath_nfs::FILE_KEY_MAX;
use twinpath_sys::{capabilities, file_handle};

use super::key_of;
use super::unsynced::Unsynced;

/// What the server needs: opening files by handle, and acting as callers.
const NEEDED: CapabilitySet =
    CapabilitySet::DAC_READ_SEARCH.union(CapabilitySet::SETUID).union(CapabilitySet::SETGID);

/// File systems on disks of this host and in its memory, whose cached attributes depend on nobody else: ext2 to ext4, XFS,
/// btrfs, tmpfs (linux/magic.h). Those of others may wait for a network, or for a process.
const QUICK: [u32; 4] = [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994];

/// Why a directory cannot be exported.
#[derive(Debug, thiserror::Error)]
pub enum RootError {
    /// The process lacks capabilities.
    #[error(
        "NFS opens files by their handles, and acts with the rights of each caller: run it as root, or with {missing} as well"
    )]
    Rights {
        /// Their names.
        missing: String,
    },
    /// Acting as a caller would take no rights from the thread.
    #[error(
        "NFS acts with the rights of each caller, and the secure bit NO_SETUID_FIXUP of this process has the kernel leave it \
         root's: start it without, such as without SecureBits= of systemd"
    )]
    SecureBits,
    /// There is no such directory.
    #[error("cannot export {}: there is no such directory", path.display())]
    Absent {
        /// The path.
        path: PathBuf,
    },
    /// It is a file of another kind.
    #[error("cannot export {}: it is not a directory", path.display())]
    Kind {
        /// The path.
        path: PathBuf,
    },
    /// It cannot be opened.
    #[error("cannot export {}: {errno}", path.display())]
    Open {
        /// The path.
        path: PathBuf,
        /// Why.
        errno: Errno,
    },
    /// Its file system has no handles, or longer ones than NFS has room for.
    #[error(
        "cannot export {}: its file system has no handles of at most {FILE_KEY_MAX} bytes, by which clients name files; a \
         directory of ext4, XFS, btrfs or tmpfs has", path.display()
    )]
    Handles {
        /// The path.
        path: PathBuf,
    },
    /// `/proc` is not there.
    #[error("cannot open /proc/self/fd, by which files are opened: {0}")]
    Proc(Errno),
}

/// A directory that is exported.
#[derive(Debug)]
pub struct Directory {
    /// Not of `O_PATH`: handles are opened with it.
    mount: OwnedFd,
    root: Arc<OwnedFd>,
    has_own_mount: bool,
    /// What tells the directory from all others.
    identity: Vec<u8>,
    is_quick: bool,
    unsynced: Arc<Unsynced>,
}

impl Directory {
    /// Opens a directory, as the root of a mount of its own where the process may make one (CAP_SYS_ADMIN): then rules of
    /// Landlock for the directory hold for files that are opened by handle. Other file systems that are mounted in the
    /// directory are not there; clients see what they cover.
    ///
    /// # Errors
    /// It cannot be exported.
    pub fn open(path: &Path) -> Result<Self, RootError> {
        let missing = NEEDED.difference(capabilities::effective());
        if !missing.is_empty() {
            let names: Vec<_> = missing.iter_names().map(|(name, _)| format!("CAP_{name}")).collect();
            return Err(RootError::Rights { missing: names.join(", ") });
        }
        let bits = capabilities_secure_bits().unwrap_or(CapabilitiesSecureBits::empty());
        if bits.contains(CapabilitiesSecureBits::NO_SETUID_FIXUP) {
            return Err(RootError::SecureBits);
        }
        let failed = |errno| match errno {
            Errno::NOENT => RootError::Absent { path: path.to_owned() },
            Errno::NOTDIR => RootError::Kind { path: path.to_owned() },
            errno => RootError::Open { path: path.to_owned(), errno },
        };
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let plain = rustix::fs::open(path, flags | OFlags::PATH, Mode::empty()).map_err(failed)?;
        let clone = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let own = open_tree(&plain, "", clone | OpenTreeFlags::AT_EMPTY_PATH);
        let has_own_mount = own.is_ok();
        let root = own.unwrap_or(plain);
        let mount = rustix::fs::openat(&root, ".", flags | OFlags::RDONLY, Mode::empty()).map_err(failed)?;
        let key = key_of(root.as_fd()).map_err(|_| RootError::Handles { path: path.to_owned() })?;
        // Some file systems make handles, and open none.
        let kind = i32::from(key.kind());
        match file_handle::open(mount.as_fd(), kind, key.bytes(), OFlags::PATH.bits() as i32) {
            Ok(_) => {
                let is_quick =
                    rustix::fs::fstatfs(&mount).is_ok_and(|fs| QUICK.contains(&(fs.f_type as u32)));
                let identity =
                    [&[key.kind()], key.bytes(), &file_handle::file_system_id(mount.as_fd())].concat();
                let (root, unsynced) = (Arc::new(root), Arc::default());
                Ok(Self { mount, root, identity, is_quick, has_own_mount, unsynced })
            }
            Err(Errno::OPNOTSUPP | Errno::STALE) => Err(RootError::Handles { path: path.to_owned() }),
            Err(errno) => Err(failed(errno)),
        }
    }

    /// Whether it is the root of a mount of its own. Without CAP_SYS_ADMIN it is not: then `..` goes past it, and a sandbox
    /// refuses files by their handles until their names are looked up.
    #[must_use]
    pub const fn has_own_mount(&self) -> bool {
        self.has_own_mount
    }

    /// Whether attributes and names that the kernel has cached are found without waiting.
    pub(super) const fn is_quick(&self) -> bool {
        self.is_quick
    }

    /// What tells the directory from all others, also after a restart: its key, and its file system's identity.
    #[must_use]
    pub fn identity(&self) -> &[u8] {
        &self.identity
    }

    /// Its files with data that is not durable.
    pub(super) const fn unsynced(&self) -> &Arc<Unsynced> {
        &self.unsynced
    }

    /// What handles are opened with.
    pub(super) fn mount(&self) -> BorrowedFd<'_> {
        self.mount.as_fd()
    }

    /// The directory, as an `O_PATH` descriptor.
    pub(super) const fn root(&self) -> &Arc<OwnedFd> {
        &self.root
    }
}

#[cfg(test)]
mod tests {
    use twinpath_test_rig::root_or_skip;

    use super::*;

    #[test]
    fn a_process_that_keeps_its_rights_as_another_user_exports_nothing() {
        if !twinpath_test_rig::root_or_skip() {
            return;
        }
        let dir = tempfile::tempdir().expect("a folder");
        // The bits are the thread's.
        let opened = || {
            let bits = capabilities_secure_bits().expect("they can be read");
            let bits = bits | CapabilitiesSecureBits::NO_SETUID_FIXUP;
            rustix::thread::set_capabilities_secure_bits(bits).expect("root may");
            Directory::open(dir.path()).map(drop)
        };
        let opened = std::thread::scope(|scope| scope.spawn(opened).join()).expect("it does not panic");
        assert!(matches!(opened, Err(RootError::SecureBits)), "{opened:?}");
        Directory::open(dir.path()).expect("other threads may");
    }

    #[test]
    fn without_the_right_to_mount_a_directory_says_that_it_has_no_mount_of_its_own() {
        if !twinpath_test_rig::root_or_skip() {
            return;
        }
        let dir = tempfile::tempdir().expect("a folder");
        assert!(Directory::open(dir.path()).expect("exported").has_own_mount());
        let opened = || {
            let mut sets = rustix::thread::capabilities(None).expect("they can be read");
            sets.effective -= CapabilitySet::SYS_ADMIN;
            rustix::thread::set_capabilities(None, sets).expect("fewer");
            Directory::open(dir.path()).map(|directory| directory.has_own_mount())
        };
        let opened = std::thread::scope(|scope| scope.spawn(opened).join()).expect("it does not panic");
        assert!(matches!(opened, Ok(false)), "{opened:?}");
    }

    #[test]
    fn what_cannot_be_exported_is_said_in_a_sentence() {
        if !root_or_skip() {
            return;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("file");
        std::fs::write(&file, "").expect("written");
        for (path, part) in [
            (folder.path().join("absent"), "there is no such directory"),
            (file, "it is not a directory"),
            (PathBuf::from("/proc"), "its file system has no handles"),
        ] {
            let error = Directory::open(&path).expect_err("it cannot be").to_string();
            assert!(error.starts_with("cannot export /") && error.contains(part), "{error}");
        }
        let open = |path: &Path| Directory::open(path).expect("an ordinary directory");
        let within = folder.path().join("within");
        std::fs::create_dir(&within).expect("made");
        assert_eq!(open(&within).identity(), open(&within).identity());
        assert_ne!(open(&within).identity(), open(folder.path()).identity());
    }
}
