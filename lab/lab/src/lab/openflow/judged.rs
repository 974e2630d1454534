//! What becomes of single packets, by which rule, and what is counted of them.

use std::net::UdpSocket;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use crate::lab::counters::Counters;
use crate::lab::model::Sample;
use crate::lab::switches::Running;
use crate::lab::topology::{HOSTS, SwitchNetwork};
use crate::lab::traffic::address;
use crate::openflow::{Controller, flows};

/// Rounds of a changed rule, a barrier, and a packet.
const ROUNDS: u32 = 10_000;
/// A switch that loses more of them is not measured: each takes [`PACKET_DEADLINE`].
const LOST_MAX: u32 = 20;
/// Packets of which the counters are compared, and how many of them are under way at a time.
const COUNTED: usize = 20_000;
const WINDOW: usize = 32;
/// Flows that take them.
const FLOWS: u16 = 16;
/// Flows that the kernel forwards before each is changed.
const IN_KERNEL: u16 = 64;
/// A worker shows control a frame at most this often.
const SAMPLE_PAUSE: Duration = Duration::from_millis(2);
/// The UDP port of the second host, the first of all flows.
const PORT: u16 = 7100;
/// The port that leads to the second host.
const TO: u32 = 2;
/// A packet that has not come by then is lost.
const PACKET_DEADLINE: Duration = Duration::from_secs(1);
/// A switch that lets nothing through by then never will.
const START_DEADLINE: Duration = Duration::from_secs(10);
/// How long counters may take to be true, and how often they are read meanwhile.
const QUIET_DEADLINE: Duration = Duration::from_secs(4);
const QUIET_LOOK: Duration = Duration::from_millis(100);

/// `socket` is where the switch listens for controllers. Each round has the flow write another source port into the packets; the packet after the barrier's reply says by which
/// rule it was judged.
pub(super) fn after_barriers(network: &SwitchNetwork, socket: &Path) -> anyhow::Result<Sample> {
    let mut controller = Controller::connect(socket)?;
    let (from, to) = sockets(network, &mut controller, 1)?;
    let (mut old, mut lost, mut answers) = (0_u32, 0_u32, Vec::new());
    for round in 0..ROUNDS {
        let written = 10_000 + (round % 50_000) as u16;
        let begun = Instant::now();
        controller.send(&flows::rewriting(PORT, written, TO)?)?;
        controller.barrier()?;
        answers.push(begun.elapsed());
        from.send_to(&round.to_be_bytes(), address(PORT))?;
        match received(&to[0], round)? {
            None => {
                lost += 1;
                ensure!(lost <= LOST_MAX, "{lost} of {} packets did not arrive", round + 1);
            }
            Some(source) if source == written => {}
            Some(_) => old += 1,
        }
    }
    answers.sort_unstable();
    let mut sample = Sample::default();
    sample.values.insert("old_rule", f64::from(old));
    sample.values.insert("lost", f64::from(lost));
    sample.values.insert("barrier_p50_us", answers[answers.len() / 2].as_secs_f64() * 1e6);
    sample.values.insert("barrier_max_us", answers[answers.len() - 1].as_secs_f64() * 1e6);
    Ok(sample)
}

