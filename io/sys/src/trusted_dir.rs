//! A folder that only root and this user can change, and the files in it.
//!
//! What a process reads back and acts upon (a journal of settings, a command socket, a lock) has to come from itself or from
//! root. A path says nothing about that: anybody may have made `/tmp/twinpath-1000`. So the folder is opened first, without
//! following a link in its last part; owner and mode are taken from the open folder; and files are opened from there by a
//! single name, again without following links, and checked in the same way. Folders above it decide only *which* folder is
//! found, never what is in it.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, open, openat, renameat, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

/// Bits of a mode that let somebody else write: `S_IWGRP` and `S_IWOTH` of linux/stat.h.
const OTHERS_WRITE: u32 = 0o022;

/// `S_ISVTX`: in such a folder a file is removed or renamed only by its owner or the folder's.
const STICKY: u32 = 0o1000;

/// An open folder that was checked.
#[derive(Debug)]
pub struct TrustedDir {
    fd: OwnedFd,
    path: PathBuf,
}

/// Why a folder or a file in it is not used.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// It cannot be opened or made.
    #[error("cannot open {}: {error}", path.display())]
    Open {
        /// The folder or file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It is a symbolic link, which could lead anywhere.
    #[error("{} is a symbolic link: it is not followed; remove it, or name another place", path.display())]
    Link {
        /// The link.
        path: PathBuf,
    },
    /// It belongs to somebody else.
    #[error(
        "{} belongs to user {uid}, not to root or this user ({own}): it is not used; remove it, or name another place",
        path.display()
    )]
    Owner {
        /// The folder or file.
        path: PathBuf,
        /// Whose it is.
        uid: u32,
        /// Our effective user.
        own: u32,
    },
    /// Somebody else could change it.
    #[error(
        "{} can be written by others (mode {mode:03o}): it is not used; `chmod go-w` it if all that is in it is yours",
        path.display()
    )]
    Mode {
        /// The folder or file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// It is neither a folder nor an ordinary file, whichever was wanted.
    #[error("{} is not an ordinary file: it is not used; remove it, or name another place", path.display())]
    Kind {
        /// The file.
        path: PathBuf,
    },
}

impl TrustError {
    /// There is no such folder or file.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Open { error, .. } if error.kind() == io::ErrorKind::NotFound)
    }

    fn open(path: &Path, error: Errno) -> Self {
        let path = path.to_owned();
        match error {
            // With O_NOFOLLOW: ELOOP for a file, and for a folder ENOTDIR, as the link itself is none (open(2)).
            Errno::LOOP => Self::Link { path },
            Errno::NOTDIR if path.symlink_metadata().is_ok_and(|found| found.is_symlink()) => {
                Self::Link { path }
            }
            error => Self::Open { path, error: error.into() },
        }
    }
}

impl TrustedDir {
    /// Opens a folder that is there.
    ///
    /// # Errors
    /// [`TrustError`].
    pub fn open(path: &Path) -> Result<Self, TrustError> {
        Self::open_if(path, false)
    }

    /// The same, but others may have files of their own in it, if it is sticky, as /tmp is. A name in such a folder may be
    /// taken by anybody; what has been made there can be removed only by its owner.
    ///
    /// # Errors
    /// [`TrustError`].
    pub fn open_shared(path: &Path) -> Result<Self, TrustError> {
        Self::open_if(path, true)
    }

    fn open_if(path: &Path, shared: bool) -> Result<Self, TrustError> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = open(path, flags, Mode::empty()).map_err(|error| TrustError::open(path, error))?;
        let stat = fstat(&fd).map_err(|error| TrustError::open(path, error))?;
        if !(shared && stat.st_mode & STICKY != 0) {
            only_ours(path, &stat)?;
        } else if !is_ours(&stat) {
            return Err(foreign(path, &stat));
        }
        Ok(Self { fd, path: path.to_owned() })
    }

    /// Opens a folder, and makes it first if it is missing, with those above it: mode 0755.
    ///
    /// # Errors
    /// [`TrustError`].
    pub fn make(path: &Path) -> Result<Self, TrustError> {
        make(path)?;
        Self::open(path)
    }

    /// As [`Self::make`], for a folder that [`Self::open_shared`] would take.
    ///
    /// # Errors
    /// [`TrustError`].
    pub fn make_shared(path: &Path) -> Result<Self, TrustError> {
        make(path)?;
        Self::open_shared(path)
    }

    /// Where it was found.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The open folder.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Opens an ordinary file in it. With [`OFlags::CREATE`], one that is missing is made, mode 0600.
    ///
    /// # Errors
    /// [`TrustError`].
    pub fn file(&self, name: &str, flags: OFlags) -> Result<File, TrustError> {
        let path = self.path.join(name);
        single(name).map_err(|error| TrustError::open(&path, error))?;
        // A pipe that somebody put there must not hold us up.
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let fd = openat(&self.fd, name, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|error| TrustError::open(&path, error))?;
        let stat = fstat(&fd).map_err(|error| TrustError::open(&path, error))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(TrustError::Kind { path });
        }
        only_ours(&path, &stat)?;
        Ok(fd.into())
    }

    /// What a name in it is, without following a link; `None` if there is nothing.
    ///
    /// # Errors
    /// [`TrustError::Open`].
    pub fn stat(&self, name: &str) -> Result<Option<Stat>, TrustError> {
        match single(name).and_then(|()| statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(TrustError::open(&self.path.join(name), error)),
        }
    }

    /// Renames a file in it; one of the new name is replaced.
    ///
    /// # Errors
    /// What renameat(2) returns.
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        single(from).and_then(|()| single(to)).and_then(|()| renameat(&self.fd, from, &self.fd, to))?;
        Ok(())
    }

    /// Removes a file; it is well if there is none.
    ///
    /// # Errors
    /// What unlinkat(2) returns.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        match single(name).and_then(|()| unlinkat(&self.fd, name, AtFlags::empty())) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Brings what was renamed and removed to the disk.
    ///
    /// # Errors
    /// What fsync(2) returns.
    pub fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.fd)?)
    }

    /// The names in it, in order.
    ///
    /// # Errors
    /// What getdents(2) returns.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.fd)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(std::ffi::OsStr::from_bytes(name).to_owned());
            }
        }
        names.sort_unstable();
        Ok(names)
    }
}

