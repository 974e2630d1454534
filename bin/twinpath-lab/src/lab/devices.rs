//! `lab devices`: tests each path on the network cards of a guest: answers, fragmented datagrams, disabled offloads,
//! kills; and what crosses them beside: tagged frames, an exception port, a switch. It counts events and measures no
//! times.

mod crossing;
mod reflex;

use std::process::Command;

use anyhow::{Context, ensure};
use tokio::task::spawn_blocking;
use twinpath_sys::{Namespace, ethtool};

use super::instance::{Facts, Instance};
use super::kni::{fragments, kill9};
use super::model::{Better, Formula, Group, Judged, RatioSpec, RowSpec, Sample};
use super::peers;
use super::record::Record;
use super::session::Session;
use super::session::{InGuest, Lab};
use super::topology::{CLIENT, SERVER};

pub(crate) const LAB: Lab = Lab {
    name: "devices",
    about: "Whether each path works on a guest's network cards: answers, fragments, offloads, kills",
    rows: &ROWS,
    ratios: &RATIOS,
    plots: &[],
    summary: &[],
    together: &[],
    in_guest: &InGuest {
        rows: &[
            "exchange-packet",
            "exchange-xdp",
            "exchange-xdp-zerocopy",
            "bare-packet",
            "bare-xdp",
            "bare-xdp-zerocopy",
            "kill9-packet",
            "kill9-xdp",
            "kill9-xdp-zerocopy",
            "vlan",
            "bridge",
            "switch",
            "reflex",
            "reflex-xdp",
        ],
        modules: &["8021q"],
        programs: &["ethtool"],
        files: &[],
        links: &[],
    },
    run: |session| Box::pin(run(session)),
};

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

/// The rows of one path.
struct Rows {
    path: &'static str,
    exchange: &'static str,
    bare: &'static str,
    kill9: &'static str,
}

const PATHS: [Rows; 3] = [
    Rows { path: "packet", exchange: "exchange-packet", bare: "bare-packet", kill9: "kill9-packet" },
    Rows { path: "xdp", exchange: "exchange-xdp", bare: "bare-xdp", kill9: "kill9-xdp" },
    Rows {
        path: "xdp-zerocopy",
        exchange: "exchange-xdp-zerocopy",
        bare: "bare-xdp-zerocopy",
        kill9: "kill9-xdp-zerocopy",
    },
];

const fn row(id: &'static str, path: &'static str, main: &'static str, label: &'static str) -> RowSpec {
    RowSpec { id, label, group: Group::Trouble, path: Some(path), mode: None, main, base: &[] }
}

/// Every row, in the order of the table.
const ROWS: [RowSpec; 14] = [
    row("exchange-packet", "packet", "answered", "packet: datagrams, whole and in 2 to 45 fragments"),
    row("bare-packet", "packet", "answered", "packet: the same, the card's offloads switched off"),
    row("kill9-packet", "packet", "resets", "packet: kernel connections that a kill -9 broke"),
    row("exchange-xdp", "xdp", "answered", "xdp: datagrams, whole and in 2 to 45 fragments"),
    row("bare-xdp", "xdp", "answered", "xdp: the same, the card's offloads switched off"),
    row("kill9-xdp", "xdp", "resets", "xdp: kernel connections that a kill -9 broke"),
    row(
        "exchange-xdp-zerocopy",
        "xdp-zerocopy",
        "answered",
        "zero-copy: datagrams, whole and in 2 to 45 fragments",
    ),
    row(
        "bare-xdp-zerocopy",
        "xdp-zerocopy",
        "answered",
        "zero-copy: the same, the card's offloads switched off",
    ),
    row("kill9-xdp-zerocopy", "xdp-zerocopy", "resets", "zero-copy: kernel connections that a kill -9 broke"),
    row("vlan", "packet", "answered", "tagged datagrams, served on a VLAN interface"),
    row("bridge", "exception", "answered", "requests through an exception port, and after its kill -9"),
    row("switch", "switch", "answered", "requests through a switch, and after its kill -9"),
    row("reflex", "packet", "answered", "calls that the kernel's programs answer from kept replies"),
    row("reflex-xdp", "xdp", "answered", "the same, by the XDP program and the one at tc"),
];

const fn answered(id: &'static str, row: &'static str, what: &'static str) -> RatioSpec {
    RatioSpec {
        id,
        what,
        formula: Formula::Value((row, "answered")),
        target: Some(1.0),
        better: Better::Higher,
        judged: Judged::Median,
        check_pairs: 1,
        also: &[],
        steady: None,
    }
}

const fn resets(
    id: &'static str,
    row: &'static str,
    also: &'static [(super::model::Cell, f64)],
) -> RatioSpec {
    RatioSpec {
        formula: Formula::Value((row, "resets")),
        target: Some(0.0),
        better: Better::Lower,
        also,
        ..answered(id, row, "kernel connections that a kill -9 beside them broke; none stays silent")
    }
}

const WHAT: &str =
    "share of datagrams, whole and in fragments, answered exactly once, the whole ones by the path";
const WHAT_BARE: &str = "the same, the card's offloads switched off";