/// The same with flows that the kernel forwards, which rewrite nothing: each round has such a flow drop its packets, and the packet
/// after the barrier's reply must not come. The packet behind it, for which the flow forwards again, says that it will not any more.
pub(super) async fn after_barriers_in_kernel(
    network: &SwitchNetwork,
    running: &Running,
) -> anyhow::Result<Sample> {
    let mut controller = Controller::connect(&running.socket)?;
    let (from, to) = sockets(network, &mut controller, IN_KERNEL)?;
    let (mut old, mut lost, mut round) = (0_u32, 0_u32, 0);
    while round < ROUNDS {
        until_in_kernel(running, &from, &to).await?;
        for (flow, to) in (0..IN_KERNEL).zip(&to) {
            controller.send(&flows::dropping(PORT + flow)?)?;
            controller.barrier()?;
            from.send_to(&(2 * round).to_be_bytes(), address(PORT + flow))?;
            controller.send(&flows::forwarding(PORT + flow, TO, u64::from(flow) + 1)?)?;
            controller.barrier()?;
            from.send_to(&(2 * round + 1).to_be_bytes(), address(PORT + flow))?;
            let has_come = match number(to, 2 * round)? {
                Some(came) if came == 2 * round => {
                    old += 1;
                    number(to, 2 * round + 1)?.is_some()
                }
                came => came.is_some(),
            };
            lost += u32::from(!has_come);
            ensure!(lost <= LOST_MAX, "{lost} of {} packets did not arrive", round + 1);
            round += 1;
        }
    }
    let mut sample = Sample::default();
    sample.values.insert("old_rule", f64::from(old));
    sample.values.insert("lost", f64::from(lost));
    sample.values.insert("rounds", f64::from(round));
    Ok(sample)
}

