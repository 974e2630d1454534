//! Two applications that send frames back with swapped addresses: over a packet socket, and over memory shared with a
//! worker of twinpath.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use anyhow::Context;
use rustix::net::{AddressFamily, SocketType, socket};
use serde_json::json;
use twinpath_clients::measure::{attend, print};
use twinpath_shm::{Application, Woken};
use twinpath_socket_load::Stop;
use twinpath_test_plain::PacketReflect;
use twinpath_time::Duration;
use twinpath_wire::EtherType;
use twinpath_worker::idle::Mode;

/// Polls of the ring between two checks whether the owner is gone, or this process should end: about a millisecond.
const SPINS: u32 = 1 << 15;

#[derive(clap::Args)]
pub(super) struct PacketArgs {
    /// The interface
    #[arg(long, value_name = "IFACE")]
    on: String,
    /// The type of the frames
    #[arg(long)]
    ethertype: EtherType,
    /// interrupt (sleeping) or poll (spinning)
    #[arg(long, default_value_t = Mode::Interrupt)]
    mode: Mode,
}

#[derive(clap::Args)]
pub(super) struct ShmArgs {
    /// Where the owner of the shared memory listens
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,
    /// interrupt (sleeping) or poll (spinning)
    #[arg(long, default_value_t = Mode::Interrupt)]
    mode: Mode,
}

/// Kernel index of an interface of this network namespace.
pub(crate) fn interface_index(name: &str) -> anyhow::Result<u32> {
    let any = socket(AddressFamily::INET, SocketType::DGRAM, None).context("cannot open a socket")?;
    rustix::net::netdevice::name_to_index(any.as_fd(), name)
        .with_context(|| format!("no interface {name} in this network namespace"))
}

pub(super) fn packet(args: &PacketArgs) -> anyhow::Result<()> {
    let ifindex = interface_index(&args.on)?;
    let application = PacketReflect::open(ifindex, args.ethertype.0, super::wait_of(args.mode))?;
    let stop = Stop::new();
    let (counts, _) = attend(&stop, None, || {
        ready()?;
        anyhow::Ok(application.run(&stop)?)
    })?;
    Ok(print(super::echo_counts(&counts?))?)
}

pub(super) fn shm(args: &ShmArgs) -> anyhow::Result<()> {
    let stop = Stop::new();
    let (frames, _) = attend(&stop, None, || {
        let mut application = connect(&args.socket)?;
        ready()?;
        match args.mode {
            Mode::Poll => spin(&mut application, &stop),
            Mode::Interrupt | Mode::Adaptive => sleep(&mut application, &stop),
        }
    })?;
    Ok(print(json!({ "received": frames? }))?)
}

fn connect(path: &Path) -> anyhow::Result<Application> {
    Ok(Application::connect(path)?)
}

fn ready() -> anyhow::Result<()> {
    Ok(print(json!({ "ready": true, "pid": std::process::id() }))?)
}

fn spin(application: &mut Application, stop: &Stop) -> anyhow::Result<u64> {
    let (mut frame, mut frames) = ([0; 2048], 0);
    loop {
        for _ in 0..SPINS {
            match send_back(application, &mut frame)? {
                0 => std::hint::spin_loop(),
                more => frames += more,
            }
        }
        if stop.is_requested() || application.wait(Some(Duration::ZERO))? == Woken::OwnerGone {
            return Ok(frames);
        }
    }
}

fn sleep(application: &mut Application, stop: &Stop) -> anyhow::Result<u64> {
    let (mut frame, mut frames) = ([0; 2048], 0);
    loop {
        frames += send_back(application, &mut frame)?;
        // Without a deadline, like a real application: the owner's end wakes it, a signal ends it.
        if application.wait(None)? == Woken::OwnerGone || stop.is_requested() {
            return Ok(frames);
        }
    }
}

/// Takes all frames, each copied out of the shared memory before any byte of it is read.
#[inline]
fn send_back(application: &mut Application, frame: &mut [u8; 2048]) -> anyhow::Result<u64> {
    let mut frames = 0;
    while let Some(packet) = application.receive(frame) {
        let Some(bytes) = frame.get_mut(..packet?.len).filter(|bytes| bytes.len() >= 12) else { continue };
        let (destination, source) = bytes[..12].split_at_mut(6);
        destination.swap_with_slice(source);
        // If the ring is full the frame is lost, as on any wire.
        let _ = application.send(bytes);
        frames += 1;
    }
    if frames > 0 {
        application.flush();
    }
    Ok(frames)
}
