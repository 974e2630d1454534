//! Gets the handle of an export's root with MOUNT version 3 (RFC 1813, appendix I), and MOUNT's port from rpcbind (RFC
//! 1833) if necessary.

use std::net::SocketAddr;

use anyhow::{Context, ensure};
use twinpath_clients::Transport;
use twinpath_rpc::client::{
    Auth, Refusal, mount_arguments, portmap_arguments, portmap_port, root_handle as handle_in,
};
use twinpath_rpc::nfs3_types::mount;
use twinpath_rpc::nfs3_types::portmap::{self, IPPROTO_TCP, IPPROTO_UDP, mapping};

use super::nfs::{Peer, Program, Session};

/// MNT (RFC 1813, appendix I).
const MNT: u32 = 1;
/// PMAPPROC_GETPORT (RFC 1833, section 3).
const GETPORT: u32 = 3;
/// The port of rpcbind.
const RPCBIND_PORT: u16 = 111;
/// Bytes of a path (RFC 1813, appendix I: MNTPATHLEN).
const PATH_MAX: usize = 1024;
/// MOUNT version 3.
const MOUNT: Program = Program(mount::PROGRAM, mount::VERSION);

/// The export to mount.
#[derive(Clone, Copy)]
pub(crate) struct Exported<'a> {
    /// The NFS server.
    pub(crate) peer: Peer<'a>,
    /// The port of MOUNT, if it is known.
    pub(crate) port: Option<u16>,
    pub(crate) path: &'a str,
}

/// Another port of a server, in the same zone.
fn at_port(peer: &Peer<'_>, port: u16) -> SocketAddr {
    let mut at = peer.at;
    at.set_port(port);
    at
}

/// Asks the MOUNT service for the handle.
///
/// Without a given port, the target's own port is tried first, because a server may have all its programs there; then
/// the port registered with rpcbind.
pub(crate) fn root_handle(exported: &Exported<'_>) -> anyhow::Result<Vec<u8>> {
    ensure!(exported.path.len() <= PATH_MAX, "--export: a path has at most {PATH_MAX} bytes");
    if let Some(port) = exported.port {
        return mounted(exported, port);
    }
    match mounted(exported, exported.peer.at.port()) {
        Err(error) if is_elsewhere(&error) => {
            let at = at_port(&exported.peer, RPCBIND_PORT);
            let port = registered(&exported.peer, MOUNT)
                .with_context(|| {
                    format!("cannot ask rpcbind at {at} where MOUNT is served: add --mount-port PORT")
                })?
                .with_context(|| {
                    format!("MOUNT is not registered with rpcbind at {at}: add --mount-port PORT")
                })?;
            mounted(exported, port)
        }
        answered => answered,
    }
}

/// Whether another port may succeed.
fn is_elsewhere(error: &anyhow::Error) -> bool {
    matches!(
        error.downcast_ref::<Refusal>(),
        Some(Refusal::ProgramUnavailable | Refusal::ProgramMismatch { .. })
    )
}

fn mounted(exported: &Exported<'_>, port: u16) -> anyhow::Result<Vec<u8>> {
    let (path, at) = (exported.path, at_port(&exported.peer, port));
    let asked = Session::connect(&Peer { at, ..exported.peer }).and_then(|mut session| {
        session.call(MOUNT, MNT, &mount_arguments(path), |results| Ok(results.to_vec()))
    });
    let results = asked.with_context(|| format!("cannot ask {at} to mount {path}"))?;
    let handle = handle_in(&results).with_context(|| format!("{at} does not mount {path}"))?;
    Ok(handle.to_vec())
}

/// The port of a program that is registered with the rpcbind of a server, for the transport of calls.
pub(crate) fn registered(peer: &Peer<'_>, program: Program) -> anyhow::Result<Option<u16>> {
    let prot = match peer.transport {
        Transport::Udp => IPPROTO_UDP,
        Transport::Tcp => IPPROTO_TCP,
    };
    let Program(prog, vers) = program;
    let args = portmap_arguments(&mapping { prog, vers, prot, port: 0 });
    let auth = Auth::none();
    let at = at_port(peer, RPCBIND_PORT);
    let mut session = Session::connect(&Peer { at, auth: &auth, ..*peer })?;
    session.call(Program(portmap::PROGRAM, portmap::VERSION), GETPORT, &args, |results| {
        Ok(portmap_port(results)?)
    })
}
