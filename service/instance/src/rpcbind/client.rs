//! A client of rpcbind.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Mutex, PoisonError};

use twinpath_observe::holders::{Transport, is_held};
use twinpath_rpc::client::{Auth, Call, Reply, ReplyError, portmap_arguments, portmap_boolean, portmap_port};
use twinpath_rpc::nfs3_types::portmap::{PMAP_PORT, PMAP_PROG, PROGRAM, VERSION, mapping};
use twinpath_sys::clock;
use twinpath_sys::event_loop::{Watched, timeout};
use twinpath_time::Duration;

use crate::rpcbind::Registration;

/// Time to wait for a reply before the call is repeated: over loopback only a full buffer loses packets.
const REPLY_TIME: Duration = Duration::from_millis(300);
const TRIES: usize = 3;
/// Ports that only root may bind: rpcbind accepts registrations from these.
const PRIVILEGED: std::ops::RangeInclusive<u16> = 600..=1023;
/// The longest reply to these calls, plus room to detect a longer one.
const REPLY_LEN: usize = 512;

/// The reason that a call to rpcbind failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RpcbindError {
    #[error("no socket to ask rpcbind: {0}")]
    Socket(#[source] io::Error),
    #[error("no rpcbind answers at port {PMAP_PORT} of this host ({0})")]
    Absent(#[source] io::Error),
    #[error("rpcbind at port {PMAP_PORT} does not answer")]
    Silent,
    #[error("rpcbind's answer is none: {0}")]
    Reply(#[from] ReplyError),
}

/// The known state of registrations.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// Those that are ours.
    pub(crate) ours: Vec<Registration>,
    /// Those that rpcbind refused; this has been logged.
    refused: Vec<Registration>,
}

impl Known {
    /// Records whether a registration is ours. Returns whether that changed.
    fn is(&mut self, registration: Registration, is_ours: bool) -> bool {
        let (now, before) =
            if is_ours { (&mut self.ours, &mut self.refused) } else { (&mut self.refused, &mut self.ours) };
        before.retain(|other| *other != registration);
        let is_new = !now.contains(&registration);
        if is_new {
            now.push(registration);
        }
        is_new
    }
}

/// Registers `wanted`, and records changes in `known`, which gets each registration as soon as it is made.
///
/// # Errors
/// Rpcbind does not answer.
pub(crate) async fn set(wanted: &[Registration], known: &Mutex<Known>) -> Result<(), RpcbindError> {
    let mut rpcbind = Rpcbind::open()?;
    let is = |registration, is_ours| {
        known.lock().unwrap_or_else(PoisonError::into_inner).is(registration, is_ours)
    };
    for (program, version) in names(wanted) {
        let mut others = rpcbind.others(program, version, wanted).await?;
        if !others.is_empty() && others.iter().all(|other| is_dead(*other)) {
            for dead in others.drain(..) {
                tracing::info!(
                    "rpcbind has {dead} at port {}, which nobody holds: it is replaced",
                    dead.port
                );
            }
            // UNSET removes all protocols, regardless of the one that it names.
            let removed = Registration { program, version, protocol: Registration::UDP, port: 0 };
            rpcbind.unset(removed).await?;
        }
        for registration in wanted.iter().filter(|it| (it.program, it.version) == (program, version)) {
            let is_set = rpcbind.set(*registration).await?;
            let is_ours = is_set || rpcbind.port(*registration).await? == Some(registration.port);
            let is_new = is(*registration, is_ours);
            if is_ours {
                // If SET succeeded, the registration did not exist, whatever `known` says.
                if is_set || is_new {
                    let how = if is_set { "has" } else { "knew" };
                    tracing::info!("rpcbind {how} {registration} at port {}", registration.port);
                }
                continue;
            }
            let other = others.iter().find(|other| other.protocol == registration.protocol);
            match other {
                _ if !is_new => {}
                Some(dead) if is_dead(*dead) => tracing::warn!(
                    "rpcbind has {dead} at port {}, which nobody holds here, and the same by another protocol, which somebody does; \
                     remove both with rpcinfo -d {} {}, then reload",
                    dead.port,
                    dead.program,
                    dead.version
                ),
                Some(other) => tracing::warn!(
                    "rpcbind has {other} at port {}, somebody else's, which stays: who asks rpcbind finds that",
                    other.port
                ),
                None => {
                    tracing::warn!("rpcbind refuses {registration}: it takes registrations from root alone")
                }
            }
        }
    }
    Ok(())
}

/// Removes registrations that are ours.
///
/// # Errors
/// Rpcbind does not answer.
pub(crate) async fn unset(ours: &[Registration]) -> Result<(), RpcbindError> {
    let mut rpcbind = Rpcbind::open()?;
    for (program, version) in names(ours) {
        match rpcbind.others(program, version, ours).await?.as_slice() {
            // UNSET removes all protocols, regardless of the one that it names.
            [] => {
                let all = Registration { program, version, protocol: Registration::UDP, port: 0 };
                rpcbind.unset(all).await?;
            }
            [other, ..] => tracing::warn!(
                "program {program} version {version} stays registered: somebody else has it at port {} by now",
                other.port
            ),
        }
    }
    Ok(())
}

/// The distinct programs and versions of these registrations.
fn names(registrations: &[Registration]) -> Vec<(u32, u32)> {
    let mut names: Vec<_> = registrations.iter().map(|it| (it.program, it.version)).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Whether no socket in this network namespace holds the port of a registration, so that clients sent there
/// by rpcbind would find no server. A port forwarded to another namespace also counts as dead.
fn is_dead(registration: Registration) -> bool {
    let udp = registration.protocol == Registration::UDP;
    let transport = if udp { Transport::Udp } else { Transport::Tcp };
    is_held(transport, registration.port) == Some(false)
}

fn mapping_of(registration: Registration) -> mapping {
    let Registration { program, version, protocol, port } = registration;
    mapping { prog: program, vers: version, prot: protocol, port: port.into() }
}

/// A client of rpcbind.
struct Rpcbind {
    socket: Watched<UdpSocket>,
    xid: u32,
}

impl Rpcbind {
    fn open() -> Result<Self, RpcbindError> {
        let connected = bind().and_then(|socket| {
            socket.connect((Ipv4Addr::LOCALHOST, PMAP_PORT))?;
            socket.set_nonblocking(true)?;
            Watched::both(socket)
        });
        let socket = connected.map_err(RpcbindError::Socket)?;
        Ok(Self { socket, xid: clock::now().as_nanos() as u32 })
    }

    async fn set(&mut self, registration: Registration) -> Result<bool, RpcbindError> {
        let results = self.call(PMAP_PROG::PMAPPROC_SET, registration).await?;
        Ok(portmap_boolean(&results)?)
    }

    async fn unset(&mut self, registration: Registration) -> Result<bool, RpcbindError> {
        let results = self.call(PMAP_PROG::PMAPPROC_UNSET, registration).await?;
        Ok(portmap_boolean(&results)?)
    }

    async fn port(&mut self, registration: Registration) -> Result<Option<u16>, RpcbindError> {
        let results = self.call(PMAP_PROG::PMAPPROC_GETPORT, registration).await?;
        Ok(portmap_port(&results)?)
    }

    /// The registrations of a program and version that are not in `ours`.
    async fn others(
        &mut self,
        program: u32,
        version: u32,
        ours: &[Registration],
    ) -> Result<Vec<Registration>, RpcbindError> {
        let mut others = Vec::new();
        for protocol in [Registration::UDP, Registration::TCP] {
            let asked = Registration { program, version, protocol, port: 0 };
            let known = self.port(asked).await?.map(|port| Registration { port, ..asked });
            others.extend(known.filter(|known| !ours.contains(known)));
        }
        Ok(others)
    }

    /// Makes one call, and returns its results.
    async fn call(
        &mut self,
        procedure: PMAP_PROG,
        registration: Registration,
    ) -> Result<Vec<u8>, RpcbindError> {
        self.xid = self.xid.wrapping_add(1);
        let (auth, args) = (Auth::none(), portmap_arguments(&mapping_of(registration)));
        let (program, version, procedure) = (PROGRAM, VERSION, procedure as u32);
        let mut message = Vec::new();
        Call { xid: self.xid, program, version, procedure, auth: &auth, args: &args }.write(&mut message);
        for _ in 0..TRIES {
            self.socket.write(|socket| socket.send(&message)).await.map_err(RpcbindError::Absent)?;
            if let Ok(reply) = timeout(REPLY_TIME, self.reply()).await {
                return reply;
            }
        }
        Err(RpcbindError::Silent)
    }

    /// The results in the reply to the last call; replies to earlier ones are ignored.
    async fn reply(&self) -> Result<Vec<u8>, RpcbindError> {
        let mut buffer = [0; REPLY_LEN];
        loop {
            let len =
                self.socket.read(|socket| socket.recv(&mut buffer)).await.map_err(RpcbindError::Absent)?;
            let reply = Reply::parse(&buffer[..len])?;
            if reply.xid == self.xid {
                return Ok(reply.outcome.map_err(ReplyError::from)?.to_vec());
            }
        }
    }
}

/// A socket on loopback, with a privileged port if permitted.
fn bind() -> io::Result<UdpSocket> {
    for port in PRIVILEGED.rev() {
        match UdpSocket::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            // Not root: rpcbind refuses calls from other ports, and the refusal is logged.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => break,
            outcome => return outcome,
        }
    }
    UdpSocket::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
}
