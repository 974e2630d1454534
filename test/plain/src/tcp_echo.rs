//! The TCP echo server: it sends back the bytes that it receives on a connection.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use rustix::io::Errno;
use rustix::net::sockopt::set_tcp_nodelay;
use rustix::net::{RecvFlags, SendFlags, SocketFlags, accept_with, recv, send};
use twinpath_socket_load::socket::{is_transient, listen_tcp, may_pass};
use twinpath_socket_load::{EchoCounts, SocketError, Stop, Wait};

/// Most connections served at the same time; a further one is closed and counted as refused.
const CONNECTIONS_MAX: usize = 64;
/// Bytes that are read and sent back at once.
const BUFFER_BYTES: usize = 256 << 10;
/// A spinning server checks for new connections once in so many rounds, as the check costs as much as a receive.
const ACCEPT_EVERY_ROUNDS: u32 = 1024;

/// A listening echo server that has not been started.
#[derive(Debug)]
pub struct TcpEcho {
    listener: Arc<OwnedFd>,
    address: SocketAddr,
    wait: Wait,
}

impl TcpEcho {
    /// Listens on `address`; port 0 takes any free port.
    ///
    /// # Errors
    /// The address is in use or not a local one.
    pub fn bind(address: SocketAddr, wait: Wait) -> Result<Self, SocketError> {
        let (listener, address) = listen_tcp(address)?;
        Ok(Self { listener, address, wait })
    }

    /// The address that it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop` is requested. A sleeping server accepts on the calling thread, and each connection has its
    /// own thread (a blocking receive wakes faster than epoll and a receive), on the same CPUs. A spinning server
    /// does all on the calling thread. It counts chunks, as the stream delivered them.
    ///
    /// # Errors
    /// Accepting failed with an error that is not temporary.
    pub fn run(self, stop: &Stop) -> Result<EchoCounts, SocketError> {
        stop.watch(&self.listener);
        let served = match self.wait {
            Wait::Spin => self.spin(stop),
            Wait::Sleep | Wait::SpinThenSleep(_) => self.sleep(stop),
        };
        match served {
            Err(SocketError::Accept(_)) if stop.is_requested() => Ok(EchoCounts::default()),
            other => other,
        }
    }

    fn sleep(&self, stop: &Stop) -> Result<EchoCounts, SocketError> {
        let (sent, open) = (AtomicU64::new(0), AtomicUsize::new(0));
        let mut refused = 0;
        thread::scope(|scope| {
            while !stop.is_requested() {
                let connection = match accept_with(&self.listener, SocketFlags::CLOEXEC) {
                    Ok(connection) => Arc::new(connection),
                    Err(error) if may_pass(error) => continue,
                    Err(_) if stop.is_requested() => break,
                    Err(error) => {
                        // The other threads must end too, or the scope would wait for them for ever.
                        stop.request();
                        return Err(SocketError::Accept(error.into()));
                    }
                };
                if open.load(Ordering::Relaxed) >= CONNECTIONS_MAX {
                    refused += 1;
                    continue;
                }
                stop.watch(&connection);
                open.fetch_add(1, Ordering::Relaxed);
                let (sent, open) = (&sent, &open);
                let started = thread::Builder::new().spawn_scoped(scope, move || {
                    sent.fetch_add(echo_until_closed(&connection), Ordering::Relaxed);
                    open.fetch_sub(1, Ordering::Relaxed);
                });
                if let Err(error) = started {
                    stop.request();
                    return Err(SocketError::Thread(error));
                }
            }
            Ok(())
        })?;
        let sent = sent.load(Ordering::Relaxed);
        Ok(EchoCounts { received: sent, sent, refused })
    }

    fn spin(&self, stop: &Stop) -> Result<EchoCounts, SocketError> {
        rustix::io::ioctl_fionbio(&self.listener, true)
            .map_err(|source| SocketError::Option { option: "O_NONBLOCK", source: source.into() })?;
        let mut connections: Vec<SpinConnection> = Vec::with_capacity(CONNECTIONS_MAX);
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut counts = EchoCounts::default();
        let mut rounds = 0_u32;
        while !stop.is_requested() {
            if rounds.is_multiple_of(ACCEPT_EVERY_ROUNDS) || connections.is_empty() {
                match accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                    Ok(_) if connections.len() == CONNECTIONS_MAX => counts.refused += 1,
                    Ok(socket) => {
                        let _ = set_tcp_nodelay(&socket, true);
                        connections.push(SpinConnection { socket, owed: Vec::with_capacity(BUFFER_BYTES) });
                    }
                    Err(error) if may_pass(error) => {}
                    Err(error) => return Err(SocketError::Accept(error.into())),
                }
            }
            rounds = rounds.wrapping_add(1);
            connections.retain_mut(|connection| connection.turn(&mut buffer, &mut counts).is_ok());
        }
        Ok(counts)
    }
}

struct SpinConnection {
    socket: OwnedFd,
    /// Bytes received that could not be sent back yet; bounded by the size of a read.
    owed: Vec<u8>,
}

impl SpinConnection {
    /// Reads and answers what has arrived, without waiting; an error when the connection is closed.
    #[inline]
    fn turn(&mut self, buffer: &mut [u8], counts: &mut EchoCounts) -> Result<(), Errno> {
        if !self.owed.is_empty() {
            let sent = transient_as_zero(send(&self.socket, &self.owed, SendFlags::NOSIGNAL))?;
            self.owed.drain(..sent);
            return Ok(());
        }
        let len = match recv(&self.socket, &mut *buffer, RecvFlags::empty()) {
            Ok((0, _)) => return Err(Errno::PIPE),
            Ok((len, _)) => len,
            Err(error) if is_transient(error) => return Ok(()),
            Err(error) => return Err(error),
        };
        counts.received += 1;
        let sent = transient_as_zero(send(&self.socket, &buffer[..len], SendFlags::NOSIGNAL))?;
        counts.sent += 1;
        self.owed.extend_from_slice(&buffer[sent..len]);
        Ok(())
    }
}

fn transient_as_zero(sent: Result<usize, Errno>) -> Result<usize, Errno> {
    match sent {
        Err(error) if is_transient(error) => Ok(0),
        other => other,
    }
}

/// Echoes until the connection is closed; returns the number of chunks.
fn echo_until_closed(connection: &OwnedFd) -> u64 {
    let _ = set_tcp_nodelay(connection, true);
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut chunks = 0;
    loop {
        let len = match recv(connection, &mut buffer[..], RecvFlags::empty()) {
            Ok((0, _)) => return chunks,
            Ok((len, _)) => len,
            Err(error) if is_transient(error) => continue,
            Err(_) => return chunks,
        };
        let mut rest = &buffer[..len];
        while !rest.is_empty() {
            match transient_as_zero(send(connection, rest, SendFlags::NOSIGNAL)) {
                Ok(sent) => rest = &rest[sent..],
                Err(_) => return chunks,
            }
        }
        chunks += 1;
    }
}
