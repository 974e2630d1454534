//! The instance's end of the command socket.

use std::cell::Cell;
use std::future::Future;
use std::io::{self, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, Stat, chmodat};
use serde_json::Value;
use twinpath_sys::event_loop::{Line, Lines, Watched, sleep, timeout, yield_now};
use twinpath_sys::socket_kind::peer;
use twinpath_sys::{TrustedDir, race};
use twinpath_time::Duration;

use super::{Answer, CLIENTS_MAX, CommandError, PATIENCE, REQUEST_MAX, Request, is_trusted};
use crate::together::Together;

/// Pause after accept failed for lack of descriptors: it would fail again at once.
const PAUSE: Duration = Duration::from_millis(100);

/// Counts of clients, for `show`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerCounters {
    /// Requests answered, with success or an error.
    pub answered: u64,
    /// Clients disconnected because there were [`CLIENTS_MAX`] already.
    pub refused_full: u64,
    /// Clients disconnected because they were neither root nor our user.
    pub refused_user: u64,
    /// Clients disconnected because they were silent, did not read, or sent too long a line.
    pub cut_off: u64,
}

/// The listening socket. Dropping it removes its file.
pub struct Server {
    listener: Watched<UnixListener>,
    path: PathBuf,
    folder: TrustedDir,
    /// The time for a client to send the rest of a request, and to read an answer.
    pub(super) patience: Duration,
    /// The file's name in the folder.
    name: String,
    answered: Cell<u64>,
    refused_full: Cell<u64>,
    refused_user: Cell<u64>,
    cut_off: Cell<u64>,
}

