//! A service from which control makes an engine for each worker, with a clone of the service.

use std::sync::Arc;

use twinpath_service::{Reflex, Service, ServiceCounters};

use crate::demux::ServicePart;
use crate::engine::{ServeConfig, ServeEngine};
use twinpath_inspect::ServeCounters;

/// A service whose type is known only to the crate that made it. The generic code of its engine is compiled
/// in that crate, which should therefore be an optimised one.
pub trait Prototype {
    /// Whether the service has work for the handler pool.
    fn defers(&self) -> bool;

    /// How many lanes this work has ([`Service::lanes`]).
    fn lanes(&self) -> u32;

    /// Whether other threads send messages to the service ([`Service::sends_later`]).
    fn sends_later(&self) -> bool;

    /// Whether two such services could answer each other's replies without end ([`Service::may_loop`]).
    fn may_loop(&self) -> bool;

    /// Which replies may be sent without the service ([`Service::reflex`]): the same for all of its clones.
    fn reflex(&self) -> Reflex;

    /// An engine with a clone of the service, and the counters of the clone, if it has some.
    fn part(&self, config: ServeConfig) -> (ServicePart, Option<Arc<ServiceCounters>>);
}

impl<S: Service + Clone + 'static> Prototype for S {
    fn defers(&self) -> bool {
        Service::defers(self)
    }

    fn lanes(&self) -> u32 {
        Service::lanes(self)
    }

    fn sends_later(&self) -> bool {
        Service::sends_later(self)
    }

    fn may_loop(&self) -> bool {
        Service::may_loop(self)
    }

    fn reflex(&self) -> Reflex {
        Service::reflex(self)
    }

    fn part(&self, config: ServeConfig) -> (ServicePart, Option<Arc<ServiceCounters>>) {
        let service = self.clone();
        let serve = Arc::new(ServeCounters::for_entries(config.served.entries()));
        let counted = service.counters();
        (ServicePart::new(ServeEngine::new(service, config, Arc::clone(&serve)), serve), counted)
    }
}
