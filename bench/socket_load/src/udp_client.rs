//! The UDP client: it offers a [`Load`] over one connected socket.
//!
//! Without `batch`, one send carries one request and one receive takes one reply. With `batch`, a system
//! call sends all requests that are due, or receives all replies that have arrived, up to [`BURST_MAX`]. With `segments`,
//! the requests of such a call are one message, and replies come as the kernel has coalesced them.

use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use twinpath_load::{Codec, Load, RequestId};
use twinpath_sys::{affinity, clock};
use twinpath_time::Instant;

use crate::burst::{BURST_MAX, Burst, receive_coalesced};
use crate::client::{Account, Transfers, set_timer_slack};
use crate::segments::MESSAGE_BYTES_MAX;
use crate::socket::{connect_udp, is_icmp, is_transient, set_receive_timeout};
use crate::stop::{Progress, Stop};
use crate::udp_echo::DATAGRAM_BYTES;
use crate::{ClientConfig, ClientOutcome, SocketError};

/// Messages of coalesced replies that a call receives.
const COALESCED: usize = 4;

/// Offers the load on the calling thread until it is done or `stop` is requested.
///
/// # Errors
/// The configuration is impossible, nothing listens at the target, or the socket failed before a reply
/// arrived.
pub fn udp_client(
    config: &ClientConfig,
    codec: Box<dyn Codec>,
    stop: &Stop,
    progress: &Progress,
) -> Result<ClientOutcome, SocketError> {
    UdpClient::connect(config, codec)?.run(stop, progress)
}

/// A client with a connected socket that has not sent anything.
pub struct UdpClient {
    config: ClientConfig,
    codec: Box<dyn Codec>,
    socket: Arc<OwnedFd>,
}

impl UdpClient {
    /// Opens the socket; nothing is sent.
    ///
    /// # Errors
    /// The configuration is impossible, there is no route to the target, or the kernel lacks `UDP_GRO`.
    pub fn connect(config: &ClientConfig, codec: Box<dyn Codec>) -> Result<Self, SocketError> {
        config.load.validate()?;
        let socket = connect_udp(config.target, config.source)?;
        set_receive_timeout(&socket, config.load.loss_timeout)?;
        if config.segments {
            receive_coalesced(&socket)
                .map_err(|source| SocketError::Option { option: "UDP_GRO", source: source.into() })?;
        }
        Ok(Self { config: *config, codec, socket })
    }

    /// Offers the load on the calling thread until it is done or `stop` is requested.
    ///
    /// # Errors
    /// The CPU may not be used, or the socket failed before a reply arrived.
    pub fn run(self, stop: &Stop, progress: &Progress) -> Result<ClientOutcome, SocketError> {
        let Self { config, codec, socket } = self;
        if let Some(cpu) = config.cpu {
            affinity::pin_current_thread(cpu)?;
        }
        set_timer_slack()?;
        stop.watch(&socket);
        let mut flow = Flow::new(config, &*codec, socket);
        let mut load = Load::new(config.load, codec, clock::now())?;
        let mut account = Account::default();
        let ended = flow.offer(&mut load, &mut account, stop, progress);
        account.outcome(&load, flow.transfers, ended, stop)
    }
}

struct Flow {
    config: ClientConfig,
    socket: Arc<OwnedFd>,
    reply_room: usize,
    /// Requests to be sent, then received replies.
    burst: Burst,
    /// For coalesced replies.
    coalesced: Option<Burst>,
    ids: [RequestId; BURST_MAX],
    /// Whether any reply has arrived: before the first one, a refusal means that nobody listens.
    answered: bool,
    transfers: Transfers,
}

impl Flow {
    fn new(config: ClientConfig, codec: &dyn Codec, socket: Arc<OwnedFd>) -> Self {
        let request_len = codec.request_len_max();
        let mut slots = if config.batch { (config.load.inflight as usize).min(BURST_MAX) } else { 1 };
        if config.segments {
            slots = slots.min(MESSAGE_BYTES_MAX / request_len.max(1)).max(1);
        }
        // One byte more than expected, so that a longer reply is detected.
        let reply_room = codec.reply_len_max() + 1;
        Self {
            config,
            socket,
            reply_room,
            burst: Burst::new(slots, reply_room.max(request_len)),
            coalesced: config.segments.then(|| Burst::new(COALESCED, DATAGRAM_BYTES)),
            ids: [0; BURST_MAX],
            answered: false,
            transfers: Transfers::default(),
        }
    }

    fn offer(
        &mut self,
        load: &mut Load,
        account: &mut Account,
        stop: &Stop,
        progress: &Progress,
    ) -> Result<(), SocketError> {
        let mut now = clock::now();
        let mut last_reply = now;
        while !load.done(now) && !stop.is_requested() {
            account.begin(load, now, &self.transfers);
            load.expire(now);
            self.send_due(load, now)?;
            let spins = self.config.wait.spins(last_reply, now);
            let count = self.receive(load, spins, now)?;
            // A socket that was shut down reads as an empty datagram.
            if stop.is_requested() {
                break;
            }
            let (taken, replies) = self.take_replies(count, load);
            now = taken;
            if replies > 0 {
                last_reply = now;
                self.answered = true;
                progress.add(replies as u64);
            }
            if load.is_hopeless(now) {
                break;
            }
        }
        Ok(())
    }

