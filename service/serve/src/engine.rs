//! The engine of one service on one worker. It serves frames of the fast path, and datagrams and connections of
//! the kernel's sockets.

mod change;
mod fast;
mod kernel_udp;
mod late;
mod list;
mod moves;
mod sends;

use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use twinpath_frame::{Burst, Frame};
use twinpath_inspect::Reason;
use twinpath_port::{Capabilities, PortId};
use twinpath_service::{Answer, Beside, Datagram, Keeper, Service};
use twinpath_stream::TcpLimits;
use twinpath_sys::UdpSocket;
use twinpath_time::Instant;
use twinpath_udp::admit::{SourcePorts, admit, is_among};
use twinpath_udp::egress::{Egress, EgressTable, Update};
use twinpath_udp::reply_limit::ReplyLimit;
use twinpath_udp::served::Served;
use twinpath_udp::udp;
use twinpath_wire::{Protocol, TooBig};
use twinpath_worker::{Attached, Engine, Io};

use crate::fast_tcp::{FIRST_MOVED_TOKEN, FastTcp, FastTcpConfig, with_scope};
use crate::handlers::{Guarded, HandlerPool, Panicked, Sends};
use crate::kernel_tcp::{self, FIRST_TOKEN, KernelListener, LISTENERS_MAX, TcpCall, TcpServer};
use crate::streams::{CHUNK, Ready, TcpTotals};
use twinpath_inspect::ServeCounters;

use self::late::{Awaited, Origin};
use self::sends::Cause;
use crate::frames;
use crate::limits::{ServiceLimits, unforeseeable};
use crate::listing::Listing;

/// The longest UDP payload, in bytes.
const DATAGRAM_MAX: usize = 65_535;

/// Maximum number of kernel sockets per transport: there is one per served address.
pub const SOCKETS_MAX: u32 = 128;

/// Tokens: 0.. for the UDP sockets, then one for the handler pool and one for messages from other threads.
/// The tokens of the TCP server begin at [`FIRST_TOKEN`].
const UDP_TOKEN: u32 = 0;
const HANDLERS_TOKEN: u32 = UDP_TOKEN + SOCKETS_MAX;
const SENDS_TOKEN: u32 = HANDLERS_TOKEN + 1;
const _: () = assert!(SENDS_TOKEN < FIRST_TOKEN && LISTENERS_MAX >= WORKERS_MAX * SOCKETS_MAX);

/// Maximum number of workers whose listeners one engine may have.
const WORKERS_MAX: u32 = 64;

/// The configuration of a serving engine.
pub struct ServeConfig {
    /// What is served.
    pub served: Arc<Served>,
    /// The present addresses of this host at which packets can arrive on the interface. Sorted.
    pub addresses: Arc<[IpAddr]>,
    /// Maximum number of replies per second to one source that are as large as their requests; 0: no limit.
    /// See [`ServiceLimits::new`].
    pub reply_rate: u32,
    /// Whether requests from every source port are answered, even if a reply could loop. See
    /// [`ServiceLimits::new`].
    pub any_source_port: bool,
    /// The store for replies that the service keeps; `None`: nothing is kept.
    pub keeper: Option<Box<dyn Keeper>>,
    /// The kernel's sockets.
    pub kernel: KernelSide,
    /// How connections are served on the fast path; `None`: only on the kernel path. The number of connections and
    /// their limits are those of [`Self::kernel`], for both paths together.
    pub fast_tcp: Option<FastTcpConfig>,
}

/// One worker's part of the service's kernel sockets.
pub struct KernelSide {
    /// The UDP sockets of the served ports, at most [`SOCKETS_MAX`]. Every worker may send through them.
    pub udp: Arc<[UdpSocket]>,
    /// Whether this worker also receives from the UDP sockets.
    pub receives: bool,
    /// The TCP listeners of this worker, or, for a stand-in, of several workers; at most [`SOCKETS_MAX`] per
    /// worker.
    pub listeners: Vec<OwnedFd>,
    /// Maximum number of TCP connections of this worker: its part of [`TcpLimits::connections`].
    pub connections: u32,
    /// The connections and bytes of the service over all workers, with their limits.
    pub totals: Arc<TcpTotals>,
    /// The threads for work that may block, if the service has such work.
    pub handlers: Option<HandlerPool>,
    /// Messages from other threads, if the service uses them.
    pub sends: Option<Sends>,
    /// The worker's number.
    pub worker: u32,
    /// Whether another instance serves the sockets until [`ServeCommand::Begin`].
    pub waits: bool,
    /// Whether the TCP listeners have a socket filter, which accepted sockets must not have.
    pub guarded: bool,
}

