//! The sender of a stream of datagrams ([`Datagrams`]), over one connected socket.
//!
//! Datagrams that are due together leave with one system call: as one message that the kernel or the device
//! segments (`UDP_SEGMENT`), if the path supports it.

use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::socket_error;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use twinpath_load::{Datagrams, DatagramsConfig, DatagramsSummary};
use twinpath_sys::udp_socket::set_option;
use twinpath_sys::{affinity, clock};
use twinpath_time::{Duration, Instant};

use crate::burst::{BURST_MAX, Burst};
use crate::client::{Transfers, set_timer_slack};
use crate::segments::MESSAGE_BYTES_MAX;
use crate::socket::{Source, connect_udp, is_icmp, is_transient};
use crate::stop::{Progress, Stop};
use crate::{SocketError, Wait};

/// Maximum interval between checks for a request to stop.
const HEED_INTERVAL: Duration = Duration::from_millis(100);

/// A stream of datagrams over a connected socket, not started yet.
pub struct UdpStream {
    target: SocketAddr,
    wait: Wait,
    cpu: Option<usize>,
    socket: Arc<OwnedFd>,
}

/// The result of a stream of datagrams.
#[derive(Debug)]
pub struct UdpStreamOutcome {
    /// The counts of sent and arrived datagrams.
    pub summary: DatagramsSummary,
    /// CPU time of the thread while it sent.
    pub cpu_time: Duration,
    /// System calls and bytes while it sent.
    pub transfers: Transfers,
    /// Whether the kernel or the device segmented the messages.
    pub is_segmented: bool,
    /// Why it ended early, after the service had answered.
    pub broken: Option<SocketError>,
}

impl UdpStream {
    /// Opens the socket; nothing is sent.
    ///
    /// # Errors
    /// There is no route to the target.
    pub fn connect(target: SocketAddr, wait: Wait, cpu: Option<usize>) -> Result<Self, SocketError> {
        let socket = connect_udp(target, Source::Any)?;
        // Without it the kernel does not report that its queue had no room (ip(7)).
        let (level, option) = if target.is_ipv4() {
            (libc::IPPROTO_IP, libc::IP_RECVERR)
        } else {
            (libc::IPPROTO_IPV6, libc::IPV6_RECVERR)
        };
        set_option(&socket, level, option, 1)
            .map_err(|source| SocketError::Option { option: "IP_RECVERR", source: source.into() })?;
        Ok(Self { target, wait, cpu, socket })
    }

    /// Maximum length of a datagram that is not fragmented on its way to the target, as known to the
    /// kernel.
    #[must_use]
    pub fn payload_max(&self) -> Option<usize> {
        let (mtu, headers) = if self.target.is_ipv4() {
            (rustix::net::sockopt::ip_mtu(&self.socket), 28)
        } else {
            (rustix::net::sockopt::ipv6_mtu(&self.socket), 48)
        };
        mtu.ok().and_then(|mtu| (mtu as usize).checked_sub(headers))
    }

    /// Sends on the calling thread until the stream is done, or until `stop` is requested and the sent
    /// datagrams are counted. `progress` gets the bytes.
    ///
    /// # Errors
    /// The configuration is impossible, the CPU may not be used, nobody listens, or the socket fails.
    pub fn run(
        self,
        config: DatagramsConfig,
        stop: &Stop,
        progress: &Progress,
    ) -> Result<UdpStreamOutcome, SocketError> {
        let Self { target, wait, cpu, socket } = self;
        if let Some(cpu) = cpu {
            affinity::pin_current_thread(cpu)?;
        }
        set_timer_slack()?;
        let stream = Datagrams::new(config)?;
        let most = if config.size > SEGMENT_BYTES_MAX { 1 } else { MESSAGE_BYTES_MAX / config.size };
        let mut flow = Flow {
            burst: Burst::new(BURST_MAX, stream.question_len()),
            stream,
            target,
            socket,
            spins: matches!(wait, Wait::Spin),
            message: most.clamp(1, BURST_MAX),
            was_segmented: false,
            transfers: Transfers::default(),
            refused: None,
        };
        let mut cpu_from = None;
        let mut cpu_time = None;
        while !flow.stream.is_done() {
            if stop.is_requested() {
                flow.stream.end(clock::now());
            }
            progress.add(flow.turn()?);
            match (flow.stream.is_sending(), cpu_from) {
                (true, None) => cpu_from = Some(clock::thread_cpu_time()),
                (false, Some(from)) if cpu_time.is_none() => cpu_time = Some(clock::thread_cpu_time() - from),
                _ => {}
            }
        }
        let summary = flow.stream.summary();
        let broken = flow.refused.filter(|_| summary.is_silent);
        Ok(UdpStreamOutcome {
            broken: broken.map(|error| unreachable(target, error)),
            cpu_time: cpu_time.unwrap_or_default(),
            transfers: flow.transfers,
            is_segmented: flow.was_segmented && flow.message > 1,
            summary,
        })
    }
}

/// Maximum segment size that `UDP_SEGMENT` accepts: segments have 16 bits.
const SEGMENT_BYTES_MAX: usize = u16::MAX as usize / 2;

