//! The UDP client: drives a [`Load`] over one connected socket.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use twinpath_load::{Load, RequestId};
use twinpath_sys::{affinity, clock};
use twinpath_time::{Duration, Instant};

use crate::burst::{BURST_MAX, Burst};
use crate::socket::{connect_udp, is_icmp, is_transient, set_receive_timeout};
use crate::stop::{Progress, Stop};
use crate::{ClientConfig, ClientOutcome, PlainError, SILENT_TIMEOUTS};

/// Offers the load in the calling thread until it is done or `stop` is requested.
///
/// # Errors
/// The configuration is impossible, nothing listens at the target, or the socket fails.
pub fn udp_client(
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
        client.send_due(&mut load, now)?;
        let spins = config.wait.spins(last_reply, now);
        let count = client.receive(&load, spins, now)?;
        now = clock::now();
        if !client.answered && now.since(started) > silence {
            break;
        }
        // A socket shut down reads as an empty datagram.
        if stop.is_requested() {
            break;
        }
        for slot in 0..count {
            load.reply(client.burst.payload(slot), now);
        }
        if count > 0 {
            last_reply = now;
            client.answered = true;
            progress.add(count as u64);
        }
    }
    let cpu_time = cpu_from.map_or(Duration::ZERO, |from| clock::thread_cpu_time().saturating_sub(from));
    Ok(ClientOutcome { summary: load.summary(), cpu_time })
}

struct Client<'a> {
    config: &'a ClientConfig,
    socket: Arc<OwnedFd>,
    /// Requests on their way out, then replies on their way in.
    burst: Burst,
    ids: [RequestId; BURST_MAX],
    /// Whether anything ever came back: before that, a refusal means that nobody is there.
    answered: bool,
}

impl<'a> Client<'a> {
    fn open(config: &'a ClientConfig) -> Result<Self, PlainError> {
        let socket = connect_udp(config.target)?;
        set_receive_timeout(&socket, config.load.loss_timeout)?;
        // An open loop sleeps until the next request is due: to the nanosecond, not the default 50 us.
        let slack = std::num::NonZeroU64::MIN;
        rustix::thread::set_current_timer_slack(Some(slack))
            .map_err(|source| PlainError::Option { option: "PR_SET_TIMERSLACK", source: source.into() })?;
        let slots = (config.load.inflight as usize).min(BURST_MAX);
        Ok(Self {
            config,
            socket,
            // One byte more than expected, so that a longer reply shows as such.
            burst: Burst::new(slots, config.load.payload_len + 1),
            ids: [0; BURST_MAX],
            answered: false,
        })
    }

    /// Sends all that is due, in bursts.
    fn send_due(&mut self, load: &mut Load, now: Instant) -> Result<(), PlainError> {
        loop {
            let mut count = 0;
            while count < self.burst.slots()
                && let Some(id) = load.due(now)
            {
                load.write(id, self.burst.payload_mut(count, self.config.load.payload_len));
                self.ids[count] = id;
                count += 1;
            }
            if count == 0 {
                return Ok(());
            }
            self.send_burst(count)?;
            for &id in &self.ids[..count] {
                load.sent(id, now);
            }
            if count < self.burst.slots() {
                return Ok(());
            }
        }
    }

    fn send_burst(&mut self, count: usize) -> Result<(), PlainError> {
        let mut next = 0;
        while next < count {
            let sent = if count == 1 {
                send(&self.socket, self.burst.payload(0), SendFlags::empty()).map(|_| 1)
            } else {
                self.burst.send(self.socket.as_fd(), next..count, false)
            };
            match sent {
                Ok(sent) => next += sent,
                Err(Errno::INTR) => {}
                // A refused datagram is a lost one.
                Err(Errno::NOBUFS | Errno::NOMEM | Errno::AGAIN) => next += 1,
                // Shut down: the caller will see.
                Err(Errno::PIPE) => return Ok(()),
                // An ICMP error about an earlier request: this one has not gone yet.
                Err(error) if is_icmp(error) => self.tolerate(error)?,
                Err(error) => {
                    return Err(PlainError::Send { target: self.config.target, source: error.into() });
                }
            }
        }
        Ok(())
    }

    /// Waits as the mode says, no longer than until the load's next deadline, and takes what came.
    fn receive(&mut self, load: &Load, spins: bool, now: Instant) -> Result<usize, PlainError> {
        let mut nonblocking = spins;
        if !spins && load.config().rate_per_s.is_some() {
            self.sleep_until(load.next_deadline(), now)?;
            nonblocking = true;
        }
        let received = if self.burst.slots() == 1 {
            let flags = if nonblocking { RecvFlags::DONTWAIT } else { RecvFlags::empty() };
            let room = self.config.load.payload_len + 1;
            let received = recv(&self.socket, self.burst.payload_mut(0, room), flags);
            received.map(|(len, _)| {
                self.burst.payload_mut(0, len);
                1
            })
        } else {
            self.burst.receive(self.socket.as_fd(), nonblocking, false, false)
        };
        match received {
            Ok(count) => Ok(count),
            Err(error) if is_transient(error) => Ok(0),
            Err(error) if is_icmp(error) => self.tolerate(error).map(|()| 0),
            Err(error) => Err(PlainError::Receive(error.into())),
        }
    }

    /// A server that answered before may be restarting: its silence is counted, not fatal.
    fn tolerate(&self, error: Errno) -> Result<(), PlainError> {
        let target = self.config.target;
        match error {
            _ if self.answered => Ok(()),
            Errno::CONNREFUSED => Err(PlainError::Refused(target)),
            _ => Err(PlainError::Unreachable { target, source: error.into() }),
        }
    }

    /// Until a datagram is there or `deadline` has come.
    fn sleep_until(&self, deadline: Instant, now: Instant) -> Result<(), PlainError> {
        let wait_ns = deadline.nanos_since(now);
        let timeout =
            Timespec { tv_sec: (wait_ns / 1_000_000_000) as i64, tv_nsec: (wait_ns % 1_000_000_000) as i64 };
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(PlainError::Poll(error.into())),
        }
    }
}
