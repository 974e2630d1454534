//! A directory that only root and this user can change, and the files in it.
//!
//! A process may act on files (a journal of settings, a command socket, a lock) only if it or root wrote them. A
//! path does not prove that: anybody may have made `/tmp/twinpath-1000`. So the directory is opened first, without
//! following a symbolic link in its last component, and its owner and mode are read from the open directory. Files
//! are then opened from there by a single name, again without following links, and checked in the same way. The
//! directories above only decide *which* directory is found, never its contents.

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

/// The mode bits that let others write: `S_IWGRP` and `S_IWOTH` of linux/stat.h.
const OTHERS_WRITE: u32 = 0o022;

/// `S_ISVTX`: in such a directory a file can be removed or renamed only by its owner or the directory's.
const STICKY: u32 = 0o1000;

/// An open directory that passed the checks.
#[derive(Debug)]
pub struct TrustedDir {
    fd: OwnedFd,
    path: PathBuf,
}

/// Why a directory or a file in it is not used.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// It cannot be opened or created.
    #[error("cannot open {}: {error}", path.display())]
    Open {
        /// The directory or file.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// It is a symbolic link, which could lead anywhere.
    #[error("{} is a symbolic link: it is not followed; remove it, or name another place", path.display())]
    Link {
        /// The link.
        path: PathBuf,
    },
    /// It belongs to another user.
    #[error(
        "{} belongs to user {uid}, not to root or this user ({own}): it is not used; remove it, or name another place",
        path.display()
    )]
    Owner {
        /// The directory or file.
        path: PathBuf,
        /// Its owner.
        uid: u32,
        /// Our effective user.
        own: u32,
    },
    /// Others can change it.
    #[error(
        "{} can be written by others (mode {mode:03o}): it is not used; `chmod go-w` it if all that is in it is yours",
        path.display()
    )]
    Mode {
        /// The directory or file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// It is not of the expected kind: a directory or a regular file.
    #[error("{} is not an ordinary file: it is not used; remove it, or name another place", path.display())]
    Kind {
        /// The file.
        path: PathBuf,
    },
}

impl TrustError {
    /// Whether there is no such directory or file.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Open { error, .. } if error.kind() == io::ErrorKind::NotFound)
    }

    fn open(path: &Path, error: Errno) -> Self {
        let path = path.to_owned();
        match error {
            // With O_NOFOLLOW, ELOOP for a file. For a directory ENOTDIR, because the link itself is not one
            // (open(2)).
            Errno::LOOP => Self::Link { path },
            Errno::NOTDIR if path.symlink_metadata().is_ok_and(|found| found.is_symlink()) => {
                Self::Link { path }
            }
            error => Self::Open { path, error: error.into() },
        }
    }
}

impl TrustedDir {
    /// Opens an existing directory.
    ///
    /// # Errors
    /// [`TrustError`].
    pub fn open(path: &Path) -> Result<Self, TrustError> {
        Self::open_if(path, false)
    }

    /// As [`Self::open`], but others may have files in it if it is sticky, like /tmp. Anybody may take a name in
    /// such a directory; an existing file can be removed only by its owner.
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

    /// Opens a directory; first creates it, and those above it, if it is missing: mode 0755.
    ///
    /// # Errors
    /// [`TrustError`].
    pub fn make(path: &Path) -> Result<Self, TrustError> {
        make(path)?;
        Self::open(path)
    }

    /// As [`Self::make`], for a directory that [`Self::open_shared`] accepts.
    ///
    /// # Errors
    /// [`TrustError`].
    pub fn make_shared(path: &Path) -> Result<Self, TrustError> {
        make(path)?;
        Self::open_shared(path)
    }

    /// The path by which it was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The open directory.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Opens a regular file in it. With [`OFlags::CREATE`] a missing one is created, mode 0600.
    ///
    /// # Errors
    /// [`TrustError`].
    pub fn file(&self, name: &str, flags: OFlags) -> Result<File, TrustError> {
        let path = self.path.join(name);
        single(name).map_err(|error| TrustError::open(&path, error))?;
        // Opening a pipe that somebody put there must not block.
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

    /// The status of a name in it, without following a link; `None` if it does not exist.
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

    /// Renames a file in it; an existing one of the new name is replaced.
    ///
    /// # Errors
    /// What renameat(2) returns.
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        single(from).and_then(|()| single(to)).and_then(|()| renameat(&self.fd, from, &self.fd, to))?;
        Ok(())
    }

    /// Removes a file; a missing one is not an error.
    ///
    /// # Errors
    /// What unlinkat(2) returns.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        match single(name).and_then(|()| unlinkat(&self.fd, name, AtFlags::empty())) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes renames and removals to the disk.
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

/// Checks that a name is not a path: files are opened only from the directory that was checked.
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

    /// A directory that is removed at the end.
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
    fn a_directory_that_others_can_write_is_refused_unless_a_sticky_one_is_allowed() {
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
    fn a_directory_or_file_of_another_user_is_refused() {
        if !twinpath_test_rig::root_or_skip() {
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