    /// Passes on the replies of the received messages. Returns when the last one was verified; with `batch`, when the
    /// first one was about to be verified; and their number.
    #[inline]
    fn take_replies(&mut self, count: usize, load: &mut Load) -> (Instant, usize) {
        if let Some(coalesced) = &self.coalesced {
            let now = clock::now();
            let mut replies = 0;
            for slot in 0..count {
                let message = coalesced.payload(slot);
                let each = match coalesced.segment_size(slot) {
                    0 => message.len().max(1),
                    size => usize::from(size),
                };
                for reply in message.chunks(each) {
                    load.reply(reply, now);
                    replies += 1;
                }
            }
            return (now, replies);
        }
        if count == 1 {
            let answer = load.check(self.burst.payload(0));
            let now = clock::now();
            load.answer(answer, now);
            return (now, 1);
        }
        let now = clock::now();
        for slot in 0..count {
            load.reply(self.burst.payload(slot), now);
        }
        (now, count)
    }

    /// Sends the one request that is due, or all of them, in bursts.
    fn send_due(&mut self, load: &mut Load, now: Instant) -> Result<(), SocketError> {
        loop {
            let mut count = 0;
            while count < self.burst.slots()
                && let Some(id) = load.due(now)
            {
                load.write(id, self.burst.payload_mut(count, load.codec().request_len(id)));
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
            if !self.config.batch || count < self.burst.slots() {
                return Ok(());
            }
        }
    }

    /// How many of the first of these requests have one length.
    fn equal(&self, slots: Range<usize>) -> usize {
        let first = self.burst.payload(slots.start).len();
        slots.take_while(|slot| self.burst.payload(*slot).len() == first).count()
    }

    fn send_burst(&mut self, count: usize) -> Result<(), SocketError> {
        let mut next = 0;
        while next < count {
            let together = if self.config.segments { self.equal(next..count) } else { 1 };
            let sent = if count == 1 {
                send(&self.socket, self.burst.payload(0), SendFlags::empty()).map(|_| 1)
            } else if together > 1 {
                let (slots, each) = (next..next + together, self.burst.payload(next).len());
                let sent = self.burst.send_segmented(self.socket.as_fd(), slots, each as u16, false);
                sent.map(|()| together)
            } else if self.config.segments {
                self.burst.send(self.socket.as_fd(), next..next + 1, false)
            } else {
                self.burst.send(self.socket.as_fd(), next..count, false)
            };
            match sent {
                Ok(sent) => {
                    let slots = next..next + sent;
                    self.transfers.sent(slots.map(|slot| self.burst.payload(slot).len()).sum());
                    next += sent;
                }
                Err(Errno::INTR) => {}
                // A datagram that the kernel refuses counts as lost.
                Err(Errno::NOBUFS | Errno::NOMEM | Errno::AGAIN) => {
                    next += together;
                    self.transfers.sends_refused += 1;
                }
                // Shut down: the caller will notice.
                Err(Errno::PIPE) => return Ok(()),
                // An ICMP error about an earlier request: this one was not sent yet.
                Err(error) if is_icmp(error) => self.tolerate(error)?,
                Err(error) => {
                    return Err(SocketError::Send { target: self.config.target, source: error.into() });
                }
            }
        }
        Ok(())
    }

    /// Waits as configured, but at most until the load's next deadline, and receives.
    fn receive(&mut self, load: &Load, spins: bool, now: Instant) -> Result<usize, SocketError> {
        // If there are requests to send, it does not wait.
        let mut nonblocking = spins || load.has_due(now);
        if !nonblocking && load.config().rate_per_s.is_some() {
            self.sleep_until(load.next_deadline(), now)?;
            nonblocking = true;
        }
        let received = if let Some(coalesced) = &mut self.coalesced {
            coalesced.receive(self.socket.as_fd(), nonblocking, false, true)
        } else if self.burst.slots() == 1 {
            let flags = if nonblocking { RecvFlags::DONTWAIT } else { RecvFlags::empty() };
            let received = recv(&self.socket, self.burst.payload_mut(0, self.reply_room), flags);
            received.map(|(len, _)| {
                self.burst.payload_mut(0, len);
                1
            })
        } else {
            self.burst.receive(self.socket.as_fd(), nonblocking, false, false)
        };
        match received {
            Ok(count) => {
                let burst = self.coalesced.as_ref().unwrap_or(&self.burst);
                self.transfers.received((0..count).map(|slot| burst.payload(slot).len()).sum());
                Ok(count)
            }
            Err(error) if is_transient(error) => {
                self.transfers.receives_empty += 1;
                Ok(0)
            }
            Err(error) if is_icmp(error) => self.tolerate(error).map(|()| 0),
            Err(error) => Err(SocketError::Receive(error.into())),
        }
    }

    /// A server that answered before may be restarting: missing replies are counted and do not end the run.
    fn tolerate(&self, error: Errno) -> Result<(), SocketError> {
        let target = self.config.target;
        match error {
            _ if self.answered => Ok(()),
            Errno::CONNREFUSED => Err(SocketError::Refused(target)),
            _ => Err(SocketError::Unreachable { target, source: error.into() }),
        }
    }

    /// Sleeps until a datagram has arrived or `deadline` has passed.
    fn sleep_until(&self, deadline: Instant, now: Instant) -> Result<(), SocketError> {
        let wait_ns = deadline.nanos_since(now);
        let timeout =
            Timespec { tv_sec: (wait_ns / 1_000_000_000) as i64, tv_nsec: (wait_ns % 1_000_000_000) as i64 };
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(SocketError::Poll(error.into())),
        }
    }
}
