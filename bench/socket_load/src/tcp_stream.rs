//! One connection of `bench stream`: a stream of bytes to a service that discards them, or from one that
//! generates them.
//!
//! A stream to a service ends with our FIN (shutdown). It is over when the service has closed the
//! connection, because then the service has read everything.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown};
use twinpath_load::sample_interval;
use twinpath_sys::tcp_info::{TcpInfo, tcp_info};
use twinpath_sys::{affinity, clock};
use twinpath_time::{Duration, Instant};

use crate::SocketError;
use crate::client::Transfers;
use crate::socket::{Source, connect_tcp, is_transient};
use crate::stop::{Progress, Stop};

/// Maximum duration of a system call: requests to stop, and the end of an interval, are noticed after that.
const CALL_TIMEOUT: Duration = Duration::from_millis(100);

/// The configuration of one stream of bytes.
#[derive(Clone, Copy, Debug)]
pub struct TcpStreamConfig {
    /// The service.
    pub target: SocketAddr,
    /// Whether the service sends.
    pub from_service: bool,
    /// Bytes of a system call.
    pub size: usize,
    /// How long to send or receive.
    pub duration: Duration,
    /// Maximum time without progress at the end, or at the beginning.
    pub timeout: Duration,
    /// The CPU to run on; anywhere if `None`.
    pub cpu: Option<usize>,
}

/// The state of a stream of bytes at the end of an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpSample {
    /// Since it began.
    pub at: Duration,
    /// Bytes that had arrived: acknowledged by the service, or received from it.
    pub bytes: u64,
    /// Segments retransmitted.
    pub retransmits: u64,
}

/// The result of a stream of bytes.
#[derive(Debug)]
pub struct TcpStreamOutcome {
    /// Bytes that arrived.
    pub bytes: u64,
    /// Time until they had arrived; for a stream to a service, until it had closed the connection.
    pub elapsed: Duration,
    /// CPU time of the thread.
    pub cpu_time: Duration,
    /// System calls, and bytes that the kernel took or gave.
    pub transfers: Transfers,
    /// The connection at the end.
    pub info: TcpInfo,
    /// Whether the service closed the connection of a stream to it, which proves that it has read
    /// everything.
    pub is_closed: bool,
    /// Bytes sent back by a service that should discard them.
    pub came_back: u64,
    /// The intervals, in order.
    pub samples: Vec<TcpSample>,
    /// Why it ended early.
    pub broken: Option<SocketError>,
}

/// A connection that has moved nothing.
pub struct TcpStreaming {
    config: TcpStreamConfig,
    socket: Arc<OwnedFd>,
}

impl TcpStreaming {
    /// Connects.
    ///
    /// # Errors
    /// Nothing listens at the target, or it cannot be reached.
    pub fn connect(config: &TcpStreamConfig) -> Result<Self, SocketError> {
        let socket = connect_tcp(config.target, Source::Any, true)?;
        for (direction, option) in [(Timeout::Send, "SO_SNDTIMEO"), (Timeout::Recv, "SO_RCVTIMEO")] {
            set_socket_timeout(&socket, direction, Some(CALL_TIMEOUT))
                .map_err(|source| SocketError::Option { option, source: source.into() })?;
        }
        Ok(Self { config: *config, socket })
    }

    /// Sends or receives on the calling thread until the time is up or `stop` is requested. `progress` gets the bytes.
    ///
    /// # Errors
    /// The CPU may not be used, or the service closed the connection before anything arrived.
    pub fn run(self, stop: &Stop, progress: &Progress) -> Result<TcpStreamOutcome, SocketError> {
        let Self { config, socket } = self;
        if let Some(cpu) = config.cpu {
            affinity::pin_current_thread(cpu)?;
        }
        let now = clock::now();
        let interval = sample_interval(config.duration);
        let samples = config.duration.as_secs().div_ceil(interval.as_secs()) as usize + 2;
        let mut flow = Flow {
            began: now,
            ended: now,
            interval,
            next_sample: now + interval,
            samples: Vec::with_capacity(samples),
            // The bytes are such that they cannot be compressed to nothing on the way.
            chunk: (0..config.size).map(|at| ((at * 167) >> 3) as u8).collect(),
            bytes: 0,
            came_back: 0,
            is_closed: false,
            transfers: Transfers::default(),
            info: TcpInfo::default(),
            config,
            socket,
        };
        let cpu_from = clock::thread_cpu_time();
        let ended = if config.from_service {
            flow.receive(stop, progress)
        } else {
            flow.send(stop, progress).and_then(|()| flow.finish())
        };
        let broken = match ended {
            Err(error) if flow.transfers.bytes_sent + flow.bytes == 0 => return Err(error),
            ended => ended.err(),
        };
        Ok(flow.outcome(clock::thread_cpu_time().saturating_sub(cpu_from), broken))
    }
}

struct Flow {
    config: TcpStreamConfig,
    socket: Arc<OwnedFd>,
    chunk: Vec<u8>,
    began: Instant,
    ended: Instant,
    interval: Duration,
    next_sample: Instant,
    samples: Vec<TcpSample>,
    /// Bytes received.
    bytes: u64,
    came_back: u64,
    is_closed: bool,
    transfers: Transfers,
    info: TcpInfo,
}

