//! The client's end of the command socket: blocking, for the command line.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;
use serde::de::DeserializeOwned;
use serde_json::Value;
use twinpath_sys::socket_kind::peer;
use twinpath_sys::trusted_dir::TrustError;
use twinpath_sys::{TrustedDir, fd_passing};

use super::{ANSWER_MAX, ANSWER_PATIENCE, Answer, CommandError, Drain, PATIENCE, Request, is_trusted};
use crate::report::Draining;

/// Connects to the instance that listens there, which must belong to root or this user.
///
/// # Errors
/// No instance answers there. Or [`CommandError::OtherUser`]: then nothing was sent, and nothing received
/// may be trusted.
pub fn connect(socket: &Path) -> Result<UnixStream, CommandError> {
    let failed = |error| CommandError::Connect { path: socket.to_owned(), error };
    let stream = UnixStream::connect(socket).map_err(failed)?;
    // The user at the time of listen(2).
    let uid = peer(&stream).map_err(failed)?.user;
    if is_trusted(uid) {
        Ok(stream)
    } else {
        let own = rustix::process::geteuid().as_raw();
        Err(CommandError::OtherUser { path: socket.to_owned(), uid, own })
    }
}

/// Sends one request and waits for the answer, at most [`ANSWER_PATIENCE`] for each part of it.
///
/// # Errors
/// No instance answers there; or [`CommandError::Refused`] with the instance's own sentence.
pub fn ask(socket: &Path, request: &Request) -> Result<Value, CommandError> {
    let path = || socket.to_owned();
    let stream = connect(socket)?;
    let talk = |error| CommandError::Talk { path: path(), error };
    let text = converse(&stream, request).map_err(talk)?;
    interpret(socket, &text)
}

/// Drains an instance, and passes each progress report to `seen`. Returns the last one, once the drain is over.
///
/// # Errors
/// No instance answers there, it refuses, or it ended without reporting that it had drained.
pub fn follow_drain(
    socket: &Path,
    wish: Drain,
    mut seen: impl FnMut(Draining),
) -> Result<Draining, CommandError> {
    let path = || socket.to_owned();
    let mut stream = connect(socket)?;
    let talk = |error| CommandError::Talk { path: path(), error };
    let mut request = serde_json::to_vec(&Request::Drain(wish)).map_err(io::Error::other).map_err(talk)?;
    request.push(b'\n');
    stream.set_read_timeout(Some(ANSWER_PATIENCE)).map_err(talk)?;
    // A full server answers and closes before it reads: the answer can still be read.
    let sent = stream.write_all(&request);
    let mut reader = BufReader::new(stream);
    let mut last = None;
    loop {
        let mut line = Vec::new();
        match reader.by_ref().take(ANSWER_MAX as u64).read_until(b'\n', &mut line) {
            Ok(0) => break,
            Ok(_) => {}
            // It closes its sockets at any time after its last report.
            Err(_) if last.is_some_and(|last: Draining| last.over) => break,
            Err(error) => return Err(talk(error)),
        }
        let invalid = |error| talk(io::Error::new(io::ErrorKind::InvalidData, error));
        let draining = serde_json::from_value(interpret(socket, &line)?).map_err(invalid)?;
        seen(draining);
        last = Some(draining);
    }
    sent.map_err(talk)?;
    let cut_short = || talk(io::Error::new(io::ErrorKind::UnexpectedEof, "it ended before it had drained"));
    last.filter(|last| last.over).ok_or_else(cut_short)
}

/// Sends a request whose answer comes with descriptors. Returns the connection, the answer, and as many
/// descriptors as `count` says.
///
/// # Errors
/// `InvalidData` with the instance's sentence if it refuses; any other kind if it cannot be asked.
pub fn receive<T: DeserializeOwned>(
    from: &Path,
    request: &Request,
    count: impl FnOnce(&T) -> usize,
) -> io::Result<(UnixStream, T, Vec<OwnedFd>)> {
    // Descriptors are taken only from an instance of root or of this user.
    let mut stream = connect(from).map_err(io::Error::other)?;
    stream.set_read_timeout(Some(ANSWER_PATIENCE))?;
    let mut request = serde_json::to_vec(request)?;
    request.push(b'\n');
    stream.write_all(&request)?;
    // Read a byte at a time: the bytes after this line carry the descriptors, so they must not be read with it.
    let mut line = Vec::new();
    let mut one_by_one = BufReader::with_capacity(1, &stream);
    one_by_one.read_until(b'\n', &mut line)?;
    let value = interpret(from, &line).map_err(|error| match error {
        CommandError::Refused(why) => io::Error::new(io::ErrorKind::InvalidData, why),
        error => io::Error::other(error),
    })?;
    let answer = serde_json::from_value(value)?;
    let (count, mut fds) = (count(&answer), Vec::new());
    while fds.len() < count {
        let received = fd_passing::receive(&stream, &mut [0; 1])?;
        if received.len == 0 || received.is_cut {
            return Err(io::Error::other(format!("{} of {count} descriptors came", fds.len())));
        }
        fds.extend(received.fds);
    }
    Ok((stream, answer, fds))
}

