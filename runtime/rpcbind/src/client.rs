//! A client of rpcbind, and what it has registered.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::UdpSocket;
use tokio::time::{Duration, timeout};
use twinpath_rpc::client::{Auth, Call, Reply, ReplyError, portmap_arguments, portmap_boolean, portmap_port};
use twinpath_rpc::nfs3_types::portmap::{PMAP_PORT, PMAP_PROG, PROGRAM, VERSION, mapping};
use twinpath_sys::clock;

use crate::Registration;

/// Time for a reply, after which the call is repeated: over loopback only a full buffer loses packets.
const REPLY_TIME: Duration = Duration::from_millis(300);
const TRIES: usize = 3;
/// Ports that only root may bind: rpcbind accepts registrations from these.
const PRIVILEGED: std::ops::RangeInclusive<u16> = 600..=1023;
/// The longest reply to these calls, and room to detect a longer one.
const REPLY_LEN: usize = 512;

/// The reason that a call to rpcbind failed.
#[derive(Debug, thiserror::Error)]
enum RpcbindError {
    #[error("no socket to ask rpcbind: {0}")]
    Socket(#[source] io::Error),
    #[error("no rpcbind answers at port {PMAP_PORT} of this host ({0}): start it (systemctl start rpcbind)")]
    Absent(#[source] io::Error),
    #[error("rpcbind at port {PMAP_PORT} does not answer")]
    Silent,
    #[error("rpcbind's answer is none: {0}")]
    Reply(#[from] ReplyError),
}

/// The registrations to be removed at the end.
#[derive(Debug, Default)]
pub struct Registered(Vec<Registration>);

impl Registered {
    /// Registers the programs, and warns of those that cannot be registered: they are served all the same.
    pub async fn set(wanted: &[Registration]) -> Self {
        let mut registered = Self::default();
        if wanted.is_empty() {
            return registered;
        }
        if let Err(error) = registered.set_each(wanted).await {
            tracing::warn!("not registered with rpcbind: {error}. Clients have to be told the port");
        }
        registered
    }

    async fn set_each(&mut self, wanted: &[Registration]) -> Result<(), RpcbindError> {
        let mut rpcbind = Rpcbind::open().await?;
        for registration in wanted.iter().copied() {
            if rpcbind.set(registration).await? {
                self.0.push(registration);
                continue;
            }
            match rpcbind.port(registration).await? {
                Some(port) if port == registration.port => {
                    tracing::info!("rpcbind knows {registration} at port {port} already");
                    self.0.push(registration);
                }
                Some(port) => tracing::warn!(
                    "rpcbind has {registration} at port {port}, somebody else's, which stays: who asks rpcbind finds that"
                ),
                None => {
                    tracing::warn!("rpcbind refuses {registration}: it takes registrations from root alone")
                }
            }
        }
        Ok(())
    }

    /// Removes the registrations.
    pub async fn unset(self) {
        if self.0.is_empty() {
            return;
        }
        if let Err(error) = self.unset_each().await {
            tracing::warn!(
                "still registered with rpcbind: {error}. Remove it with rpcinfo -d PROGRAM VERSION"
            );
        }
    }

    async fn unset_each(&self) -> Result<(), RpcbindError> {
        let mut rpcbind = Rpcbind::open().await?;
        for (at, registration) in self.0.iter().enumerate() {
            let Registration { program, version, .. } = *registration;
            if self.0[..at].iter().any(|earlier| (earlier.program, earlier.version) == (program, version)) {
                continue;
            }
            // UNSET removes all protocols at once, whichever it names.
            let mut others = None;
            for protocol in [Registration::UDP, Registration::TCP] {
                let here = Registration { protocol, ..*registration };
                let ours = |port: u16| self.0.contains(&Registration { port, ..here });
                others = others.or(rpcbind.port(here).await?.filter(|port| !ours(*port)));
            }
            match others {
                Some(port) => tracing::warn!(
                    "program {program} version {version} stays registered: somebody else has it at port {port} by now"
                ),
                None => drop(rpcbind.unset(*registration).await?),
            }
        }
        Ok(())
    }
}

fn mapping_of(registration: Registration) -> mapping {
    let Registration { program, version, protocol, port } = registration;
    mapping { prog: program, vers: version, prot: protocol, port: port.into() }
}

/// A client of rpcbind.
struct Rpcbind {
    socket: UdpSocket,
    xid: u32,
}

impl Rpcbind {
    async fn open() -> Result<Self, RpcbindError> {
        let socket = bind().await.map_err(RpcbindError::Socket)?;
        socket.connect((Ipv4Addr::LOCALHOST, PMAP_PORT)).await.map_err(RpcbindError::Socket)?;
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
            self.socket.send(&message).await.map_err(RpcbindError::Absent)?;
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
            let len = self.socket.recv(&mut buffer).await.map_err(RpcbindError::Absent)?;
            let reply = Reply::parse(&buffer[..len])?;
            if reply.xid == self.xid {
                return Ok(reply.outcome.map_err(ReplyError::from)?.to_vec());
            }
        }
    }
}

/// A socket on loopback, with a privileged port if permitted.
async fn bind() -> io::Result<UdpSocket> {
    for port in PRIVILEGED.rev() {
        match UdpSocket::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            // Not root: rpcbind refuses calls from other ports, and the refusal is logged.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => break,
            outcome => return outcome,
        }
    }
    UdpSocket::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await
}
