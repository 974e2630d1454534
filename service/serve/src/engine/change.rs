//! Changes of an engine while its worker serves: new limits, stepping back from the kernel's sockets, leaving.

use twinpath_service::Service;
use twinpath_time::Instant;
use twinpath_worker::Io;

use super::{ServeEngine, ServeEvent};
use crate::kernel_tcp::TcpServer;
use crate::limits::ServiceLimits;

/// Bursts taken from a socket before its service leaves: more small datagrams than fit into the socket's
/// buffer.
const LAST_BURSTS: usize = 256;

impl<S: Service> ServeEngine<S> {
    /// Applies new limits; the former ones are returned in their place, because a worker frees nothing.
    /// Open connections stay, even if there are more than the new limits allow.
    pub(crate) fn exchange_limits(&mut self, limits: &mut ServiceLimits) {
        std::mem::swap(&mut self.reply_limit, &mut limits.reply_limit);
        std::mem::swap(&mut self.source_ports, &mut limits.source_ports);
        if let Some(tcp) = &mut self.tcp {
            tcp.exchange_limits(&mut limits.totals, limits.connections);
        }
        if let Some(fast) = &mut self.fast {
            fast.server.exchange_limits(&mut limits.fast_totals, limits.connections);
        }
    }

    /// Serves requests that wait in its sockets, unless another instance serves them. Accepts nothing more,
    /// and ends each connection once its requests are answered.
    pub(crate) fn leave(&mut self, now: Instant, io: &mut Io<'_, ServeEvent>) {
        if self.receives {
            for number in 0..self.udp.len() {
                let most = if self.waits { 0 } else { LAST_BURSTS };
                for _ in 0..most {
                    if !self.serve_kernel_udp(now, number, io) {
                        break;
                    }
                }
                // A descriptor that is closed while a duplicate is open would stay in the epoll.
                let _ = io.fds.unwatch(&self.udp[number]);
            }
        }
        (self.stopping, self.leaving, self.draining) = (true, true, false);
        let handed_over = self.waits;
        if let Some((tcp, call)) = self.tcp(now, io) {
            tcp.drain(handed_over, call);
        }
        self.drain_fast(now, false, io);
    }

    /// Whether everything accepted has been answered or cut off, and all earlier messages from other
    /// threads have been sent.
    pub(crate) fn is_drained(&self) -> bool {
        self.answers_all() && self.sends.is_none()
    }

    /// Whether everything accepted has been answered or cut off.
    pub(super) fn answers_all(&self) -> bool {
        self.awaited.len() == 0
            && self.tcp.as_ref().is_none_or(TcpServer::is_drained)
            && self.fast.as_ref().is_none_or(|fast| fast.is_drained())
    }

    /// Called last, before the engine is removed: none of its descriptors is watched after this.
    pub(crate) fn forget(&self, io: &Io<'_, ServeEvent>) {
        if let Some(handlers) = &self.handlers {
            let _ = io.fds.unwatch(handlers.fd());
        }
        if let Some(sends) = &self.sends {
            let _ = io.fds.unwatch(sends.fd());
        }
    }

    /// Stops receiving from the kernel's sockets.
    pub(super) fn step_back(&mut self, io: &Io<'_, ServeEvent>) {
        self.waits = true;
        for socket in self.udp.iter().filter(|_| self.receives) {
            // Unwatching a socket that was never watched fails, which is harmless.
            let _ = io.fds.unwatch(socket);
        }
        if let Some(tcp) = &mut self.tcp {
            tcp.listen_no_more(&io.fds);
        }
        if let Some(fast) = &mut self.fast {
            fast.server.listen_no_more(&());
        }
    }
}
