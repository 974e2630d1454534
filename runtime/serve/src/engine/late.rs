//! Datagrams that are answered beside their buffer: by a reply that is longer, or one that comes later, from a thread that may
//! block. It leaves by whichever path leads to its peer when it is there.

use std::net::SocketAddr;

use twinpath_inspect::Reason;
use twinpath_port::PortId;
use twinpath_service::{Answer, Job, Service};
use twinpath_stack::udp;
use twinpath_time::Instant;
use twinpath_worker::Io;

use super::{ServeEngine, ServeEvent, ifindex_of, with_scope};
use crate::pool::{Asker, Desk, Done};

/// A datagram whose reply is still to come.
#[derive(Clone, Copy, Debug)]
struct Asked {
    ticket: u64,
    /// What the service knows it by.
    number: u64,
    request_len: usize,
    peer: SocketAddr,
    local: SocketAddr,
    /// The port it came by, which may be gone by then, and the index of its interface; `None`: through the kernel's socket.
    port: Option<(PortId, u32)>,
}

/// Those whose replies are still to come, the oldest first. There are no more of them than the desk takes.
#[derive(Default)]
pub(super) struct Awaited(Vec<Asked>);

impl Awaited {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    fn of(&self, peer: SocketAddr) -> usize {
        self.0.iter().filter(|asked| asked.peer == peer).count()
    }

    fn take(&mut self, ticket: u64) -> Option<Asked> {
        // Tickets ascend.
        let at = self.0.binary_search_by_key(&ticket, |asked| asked.ticket).ok()?;
        Some(self.0.remove(at))
    }
}

/// How a datagram came.
#[derive(Clone, Copy)]
pub(super) struct Way {
    pub(super) peer: SocketAddr,
    pub(super) local: SocketAddr,
    /// The port it came by; `None`: through the kernel's socket.
    pub(super) port: Option<PortId>,
}

impl<S: Service> ServeEngine<S> {
    /// Lets the next datagram be answered later, if there is room for that.
    #[inline]
    pub(super) fn allow_later(&mut self, peer: SocketAddr) {
        if let Some(desk) = &self.desk {
            // What a drain waits for must not be added to.
            let room = if self.stopping { 0 } else { desk.room_for_datagram(self.awaited.of(peer)) };
            self.beside.later.allow(room.min(1));
        }
    }

    /// Does what an answer asks for that is not in the buffer.
    ///
    /// # Errors
    /// The reason to drop the datagram under.
    #[cold]
    pub(super) fn answer_beside(
        &mut self,
        now: Instant,
        request_len: usize,
        answer: Answer,
        way: Way,
        io: &Io<'_, ServeEvent>,
    ) -> Result<(), Reason> {
        match answer {
            Answer::Nothing | Answer::Reply { .. } => Err(Reason::NoReply),
            Answer::Drop(reason) => Err(reason),
            Answer::Long => {
                let Way { peer, local, port } = way;
                self.limit(now, peer, request_len, self.beside.reply.len())?;
                self.counters.fast_replies_by_kernel.add(u64::from(port.is_some()));
                let peer = port.map_or(peer, |port| with_scope(peer, ifindex_of(port, io)));
                self.send_by_kernel(&self.beside.reply, peer, local)
            }
            Answer::Later => self.hand_over(request_len, way, io),
        }
    }

    fn hand_over(&mut self, request_len: usize, way: Way, io: &Io<'_, ServeEvent>) -> Result<(), Reason> {
        let Way { peer, local, port } = way;
        let Job { number, work, .. } = self.beside.later.take().last().ok_or(Reason::NoReply)?;
        let desk = self.desk.as_mut().ok_or(Reason::HandlersBusy)?;
        let ticket = desk.hand_over(Asker::Peer, work);
        let port = port.map(|port| (port, ifindex_of(port, io)));
        self.awaited.0.push(Asked { ticket, number, request_len, peer, local, port });
        self.counters.deferred.set(u64::from(desk.in_flight()));
        Ok(())
    }

    /// Replies of work that may block have come back: how many.
    pub(super) fn take_replies(&mut self, now: Instant, io: &mut Io<'_, ServeEvent>) -> u64 {
        let mut count = 0;
        if let Some(desk) = &self.desk {
            desk.drain();
        }
        while let Some(Done { asker, ticket, reply }) = self.desk.as_mut().and_then(Desk::take) {
            self.counters.deferred_done.add(1);
            count += 1;
            match asker {
                Asker::Connection(number) => match self.tcp(now, io) {
                    Some((tcp, mut call)) => tcp.take_reply(number, ticket, reply, &mut call),
                    None => io.drops().add(Reason::LateReply, 1),
                },
                Asker::Peer => {
                    if let Err(reason) = self.reply_late(now, ticket, reply, io) {
                        io.drops().add(reason, 1);
                    }
                }
            }
        }
        let in_flight = self.desk.as_ref().map_or(0, Desk::in_flight);
        self.counters.deferred.set(u64::from(in_flight));
        if let Some(tcp) = &mut self.tcp {
            tcp.has_room();
        }
        count
    }

    /// The reply to a datagram has come, or what the panic said that its work ended with.
    fn reply_late(
        &mut self,
        now: Instant,
        ticket: u64,
        reply: Result<Vec<u8>, String>,
        io: &mut Io<'_, ServeEvent>,
    ) -> Result<(), Reason> {
        let asked = self.awaited.take(ticket).ok_or(Reason::LateReply)?;
        let Asked { number, request_len, peer, local, port, .. } = asked;
        let reply = reply.map_err(|why| self.service.failed("deferred work", why))?;
        // Whether it can be sent or not, the service learns that its work has ended.
        self.service.call("late_reply", |service| service.late_reply(now, peer, number, &reply))??;
        // From an address that is ours no longer nobody would take it.
        let own = port.map_or_else(|| self.is_own(local.ip()), |_| self.addresses.contains(&local.ip()));
        if !own {
            return Err(Reason::LateReply);
        }
        self.limit(now, peer, request_len, reply.len())?;
        let Some((port, ifindex)) = port else { return self.send_by_kernel(&reply, peer, local) };
        // If that interface has gone, its way out may still lead by another one.
        let port = io.port_on(ifindex, port).unwrap_or(port);
        if self.send_by_port(now, port, &reply, (local, peer), io) {
            self.counters.fast_replies.add(1);
            return Ok(());
        }
        self.counters.fast_replies_by_kernel.add(1);
        self.send_by_kernel(&reply, with_scope(peer, ifindex), local)
    }

    /// Says whether it could.
    fn send_by_port(
        &mut self,
        now: Instant,
        port: PortId,
        reply: &[u8],
        (local, peer): (SocketAddr, SocketAddr),
        io: &mut Io<'_, ServeEvent>,
    ) -> bool {
        let Some((place, egress)) = self.way_out(now, port, peer, local, io) else { return false };
        let Some(mut frame) = io.take() else { return false };
        let write = |room: &mut [u8]| room.copy_from_slice(reply);
        if udp::send(&mut frame, reply.len(), local, peer, &egress, write).is_err() {
            io.release(frame);
            return false;
        }
        io.send(place, frame);
        true
    }
}
