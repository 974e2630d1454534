//! A process beside the daemon that keeps what has to outlive it: the sockets of programs, their messages that are not
//! acknowledged, and the positions of all paths. It does nothing but hold the descriptors. If the daemon is killed, the next
//! one has them from it, and programs notice nothing.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, Mode, chmodat};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen, socket_with,
    socketpair,
};
use twinpath_sys::{TrustedDir, fd_passing, socket_kind};

/// How long the next daemon may take to come.
const NEXT_WITHIN: Timespec = Timespec { tv_sec: 60, tv_nsec: 0 };
/// How long either side waits for the other one to read.
const PATIENCE: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

/// How long a keeper has to answer.
const ANSWER_WITHIN: std::time::Duration = std::time::Duration::from_secs(5);

/// Keep the descriptors under the number.
const KEEP: u8 = 1;
/// Close those of that number.
const DROP: u8 = 2;
/// The daemon ends in order: there is nothing to keep.
const END: u8 = 3;
/// All that is kept was said.
const DONE: u8 = 4;
/// The number of the tables; programs have higher ones.
const TABLES: u64 = 0;

/// Where the keeper of the daemon whose programs connect at `programs` is found.
pub(crate) fn path_beside(programs: &Path) -> PathBuf {
    let mut name = programs.file_name().unwrap_or_default().to_owned();
    name.push(".kept");
    programs.with_file_name(name)
}

/// What a keeper had.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The positions of paths, and the maps of congested ports.
    pub(crate) tables: Option<(OwnedFd, OwnedFd)>,
    /// By number: the socket and the messages of a program.
    pub(crate) programs: BTreeMap<u64, (OwnedFd, OwnedFd)>,
}

/// The daemon's end.
#[derive(Debug)]
pub(crate) struct Keeper {
    socket: OwnedFd,
}

impl Keeper {
    /// The keeper of a daemon that was killed, with what it has; `None`: there is none.
    pub(crate) fn find(path: &Path) -> Option<(Self, Found)> {
        let socket = unix_socket().ok()?;
        connect(&socket, &SocketAddrUnix::new(path).ok()?).ok()?;
        // The folder is one that others cannot write to, but the name may be older than that.
        let peer = socket_kind::peer(&socket).ok()?;
        if peer.user != rustix::process::geteuid().as_raw() {
            return None;
        }
        let mut found = Found::default();
        // It answers once the former daemon has ended, which may take a moment.
        set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_WITHIN)).ok()?;
        loop {
            let (kind, number, mut fds) = hear(&socket).ok()??;
            match (kind, fds.len()) {
                (DONE, _) => {
                    set_socket_timeout(&socket, Timeout::Recv, None).ok()?;
                    return Some((Self { socket }, found));
                }
                (KEEP, 2) if number == TABLES => {
                    let maps = fds.pop()?;
                    found.tables = Some((fds.pop()?, maps));
                }
                (KEEP, 2) => {
                    let messages = fds.pop()?;
                    found.programs.insert(number - 1, (fds.pop()?, messages));
                }
                _ => return None,
            }
        }
    }

    /// Begins a keeper by `spawn`, which gives it the descriptor as its standard input.
    pub(crate) fn begin(spawn: impl FnOnce(OwnedFd) -> io::Result<()>) -> io::Result<Self> {
        let (own, its) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        spawn(its)?;
        Ok(Self { socket: own })
    }

    pub(crate) fn keep_tables(&self, positions: BorrowedFd<'_>, maps: BorrowedFd<'_>) -> Result<(), Errno> {
        say(&self.socket, KEEP, TABLES, &[positions, maps])
    }

    pub(crate) fn keep(
        &self,
        program: u64,
        socket: BorrowedFd<'_>,
        messages: BorrowedFd<'_>,
    ) -> Result<(), Errno> {
        say(&self.socket, KEEP, program + 1, &[socket, messages])
    }

    pub(crate) fn forget(&self, program: u64) {
        // Without a keeper nothing is kept.
        let _ = say(&self.socket, DROP, program + 1, &[]);
    }

    pub(crate) fn end(&self) {
        let _ = say(&self.socket, END, 0, &[]);
    }
}

