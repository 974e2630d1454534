//! The services that a configuration describes, and what is registered of them with rpcbind.

use std::num::NonZeroU16;
use std::ops::RangeInclusive;
use std::sync::Arc;

use anyhow::bail;
use twinpath_config::{Config, Service, ServiceKind};
use twinpath_instance::rpcbind::Registration;
use twinpath_rpc::record::RecordLimits;
use twinpath_rpc::{DuplicateLimits, Duplicates};
use twinpath_serve::Prototype;
use twinpath_serve::services::{chargen, discard, echo, programs, reflect, rpc};
use twinpath_time::Duration;

use super::nfs::NfsHost;

/// Creates the service that a configuration describes. What services of NFS share is in `nfs`.
pub(super) fn prototype(
    config: &Config,
    asked: &Service,
    nfs: &NfsHost,
) -> anyhow::Result<Box<dyn Prototype>> {
    Ok(match asked.kind {
        Some(ServiceKind::Echo) => echo(),
        Some(ServiceKind::Discard) => discard(),
        Some(ServiceKind::Chargen) => chargen(),
        Some(ServiceKind::Reflect) => reflect(),
        Some(kind @ (ServiceKind::Rpc | ServiceKind::Nfs)) => {
            let keys = config.rpc_of(asked);
            let age = Duration::from_secs(u64::from(keys.duplicate_age_s));
            let fragments = keys.fragments_max(config.limits_of(asked).connection_bytes);
            let records = RecordLimits { record_bytes: keys.record_bytes, fragments };
            let limits = DuplicateLimits { calls: keys.duplicates, age };
            if kind == ServiceKind::Nfs {
                rpc(nfs.programs(config, asked)?, &nfs.duplicates(asked.shown_name(), limits), records)?
            } else {
                // It has no calls that must run once.
                rpc(programs(), &Arc::new(Duplicates::new(limits, fastrand::u64(..))), records)?
            }
        }
        None => bail!("service.kind: which service?"),
    })
}

/// The registrations of a service with rpcbind; none unless it is one of ONC RPC, and configured.
pub(super) fn registrations(config: &Config, service: &Service) -> Vec<Registration> {
    let served: Vec<(u32, RangeInclusive<u32>)> = match service.kind {
        Some(ServiceKind::Rpc) => {
            programs().iter().map(|program| (program.number(), program.versions())).collect()
        }
        Some(ServiceKind::Nfs) => twinpath_nfs::PROGRAMS.to_vec(),
        _ => Vec::new(),
    };
    if !config.rpc_of(service).rpcbind {
        return Vec::new();
    }
    let ports = [(Registration::UDP, service.udp), (Registration::TCP, service.tcp)];
    let each = |(number, versions): (u32, RangeInclusive<u32>)| {
        versions.flat_map(move |version| {
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
    served.into_iter().flat_map(each).collect()
}
