//! A service as control has it: every worker gets an engine of its own, with a clone of the service.

use std::sync::Arc;

use twinpath_service::{Service, ServiceCounters};

use crate::counters::ServeCounters;
use crate::demux::Slot;
use crate::engine::{ServeConfig, ServeEngine};

/// A service whose type only the crate that made it knows. The code that serves by it is compiled there, so that is to be a crate that is
/// optimised.
pub trait Prototype {
    /// Whether it has work for threads that may block.
    fn defers(&self) -> bool;

    /// Whether a reply of it could make it answer again ([`Service::may_loop`]).
    fn may_loop(&self) -> bool;

    /// An engine for a clone of it, and what the clone counts by itself.
    fn slot(&self, config: ServeConfig) -> (Slot, Option<Arc<ServiceCounters>>);
}

impl<S: Service + Clone + 'static> Prototype for S {
    fn defers(&self) -> bool {
        Service::defers(self)
    }

    fn may_loop(&self) -> bool {
        Service::may_loop(self)
    }

    fn slot(&self, config: ServeConfig) -> (Slot, Option<Arc<ServiceCounters>>) {
        let service = self.clone();
        let serve = Arc::new(ServeCounters::for_entries(config.served.entries()));
        let counted = service.counters();
        (Slot::new(ServeEngine::new(service, config, Arc::clone(&serve)), serve), counted)
    }
}
