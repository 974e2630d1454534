//! Datagrams of the kernel's sockets: requests that wait there, and replies that leave through them.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use rustix::io::Errno;
use twinpath_inspect::Reason;
use twinpath_service::{Answer, Datagram, Service};
use twinpath_time::Instant;
use twinpath_udp::admit::admit_port;
use twinpath_wire::Protocol;
use twinpath_worker::Io;

use super::late::Origin;
use super::sends::Cause;
use super::{ServeEngine, ServeEvent, ask};

/// Datagrams taken from the kernel's socket per turn, so that a flood there does not starve the fast path.
const KERNEL_BURST: usize = 64;

impl<S: Service> ServeEngine<S> {
    /// Serves up to a burst of datagrams that wait in one of the kernel's sockets; returns whether there were any.
    pub(super) fn serve_kernel_udp(
        &mut self,
        now: Instant,
        number: usize,
        io: &mut Io<'_, ServeEvent>,
    ) -> bool {
        let sockets = Arc::clone(&self.udp);
        let Some(socket) = sockets.get(number) else { return false };
        let mut came = false;
        for _ in 0..KERNEL_BURST {
            let received = match socket.receive(&mut self.buffer) {
                Ok(received) => received,
                Err(Errno::AGAIN) => break,
                // An ICMP error of an earlier reply, or a signal: the next call may return a datagram.
                Err(_) => continue,
            };
            came = true;
            let local = SocketAddr::new(received.local, socket.port());
            // A wildcard socket also gets broadcasts, which are not answered. A link-local address belongs
            // to the link on which the datagram arrived, which may be another one than ours.
            let is_link_local = matches!(received.local, IpAddr::V6(v6) if v6.is_unicast_link_local());
            let admitted = if is_link_local || self.is_own(received.local) {
                admit_port(received.peer, local, self.source_ports)
            } else {
                Err(Reason::NotOwnAddress)
            };
            let found = admitted.and_then(|()| self.served.find(Protocol::Udp, received.peer, local));
            let served = found.and_then(|entry| {
                self.counters.came_by_kernel(entry);
                self.allow_later(received.peer);
                let datagram = Datagram::new(now, received.peer, local, &mut self.buffer, received.len);
                let answer = ask(&mut self.service, datagram, &mut self.beside)?;
                if !self.beside.outbox.is_empty() {
                    self.send_besides(now, Cause::Request(None), io);
                }
                let Answer::Reply { len } = answer else {
                    let origin = Origin { peer: received.peer, local, port: None };
                    return self.answer_beside(now, received.len, answer, origin, io);
                };
                self.limit(now, received.peer, received.len, len)?;
                let reply = self.buffer.get(..len).ok_or(Reason::ReplyTooLarge)?;
                self.send_by_kernel(reply, received.peer, local)
            });
            if let Err(reason) = served {
                io.drops().add(reason, 1);
            }
        }
        came
    }

    pub(super) fn send_by_kernel(
        &self,
        reply: &[u8],
        peer: SocketAddr,
        local: SocketAddr,
    ) -> Result<(), Reason> {
        let socket = self.udp.iter().find(|socket| socket.is_at(local)).ok_or(Reason::KernelSocketRefused)?;
        match socket.send(reply, peer, local.ip()) {
            Ok(()) => {
                self.counters.kernel_replies.add(1);
                Ok(())
            }
            Err(Errno::AGAIN | Errno::NOBUFS) => Err(Reason::KernelSocketFull),
            Err(Errno::MSGSIZE) => Err(Reason::ReplyTooLarge),
            Err(_) => Err(Reason::KernelSocketRefused),
        }
    }
}
