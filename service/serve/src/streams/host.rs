//! Gives a connection the service and the handler pool of its worker.

use twinpath_inspect::Reason;
use twinpath_service::connections::Host;
use twinpath_service::{ConnectionId, Service, Work};

use crate::handlers::{Guarded, HandlerPool, Requester};

/// The service and its handler pool, for the connection `id`.
pub(crate) struct ConnectionHost<'a, S> {
    pub(crate) service: &'a mut Guarded<S>,
    pub(crate) handlers: Option<&'a mut HandlerPool>,
    pub(crate) id: ConnectionId,
}

impl<S: Service> Host for ConnectionHost<'_, S> {
    type Service = S;

    #[inline]
    fn connection(&self) -> ConnectionId {
        self.id
    }

    #[inline]
    fn call<R>(&mut self, callback: &'static str, call: impl FnOnce(&mut S) -> R) -> Result<R, Reason> {
        self.service.call(callback, call)
    }

    #[inline]
    fn room_for_work(&self, awaited: usize) -> Option<usize> {
        self.handlers.as_ref().map(|handlers| handlers.room(awaited))
    }

    fn hand_over(&mut self, work: Work) -> u64 {
        // Without a handler pool, `room_for_work` returns `None`, so a connection hands over no work.
        self.handlers
            .as_mut()
            .map_or(u64::MAX, |handlers| handlers.submit(Requester::Connection(self.id.number()), work))
    }
}
