//! `bench stream`: bytes or datagrams in one direction, and how many of them arrive per second.

mod options;
mod report;
mod show;

use std::process::ExitCode;

use twinpath_clients::measure::{attend, print};
use twinpath_clients::run_stream;
use twinpath_socket_load::{Progress, Stop};
use twinpath_sys::LatencyRequest;

pub(super) use self::options::StreamArgs;
use self::options::StreamBench;
use self::show::Bar;

pub(super) fn run(args: &StreamArgs) -> anyhow::Result<ExitCode> {
    let bench = StreamBench::new(args)?;
    let request = bench.latency_request.then(|| LatencyRequest::open(0)).transpose()?;
    let progress: Vec<Progress> = (0..bench.plan.threads).map(|_| Progress::default()).collect();
    let (stop, bar) = (Stop::new(), Bar::on_terminal(&bench));
    let mut draw = || {
        if let Some(bar) = &bar {
            bar.draw(&progress);
        }
    };
    let tick: Option<&mut dyn FnMut()> = if bar.is_some() { Some(&mut draw) } else { None };
    let (measured, was_interrupted) = attend(&stop, tick, || run_stream(&bench.plan, &stop, &progress))?;
    if let Some(bar) = bar {
        bar.clear();
    }
    drop(request);
    let measured = measured?;
    let complaint = show::complaint(&bench, &measured, was_interrupted);
    let report = report::report(&bench, &measured, was_interrupted);
    if bench.json {
        print(serde_json::to_string(&report)?)?;
    } else if report.duration_s > 0.0 {
        print(show::table(&report, bench.extended))?;
    }
    match complaint {
        None => Ok(ExitCode::SUCCESS),
        Some(complaint) => {
            eprintln!("twinpath: {complaint}");
            Ok(ExitCode::FAILURE)
        }
    }
}
