//! Replies that do not fit the request's buffer, and deferred replies from threads of the handler pool. A
//! deferred reply leaves by the path that leads to its peer at that time.

use std::net::SocketAddr;

use twinpath_inspect::Reason;
use twinpath_port::PortId;
use twinpath_service::{Answer, Job, Service};
use twinpath_time::Instant;
use twinpath_udp::admit::is_among;
use twinpath_udp::udp;
use twinpath_worker::Io;

use super::{ServeEngine, ServeEvent, ifindex_of};
use crate::fast_tcp::{MARK, with_scope};
use crate::handlers::{Done, HandlerPool, Requester};

/// A datagram with a deferred reply that is still to come.
#[derive(Clone, Copy, Debug)]
struct Deferred {
    ticket: u64,
    /// The number that the service gave the datagram.
    number: u64,
    request_len: usize,
    peer: SocketAddr,
    local: SocketAddr,
    /// The port of the request, which may have been detached since, and the index of its interface. `None`: the
    /// request came through the kernel's socket.
    port: Option<(PortId, u32)>,
}

/// The datagrams with deferred replies, oldest first; at most as many as the handler pool accepts.
#[derive(Default)]
pub(super) struct Awaited(Vec<Deferred>);

impl Awaited {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    fn of(&self, peer: SocketAddr) -> usize {
        self.0.iter().filter(|deferred| deferred.peer == peer).count()
    }

    fn take(&mut self, ticket: u64) -> Option<Deferred> {
        // The list is in ascending order of tickets.
        let at = self.0.binary_search_by_key(&ticket, |deferred| deferred.ticket).ok()?;
        Some(self.0.remove(at))
    }
}

/// The origin of a datagram.
#[derive(Clone, Copy)]
pub(super) struct Origin {
    pub(super) peer: SocketAddr,
    pub(super) local: SocketAddr,
    /// The port of the request; `None`: it came through the kernel's socket.
    pub(super) port: Option<PortId>,
}

impl<S: Service> ServeEngine<S> {
    /// Lets the service defer its reply to the next datagram, if the handler pool has room.
    #[inline]
    pub(super) fn allow_later(&mut self, peer: SocketAddr) {
        if let Some(handlers) = &self.handlers {
            // During a drain, nothing may be added to the work that it waits for.
            let room = if self.stopping { 0 } else { handlers.room_for_datagram(self.awaited.of(peer)) };
            self.beside.later.allow(room.min(1));
        }
    }

    /// Handles an answer that is not a reply in the request's buffer.
    ///
    /// # Errors
    /// The reason for dropping the datagram.
    #[cold]
    pub(super) fn answer_beside(
        &mut self,
        now: Instant,
        request_len: usize,
        answer: Answer,
        origin: Origin,
        io: &Io<'_, ServeEvent>,
    ) -> Result<(), Reason> {
        match answer {
            Answer::Nothing | Answer::Reply { .. } => Err(Reason::NoReply),
            Answer::Drop(reason) => Err(reason),
            Answer::Long => {
                let Origin { peer, local, port } = origin;
                self.limit(now, peer, request_len, self.beside.reply.len())?;
                self.counters.fast_replies_by_kernel.add(u64::from(port.is_some()));
                let peer = port.map_or(peer, |port| with_scope(peer, ifindex_of(port, io)));
                self.send_by_kernel(&self.beside.reply, peer, local)
            }
            Answer::Later => self.hand_over(request_len, origin, io),
        }
    }

    fn hand_over(
        &mut self,
        request_len: usize,
        origin: Origin,
        io: &Io<'_, ServeEvent>,
    ) -> Result<(), Reason> {
        let Origin { peer, local, port } = origin;
        let Job { number, work, .. } = self.beside.later.take().last().ok_or(Reason::NoReply)?;
        let handlers = self.handlers.as_mut().ok_or(Reason::HandlersBusy)?;
        let ticket = handlers.submit(Requester::Peer, work);
        let port = port.map(|port| (port, ifindex_of(port, io)));
        self.awaited.0.push(Deferred { ticket, number, request_len, peer, local, port });
        self.counters.deferred.set(u64::from(handlers.in_flight()));
        Ok(())
    }

