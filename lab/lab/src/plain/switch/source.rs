//! `plain frame-source`: sends frames of 64 bytes, or datagrams or SYNs with random sources, as many as go; `plain xdp-sink`: takes those that are no packets.

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
    /// Send SYNs to this IPv4 address and port, each from a port of its own
    #[arg(long, value_name = "ADDRESS:PORT", requires = "sources", conflicts_with_all = ["varied", "datagrams_to"])]
    syns_to: Option<SocketAddrV4>,
    /// From random addresses of this prefix
    #[arg(long, value_name = "PREFIX")]
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
/// SYNs, likewise: at 200,000 a second, five seconds.
const SYNS: usize = 1_000_000;

fn frames(args: &SourceArgs) -> anyhow::Result<Vec<Frame>> {
    if let (Some(to), Some(sources)) = (args.datagrams_to.or(args.syns_to), args.sources) {
        let IpAddr::V4(network) = sources.address() else { bail!("--sources {sources}: IPv4 is wanted") };
        let own_bits = u32::MAX.checked_shr(sources.len().into()).unwrap_or(0);
        let mut random = fastrand::Rng::new();
        let source = |random: u32| Ipv4Addr::from_bits(network.to_bits() | (random & own_bits));
        let frame = bare_frame(args.from.0, args.to.0);
        let mut next = || SocketAddrV4::new(source(random.u32(..)), random.u16(1024..));
        if args.syns_to.is_some() {
            return Ok((0..SYNS).map(|_| syn(frame, next(), to)).collect());
        }
        return Ok((0..DATAGRAMS).map(|_| datagram(frame, *next().ip(), to)).collect());
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

/// Bytes of the headers of Ethernet and IPv4.
const ETHERNET: usize = 14;
const IP: usize = 20;

/// A datagram without a UDP checksum, from a port that no service has.
fn datagram(mut frame: Frame, source: Ipv4Addr, target: SocketAddrV4) -> Frame {
    const FROM_PORT: u16 = 40_000;
    let udp = packet(&mut frame, 17, FRAME_BYTES - ETHERNET - IP, [source, *target.ip()]);
    udp[..2].copy_from_slice(&FROM_PORT.to_be_bytes());
    udp[2..4].copy_from_slice(&target.port().to_be_bytes());
    udp[5] = (FRAME_BYTES - ETHERNET - IP) as u8;
    frame
}

/// A SYN without options (RFC 9293 section 3.1).
fn syn(mut frame: Frame, source: SocketAddrV4, target: SocketAddrV4) -> Frame {
    const LEN: u8 = 20;
    const PROTOCOL: u8 = 6;
    let ends = [*source.ip(), *target.ip()];
    let tcp = &mut packet(&mut frame, PROTOCOL, LEN.into(), ends)[..LEN.into()];
    tcp[..2].copy_from_slice(&source.port().to_be_bytes());
    tcp[2..4].copy_from_slice(&target.port().to_be_bytes());
    // Some number, the length of the header, SYN, and a window.
    tcp[4..8].copy_from_slice(&source.ip().octets());
    tcp[12..16].copy_from_slice(&[(LEN / 4) << 4, 2, 0xff, 0xff]);
    let pseudo = [&ends[0].octets()[..], &ends[1].octets(), &[0, PROTOCOL, 0, LEN]].concat();
    let checksum = checksum(&[&pseudo, &*tcp].concat());
    tcp[16..18].copy_from_slice(&checksum.to_be_bytes());
    frame
}

/// Makes an IPv4 packet of a frame, for so many bytes behind its header; returns all bytes there.
fn packet(frame: &mut Frame, protocol: u8, len: usize, ends: [Ipv4Addr; 2]) -> &mut [u8] {
    frame[12..ETHERNET].copy_from_slice(&EtherType::IPV4.0.to_be_bytes());
    let (ip, rest) = frame[ETHERNET..].split_at_mut(IP);
    ip[..10].copy_from_slice(&[0x45, 0, 0, (IP + len) as u8, 0, 0, 0x40, 0, 64, protocol]);
    for (place, end) in ip[12..].chunks_exact_mut(4).zip(ends) {
        place.copy_from_slice(&end.octets());
    }
    let checksum = checksum(ip);
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    rest
}

/// The Internet checksum (RFC 1071) of few bytes.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum: u32 = words.sum();
    let once = (sum & 0xffff) + (sum >> 16);
    !(((once & 0xffff) + (once >> 16)) as u16)
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

#[cfg(test)]
mod tests {
    use twinpath_wire::checksum::{ChecksumFound, ChecksumTrust};
    use twinpath_wire::{tcp_frame, udp_frame};

    use super::*;

    #[test]
    fn forged_packets_are_whole() {
        let bare = bare_frame([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let target = SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, 2), 7000);
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..1000 {
            let source = SocketAddrV4::new(Ipv4Addr::from_bits(random.u32(..)), random.u16(1024..));
            let syn = syn(bare, source, target);
            let found = tcp_frame::parse(&syn, ChecksumTrust::Verify).unwrap();
            assert_eq!((found.source, found.destination), (source.into(), target.into()));
            assert!(found.segment.flags().opens() && found.checksum == ChecksumFound::Right);
            let datagram = datagram(bare, *source.ip(), target);
            let found = udp_frame::parse(&datagram, ChecksumTrust::Verify).unwrap();
            assert_eq!((found.source.ip(), found.destination), (IpAddr::V4(*source.ip()), target.into()));
        }
    }
}
