//! Bulk transfer over one TCP connection, in one direction.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, accept_with, recv, send};
use twinpath_sys::{affinity, clock};
use twinpath_time::{Duration, Instant};

use crate::SocketError;
use crate::socket::{Source, connect_tcp, is_transient, listen_tcp};
use crate::stop::Stop;

/// Bytes per system call: large enough that the cost of system calls does not matter, and small enough for
/// the second-level cache.
const CHUNK_BYTES: usize = 256 << 10;

/// The result of a transfer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BulkCounts {
    /// Payload bytes.
    pub bytes: u64,
    /// From the first byte to the last.
    pub elapsed: Duration,
}

impl BulkCounts {
    /// Payload bytes per second; zero if nothing arrived.
    #[must_use]
    pub fn bytes_per_s(&self) -> f64 {
        if self.elapsed.is_zero() { 0.0 } else { self.bytes as f64 / self.elapsed.as_secs_f64() }
    }
}

/// A listening receiver that discards what it receives.
#[derive(Debug)]
pub struct TcpSink {
    listener: Arc<OwnedFd>,
    address: SocketAddr,
}

impl TcpSink {
    /// Listens on `address`; port 0 takes any free port.
    ///
    /// # Errors
    /// The address is in use or not a local one.
    pub fn bind(address: SocketAddr) -> Result<Self, SocketError> {
        let (listener, address) = listen_tcp(address)?;
        Ok(Self { listener, address })
    }

    /// The address that it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Accepts one connection after another until `stop` is requested, and calls `finished` with the result
    /// of each.
    ///
    /// # Errors
    /// Accepting failed with an error that is not temporary.
    pub fn run(self, stop: &Stop, mut finished: impl FnMut(BulkCounts)) -> Result<(), SocketError> {
        stop.watch(&self.listener);
        let mut buffer = vec![0; CHUNK_BYTES];
        while !stop.is_requested() {
            match accept_with(&self.listener, SocketFlags::CLOEXEC) {
                Ok(connection) => {
                    let connection = Arc::new(connection);
                    stop.watch(&connection);
                    finished(drain(&connection, &mut buffer));
                }
                Err(error) if is_transient(error) || error == Errno::CONNABORTED => {}
                Err(_) if stop.is_requested() => break,
                Err(error) => return Err(SocketError::Accept(error.into())),
            }
        }
        Ok(())
    }
}

/// Reads until the peer closes the connection.
fn drain(connection: &OwnedFd, buffer: &mut [u8]) -> BulkCounts {
    let mut bytes = 0;
    let (mut first, mut last) = (None, Instant::ZERO);
    loop {
        match recv(connection, &mut *buffer, RecvFlags::empty()) {
            Ok((len, _)) if len > 0 => {
                bytes += len as u64;
                last = clock::now();
                first.get_or_insert(last);
            }
            Err(error) if is_transient(error) => {}
            Ok(_) | Err(_) => break,
        }
    }
    BulkCounts { bytes, elapsed: last.since(first.unwrap_or(last)) }
}

/// Sends to `target` from the calling thread for `warm_up`, which does not count, and then for `duration`, or until `stop` is
/// requested.
///
/// # Errors
/// The connection failed or broke.
pub fn tcp_bulk(
    target: SocketAddr,
    [warm_up, duration]: [Duration; 2],
    cpu: Option<usize>,
    stop: &Stop,
) -> Result<BulkCounts, SocketError> {
    if let Some(cpu) = cpu {
        affinity::pin_current_thread(cpu)?;
    }
    let connection = connect_tcp(target, Source::Any, false)?;
    stop.watch(&connection);
    let chunk = vec![0x5A; CHUNK_BYTES];
    let (mut bytes, mut now) = (0, clock::now());
    let counts_from = now + warm_up;
    let mut started = now;
    while now < counts_from + duration && !stop.is_requested() {
        match send(&connection, &chunk, SendFlags::NOSIGNAL) {
            Ok(_) if now < counts_from => started = clock::now(),
            Ok(sent) => bytes += sent as u64,
            Err(error) if is_transient(error) => {}
            Err(_) if stop.is_requested() => break,
            Err(Errno::PIPE | Errno::CONNRESET) => return Err(SocketError::Closed(target)),
            Err(error) => return Err(SocketError::Send { target, source: error.into() }),
        }
        now = clock::now();
    }
    Ok(BulkCounts { bytes, elapsed: now.since(started) })
}
