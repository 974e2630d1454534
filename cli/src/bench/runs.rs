//! Runs a plan repeatedly, each time on new connections, and summarises the runs.

use anyhow::Context;
use hdrhistogram::Histogram;
use twinpath_clients::measure::report::{
    BenchReport, QuantileUs, RttUs, RunReport, SystemCalls, ThreadReport, buckets,
};
use twinpath_clients::{Measured, ThreadMeasured};
use twinpath_load::{Summary, median};
use twinpath_socket_load::Stop;

use super::moment::Moment;
use super::nfs::Walk;
use super::plan::BenchPlan;
use super::service::Service;
use super::show::Watch;

/// If less than this share of the offered rate was sent, a note says so.
const OFFERED: f64 = 0.95;

/// A run that has just ended.
pub(crate) struct Run<'a> {
    /// Its number, from 1.
    pub(crate) number: u32,
    pub(crate) measured: &'a Measured,
    pub(crate) started: Moment,
    pub(crate) summary: &'a Summary,
    /// All runs so far, including this one.
    pub(crate) runs: &'a [RunReport],
}

/// All runs.
pub(crate) struct Done {
    pub(crate) report: BenchReport,
    /// Round-trip times of all runs, ns.
    pub(crate) histogram: Histogram<u64>,
    /// The reason why there are no more runs, if a run other than the first failed.
    pub(crate) failure: Option<anyhow::Error>,
}

