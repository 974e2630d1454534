//! TCP on the fast path: segments in frames of the worker's ports, SYNs that the kernel's programs hand over, and what
//! the connections' server does with them.

use std::net::{IpAddr, SocketAddr};

use rustix::io::Errno;
use twinpath_frame::{Frame, GsoKind};
use twinpath_inspect::{FastTcpCounters, Reason};
use twinpath_port::{Capabilities, PortId};
use twinpath_service::Service;
use twinpath_tcp::{IcmpError, Segment, Tuple, Verdict};
use twinpath_time::Instant;
use twinpath_udp::admit::admit_source;
use twinpath_udp::egress::{EgressTable, KernelReason, Update};
use twinpath_udp::udp;
use twinpath_wire::{ChecksumTrust, EtherType, Protocol, TooBig, eth, tcp_frame};
use twinpath_worker::Io;

use super::{ServeEngine, ServeEvent};
use crate::fast_tcp::{Beside, EngineListener, FastCall, FastTcp, Hops, Out, TcpClaims, TooLong, is_to_come};
use crate::kernel_tcp::TcpServer;
use crate::streams::Ready;

/// Maximum number of timers of each kind that are served in one turn.
const TIMERS_PER_TURN: u32 = 256;

/// How often in one turn events are served that sending has caused. The next turn continues.
const ROUNDS: usize = 8;

/// No port: none is preferred.
pub(super) const NO_PORT: PortId = PortId { port: u16::MAX, queue: u16::MAX };

/// What a segment was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    /// One of a connection.
    Segment,
    /// A SYN whose tuple is still claimed, as the connection before has ended only now: it is to be taken like one that
    /// the programs hand over.
    Syn,
}

/// What becomes of a SYN that came as a segment, unless the engine takes it: its tuple is, or was, claimed.
fn reopens(
    listener: &mut EngineListener,
    tuple: &Tuple,
    segment: &Segment<'_>,
) -> Option<Result<Taken, Reason>> {
    // The port may have another service by now. The tuple is released, and the SYN sent again.
    if !listener.is_listening() && listener.tcp_mut().give_way(tuple, segment) {
        return Some(Err(Reason::NoConnection));
    }
    if listener.tcp().has(tuple) {
        return None;
    }
    // If the tuple was released since, the SYN is sent again, and claims it.
    Some(if listener.tcp_mut().take_back(tuple) { Ok(Taken::Syn) } else { Err(Reason::NoConnection) })
}

impl<S: Service> ServeEngine<S> {
    /// Handles a frame that is no datagram served here: a segment of a claimed connection is taken, and anything else is
    /// dropped and counted for `reason`. Returns whether a segment was taken: [`Self::serve_fast`] follows.
    #[cold]
    pub(super) fn beside_datagrams(
        &mut self,
        now: Instant,
        (port, partial): (PortId, bool),
        frame: Frame,
        reason: Reason,
        io: &mut Io<'_, ServeEvent>,
    ) -> bool {
        let is_segment = self.fast.is_some() && is_tcp(frame.bytes());
        let taken = if is_segment { self.take_segment(now, port, partial, &frame, io) } else { Err(reason) };
        match taken {
            Ok(Taken::Segment) => {}
            Ok(Taken::Syn) => {
                self.take_syn(now, frame.bytes(), io);
            }
            Err(reason) => io.drops().add(reason, 1),
        }
        io.release(frame);
        taken.is_ok()
    }

