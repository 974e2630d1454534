//! The TCP client: it sends requests on one connection, and its codec divides the stream into replies.
//!
//! Without `batch`, one send carries one request and one receive takes one reply, as in a client that waits
//! for each answer: a receive reads no more bytes than the next reply has, if its length is known. With
//! `batch`, a send carries all requests that are due, and a receive takes all bytes that have arrived.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use twinpath_load::{Codec, Cut, Load};
use twinpath_sys::{affinity, clock};
use twinpath_time::Instant;

use crate::client::{Account, Transfers, set_timer_slack};
use crate::socket::{connect_tcp, is_transient, set_receive_timeout};
use crate::stop::{Progress, Stop};
use crate::{ClientConfig, ClientOutcome, SocketError};

/// Maximum number of bytes of requests per send (or one request, if that is larger), and of a receive.
const QUEUED_BYTES_MAX: usize = 64 << 10;

/// Connects, and offers the load on the calling thread until it is done or `stop` is requested.
///
/// # Errors
/// The configuration is impossible, nothing listens at the target, or the connection broke before a reply
/// arrived.
pub fn tcp_client(
    config: &ClientConfig,
    codec: Box<dyn Codec>,
    stop: &Stop,
    progress: &Progress,
) -> Result<ClientOutcome, SocketError> {
    TcpClient::connect(config, codec)?.run(stop, progress)
}

/// A connected client that has not sent anything.
pub struct TcpClient {
    codec: Box<dyn Codec>,
    connection: Connection,
}

impl TcpClient {
    /// Connects.
    ///
    /// # Errors
    /// The configuration is impossible, or nothing listens at the target.
    pub fn connect(config: &ClientConfig, codec: Box<dyn Codec>) -> Result<Self, SocketError> {
        config.load.validate()?;
        let socket = connect_tcp(config.target, config.source, config.nagle)?;
        set_receive_timeout(&socket, config.load.loss_timeout)?;
        let request_max = codec.request_len_max();
        let outgoing = if config.batch { QUEUED_BYTES_MAX.max(request_max) } else { request_max };
        let incoming = QUEUED_BYTES_MAX.max(codec.reply_len_max());
        let connection = Connection {
            config: *config,
            socket,
            request_max,
            outgoing: vec![0; outgoing].into(),
            unsent: 0,
            queued: 0,
            incoming: vec![0; incoming].into(),
            partial: 0,
            missing: 0,
            transfers: Transfers::default(),
        };
        Ok(Self { codec, connection })
    }

    /// Offers the load on the calling thread until it is done or `stop` is requested.
    ///
    /// # Errors
    /// The CPU may not be used, or the connection broke before a reply arrived.
    pub fn run(self, stop: &Stop, progress: &Progress) -> Result<ClientOutcome, SocketError> {
        let Self { codec, mut connection } = self;
        if let Some(cpu) = connection.config.cpu {
            affinity::pin_current_thread(cpu)?;
        }
        set_timer_slack()?;
        stop.watch(&connection.socket);
        let mut load = Load::new(connection.config.load, codec, clock::now())?;
        let mut account = Account::default();
        let ended = connection.offer(&mut load, &mut account, stop, progress);
        let mut outcome = account.outcome(&load, connection.transfers, ended, stop)?;
        let begun = connection.partial;
        if outcome.summary.received == 0 && begun > 0 {
            let cut = || format!("a reply that ends after {begun} bytes, {} too early", connection.missing);
            outcome.complaint.get_or_insert_with(cut);
        }
        Ok(outcome)
    }
}

struct Connection {
    config: ClientConfig,
    socket: Arc<OwnedFd>,
    request_max: usize,
    /// Requests that the kernel has not taken yet are at `unsent..queued`.
    outgoing: Box<[u8]>,
    unsent: usize,
    queued: usize,
    /// The received beginning of an incomplete reply is at `..partial`.
    incoming: Box<[u8]>,
    partial: usize,
    /// Minimum number of bytes that are missing of the next reply.
    missing: usize,
    transfers: Transfers,
}

impl Connection {
    fn offer(
        &mut self,
        load: &mut Load,
        account: &mut Account,
        stop: &Stop,
        progress: &Progress,
    ) -> Result<(), SocketError> {
        let mut now = clock::now();
        let mut last_reply = now;
        self.take_replies(0, load)?;
        while !load.done(now) && !stop.is_requested() {
            account.begin(load, now, &self.transfers);
            load.expire(now);
            self.queue_due(load, now);
            self.send_queued()?;
            let received = self.receive(load, self.config.wait.spins(last_reply, now), now)?;
            if received == 0 {
                now = clock::now();
            } else if !stop.is_requested() {
                let replies;
                (replies, now) = self.take_replies(received, load)?;
                progress.add(replies);
                last_reply = now;
            }
            if load.is_hopeless(now) {
                break;
            }
        }
        Ok(())
    }

