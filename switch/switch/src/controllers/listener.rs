//! Where controllers may come.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use rustix::net::SocketType;
use tokio::net::{TcpListener, UnixListener};
use tokio::time::{Sleep, sleep};
use twinpath_config::values::Endpoint;
use twinpath_sys::SocketFile;
use twinpath_time::Duration;

use crate::controllers::stream::{Stream, no_tls};
use crate::controllers::tls::Tls;

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
    Unix { listener: UnixListener, _file: SocketFile },
}

impl Listener {
    pub(crate) async fn bind(endpoint: &Endpoint, tls: Option<Tls>) -> io::Result<Self> {
        let tls = tls.filter(|_| matches!(endpoint, Endpoint::Tls(_)));
        let socket = match endpoint {
            Endpoint::Tls(_) if tls.is_none() => return Err(no_tls()),
            Endpoint::Tcp(address) | Endpoint::Tls(address) => Socket::Tcp(TcpListener::bind(address).await?),
            Endpoint::Unix(path) => {
                let (socket, file) =
                    SocketFile::bind(path, SocketType::STREAM, |path| UnixListener::bind(path))?;
                Socket::Unix { listener: socket, _file: file }
            }
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
            Socket::Unix { .. } => None,
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
                Socket::Unix { listener: socket, .. } => {
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
