//! A connected socket.

use std::io;
use std::task::Context;

use tokio::net::{TcpStream, UnixStream};
use twinpath_values::Endpoint;

/// A connected socket.
#[derive(Debug)]
pub(crate) enum Stream {
    /// TCP.
    Tcp(TcpStream),
    /// UNIX.
    Unix(UnixStream),
}

impl Stream {
    pub(crate) async fn connect(endpoint: Endpoint) -> io::Result<Self> {
        match endpoint {
            Endpoint::Tcp(address) => Self::tcp(TcpStream::connect(address).await?),
            Endpoint::Unix(path) => Ok(Self::Unix(UnixStream::connect(path).await?)),
        }
    }

    /// Small messages, such as barriers, do not wait for others.
    pub(crate) fn tcp(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self::Tcp(stream))
    }

    /// The other end, for messages.
    pub(crate) fn peer(&self) -> String {
        match self {
            Self::Tcp(stream) => stream.peer_addr().map(|peer| peer.to_string()).unwrap_or_default(),
            Self::Unix(stream) => {
                let pid = stream.peer_cred().ok().and_then(|peer| peer.pid());
                pid.map(|pid| format!("process {pid}")).unwrap_or_default()
            }
        }
    }

    pub(crate) fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_read(buffer),
            Self::Unix(stream) => stream.try_read(buffer),
        }
    }

    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_write(bytes),
            Self::Unix(stream) => stream.try_write(bytes),
        }
    }

    pub(crate) fn poll_read_ready(&self, context: &mut Context<'_>) -> bool {
        match self {
            Self::Tcp(stream) => stream.poll_read_ready(context).is_ready(),
            Self::Unix(stream) => stream.poll_read_ready(context).is_ready(),
        }
    }

    pub(crate) fn poll_write_ready(&self, context: &mut Context<'_>) -> bool {
        match self {
            Self::Tcp(stream) => stream.poll_write_ready(context).is_ready(),
            Self::Unix(stream) => stream.poll_write_ready(context).is_ready(),
        }
    }
}
