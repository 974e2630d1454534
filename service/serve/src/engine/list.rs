//! What the engine of a service says of its connections.

use twinpath_service::Service;
use twinpath_time::Instant;

use super::ServeEngine;
use crate::listing::{Listing, WhyKernel};
use crate::streams::StreamServer;

/// The tables of a part, in this order.
const ENGINE: usize = 0;
const MOVED: usize = 1;
const KERNEL: usize = 2;

impl<S: Service> ServeEngine<S> {
    /// Adds connections to a list, as far as this turn may. Returns whether all were looked at.
    pub(crate) fn list(&mut self, now: Instant, listing: &mut Listing) -> bool {
        let mut fast = self.fast.as_deref_mut();
        let tcp = fast.as_ref().map(|fast| fast.server.listener_ref().tcp());
        while let Some(index) = listing.next_place(ENGINE, tcp.map_or(0, |tcp| tcp.indices())) {
            let Some(tcp) = tcp else { continue };
            let Some((id, _)) = tcp.connection_at(index) else { continue };
            let Some(tuple) = tcp.tuple(id) else { continue };
            listing.add_fast((tuple.local(), tuple.remote()), || tcp.info(now, id));
        }
        while let Some(number) =
            listing.next_place(MOVED, fast.as_ref().map_or(0, |fast| fast.server.numbers()))
        {
            let socket = fast.as_mut().and_then(|fast| fast.server.stream_at(number)?.0.socket());
            socket.into_iter().for_each(|socket| listing.add_socket(socket, WhyKernel::Moved));
        }
        while let Some(number) =
            listing.next_place(KERNEL, self.tcp.as_ref().map_or(0, StreamServer::numbers))
        {
            let stream = self.tcp.as_mut().and_then(|tcp| tcp.stream_at(number));
            stream.into_iter().for_each(|(socket, why)| listing.add_socket(socket, why));
        }
        listing.is_past(KERNEL)
    }

    /// Why a connection that begins now is the kernel's.
    #[cold]
    pub(super) fn why_kernel(&self) -> WhyKernel {
        match self.fast.as_deref() {
            None => WhyKernel::NotAsked,
            Some(fast) if fast.has_left || self.ports.is_empty() => WhyKernel::NoPath,
            Some(fast) if fast.room(self.tcp.as_ref().map_or(0, StreamServer::open_connections)) == 0 => {
                WhyKernel::NoRoom
            }
            Some(_) => WhyKernel::Syn,
        }
    }
}