struct Flow {
    stream: Datagrams,
    target: SocketAddr,
    socket: Arc<OwnedFd>,
    burst: Burst,
    spins: bool,
    /// Maximum number of datagrams in one message; 1: messages are not segmented.
    message: usize,
    was_segmented: bool,
    transfers: Transfers,
    /// The last error that ICMP reported after the service had answered: it may be restarting.
    refused: Option<Errno>,
}

impl Flow {
    /// Sends the due datagrams, waits if none is due, and takes the answers that have arrived. Returns the
    /// bytes sent.
    fn turn(&mut self) -> Result<u64, SocketError> {
        let now = clock::now();
        if self.stream.asks(now) {
            self.ask(now)?;
        }
        let most = if self.message > 1 { self.message } else { self.burst.slots() };
        let due = self.stream.due(now).min(most as u64) as usize;
        let sent = if due > 0 { self.send(due)? } else { 0 };
        if due == 0 && !self.spins {
            self.sleep_until(self.stream.next_deadline().min(now + HEED_INTERVAL), now)?;
        }
        if self.stream.awaits_answer() {
            self.take_answers()?;
        }
        Ok(sent)
    }

    fn ask(&mut self, now: Instant) -> Result<(), SocketError> {
        let len = self.stream.question_len();
        self.stream.write_question(self.burst.payload_mut(0, len), now);
        match send(&self.socket, self.burst.payload(0), SendFlags::empty()) {
            Ok(_) => Ok(()),
            // The question will be repeated.
            Err(error) if is_transient(error) => Ok(()),
            Err(error) => self.fail(error),
        }
    }

    fn send(&mut self, count: usize) -> Result<u64, SocketError> {
        let size = self.stream.config().size;
        (0..count).for_each(|slot| self.stream.write(self.burst.payload_mut(slot, size)));
        let mut next = 0;
        while next < count {
            let sent = if self.message > 1 && count - next > 1 {
                let slots = next..count;
                self.burst
                    .send_segmented(self.socket.as_fd(), slots, size as u16, false)
                    .map(|()| count - next)
            } else {
                self.burst.send(self.socket.as_fd(), next..count, false)
            };
            match sent {
                Ok(sent) => {
                    self.was_segmented |= self.message > 1 && sent > 1;
                    self.transfers.sent(sent * size);
                    next += sent;
                }
                Err(Errno::INTR) => {}
                // The datagrams are larger than the path's packets, or the device cannot segment them: send
                // them one by one.
                Err(Errno::INVAL | Errno::MSGSIZE | Errno::IO | Errno::OPNOTSUPP) if self.message > 1 => {
                    self.message = 1;
                }
                Err(error) if is_transient(error) => {
                    // The whole message, or the first of the datagrams that did not leave.
                    let lost = if self.message > 1 { count - next } else { 1 };
                    self.stream.lost_here(lost as u64);
                    self.transfers.sends_refused += 1;
                    next += lost;
                }
                // The error is about a datagram sent earlier: this one was not sent yet.
                Err(error) => self.fail(error)?,
            }
        }
        Ok((count * size) as u64)
    }

    fn take_answers(&mut self) -> Result<(), SocketError> {
        loop {
            let room = self.stream.question_len();
            match recv(&self.socket, self.burst.payload_mut(0, room), RecvFlags::DONTWAIT) {
                Ok((len, _)) => {
                    let answer = &self.burst.payload_mut(0, room)[..len.min(room)];
                    self.stream.receive(answer, clock::now());
                }
                Err(Errno::INTR) => {}
                Err(error) if is_transient(error) => return Ok(()),
                Err(error) if is_icmp(error) => self.fail(error)?,
                Err(error) => return Err(SocketError::Receive(error.into())),
            }
        }
    }

    /// Until the service has answered, a refusal means that nobody listens.
    fn fail(&mut self, error: Errno) -> Result<(), SocketError> {
        self.forget_errors();
        if !is_icmp(error) {
            return Err(SocketError::Send { target: self.target, source: error.into() });
        }
        if self.stream.is_counted() {
            self.refused = Some(error);
            return Ok(());
        }
        Err(unreachable(self.target, error))
    }

    /// Empties the kernel's error queue of the socket: until then the socket counts as ready.
    fn forget_errors(&mut self) {
        let flags = RecvFlags::ERRQUEUE | RecvFlags::DONTWAIT;
        while recv(&self.socket, &mut [0_u8; 64][..], flags).is_ok() {}
    }

    /// Sleeps until an answer has arrived or `deadline` has passed.
    fn sleep_until(&mut self, deadline: Instant, now: Instant) -> Result<(), SocketError> {
        let wait_ns = deadline.nanos_since(now);
        let timeout =
            Timespec { tv_sec: (wait_ns / 1_000_000_000) as i64, tv_nsec: (wait_ns % 1_000_000_000) as i64 };
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) if fds[0].revents().contains(PollFlags::ERR) => match socket_error(&self.socket) {
                Ok(Err(error)) => self.fail(error),
                _ => {
                    self.forget_errors();
                    Ok(())
                }
            },
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(SocketError::Poll(error.into())),
        }
    }
}

fn unreachable(target: SocketAddr, error: Errno) -> SocketError {
    match error {
        Errno::CONNREFUSED => SocketError::Refused(target),
        _ => SocketError::Unreachable { target, source: error.into() },
    }
}
