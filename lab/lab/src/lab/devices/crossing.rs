//! What crosses a card beside a service's own datagrams: tagged frames, an exception port's, and a switch's.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, ensure};
use twinpath_clients::measure::report::BenchReport;
use twinpath_sys::Namespace;

use super::{DATAGRAMS, FRAGMENTS_SEED, answered_by_the_path, without_offloads};
use crate::lab::instance::{Facts, Instance};
use crate::lab::kni::fragments;
use crate::lab::model::Sample;
use crate::lab::peers::{self, PLAIN_PORT, TCP_PORT};
use crate::lab::process::{Side, words};
use crate::lab::session::Session;
use crate::lab::topology::{BEHIND, End, SERVER, TO_BEHIND, VLAN_CLIENT, VLAN_SERVER, address, no_address};

/// The kernel's interface of the exception port.
const TAP: &str = "tap0";
/// Requests of each kind: their transport, their size, and how many; small ones, ones in fragments, and such as leave in
/// super-frames.
const REQUESTS: [(&str, usize, u64); 3] = [("--udp", 64, 50), ("--udp", 20_000, 10), ("--tcp", 60_000, 10)];
/// Tagged datagrams that nobody answers.
const OF_OTHERS: u64 = 4;
/// Requests until one is answered, at most.
const PROBES_MAX: u32 = 10;
const ASK_DEADLINE: Duration = Duration::from_secs(60);

/// Tagged datagrams, whole and in fragments, served on a VLAN interface over the card by its packet path; and whether
/// twinpath on the card itself claims none of them. The card's offloads as they are, and then off.
pub(super) async fn vlan(session: &Session) -> anyhow::Result<Sample> {
    let topology = session.launcher.topology();
    topology.vlan()?;
    let measured = tagged(session).await;
    topology.no_vlan()?;
    measured
}

async fn tagged(session: &Session) -> anyhow::Result<Sample> {
    let mut sample = tagged_once(session).await?;
    let (bare, fixed) = without_offloads(session, tagged_once(session)).await?;
    sample.values.insert("answered", least(&sample).min(least(&bare)));
    sample.notes.extend(bare.notes.into_iter().map(|note| format!("offloads off: {note}")).chain(fixed));
    Ok(sample)
}

fn least(sample: &Sample) -> f64 {
    sample.values.get("answered").copied().unwrap_or_default()
}

async fn tagged_once(session: &Session) -> anyhow::Result<Sample> {
    let socket = session.run_dir.path().join("vlan.sock");
    let ends = [VLAN_CLIENT, VLAN_SERVER];
    let serve = |on: &str| peers::serve_on(on, "packet", "adaptive", session.cpus[1], &socket);
    let measure = async |on: &str, datagrams: u64| {
        fragments::measure_at(session, &serve(on), ends, datagrams, FRAGMENTS_SEED).await
    };
    let on_vlan = measure(VLAN_SERVER.interface, DATAGRAMS).await.context("served on the VLAN interface")?;
    let mut sample = answered_by_the_path(on_vlan);
    let below = measure(SERVER.interface, OF_OTHERS).await.context("served on the card itself")?;
    // The card's claims are for frames without a tag, and its sockets for its own addresses.
    let claimed = below.values.get("fast_path_frames").copied().unwrap_or_default();
    if claimed > 0.0 {
        sample.values.insert("answered", 0.0);
    }
    sample.notes.push(format!("{claimed} tagged frames were claimed by an instance on the card itself"));
    Ok(sample)
}

/// Datagrams, whole and in fragments, served on the card while it is in a VRF. What the kernel's socket has to answer comes
/// there too: a socket that is not bound to an interface gets nothing from a VRF (net.ipv4.udp_l3mdev_accept).
pub(super) async fn vrf(session: &Session) -> anyhow::Result<Sample> {
    let topology = session.launcher.topology();
    topology.vrf()?;
    let measured = fragments::measure(session, "packet", DATAGRAMS, FRAGMENTS_SEED).await;
    topology.no_vrf()?;
    Ok(answered_by_the_path(measured?))
}

/// Requests to the kernel's services behind an exception port on the card, by each carrier; and to the card itself once the
/// exception port was killed.
pub(super) async fn bridge(session: &Session) -> anyhow::Result<Sample> {
    let server = &session.launcher.topology().server;
    let mut sample = Sample::default();
    let mut answered: f64 = 1.0;
    for carrier in ["kernel", "workers"] {
        no_address(server, SERVER)?;
        let crossed = async {
            let args = format!(
                "bridge {} --kernel {TAP} --carrier {carrier} --cpu {}",
                SERVER.interface, session.cpus[1]
            );
            let instance = start(session, &args).await?;
            address(server, End { interface: TAP, ..SERVER }).context("the exception port's interface")?;
            let asked = ask_offloaded(session, server, IpAddr::V4(SERVER.ipv4)).await;
            instance.kill(&session.launcher).await?;
            asked
        };
        let crossed = crossed.await.with_context(|| format!("carried by {carrier}"));
        let after = after_a_kill(session).await;
        let (share, fixed) = crossed?;
        let after = after.with_context(|| format!("after a kill, carried by {carrier} before"))?;
        sample
            .notes
            .push(format!("carried by {carrier}: {share:.2} answered, after a kill -9 {after:.2}{fixed}"));
        answered = answered.min(share).min(after);
    }
    sample.values.insert("answered", answered);
    Ok(sample)
}

