//! `lab reflex`: an echo service answered by the kernel's programs, against the kernel's own sockets and our worker.
//!
//! Every client is the same: a kernel socket that spins on a CPU of its own. Limits of rates are the defaults.

mod tables;

use std::time::Duration;

use anyhow::{Context, bail, ensure};

use crate::lab::client::bench;
use crate::lab::instance::{Facts as _, Instance};
use crate::lab::model::Sample;
use crate::lab::peers::{self, Bench, FAST_PORT, PLAIN_PORT};
use crate::lab::process::{Side, words};
use crate::lab::record::Record;
use crate::lab::session::{InGuest, Lab, Session};
use crate::lab::topology::SERVER;

/// Fewest pairs per ratio under `--check`.
const CHECK_PAIRS: usize = 9;
/// Most pairs otherwise.
const QUICK_PAIRS: usize = 4;
/// Round trips of a row back to back: within the burst that `limits.reply_rate` allows one source after silence.
const ROUND_TRIPS: u64 = 8000;
/// Requests that make the way to the client known, and that show who answers.
const PROBES: u64 = 64;
/// Requests on their way in the paced rows; more are not sent.
const PACED_INFLIGHT: u32 = 16;
const QUICK_PACED: Duration = Duration::from_secs(2);
/// At least 6,000 requests, so that several are slower than 99.9 %.
const CHECK_PACED: Duration = Duration::from_secs(3);
/// The period of requests is drawn between these, us.
const PERIOD_US: [f64; 2] = [250.0, 500.0];
/// The share of a row's requests that has to be answered by reflex: the others are canaries.
const SHARE_MIN: f64 = 0.98;

/// The lab's definition.
pub(crate) const LAB: Lab = Lab {
    name: "reflex",
    about: "An echo service whose replies the kernel gives while the worker sleeps, against kernel sockets",
    rows: tables::ROWS,
    ratios: tables::RATIOS,
    plots: &[],
    summary: tables::SUMMARY,
    together: &[],
    in_guest: &InGuest::SAME,
    run: |session| Box::pin(run(session)),
};

async fn run(session: &Session) -> anyhow::Result<(Record, usize)> {
    let rounds = match session.check {
        true => session.repeat.unwrap_or(CHECK_PAIRS).max(CHECK_PAIRS),
        false => session.repeat.unwrap_or(QUICK_PAIRS),
    };
    let rows: Vec<&'static str> =
        tables::ROWS.iter().map(|row| row.id).filter(|row| session.selection.rows.contains(row)).collect();
    session.progress.expect(rounds * rows.len());
    let mut record = Record::default();
    let mut random = fastrand::Rng::with_seed(session.seed);
    for round in 0..rounds {
        let [least, most] = PERIOD_US;
        let period_us = least + random.f64() * (most - least);
        session.progress.line(&format!("round {} of {rounds}: one request per {period_us:.0} us", round + 1));
        let mut order = rows.clone();
        // Any drift of the machine affects both sides of a pair alike.
        if round % 2 == 1 {
            order.reverse();
        }
        for row in order {
            let label = tables::ROWS.iter().find(|spec| spec.id == row).map_or(row, |spec| spec.label);
            session.progress.step(label);
            if record.is_hopeless(row) {
                continue;
            }
            match measure(session, row, 1e6 / period_us).await {
                Ok(sample) => record.add(row, round, sample),
                Err(error) => {
                    let reason = format!("{error:#}");
                    session.progress.line(&format!("{row}: {reason}"));
                    record.fail(row, reason);
                }
            }
        }
    }
    Ok((record, rounds))
}

async fn measure(session: &Session, row: &str, rate: f64) -> anyhow::Result<Sample> {
    let paced = |port| paced(session, port, rate);
    match row {
        "kernel-spinning" => by_kernel(session, "poll", &back_to_back(PLAIN_PORT)).await,
        "paced-kernel-spinning" => by_kernel(session, "poll", &paced(PLAIN_PORT)).await,
        "paced-kernel-sleeping" => by_kernel(session, "interrupt", &paced(PLAIN_PORT)).await,
        "worker-poll" => by_twinpath(session, "poll", "off", &back_to_back(FAST_PORT)).await,
        "reflex" => by_twinpath(session, "adaptive", "auto", &back_to_back(FAST_PORT)).await,
        "paced-reflex" => by_twinpath(session, "adaptive", "auto", &paced(FAST_PORT)).await,
        _ => bail!("no such row: {row}"),
    }
}

fn back_to_back(port: u16) -> Bench {
    Bench { count: Some(ROUND_TRIPS), ..Bench::round_trips(port, "kernel", "poll", Duration::from_secs(1)) }
}

fn paced(session: &Session, port: u16, rate: f64) -> Bench {
    let duration = if session.check { CHECK_PACED } else { QUICK_PACED };
    let inflight = PACED_INFLIGHT;
    Bench { rate: Some(rate), inflight, ..Bench::round_trips(port, "kernel", "poll", duration) }
}

/// A plain server on kernel sockets.
async fn by_kernel(session: &Session, mode: &str, client: &Bench) -> anyhow::Result<Sample> {
    let server = session.launcher.server(Side::Server, &peers::udp_echo("connected", mode)).await?;
    let result = bench(session, client, Some(server.pid)).await;
    session.launcher.stop(server).await?;
    result
}

/// `twinpath serve echo`; with reflexes, nearly all replies have to be some.
async fn by_twinpath(session: &Session, mode: &str, reflex: &str, client: &Bench) -> anyhow::Result<Sample> {
    let socket = session.run_dir.path().join("reflex.sock");
    let mut args = words(&format!(
        "serve echo --on {} --udp {FAST_PORT} --mode {mode} --workers 1 --cpu {} --reflex {reflex} --socket",
        SERVER.interface, session.cpus[1]
    ));
    args.push(socket.display().to_string());
    let instance = Instance::start(&session.launcher, &args).await?;
    let result = answered(session, &instance, reflex == "auto", client).await;
    instance.stop(&session.launcher).await?;
    result
}

async fn answered(
    session: &Session,
    instance: &Instance,
    by_reflex: bool,
    client: &Bench,
) -> anyhow::Result<Sample> {
    let probe = Bench { count: Some(PROBES), ..back_to_back(FAST_PORT) };
    bench(session, &probe, None).await.context("the probe after attaching")?;
    let before = instance.report().await?;
    let mut sample = bench(session, client, Some(instance.pid())).await?;
    let after = instance.report().await?;
    let count = |report: &twinpath_report::Report| {
        let services = report.services.iter();
        services.fold((0, 0), |(reflex, worker), service| {
            (reflex + service.reflex_replies, worker + service.fast_requests + service.kernel_requests)
        })
    };
    let (before, now) = (count(&before), count(&after));
    let (reflex, worker) = ((now.0 - before.0) as f64, (now.1 - before.1) as f64);
    ensure!(reflex + worker > 0.0, "nobody has answered");
    let share = reflex / (reflex + worker);
    ensure!(!by_reflex || share >= SHARE_MIN, "only {:.1} % of the replies were reflexes", share * 100.0);
    sample.values.insert("reflex_share", share);
    sample.path = Some(after.path());
    Ok(sample)
}
