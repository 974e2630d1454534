//! `plain memory-ports`: the applications of two memory ports of a switch in one process, each of which sends to the other
//! one as many frames as go.

use std::path::{Path, PathBuf};

use anyhow::ensure;
use serde_json::json;
use twinpath_clients::measure::{attend, print};
use twinpath_shm::{Application, Fault, Packet};
use twinpath_socket_load::Stop;
use twinpath_sys::{affinity, clock};
use twinpath_time::Duration;

/// The shortest frame of Ethernet without its checksum; with it these are 64 bytes.
const FRAME_BYTES: usize = 60;
/// From the connection of both applications until frames go in both directions.
const DEADLINE: Duration = Duration::from_secs(5);
/// Time that does not count.
const WARMUP: Duration = Duration::from_millis(200);
/// Turns between two looks at the clock.
const TURNS: u32 = 64;

#[derive(clap::Args)]
pub(super) struct Args {
    /// Where the switch listens for the applications of both ports
    #[arg(long, value_name = "PATH", value_delimiter = ',', required = true)]
    sockets: Vec<PathBuf>,
    /// Seconds
    #[arg(long, default_value_t = 1.0)]
    duration: f64,
    /// Frames that are sent at once, before the switch is told
    #[arg(long, default_value_t = 32)]
    batch: usize,
    /// The CPU to run on
    #[arg(long)]
    cpu: Option<usize>,
}

/// An end of the traffic.
struct End {
    application: Application,
    frame: [u8; FRAME_BYTES],
    taken: [u8; 2048],
    sent: u64,
    received: u64,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let [one, other] = args.sockets.as_slice() else {
        anyhow::bail!("frames go between two ports: --sockets {}", args.sockets.len())
    };
    let duration = super::seconds(args.duration)?;
    let stop = Stop::new();
    let (ends, _) = attend(&stop, None, || {
        if let Some(cpu) = args.cpu {
            affinity::pin_current_thread(cpu)?;
        }
        let mut ends = [End::connect(one, 1, 2)?, End::connect(other, 2, 1)?];
        let begun = clock::now();
        while ends.iter().any(|end| end.received == 0) {
            ensure!(clock::now().since(begun) < DEADLINE && !stop.is_requested(), "no frame comes through");
            exchange(&mut ends, args.batch, Duration::ZERO, &stop)?;
        }
        exchange(&mut ends, args.batch, WARMUP, &stop)?;
        let before = ends.each_ref().map(|end| (end.sent, end.received));
        let elapsed = exchange(&mut ends, args.batch, duration, &stop)?;
        let counted = |which: fn(&End) -> u64, before: u64| ends.iter().map(which).sum::<u64>() - before;
        let [sent, received] = [
            counted(|end| end.sent, before[0].0 + before[1].0),
            counted(|end| end.received, before[0].1 + before[1].1),
        ];
        anyhow::Ok((sent, received, elapsed))
    })?;
    let (sent, received, elapsed) = ends?;
    let frames_per_s = received as f64 / elapsed.as_secs_f64();
    Ok(print(json!({ "sent": sent, "received": received, "frames_per_s": frames_per_s }))?)
}

impl End {
    fn connect(socket: &Path, own: u8, other: u8) -> anyhow::Result<Self> {
        let application = Application::connect(socket)?;
        let mut frame = [0; FRAME_BYTES];
        // Locally administered addresses, and an EtherType for experiments.
        frame[..14].copy_from_slice(&[2, 0x74, 0x70, 3, 0, other, 2, 0x74, 0x70, 3, 0, own, 0x88, 0xb5]);
        Ok(Self { application, frame, taken: [0; 2048], sent: 0, received: 0 })
    }

    /// Takes all frames that are there, and sends a burst as far as there is room.
    #[inline]
    fn turn(&mut self, batch: usize) -> anyhow::Result<()> {
        let (mut received, mut fault) = (0, None);
        let mut each = |packet: Result<(Packet, &[u8]), Fault>| match packet {
            Ok(_) => received += 1,
            Err(found) => fault = Some(found),
        };
        while self.application.receive_each(usize::MAX, &mut self.taken, &mut each) > 0 {}
        if let Some(fault) = fault {
            return Err(fault.into());
        }
        self.received += received;
        let frame = &self.frame;
        let (sent, _) = self.application.send_each((0..batch).map(|_| frame.as_slice()));
        self.application.flush();
        self.sent += sent as u64;
        Ok(())
    }
}

/// Both ends send and receive for that long, without sleeping. Returns how long it was.
fn exchange(ends: &mut [End; 2], batch: usize, time: Duration, stop: &Stop) -> anyhow::Result<Duration> {
    let begun = clock::now();
    loop {
        for _ in 0..TURNS {
            for end in &mut *ends {
                end.turn(batch)?;
            }
        }
        let elapsed = clock::now().since(begun);
        if elapsed >= time || stop.is_requested() {
            return Ok(elapsed);
        }
    }
}
