//! The program's own services: echo, discard, chargen, reflect, and ONC RPC. The generic code for these
//! types is compiled here.

mod rpc;

use twinpath_config::{Config, Service, ServiceKind};
use twinpath_rpc::TableError;
use twinpath_serve::Prototype;
use twinpath_service::{Chargen, Discard, Echo, Reflect};

use twinpath_instance::rpcbind::Registration;

/// The reason that a service cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The configuration does not name its kind.
    #[error("service.kind: which service?")]
    NoKind,
    /// The ONC RPC programs conflict with each other.
    #[error("{0}")]
    Programs(#[from] TableError),
}

/// Creates the service that a configuration describes.
///
/// # Errors
/// [`ServiceError`]
pub fn prototype(config: &Config, asked: &Service) -> Result<Box<dyn Prototype>, ServiceError> {
    Ok(match asked.kind {
        Some(ServiceKind::Echo) => Box::new(Echo),
        Some(ServiceKind::Discard) => Box::new(Discard::default()),
        Some(ServiceKind::Chargen) => Box::new(Chargen),
        Some(ServiceKind::Reflect) => Box::new(Reflect),
        Some(ServiceKind::Rpc) => {
            let connection_bytes = config.limits_of(asked).connection_bytes;
            Box::new(rpc::service(&config.rpc_of(asked), connection_bytes)?)
        }
        None => return Err(ServiceError::NoKind),
    })
}

/// The registrations with rpcbind for it; none unless configured.
#[must_use]
pub fn registrations(config: &Config, asked: &Service) -> Vec<Registration> {
    match asked.kind {
        Some(ServiceKind::Rpc) => rpc::registrations(asked, &config.rpc_of(asked)),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rpc_tells_calls_from_replies_and_so_has_no_limit_of_replies_to_one_source() {
        let config = Config::default();
        let of = |kind| prototype(&config, &Service { kind: Some(kind), ..Service::default() }).unwrap();
        assert!(of(ServiceKind::Echo).may_loop());
        assert!(!of(ServiceKind::Rpc).may_loop());
        assert!(!of(ServiceKind::Discard).may_loop(), "nor has discard: it answers questions only");
    }
}
