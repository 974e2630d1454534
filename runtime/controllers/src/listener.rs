//! Where controllers may come.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::net::{TcpListener, UnixListener};
use tokio::time::{Sleep, sleep};
use twinpath_time::Duration;
use twinpath_values::Endpoint;

use crate::stream::{Stream, no_tls};
use crate::tls::Tls;

/// The pause after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A socket that controllers connect to.
#[derive(Debug)]
pub(crate) struct Listener {
    endpoint: Endpoint,
    socket: Socket,
    tls: Option<Tls>,
    accepted: Option<Stream>,
    /// Until when no connection is taken, after an error.
    pause: Option<Pin<Box<Sleep>>>,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener, PathBuf),
}

/// Binds a socket in the file system; one that nobody listens at any more, as its process died, is in no way.
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    let bound = UnixListener::bind(path);
    let is_used = bound.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse);
    let refuses = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    if is_used && std::os::unix::net::UnixStream::connect(path).is_err_and(refuses) {
        std::fs::remove_file(path)?;
        return UnixListener::bind(path);
    }
    bound
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            // Nothing can be done about one that is gone already.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Listener {
    pub(crate) async fn bind(endpoint: &Endpoint, tls: Option<Tls>) -> io::Result<Self> {
        let tls = tls.filter(|_| matches!(endpoint, Endpoint::Tls(_)));
        let socket = match endpoint {
            Endpoint::Tls(_) if tls.is_none() => return Err(no_tls()),
            Endpoint::Tcp(address) | Endpoint::Tls(address) => Socket::Tcp(TcpListener::bind(address).await?),
            Endpoint::Unix(path) => Socket::Unix(bind_unix(path)?, path.clone()),
        };
        Ok(Self { endpoint: endpoint.clone(), socket, tls, accepted: None, pause: None })
    }

    /// As it is written.
    pub(crate) const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Its address, if it is one of TCP.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        match &self.socket {
            Socket::Tcp(socket) => socket.local_addr().ok(),
            Socket::Unix(..) => None,
        }
    }

    /// Whether a connection has come. After an error, such as too many open files, the next try is a little later.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> bool {
        if let Some(pause) = &mut self.pause {
            if pause.as_mut().poll(context).is_pending() {
                return self.accepted.is_some();
            }
            self.pause = None;
        }
        if self.accepted.is_none() {
            let accepted = match &self.socket {
                Socket::Tcp(socket) => socket.poll_accept(context).map(|accepted| match &self.tls {
                    None => Stream::tcp(accepted?.0),
                    tls => Stream::tls(accepted?.0, tls.as_ref()),
                }),
                Socket::Unix(socket, _) => {
                    socket.poll_accept(context).map(|accepted| Ok(Stream::Unix(accepted?.0)))
                }
            };
            match accepted {
                Poll::Ready(Ok(stream)) => self.accepted = Some(stream),
                Poll::Ready(Err(_)) => {
                    let mut pause = Box::pin(sleep(ACCEPT_PAUSE));
                    // It has just begun; this makes it wake the loop.
                    let _ = pause.as_mut().poll(context);
                    self.pause = Some(pause);
                }
                Poll::Pending => {}
            }
        }
        self.accepted.is_some()
    }

    pub(crate) fn take(&mut self) -> Option<Stream> {
        self.accepted.take()
    }
}
