//! `lab devices`: tests each path on the network cards of a guest: answers, fragmented datagrams, disabled offloads,
//! kills; and what crosses them beside: tagged frames, a VRF's, an exception port, a switch. It counts events and measures no
//! times.

mod crossing;
mod reflex;
mod tcp;

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Context, anyhow, ensure};
use tokio::task::spawn_blocking;
use twinpath_sys::{Namespace, ethtool};

use super::instance::{Facts, Instance};
use super::kni::{fragments, kill9};
use super::model::Sample;
use super::peers;
use super::session::{InGuest, Session, lab};
use super::topology::{CLIENT, SERVER};

lab!(
    "devices",
    "Whether each path works on a guest's network cards: answers, fragments, offloads, kills",
    run,
    &InGuest { modules: &["8021q", "vrf"], programs: &["ethtool"], files: &[], links: &[] }
);

/// Fragmented datagrams over each family, between twice as many whole ones.
const DATAGRAMS: u64 = 30;
const KILLS: usize = 3;
/// The seed of the sizes, order and repetitions of fragments.
const FRAGMENTS_SEED: u64 = 45;
/// The time that counts for a flow that is not answered after a kill, ms.
const SILENT_MS: f64 = 5_000.0;
/// A part of twinpath's error for a path that a kernel or a card does not support.
const REFUSED: &str = "is not possible";
/// The offloads of a card, by their names in ethtool.
const OFFLOADS: [&str; 6] = ["rx", "tx", "rxvlan", "txvlan", "gro", "tso"];

async fn run(session: &Session) -> anyhow::Result<usize> {
    let rows = session.rows();
    session.progress.expect(rows.len());
    let mut unavailable: BTreeMap<&str, anyhow::Error> = BTreeMap::new();
    for row in rows {
        // What a row is tried on: a path that has to be there.
        let (kind, path) = row.split_once('-').unwrap_or((row, ""));
        if !path.is_empty()
            && !unavailable.contains_key(path)
            && let Err(error) = available(session, path).await
        {
            unavailable.insert(path, error);
        }
        if let Some(error) = unavailable.get(path) {
            match format!("{error:#}").contains(REFUSED) {
                true => session.fail(&[row], error),
                false => session.note(row, 0, Ok(failed(error))),
            }
            continue;
        }
        if row == "switch" && is_virtual_function(session)? {
            session.fail(&[row], &anyhow!("a virtual function gets the frames for its own address only"));
            continue;
        }
        let measured = async {
            let measured = match kind {
                "exchange" => exchange(session, path).await,
                "bare" => bare(session, path).await,
                "kill9" => kill9::measure(session, path, KILLS).await,
                "vlan" => crossing::vlan(session).await,
                "vrf" => crossing::vrf(session).await,
                "bridge" => crossing::bridge(session).await,
                "switch" => crossing::switch(session).await,
                "tcp" => tcp::measure(session).await,
                _ => reflex::measure(session, if path.is_empty() { "packet" } else { path }).await,
            };
            Ok(measured.unwrap_or_else(|error| failed(&error)))
        };
        session.step(row, 0, measured).await;
    }
    Ok(1)
}

fn is_virtual_function(session: &Session) -> anyhow::Result<bool> {
    let driver = session.launcher.topology().server.run(|| ethtool::driver(SERVER.interface))?;
    Ok(driver.is_ok_and(|driver| driver.is_virtual_function()))
}

/// A path that is supported but does not work gives a failed row, not one that cannot be measured.
fn failed(error: &anyhow::Error) -> Sample {
    let values = [("answered", 0.0), ("resets", 1.0), ("worst_ms", SILENT_MS)];
    Sample { values: values.into(), notes: vec![format!("{error:#}")], ..Sample::default() }
}

