//! Sends what a service sends besides answers: further datagrams in reply to one, and messages from its
//! timer, another thread or another connection. Each leaves by the path that leads to its peer at that
//! time.

use std::net::SocketAddr;

use twinpath_inspect::Reason;
use twinpath_port::PortId;
use twinpath_service::{Begin, Message, Outbox, Recipient, Service};
use twinpath_time::{Duration, Instant};
use twinpath_udp::admit::is_among;
use twinpath_worker::Io;

use super::{ServeEngine, ServeEvent, ifindex_of};
use crate::fast_tcp::{MARK, with_scope};

/// Maximum number of messages from other threads taken per turn.
const MESSAGES_PER_TURN: usize = 64;

/// Minimum time between two calls of a timer that stays due.
const TIMER_PAUSE: Duration = Duration::from_millis(100);

/// Maximum number of bytes sent in one turn, so that ports and connections are served in between.
const TURN_BYTES: usize = 256 << 10;

/// The request that caused a send.
#[derive(Clone, Copy)]
pub(super) enum Cause {
    /// A datagram, with its input port, or `None` for the kernel's socket.
    Request(Option<PortId>),
    /// No request.
    Own,
}

impl<S: Service> ServeEngine<S> {
    /// Starts the service.
    pub(super) fn begin(&mut self, now: Instant, io: &Io<'_, ServeEvent>) {
        let sender = self.sends.as_ref().map(|sends| sends.handle());
        let begin = Begin::new(self.worker, sender);
        if let Err(reason) = self.service.call("start", |service| service.start(now, &begin)) {
            io.drops().add(reason, 1);
        }
    }

    /// When the service's timer is due. This clone has none while another instance or another worker
    /// serves. It has none either once another instance has taken over: then that instance's clones have
    /// the timers.
    #[inline]
    pub(super) fn timer_at(&self) -> Instant {
        if self.waits || self.handed_over {
            Instant::NEVER
        } else {
            self.service.get().deadline().max(self.timer_not_before)
        }
    }

    /// Calls the service's timer, which is due.
    #[cold]
    pub(super) fn run_timer(&mut self, now: Instant, io: &mut Io<'_, ServeEvent>) {
        let outbox = &mut self.beside.outbox;
        if let Err(reason) = self.service.call("timer", |service| service.timer(now, outbox)) {
            self.beside.outbox.clear();
            io.drops().add(reason, 1);
        }
        self.send_besides(now, Cause::Own, io);
        // The service has panicked, or has not moved its deadline: called in each turn, it would take all
        // of the CPU.
        self.timer_not_before =
            if self.service.get().deadline() <= now { now + TIMER_PAUSE } else { Instant::ZERO };
    }

    /// Takes messages from other threads; returns their number.
    pub(super) fn take_messages(&mut self, now: Instant, io: &mut Io<'_, ServeEvent>) -> usize {
        let Some(refused) = self.sends.as_ref().map(|sends| sends.drain()) else { return 0 };
        io.drops().add(Reason::SendQueueFull, refused);
        let mut bytes_sent = 0;
        for count in 0..MESSAGES_PER_TURN {
            if bytes_sent >= TURN_BYTES {
                break;
            }
            match self.sends.as_ref().and_then(|sends| sends.take()) {
                None => return count,
                Some(Message::Send(to, bytes)) => {
                    bytes_sent += bytes.len();
                    self.send_one(now, Cause::Own, to, &bytes, io);
                }
                Some(Message::Notify(number)) => {
                    let outbox = &mut self.beside.outbox;
                    let told = self.service.call("notified", |service| service.notified(now, number, outbox));
                    if let Err(reason) = told {
                        self.beside.outbox.clear();
                        io.drops().add(reason, 1);
                    }
                    bytes_sent += self.beside.outbox.bytes();
                    self.send_besides(now, Cause::Own, io);
                }
            }
        }
        if let Some(sends) = &self.sends {
            sends.go_on();
        }
        MESSAGES_PER_TURN
    }

