//! A scraper's connection, as hyper reads and writes it.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBufCursor, Write};
use twinpath_sys::event_loop::Watched;

/// Bytes read at a time.
const PART: usize = 4096;

/// A connection on the event loop of this thread.
pub(super) struct Stream(Watched<TcpStream>);

impl Stream {
    pub(super) fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Watched::both(stream).map(Self)
    }
}

impl Read for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        mut into: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut part = [0; PART];
        let room = into.remaining().min(PART);
        let read = self.0.poll_read(|mut from| from.read(&mut part[..room]));
        read.map_ok(|len| into.put_slice(&part[..len]))
    }
}

impl Write for Stream {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.poll_write(|mut to| to.write(bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.0.get_ref().shutdown(Shutdown::Write) {
            // The scraper has gone.
            Err(error) if error.kind() == io::ErrorKind::NotConnected => Poll::Ready(Ok(())),
            outcome => Poll::Ready(outcome),
        }
    }
}
