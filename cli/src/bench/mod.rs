//! `twinpath bench`: runs a load against a service, or a stream to it, over kernel sockets or the fast path, and reports
//! the results.

mod compare;
mod lines;
mod moment;
mod mount;
mod nfs;
mod options;
mod output;
mod plan;
mod plot;
mod rpc;
mod runs;
mod service;
mod show;
mod stream;
mod target;

use std::process::ExitCode;

use twinpath_clients::measure::report::BenchReport;
use twinpath_clients::measure::{attend, print};
use twinpath_socket_load::Stop;
use twinpath_sys::LatencyRequest;

use self::compare::CompareArgs;
use self::nfs::NfsArgs;
use self::options::EchoArgs;
use self::output::Output;
use self::plan::BenchPlan;
use self::rpc::RpcArgs;
use self::runs::{Done, Run};
use self::show::{Bar, Watch};
use self::stream::StreamArgs;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    Echo(Box<EchoArgs>),
    Rpc(Box<RpcArgs>),
    Nfs(Box<NfsArgs>),
    Stream(Box<StreamArgs>),
    Compare(CompareArgs),
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.what {
        What::Echo(args) => measure(&BenchPlan::echo(&args)?).map(|(code, _)| code),
        What::Rpc(args) => measure(&rpc::plan(&args)?).map(|(code, _)| code),
        What::Nfs(args) => nfs::run(&args),
        What::Stream(args) => stream::run(&args),
        What::Compare(args) => compare::run(&args),
    }
}

/// Measures as planned, and prints the results. Also returns them.
fn measure(plan: &BenchPlan) -> anyhow::Result<(ExitCode, BenchReport)> {
    let mut output = Output::open(plan)?;
    let request = plan.latency_request.then(|| LatencyRequest::open(0)).transpose()?;
    let (done, was_interrupted) = attended(plan, &mut output)?;
    drop(request);
    let Done { report, histogram, failure } = done;
    if plan.shown.json {
        print(serde_json::to_string(&report)?)?;
    } else if !plan.shown.lines {
        print(show::table(plan, &report))?;
    } else if plan.shown.header {
        print(format_args!("\n{}", show::table(plan, &report)))?;
    }
    output.finish(plan, &report, &histogram)?;
    if let Some(failure) = failure {
        return Err(failure);
    }
    let code = match show::complaint(plan, &report, was_interrupted) {
        None => ExitCode::SUCCESS,
        Some(complaint) => {
            eprintln!("twinpath: {complaint}");
            ExitCode::FAILURE
        }
    };
    Ok((code, report))
}

/// Runs the plan; also returns whether a signal ended it.
fn attended(plan: &BenchPlan, output: &mut Output) -> anyhow::Result<(Done, bool)> {
    let (stop, watch) = (Stop::new(), Watch::new(plan));
    let bar = Bar::on_terminal(plan);
    let mut draw = || {
        if let Some(bar) = &bar {
            bar.draw(&watch);
        }
    };
    let tick: Option<&mut dyn FnMut()> = if bar.is_some() { Some(&mut draw) } else { None };
    let shows_lines = plan.shown.lines && !plan.shown.json;
    let ended = |run: &Run<'_>| {
        if shows_lines && plan.shown.header && run.number == 1 {
            show::print_beside(bar.as_ref(), lines::header(plan))?;
        }
        if shows_lines {
            show::print_beside(bar.as_ref(), lines::row(plan, run.runs))?;
        }
        output.run(plan, run)
    };
    let (done, was_interrupted) = attend(&stop, tick, || runs::run(plan, &stop, &watch, ended))?;
    if let Some(bar) = bar {
        bar.clear();
    }
    Ok((done?, was_interrupted))
}