/// Whether this kernel and this card support the path; otherwise the error says why not.
async fn available(session: &Session, path: &str) -> anyhow::Result<()> {
    let socket = session.run_dir.path().join("devices.sock");
    let instance = Instance::start(&session.launcher, &peers::serve(path, session.cpus[1], &socket)).await?;
    let report = instance.report().await;
    instance.stop(&session.launcher).await?;
    let found = report?.path();
    ensure!(found.starts_with(path.split('-').next().unwrap_or(path)), "asked for {path}, it took {found}");
    Ok(())
}

async fn exchange(session: &Session, path: &str) -> anyhow::Result<Sample> {
    Ok(answered_by_the_path(fragments::measure(session, path, DATAGRAMS, FRAGMENTS_SEED).await?))
}

/// With the share of datagrams that were answered; none, if none of the answers came by the path.
fn answered_by_the_path(mut sample: Sample) -> Sample {
    let value = |name: &str| sample.values.get(name).copied().unwrap_or_default();
    let answered = value("share").min(value("whole_share"));
    let answered = if value("fast_path_frames") > 0.0 { answered } else { 0.0 };
    sample.values.insert("answered", answered);
    sample
}

async fn bare(session: &Session, path: &str) -> anyhow::Result<Sample> {
    let (mut sample, fixed) = without_offloads(session, exchange(session, path)).await?;
    sample.notes.extend(fixed);
    Ok(sample)
}

/// Measures with the cards' offloads switched off; they are switched on again afterwards. Returns a note of those that cannot be
/// switched, too.
async fn without_offloads<T>(
    session: &Session,
    measure: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<(T, Option<String>)> {
    let fixed = offloads(session, "off").await?;
    let measured = measure.await;
    offloads(session, "on").await?;
    let fixed =
        (!fixed.is_empty()).then(|| format!("the card does not let these be switched: {}", fixed.join(", ")));
    Ok((measured.context("with the card's offloads off")?, fixed))
}

/// Switches all offloads at both ends; returns those that cannot be switched.
async fn offloads(session: &Session, to: &'static str) -> anyhow::Result<Vec<&'static str>> {
    let topology = session.launcher.topology();
    let mut fixed = Vec::new();
    for (namespace, interface) in [(&topology.client, CLIENT.interface), (&topology.server, SERVER.interface)]
    {
        let namespace = namespace.duplicate()?;
        fixed =
            spawn_blocking(move || switch(&namespace, interface, to)).await.context("ethtool panicked")??;
    }
    Ok(fixed)
}

fn switch(namespace: &Namespace, interface: &str, to: &str) -> anyhow::Result<Vec<&'static str>> {
    let refused = |offload: &&str| {
        let ran = Command::new("ethtool").args(["-K", interface, offload, to]).output();
        ran.map(|output| !output.status.success())
    };
    let all = || {
        let each = OFFLOADS.iter().map(|offload| Ok((*offload, refused(offload)?)));
        each.collect::<std::io::Result<Vec<_>>>()
    };
    let switched = namespace.run(all)?.context("cannot run ethtool")?;
    Ok(switched.into_iter().filter(|(_, refused)| *refused).map(|(offload, _)| offload).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::model::Formula;
    use crate::lab::record::Record;

    #[test]
    fn every_row_has_its_ratio_and_none_is_measured_outside_a_guest() {
        let rows: Vec<_> = LAB.table.rows.iter().map(|row| row.id).collect();
        let asked: Vec<_> = LAB.table.ratios.iter().map(|ratio| ratio.formula.rows()[0]).collect();
        assert_eq!(rows, asked);
        assert!(rows.iter().all(|row| LAB.is_in_guest(row)));
    }

    #[test]
    fn a_path_that_does_not_work_misses_every_target() {
        let sample = failed(&anyhow::anyhow!("gone"));
        for ratio in LAB.table.ratios {
            let Formula::Value((_, value)) = ratio.formula else { panic!("{}", ratio.id) };
            let mut record = Record::default();
            record.add(ratio.formula.rows()[0], 0, sample.clone());
            assert_eq!(record.ratio(ratio, true).holds, Some(false), "{value}");
        }
    }
}