    /// Adds the due requests after those not sent yet, while there is room.
    fn queue_due(&mut self, load: &mut Load, now: Instant) {
        if self.unsent == self.queued {
            (self.unsent, self.queued) = (0, 0);
        }
        while self.queued + self.request_max <= self.outgoing.len()
            && let Some(id) = load.due(now)
        {
            let len = load.codec().request_len(id);
            load.write(id, &mut self.outgoing[self.queued..][..len]);
            load.sent(id, now);
            self.queued += len;
        }
    }

    /// Sends as many bytes as the kernel takes now. It never waits, because the server may be waiting for
    /// us to read.
    fn send_queued(&mut self) -> Result<(), SocketError> {
        while self.unsent < self.queued {
            let rest = &self.outgoing[self.unsent..self.queued];
            match send(&self.socket, rest, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(sent) => {
                    self.unsent += sent;
                    self.transfers.sent(sent);
                }
                Err(Errno::INTR) => {}
                Err(error) if is_transient(error) => {
                    self.transfers.sends_refused += 1;
                    return Ok(());
                }
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(SocketError::Closed(self.config.target)),
                Err(error) => {
                    return Err(SocketError::Send { target: self.config.target, source: error.into() });
                }
            }
        }
        Ok(())
    }

    /// Waits as configured and receives bytes; returns their number.
    fn receive(&mut self, load: &Load, spins: bool, now: Instant) -> Result<usize, SocketError> {
        let stuck = self.unsent < self.queued;
        // If there are requests to send, it does not wait.
        let at_once = spins || (!stuck && load.has_due(now));
        let mut flags = if at_once { RecvFlags::DONTWAIT } else { RecvFlags::empty() };
        if !at_once && (stuck || load.config().rate_per_s.is_some()) {
            self.sleep_until(load.next_deadline(), now, stuck)?;
            flags = RecvFlags::DONTWAIT;
        }
        let room = &mut self.incoming[self.partial..];
        let room = if self.config.batch { room } else { &mut room[..self.missing] };
        match recv(&self.socket, room, flags) {
            Ok((0, _)) => Err(SocketError::Closed(self.config.target)),
            Ok((len, _)) => {
                self.transfers.received(len);
                Ok(len)
            }
            Err(error) if is_transient(error) => {
                self.transfers.receives_empty += 1;
                Ok(0)
            }
            Err(Errno::CONNRESET) => Err(SocketError::Closed(self.config.target)),
            Err(error) => Err(SocketError::Receive(error.into())),
        }
    }

    /// Divides the stream into replies. Returns how many were complete, and when the last one was verified; with
    /// `batch`, when the first one was about to be verified.
    fn take_replies(&mut self, received: usize, load: &mut Load) -> Result<(u64, Instant), SocketError> {
        let available = self.partial + received;
        let (mut taken, mut replies) = (0, 0);
        let mut now = self.config.batch.then(clock::now);
        loop {
            let stream = &self.incoming[taken..available];
            match load.codec().cut(stream) {
                Cut::Whole(len) => {
                    let answer = load.check(&stream[..len]);
                    let at = now.filter(|_| self.config.batch).unwrap_or_else(clock::now);
                    load.answer(answer, at);
                    now = Some(at);
                    (taken, replies) = (taken + len, replies + 1);
                }
                Cut::Partial { missing } => {
                    self.missing = missing;
                    break;
                }
                Cut::Broken => {
                    load.corrupt(clock::now());
                    return Err(SocketError::Unintelligible(self.config.target));
                }
            }
        }
        if taken > 0 {
            self.incoming.copy_within(taken..available, 0);
        }
        self.partial = available - taken;
        Ok((replies, now.unwrap_or_else(clock::now)))
    }

    /// Sleeps until bytes have arrived, the kernel can take more (if `stuck`), or `deadline` has passed.
    fn sleep_until(&self, deadline: Instant, now: Instant, stuck: bool) -> Result<(), SocketError> {
        let wait_ns = deadline.nanos_since(now);
        let timeout =
            Timespec { tv_sec: (wait_ns / 1_000_000_000) as i64, tv_nsec: (wait_ns % 1_000_000_000) as i64 };
        let events = if stuck { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
        let mut fds = [PollFd::new(&self.socket, events)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(SocketError::Poll(error.into())),
        }
    }
}
