//! NFS and MOUNT over files of this host.

use std::sync::Arc;

use twinpath_nfs::{Bounds, MountProgram, Mounts, NfsProgram, Server, Sizes};
use twinpath_rpc::Program;

use super::{HostExports, HostThreads};

/// The programs that serve `server` over `files`, with data of these lengths by datagrams and by streams, and with so many
/// calls that wait for threads.
///
/// The rules are generic, so they are compiled where they meet their files. That is here, because the command-line program is
/// built without optimisation.
#[must_use]
pub fn programs(
    server: Server,
    files: Arc<HostExports>,
    mounts: Arc<Mounts>,
    [datagram, stream]: [Sizes; 2],
    bounds: Bounds,
) -> Vec<Box<dyn Program>> {
    let nfs = NfsProgram::new(Arc::new(server), HostThreads::new(files), datagram, stream, bounds);
    let mount = MountProgram::new(nfs.sibling(), mounts);
    vec![Box::new(nfs), Box::new(mount)]
}
