//! `lab quick`: an echo service through twinpath, against the kernel's own sockets, in one run.

mod measure;
mod plan;
mod tables;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Context;

use self::measure::{Attachment, Quick};
use self::plan::{Rounds, Step};
use crate::lab::bystander::{Bystander, Seen};
use crate::lab::fallback;
use crate::lab::model::Sample;
use crate::lab::peers;
use crate::lab::process::Side;
use crate::lab::record::Record;
use crate::lab::session::Session;
use crate::lab::session::{InGuest, Lab};

/// Fewest pairs per ratio under `--check`.
const CHECK_PAIRS: usize = 9;
/// Fewest pairs of the TCP request/response under `--check`.
const RR_CHECK_PAIRS: usize = 20;
/// Measurements of an idle server under `--check`.
const IDLE_CHECK_ROUNDS: usize = 3;
/// Most pairs otherwise.
const QUICK_PAIRS: usize = 6;
/// Without a requested number of rounds, no round begins that would end later than this.
const QUICK_BUDGET: Duration = Duration::from_secs(46);
/// From this round on, except under `--check`, plain servers that were clearly slower so far are left out.
const CONTENDERS_FROM: usize = 2;
/// Clearly slower: below this share of the best median.
const CONTENDER: f64 = 0.85;

/// The lab's definition.
pub(crate) const LAB: Lab = Lab {
    name: "quick",
    about: "An echo service in two network namespaces of this machine: by the kernel's own sockets, and by twinpath",
    rows: tables::ROWS,
    ratios: tables::RATIOS,
    plots: &[],
    summary: tables::SUMMARY,
    together: &[
        ("cpu-kernel", tables::PLAIN_RATES),
        ("cpu-twinpath", tables::PLAIN_RATES),
        ("floor-eventfd", &["twinpath-interrupt"]),
    ],
    in_guest: &InGuest::SAME,
    run: |session| Box::pin(run(session)),
};

/// Durations of measurements.
#[derive(Clone, Copy, Debug)]
struct Times {
    rtt: Duration,
    rate: Duration,
    cost: Duration,
    floor: Duration,
    paced: Duration,
    tcp_rr: Duration,
    tcp_bulk: Duration,
    idle: Duration,
}

const QUICK_TIMES: Times = Times {
    rtt: Duration::from_millis(250),
    rate: Duration::from_millis(250),
    cost: Duration::from_millis(400),
    floor: Duration::from_millis(150),
    paced: Duration::from_millis(400),
    tcp_rr: Duration::from_millis(250),
    tcp_bulk: Duration::from_millis(300),
    idle: Duration::from_secs(2),
};
const CHECK_TIMES: Times = Times {
    rtt: Duration::from_millis(600),
    rate: Duration::from_millis(600),
    cost: Duration::from_secs(1),
    floor: Duration::from_millis(400),
    paced: Duration::from_secs(1),
    tcp_rr: Duration::from_millis(600),
    tcp_bulk: Duration::from_millis(800),
    idle: Duration::from_secs(5),
};

fn rounds(session: &Session) -> Rounds {
    if session.check {
        let all = session.repeat.unwrap_or(CHECK_PAIRS).max(CHECK_PAIRS);
        Rounds { all, tcp_rr: all.max(RR_CHECK_PAIRS), idle: IDLE_CHECK_ROUNDS, other: 3 }
    } else {
        let all = session.repeat.unwrap_or(QUICK_PAIRS);
        Rounds { all, tcp_rr: all, idle: 1, other: 1 }
    }
}

async fn run(session: &Session) -> anyhow::Result<(Record, usize)> {
    let rounds = rounds(session);
    let plan: Vec<_> =
        (0..rounds.count()).map(|round| plan::round(round, &session.selection.rows, &rounds)).collect();
    session.progress.expect(plan.iter().flatten().filter(|step| matches!(step, Step::Measure(_))).count());
    let tcp_echo =
        session.launcher.server(Side::Server, &peers::tcp_echo()).await.context("the plain TCP echo")?;
    let tcp_sink =
        session.launcher.server(Side::Server, &peers::tcp_sink()).await.context("the plain TCP sink")?;
    let bystander = Bystander::start(&session.launcher.topology().client, peers::server(peers::TCP_PORT))?;
    let record = RefCell::new(Record::default());
    let quick = Quick {
        session,
        times: if session.check { CHECK_TIMES } else { QUICK_TIMES },
        record: &record,
        tcp_echo_pid: tcp_echo.pid,
        tcp_sink_pid: tcp_sink.pid,
        request_held: Cell::new(false),
        chosen: RefCell::default(),
        why_not: RefCell::default(),
    };
    taxes(&quick).await;
    let begun = Instant::now();
    let (mut done, mut last) = (0, Duration::ZERO);
    for (round, steps) in plan.into_iter().enumerate() {
        let budgeted = !session.check && session.repeat.is_none();
        // The first round is longer than the others, as it includes the other paths and an idle server.
        if budgeted && round > 1 && begun.elapsed() + last > QUICK_BUDGET {
            session.progress.line(&format!("{round} rounds: another would take too long; --repeat N runs N"));
            break;
        }
        let round_begun = Instant::now();
        session.progress.line(&format!("round {} of {}", round + 1, rounds.count()));
        run_round(&quick, round, steps).await;
        (done, last) = (round + 1, round_begun.elapsed());
    }
    note_bystander(&record, &bystander.finish()?);
    session.launcher.stop(tcp_echo).await?;
    session.launcher.stop(tcp_sink).await?;
    Ok((record.into_inner(), done.min(rounds.all)))
}