/// The result in the line of an answer.
///
/// # Errors
/// [`CommandError::Refused`] with the instance's own sentence, or the line is not a valid answer.
pub fn interpret(socket: &Path, line: &[u8]) -> Result<Value, CommandError> {
    match serde_json::from_slice(line) {
        Ok(Answer::Ok(value)) => Ok(value),
        Ok(Answer::Error(sentence)) => Err(CommandError::Refused(sentence)),
        Err(error) => {
            let error = io::Error::new(io::ErrorKind::InvalidData, error);
            Err(CommandError::Talk { path: socket.to_owned(), error })
        }
    }
}

fn converse(mut stream: &UnixStream, request: &Request) -> io::Result<Vec<u8>> {
    stream.set_read_timeout(Some(ANSWER_PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut text = serde_json::to_vec(request)?;
    text.push(b'\n');
    // A full server answers and closes before it reads: the answer can still be read.
    let sent = stream.write_all(&text);
    let mut answer = Vec::new();
    let length = BufReader::new(stream.take(ANSWER_MAX as u64)).read_until(b'\n', &mut answer)?;
    match answer.last() {
        Some(b'\n') => Ok(answer),
        _ if length == ANSWER_MAX => {
            Err(io::Error::new(io::ErrorKind::InvalidData, "the answer is too long"))
        }
        _ => {
            sent?;
            Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it closed the connection"))
        }
    }
}

/// The content of run directories.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundInstances {
    /// Sockets of running instances, in order of name.
    pub running: Vec<PathBuf>,
    /// Sockets of running instances that this user may not use, and folders that may contain some (of another user).
    pub closed_to_us: Vec<PathBuf>,
    /// The directories that were searched.
    pub looked: Vec<PathBuf>,
}

impl FoundInstances {
    /// The directories, for the message that nothing was found.
    #[must_use]
    pub fn places(&self) -> String {
        let places: Vec<String> = self.looked.iter().map(|place| place.display().to_string()).collect();
        places.join(" and ")
    }
}

/// Finds the instances whose sockets are in these folders, or in subfolders, as systemd units have them.
/// Removes the sockets of dead instances. A missing folder counts as empty.
///
/// # Errors
/// One of them cannot be read, or others may change its content.
pub fn find_instances(directories: &[PathBuf]) -> Result<FoundInstances, TrustError> {
    let mut found = FoundInstances { looked: directories.to_vec(), ..FoundInstances::default() };
    for directory in directories {
        let folder = match TrustedDir::open_shared(directory) {
            Ok(folder) => folder,
            Err(error) if error.is_absent() => continue,
            Err(error) => return Err(error),
        };
        for within in look_through(&folder, &mut found)? {
            match TrustedDir::open(&within) {
                Ok(folder) => drop(look_through(&folder, &mut found)?),
                Err(TrustError::Owner { path, .. }) => found.closed_to_us.push(path),
                // It is gone, not readable, or writable for others: no instance there can be trusted.
                Err(_) => {}
            }
        }
    }
    found.running.sort();
    found.closed_to_us.sort();
    Ok(found)
}

/// Adds the content of one folder; returns its subfolders.
fn look_through(folder: &TrustedDir, found: &mut FoundInstances) -> Result<Vec<PathBuf>, TrustError> {
    let unread = |error| TrustError::Open { path: folder.path().to_owned(), error };
    let mut folders = Vec::new();
    for name in folder.names().map_err(unread)? {
        let path = folder.path().join(&name);
        let Some(name) = name.to_str() else { continue };
        let Some(file) = folder.stat(name)? else { continue };
        match FileType::from_raw_mode(file.st_mode) {
            FileType::Directory => folders.push(path),
            FileType::Socket if path.extension().is_some_and(|extension| extension == "sock") => {
                sort_in(folder, name, path, found);
            }
            _ => {}
        }
    }
    Ok(folders)
}

fn sort_in(folder: &TrustedDir, name: &str, path: PathBuf, found: &mut FoundInstances) {
    match connect(&path) {
        Ok(_) => found.running.push(path),
        Err(CommandError::OtherUser { .. }) => found.closed_to_us.push(path),
        Err(CommandError::Connect { error, .. }) => match error.kind() {
            // Another process may have removed it first, or only its owner may.
            io::ErrorKind::ConnectionRefused => drop(folder.remove(name)),
            io::ErrorKind::PermissionDenied => found.closed_to_us.push(path),
            // Its queue of clients is full, so it is alive.
            io::ErrorKind::WouldBlock => found.running.push(path),
            _ => {}
        },
        Err(_) => {}
    }
}

/// Whether no process listens on that socket any more.
pub(super) fn is_dead(path: &Path) -> bool {
    UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}
