//! The ONC RPC programs, and their registrations.

use std::num::NonZeroU16;
use std::sync::Arc;

use twinpath_config::{Rpc, Service};
use twinpath_rpc::mount3::Mount3;
use twinpath_rpc::nfs3::{Nfs3, Tree};
use twinpath_rpc::record::RecordLimits;
use twinpath_rpc::{DuplicateLimits, Program, RpcService, Server, TableError};
use twinpath_time::Duration;

use twinpath_instance::rpcbind::Registration;

/// The programs that are served: NFSv3 and MOUNT on a small fixed tree.
fn programs() -> Vec<Box<dyn Program>> {
    let tree = Arc::new(Tree::small());
    vec![Box::new(Nfs3::new(Arc::clone(&tree))), Box::new(Mount3::new(tree))]
}

/// Creates the service from the configuration. Each of its connections may hold `connection_bytes` of a
/// request.
pub(super) fn service(rpc: &Rpc, connection_bytes: u32) -> Result<RpcService, TableError> {
    let age = Duration::from_secs(u64::from(rpc.duplicate_age_s));
    let duplicates = DuplicateLimits { calls: rpc.duplicates, age };
    let server = Server::new(programs(), duplicates, fastrand::u64(..))?;
    let records =
        RecordLimits { record_bytes: rpc.record_bytes, fragments: rpc.fragments_max(connection_bytes) };
    Ok(RpcService::new(server, records))
}

/// The registrations with rpcbind; none unless configured.
pub(super) fn registrations(service: &Service, rpc: &Rpc) -> Vec<Registration> {
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
    if rpc.rpcbind { programs().into_iter().flat_map(each).collect() } else { Vec::new() }
}
