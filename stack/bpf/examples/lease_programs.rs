//! Measures how much time the program of an interface's owner (`twinpath sockets`) takes for a frame that goes to
//! the kernel, for different numbers of processes with rings.
//!
//! `cargo run --release -p twinpath-bpf --example lease_programs`, as root. Datagrams are sent to a port of the
//! loopback device in a separate network namespace, and none of the programs claims it. The figure is the time from
//! the sender's call through the receive path to a full receive buffer, as medians of batches, compared with the
//! time without programs.

use std::error::Error;
use std::net::UdpSocket;
use std::time::Instant;

use twinpath_bpf::{Leases, TcAttach};
use twinpath_claims::{Claim, Table};
use twinpath_sys::affinity;
use twinpath_sys::netns::Namespace;
use twinpath_wire::{Mac, Protocol};

/// The loopback device.
const IFINDEX: u32 = 1;
/// As many sockets of a process as `twinpath sockets` allows by default.
const SOCKETS: u32 = 8;
const PROCESSES: [u32; 5] = [0, 1, 8, 31, 32];
const DATAGRAMS: u32 = 10_000;
/// Batches of each number of programs in a turn.
const BATCHES: usize = 21;
const TURNS: usize = 3;

fn main() -> Result<(), Box<dyn Error>> {
    let cpus = affinity::allowed_cpus()?;
    affinity::pin_current_thread(*cpus.first().ok_or("no CPU")?)?;
    Namespace::new()?.run(|| measure().map_err(|error| error.to_string()))??;
    Ok(())
}

fn measure() -> Result<(), Box<dyn Error>> {
    let up = std::process::Command::new("ip").args(["link", "set", "lo", "up"]).status()?;
    if !up.success() {
        return Err("ip link set lo up failed".into());
    }
    let receiver = UdpSocket::bind("127.0.0.1:0")?;
    let sender = UdpSocket::bind("127.0.0.1:0")?;
    sender.connect(receiver.local_addr()?)?;
    let mut times = PROCESSES.map(|_| Vec::new());
    for _ in 0..TURNS {
        let mut leases = None;
        for (count, times) in PROCESSES.iter().zip(&mut times) {
            for number in (0..*count).skip(leases.as_ref().map_or(0, |(_, admitted)| *admitted as usize)) {
                let (leases, admitted) = match &mut leases {
                    Some(leases) => leases,
                    none => none.insert((program()?, 0)),
                };
                leases.admit()?.ok_or("no place for a process")?;
                claim(leases, number)?;
                *admitted = number + 1;
            }
            for _ in 0..BATCHES {
                times.push(nanoseconds(&sender)?);
            }
        }
    }
    let medians = times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    });
    for (count, median) in PROCESSES.iter().zip(medians) {
        println!(
            "{count:3} processes: {median:7.1} ns for a datagram, {:6.1} more than without",
            median - medians[0]
        );
    }
    Ok(())
}

fn program() -> Result<Leases, Box<dyn Error>> {
    let mut leases = Leases::load(32, SOCKETS, true)?;
    leases.attach(IFINDEX, TcAttach::Tcx)?;
    Ok(leases)
}

/// Claims a port for each process up to this one, but not that of the datagrams.
fn claim(leases: &mut Leases, last: u32) -> Result<(), Box<dyn Error>> {
    let mut table = Table::new(Mac([2, 0, 0, 0, 0, 1]), 1514)?;
    table.add_address("127.0.0.1".parse()?)?;
    for number in 0..=last {
        table.add_claim(Claim::port(Protocol::Udp, 1 + u16::try_from(number)?))?;
    }
    leases.apply_and_settle(&table)?;
    Ok(())
}

fn nanoseconds(sender: &UdpSocket) -> Result<f64, Box<dyn Error>> {
    let begun = Instant::now();
    for _ in 0..DATAGRAMS {
        sender.send(&[0; 64])?;
    }
    Ok(begun.elapsed().as_nanos() as f64 / f64::from(DATAGRAMS))
}
