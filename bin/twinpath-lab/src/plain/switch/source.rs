//! `plain frame-source`: sends frames of 64 bytes, as many as go.

use anyhow::Context;
use serde::Deserialize;
use serde_json::json;
use twinpath_measure::{attend, print};
use twinpath_plain::{BATCH_MAX, Sending, send_frames};
use twinpath_socket_load::Stop;
use twinpath_sys::affinity;
use twinpath_wire::Mac;

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
    /// The CPU to run on
    #[arg(long)]
    cpu: Option<usize>,
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
    let sending = Sending {
        to: args.to.0,
        from: args.from.0,
        batch: args.batch,
        duration: crate::plain::seconds(args.duration)?,
        rate: args.rate,
    };
    let stop = Stop::new();
    let (sent, _) = attend(&stop, None, || {
        if let Some(cpu) = args.cpu {
            affinity::pin_current_thread(cpu)?;
        }
        send_frames(ifindex, &sending, &stop).context("cannot send frames")
    })?;
    let sent = sent?;
    let duration_s = sent.elapsed.as_secs_f64();
    Ok(print(json!({ "frames": sent.frames, "calls": sent.calls, "duration_s": duration_s }))?)
}