    /// # Errors
    /// Why the segment is dropped.
    fn take_segment(
        &mut self,
        now: Instant,
        port: PortId,
        partial: bool,
        frame: &Frame,
        io: &mut Io<'_, ServeEvent>,
    ) -> Result<Taken, Reason> {
        let Self { fast, egress, counters, .. } = self;
        let Some(fast) = fast.as_deref_mut() else { return Err(Reason::NotClaimed) };
        let counters = &counters.fast_tcp;
        counters.fast_segments_in.add(1);
        let FastTcp { server, beside, whole, .. } = fast;
        let found = tcp_frame::parse(frame.gather(whole), udp::trust(frame, partial)).map_err(udp::reason)?;
        let tuple = Tuple::new(found.destination, found.source);
        let listener = server.listener();
        let (open, half_open, _) = listener.tcp().count();
        let unit = if frame.meta().gso.kind == GsoKind::None { 0 } else { frame.meta().gso.size };
        let segment = Segment::new(&found.segment, found.congestion, unit);
        if found.segment.flags().opens()
            && let Some(outcome) = reopens(listener, &tuple, &segment)
        {
            return outcome;
        }
        let mut sink = out(now, port, egress, beside, counters, io);
        let verdict = listener.segment(now, &tuple, &segment, &mut sink);
        if fast.has_left {
            fast.leave_late(&tuple, (open, half_open));
        }
        match verdict {
            Verdict::Taken(_) | Verdict::Answered => Ok(Taken::Segment),
            Verdict::LeftToKernel => Err(Reason::NoConnection),
            Verdict::Declined => {
                fast.decline(now, tuple);
                counters.fast_declined.add(1);
                Ok(Taken::Segment)
            }
        }
    }

    /// Serves the connections that have events, and sends what they have to send, through `port` if several are on the
    /// interface.
    pub(super) fn serve_fast(&mut self, now: Instant, port: PortId, io: &mut Io<'_, ServeEvent>) {
        let Self { fast, egress, counters, service, handlers, tcp, addresses, .. } = self;
        let Some(fast) = fast.as_deref_mut() else { return };
        fast.server.count_elsewhere(tcp.as_ref().map_or(0, TcpServer::open_connections));
        fast.is_unfinished = true;
        let has_no_way = fast.moves.is_some() || fast.has_left;
        for _ in 0..ROUNDS {
            let mut had_events = false;
            while let Some(event) = fast.server.listener().next_ready() {
                had_events = true;
                let (counters, drops, handlers) =
                    (&counters.fast_connections, io.fds.drops(), handlers.as_mut());
                fast.server.ready(event, FastCall { now, service, counters, drops, io: &(), handlers });
            }
            let FastTcp { server, beside, .. } = &mut *fast;
            let listener = server.listener();
            listener.output(now, &mut out(now, port, egress, beside, &counters.fast_tcp, io));
            for TooLong { tuple, mtu, was_told } in beside.too_long.drain(..) {
                had_events = true;
                if was_told {
                    listener.tcp_mut().path_said(now, &tuple, mtu);
                } else {
                    listener.tcp_mut().path_carries(&tuple, mtu);
                }
            }
            // What moves has no way, and needs none. What cannot move waits for one.
            if has_no_way {
                beside.stranded.clear();
            }
            let is_here = |tuple: &Tuple| addresses.binary_search(&tuple.local().ip()).is_ok();
            while let Some(tuple) = beside.stranded.next_over(now, is_here) {
                had_events = true;
                listener.tcp_mut().give_up(&tuple);
            }
            if !had_events {
                fast.is_unfinished = false;
                break;
            }
        }
        publish(&counters.fast_tcp, fast);
    }

    /// Does what is due. Returns whether there was anything.
    #[inline]
    pub(super) fn run_fast(&mut self, now: Instant, io: &mut Io<'_, ServeEvent>) -> bool {
        let is_due = self.fast.as_ref().is_some_and(|fast| fast.next_deadline() <= now);
        if is_due {
            self.run_fast_due(now, io);
        }
        is_due
    }

    #[cold]
    fn run_fast_due(&mut self, now: Instant, io: &mut Io<'_, ServeEvent>) {
        let port = self.some_port();
        let Self { fast, egress, counters, service, handlers, .. } = self;
        let Some(fast) = fast.as_deref_mut() else { return };
        while let Some(syn) = fast.waiting.take_late(now) {
            fast.decline(now, syn.tuple);
            counters.fast_tcp.fast_declined.add(1);
        }
        counters.fast_tcp.fast_given_up.add(fast.forget_late_handshakes(now) as u64);
        let FastTcp { server, beside, .. } = &mut *fast;
        let mut sink = out(now, port, egress, beside, &counters.fast_tcp, io);
        server.listener().advance(now, TIMERS_PER_TURN, &mut sink);
        let (drops, handlers) = (io.fds.drops(), handlers.as_mut());
        let counters = &counters.fast_connections;
        server.run(FastCall { now, service, counters, drops, io: &(), handlers });
        self.answer_again(now, io);
        self.fast.iter_mut().for_each(|fast| fast.retry(now));
        let has_moved = self.move_some(now, io);
        self.serve_fast(now, port, io);
        if let Some(fast) = &mut self.fast {
            fast.flush(now, has_moved);
        }
    }

