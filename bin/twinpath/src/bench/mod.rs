//! `twinpath bench`: a load against a service, over kernel sockets or the fast path, and what came of it.

pub(crate) mod attend;
mod fast;
mod kernel;
pub(crate) mod plan;
mod plot;
pub(crate) mod report;
pub(crate) mod show;

use std::process::ExitCode;

use anyhow::Context;
use twinpath_control::choose::PathAsked;
use twinpath_load::Summary;
use twinpath_plain::{Progress, Stop};
use twinpath_sys::LatencyRequest;
use twinpath_time::Duration;

use self::plan::{EchoArgs, Plan};
use self::report::{BenchReport, RttUs, buckets};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    service: Service,
}

#[derive(clap::Subcommand)]
enum Service {
    Echo(Box<EchoArgs>),
}

/// What a transport hands back.
pub(crate) struct Measured {
    /// All threads together.
    pub(crate) summary: Summary,
    /// CPU time of the client's threads over the measured window.
    pub(crate) cpu_time: Duration,
    /// The path that was used; never `auto`.
    pub(crate) path: String,
    pub(crate) allocations_per_packet: Option<f64>,
    /// For the reader.
    pub(crate) notes: Vec<String>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Service::Echo(args) = args.service;
    let plan = Plan::new(&args)?;
    let request = plan.latency_request.then(|| LatencyRequest::open(0)).transpose()?;
    let (measured, was_interrupted) = measure(&plan)?;
    drop(request);
    let report = report_of(&plan, &measured);
    if plan.json {
        show::print(serde_json::to_string(&report)?)?;
    } else {
        show::print(show::table(&report))?;
    }
    if let Some(file) = &plan.plot {
        plot::draw(&report, &measured.summary.histogram, file)
            .with_context(|| format!("cannot draw {}", file.display()))?;
    }
    match show::complaint(&plan, &report, was_interrupted) {
        None => Ok(ExitCode::SUCCESS),
        Some(complaint) => {
            eprintln!("twinpath: {complaint}");
            Ok(ExitCode::FAILURE)
        }
    }
}

/// Runs the plan; also tells whether a signal ended it.
fn measure(plan: &Plan) -> anyhow::Result<(Measured, bool)> {
    let stop = Stop::new();
    let progress: Vec<Progress> = (0..plan.threads).map(|_| Progress::default()).collect();
    let bar = show::Bar::on_terminal(plan);
    let mut draw = || {
        if let Some(bar) = &bar {
            bar.draw(&progress);
        }
    };
    let tick: Option<&mut dyn FnMut()> = if bar.is_some() { Some(&mut draw) } else { None };
    let run = if plan.path == PathAsked::Kernel { kernel::run } else { fast::run };
    let (measured, was_interrupted) = attend::attend(&stop, tick, || run(plan, &stop, &progress))?;
    if let Some(bar) = bar {
        bar.clear();
    }
    Ok((measured?, was_interrupted))
}

fn report_of(plan: &Plan, measured: &Measured) -> BenchReport {
    let summary = &measured.summary;
    let duration_s = summary.elapsed.as_secs_f64();
    let cpu_client = if duration_s > 0.0 { measured.cpu_time.as_secs_f64() / duration_s } else { 0.0 };
    BenchReport {
        target: plan.target_name.clone(),
        transport: plan.transport.to_string(),
        path: measured.path.clone(),
        mode: plan.mode.to_string(),
        size: plan.load.payload_len,
        inflight: plan.load.inflight,
        threads: plan.threads,
        rate_per_s: plan.load.rate_per_s,
        arrivals: plan.load.rate_per_s.map(|_| plan.load.arrivals.to_string()),
        arrivals_seed: plan.load.rate_per_s.map(|_| plan.load.arrivals_seed),
        pacing_us: RttUs::of(&summary.pacing),
        sent: summary.sent,
        received: summary.received,
        lost: summary.lost,
        corrupt: summary.corrupt,
        duplicates: summary.duplicates,
        late: summary.late,
        duration_s,
        requests_per_s: summary.requests_per_s(),
        rtt_us: RttUs::of(&summary.histogram),
        cpu_client,
        allocations_per_packet: measured.allocations_per_packet,
        notes: measured.notes.clone(),
        histogram: buckets(&summary.histogram),
    }
}