    /// Takes finished work from the handler pool and sends the replies; returns their number.
    pub(super) fn take_replies(&mut self, now: Instant, io: &mut Io<'_, ServeEvent>) -> u64 {
        let mut count = 0;
        if let Some(handlers) = &self.handlers {
            handlers.drain();
        }
        while let Some(Done { requester, ticket, reply }) = self.handlers.as_mut().and_then(HandlerPool::take)
        {
            self.counters.deferred_done.add(1);
            count += 1;
            match requester {
                Requester::Connection(number) => self.reply_to_connection(now, number, ticket, reply, io),
                Requester::Peer => {
                    if let Err(reason) = self.reply_late(now, ticket, reply, io) {
                        io.drops().add(reason, 1);
                    }
                }
            }
        }
        let in_flight = self.handlers.as_ref().map_or(0, HandlerPool::in_flight);
        self.counters.deferred.set(u64::from(in_flight));
        if let Some(tcp) = &mut self.tcp {
            tcp.has_room();
        }
        if let Some(fast) = &mut self.fast {
            fast.server.has_room();
        }
        count
    }

    fn reply_to_connection(
        &mut self,
        now: Instant,
        number: u32,
        ticket: u64,
        reply: Result<Vec<u8>, String>,
        io: &Io<'_, ServeEvent>,
    ) {
        if number & MARK != 0 {
            match self.fast(now, io) {
                Some((fast, mut call)) => fast.server.take_reply(number, ticket, reply, &mut call),
                None => io.drops().add(Reason::LateReply, 1),
            }
        } else {
            match self.tcp(now, io) {
                Some((tcp, mut call)) => tcp.take_reply(number, ticket, reply, &mut call),
                None => io.drops().add(Reason::LateReply, 1),
            }
        }
    }

    /// Sends the deferred reply to a datagram. `reply` is an error if the work ended by a panic.
    fn reply_late(
        &mut self,
        now: Instant,
        ticket: u64,
        reply: Result<Vec<u8>, String>,
        io: &mut Io<'_, ServeEvent>,
    ) -> Result<(), Reason> {
        let deferred = self.awaited.take(ticket).ok_or(Reason::LateReply)?;
        let Deferred { number, request_len, peer, local, port, .. } = deferred;
        let reply = reply.map_err(|why| self.service.failed("deferred work", why))?;
        // The service learns that its work has ended, even if the reply cannot be sent.
        self.service.call("late_reply", |service| service.late_reply(now, peer, number, &reply))??;
        // The peer would not accept a reply from an address that is no longer ours.
        let own = port.map_or_else(|| self.is_own(local.ip()), |_| is_among(&self.addresses, local.ip()));
        if !own {
            return Err(Reason::LateReply);
        }
        self.limit(now, peer, request_len, reply.len())?;
        let Some((port, ifindex)) = port else { return self.send_by_kernel(&reply, peer, local) };
        // If that interface is gone, the reply may still leave by another one.
        let port = io.port_on(ifindex, port).unwrap_or(port);
        if self.send_by_port(now, port, &reply, (local, peer), io)? {
            self.counters.fast_replies.add(1);
            return Ok(());
        }
        self.counters.fast_replies_by_kernel.add(1);
        self.send_by_kernel(&reply, with_scope(peer, ifindex), local)
    }

    /// Returns whether the reply was sent; otherwise the kernel's socket has to send it.
    ///
    /// # Errors
    /// [`Reason::UnresolvedPeers`] if it must be dropped.
    pub(super) fn send_by_port(
        &mut self,
        now: Instant,
        port: PortId,
        reply: &[u8],
        (local, peer): (SocketAddr, SocketAddr),
        io: &mut Io<'_, ServeEvent>,
    ) -> Result<bool, Reason> {
        let Some((place, egress)) = self.egress_of(now, port, peer, local, io)? else { return Ok(false) };
        let Some(mut frame) = io.take() else { return Ok(false) };
        let write = |room: &mut [u8]| room.copy_from_slice(reply);
        if udp::send(&mut frame, reply.len(), local, peer, &egress, write).is_err() {
            io.release(frame);
            return Ok(false);
        }
        io.send(place, frame);
        Ok(true)
    }
}
