//! The peer `twinpath-lab plain busy`: a process that always wants the CPU, and counts its work.

use anyhow::Context;
use serde_json::json;
use twinpath_clients::measure::{attend, print};
use twinpath_socket_load::Stop;
use twinpath_sys::{affinity, clock, scheduling};
use twinpath_time::Instant;

/// Steps of one unit of work: about a microsecond.
const STEPS: u32 = 1000;
/// The interval of marks, ns.
const MARK_NS: u64 = 5_000_000;
/// Most marks: those of an hour.
const MARKS_MAX: usize = 720_000;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The CPU to run on
    #[arg(long)]
    cpu: Option<usize>,
    /// Only when no other thread wants it: what is missing of its work is what others did
    #[arg(long)]
    idle: bool,
}

/// Works until a signal. Prints a line at the start, and at the end its marks `[time, units]`, with the time in ns of
/// the monotonic clock.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let stop = Stop::new();
    let (marks, _) = attend(&stop, None, || -> anyhow::Result<_> {
        if let Some(cpu) = args.cpu {
            affinity::pin_current_thread(cpu)?;
        }
        if args.idle {
            scheduling::set_idle()?;
        }
        print(json!({ "ready": true, "pid": std::process::id() }))?;
        Ok(work(&stop))
    })?;
    let marks: Vec<_> =
        marks.context("cannot work")?.iter().map(|(at, units)| (at.as_nanos(), *units)).collect();
    Ok(print(json!({ "marks": marks }))?)
}

fn work(stop: &Stop) -> Vec<(Instant, u64)> {
    let mut marks = vec![(clock::now(), 0)];
    let (mut state, mut units) = (1_u64, 0);
    while !stop.is_requested() && marks.len() < MARKS_MAX {
        for _ in 0..STEPS {
            // Each step depends on the last: nothing can be predicted, overlapped or left out.
            state = std::hint::black_box(state).wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        }
        units += 1;
        let now = clock::now();
        if now.nanos_since(marks[marks.len() - 1].0) >= MARK_NS {
            marks.push((now, units));
        }
    }
    marks
}