/// Sends packets until the kernel forwards those of all flows.
async fn until_in_kernel(running: &Running, from: &UdpSocket, to: &[UdpSocket]) -> anyhow::Result<()> {
    let begun = Instant::now();
    loop {
        let all = running.flows().await?;
        let is_there = |flow: u64| all.iter().any(|own| own.cookie == flow + 1 && own.place == "kernel");
        let missing: Vec<_> = (PORT..).zip(to).zip(0..).filter(|(_, flow)| !is_there(*flow)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        ensure!(
            begun.elapsed() < START_DEADLINE,
            "{} of {} flows are not in the kernel",
            missing.len(),
            to.len()
        );
        for ((port, to), _) in missing {
            from.send_to(&u32::MAX.to_be_bytes(), address(port))?;
            ensure!(number(to, u32::MAX)?.is_some(), "a packet to port {port} did not arrive");
            tokio::time::sleep(SAMPLE_PAUSE).await;
        }
    }
}

/// Sends packets that several flows take, none of which is lost, and compares all counters with those of the hosts.
pub(super) async fn counters(network: &SwitchNetwork, socket: &Path) -> anyhow::Result<Sample> {
    let mut controller = Controller::connect(socket)?;
    let (from, to) = sockets(network, &mut controller, FLOWS)?;
    let before = Counted::of(&mut controller, network)?;
    for first in (0..COUNTED).step_by(WINDOW) {
        let numbers = first..(first + WINDOW).min(COUNTED);
        let at = |number: usize| number % usize::from(FLOWS);
        for number in numbers.clone() {
            from.send_to(&(number as u32).to_be_bytes(), address(PORT + at(number) as u16))?;
        }
        for number in numbers {
            let come = received(&to[at(number)], number as u32)?;
            ensure!(come.is_some(), "packet {number} of {COUNTED} did not arrive");
        }
    }
    let begun = Instant::now();
    loop {
        let off = Counted::of(&mut controller, network)?.off(&before);
        if off == 0 || begun.elapsed() > QUIET_DEADLINE {
            let mut sample = Sample::default();
            sample.values.insert("off", off as f64);
            sample.values.insert("true_after_s", begun.elapsed().as_secs_f64());
            return Ok(sample);
        }
        tokio::time::sleep(QUIET_LOOK).await;
    }
}

/// Counters of the switch, and of the hosts' interfaces.
#[derive(Debug)]
struct Counted {
    flows: Vec<u64>,
    matched: u64,
    ports: [u64; 2],
    hosts: [u64; 2],
}

impl Counted {
    fn of(controller: &mut Controller, network: &SwitchNetwork) -> anyhow::Result<Self> {
        let mut by_flow = vec![0; usize::from(FLOWS)];
        let mut others: u64 = 0;
        controller.flows(|flow| {
            match flow.cookie.checked_sub(1).and_then(|at| by_flow.get_mut(at as usize)) {
                Some(count) => *count = flow.packets,
                None => others += flow.packets,
            }
        })?;
        let tables = controller.tables()?;
        let matched = tables.iter().find(|table| table.table_id == 0).context("no table 0")?.matched;
        let ports = controller.ports()?;
        let port =
            |number| ports.iter().find(|port| port.port_no == number).context("a port has no counters");
        Ok(Self {
            flows: by_flow,
            matched: matched - others,
            ports: [port(1)?.packets[0], port(TO)?.packets[1]],
            hosts: [
                Counters::of(&network.hosts[0], HOSTS[0].interface)?.sent,
                Counters::of(&network.hosts[1], HOSTS[1].interface)?.received,
            ],
        })
    }

    /// Packets by which the counters differ, where `before` is what they were before [`COUNTED`] packets.
    fn off(&self, before: &Self) -> u64 {
        let each = COUNTED as u64 / u64::from(FLOWS);
        let flows = self.flows.iter().zip(&before.flows).map(|(now, before)| (now - before).abs_diff(each));
        let matched = (self.matched - before.matched).abs_diff(COUNTED as u64);
        let ports = self.ports.iter().zip(&before.ports).map(|(now, before)| now - before);
        let hosts = self.hosts.iter().zip(&before.hosts).map(|(now, before)| now - before);
        flows.sum::<u64>() + matched + ports.zip(hosts).map(|(port, host)| port.abs_diff(host)).sum::<u64>()
    }
}

/// Sets the flows, and opens a socket of the first host and sockets of the second one. The hosts know each other's address
/// when this returns.
fn sockets(
    network: &SwitchNetwork,
    controller: &mut Controller,
    count: u16,
) -> anyhow::Result<(UdpSocket, Vec<UdpSocket>)> {
    controller.send(&flows::delete_all()?)?;
    controller.send(&flows::normal()?)?;
    for number in 0..count {
        controller.send(&flows::forwarding(PORT + number, TO, u64::from(number) + 1)?)?;
    }
    controller.barrier()?;
    let bind = |host: usize, port| -> anyhow::Result<UdpSocket> {
        let socket = network.socket(host, port)?;
        socket.set_read_timeout(Some(PACKET_DEADLINE))?;
        Ok(socket)
    };
    let from = bind(0, 0)?;
    let to: Vec<_> = (0..count).map(|number| bind(1, PORT + number)).collect::<Result<_, _>>()?;
    // The first packet waits for the address of its destination.
    let begun = Instant::now();
    loop {
        from.send_to(&u32::MAX.to_be_bytes(), address(PORT))?;
        if received(&to[0], u32::MAX)?.is_some() {
            return Ok((from, to));
        }
        ensure!(begun.elapsed() < START_DEADLINE, "no packet comes through the switch");
    }
}

/// The next number, from this one on; `None`: no packet with such a number comes. Packets that came too late are passed over.
fn number(socket: &UdpSocket, from: u32) -> anyhow::Result<Option<u32>> {
    let mut bytes = [0; 8];
    loop {
        match socket.recv(&mut bytes) {
            Ok(4) => {
                let number = bytes.first_chunk().map_or(0, |number| u32::from_be_bytes(*number));
                // The highest is that of packets by which the kernel got the flow.
                if number >= from && (number != u32::MAX || from == u32::MAX) {
                    return Ok(Some(number));
                }
            }
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error).context("a host cannot receive"),
        }
    }
}

/// The source port of the packet with that number; `None` if it does not come. Packets that came too late are passed over.
fn received(socket: &UdpSocket, number: u32) -> anyhow::Result<Option<u16>> {
    let mut bytes = [0; 8];
    loop {
        match socket.recv_from(&mut bytes) {
            Ok((4, from)) if bytes[..4] == number.to_be_bytes() => return Ok(Some(from.port())),
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(error).context("a host cannot receive"),
        }
    }
}