impl Default for KernelSide {
    /// No sockets, for a service with only the fast path.
    fn default() -> Self {
        let totals = Arc::new(TcpTotals::new(TcpLimits::default(), 1));
        Self {
            udp: [].into(),
            receives: false,
            listeners: Vec::new(),
            connections: totals.limits().connections,
            totals,
            handlers: None,
            sends: None,
            worker: 0,
            waits: false,
            guarded: false,
        }
    }
}

/// A command of control to a serving engine.
#[derive(Clone)]
pub enum ServeCommand {
    /// The kernel's answer about the egress to a peer, or a notice that former answers are out of date.
    Egress(Update),
    /// A router says that a segment was too long. Anybody can say so: the engine compares it with what is in flight.
    TooBig(TooBig),
    /// The present addresses of this host at which packets can arrive on the interface. Sorted.
    Addresses(Arc<[IpAddr]>),
    /// Routes, links or addresses of this host have changed. To be said while the interface is gone, after
    /// [`Self::LeaveGone`]: what waits since then is tried again.
    Routes,
    /// Start to serve the kernel's sockets.
    Begin,
    /// Leave the kernel's sockets to another instance until the next [`Self::Begin`]; continue to serve open
    /// connections.
    StepBack,
    /// Accept no more, and close every connection once its requests are answered.
    Drain {
        /// Whether another instance has the same listeners, and accepts the connections that wait in them.
        handed_over: bool,
    },
    /// The drain has taken too long: close all remaining connections.
    Cut,
    /// The fast path ends, perhaps for ever: its connections go on in sockets of the kernel, and their tuples are the
    /// kernel's. What cannot go on is reset. To be sent once the programs are detached and before the ports go, so that
    /// resets still leave.
    Leave,
    /// The same as the interface is gone with its addresses: what cannot go on without them waits until they are back, or a
    /// port is attached.
    LeaveGone,
}

/// A message of a serving engine to control.
pub enum ServeEvent {
    /// Asks for the interface and the next hop of replies to a peer.
    Resolve {
        /// The peer.
        peer: IpAddr,
        /// Our address that the replies are sent from, as policy routing may depend on it.
        local: IpAddr,
    },
    /// Memory that is no longer used, for control to free: workers free nothing.
    Reclaim(Arc<[IpAddr]>),
    /// The engine has started to serve the kernel's sockets, after [`ServeCommand::Begin`].
    Begun,
    /// No service of the worker accepts connections any more, after [`ServeCommand::Drain`] to each of them.
    ListenersClosed,
    /// No connection is left after [`ServeCommand::Drain`].
    Drained,
    /// The answer to [`DemuxCommand::Prepare`](crate::DemuxCommand::Prepare) with the same number.
    Prepared {
        /// The number of the command.
        number: u32,
        /// An error if the kernel refused to watch a descriptor of a new service.
        outcome: Result<(), Errno>,
        /// The former command, to be freed.
        former: Box<dyn Send>,
    },
    /// The answer to [`DemuxCommand::Switch`](crate::DemuxCommand::Switch) with the same number.
    Switched {
        /// The number of the command.
        number: u32,
        /// The former routes and limits, to be freed.
        former: Box<dyn Send>,
    },
    /// A service that was told to leave has drained: its part is free.
    Left {
        /// The part that is free now.
        part: usize,
        /// The engine of the service, to be freed.
        service: Box<dyn Send>,
    },
    /// The answer to [`DemuxCommand::List`](crate::DemuxCommand::List).
    Listed(Box<Listing>),
    /// The service has panicked.
    Panicked(Panicked),
}