/// Runs a keeper, until the daemon ends in order, or no next one has come in a minute.
///
/// # Errors
/// It cannot listen at `path`.
pub fn run(daemon: OwnedFd, path: &Path) -> io::Result<()> {
    let name =
        path.file_name().and_then(|name| name.to_str()).ok_or(io::ErrorKind::InvalidFilename)?.to_owned();
    let folder = TrustedDir::make_shared(path.parent().unwrap_or_else(|| Path::new("/")))
        .map_err(|error| io::Error::other(error.to_string()))?;
    twinpath_sys::descriptors::raise_limit();
    // Nobody has answered there.
    let _ = folder.remove(&name);
    let listener = unix_socket()?;
    bind(&listener, &SocketAddrUnix::new(path)?)?;
    chmodat(folder.fd(), name.as_str(), Mode::from_raw_mode(0o600), AtFlags::empty())?;
    listen(&listener, 4)?;
    let own = folder.stat(&name).ok().flatten().map(|file| file.st_ino);
    let outcome = keep(daemon, &listener);
    // The name may be another keeper's by now.
    if folder.stat(&name).ok().flatten().map(|file| file.st_ino) == own {
        let _ = folder.remove(&name);
    }
    outcome
}

fn keep(daemon: OwnedFd, listener: &OwnedFd) -> io::Result<()> {
    let mut daemon = Some(daemon);
    // One that has come before the former one was seen to end.
    let mut next: Option<OwnedFd> = None;
    let mut kept: BTreeMap<u64, Vec<OwnedFd>> = BTreeMap::new();
    loop {
        let mut waited = vec![PollFd::new(listener, PollFlags::IN)];
        waited.extend(daemon.iter().map(|daemon| PollFd::new(daemon, PollFlags::IN)));
        let timeout = daemon.is_none().then_some(&NEXT_WITHIN);
        match poll(&mut waited, timeout) {
            Ok(0) => return Ok(()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let is_ready = |number: usize| waited.get(number).is_some_and(|fd| !fd.revents().is_empty());
        let (asked, said) = (is_ready(0), is_ready(1));
        if said && let Some(socket) = &daemon {
            match hear(socket) {
                Ok(Some((KEEP, number, fds))) => drop(kept.insert(number, fds)),
                Ok(Some((DROP, number, _))) => drop(kept.remove(&number)),
                Ok(Some((END, ..))) => return Ok(()),
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) | Err(_) => daemon = None,
            }
        }
        if asked && let Ok(asking) = accept_with(listener, SocketFlags::CLOEXEC) {
            let own = rustix::process::geteuid().as_raw();
            if socket_kind::peer(&asking).is_ok_and(|peer| peer.user == own) {
                next = Some(asking);
            }
        }
        // While a daemon lives, another one gets nothing.
        if daemon.is_none() {
            daemon = next.take().filter(|next| hand_over(next, &kept).is_ok());
        }
    }
}

fn hand_over(next: &OwnedFd, kept: &BTreeMap<u64, Vec<OwnedFd>>) -> Result<(), Errno> {
    for (number, fds) in kept {
        say(next, KEEP, *number, &fds.iter().map(OwnedFd::as_fd).collect::<Vec<_>>())?;
    }
    say(next, DONE, 0, &[])
}

fn say(socket: &OwnedFd, kind: u8, number: u64, fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut bytes = [kind; 9];
    bytes[1..].copy_from_slice(&number.to_le_bytes());
    loop {
        match fd_passing::send(socket, &bytes, fds) {
            Err(Errno::AGAIN) if poll(&mut [PollFd::new(socket, PollFlags::OUT)], Some(&PATIENCE))? > 0 => {}
            said => return said,
        }
    }
}

/// The next message; `None`: the other side has ended.
fn hear(socket: &OwnedFd) -> Result<Option<(u8, u64, Vec<OwnedFd>)>, Errno> {
    let mut bytes = [0; 9];
    let received = fd_passing::receive(socket, &mut bytes)?;
    if received.len < bytes.len() {
        return Ok(None);
    }
    let [kind, number @ ..] = bytes;
    Ok(Some((kind, u64::from_le_bytes(number), received.fds)))
}

fn unix_socket() -> Result<OwnedFd, Errno> {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}
