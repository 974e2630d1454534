//! Calls made one after the other over one socket: what comes before and after a measurement, and a walk.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Instant;

use anyhow::{Context, anyhow, bail, ensure};
use twinpath_clients::Transport;
use twinpath_rpc::client::nfs::NfsError;
use twinpath_rpc::client::{Auth, Call, Reply};
use twinpath_rpc::nfs3_types::nfs3::{self, NFS_PROGRAM, Nfs3Result};
use twinpath_rpc::nfs3_types::xdr_codec::{Pack, Unpack};
use twinpath_rpc::record::{RecordLimits, RecordReader};
use twinpath_socket_load::socket::{Source, tcp_from, udp_from};
use twinpath_time::Duration;

/// No call made here has longer results: a READ of 1 MiB, with what is around it.
const REPLY_LIMITS: RecordLimits = RecordLimits { record_bytes: (1 << 20) + 4096, fragments: 1024 };
/// How many times a datagram is sent before it counts as lost.
const DATAGRAM_TRIES: u32 = 3;
/// The longest datagram.
const DATAGRAM_MAX: usize = 1 << 16;
/// Bytes that a connection takes at once.
const PIECE: usize = 256 << 10;

/// Where and how calls are made.
#[derive(Clone, Copy)]
pub(crate) struct Peer<'a> {
    pub(crate) at: SocketAddr,
    pub(crate) transport: Transport,
    pub(crate) source: Source,
    pub(crate) auth: &'a Auth,
    /// Maximum wait for an answer.
    pub(crate) patience: Duration,
}

/// A program with its version.
#[derive(Clone, Copy)]
pub(crate) struct Program(pub(crate) u32, pub(crate) u32);

/// A socket with one call outstanding at most.
pub(crate) struct Session {
    auth: Auth,
    patience: Duration,
    xid: u32,
    link: Link,
    request: Vec<u8>,
}

enum Link {
    Tcp { stream: TcpStream, reader: RecordReader, incoming: Box<[u8]>, taken: usize, filled: usize },
    Udp { socket: UdpSocket, incoming: Box<[u8]> },
}

impl Session {
    pub(crate) fn connect(peer: &Peer<'_>) -> anyhow::Result<Self> {
        let link = match peer.transport {
            Transport::Tcp => {
                let stream = tcp_from(peer.at, peer.source)?;
                stream.set_nodelay(true)?;
                let (reader, incoming) = (RecordReader::new(REPLY_LIMITS), vec![0; PIECE].into());
                Link::Tcp { stream, reader, incoming, taken: 0, filled: 0 }
            }
            Transport::Udp => {
                let socket = udp_from(peer.at, peer.source)?;
                socket.set_read_timeout(Some(peer.patience / DATAGRAM_TRIES))?;
                Link::Udp { socket, incoming: vec![0; DATAGRAM_MAX].into() }
            }
        };
        // Differs between two runs, so that a server's cache of replies does not confuse them.
        let xid = fastrand::u32(..);
        Ok(Self { auth: peer.auth.clone(), patience: peer.patience, xid, link, request: Vec::new() })
    }

    /// Makes a call, and passes the results in its reply to `decode`.
    pub(crate) fn call<T>(
        &mut self,
        program: Program,
        procedure: u32,
        args: &[u8],
        decode: impl FnOnce(&[u8]) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        self.xid = self.xid.wrapping_add(1);
        let Program(program, version) = program;
        let call = Call { xid: self.xid, program, version, procedure, auth: &self.auth, args };
        self.request.clear();
        let message = match &mut self.link {
            Link::Tcp { stream, reader, incoming, taken, filled } => {
                call.write_record(1, &mut self.request);
                stream.write_all(&self.request)?;
                let deadline = Instant::now() + self.patience;
                loop {
                    let mut input = &incoming[*taken..*filled];
                    let before = input.len();
                    if let Some(message) = reader.next(&mut input)? {
                        *taken += before - input.len();
                        break message;
                    }
                    (*taken, *filled) = (0, receive(stream, incoming, deadline, self.patience)?);
                }
            }
            Link::Udp { socket, incoming } => {
                call.write(&mut self.request);
                let len = exchange(socket, &self.request, self.xid, incoming)?
                    .with_context(|| format!("no reply within {} s", self.patience.as_secs_f64()))?;
                &incoming[..len]
            }
        };
        let reply = Reply::parse(message)?;
        ensure!(reply.xid == self.xid, "a reply to another call came");
        decode(reply.outcome?)
    }

    /// Makes a call of NFS version 3, with arguments and results of the library.
    pub(crate) fn nfs<T: Unpack, E: Unpack>(
        &mut self,
        procedure: NFS_PROGRAM,
        args: &impl Pack,
    ) -> anyhow::Result<T> {
        let mut packed = Vec::new();
        args.pack(&mut packed).map_err(|error| anyhow!("cannot encode a call: {error}"))?;
        let name = name(procedure);
        self.call(NFS, procedure as u32, &packed, |mut results| {
            let (result, _) = Nfs3Result::<T, E>::unpack(&mut results)
                .map_err(|error| anyhow!("the results of {name} can't be read: {error}"))?;
            match result {
                Nfs3Result::Ok(done) => Ok(done),
                Nfs3Result::Err((status, _)) => Err(NfsError::Status(status).into()),
            }
        })
        .context(name)
    }
}

/// NFS version 3.
pub(crate) const NFS: Program = Program(nfs3::PROGRAM, nfs3::VERSION);

/// The name of a procedure: `READ`.
pub(crate) fn name(procedure: NFS_PROGRAM) -> String {
    let name = format!("{procedure:?}");
    name.strip_prefix("NFSPROC3_").unwrap_or(&name).to_owned()
}

/// Bytes from a connection; at least one.
fn receive(
    stream: &mut TcpStream,
    incoming: &mut [u8],
    deadline: Instant,
    patience: Duration,
) -> anyhow::Result<usize> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        ensure!(!left.is_zero(), "no reply within {} s", patience.as_secs_f64());
        stream.set_read_timeout(Some(left))?;
        match stream.read(incoming) {
            Ok(0) => bail!("the connection was closed instead of a reply"),
            Ok(len) => return Ok(len),
            Err(error) if is_time_out(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Sends a call, again if no reply comes. Returns the length of the reply, if there is one.
fn exchange(
    socket: &UdpSocket,
    request: &[u8],
    xid: u32,
    incoming: &mut [u8],
) -> anyhow::Result<Option<usize>> {
    for _ in 0..DATAGRAM_TRIES {
        socket.send(request)?;
        loop {
            match socket.recv(incoming) {
                // A second reply to an earlier call.
                Ok(len) if incoming[..len].first_chunk() != Some(&xid.to_be_bytes()) => {}
                Ok(len) => return Ok(Some(len)),
                Err(error) if is_time_out(&error) => break,
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(None)
}

fn is_time_out(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut | std::io::ErrorKind::Interrupted
    )
}
