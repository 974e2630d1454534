//! The TCP client: requests of equal size on one connection, answered in order.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use twinpath_load::Load;
use twinpath_sys::{affinity, clock};
use twinpath_time::{Duration, Instant};

use crate::socket::{connect_tcp, is_transient, set_receive_timeout};
use crate::stop::{Progress, Stop};
use crate::{ClientConfig, ClientOutcome, PlainError, SILENT_TIMEOUTS};

/// Requests gathered into one send are bounded by this many bytes (and by one request, if that is larger).
const GATHERED_BYTES_MAX: usize = 64 << 10;

/// Offers the load in the calling thread until it is done or `stop` is requested.
///
/// # Errors
/// The configuration is impossible, nothing listens at the target, or the connection breaks.
pub fn tcp_client(
    config: &ClientConfig,
    stop: &Stop,
    progress: &Progress,
) -> Result<ClientOutcome, PlainError> {
    if let Some(cpu) = config.cpu {
        affinity::pin_current_thread(cpu)?;
    }
    config.load.validate()?;
    let mut client = Client::open(config)?;
    stop.watch(&client.socket);
    let mut cpu_from = None;
    let mut now = clock::now();
    let mut load = Load::new(config.load, now)?;
    let (started, silence) = (now, config.load.loss_timeout * SILENT_TIMEOUTS);
    let mut last_reply = now;
    while !load.done(now) && !stop.is_requested() {
        if cpu_from.is_none() && load.is_measuring(now) {
            cpu_from = Some(clock::thread_cpu_time());
        }
        load.expire(now);
        client.gather_due(&mut load, now);
        match client.send_gathered() {
            Err(_) if stop.is_requested() => break,
            sent => sent?,
        }
        let received = match client.receive(&load, config.wait.spins(last_reply, now), now) {
            // A socket shut down reads as closed.
            Err(_) if stop.is_requested() => break,
            received => received?,
        };
        now = clock::now();
        if stop.is_requested() || (last_reply == started && now.since(started) > silence) {
            break;
        }
        if received > 0 {
            progress.add(client.take_replies(received, &mut load, now));
            last_reply = now;
        }
    }
    let cpu_time = cpu_from.map_or(Duration::ZERO, |from| clock::thread_cpu_time().saturating_sub(from));
    Ok(ClientOutcome { summary: load.summary(), cpu_time })
}

struct Client<'a> {
    config: &'a ClientConfig,
    socket: Arc<OwnedFd>,
    /// Requests made and not yet taken by the kernel are at `unsent..gathered`.
    outgoing: Box<[u8]>,
    unsent: usize,
    gathered: usize,
    /// The beginning of a reply whose rest has not come is at `..partial`.
    incoming: Box<[u8]>,
    partial: usize,
}

impl<'a> Client<'a> {
    fn open(config: &'a ClientConfig) -> Result<Self, PlainError> {
        let socket = connect_tcp(config.target)?;
        set_receive_timeout(&socket, config.load.loss_timeout)?;
        rustix::thread::set_current_timer_slack(Some(std::num::NonZeroU64::MIN))
            .map_err(|source| PlainError::Option { option: "PR_SET_TIMERSLACK", source: source.into() })?;
        let room = GATHERED_BYTES_MAX.max(config.load.payload_len);
        Ok(Self {
            config,
            socket,
            outgoing: vec![0; room].into(),
            unsent: 0,
            gathered: 0,
            incoming: vec![0; room].into(),
            partial: 0,
        })
    }

    /// Puts what is due behind what is still to be sent, as far as there is room.
    fn gather_due(&mut self, load: &mut Load, now: Instant) {
        let len = self.config.load.payload_len;
        if self.unsent == self.gathered {
            (self.unsent, self.gathered) = (0, 0);
        }
        while self.gathered + len <= self.outgoing.len()
            && let Some(id) = load.due(now)
        {
            load.write(id, &mut self.outgoing[self.gathered..][..len]);
            load.sent(id, now);
            self.gathered += len;
        }
    }

    /// As much as the kernel takes now: waiting here while the server waits for us to read would be for ever.
    fn send_gathered(&mut self) -> Result<(), PlainError> {
        while self.unsent < self.gathered {
            let rest = &self.outgoing[self.unsent..self.gathered];
            match send(&self.socket, rest, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(sent) => self.unsent += sent,
                Err(Errno::INTR) => {}
                Err(error) if is_transient(error) => return Ok(()),
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(PlainError::Closed(self.config.target)),
                Err(error) => {
                    return Err(PlainError::Send { target: self.config.target, source: error.into() });
                }
            }
        }
        Ok(())
    }

    /// Waits as the mode says and takes bytes; returns how many.
    fn receive(&mut self, load: &Load, spins: bool, now: Instant) -> Result<usize, PlainError> {
        let mut flags = if spins { RecvFlags::DONTWAIT } else { RecvFlags::empty() };
        let stuck = self.unsent < self.gathered;
        if !spins && (stuck || load.config().rate_per_s.is_some()) {
            self.sleep_until(load.next_deadline(), now, stuck)?;
            flags = RecvFlags::DONTWAIT;
        }
        match recv(&self.socket, &mut self.incoming[self.partial..], flags) {
            Ok((0, _)) => Err(PlainError::Closed(self.config.target)),
            Ok((len, _)) => Ok(len),
            Err(error) if is_transient(error) => Ok(0),
            Err(Errno::CONNRESET) => Err(PlainError::Closed(self.config.target)),
            Err(error) => Err(PlainError::Receive(error.into())),
        }
    }

    /// Cuts the stream into replies; returns how many were whole.
    fn take_replies(&mut self, received: usize, load: &mut Load, now: Instant) -> u64 {
        let available = self.partial + received;
        let mut replies = 0;
        let chunks = self.incoming[..available].chunks_exact(self.config.load.payload_len);
        let rest = chunks.remainder().len();
        for payload in chunks {
            load.reply(payload, now);
            replies += 1;
        }
        self.incoming.copy_within(available - rest..available, 0);
        self.partial = rest;
        replies
    }

    /// Until bytes are there, the kernel takes more of ours (if `stuck`), or `deadline` has come.
    fn sleep_until(&self, deadline: Instant, now: Instant, stuck: bool) -> Result<(), PlainError> {
        let wait_ns = deadline.nanos_since(now);
        let timeout =
            Timespec { tv_sec: (wait_ns / 1_000_000_000) as i64, tv_nsec: (wait_ns % 1_000_000_000) as i64 };
        let events = if stuck { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let mut fds = [PollFd::new(&self.socket, events)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(PlainError::Poll(error.into())),
        }
    }
}
