//! The asking end of the command socket: blocking, for the command line.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{ANSWER_MAX, Answer, CommandError, Drain, PATIENCE, Request};
use crate::report::Draining;

/// Sends one request and waits for the answer, at most [`PATIENCE`] for each part of it.
///
/// # Errors
/// Nobody answers there, or [`CommandError::Refused`] with the instance's own sentence.
pub fn ask(socket: &Path, request: &Request) -> Result<Value, CommandError> {
    let path = || socket.to_owned();
    let stream =
        UnixStream::connect(socket).map_err(|error| CommandError::Connect { path: path(), error })?;
    let talk = |error| CommandError::Talk { path: path(), error };
    let text = converse(&stream, request).map_err(talk)?;
    interpret(socket, &text)
}

/// Has an instance drain, and tells `seen` how far it is each time that it says so. The last of them, once it has ended.
///
/// # Errors
/// Nobody answers there, it says no, or it ended without saying that it had drained.
pub fn follow_drain(
    socket: &Path,
    wish: Drain,
    mut seen: impl FnMut(Draining),
) -> Result<Draining, CommandError> {
    let path = || socket.to_owned();
    let mut stream =
        UnixStream::connect(socket).map_err(|error| CommandError::Connect { path: path(), error })?;
    let talk = |error| CommandError::Talk { path: path(), error };
    let mut request = serde_json::to_vec(&Request::Drain(wish)).map_err(io::Error::other).map_err(talk)?;
    request.push(b'\n');
    stream.set_read_timeout(Some(PATIENCE)).map_err(talk)?;
    // A full server answers and closes before it reads: the answer is still there then.
    let sent = stream.write_all(&request);
    let mut reader = BufReader::new(stream);
    let mut last = None;
    loop {
        let mut line = Vec::new();
        match reader.by_ref().take(ANSWER_MAX as u64).read_until(b'\n', &mut line) {
            Ok(0) => break,
            Ok(_) => {}
            // It closes its sockets in its own time, and has said all that it had to.
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

/// What an answer says, given its line.
///
/// # Errors
/// [`CommandError::Refused`] with the instance's own sentence, or no answer of ours.
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
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut text = serde_json::to_vec(request)?;
    text.push(b'\n');
    // A full server answers and closes before it reads: the answer is still there then.
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

/// What is in a run directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Sockets of running instances, in order of name.
    pub running: Vec<PathBuf>,
    /// Sockets of running instances that are not ours to ask (another user's).
    pub closed_to_us: Vec<PathBuf>,
}

/// The instances whose sockets are in `directory`; removes those of instances that are gone. A directory that is not
/// there holds none.
///
/// # Errors
/// The directory cannot be read.
pub fn find_instances(directory: &Path) -> io::Result<Found> {
    let mut found = Found::default();
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let entry = entry?;
        let path = entry.path();
        if path.extension().is_none_or(|extension| extension != "sock") || !entry.file_type()?.is_socket() {
            continue;
        }
        match UnixStream::connect(&path) {
            Ok(_) => found.running.push(path),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                // Somebody else may have removed it first, or may have to.
                let _ = std::fs::remove_file(&path);
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => found.closed_to_us.push(path),
            // Full of waiting clients: it is alive.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => found.running.push(path),
            Err(_) => {}
        }
    }
    found.running.sort();
    found.closed_to_us.sort();
    Ok(found)
}

/// Nobody listens on that socket any more.
pub(super) fn is_dead(path: &Path) -> bool {
    UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}