/// Runs the plan as often as requested, or until `stop` is requested; calls `ended` for each run that counts.
///
/// A run that was cut short, by a signal or the server, counts only if there is no other.
pub(crate) fn run(
    plan: &BenchPlan,
    stop: &Stop,
    watch: &Watch,
    mut ended: impl FnMut(&Run<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<Done> {
    let mut tally = Tally::new(plan);
    for number in 1..=plan.iterations {
        let started = Moment::now();
        watch.begin(number);
        let measured = match measured(plan, number, stop, watch) {
            Ok(measured) => measured,
            Err(error) if tally.runs.is_empty() => return Err(error),
            Err(error) => {
                tally.partial = true;
                tally.failure = Some(error.context(format!("run {number} of {} failed", plan.iterations)));
                break;
            }
        };
        let was_cut = stop.is_requested() || measured.broken().is_some();
        tally.partial |= was_cut;
        let summary = measured.summary();
        tally.hear(&measured);
        tally.notes.extend(went_quiet(plan, &summary));
        if was_cut && number > 1 {
            tally.notes.push(format!("run {number} of {} was cut short and is not counted", plan.iterations));
            break;
        }
        if was_cut {
            let length = summary.elapsed.as_secs_f64();
            tally.notes.push(format!("partial: it was ended after {length:.2} s, before it was done"));
        }
        tally.add(&measured, &summary, started);
        ended(&Run { number, measured: &measured, started, summary: &summary, runs: &tally.runs })?;
        if was_cut || summary.received == 0 {
            break;
        }
    }
    tally.done()
}

/// One run of the load, or one listing.
fn measured(plan: &BenchPlan, number: u32, stop: &Stop, watch: &Watch) -> anyhow::Result<Measured> {
    match plan.service.walk() {
        Some(walk) => walk.run(stop, &watch.progress()[0]),
        None => Ok(twinpath_clients::run(&plan.run(number), stop, watch.progress())?),
    }
}

/// The sum of the runs so far.
struct Tally<'a> {
    plan: &'a BenchPlan,
    whole: Summary,
    cpu_s: f64,
    runs: Vec<RunReport>,
    path: String,
    allocations_per_packet: Option<f64>,
    notes: Vec<String>,
    complaint: Option<String>,
    broken: Option<String>,
    partial: bool,
    failure: Option<anyhow::Error>,
}

impl<'a> Tally<'a> {
    fn new(plan: &'a BenchPlan) -> Self {
        Self {
            plan,
            whole: Summary::empty(),
            cpu_s: 0.0,
            runs: Vec::new(),
            path: String::new(),
            allocations_per_packet: None,
            notes: Vec::new(),
            complaint: None,
            broken: None,
            partial: false,
            failure: None,
        }
    }

    /// Collects the notes and complaints of a run.
    fn hear(&mut self, measured: &Measured) {
        self.path.clone_from(&measured.path);
        for note in &measured.notes {
            if !self.notes.contains(note) {
                self.notes.push(note.clone());
            }
        }
        self.complaint = self.complaint.take().or_else(|| measured.complaint().map(str::to_owned));
        self.broken = self.broken.take().or_else(|| measured.broken().map(str::to_owned));
    }

    fn add(&mut self, measured: &Measured, summary: &Summary, started: Moment) {
        self.whole.merge(summary);
        self.cpu_s += measured.cpu_time().as_secs_f64();
        self.allocations_per_packet = measured.allocations_per_packet.map(|allocations| {
            self.allocations_per_packet.map_or(allocations, |worst| worst.max(allocations))
        });
        self.runs.push(run_report(measured, summary, started, &self.plan.shown.quantiles));
    }

    fn done(mut self) -> anyhow::Result<Done> {
        let duration_s: f64 = self.runs.iter().map(|run| run.duration_s).sum();
        self.notes.extend(shortfall(self.plan, self.whole.sent, duration_s));
        let said = summarise(&self.runs, self.plan.running_average).context("not one run was made")?;
        let several = self.runs.len() > 1;
        let (plan, whole) = (self.plan, &self.whole);
        let report = BenchReport {
            pacing_us: RttUs::of(&whole.pacing),
            bytes_per_s: plan.service.bytes_per_reply().map(|bytes| bytes * said.requests_per_s),
            names: plan.service.walk().map(Walk::names),
            listing_s: plan.service.walk().map(|_| said.duration_s),
            path: self.path,
            warmup_replies: whole.warmup_replies,
            sent: whole.sent,
            received: whole.received,
            refused: whole.refused,
            lost: whole.lost,
            corrupt: whole.corrupt,
            duplicates: whole.duplicates,
            late: whole.late,
            duration_s,
            requests_per_s: said.requests_per_s,
            rtt_us: said.rtt_us,
            quantiles_us: said.quantiles_us,
            cpu_client: if duration_s > 0.0 { self.cpu_s / duration_s } else { 0.0 },
            cpu_us_per_request: per_request(self.cpu_s, whole.received),
            allocations_per_packet: self.allocations_per_packet,
            notes: self.notes,
            histogram: buckets(&whole.histogram),
            complaint: self.complaint,
            broken: self.broken,
            partial: self.partial,
            system_calls: self
                .runs
                .iter()
                .try_fold(SystemCalls::default(), |sum, run| Some(sum.plus(run.system_calls.as_ref()?))),
            summarised: several.then(|| if plan.running_average { "average" } else { "median" }.to_owned()),
            runs: self.runs,
            ..settings(plan)
        };
        Ok(Done { report, histogram: self.whole.histogram, failure: self.failure })
    }
}

/// A note if replies stopped coming without another sign.
fn went_quiet(plan: &BenchPlan, summary: &Summary) -> Option<String> {
    let quiet = summary.quiet;
    (summary.received > 0 && quiet >= plan.load.loss_timeout).then(|| {
        let may_be = plan.silence_may_be();
        format!("nothing was answered in the last {:.1} s: {may_be}", quiet.as_secs_f64())
    })
}

/// A note if an open loop did not send at the offered rate.
fn shortfall(plan: &BenchPlan, sent: u64, duration_s: f64) -> Option<String> {
    let offered = plan.load.rate_per_s?;
    let reached = sent as f64 / duration_s;
    (duration_s > 0.0 && reached < OFFERED * offered).then(|| {
        format!(
            "of {offered} requests/s only {reached:.0} were sent: {} were unanswered and nothing more might be sent, or \
             this client is too slow",
            plan.load.inflight
        )
    })
}

/// The settings in the report.
fn settings(plan: &BenchPlan) -> BenchReport {
    let (procedure, auth, fragments) = match &plan.service {
        Service::Echo { .. } => (None, None, None),
        Service::Rpc(rpc) => (Some(rpc.procedure()), Some(rpc.auth_name), rpc.fragments()),
        Service::Nfs(nfs) => (Some(nfs.work), Some("sys"), None),
    };
    BenchReport {
        procedure: procedure.map(str::to_owned),
        auth: auth.map(str::to_owned),
        fragments: fragments.map(|fragments| fragments as u32),
        service: plan.service.name().to_owned(),
        target: plan.target.name.clone(),
        transport: plan.transport.to_string(),
        mode: plan.mode.to_string(),
        size: plan.service.size(),
        inflight: plan.load.inflight,
        threads: plan.threads,
        batch: plan.batch,
        nagle: plan.nagle,
        rate_per_s: plan.load.rate_per_s,
        arrivals: plan.load.rate_per_s.map(|_| plan.load.arrivals.to_string()),
        arrivals_seed: plan.load.rate_per_s.map(|_| plan.load.arrivals_seed),
        iterations: plan.iterations,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..BenchReport::default()
    }
}

fn run_report(measured: &Measured, summary: &Summary, started: Moment, quantiles: &[f64]) -> RunReport {
    let duration_s = summary.elapsed.as_secs_f64();
    let cpu_s = measured.cpu_time().as_secs_f64();
    RunReport {
        started_unix_s: started.unix_s(),
        duration_s,
        sent: summary.sent,
        received: summary.received,
        refused: summary.refused,
        lost: summary.lost,
        corrupt: summary.corrupt,
        duplicates: summary.duplicates,
        late: summary.late,
        requests_per_s: summary.requests_per_s(),
        rtt_us: RttUs::of(&summary.histogram),
        quantiles_us: QuantileUs::of(&summary.histogram, quantiles),
        cpu_client: if duration_s > 0.0 { cpu_s / duration_s } else { 0.0 },
        cpu_us_per_request: per_request(cpu_s, summary.received),
        system_calls: measured.transfers().as_ref().map(SystemCalls::of),
        threads: measured.threads.iter().map(thread_report).collect(),
    }
}

fn thread_report(thread: &ThreadMeasured) -> ThreadReport {
    ThreadReport {
        duration_s: thread.summary.elapsed.as_secs_f64(),
        received: thread.summary.received,
        requests_per_s: thread.summary.requests_per_s(),
        p50_us: RttUs::of(&thread.summary.histogram).map(|rtt| rtt.p50),
    }
}

fn per_request(cpu_s: f64, received: u64) -> Option<f64> {
    (received > 0).then(|| cpu_s * 1e6 / received as f64)
}

/// The summary of several runs: the median of each figure, or the average.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Said {
    pub(crate) requests_per_s: f64,
    pub(crate) duration_s: f64,
    pub(crate) rtt_us: Option<RttUs>,
    pub(crate) quantiles_us: Vec<QuantileUs>,
}