/// The requirements, wherever the path is supported.
const RATIOS: [RatioSpec; 14] = [
    answered("packet-exchange", "exchange-packet", WHAT),
    answered("packet-bare", "bare-packet", WHAT_BARE),
    resets("packet-kill9", "kill9-packet", &[(("kill9-packet", "worst_ms"), SILENT_MS)]),
    answered("xdp-exchange", "exchange-xdp", WHAT),
    answered("xdp-bare", "bare-xdp", WHAT_BARE),
    resets("xdp-kill9", "kill9-xdp", &[(("kill9-xdp", "worst_ms"), SILENT_MS)]),
    answered("xdp-zerocopy-exchange", "exchange-xdp-zerocopy", WHAT),
    answered("xdp-zerocopy-bare", "bare-xdp-zerocopy", WHAT_BARE),
    resets("xdp-zerocopy-kill9", "kill9-xdp-zerocopy", &[(("kill9-xdp-zerocopy", "worst_ms"), SILENT_MS)]),
    answered(
        "vlan-answered",
        "vlan",
        "share of tagged datagrams answered exactly once, by the path of the tag's interface",
    ),
    answered(
        "bridge-answered",
        "bridge",
        "share of requests answered, by each carrier, and by the kernel after a kill",
    ),
    answered("switch-answered", "switch", "share of requests answered, and by the kernel after a kill"),
    answered(
        "reflex-answered",
        "reflex",
        "share of calls answered, on a kernel whose programs answer most of them from kept replies",
    ),
    answered("reflex-xdp-answered", "reflex-xdp", "the same, on the XDP path"),
];

async fn run(session: &Session) -> anyhow::Result<(Record, usize)> {
    let selected = |row: &'static str| session.selection.rows.contains(row);
    let mut record = Record::default();
    session.progress.expect(session.selection.rows.len());
    for rows in &PATHS {
        let mut wanted =
            [rows.exchange, rows.bare, rows.kill9].into_iter().filter(|row| selected(row)).peekable();
        if wanted.peek().is_none() {
            continue;
        }
        if let Err(error) = available(session, rows.path).await {
            let reason = format!("{error:#}");
            session.progress.line(&format!("{}: {reason}", rows.path));
            wanted.for_each(|row| match reason.contains(REFUSED) {
                true => record.fail(row, reason.clone()),
                false => record.add(row, 0, failed(&error)),
            });
            continue;
        }
        for row in wanted {
            session.progress.step(row);
            let measured = if row == rows.exchange {
                exchange(session, rows.path).await
            } else if row == rows.bare {
                bare(session, rows.path).await
            } else {
                kill9::measure(session, rows.path, KILLS).await
            };
            record.add(row, 0, measured.unwrap_or_else(|error| failed(&error)));
        }
    }
    for row in ["vlan", "bridge", "switch", "reflex", "reflex-xdp"].into_iter().filter(|row| selected(row)) {
        session.progress.step(row);
        if row == "reflex-xdp"
            && let Err(error) = available(session, "xdp").await
        {
            record.fail(row, format!("{error:#}"));
            continue;
        }
        if row == "switch" && is_virtual_function(session)? {
            record.fail(row, "a virtual function gets the frames for its own address only".to_owned());
            continue;
        }
        let measured = match row {
            "vlan" => crossing::vlan(session).await,
            "bridge" => crossing::bridge(session).await,
            "reflex" => reflex::measure(session, "packet").await,
            "reflex-xdp" => reflex::measure(session, "xdp").await,
            _ => crossing::switch(session).await,
        };
        record.add(row, 0, measured.unwrap_or_else(|error| failed(&error)));
    }
    Ok((record, 1))
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

/// Measures with the cards' offloads disabled; they are enabled again afterwards.
async fn bare(session: &Session, path: &str) -> anyhow::Result<Sample> {
    let fixed = offloads(session, "off").await?;
    let exchanged = exchange(session, path).await;
    offloads(session, "on").await?;
    let mut sample = exchanged?;
    if !fixed.is_empty() {
        sample.notes.push(format!("the card does not let these be switched: {}", fixed.join(", ")));
    }
    Ok(sample)
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

    #[test]
    fn every_row_is_one_of_a_path_and_has_its_ratio_and_none_is_measured_outside_a_guest() {
        let of_paths: Vec<_> = PATHS.iter().flat_map(|rows| [rows.exchange, rows.bare, rows.kill9]).collect();
        let all: Vec<_> =
            of_paths.into_iter().chain(["vlan", "bridge", "switch", "reflex", "reflex-xdp"]).collect();
        assert_eq!(all, ROWS.map(|row| row.id));
        assert_eq!(all, RATIOS.map(|ratio| ratio.formula.rows()[0]));
        assert!(all.iter().all(|row| LAB.in_guest.rows.contains(row)));
    }

    #[test]
    fn a_path_that_does_not_work_misses_every_target() {
        let sample = failed(&anyhow::anyhow!("gone"));
        for ratio in &RATIOS {
            let Formula::Value((_, value)) = ratio.formula else { panic!("{}", ratio.id) };
            let mut record = Record::default();
            record.add(ratio.formula.rows()[0], 0, sample.clone());
            assert_eq!(record.ratio(ratio, true).holds, Some(false), "{value}");
        }
    }
}