    /// A SYN that the programs hand over. Returns whether the service has connections on the fast path; if not, its
    /// tuple is to be released.
    pub(crate) fn take_syn(&mut self, now: Instant, frame: &[u8], io: &mut Io<'_, ServeEvent>) -> bool {
        // The tuple has to be known even if the rest is refused.
        let Ok(found) = tcp_frame::parse(frame, ChecksumTrust::Trusted) else { return false };
        let tuple = Tuple::new(found.destination, found.source);
        let port = self.some_port();
        let Self { fast, egress, counters, served, addresses, .. } = self;
        let Some(fast) = fast.as_deref_mut() else { return false };
        counters.fast_tcp.fast_segments_in.add(1);
        let admitted = tcp_frame::parse(frame, ChecksumTrust::AcceptPartial)
            .map_err(udp::reason)
            .and_then(|found| served.find(Protocol::Tcp, found.source, found.destination))
            .and_then(|_| admit_source(found.source.ip(), addresses));
        let FastTcp { server, beside, waiting, has_left, .. } = &mut *fast;
        let is_taken = match admitted {
            Err(reason) => {
                io.drops().add(reason, 1);
                false
            }
            Ok(()) if !server.listener_ref().is_listening() => false,
            // Its answer to ours would reach nobody. The peer sends it again, and the kernel answers.
            Ok(()) if *has_left => false,
            Ok(()) => {
                let (local, peer) = (tuple.local().ip(), tuple.remote().ip());
                let mut hops = Hops { now, egress, former: &beside.former, port, io, ask };
                match hops.find(local, peer, false) {
                    Ok((port, _)) => {
                        let segment = Segment::new(&found.segment, found.congestion, 0);
                        let mut sink = out(now, port, egress, beside, &counters.fast_tcp, io);
                        let verdict = server.listener().segment(now, &tuple, &segment, &mut sink);
                        !matches!(verdict, Verdict::LeftToKernel | Verdict::Declined)
                    }
                    Err(KernelReason::Unknown) if !egress.is_pending(peer) => false,
                    Err(reason) => is_to_come(reason) && waiting.add(tuple, frame, now),
                }
            }
        };
        if !is_taken {
            fast.decline(now, tuple);
            counters.fast_tcp.fast_declined.add(1);
        }
        publish(&counters.fast_tcp, fast);
        true
    }

    /// Control has answered a question about a peer.
    pub(super) fn hop_learnt(&mut self, now: Instant, update: &Update, io: &mut Io<'_, ServeEvent>) {
        let Some(fast) = &mut self.fast else { return };
        fast.follow(update);
        if let Update::Learn { peer, .. } = update {
            self.retry_syns(now, *peer, io);
        }
    }

    /// A router says that a segment was too long: what is sent again is shorter, if it was one of ours.
    pub(super) fn path_carries(&mut self, now: Instant, too_big: TooBig, io: &mut Io<'_, ServeEvent>) {
        let TooBig { local, remote, seq, mtu } = too_big;
        let Some(fast) = &mut self.fast else { return };
        let tcp = fast.server.listener().tcp_mut();
        let tuple = Tuple::new(local, remote);
        if tcp.has(&tuple) {
            // A router that does not say what its path carries (0) helps nobody else.
            if tcp.icmp(now, &tuple, seq, IcmpError::TooBig(mtu)) && mtu > 0 {
                fast.beside.told.add(now, remote.ip(), mtu);
            }
            self.serve_fast(now, NO_PORT, io);
        }
    }

