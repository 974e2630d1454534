//! What a worker lends a connection while it works.

use twinpath_inspect::Reason;
use twinpath_service::{Service, Work};
use twinpath_stream::Host;

use crate::guarded::Guarded;
use crate::pool::{Asker, Desk};

/// The service and its threads, for the connection of that number.
pub(crate) struct Lent<'a, S> {
    pub(crate) service: &'a mut Guarded<S>,
    pub(crate) desk: Option<&'a mut Desk>,
    pub(crate) number: u32,
}

impl<S: Service> Host for Lent<'_, S> {
    type Service = S;

    #[inline]
    fn call<R>(&mut self, callback: &'static str, call: impl FnOnce(&mut S) -> R) -> Result<R, Reason> {
        self.service.call(callback, call)
    }

    #[inline]
    fn room_for_work(&self, awaited: usize) -> Option<usize> {
        self.desk.as_ref().map(|desk| desk.room(awaited))
    }

    fn hand_over(&mut self, work: Work) -> u64 {
        // Without a pool for blocking work there was no room, and nothing is handed over.
        self.desk.as_mut().map_or(u64::MAX, |desk| desk.hand_over(Asker::Connection(self.number), work))
    }
}