impl Flow {
    fn send(&mut self, stop: &Stop, progress: &Progress) -> Result<(), SocketError> {
        let until = self.began + self.config.duration;
        let mut now = self.began;
        while now < until && !stop.is_requested() {
            match send(&self.socket, &self.chunk, SendFlags::NOSIGNAL) {
                Ok(sent) => {
                    self.transfers.sent(sent);
                    progress.add(sent as u64);
                }
                Err(error) if is_transient(error) => self.transfers.sends_refused += 1,
                Err(error) => return Err(self.failed(error)),
            }
            now = clock::now();
            self.sample(now);
        }
        Ok(())
    }

    /// Sends the FIN, and waits until the service has closed the connection or takes nothing more.
    fn finish(&mut self) -> Result<(), SocketError> {
        let _ = shutdown(&self.socket, Shutdown::Write);
        let mut moved_at = clock::now();
        let mut acked = 0;
        loop {
            match recv(&self.socket, &mut *self.chunk, RecvFlags::empty()) {
                Ok((0, _)) => {
                    self.is_closed = true;
                    break;
                }
                Ok((len, _)) => self.came_back += len as u64,
                Err(error) if is_transient(error) => {}
                Err(error) => return Err(self.failed(error)),
            }
            let now = clock::now();
            self.sample(now);
            if let Ok(info) = tcp_info(&self.socket)
                && info.bytes_acked + self.came_back > acked
            {
                acked = info.bytes_acked + self.came_back;
                moved_at = now;
            }
            if now.since(moved_at) >= self.config.timeout {
                break;
            }
        }
        self.ended = clock::now();
        Ok(())
    }

    fn receive(&mut self, stop: &Stop, progress: &Progress) -> Result<(), SocketError> {
        let until = self.began + self.config.duration;
        let mut now = self.began;
        while now < until && !stop.is_requested() {
            match recv(&self.socket, &mut *self.chunk, RecvFlags::empty()) {
                Ok((0, _)) if self.bytes == 0 => {
                    return Err(SocketError::ClosedUnanswered(self.config.target));
                }
                Ok((0, _)) => return Err(self.failed(Errno::CONNRESET)),
                Ok((len, _)) => {
                    self.transfers.received(len);
                    self.bytes += len as u64;
                    progress.add(len as u64);
                }
                Err(error) if is_transient(error) => self.transfers.receives_empty += 1,
                Err(error) => return Err(self.failed(error)),
            }
            now = clock::now();
            self.sample(now);
            if self.bytes == 0 && now.since(self.began) >= self.config.timeout {
                break;
            }
        }
        self.ended = now;
        Ok(())
    }

    /// Takes a sample if an interval has ended.
    fn sample(&mut self, now: Instant) {
        if now < self.next_sample {
            return;
        }
        let past = now.since(self.began).as_secs() / self.interval.as_secs();
        self.next_sample = self.began + self.interval * u32::try_from(past + 1).unwrap_or(u32::MAX);
        if let Ok(info) = tcp_info(&self.socket) {
            self.info = info;
        }
        if self.samples.len() < self.samples.capacity() {
            self.samples.push(TcpSample {
                at: now.since(self.began),
                bytes: self.arrived(),
                retransmits: self.info.retransmits,
            });
        }
    }

    /// Bytes that have arrived. The kernel may count the SYN and the FIN as a byte each.
    fn arrived(&self) -> u64 {
        if self.config.from_service {
            self.bytes
        } else if self.is_closed {
            self.transfers.bytes_sent
        } else {
            self.info.bytes_acked.min(self.transfers.bytes_sent)
        }
    }

    fn failed(&mut self, error: Errno) -> SocketError {
        let target = self.config.target;
        self.ended = clock::now();
        match error {
            Errno::PIPE | Errno::CONNRESET => SocketError::Closed(target),
            _ if self.config.from_service => SocketError::Receive(error.into()),
            _ => SocketError::Send { target, source: error.into() },
        }
    }

    fn outcome(mut self, cpu_time: Duration, broken: Option<SocketError>) -> TcpStreamOutcome {
        if let Ok(info) = tcp_info(&self.socket) {
            self.info = info;
        }
        let (bytes, elapsed) = (self.arrived(), self.ended.since(self.began));
        // The last interval counts only if it is long enough to be meaningful.
        let last = TcpSample { at: elapsed, bytes, retransmits: self.info.retransmits };
        let since = elapsed.saturating_sub(self.samples.last().map_or(Duration::ZERO, |sample| sample.at));
        if since < self.interval / 10 && !self.samples.is_empty() {
            self.samples.pop();
        }
        self.samples.push(last);
        TcpStreamOutcome {
            bytes,
            elapsed,
            cpu_time,
            transfers: self.transfers,
            info: self.info,
            is_closed: self.is_closed,
            came_back: self.came_back,
            samples: self.samples,
            broken,
        }
    }
}
