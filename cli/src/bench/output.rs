//! Writes result files: HDR logs, and a directory with all data of a measurement.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::IntervalLogWriterBuilder;
use twinpath_clients::Measured;
use twinpath_clients::measure::report::BenchReport;

use super::moment::Moment;
use super::plan::BenchPlan;
use super::plot;
use super::runs::Run;

/// The report of a directory, which `bench compare` reads.
pub(crate) const REPORT: &str = "report.json";
/// The log of a directory.
const LOG: &str = "latency.hlog";
/// The plot of all runs.
const PLOT: &str = "all.svg";
/// Values are ns; readers show ms.
const LOG_DIVISOR: f64 = 1e6;

/// The files to write.
pub(crate) struct Output {
    directory: Option<PathBuf>,
    logs: Vec<PathBuf>,
    /// One line per run, ready to be written.
    intervals: Vec<Interval>,
    began: Moment,
}

/// One run in a log.
struct Interval {
    started: Moment,
    length: Duration,
    histogram: Histogram<u64>,
}

impl Output {
    /// Checks before a long measurement that its results can be written.
    pub(crate) fn open(plan: &BenchPlan) -> anyhow::Result<Self> {
        let mut logs: Vec<PathBuf> = plan.files.hdr.iter().cloned().collect();
        let directory = plan.files.directory.clone();
        if let Some(directory) = &directory {
            fs::create_dir_all(directory).with_context(|| {
                format!("cannot make {} a directory: choose another --output-dir", directory.display())
            })?;
            ensure!(
                !directory.join(REPORT).exists(),
                "{} holds a measurement already: remove it, or choose another --output-dir",
                directory.display()
            );
            logs.push(directory.join(LOG));
        }
        for log in logs.iter().chain(&plan.files.plot) {
            File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        }
        Ok(Self { directory, logs, intervals: Vec::new(), began: Moment::now() })
    }

    /// Writes the results of a run that has ended.
    pub(crate) fn run(&mut self, plan: &BenchPlan, run: &Run<'_>) -> anyhow::Result<()> {
        if !self.logs.is_empty() {
            self.intervals.push(Interval {
                started: run.started,
                length: run.summary.elapsed,
                histogram: run.summary.histogram.clone(),
            });
        }
        let (Some(directory), Some(report)) = (&self.directory, run.runs.last()) else { return Ok(()) };
        let name = format!("run-{:0width$}", run.number, width = digits(plan.iterations));
        let data = directory.join(format!("{name}.data"));
        fs::write(&data, latencies(run.measured))
            .with_context(|| format!("cannot write {}", data.display()))?;
        if report.rtt_us.is_none() {
            return Ok(());
        }
        let title =
            format!("{}, run {} of {}", caption(plan, &run.measured.path), run.number, plan.iterations);
        plot_to(&title, &run.summary.histogram, &directory.join(format!("{name}.svg")))
    }

    /// Writes the results of all runs.
    pub(crate) fn finish(
        &self,
        plan: &BenchPlan,
        report: &BenchReport,
        histogram: &Histogram<u64>,
    ) -> anyhow::Result<()> {
        for log in &self.logs {
            self.write_log(log, &caption(plan, &report.path))
                .with_context(|| format!("cannot write {}", log.display()))?;
        }
        let title = format!("{}: {} replies", caption(plan, &report.path), report.received);
        if let Some(directory) = &self.directory {
            let file = directory.join(REPORT);
            fs::write(&file, serde_json::to_vec(report)?)
                .with_context(|| format!("cannot write {}", file.display()))?;
            if report.rtt_us.is_some() {
                plot_to(&title, histogram, &directory.join(PLOT))?;
            }
        }
        if let Some(file) = &plan.files.plot {
            ensure!(
                report.rtt_us.is_some(),
                "cannot draw {}: there is nothing to draw: no reply came",
                file.display()
            );
            plot_to(&title, histogram, file)?;
        }
        Ok(())
    }

    /// HdrHistogram's log format, one interval per run.
    fn write_log(&self, file: &Path, title: &str) -> anyhow::Result<()> {
        let mut writer = BufWriter::new(File::create(file)?);
        let mut serializer = V2DeflateSerializer::new();
        let began = self.intervals.first().map_or(self.began, |interval| interval.started);
        let mut log = IntervalLogWriterBuilder::new()
            .add_comment(&format!("[twinpath bench: {title}; values in ns, one interval per run]"))
            .with_start_time(began.system_time())
            .with_base_time(Moment::from_unix_s(0.0).system_time())
            .with_max_value_divisor(LOG_DIVISOR)
            .begin_log_with(&mut writer, &mut serializer)?;
        for interval in &self.intervals {
            log.write_histogram(&interval.histogram, interval.started.since_unix(), interval.length, None)
                .map_err(|error| anyhow!("{error}"))?;
        }
        writer.flush()?;
        Ok(())
    }
}

fn plot_to(title: &str, histogram: &Histogram<u64>, file: &Path) -> anyhow::Result<()> {
    plot::draw(title, histogram, file).with_context(|| format!("cannot draw {}", file.display()))
}

fn caption(plan: &BenchPlan, path: &str) -> String {
    format!(
        "{} of {}, {}, {path} path, {}, {} x {} in flight",
        plan.service, plan.target.name, plan.transport, plan.mode, plan.threads, plan.load.inflight
    )
}

/// Every latency that occurred, in ns, with its count in each thread and in all.
fn latencies(measured: &Measured) -> String {
    let mut counts: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for (index, thread) in measured.threads.iter().enumerate() {
        for bucket in thread.summary.histogram.iter_recorded() {
            let row =
                counts.entry(bucket.value_iterated_to()).or_insert_with(|| vec![0; measured.threads.len()]);
            row[index] += bucket.count_at_value();
        }
    }
    let mut text = String::from("#ns");
    let threads = 0..measured.threads.len();
    threads.for_each(|index| write!(text, "\tthread{index}").expect("a string takes everything"));
    text.push_str("\ttotal\n");
    for (ns, row) in counts {
        let total: u64 = row.iter().sum();
        let row: String = row.iter().map(|count| format!("\t{count}")).collect();
        writeln!(text, "{ns}{row}\t{total}").expect("a string takes everything");
    }
    text
}

fn digits(number: u32) -> usize {
    number.to_string().len()
}