/// Serves one service on one worker.
pub struct ServeEngine<S: Service> {
    service: Guarded<S>,
    served: Arc<Served>,
    addresses: Arc<[IpAddr]>,
    /// The worker's ports with their capabilities, updated when the worker reports a change.
    ports: Vec<(PortId, Capabilities)>,
    egress: EgressTable,
    reply_limit: Option<ReplyLimit>,
    source_ports: SourcePorts,
    udp: Arc<[UdpSocket]>,
    receives: bool,
    tcp: Option<TcpServer<S::Connection>>,
    /// The connections on the fast path.
    fast: Option<Box<FastTcp<S::Connection>>>,
    handlers: Option<HandlerPool>,
    worker: u32,
    sends: Option<Sends>,
    /// A timer that stays due is not called again before this time.
    timer_not_before: Instant,
    buffer: Box<[u8]>,
    /// Buffers for replies that do not fit the request's buffer, and the datagrams with deferred replies.
    beside: Beside,
    awaited: Awaited,
    /// Whether another instance serves the sockets.
    waits: bool,
    /// Whether another instance has taken over: this clone only ends its connections.
    handed_over: bool,
    /// Whether it has been told to drain.
    stopping: bool,
    /// Whether it has been told to drain and control does not know yet that it has drained.
    draining: bool,
    /// Whether it has been told to leave; the demultiplexer reports when it has drained.
    leaving: bool,
    counters: Arc<ServeCounters>,
}

/// The result of serving a frame.
enum Outcome {
    /// The frame now holds the reply, and leaves by this port.
    Send(PortId),
    /// The frame is released: there is no reply, it is deferred, or the kernel's socket has sent it.
    Done,
}

impl<S: Service> ServeEngine<S> {
    /// An engine for `service`.
    #[must_use]
    pub fn new(service: S, config: ServeConfig, counters: Arc<ServeCounters>) -> Self {
        let KernelSide {
            udp,
            receives,
            listeners,
            connections,
            totals,
            handlers,
            sends,
            worker,
            waits,
            guarded,
        } = config.kernel;
        let served = config.served;
        let (rate, any) = (config.reply_rate, config.any_source_port);
        let ServiceLimits { totals, connections, reply_limit, source_ports, .. } =
            ServiceLimits::new(service.may_loop(), totals, connections, rate, any);
        Self {
            service: Guarded::new(service, Arc::clone(&counters.called)),
            addresses: config.addresses,
            ports: Vec::new(),
            egress: EgressTable::new(unforeseeable()),
            reply_limit,
            source_ports,
            udp,
            receives,
            fast: config.fast_tcp.map(|fast| {
                Box::new(FastTcp::new(fast, Arc::clone(&served), Arc::clone(&totals), connections))
            }),
            tcp: (!listeners.is_empty()).then(|| {
                let listener = KernelListener::new(listeners, totals.limits().connection_bytes as usize);
                let listener = listener.guarded(guarded);
                TcpServer::new(listener, Arc::clone(&served), totals, connections)
            }),
            handlers,
            worker,
            sends,
            timer_not_before: Instant::ZERO,
            served,
            buffer: vec![0; DATAGRAM_MAX].into_boxed_slice(),
            beside: Beside { keeper: config.keeper, ..Beside::default() },
            awaited: Awaited::default(),
            waits,
            handed_over: false,
            stopping: false,
            draining: false,
            leaving: false,
            counters,
        }
    }

    /// Serves one frame in place.
    ///
    /// # Errors
    /// The reason under which it is dropped.
    #[inline]
    fn serve_frame(
        &mut self,
        now: Instant,
        port: PortId,
        partial: bool,
        frame: &mut Frame,
        io: &mut Io<'_, ServeEvent>,
    ) -> Result<Outcome, Reason> {
        if self.served.ethertype().is_some_and(|ethertype| frames::is_of(frame, ethertype)) {
            frames::serve(&mut self.service, frame, self.served.ethertype_entry(), &self.counters)?;
            return Ok(Outcome::Send(port));
        }
        let request = udp::receive(frame, partial)?;
        let entry = self.served.find(Protocol::Udp, request.source, request.destination)?;
        admit(request.source, request.destination, &self.addresses, self.source_ports)?;
        self.counters.came_fast(entry);
        if udp::was_partial(&request) {
            self.counters.partial_checksums.add(1);
        }
        let at = request.payload.start;
        frame.set_len(frame.capacity()).map_err(|_| Reason::FrameTooLarge)?;
        let (peer, local) = (request.source, request.destination);
        self.allow_later(peer);
        let datagram = Datagram::new(now, peer, local, &mut frame.bytes_mut()[at..], request.payload.len());
        let answer = ask(&mut self.service, datagram, &mut self.beside)?;
        if !self.beside.outbox.is_empty() {
            self.send_besides(now, Cause::Request(Some(port)), io);
        }
        let Answer::Reply { len } = answer else {
            let origin = Origin { peer, local, port: Some(port) };
            return self
                .answer_beside(now, request.payload.len(), answer, origin, io)
                .map(|()| Outcome::Done);
        };
        self.limit(now, peer, request.payload.len(), len)?;
        if let Some((place, egress)) = self.egress_of(now, port, peer, local, io)?
            && udp::send_in_place(frame, at, len, local, peer, &egress).is_ok()
        {
            self.counters.fast_replies.add(1);
            return Ok(Outcome::Send(place));
        }
        if io.is_withdrawn(port) {
            // A withdrawn port drops its replies, so the kernel's socket must not send this one either.
            return Err(Reason::WorkerStuck);
        }
        self.counters.fast_replies_by_kernel.add(1);
        let reply = frame.bytes().get(at..at + len).ok_or(Reason::FrameTooLarge)?;
        self.send_by_kernel(reply, with_scope(peer, ifindex_of(port, io)), local)?;
        Ok(Outcome::Done)
    }

