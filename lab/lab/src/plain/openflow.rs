//! `plain openflow`: a controller of a switch, as the labs need it.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::ensure;
use clap::{Subcommand, ValueEnum};
use serde_json::json;
use twinpath_clients::measure::{attend, print};
use twinpath_openflow_wire::{ErrorCode, Message};
use twinpath_socket_load::Stop;

use crate::openflow::{Controller, flows, hostile};

/// Flows that are put in.
pub(super) const FLOWS: u32 = 100_000;
/// Flows that are held, and their idle timeout.
const HELD_FLOWS: u32 = 10_000;
const IDLE_TIMEOUT_S: u16 = 600;
/// Flows that differ in priority alone.
const PRIORITIES: u16 = 65_500;
/// How often all flows are replaced or asked for.
const EACH: Duration = Duration::from_secs(1);
/// How often a port's configuration is changed.
const EACH_PORT_MOD: Duration = Duration::from_millis(1);
/// The address of the first port of the labs' switches, which a change has to name.
const PORT_MAC: [u8; 6] = [0x02, 0x74, 0x70, 1, 0, 0];

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
    FlowMods,
    /// Have what comes in by one port leave by the other
    TwoPorts {
        /// Send frames of `plain frame-source` to the controller, too
        #[arg(long)]
        flood: bool,
    },
    /// Have frames go as in a switch without controllers
    Normal,
    /// Do what may delay packets, until told to end
    Disturb {
        /// What
        #[arg(value_enum)]
        how: Disturbance,
    },
    /// Put flows with a timeout in, and hold the connection
    Hold,
}

/// What a controller does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Disturbance {
    /// Puts flows in, one by one, over and over
    Mods,
    /// Puts 65,500 flows in that differ in priority alone, over and over
    Priorities,
    /// Replaces all flows each second
    Replace,
    /// Asks for all flows each second
    Dump,
    /// Has each flow-mod acknowledged by a barrier
    Barriers,
    /// Reads nothing
    Silent,
    /// Changes the configuration of a port 1,000 times a second, which a switch may say in its log
    PortMods,
    /// Puts flows in that a table of masks is slow to search (tuple-space explosion)
    Hostile,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let mut controller = Controller::connect(&args.to)?;
    if let Task::Disturb { how } = args.task {
        return disturb(&mut controller, how);
    }
    controller.send(&flows::delete_all()?)?;
    controller.barrier()?;
    match args.task {
        Task::TwoPorts { flood } => {
            for message in flows::two_ports(flood)? {
                controller.send(&message)?;
            }
            controller.barrier()?;
            Ok(print(json!({ "flows": 3 }))?)
        }
        Task::Normal => {
            controller.send(&flows::normal()?)?;
            controller.barrier()?;
            Ok(print(json!({ "flows": 1 }))?)
        }
        Task::Disturb { .. } => Ok(()),
        Task::FlowMods => flow_mods(&mut controller),
        Task::Hold => hold(&mut controller),
    }
}

/// Prints flow-mods per second, until the barrier's reply; and seconds until all flows had come.
fn flow_mods(controller: &mut Controller) -> anyhow::Result<()> {
    // Encoded before, so that the switch takes the time and not the controller.
    let mut mods = Vec::new();
    for number in 0..FLOWS {
        flows::one_of_many(number, 1, 0)?.encode(number, &mut mods)?;
    }
    let begun = Instant::now();
    controller.send_encoded(&mods)?;
    controller.barrier()?;
    let mods_per_s = f64::from(FLOWS) / begun.elapsed().as_secs_f64();
    let (begun, mut come) = (Instant::now(), 0);
    controller.flows(|_| come += 1)?;
    let dump_s = begun.elapsed().as_secs_f64();
    ensure!(come == FLOWS, "{come} of {FLOWS} flows came when all were asked for");
    controller.send(&flows::delete_all()?)?;
    controller.barrier()?;
    Ok(print(json!({ "mods_per_s": mods_per_s, "dump_s": dump_s }))?)
}

fn hold(controller: &mut Controller) -> anyhow::Result<()> {
    for number in 0..HELD_FLOWS {
        controller.send(&flows::one_of_many(number, 1, IDLE_TIMEOUT_S)?)?;
    }
    controller.barrier()?;
    let stop = Stop::new();
    let (attended, _) = attend(&stop, None, || {
        print(json!({ "ready": true, "pid": std::process::id() }))?;
        controller.attend(&stop)
    })?;
    attended
}

/// Says that it is ready when the flows are in, and how often it has done what it does when it is told to end.
fn disturb(controller: &mut Controller, how: Disturbance) -> anyhow::Result<()> {
    let sets = match how {
        Disturbance::Silent | Disturbance::PortMods => [Vec::new(), Vec::new()],
        Disturbance::Hostile => [hostile::flows()?, Vec::new()],
        Disturbance::Priorities => [priorities(1)?, priorities(2)?],
        _ => [many(1)?, many(2)?],
    };
    put_in(controller, &sets[0])?;
    let stop = Stop::new();
    controller.stop_with(&stop)?;
    let mut done = 0_u64;
    let (ended, _) = attend(&stop, None, || {
        print(json!({ "ready": true, "pid": std::process::id() }))?;
        let mut due = Instant::now();
        while !stop.is_requested() {
            let set = &sets[(done % 2) as usize];
            match how {
                Disturbance::Mods | Disturbance::Priorities | Disturbance::Replace => {
                    put_in(controller, set)?
                }
                Disturbance::Dump => controller.flows(|_| {})?,
                Disturbance::Barriers => {
                    controller.send(&set[done as usize / 2 % set.len()])?;
                    controller.barrier()?;
                }
                Disturbance::Silent | Disturbance::Hostile => controller.ignore_switch(None)?,
                Disturbance::PortMods => {
                    controller.send(&flows::port_mod(PORT_MAC, done))?;
                    controller.flush()?;
                }
            }
            done += 1;
            let each = match how {
                Disturbance::Replace | Disturbance::Dump => EACH,
                Disturbance::PortMods => EACH_PORT_MOD,
                _ => continue,
            };
            due += each;
            controller.ignore_switch(Some(due))?;
        }
        anyhow::Ok(())
    })?;
    match ended {
        Err(error) if !stop.is_requested() => Err(error),
        _ => Ok(print(json!({ "done": done }))?),
    }
}

fn many(version: u64) -> Result<Vec<Message>, ErrorCode> {
    (0..FLOWS).map(|number| flows::one_of_many(number, version, 0)).collect()
}

fn priorities(version: u64) -> Result<Vec<Message>, ErrorCode> {
    (1..=PRIORITIES).map(|priority| flows::one_of_many_priorities(priority, version)).collect()
}

fn put_in(controller: &mut Controller, flows: &[Message]) -> anyhow::Result<()> {
    for message in flows {
        controller.send(message)?;
    }
    controller.barrier()
}