    fn retry_syns(&mut self, now: Instant, peer: IpAddr, io: &mut Io<'_, ServeEvent>) {
        // Those that go on waiting are behind the others.
        let count = self.fast.as_ref().map_or(0, |fast| fast.waiting.len());
        for _ in 0..count {
            let Some(syn) = self.fast.as_mut().and_then(|fast| fast.waiting.take_of(peer)) else { return };
            self.take_syn(now, syn.frame(), io);
        }
    }

    /// Starts to accept on the fast path.
    pub(super) fn listen_fast(&mut self) -> Result<(), Errno> {
        self.fast.as_mut().map_or(Ok(()), |fast| fast.server.listen(&()))
    }

    /// Accepts no more, and ends each connection once its requests are answered.
    /// If another instance has the listeners, and there is no path, nobody hears what completes a handshake.
    pub(super) fn drain_fast(&mut self, now: Instant, handed_over: bool, io: &mut Io<'_, ServeEvent>) {
        let Self { fast, counters, service, handlers, .. } = self;
        let Some(fast) = fast.as_deref_mut() else { return };
        if handed_over && fast.has_left {
            let given_up = fast.server.listener().tcp_mut().forget_handshakes();
            counters.fast_tcp.fast_given_up.add(given_up as u64);
            fast.kept.end();
            fast.move_all();
        }
        let (drops, handlers, counters) = (io.fds.drops(), handlers.as_mut(), &counters.fast_connections);
        fast.server.drain(false, FastCall { now, service, counters, drops, io: &(), handlers });
        fast.hurry_handshakes(now);
        self.serve_fast(now, NO_PORT, io);
    }

    /// Serves a connection that has moved to a socket. Returns whether bytes moved.
    pub(super) fn serve_moved(&mut self, now: Instant, event: Ready, io: &Io<'_, ServeEvent>) -> bool {
        let Some((fast, call)) = self.fast(now, io) else { return false };
        let has_moved = fast.server.ready(event, call);
        let open = fast.server.listener_ref().moved();
        self.counters.fast_tcp.fast_in_kernel.set(open.into());
        has_moved
    }

    /// The connections on the fast path, if there are some, and the parameters of a call to their server.
    pub(super) fn fast<'a>(
        &'a mut self,
        now: Instant,
        io: &'a Io<'_, ServeEvent>,
    ) -> Option<(&'a mut FastTcp<S::Connection>, FastCall<'a, 'a, S>)> {
        let Self { fast, counters, service, handlers, .. } = self;
        let (drops, handlers, counters) = (io.fds.drops(), handlers.as_mut(), &counters.fast_connections);
        Some((fast.as_deref_mut()?, FastCall { now, service, counters, drops, io: &(), handlers }))
    }

    /// Whether the engine of the fast path has a connection between these ends.
    pub(crate) fn has_connection(&self, local: SocketAddr, remote: SocketAddr) -> bool {
        let tcp = self.fast.as_ref().map(|fast| fast.server.listener_ref().tcp());
        tcp.is_some_and(|tcp| tcp.has(&Tuple::new(local, remote)))
    }

    /// How many connections there are on the fast path, beside those that the kernel's listeners are about to accept. If
    /// there are too many for one more, the idlest one is closed.
    pub(super) fn fast_beside(&mut self, now: Instant, io: &mut Io<'_, ServeEvent>) -> u32 {
        let others = self.tcp.as_ref().map_or(0, TcpServer::open_connections);
        let Some((fast, mut call)) = self.fast(now, io) else { return 0 };
        fast.server.count_elsewhere(others);
        if others == 0 {
            fast.server.make_room(&mut call);
        }
        let left = fast.server.open_connections();
        self.serve_fast(now, NO_PORT, io);
        left
    }

    /// How many SYNs the programs may take for it; `None`: the service has no connections on the fast path.
    pub(crate) fn syn_room(&self) -> Option<u32> {
        let others = self.tcp.as_ref().map_or(0, TcpServer::open_connections);
        self.fast.as_ref().map(|fast| fast.room(others))
    }

    /// Calls `add` with each port at which it has connections on the fast path.
    pub(crate) fn syn_ports(&self, add: &mut dyn FnMut(u16)) {
        let locals = self.fast.iter().flat_map(|fast| fast.server.listener_ref().locals());
        locals.for_each(|local| add(local.port()));
    }

    /// Tells the programs which tuples are the kernel's again, by `calls` calls at most. Returns how many are left.
    pub(crate) fn settle_claims(&mut self, now: Instant, calls: u32, claims: &mut dyn TcpClaims) -> u32 {
        let Self { fast, egress, counters, .. } = self;
        let Some(fast) = fast else { return calls };
        let was_leaving = fast.is_leaving();
        let left = fast.settle(now, egress.questions_left(now), calls, claims);
        if was_leaving {
            publish(&counters.fast_tcp, fast);
        }
        left
    }

    /// Releases all tuples, as the service is removed.
    pub(crate) fn release_claims(&mut self, claims: &mut dyn TcpClaims) {
        if let Some(fast) = &mut self.fast {
            fast.release_all(claims);
        }
    }

    /// The interface has changed.
    pub(super) fn learn_mtu(&mut self) {
        let mtu = self.ports.iter().map(|(_, capabilities)| capabilities.frame_len_max).min();
        let super_frame = self.ports.iter().map(|(_, capabilities)| cuts_tcp(capabilities)).min();
        if let (Some(fast), Some(frame_len_max)) = (&mut self.fast, mtu) {
            fast.learn_lengths(
                frame_len_max.saturating_sub(eth::HEADER_LEN as u32),
                super_frame.unwrap_or_default(),
            );
        }
    }

    fn some_port(&self) -> PortId {
        self.ports.first().map_or(NO_PORT, |(port, _)| *port)
    }
}

