//! `plain openflow`: a controller of a switch, as the labs need it.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::ensure;
use clap::Subcommand;
use serde::{Deserialize, Serialize};
use serde_json::json;
use twinpath_measure::{attend, print};
use twinpath_socket_load::Stop;

use crate::openflow::{Controller, flows};

#[derive(clap::Args)]
pub(super) struct Args {
    /// The socket at which the switch listens for controllers
    #[arg(long, value_name = "SOCKET")]
    to: PathBuf,
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Put flows in, have that acknowledged by one barrier, and ask for all of them
    FlowMods {
        /// How many
        #[arg(long, default_value_t = 100_000)]
        flows: u32,
    },
    /// Put flows with a timeout in, and hold the connection
    Hold {
        /// How many
        #[arg(long, default_value_t = 10_000)]
        flows: u32,
        /// Their idle timeout, s
        #[arg(long, default_value_t = 600)]
        idle_timeout: u16,
    },
}

/// The result of `flow-mods`.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Modified {
    /// Flow-mods per second, until the barrier's reply.
    pub(crate) mods_per_s: f64,
    /// Seconds until all flows had come.
    pub(crate) dump_s: f64,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let mut controller = Controller::connect(&args.to)?;
    controller.send(&flows::delete_all()?)?;
    controller.barrier()?;
    match args.task {
        Task::FlowMods { flows } => Ok(print(serde_json::to_value(flow_mods(&mut controller, flows)?)?)?),
        Task::Hold { flows, idle_timeout } => hold(&mut controller, flows, idle_timeout),
    }
}

fn flow_mods(controller: &mut Controller, count: u32) -> anyhow::Result<Modified> {
    // Encoded before, so that the switch takes the time and not the controller.
    let mods: Vec<_> = (0..count).map(|number| flows::one_of_many(number, 1, 0)).collect::<Result<_, _>>()?;
    let begun = Instant::now();
    for message in &mods {
        controller.send(message)?;
    }
    controller.barrier()?;
    let mods_per_s = f64::from(count) / begun.elapsed().as_secs_f64();
    let (begun, mut come) = (Instant::now(), 0);
    controller.flows(|_| come += 1)?;
    let dump_s = begun.elapsed().as_secs_f64();
    ensure!(come == count, "{come} of {count} flows came when all were asked for");
    controller.send(&flows::delete_all()?)?;
    controller.barrier()?;
    Ok(Modified { mods_per_s, dump_s })
}

fn hold(controller: &mut Controller, count: u32, idle_timeout_s: u16) -> anyhow::Result<()> {
    for number in 0..count {
        controller.send(&flows::one_of_many(number, 1, idle_timeout_s)?)?;
    }
    controller.barrier()?;
    let stop = Stop::new();
    let (attended, _) = attend(&stop, None, || {
        print(json!({ "ready": true, "pid": std::process::id() }))?;
        controller.attend(&stop)
    })?;
    attended
}