/// Measures the cost of the programs for the kernel's frames: once, while the machine is idle.
async fn taxes(quick: &Quick<'_>) {
    let wanted = |row: &str| quick.session.selection.rows.contains(row);
    let rows = [fallback::XDP_TAX_ROW, fallback::PACKET_TAX_ROW];
    if rows.iter().any(|row| wanted(row.id)) {
        let measured = fallback::taxes(quick.session).await;
        fallback::note(&mut quick.record.borrow_mut(), 0, &rows, measured);
    }
}

/// The state of the server's interface during a phase.
enum Phase {
    Without,
    With(Box<Attachment>),
    /// It could not be attached, for this reason.
    Refused(String),
}

/// Runs the steps of a round. A failure is recorded as the row's reason; the round continues.
async fn run_round(quick: &Quick<'_>, round: usize, steps: Vec<Step>) {
    let mut phase = Phase::Without;
    for step in steps {
        match step {
            Step::Attach => phase = attach(quick, "auto", "auto").await,
            Step::AttachOther(path) => phase = attach_other(quick, path).await,
            Step::Detach => {
                if let Phase::With(attachment) = std::mem::replace(&mut phase, Phase::Without)
                    && let Err(error) = quick.detach(*attachment).await
                {
                    quick.session.progress.line(&format!("detaching: {error:#}"));
                }
            }
            Step::Measure(row) => measure(quick, round, row, &phase).await,
        }
    }
}

async fn measure(quick: &Quick<'_>, round: usize, row: &'static str, phase: &Phase) {
    let label = tables::ROWS.iter().find(|spec| spec.id == row).map_or(row, |spec| spec.label);
    quick.session.progress.step(label);
    if quick.record.borrow().is_hopeless(row) || is_beaten(quick, round, row) {
        return;
    }
    let result = match phase {
        Phase::Without => quick.without(row).await,
        Phase::With(attached) => quick.with(row, attached).await,
        // The floor is a property of the machine and needs no attachment.
        Phase::Refused(_) if row == "floor-eventfd" => quick.without(row).await,
        Phase::Refused(reason) => Err(anyhow::anyhow!(reason.clone())),
    };
    match result {
        Ok(sample) => quick.record.borrow_mut().add(row, round, sample),
        Err(error) => {
            let reason = format!("{error:#}");
            if !matches!(phase, Phase::Refused(_)) {
                quick.session.progress.line(&format!("{row}: {reason}"));
            }
            quick.record.borrow_mut().fail(row, reason);
        }
    }
}

/// Whether this plain server need not be measured again, because `udp-rate` compares with the best one.
fn is_beaten(quick: &Quick<'_>, round: usize, row: &str) -> bool {
    if quick.session.check || round < CONTENDERS_FROM || !tables::PLAIN_RATES.contains(&row) {
        return false;
    }
    let record = quick.record.borrow();
    let rate = |row: &str| record.median(row, "requests_per_s");
    let best = record.best(tables::PLAIN_RATES, "requests_per_s").and_then(rate);
    rate(row).zip(best).is_some_and(|(rate, best)| rate < CONTENDER * best)
}

async fn attach(quick: &Quick<'_>, path: &'static str, found: &str) -> Phase {
    match quick.attach(path).await {
        Ok(attached) if found != "auto" && attached.path() != found => {
            let reason = format!("--path {path} gives {} here", attached.path());
            match quick.detach(attached).await {
                Ok(()) => Phase::Refused(reason),
                Err(error) => Phase::Refused(format!("{reason}; detaching: {error:#}")),
            }
        }
        Ok(attached) => Phase::With(Box::new(attached)),
        Err(error) => Phase::Refused(format!("{error:#}")),
    }
}

/// Attaches by another path than the one that `auto` chose.
async fn attach_other(quick: &Quick<'_>, path: &'static str) -> Phase {
    if quick.chosen.borrow().as_deref() == Some(path) {
        return Phase::Refused("the path that auto chose: see the rows of twinpath".to_owned());
    }
    match path {
        "xdp-native" => attach(quick, "xdp", path).await,
        "packet" => attach(quick, "packet", path).await,
        // Generic XDP cannot be requested: the program uses it by itself where it is safe, or says why not.
        _ => Phase::Refused(match quick.why_not.borrow().get(path) {
            Some(reason) => format!("refused: {reason}"),
            None => "refused: native XDP can be had, and nothing speaks for generic".to_owned(),
        }),
    }
}

fn note_bystander(record: &RefCell<Record>, seen: &Seen) {
    let values = BTreeMap::from([
        ("requests", seen.requests as f64),
        ("failed", seen.failed as f64),
        ("connections", seen.connections as f64),
        ("max_us", seen.longest_us),
    ]);
    let notes = seen.reason.iter().cloned().collect();
    record.borrow_mut().add("tcp-service", 0, Sample { values, notes, ..Sample::default() });
}