/// The longest super-frame of TCP that a port sends to be cut behind it, bytes from the Ethernet header; 0: none.
const fn cuts_tcp(port: &Capabilities) -> u32 {
    if port.segmentation.tcp && port.checksum && port.chains { port.super_frame_len_max } else { 0 }
}

/// The question to control for the way from our address to a peer's.
const fn ask(local: IpAddr, peer: IpAddr) -> ServeEvent {
    ServeEvent::Resolve { peer, local }
}

/// Where segments go at `now`: to their next hops, through `port` if several are on the interface.
pub(super) const fn out<'a, 'io>(
    now: Instant,
    port: PortId,
    egress: &'a mut EgressTable,
    beside: &'a mut Beside,
    counters: &'a FastTcpCounters,
    io: &'a mut Io<'io, ServeEvent>,
) -> Out<'a, 'io, ServeEvent> {
    let Beside { former, too_long, stranded, told } = beside;
    Out::new(Hops { now, egress, former, port, io, ask }, (too_long, stranded, told), counters)
}

/// Whether a frame says that it is TCP over IP.
fn is_tcp(frame: &[u8]) -> bool {
    let ethertype = frame.get(12..eth::HEADER_LEN).and_then(|bytes| bytes.first_chunk().copied());
    let protocol_at = match ethertype.map(|bytes| EtherType(u16::from_be_bytes(bytes))) {
        Some(EtherType::IPV4) => 23,
        Some(EtherType::IPV6) => 20,
        _ => return false,
    };
    frame.get(protocol_at) == Some(&Protocol::Tcp.number())
}

/// Shows what the engine has counted.
fn publish<C: Send>(counters: &FastTcpCounters, fast: &FastTcp<C>) {
    let listener = fast.server.listener_ref();
    let tcp = listener.tcp();
    let (_, half_open, time_wait) = tcp.count();
    let counted = tcp.counters();
    counters.fast_half_open.set(half_open as u64);
    counters.fast_time_wait.set(time_wait as u64);
    counters.fast_retransmitted.set(counted.retransmitted);
    counters.fast_resets.set(counted.resets);
    counters.fast_path_told.set(counted.icmp_in);
    counters.fast_path_forged.set(counted.icmp_refused);
    counters.fast_in_kernel.set(listener.moved().into());
    counters.fast_kept.set(fast.kept_now().into());
}