/// Requests through a switch with two ports, the card and a veth pair, to the host behind the latter; and to the card itself
/// once the switch was killed.
pub(super) async fn switch(session: &Session) -> anyhow::Result<Sample> {
    let topology = session.launcher.topology();
    let behind = topology.behind()?;
    no_address(&topology.server, SERVER)?;
    let crossed = async {
        let args = format!(
            "switch lab --port {} --port {TO_BEHIND} --mode adaptive --cpu {}",
            SERVER.interface, session.cpus[1]
        );
        let instance = start(session, &args).await?;
        let asked = ask_offloaded(session, &behind, IpAddr::V4(BEHIND.ipv4)).await;
        let path = instance.report().await?.path();
        instance.kill(&session.launcher).await?;
        Ok::<_, anyhow::Error>((asked?, path))
    };
    let crossed = crossed.await;
    let after = after_a_kill(session).await;
    let ((share, fixed), path) = crossed?;
    let after = after.context("after a kill")?;
    let mut sample = Sample { path: Some(path), ..Sample::default() };
    sample.notes.push(format!("through the switch: {share:.2} answered; after a kill -9 {after:.2}{fixed}"));
    sample.values.insert("answered", share.min(after));
    Ok(sample)
}

async fn start(session: &Session, args: &str) -> anyhow::Result<Instance> {
    let mut args = words(args);
    let socket = session.run_dir.path().join("crossing.sock");
    args.extend(["--socket".to_owned(), socket.display().to_string()]);
    Instance::start(&session.launcher, &args).await
}

/// The card has its addresses again, and the kernel answers there.
async fn after_a_kill(session: &Session) -> anyhow::Result<f64> {
    let server = &session.launcher.topology().server;
    address(server, SERVER).context("the card is not back")?;
    ask(session, server, IpAddr::V4(SERVER.ipv4)).await
}

/// The smallest share of requests that were answered, with the cards' offloads as they are and then off; and a note of those
/// that cannot be switched.
async fn ask_offloaded(session: &Session, to: &Namespace, ip: IpAddr) -> anyhow::Result<(f64, String)> {
    let share = ask(session, to, ip).await?;
    let (bare, fixed) = without_offloads(session, ask(session, to, ip)).await?;
    Ok((share.min(bare), fixed.map_or_else(String::new, |fixed| format!("; {fixed}"))))
}

/// The share of requests that plain servers at this address answered.
async fn ask(session: &Session, to: &Namespace, ip: IpAddr) -> anyhow::Result<f64> {
    let side = || Side::At(to, &session.cpus[1..]);
    let launcher = &session.launcher;
    let listen = |service: &str, port: u16| {
        let listen = SocketAddr::new(ip, port);
        words(&format!("plain {service} --listen {listen} --mode interrupt"))
    };
    let udp = launcher.server(side(), &listen("udp-echo", PLAIN_PORT)).await?;
    let tcp = launcher.server(side(), &listen("tcp-echo", TCP_PORT)).await?;
    let ask = async |(transport, size, count): (&str, usize, u64)| {
        let port = if transport == "--udp" { PLAIN_PORT } else { TCP_PORT };
        let target = SocketAddr::new(ip, port);
        let args = words(&format!(
            "bench echo {target} {transport} --path kernel --mode interrupt --size {size} --inflight 1 --count {count} \
             --warmup 0 --json"
        ));
        let finished = launcher.client(Side::Client, &args, ASK_DEADLINE, None).await?;
        finished.json::<BenchReport>("bench")
    };
    // A card that was reset, as some are when an offload is switched, says that it carries before it does.
    let mut tries = 0..PROBES_MAX;
    while ask(("--udp", 64, 1)).await.is_err() && tries.next().is_some() {}
    let mut least: f64 = 1.0;
    for request in REQUESTS {
        let (_, size, count) = request;
        let report = ask(request).await?;
        ensure!(report.corrupt == 0, "{} replies of {size} bytes were wrong", report.corrupt);
        least = least.min(report.received as f64 / count as f64);
    }
    for server in [udp, tcp] {
        launcher.stop(server).await?;
    }
    Ok(least)
}