    /// During a drain: takes the waiting messages, and closes the queue once nothing else is left. Returns
    /// whether there was anything.
    pub(super) fn take_last_messages(&mut self, now: Instant, io: &mut Io<'_, ServeEvent>) -> bool {
        if !self.answers_all() {
            return false;
        }
        let taken = self.take_messages(now, io) > 0;
        if !taken {
            // From now on, senders are told that the service has ended.
            if let Some(sends) = self.sends.take() {
                let _ = io.fds.unwatch(sends.fd());
            }
        }
        taken
    }

    /// The drain has taken too long: closes the queue. Returns how many waiting messages are lost.
    pub(super) fn cut_messages(&mut self, io: &mut Io<'_, ServeEvent>) -> u64 {
        let Some(sends) = self.sends.take() else { return 0 };
        let _ = io.fds.unwatch(sends.fd());
        io.drops().add(Reason::SendQueueFull, sends.drain());
        std::iter::from_fn(|| sends.take()).count() as u64
    }

    /// Sends the contents of the service's outbox.
    pub(super) fn send_besides(&mut self, now: Instant, cause: Cause, io: &mut Io<'_, ServeEvent>) {
        // Sending needs the engine, so the outbox is moved out of it meanwhile; its memory is put back.
        let mut outbox: Outbox = std::mem::take(&mut self.beside.outbox);
        for (to, bytes) in outbox.sends() {
            self.send_one(now, cause, to, bytes, io);
        }
        outbox.clear();
        self.beside.outbox = outbox;
    }

    fn send_one(
        &mut self,
        now: Instant,
        cause: Cause,
        to: Recipient,
        bytes: &[u8],
        io: &mut Io<'_, ServeEvent>,
    ) {
        let sent = match to {
            Recipient::Peer { local, peer } => self.send_to_peer(now, cause, (local, peer), bytes, io),
            Recipient::Connection(connection) if connection.number() & MARK != 0 => {
                match self.fast(now, io) {
                    Some((fast, mut call)) => fast.server.push(connection, bytes, &mut call),
                    None => Err(Reason::LateReply),
                }
            }
            Recipient::Connection(connection) => match self.tcp(now, io) {
                Some((tcp, mut call)) => tcp.push(connection, bytes, &mut call),
                None => Err(Reason::LateReply),
            },
        };
        if let Err(reason) = sent {
            io.drops().add(reason, 1);
        }
    }

    fn send_to_peer(
        &mut self,
        now: Instant,
        cause: Cause,
        (local, peer): (SocketAddr, SocketAddr),
        bytes: &[u8],
        io: &mut Io<'_, ServeEvent>,
    ) -> Result<(), Reason> {
        let on_interface = is_among(&self.addresses, local.ip());
        if !on_interface && !self.is_own(local.ip()) {
            return Err(Reason::NotOwnAddress);
        }
        // The service has no socket there, so the address and port are not served.
        if !self.udp.iter().any(|socket| socket.is_at(local)) {
            return Err(Reason::KernelSocketRefused);
        }
        let port = match cause {
            // Each of them counts as a reply as large as its request, even if it is short: together they
            // may be larger.
            Cause::Request(port) => {
                self.limit(now, peer, 0, bytes.len())?;
                port
            }
            Cause::Own => self.ports.first().map(|(port, _)| *port),
        };
        let Some(port) = port.filter(|_| on_interface) else {
            return self.send_by_kernel(bytes, peer, local);
        };
        if io.is_withdrawn(port) {
            return Err(Reason::WorkerStuck);
        }
        if self.send_by_port(now, port, bytes, (local, peer), io)? {
            self.counters.fast_replies.add(1);
            return Ok(());
        }
        self.counters.fast_replies_by_kernel.add(1);
        self.send_by_kernel(bytes, with_scope(peer, ifindex_of(port, io)), local)
    }
}
