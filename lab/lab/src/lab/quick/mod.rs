//! `lab quick`: an echo service through twinpath, against the kernel's own sockets, in one run.

mod measure;
mod plan;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context;

use self::measure::{Attachment, Quick};
use self::plan::{Rounds, Step};
use crate::lab::bystander::{Bystander, Seen};
use crate::lab::fallback;
use crate::lab::model::Sample;
use crate::lab::peers;
use crate::lab::process::Side;
use crate::lab::session::{Session, lab};

/// The ratios whose rows have other numbers of rounds: as many as each needs pairs.
const RR: &str = "tcp-rr-beside";
const IDLE: &str = "idle-cpu";
/// Rows that compare with the best of the plain servers, and that have an offered rate of their own.
const RATE: &str = "rate-twinpath";
const COST: &str = "cpu-kernel";
/// Most pairs without `--check`.
const QUICK_PAIRS: usize = 6;
/// Without a requested number of rounds, no round begins that would end later than this.
const QUICK_BUDGET: Duration = Duration::from_secs(46);
/// From this round on, except under `--check`, plain servers that were clearly slower so far are left out.
const CONTENDERS_FROM: usize = 2;
/// Clearly slower: below this share of the best median.
const CONTENDER: f64 = 0.85;

lab!(
    "quick",
    "An echo service in two network namespaces of this machine: by the kernel's own sockets, and by twinpath",
    run
);

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
    let all = session.rounds(QUICK_PAIRS);
    let pairs = |ratio| LAB.table.pairs(ratio);
    if session.check {
        Rounds { all, tcp_rr: all.max(pairs(RR)), idle: pairs(IDLE), other: 3 }
    } else {
        Rounds { all, tcp_rr: all, idle: 1, other: 1 }
    }
}

async fn run(session: &Session) -> anyhow::Result<usize> {
    let rounds = rounds(session);
    let mut plan: Vec<_> =
        (0..rounds.count()).map(|round| plan::round(round, &session.selection.rows, &rounds)).collect();
    session.progress.expect(plan.iter().flatten().filter(|step| matches!(step, Step::Measure(_))).count());
    let tcp_echo =
        session.launcher.server(Side::Server, &peers::tcp_echo()).await.context("the plain TCP echo")?;
    let tcp_sink =
        session.launcher.server(Side::Server, &peers::tcp_sink()).await.context("the plain TCP sink")?;
    let bystander = Bystander::start(&session.launcher.topology().client, peers::server(peers::TCP_PORT))?;
    let quick = Quick {
        session,
        times: session.either(CHECK_TIMES, QUICK_TIMES),
        tcp_echo_pid: tcp_echo.pid,
        tcp_sink_pid: tcp_sink.pid,
        request_held: Cell::new(false),
        chosen: RefCell::default(),
        why_not: RefCell::default(),
    };
    taxes(session).await;
    let round = async |round: usize| run_round(&quick, round, std::mem::take(&mut plan[round])).await;
    let done = session.in_rounds(rounds.count(), QUICK_BUDGET, round).await;
    session.note("tcp-service", 0, bystander.finish().map(|seen| of_bystander(&seen)));
    session.launcher.stop(tcp_echo).await?;
    session.launcher.stop(tcp_sink).await?;
    Ok(done.min(rounds.all))
}

/// Measures the cost of the programs for the kernel's frames: once, while the machine is idle.
async fn taxes(session: &Session) {
    if fallback::TAXES.iter().any(|row| session.wants(row)) {
        fallback::note(session, 0, &fallback::TAXES, fallback::taxes(session).await);
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
    if is_beaten(quick, round, row) {
        return;
    }
    let measured = async {
        match phase {
            Phase::Without => quick.without(row).await,
            Phase::With(attached) => quick.with(row, attached).await,
            // The floor is a property of the machine and needs no attachment.
            Phase::Refused(_) if row == "floor-eventfd" => quick.without(row).await,
            Phase::Refused(reason) => Err(anyhow::anyhow!(reason.clone())),
        }
    };
    quick.session.step(row, round, measured).await;
}

/// Whether this plain server need not be measured again, because `udp-rate` compares with the best one.
fn is_beaten(quick: &Quick<'_>, round: usize, row: &str) -> bool {
    let plain = LAB.table.against(RATE);
    if quick.session.check || round < CONTENDERS_FROM || !plain.contains(&row) {
        return false;
    }
    let record = quick.session.record.borrow();
    let rate = |row: &str| record.median(row, "requests_per_s");
    let best = record.best(plain, "requests_per_s").and_then(rate);
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

fn of_bystander(seen: &Seen) -> Sample {
    let values = BTreeMap::from([
        ("requests", seen.requests as f64),
        ("failed", seen.failed as f64),
        ("connections", seen.connections as f64),
        ("max_us", seen.longest_us),
    ]);
    let notes = seen.reason.iter().cloned().collect();
    Sample { values, notes, ..Sample::default() }
}