    /// Looks up the egress of a reply, and asks control for it if needed. `None` means that the kernel's socket
    /// sends the reply.
    ///
    /// # Errors
    /// [`Reason::UnresolvedPeers`] if the reply must be dropped.
    #[inline]
    fn egress_of(
        &mut self,
        now: Instant,
        port: PortId,
        peer: SocketAddr,
        local: SocketAddr,
        io: &mut Io<'_, ServeEvent>,
    ) -> Result<Option<(PortId, Egress)>, Reason> {
        let (peer, local) = (peer.ip(), local.ip());
        let found = self.egress.lookup(peer, now);
        if found.ask {
            self.counters.peers.set(self.egress.len() as u64);
            if io.tell(ServeEvent::Resolve { peer, local }).is_err() {
                io.drops().add(Reason::MailboxFull, 1);
                self.egress.not_asked(peer);
            }
        }
        if found.refused {
            return Err(Reason::UnresolvedPeers);
        }
        let Ok(egress) = found.answer else { return Ok(None) };
        Ok(io.port_on(egress.ifindex, port).map(|place| (place, egress)))
    }

    /// Counts a reply against the rate of its source, if it could be part of a loop.
    ///
    /// # Errors
    /// [`Reason::ReplyRate`] if the source has had too many replies.
    #[inline]
    fn limit(
        &mut self,
        now: Instant,
        peer: SocketAddr,
        request_len: usize,
        reply_len: usize,
    ) -> Result<(), Reason> {
        let Some(limit) = &mut self.reply_limit else { return Ok(()) };
        if reply_len < request_len || limit.allows(peer.ip(), now) { Ok(()) } else { Err(Reason::ReplyRate) }
    }

    /// The TCP server, if there is one, and the parameters of a call to it.
    #[inline]
    fn tcp<'a, 'io>(
        &'a mut self,
        now: Instant,
        io: &'a Io<'io, ServeEvent>,
    ) -> Option<(&'a mut TcpServer<S::Connection>, TcpCall<'a, 'io, S>)> {
        let Self { tcp, service, counters, handlers, .. } = self;
        let (counters, handlers) = (&counters.tcp, handlers.as_mut());
        let (drops, io) = (io.fds.drops(), &io.fds);
        Some((tcp.as_mut()?, TcpCall { now, service, counters, drops, io, handlers }))
    }

    /// Starts to serve the kernel's sockets.
    fn listen(&mut self, io: &Io<'_, ServeEvent>) -> Result<(), Errno> {
        for (token, socket) in (UDP_TOKEN..).zip(self.udp.iter()).filter(|_| self.receives) {
            io.fds.watch(socket, token, false)?;
        }
        self.tcp.as_mut().map_or(Ok(()), |tcp| tcp.listen(&io.fds))?;
        self.listen_fast()
    }

    /// Updates the capabilities of a port, or forgets the port if it is detached.
    fn learn_capabilities(&mut self, port: PortId, io: &Io<'_, ServeEvent>) {
        self.ports.retain(|(known, _)| *known != port);
        self.ports.extend(io.port(port).map(|attached| (port, *attached.capabilities())));
        if let (Some(fast), Some(attached)) = (&mut self.fast, io.port(port)) {
            fast.ifindex = attached.ifindex();
        }
        self.learn_mtu();
    }

    /// Whether an address is one of this host at which packets can arrive on the interface, a loopback
    /// address, or one that a socket of the service is bound to.
    fn is_own(&self, address: IpAddr) -> bool {
        address.is_loopback()
            || is_among(&self.addresses, address)
            || self.udp.iter().any(|socket| socket.address() == Some(address))
    }
}

