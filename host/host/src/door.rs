//! The socket at which programs connect.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, chmodat};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_passcred;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen, socket_with,
};
use twinpath_sys::event_loop::Watched;
use twinpath_sys::trusted_dir::TrustError;
use twinpath_sys::{TrustedDir, fd_passing};

/// Programs that may wait to be let in.
const BACKLOG: i32 = 64;

/// Why nobody can connect.
#[derive(Debug, thiserror::Error)]
pub enum DoorError {
    /// The folder cannot be created, or others may change its content.
    #[error("no socket for programs: {0}; another one is named with --listen")]
    Folder(#[from] TrustError),
    /// Something else has the name.
    #[error("{} exists and is not a socket: it stays; name another one with --listen", .0.display())]
    NotASocket(PathBuf),
    /// Another process listens there.
    #[error("another process listens on {}: name another one with --listen", .0.display())]
    InUse(PathBuf),
    /// It cannot be created.
    #[error("cannot listen on {}: {error}; name another one with --listen", path.display())]
    Listen {
        /// The socket.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// The listening socket. Every user may connect, if the folder lets them. Dropping it removes its file.
pub struct Door {
    listener: Watched<OwnedFd>,
    path: PathBuf,
    /// Where its file is, and its name there, to be removed; `None` once it is another owner's, and for connections that are passed.
    file: Option<(TrustedDir, String)>,
    passes: Passes,
}

/// How programs come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Passes {
    /// They connect.
    Not,
    /// Another process passes their connections.
    Connections,
    /// It has ended.
    Ended,
}

impl Door {
    /// Listens at `path`; its folder is made if it is missing.
    ///
    /// # Errors
    /// [`DoorError`]
    pub fn open(path: &Path) -> Result<Self, DoorError> {
        let failed = |error| DoorError::Listen { path: path.to_owned(), error };
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| failed(io::ErrorKind::InvalidFilename.into()))?.to_owned();
        let folder = TrustedDir::make_shared(path.parent().unwrap_or_else(|| Path::new("/")))?;
        clear_stale(path, &folder, &name)?;
        let listener = bound(path).map_err(failed)?;
        let opened = chmodat(folder.fd(), name.as_str(), Mode::from_raw_mode(0o666), AtFlags::empty())
            .and_then(|()| listen(&listener, BACKLOG))
            .map_err(io::Error::from)
            .and_then(|()| Watched::readable(listener));
        match opened {
            Ok(listener) => {
                Ok(Self { listener, path: path.to_owned(), file: Some((folder, name)), passes: Passes::Not })
            }
            Err(error) => {
                let _ = folder.remove(&name);
                Err(failed(error))
            }
        }
    }

    /// That of another owner, which leaves the file.
    ///
    /// # Errors
    /// [`DoorError`]
    pub fn inherited(path: &Path, listener: OwnedFd) -> Result<Self, DoorError> {
        let failed = |error| DoorError::Listen { path: path.to_owned(), error };
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| failed(io::ErrorKind::InvalidFilename.into()))?.to_owned();
        let folder = TrustedDir::open_shared(path.parent().unwrap_or_else(|| Path::new("/")))?;
        let listener = Watched::readable(listener).map_err(failed)?;
        Ok(Self { listener, path: path.to_owned(), file: Some((folder, name)), passes: Passes::Not })
    }

    /// Connections come over this UNIX socket.
    ///
    /// # Errors
    /// [`DoorError`]
    pub fn passed(from: &OwnedFd) -> Result<Self, DoorError> {
        let path = PathBuf::from("the program that it was started for");
        let failed = |error| DoorError::Listen { path: path.clone(), error };
        // The control loop reads until nothing is there.
        let listener = from.try_clone().and_then(|listener| {
            rustix::io::ioctl_fionbio(&listener, true)?;
            Watched::readable(listener)
        });
        Ok(Self { listener: listener.map_err(failed)?, path, file: None, passes: Passes::Connections })
    }

    /// Whether no program can come any more.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.passes == Passes::Ended
    }

    /// The file is another owner's from now on.
    pub fn leave(&mut self) {
        self.file = None;
    }

    /// The listening socket.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.get_ref().as_fd()
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until a program may be there.
    pub async fn knocked(&self) {
        // Whether it is there is remembered until `let_in` finds nobody.
        if self.is_closed() {
            return std::future::pending().await;
        }
        self.listener.until_readable().await
    }

    /// The next program; `None` if nobody waits, or if it cannot be let in: then it is tried again when another one comes.
    pub fn let_in(&mut self) -> Option<OwnedFd> {
        if self.passes != Passes::Not {
            return self.next_passed();
        }
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let accept = |listener: &OwnedFd| match accept_with(listener, flags) {
            Ok(connection) => Ok(Some(connection)),
            Err(Errno::CONNABORTED | Errno::INTR) => Ok(None),
            Err(error) => {
                if error != Errno::AGAIN {
                    tracing::warn!("cannot let a program in: {error}");
                }
                Err(io::Error::from(io::ErrorKind::WouldBlock))
            }
        };
        loop {
            match self.listener.try_read(accept) {
                Ok(Some(connection)) => return Some(connection),
                Ok(None) => {}
                Err(_) => return None,
            }
        }
    }
}

impl Door {
    fn next_passed(&mut self) -> Option<OwnedFd> {
        let receive = |from: &OwnedFd| Ok(fd_passing::receive(from, &mut [0; 8])?);
        loop {
            match self.listener.try_read(receive) {
                Ok(received) if received.len == 0 => self.passes = Passes::Ended,
                Ok(mut received) => match received.fds.pop() {
                    Some(connection) => return Some(connection),
                    None => continue,
                },
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => self.passes = Passes::Ended,
            }
            return None;
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let Some((folder, name)) = &self.file else { return };
        if let Err(error) = folder.remove(name) {
            tracing::debug!(%error, path = %self.path.display(), "the socket for programs stays");
        }
    }
}

fn unix_socket() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

fn bound(path: &Path) -> io::Result<OwnedFd> {
    let listener = unix_socket()?;
    bind(&listener, &SocketAddrUnix::new(path)?)?;
    // Connections inherit it from their listener, so it is known who has sent what came before they were let in.
    set_socket_passcred(&listener, true)?;
    Ok(listener)
}

/// Removes the socket of a dead owner.
fn clear_stale(path: &Path, folder: &TrustedDir, name: &str) -> Result<(), DoorError> {
    let Some(file) = folder.stat(name)? else { return Ok(()) };
    if FileType::from_raw_mode(file.st_mode) != FileType::Socket {
        return Err(DoorError::NotASocket(path.to_owned()));
    }
    let asked = unix_socket().and_then(|socket| connect(&socket, &SocketAddrUnix::new(path)?));
    if asked != Err(Errno::CONNREFUSED) {
        return Err(DoorError::InUse(path.to_owned()));
    }
    folder.remove(name).map_err(|error| DoorError::Listen { path: path.to_owned(), error })
}