/// `None` without runs.
pub(crate) fn summarise(runs: &[RunReport], average: bool) -> Option<Said> {
    let of = |values: &[f64]| {
        if average {
            values.iter().sum::<f64>() / values.len() as f64
        } else {
            median(values).unwrap_or(f64::NAN)
        }
    };
    let answered: Vec<&RunReport> = runs.iter().filter(|run| run.rtt_us.is_some()).collect();
    let rtts: Vec<RttUs> = answered.iter().filter_map(|run| run.rtt_us).collect();
    let quantiles = answered.first().map_or(&[][..], |run| &run.quantiles_us);
    let quantile = |(index, quantile): (usize, &QuantileUs)| QuantileUs {
        percent: quantile.percent,
        us: of(&answered.iter().map(|run| run.quantiles_us[index].us).collect::<Vec<_>>()),
    };
    (!runs.is_empty()).then(|| Said {
        requests_per_s: of(&runs.iter().map(|run| run.requests_per_s).collect::<Vec<_>>()),
        duration_s: of(&runs.iter().map(|run| run.duration_s).collect::<Vec<_>>()),
        rtt_us: RttUs::summarise(&rtts, of),
        quantiles_us: quantiles.iter().enumerate().map(quantile).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(requests_per_s: f64, p50: f64) -> RunReport {
        let rtt = RttUs { min: 1.0, p50, p90: 4.0, p99: 5.0, p99_9: 6.0, max: 7.0, mean: p50 * 2.0 };
        let quantiles_us = vec![QuantileUs { percent: 50.0, us: p50 }];
        RunReport { requests_per_s, rtt_us: Some(rtt), quantiles_us, ..RunReport::default() }
    }

    #[test]
    fn several_runs_are_their_median_or_their_average() {
        let runs = [run(10.0, 3.0), run(40.0, 1.0), run(25.0, 8.0)];
        let median = summarise(&runs, false).unwrap();
        assert_eq!((median.requests_per_s, median.rtt_us.unwrap().p50), (25.0, 3.0));
        assert_eq!(median.rtt_us.unwrap().mean, 6.0);
        assert_eq!(median.quantiles_us, [QuantileUs { percent: 50.0, us: 3.0 }]);
        let average = summarise(&runs, true).unwrap();
        assert_eq!((average.requests_per_s, average.rtt_us.unwrap().p50), (25.0, 4.0));
        assert_eq!(summarise(&[], false), None);
        let silent = RunReport::default();
        assert_eq!(summarise(&[silent], false).unwrap().rtt_us, None);
    }
}
