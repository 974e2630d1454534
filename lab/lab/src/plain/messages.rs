//! Messages echoed between two programs whose sockets block, so that both sleep: UDP's, or Reliable Datagram Sockets'.

use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use serde_json::json;
use twinpath_clients::measure::print;
use twinpath_rds_socket::{RdsError, RdsSocket};

/// A message may take that long: a reply of UDP that does not come then is lost.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(clap::Args)]
pub(crate) struct EchoArgs {
    /// The address and port
    #[arg(long)]
    listen: SocketAddr,
    /// Where the daemon of Reliable Datagram Sockets listens; without it: UDP
    #[arg(long)]
    programs: Option<PathBuf>,
}

#[derive(clap::Args)]
pub(crate) struct AskArgs {
    /// The echo's address and port
    target: SocketAddr,
    /// The own address; any port
    #[arg(long)]
    local: SocketAddr,
    /// As for the echo
    #[arg(long)]
    programs: Option<PathBuf>,
    /// Bytes of a message
    #[arg(long)]
    len: usize,
    /// Messages in flight
    #[arg(long)]
    inflight: usize,
    /// Seconds
    #[arg(long)]
    duration: f64,
}

enum Socket {
    Udp(UdpSocket),
    Rds(RdsSocket),
}

impl Socket {
    fn bound(local: SocketAddr, programs: Option<&PathBuf>) -> anyhow::Result<Self> {
        Ok(match programs {
            None => {
                let socket = UdpSocket::bind(local).with_context(|| format!("cannot bind to {local}"))?;
                socket.set_read_timeout(Some(PATIENCE))?;
                Self::Udp(socket)
            }
            Some(programs) => {
                let mut socket = RdsSocket::open(programs)?;
                socket.bind(local).with_context(|| format!("cannot bind to {local}"))?;
                Self::Rds(socket)
            }
        })
    }

    fn send(&self, bytes: &[u8], to: SocketAddr) -> io::Result<()> {
        match self {
            Self::Udp(socket) => socket.send_to(bytes, to).map(drop),
            Self::Rds(socket) => socket.send_to(bytes, to).map_err(to_io),
        }
    }

    fn receive(&self, into: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        match self {
            Self::Udp(socket) => socket.recv_from(into),
            Self::Rds(socket) => {
                socket.receive(into).map(|received| (received.len, received.from)).map_err(to_io)
            }
        }
    }
}

fn to_io(error: RdsError) -> io::Error {
    match error {
        RdsError::Call(error) => error.into(),
        other => io::Error::other(other),
    }
}

/// Echoes until it is killed or told to end.
pub(crate) fn echo(args: &EchoArgs) -> anyhow::Result<()> {
    let socket = Socket::bound(args.listen, args.programs.as_ref())?;
    print(json!({ "ready": true, "address": args.listen, "pid": std::process::id() }))?;
    let mut bytes = vec![0; 1 << 20];
    loop {
        match socket.receive(&mut bytes) {
            Ok((len, from)) => socket.send(&bytes[..len], from)?,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Sends numbered messages, as many in flight as asked for, and compares what comes back.
pub(crate) fn ask(args: &AskArgs) -> anyhow::Result<()> {
    let socket = Socket::bound(args.local, args.programs.as_ref())?;
    ensure!(
        args.len >= 8 && args.inflight > 0,
        "a message has 8 bytes at least, and one is in flight at least"
    );
    let (mut bytes, mut received) = (vec![0; args.len], vec![0; 1 << 20]);
    let mut flying: VecDeque<(u64, Instant)> = VecDeque::new();
    let mut times = Vec::new();
    let (mut number, begun) = (0_u64, Instant::now());
    let duration = Duration::try_from_secs_f64(args.duration)?;
    // A connection is made first, and a tenth of the time is a warm-up.
    let warm = duration / 10;
    let mut count = 0_u64;
    loop {
        let elapsed = begun.elapsed();
        if elapsed >= duration + warm {
            break;
        }
        while flying.len() < args.inflight {
            bytes[..8].copy_from_slice(&number.to_le_bytes());
            flying.push_back((number, Instant::now()));
            socket.send(&bytes, args.target)?;
            number += 1;
        }
        let (len, _) = socket.receive(&mut received).context("an echo did not come")?;
        let (expected, sent) = flying.pop_front().context("more came than was sent")?;
        ensure!(
            len == args.len && received[..8] == expected.to_le_bytes(),
            "message {expected} came otherwise"
        );
        if elapsed >= warm {
            count += 1;
            times.push(sent.elapsed().as_nanos() as f64 / 1e3);
        }
    }
    times.sort_by(f64::total_cmp);
    let at = |part: f64| times.get((times.len() as f64 * part) as usize).copied().unwrap_or_default();
    Ok(print(json!({
        "p50_us": at(0.5),
        "p99_us": at(0.99),
        "requests_per_s": count as f64 / duration.as_secs_f64(),
    }))?)
}
