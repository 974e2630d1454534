//! The services that a configuration describes, and what is registered of them with rpcbind.

use std::num::NonZeroU16;

use anyhow::bail;
use twinpath_config::{Config, Service, ServiceKind};
use twinpath_instance::rpcbind::Registration;
use twinpath_rpc::record::RecordLimits;
use twinpath_rpc::{DuplicateLimits, Program};
use twinpath_serve::Prototype;
use twinpath_serve::services::{chargen, discard, echo, programs, reflect, rpc};
use twinpath_time::Duration;

/// Creates the service that a configuration describes.
pub(super) fn prototype(config: &Config, asked: &Service) -> anyhow::Result<Box<dyn Prototype>> {
    Ok(match asked.kind {
        Some(ServiceKind::Echo) => echo(),
        Some(ServiceKind::Discard) => discard(),
        Some(ServiceKind::Chargen) => chargen(),
        Some(ServiceKind::Reflect) => reflect(),
        Some(ServiceKind::Rpc) => {
            let keys = config.rpc_of(asked);
            let age = Duration::from_secs(u64::from(keys.duplicate_age_s));
            let fragments = keys.fragments_max(config.limits_of(asked).connection_bytes);
            let records = RecordLimits { record_bytes: keys.record_bytes, fragments };
            rpc(DuplicateLimits { calls: keys.duplicates, age }, records, fastrand::u64(..))?
        }
        None => bail!("service.kind: which service?"),
    })
}

/// The registrations of a service with rpcbind; none unless it is one of ONC RPC, and configured.
pub(super) fn registrations(config: &Config, service: &Service) -> Vec<Registration> {
    if service.kind != Some(ServiceKind::Rpc) || !config.rpc_of(service).rpcbind {
        return Vec::new();
    }
    let ports = [(Registration::UDP, service.udp), (Registration::TCP, service.tcp)];
    let each = |program: Box<dyn Program>| {
        program.versions().flat_map(move |version| {
            let number = program.number();
            let served = ports.iter().filter_map(|(protocol, port)| Some((*protocol, (*port)?)));
            let registration = move |(protocol, port)| Registration {
                program: number,
                version,
                protocol,
                port: NonZeroU16::get(port),
            };
            served.map(registration).collect::<Vec<_>>()
        })
    };
    programs().into_iter().flat_map(each).collect()
}
