//! Gets the handle of an export's root with MOUNT version 3 (RFC 1813, appendix I), and MOUNT's port from rpcbind (RFC
//! 1833) if necessary.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use twinpath_rpc::client::{
    Auth, Call, Refusal, Reply, mount_arguments, portmap_arguments, portmap_port, root_handle as handle_in,
};
use twinpath_rpc::nfs3_types::mount;
use twinpath_rpc::nfs3_types::portmap::{self, IPPROTO_TCP, IPPROTO_UDP, mapping};
use twinpath_rpc::record::{RecordLimits, RecordReader};
use twinpath_time::Duration;

use twinpath_clients::Transport;

/// MNT (RFC 1813, appendix I).
const MNT: u32 = 1;
/// PMAPPROC_GETPORT (RFC 1833, section 3).
const GETPORT: u32 = 3;
/// The port of rpcbind.
const RPCBIND_PORT: u16 = 111;
/// Bytes of a path (RFC 1813, appendix I: MNTPATHLEN).
const PATH_MAX: usize = 1024;
/// No call made here has longer results.
const REPLY_LIMITS: RecordLimits = RecordLimits { record_bytes: 4096, fragments: 64 };
/// How many times a datagram is sent before it counts as lost.
const DATAGRAM_TRIES: u32 = 3;

/// The export to mount.
pub(crate) struct Exported<'a> {
    /// The NFS server.
    pub(crate) target: SocketAddr,
    /// The port of MOUNT, if it is known.
    pub(crate) port: Option<u16>,
    pub(crate) transport: Transport,
    pub(crate) path: &'a str,
    pub(crate) auth: &'a Auth,
    /// Maximum wait for an answer.
    pub(crate) patience: Duration,
}

impl Exported<'_> {
    /// Another port of the server, in the same zone.
    fn at(&self, port: u16) -> SocketAddr {
        let mut at = self.target;
        at.set_port(port);
        at
    }
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
    match mounted(exported, exported.target.port()) {
        Err(error) if is_elsewhere(&error) => mounted(exported, registered(exported)?),
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
    let args = mount_arguments(exported.path);
    let call = Call {
        xid: xid(),
        program: mount::PROGRAM,
        version: mount::VERSION,
        procedure: MNT,
        auth: exported.auth,
        args: &args,
    };
    let at = exported.at(port);
    let results =
        ask(exported, at, &call).with_context(|| format!("cannot ask {at} to mount {}", exported.path))?;
    let handle = handle_in(&results).with_context(|| format!("{at} does not mount {}", exported.path))?;
    Ok(handle.to_vec())
}

/// The port of MOUNT that is registered with the target's rpcbind.
fn registered(exported: &Exported<'_>) -> anyhow::Result<u16> {
    let prot = match exported.transport {
        Transport::Udp => IPPROTO_UDP,
        Transport::Tcp => IPPROTO_TCP,
    };
    let args = portmap_arguments(&mapping { prog: mount::PROGRAM, vers: mount::VERSION, prot, port: 0 });
    let auth = Auth::none();
    let call = Call {
        xid: xid(),
        program: portmap::PROGRAM,
        version: portmap::VERSION,
        procedure: GETPORT,
        auth: &auth,
        args: &args,
    };
    let at = exported.at(RPCBIND_PORT);
    let results = ask(exported, at, &call).with_context(|| {
        format!("cannot ask rpcbind at {at} where MOUNT is served: add --mount-port PORT")
    })?;
    portmap_port(&results)
        .with_context(|| format!("rpcbind at {at}"))?
        .with_context(|| format!("MOUNT is not registered with rpcbind at {at}: add --mount-port PORT"))
}

/// Makes one call, and returns the results in its reply.
fn ask(exported: &Exported<'_>, at: SocketAddr, call: &Call<'_>) -> anyhow::Result<Vec<u8>> {
    let message = match exported.transport {
        Transport::Tcp => over_tcp(at, call, exported.patience)?,
        Transport::Udp => over_udp(at, call, exported.patience)?,
    };
    let reply = Reply::parse(&message)?;
    ensure!(reply.xid == call.xid, "a reply to another call came");
    Ok(reply.outcome?.to_vec())
}

fn over_tcp(at: SocketAddr, call: &Call<'_>, patience: Duration) -> anyhow::Result<Vec<u8>> {
    let mut stream = TcpStream::connect_timeout(&at, patience)?;
    let mut request = Vec::new();
    call.write_record(1, &mut request);
    stream.write_all(&request)?;
    let deadline = Instant::now() + patience;
    let mut reader = RecordReader::new(REPLY_LIMITS);
    let mut buffer = [0; 4096];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        ensure!(!left.is_zero(), "no reply within {} s", patience.as_secs_f64());
        stream.set_read_timeout(Some(left))?;
        let mut input = match stream.read(&mut buffer) {
            Ok(0) => bail!("the connection was closed instead of a reply"),
            Ok(len) => &buffer[..len],
            Err(error) if is_time_out(&error) => continue,
            Err(error) => return Err(error.into()),
        };
        if let Some(message) = reader.next(&mut input)? {
            return Ok(message.to_vec());
        }
    }
}

fn over_udp(at: SocketAddr, call: &Call<'_>, patience: Duration) -> anyhow::Result<Vec<u8>> {
    let any: SocketAddr = if at.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0_u16; 8], 0).into() };
    let socket = UdpSocket::bind(any)?;
    socket.connect(at)?;
    socket.set_read_timeout(Some(patience / DATAGRAM_TRIES))?;
    let mut request = Vec::new();
    call.write(&mut request);
    let mut buffer = vec![0; 65_536];
    for _ in 0..DATAGRAM_TRIES {
        socket.send(&request)?;
        match socket.recv(&mut buffer) {
            Ok(len) => return Ok(buffer[..len].to_vec()),
            Err(error) if is_time_out(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
    bail!("no reply within {} s", patience.as_secs_f64())
}

fn is_time_out(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
}

/// Differs between two runs, so that a server's cache of replies does not confuse them.
fn xid() -> u32 {
    fastrand::u32(..)
}
