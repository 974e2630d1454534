//! What becomes of an engine while its worker serves: it has other limits, leaves its sockets to somebody else, or goes.

use twinpath_kernel_tcp::TcpServer;
use twinpath_service::Service;
use twinpath_time::Instant;
use twinpath_worker::Io;

use super::{ServeEngine, ServeEvent};
use crate::limits::Limits;

/// Times that many that are taken from a socket before its service leaves: more than its buffer holds of small datagrams.
const LAST_BURSTS: usize = 256;

impl<S: Service> ServeEngine<S> {
    /// Has these limits from now on; its former ones are left in their place, to be freed elsewhere. Connections that it has stay,
    /// also where it has more than it may have now.
    pub(crate) fn exchange_limits(&mut self, limits: &mut Limits) {
        std::mem::swap(&mut self.reply_limit, &mut limits.reply_limit);
        if let Some(tcp) = &mut self.tcp {
            tcp.exchange_limits(&mut limits.share, limits.connections);
        }
    }

    /// Serves what waits in its sockets, unless that is another one's, takes no more, and ends its connections once they are answered.
    pub(crate) fn leave(&mut self, now: Instant, io: &Io<'_, ServeEvent>) {
        if self.receives {
            for number in 0..self.udp.len() {
                let most = if self.waits { 0 } else { LAST_BURSTS };
                for _ in 0..most {
                    if !self.serve_kernel_udp(now, number, io) {
                        break;
                    }
                }
                // A descriptor that is closed while another one of the same socket is open would stay in the epoll.
                let _ = io.fds.unwatch(&self.udp[number]);
            }
        }
        (self.stopping, self.leaving, self.draining) = (true, true, false);
        let handed_over = self.waits;
        if let Some((tcp, call)) = self.tcp(now, io) {
            tcp.drain(handed_over, call);
        }
    }

    /// Whether everything that it had accepted is answered, or cut off.
    pub(crate) fn is_drained(&self) -> bool {
        self.awaited.len() == 0 && self.tcp.as_ref().is_none_or(TcpServer::is_drained)
    }

    /// The last thing before it is taken away: nothing of its own is watched any more.
    pub(crate) fn forget(&self, io: &Io<'_, ServeEvent>) {
        if let Some(handlers) = &self.handlers {
            let _ = io.fds.unwatch(handlers.fd());
        }
    }

    /// Takes nothing more from the kernel's sockets.
    pub(super) fn step_back(&mut self, io: &Io<'_, ServeEvent>) {
        self.waits = true;
        for socket in self.udp.iter().filter(|_| self.receives) {
            // Not watched, if it has never begun.
            let _ = io.fds.unwatch(socket);
        }
        if let Some(tcp) = &mut self.tcp {
            tcp.listen_no_more(&io.fds);
        }
    }
}
