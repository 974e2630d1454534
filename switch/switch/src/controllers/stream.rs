//! A connected socket.

use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::task::Context;

use tokio::net::{TcpStream, UnixStream};
use twinpath_config::values::Endpoint;

use crate::controllers::tls::{Tls, TlsStream};

/// A connected socket.
#[derive(Debug)]
pub(crate) enum Stream {
    /// TCP.
    Tcp(TcpStream),
    /// UNIX.
    Unix(UnixStream),
    /// TCP with TLS.
    Tls(TlsStream),
}

/// There is no key for TLS.
pub(crate) fn no_tls() -> io::Error {
    io::Error::other("there is no key and certificate for TLS")
}

impl Stream {
    pub(crate) async fn connect(endpoint: Endpoint, tls: Option<Tls>) -> io::Result<Self> {
        match endpoint {
            Endpoint::Tls(address) => {
                let tcp = with_no_delay(TcpStream::connect(&address).await?)?;
                tls.ok_or_else(no_tls)?.connect(tcp, &address).map(Self::Tls)
            }
            Endpoint::Tcp(address) => Self::tcp(TcpStream::connect(address).await?),
            Endpoint::Unix(path) => Ok(Self::Unix(UnixStream::connect(path).await?)),
        }
    }

    pub(crate) fn tcp(stream: TcpStream) -> io::Result<Self> {
        with_no_delay(stream).map(Self::Tcp)
    }

    /// The end of TLS that was connected to.
    pub(crate) fn tls(stream: TcpStream, tls: Option<&Tls>) -> io::Result<Self> {
        tls.ok_or_else(no_tls)?.accept(with_no_delay(stream)?).map(Self::Tls)
    }

    /// The other end, for messages.
    pub(crate) fn peer(&self) -> String {
        let of = |stream: &TcpStream| stream.peer_addr().map(|peer| peer.to_string()).unwrap_or_default();
        match self {
            Self::Tcp(stream) => of(stream),
            Self::Tls(stream) => of(&stream.tcp),
            Self::Unix(stream) => {
                let pid = stream.peer_cred().ok().and_then(|peer| peer.pid());
                pid.map(|pid| format!("process {pid}")).unwrap_or_default()
            }
        }
    }

    /// The address of the other end, if it has one; of IPv6 the network of 64 bits, as a host may have any address of that.
    pub(crate) fn source(&self) -> Option<IpAddr> {
        let tcp = match self {
            Self::Tcp(stream) => stream,
            Self::Tls(stream) => &stream.tcp,
            Self::Unix(_) => return None,
        };
        tcp.peer_addr().ok().map(|peer| match peer.ip().to_canonical() {
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
            ipv4 => ipv4,
        })
    }

    /// Whether bytes can be taken for the other end.
    pub(crate) fn takes_bytes(&self) -> bool {
        match self {
            Self::Tcp(_) | Self::Unix(_) => true,
            Self::Tls(stream) => stream.takes_bytes(),
        }
    }

    pub(crate) fn try_read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_read(buffer),
            Self::Unix(stream) => stream.try_read(buffer),
            Self::Tls(stream) => stream.try_read(buffer),
        }
    }

    pub(crate) fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.try_write(bytes),
            Self::Unix(stream) => stream.try_write(bytes),
            Self::Tls(stream) => stream.try_write(bytes),
        }
    }

    /// Sends what it has taken and not sent yet.
    pub(crate) fn try_flush(&mut self) -> io::Result<()> {
        match self {
            Self::Tcp(_) | Self::Unix(_) => Ok(()),
            Self::Tls(stream) => stream.try_flush(),
        }
    }

    pub(crate) fn poll_read_ready(&self, context: &mut Context<'_>) -> bool {
        match self {
            Self::Tcp(stream) => stream.poll_read_ready(context).is_ready(),
            Self::Unix(stream) => stream.poll_read_ready(context).is_ready(),
            Self::Tls(stream) => stream.has_readable() || stream.tcp.poll_read_ready(context).is_ready(),
        }
    }

    /// Whether something can be sent now: bytes that it is to take, if there are any, or those that it has.
    pub(crate) fn poll_write_ready(&self, context: &mut Context<'_>, has_bytes: bool) -> bool {
        match self {
            Self::Tcp(stream) => has_bytes && stream.poll_write_ready(context).is_ready(),
            Self::Unix(stream) => has_bytes && stream.poll_write_ready(context).is_ready(),
            Self::Tls(stream) => {
                let has_something = has_bytes && stream.takes_bytes() || stream.wants_write();
                has_something && stream.tcp.poll_write_ready(context).is_ready()
            }
        }
    }
}

/// Small messages, such as barriers, do not wait for others.
fn with_no_delay(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    Ok(stream)
}
