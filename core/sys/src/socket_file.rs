//! Files of UNIX sockets (unix(7)). A file on which nobody listens any more, because its process has died, is
//! replaced; anything else is left alone.

use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

/// The file of a listening socket. It is removed when this is dropped, unless the name belongs to another file by
/// then.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode.
    file: Option<(u64, u64)>,
}

impl SocketFile {
    /// Binds a socket of this kind by `bind`. A dead socket file of that name is removed first.
    ///
    /// # Errors
    /// What `bind` returns: `AddrInUse` if the file is not a socket, or another process listens there.
    pub fn bind<T>(
        path: &Path,
        kind: SocketType,
        bind: impl Fn(&Path) -> io::Result<T>,
    ) -> io::Result<(T, Self)> {
        let bound = match bind(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_dead(path, kind) => {
                std::fs::remove_file(path)?;
                bind(path)?
            }
            bound => bound?,
        };
        Ok((bound, Self { path: path.to_owned(), file: file_at(path) }))
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.file.is_some() && file_at(&self.path) == self.file {
            // Nothing can be done about one that cannot be removed.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Device and inode of the socket that the path names.
fn file_at(path: &Path) -> Option<(u64, u64)> {
    let found = std::fs::symlink_metadata(path).ok()?;
    found.file_type().is_socket().then(|| (found.dev(), found.ino()))
}

/// Whether there is a socket on which nobody listens. Files of other kinds refuse connections as well.
fn is_dead(path: &Path, kind: SocketType) -> bool {
    let refuses = || {
        let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).ok()?;
        Some(connect(&socket, &SocketAddrUnix::new(path).ok()?) == Err(Errno::CONNREFUSED))
    };
    file_at(path).is_some() && refuses() == Some(true)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    fn bind(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
        SocketFile::bind(path, SocketType::STREAM, |path| UnixListener::bind(path))
    }

    #[test]
    fn a_dead_socket_is_replaced_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let in_use = |made: io::Result<_>| made.map(drop).unwrap_err().kind() == io::ErrorKind::AddrInUse;
        std::fs::write(&path, "of the user").unwrap();
        assert!(in_use(bind(&path)));
        assert_eq!(std::fs::read(&path).unwrap(), b"of the user");
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(folder.path().join("elsewhere"), &path).unwrap();
        assert!(in_use(bind(&path)));
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(in_use(bind(&path)));
        std::fs::remove_dir(&path).unwrap();
        // A socket file of a process that has died.
        drop(UnixListener::bind(&path).unwrap());
        let live = bind(&path).unwrap();
        assert!(in_use(bind(&path)));
        drop(live);
        assert!(!path.exists());
    }

    #[test]
    fn a_file_that_has_taken_the_name_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let first = bind(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let second = bind(&path).unwrap();
        drop(first);
        assert!(path.exists());
        drop(second);
        assert!(!path.exists());
    }
}