impl<S: Service> Engine for ServeEngine<S> {
    type Command = ServeCommand;
    type Event = ServeEvent;

    fn start(&mut self, now: Instant, io: &mut Io<'_, ServeEvent>) -> Result<(), Errno> {
        self.begin(now, io);
        if let Some(sends) = &self.sends {
            io.fds.watch(sends.fd(), SENDS_TOKEN, false)?;
        }
        if let Some(handlers) = &self.handlers {
            io.fds.watch(handlers.fd(), HANDLERS_TOKEN, false)?;
        }
        if self.waits { Ok(()) } else { self.listen(io) }
    }

    fn attached(&mut self, port: PortId, io: &mut Io<'_, ServeEvent>) {
        self.learn_capabilities(port, io);
        if let Some(fast) = &mut self.fast {
            fast.is_back();
            self.counters.fast_tcp.fast_kept.set(0);
        }
    }

    fn changed(&mut self, port: PortId, io: &mut Io<'_, ServeEvent>) {
        self.learn_capabilities(port, io);
    }

    fn detached(&mut self, port: PortId, io: &mut Io<'_, ServeEvent>) {
        self.learn_capabilities(port, io);
    }

    fn receive(&mut self, now: Instant, port: PortId, frames: &mut Burst, io: &mut Io<'_, ServeEvent>) {
        let known = self.ports.iter().find(|(known, _)| *known == port);
        let partial = known.is_some_and(|(_, capabilities)| capabilities.partial_checksums);
        let mut has_segments = false;
        for (number, mut frame) in frames.drain(usize::MAX).enumerate() {
            // A call for an earlier frame may have hung, and the claims may have been withdrawn meanwhile.
            if number > 0 && io.is_withdrawn(port) {
                io.drops().add(Reason::WorkerStuck, 1);
                io.release(frame);
                continue;
            }
            match self.serve_frame(now, port, partial, &mut frame, io) {
                Ok(Outcome::Send(place)) => io.send(place, frame),
                Ok(Outcome::Done) => io.release(frame),
                Err(reason) => has_segments |= self.beside_datagrams(now, (port, partial), frame, reason, io),
            }
        }
        if has_segments {
            self.serve_fast(now, port, io);
        }
    }

    fn ready(&mut self, now: Instant, token: u32, error: bool, io: &mut Io<'_, ServeEvent>) -> bool {
        if token < HANDLERS_TOKEN {
            self.serve_kernel_udp(now, (token - UDP_TOKEN) as usize, io)
        } else if token == HANDLERS_TOKEN {
            self.take_replies(now, io) > 0
        } else if token == SENDS_TOKEN {
            self.take_messages(now, io) > 0
        } else if let Some(number) = token.checked_sub(FIRST_MOVED_TOKEN) {
            self.serve_moved(now, Ready::Connection { number, ends: error }, io)
        } else {
            let event = kernel_tcp::ready(token, error);
            let accepts = match event {
                Ready::Accept(_) => Some((self.why_kernel(), self.fast_beside(now, io))),
                Ready::Connection { .. } => None,
            };
            self.tcp(now, io).is_some_and(|(tcp, call)| {
                tcp.count_elsewhere(accepts.map_or(0, |(_, elsewhere)| elsewhere));
                accepts.into_iter().for_each(|(why, _)| tcp.explain(why));
                tcp.ready(event, call)
            })
        }
    }

    fn run(&mut self, now: Instant, io: &mut Io<'_, ServeEvent>) -> bool {
        let mut busy = self.tcp(now, io).is_some_and(|(tcp, call)| tcp.run(call));
        busy |= self.run_fast(now, io);
        if self.timer_at() <= now {
            self.run_timer(now, io);
            busy = true;
        }
        if let Some(panicked) = self.service.panicked(now) {
            // If the mailbox is full, control is not told; the panic has been counted.
            let _ = io.tell(ServeEvent::Panicked(panicked));
        }
        if (self.draining || self.leaving) && self.sends.is_some() {
            busy |= self.take_last_messages(now, io);
        }
        if self.draining && self.is_drained() {
            // Room in the mailbox is reserved, because a worker that sleeps has no later turn to send it in.
            self.draining = io.tell_reserved(ServeEvent::Drained).is_err();
        }
        busy
    }

