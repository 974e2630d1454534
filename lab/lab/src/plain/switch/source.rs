//! `plain frame-source`: sends frames of 64 bytes, or datagrams with random sources, as many as go; `plain xdp-sink`: takes those that are no packets.

use std::io::Read as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use anyhow::{Context, bail};
use clap::ValueEnum;
use serde::Deserialize;
use serde_json::json;
use twinpath_claims::Prefix;
use twinpath_clients::measure::{attend, print};
use twinpath_socket_load::Stop;
use twinpath_test_plain::{
    BATCH_MAX, FRAME_BYTES, Frame, Sending, XdpSink, XdpSource, bare_frame, datagram_frame, send_frames,
};
use twinpath_wire::{EtherType, Mac};
use twinpath_worker::thread::priority::Priority;

use crate::openflow::hostile;
use crate::plain::reflect::interface_index;

#[derive(clap::Args)]
pub(crate) struct SourceArgs {
    /// The interface
    #[arg(long, value_name = "IFACE")]
    on: String,
    /// The source's address
    #[arg(long, value_name = "MAC")]
    from: Mac,
    /// The sink's address
    #[arg(long, value_name = "MAC")]
    to: Mac,
    /// Frames per system call
    #[arg(long, default_value_t = 64)]
    batch: usize,
    /// Seconds
    #[arg(long, default_value_t = 1.0)]
    duration: f64,
    /// Frames per second; without it as many as go
    #[arg(long)]
    rate: Option<f64>,
    /// What differs between the frames
    #[arg(long, value_enum, default_value_t = Varied::Nothing)]
    varied: Varied,
    /// Send datagrams to this IPv4 address and port
    #[arg(long, value_name = "ADDRESS:PORT", requires = "sources", conflicts_with = "varied")]
    datagrams_to: Option<SocketAddrV4>,
    /// From random addresses of this prefix
    #[arg(long, value_name = "PREFIX", requires = "datagrams_to")]
    sources: Option<Prefix>,
    /// Priority of the thread: normal, slice:US, nice:N, fifo:N (real time) or auto (the best that is granted)
    #[arg(long, default_value_t = Priority::Normal)]
    priority: Priority,
    /// Send so many from an XDP program instead of a packet socket
    #[arg(long, value_name = "FRAMES", conflicts_with_all = ["batch", "duration", "rate", "varied", "datagrams_to"])]
    xdp: Option<u32>,
}

#[derive(clap::Args)]
pub(crate) struct SinkArgs {
    /// The interface
    #[arg(long, value_name = "IFACE")]
    on: String,
}

/// What differs between the frames that are sent by turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Varied {
    /// All are the same
    Nothing,
    /// Source addresses, 65,536 of them: more than a MAC table has room for
    Sources,
    /// Headers of UDP that the flows of `plain openflow hostile` have to search for as long as they can
    Hostile,
}

/// Addresses that [`Varied::Sources`] has.
const SOURCES: u32 = 65_536;

/// Datagrams with sources of their own: at 20,000 a second, ten seconds without one that comes again.
const DATAGRAMS: usize = 200_000;

fn frames(args: &SourceArgs) -> anyhow::Result<Vec<Frame>> {
    if let (Some(to), Some(sources)) = (args.datagrams_to, args.sources) {
        let IpAddr::V4(network) = sources.address() else { bail!("--sources {sources}: IPv4 is wanted") };
        let own_bits = u32::MAX.checked_shr(sources.len().into()).unwrap_or(0);
        let mut random = fastrand::Rng::new();
        let source = |random: u32| Ipv4Addr::from_bits(network.to_bits() | (random & own_bits));
        let datagram = |random| datagram(args.from.0, args.to.0, source(random), to);
        return Ok((0..DATAGRAMS).map(|_| datagram(random.u32(..))).collect());
    }
    Ok(match args.varied {
        Varied::Nothing => vec![bare_frame(args.from.0, args.to.0)],
        Varied::Sources => {
            let source = |number: u32| {
                let [_, high, middle, low] = number.to_be_bytes();
                // Locally administered, and not one of the lab's own.
                [0x02, 0x75, 0x70, high, middle, low]
            };
            (0..SOURCES).map(|number| bare_frame(source(number), args.to.0)).collect()
        }
        Varied::Hostile => hostile::frames(args.from.0, args.to.0),
    })
}

/// A datagram without a UDP checksum, from a port that no service has.
fn datagram(from: [u8; 6], to: [u8; 6], source: Ipv4Addr, target: SocketAddrV4) -> Frame {
    const FROM_PORT: u16 = 40_000;
    let mut frame = bare_frame(from, to);
    frame[12..14].copy_from_slice(&EtherType::IPV4.0.to_be_bytes());
    let (ip, udp) = frame[14..].split_at_mut(20);
    ip[..10].copy_from_slice(&[0x45, 0, 0, (FRAME_BYTES - 14) as u8, 0, 0, 0x40, 0, 64, 17]);
    ip[12..16].copy_from_slice(&source.octets());
    ip[16..20].copy_from_slice(&target.ip().octets());
    let words = ip.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    ip[10..12].copy_from_slice(&(!(folded as u16)).to_be_bytes());
    udp[..2].copy_from_slice(&FROM_PORT.to_be_bytes());
    udp[2..4].copy_from_slice(&target.port().to_be_bytes());
    udp[5] = (FRAME_BYTES - 34) as u8;
    frame
}

/// The result that `plain frame-source` prints.
#[derive(Debug, Deserialize)]
pub(crate) struct Sent {
    /// Frames that the interface took.
    pub(crate) frames: u64,
    /// The time that it took.
    pub(crate) duration_s: f64,
}

pub(crate) fn send(args: &SourceArgs) -> anyhow::Result<()> {
    anyhow::ensure!(
        (1..=BATCH_MAX).contains(&args.batch),
        "--batch {} is impossible: choose 1 to {BATCH_MAX}",
        args.batch
    );
    let ifindex = interface_index(&args.on)?;
    if let Some(frames) = args.xdp {
        let took = XdpSource::new(ifindex)?.send(&datagram_frame(args.from.0, args.to.0), frames)?;
        return Ok(print(json!({ "frames": frames, "duration_s": took.as_secs_f64() }))?);
    }
    let frames = frames(args)?;
    let sending = Sending {
        frames: &frames,
        batch: args.batch,
        duration: crate::plain::seconds(args.duration)?,
        rate: args.rate,
    };
    let stop = Stop::new();
    let (sent, _) = attend(&stop, None, || {
        args.priority.apply()?;
        send_frames(ifindex, &sending, &stop).context("cannot send frames")
    })?;
    let sent = sent?;
    let duration_s = sent.elapsed.as_secs_f64();
    Ok(print(json!({ "frames": sent.frames, "calls": sent.calls, "duration_s": duration_s }))?)
}

/// Takes all frames of an interface in its driver, until a signal comes. The interface counts them.
pub(crate) fn sink(args: &SinkArgs) -> anyhow::Result<()> {
    let sink = XdpSink::attach(interface_index(&args.on)?)?;
    let (mut waiting, other) = UnixStream::pair()?;
    let (stop, other) = (Stop::new(), Arc::new(OwnedFd::from(other)));
    stop.watch(&other);
    let (ended, _) = attend(&stop, None, || -> anyhow::Result<()> {
        print(json!({ "ready": true, "pid": std::process::id() }))?;
        // Nothing comes but the end, which a signal makes.
        let _ = waiting.read(&mut [0])?;
        Ok(())
    })?;
    ended?;
    Ok(print(json!({ "frames": sink.count()? }))?)
}
