//! The client's TCP socket: blocking, without Nagle's algorithm, with the time of each call's sending and its whole
//! reply.

use std::future::{Future, ready};
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use nfs3_client::io::{AsyncRead, AsyncWrite};

/// A server that takes longer has failed.
const REPLY_DEADLINE: Duration = Duration::from_secs(10);
/// More than any reply here: READDIRPLUS is asked for 32 KiB.
const BUFFER: usize = 256 << 10;

/// Counts and times calls. One call is outstanding at a time, so the last write and the last read belong to it.
#[derive(Debug)]
pub(super) struct Transport {
    stream: TcpStream,
    buffer: Box<[u8]>,
    /// Bytes read and not yet taken: `buffer[taken..filled]`.
    taken: usize,
    filled: usize,
    called: Instant,
    latency: Latency,
}

/// From the last call's system call until its reply was whole. Shared, as the client owns its transport.
#[derive(Clone, Debug, Default)]
pub(super) struct Latency(Arc<AtomicU64>);

impl Latency {
    pub(super) fn last_ns(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Transport {
    pub(super) fn connect(target: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect_timeout(&target, REPLY_DEADLINE)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(REPLY_DEADLINE))?;
        let buffer = vec![0; BUFFER].into_boxed_slice();
        let latency = Latency::default();
        Ok(Self { stream, buffer, taken: 0, filled: 0, called: Instant::now(), latency })
    }

    pub(super) fn latency(&self) -> Latency {
        self.latency.clone()
    }

    fn take(&mut self, into: &mut [u8]) -> Result<usize> {
        if self.taken == self.filled {
            self.taken = 0;
            self.filled = self.stream.read(&mut self.buffer).map_err(|error| match error.kind() {
                ErrorKind::WouldBlock => {
                    let waited = REPLY_DEADLINE.as_secs();
                    Error::new(ErrorKind::TimedOut, format!("no reply within {waited} s"))
                }
                _ => error,
            })?;
            self.latency.0.store(self.called.elapsed().as_nanos() as u64, Ordering::Relaxed);
            if self.filled == 0 {
                return Err(Error::new(ErrorKind::UnexpectedEof, "the server closed the connection"));
            }
        }
        let length = into.len().min(self.filled - self.taken);
        into[..length].copy_from_slice(&self.buffer[self.taken..self.taken + length]);
        self.taken += length;
        Ok(length)
    }
}

/// Only the system calls block: every future is ready when it is created.
impl AsyncRead for Transport {
    fn async_read(&mut self, into: &mut [u8]) -> impl Future<Output = Result<usize>> + Send {
        ready(self.take(into))
    }
}

impl AsyncWrite for Transport {
    fn async_write(&mut self, from: &[u8]) -> impl Future<Output = Result<usize>> + Send {
        self.called = Instant::now();
        ready(self.stream.write(from))
    }
}

/// The value of a call over a [`Transport`].
pub(super) fn done<T>(call: impl Future<Output = T>) -> anyhow::Result<T> {
    call.now_or_never().ok_or_else(|| anyhow::anyhow!("a call waited for something else than its socket"))
}