    fn spins(&self) -> bool {
        self.tcp.as_ref().is_some_and(TcpServer::spins)
    }

    fn found(&self) -> bool {
        self.tcp.as_ref().is_some_and(TcpServer::found)
    }

    fn rest(&mut self, io: &mut Io<'_, ServeEvent>) {
        if let Some(tcp) = &mut self.tcp {
            tcp.rest(&io.fds);
        }
    }

    fn keeps_ports(&self) -> bool {
        self.fast.as_ref().is_some_and(|fast| fast.is_leaving() || fast.is_flushing)
    }

    fn next_deadline(&self) -> Instant {
        let tcp = self.tcp.as_ref().map_or(Instant::NEVER, TcpServer::next_deadline);
        let fast = self.fast.as_ref().map_or(Instant::NEVER, |fast| fast.next_deadline());
        tcp.min(fast).min(self.timer_at())
    }

    fn command(&mut self, now: Instant, command: ServeCommand, io: &mut Io<'_, ServeEvent>) {
        match command {
            ServeCommand::Egress(update) => {
                self.egress.update(update, now);
                self.hop_learnt(now, &update, io);
                self.counters.peers.set(self.egress.len() as u64);
                self.counters.peers_overflow.set(self.egress.overflows());
            }
            ServeCommand::TooBig(too_big) => self.path_carries(now, too_big, io),
            ServeCommand::Addresses(addresses) => {
                self.fast.iter_mut().for_each(|fast| fast.addresses_changed(now, &addresses));
                let former = std::mem::replace(&mut self.addresses, addresses);
                // If the mailbox is full, the memory is freed here: that happens once per change, not per
                // packet.
                let _ = io.tell(ServeEvent::Reclaim(former));
            }
            ServeCommand::Routes => self.fast.iter_mut().for_each(|fast| fast.kept.routes_changed(now)),
            ServeCommand::Begin => {
                // If the kernel has no memory to watch the sockets, `Begun` is not sent. Control notices
                // that, and gives up.
                if !self.waits || self.listen(io).is_ok() {
                    self.waits = false;
                    // Sent once per worker, with reserved room.
                    let _ = io.tell_reserved(ServeEvent::Begun);
                }
            }
            ServeCommand::StepBack => self.step_back(io),
            // It is draining already, and the demultiplexer reports when it has drained.
            ServeCommand::Drain { .. } if self.leaving => {}
            ServeCommand::Drain { handed_over } => {
                if handed_over && self.receives {
                    for socket in self.udp.iter() {
                        // Unwatching a socket that was never watched fails, which is harmless.
                        let _ = io.fds.unwatch(socket);
                    }
                }
                (self.draining, self.stopping) = (true, true);
                self.handed_over |= handed_over;
                if let Some((tcp, call)) = self.tcp(now, io) {
                    tcp.drain(handed_over, call);
                }
                self.drain_fast(now, handed_over, io);
            }
            ServeCommand::Cut => {
                let unsent = self.cut_messages(io);
                io.drops().add(Reason::DrainTimeout, self.awaited.len() as u64 + unsent);
                self.awaited.clear();
                if let Some((tcp, call)) = self.tcp(now, io) {
                    tcp.cut(call);
                }
                self.cut_fast();
            }
            ServeCommand::Leave => self.leave_fast(now, io),
            ServeCommand::LeaveGone => {
                self.fast.iter_mut().for_each(|fast| fast.kept.is_on = true);
                self.leave_fast(now, io);
            }
        }
    }
}

/// Passes a datagram to the service for an answer.
///
/// # Errors
/// The reason for dropping the datagram, if the service panics. Work that it handed over before is
/// forgotten.
#[inline]
fn ask<S: Service>(
    service: &mut Guarded<S>,
    datagram: Datagram<'_>,
    beside: &mut Beside,
) -> Result<Answer, Reason> {
    let asked = service.call("datagram", |service| service.datagram(&mut datagram.with(beside)));
    asked.inspect_err(|_| {
        beside.later.take().for_each(drop);
        beside.outbox.clear();
    })
}

/// The index of the interface that a port belongs to.
fn ifindex_of(port: PortId, io: &Io<'_, ServeEvent>) -> u32 {
    io.port(port).map_or(0, Attached::ifindex)
}

const _: () = assert!(CHUNK <= DATAGRAM_MAX + 1, "one scratch size for both kernel paths");