fn make(path: &Path) -> Result<(), TrustError> {
    let failed = |error| TrustError::Open { path: path.to_owned(), error };
    if path.as_os_str().is_empty() {
        return Ok(());
    }
    std::fs::DirBuilder::new().recursive(true).mode(0o755).create(path).map_err(failed)
}

/// A name, and no path: nothing else is opened from a folder that was checked.
fn single(name: &str) -> rustix::io::Result<()> {
    if name.is_empty() || name == "." || name == ".." || name.contains('/') {
        Err(Errno::INVAL)
    } else {
        Ok(())
    }
}

fn is_ours(stat: &Stat) -> bool {
    stat.st_uid == 0 || stat.st_uid == geteuid().as_raw()
}

fn foreign(path: &Path, stat: &Stat) -> TrustError {
    TrustError::Owner { path: path.to_owned(), uid: stat.st_uid, own: geteuid().as_raw() }
}

fn only_ours(path: &Path, stat: &Stat) -> Result<(), TrustError> {
    if !is_ours(stat) {
        return Err(foreign(path, stat));
    }
    if stat.st_mode & OTHERS_WRITE != 0 {
        return Err(TrustError::Mode { path: path.to_owned(), mode: stat.st_mode & 0o7777 });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    /// A folder that goes at the end.
    struct Scene(PathBuf);

    impl Scene {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("twinpath-trusted-{name}-{}", std::process::id()));
            fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
            Self(path)
        }

        fn mode(&self, mode: u32) {
            fs::set_permissions(&self.0, fs::Permissions::from_mode(mode)).unwrap();
        }
    }

    impl Drop for Scene {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_folder_that_others_could_write_is_refused_unless_a_sticky_one_will_do() {
        let scene = Scene::new("mode");
        TrustedDir::open(&scene.0).unwrap();
        for mode in [0o720, 0o702, 0o777] {
            scene.mode(mode);
            assert!(matches!(TrustedDir::open(&scene.0), Err(TrustError::Mode { .. })), "{mode:o}");
            assert!(matches!(TrustedDir::open_shared(&scene.0), Err(TrustError::Mode { .. })), "{mode:o}");
        }
        scene.mode(0o1777);
        assert!(matches!(TrustedDir::open(&scene.0), Err(TrustError::Mode { mode: 0o1777, .. })));
        TrustedDir::open_shared(&scene.0).unwrap();
    }

    #[test]
    fn a_folder_or_file_of_somebody_else_is_refused() {
        if !twinpath_test_skip::root_or_skip() {
            return;
        }
        let scene = Scene::new("owner");
        fs::write(scene.0.join("file"), "").unwrap();
        std::os::unix::fs::chown(scene.0.join("file"), Some(65_534), None).unwrap();
        let folder = TrustedDir::open(&scene.0).unwrap();
        assert!(matches!(folder.file("file", OFlags::RDONLY), Err(TrustError::Owner { uid: 65_534, .. })));
        for mode in [0o755, 0o1777] {
            scene.mode(mode);
            std::os::unix::fs::chown(&scene.0, Some(65_534), None).unwrap();
            let shared = TrustedDir::open_shared(&scene.0);
            assert!(matches!(shared, Err(TrustError::Owner { uid: 65_534, .. })), "{mode:o}");
        }
        assert!(matches!(TrustedDir::open(&scene.0), Err(TrustError::Owner { uid: 65_534, .. })));
    }

    #[test]
    fn links_are_not_followed_and_a_name_is_no_path() {
        let scene = Scene::new("links");
        let (real, link) = (scene.0.join("real"), scene.0.join("link"));
        fs::create_dir(&real).unwrap();
        symlink(&real, &link).unwrap();
        assert!(matches!(TrustedDir::open(&link), Err(TrustError::Link { .. })));
        let folder = TrustedDir::open(&real).unwrap();
        fs::write(scene.0.join("target"), "kept").unwrap();
        symlink(scene.0.join("target"), real.join("file")).unwrap();
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC;
        assert!(matches!(folder.file("file", flags), Err(TrustError::Link { .. })));
        for name in ["../target", "..", ".", "", "/etc/hostname"] {
            assert!(matches!(folder.file(name, flags), Err(TrustError::Open { .. })), "{name:?}");
        }
        assert_eq!(fs::read_to_string(scene.0.join("target")).unwrap(), "kept");
        fs::create_dir(real.join("folder")).unwrap();
        assert!(matches!(folder.file("folder", OFlags::RDONLY), Err(TrustError::Kind { .. })));
        assert!(folder.file("nothing", OFlags::RDONLY).unwrap_err().is_absent());
    }
}