impl Server {
    /// Listens on `path`. Creates its folder (0755) if it is missing. Removes the socket of a dead
    /// instance, but not of a live one, and no other file. Needs an event loop on this thread.
    ///
    /// The folder must belong to root or this user. It may be writable for others only if it is sticky,
    /// like /tmp: there others could take the name first, which is refused, but could neither remove nor
    /// replace the socket.
    ///
    /// # Errors
    /// The step that failed; nothing is left behind in this case, except the folder.
    pub fn bind(path: &Path) -> Result<Self, CommandError> {
        let failed = |error| CommandError::Listen { path: path.to_owned(), error };
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| failed(io::ErrorKind::InvalidFilename.into()))?.to_owned();
        let folder = TrustedDir::make_shared(path.parent().unwrap_or_else(|| Path::new("/")))?;
        clear_stale(path, &folder, &name)?;
        let listener = UnixListener::bind(path).map_err(failed)?;
        let watched = listener.set_nonblocking(true).and_then(|()| Watched::readable(listener));
        let listener = watched.map_err(|error| {
            let _ = folder.remove(&name);
            failed(error)
        })?;
        // From here on the file is removed on any failure. The user of a client that connects between the two calls is
        // checked like any other.
        let server = Self {
            listener,
            path: path.to_owned(),
            folder,
            patience: PATIENCE,
            name,
            answered: Cell::default(),
            refused_full: Cell::default(),
            refused_user: Cell::default(),
            cut_off: Cell::default(),
        };
        // bind(2) has resolved the path again: it must have led to the folder that was checked.
        if !server.folder.stat(&server.name)?.as_ref().is_some_and(is_own_socket) {
            let moved = "its folder was replaced while the socket was made";
            return Err(failed(io::Error::other(moved)));
        }
        chmodat(server.folder.fd(), server.name.as_str(), Mode::RUSR | Mode::WUSR, AtFlags::empty())
            .map_err(|error| failed(error.into()))?;
        Ok(server)
    }

    /// The path on which it listens.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The counters.
    #[must_use]
    pub const fn counters(&self) -> ServerCounters {
        ServerCounters {
            answered: self.answered.get(),
            refused_full: self.refused_full.get(),
            refused_user: self.refused_user.get(),
            cut_off: self.cut_off.get(),
        }
    }

    /// Serves until dropped, like [`Self::serve_aside`]; `handler` refuses requests whose answer is more than a line.
    pub async fn serve<F, H>(&self, handler: F) -> std::convert::Infallible
    where
        F: Fn(Request) -> H,
        H: Future<Output = Result<Value, String>>,
    {
        self.serve_aside(handler, None::<fn(Request, UnixStream)>).await
    }

    /// Serves until dropped. `handler` is called once per request, on this thread; its error is sent as one sentence. A
    /// handler that does not wait returns [`std::future::ready`].
    ///
    /// A request whose answer is more than a line (a capture, sockets) is passed to `aside` with its
    /// connection, and answered by it.
    pub async fn serve_aside<F, H, C>(&self, handler: F, aside: Option<C>) -> std::convert::Infallible
    where
        F: Fn(Request) -> H,
        H: Future<Output = Result<Value, String>>,
        C: Fn(Request, UnixStream),
    {
        let mut clients = Together::default();
        loop {
            let accepted =
                race!(async { Some(self.listener.read(|listener| listener.accept()).await) }, async {
                    clients.ended().await;
                    None
                },);
            match accepted {
                Some(Ok((stream, _))) if clients.len() < CLIENTS_MAX => {
                    clients.push(self.client(stream, &handler, aside.as_ref()));
                }
                Some(Ok((mut stream, _))) => {
                    bump(&self.refused_full);
                    // Without waiting: the answer fits into the socket's buffer or is lost.
                    let text = line(&Answer::Error(format!(
                        "{CLIENTS_MAX} clients are connected already: try again"
                    )));
                    let _ = stream.set_nonblocking(true).and_then(|()| stream.write(&text));
                }
                // Probably out of descriptors. Wait until a client ends, which frees some, or for a
                // pause: accept would fail again immediately.
                Some(Err(error)) => {
                    tracing::warn!(%error, "command socket: cannot accept a client");
                    race!(sleep(PAUSE), clients.ended());
                }
                None => {}
            }
            // Nor must clients that come without end.
            yield_now().await;
        }
    }

    async fn client<F, H, C>(&self, stream: UnixStream, handler: &F, aside: Option<&C>)
    where
        F: Fn(Request) -> H,
        H: Future<Output = Result<Value, String>>,
        C: Fn(Request, UnixStream),
    {
        if !peer(&stream).is_ok_and(|peer| is_trusted(peer.user)) {
            bump(&self.refused_user);
            return;
        }
        if self.converse(stream, handler, aside).await.is_err() {
            bump(&self.cut_off);
        }
    }

    /// Reads requests and answers them in turn until the client closes; an error for a client that is disconnected.
    async fn converse<F, H, C>(&self, stream: UnixStream, handler: &F, aside: Option<&C>) -> io::Result<()>
    where
        F: Fn(Request) -> H,
        H: Future<Output = Result<Value, String>>,
        C: Fn(Request, UnixStream),
    {
        stream.set_nonblocking(true)?;
        let mut lines = Lines::new(Watched::both(stream)?);
        loop {
            let request = match timeout(self.patience, lines.next(REQUEST_MAX)).await?? {
                Line::Whole(request) => request,
                Line::End(rest) if rest.is_empty() => return Ok(()),
                Line::End(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Line::TooLong(_) => {
                    let text = line(&Answer::Error(format!("a request has at most {REQUEST_MAX} bytes")));
                    timeout(self.patience, lines.stream().write_all(&text)).await??;
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            };
            let asked = serde_json::from_slice(&request);
            if let (
                Ok(request @ (Request::Capture(_) | Request::Sockets | Request::StandBy | Request::Drain(_))),
                Some(answered_by),
            ) = (&asked, aside)
            {
                bump(&self.answered);
                answered_by(request.clone(), lines.into_stream().into_inner());
                return Ok(());
            }
            let answer = match asked {
                Ok(request) => match handler(request).await {
                    Ok(value) => Answer::Ok(value),
                    Err(sentence) => Answer::Error(sentence),
                },
                Err(error) => Answer::Error(format!("not a request: {error}")),
            };
            bump(&self.answered);
            timeout(self.patience, lines.stream().write_all(&line(&answer))).await??;
            // A client that never lets us wait must not keep the loop from everything else.
            yield_now().await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = self.folder.remove(&self.name) {
            tracing::debug!(%error, path = %self.path.display(), "the command socket stays");
        }
    }
}

fn bump(counter: &Cell<u64>) {
    counter.set(counter.get() + 1);
}

pub(super) fn line(answer: &Answer) -> Vec<u8> {
    let mut text = serde_json::to_vec(answer).unwrap_or_else(|error| {
        // Only for a map whose keys are not strings, which no handler creates.
        format!("{{\"error\":\"the answer cannot be written: {error}\"}}").into_bytes()
    });
    text.push(b'\n');
    text
}

/// Removes the socket of a dead instance.
fn clear_stale(path: &Path, folder: &TrustedDir, name: &str) -> Result<(), CommandError> {
    let Some(file) = folder.stat(name)? else { return Ok(()) };
    if FileType::from_raw_mode(file.st_mode) != FileType::Socket {
        return Err(CommandError::NotASocket { path: path.to_owned() });
    }
    if !super::client::is_dead(path) {
        return Err(CommandError::InUse { path: path.to_owned() });
    }
    folder.remove(name).map_err(|error| CommandError::Stale { path: path.to_owned(), error })
}

fn is_own_socket(file: &Stat) -> bool {
    FileType::from_raw_mode(file.st_mode) == FileType::Socket
        && file.st_uid == rustix::process::geteuid().as_raw()
}
