//! Servers that are asked by `plain ask`: its report, and the CPU time that the whole machine takes for a query. Processes of `plain
//! busy` beside them.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde::Deserialize;

use super::client::RATE;
use super::model::Sample;
use super::process::{Background, Server, Side, words};
use super::session::Session;
use crate::plain::program::AskReport;

/// CPU time of the machine for a query, without the client's own outside of the kernel, us.
pub(super) const CPU: &str = "cpu_us_per_query";

/// Before the client begins: the counting loops have both CPUs for themselves.
const CALIBRATION: Duration = Duration::from_millis(400);
/// Part of the measured time that is left out at each end.
const MARGIN: f64 = 0.1;

/// What a client has printed.
pub(super) fn asked(stdout: &str) -> anyhow::Result<AskReport> {
    let asked: AskReport = serde_json::from_str(stdout).context("cannot read the result of plain ask")?;
    ensure!(asked.answered > 0, "no request was answered");
    Ok(asked)
}

/// Its round trips, as a sample.
pub(super) fn round_trips(stdout: &str) -> anyhow::Result<Sample> {
    let asked = asked(stdout)?;
    let mut values = asked.rtt_us.context("no round trip")?.values();
    values.extend([(RATE, asked.requests_per_s), ("lost", asked.lost as f64)]);
    Ok(Sample { values, ..Sample::default() })
}

/// Measures while a process that always wants the CPU runs on each.
pub(super) async fn beside_busy<T>(
    session: &Session,
    measured: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    let launcher = &session.launcher;
    let mut busy = Vec::new();
    for (side, cpu) in [(Side::Client, session.cpus[0]), (Side::Server, session.cpus[1])] {
        busy.push(launcher.background(side, &words(&format!("plain busy --cpu {cpu}")))?);
    }
    let measured = measured.await;
    for process in busy {
        launcher.finish(process).await?;
    }
    measured
}

/// The output of `plain busy` at its end.
#[derive(Default, Deserialize)]
pub(super) struct Marks {
    /// Time, ns of the monotonic clock, and units of work done by then: every few ms.
    marks: Vec<(u64, u64)>,
}

impl Marks {
    /// The last line that it printed.
    pub(super) fn of(printed: &str) -> anyhow::Result<Self> {
        let last = printed.lines().last().context("plain busy said nothing")?;
        serde_json::from_str(last).context("cannot read what plain busy printed")
    }

    /// Units of work per ns between two times.
    pub(super) fn speed(&self, from_ns: u64, to_ns: u64) -> Option<f64> {
        let mut within = self.marks.iter().filter(|(at, _)| (from_ns..=to_ns).contains(at));
        let (first, last) = (within.next()?, within.next_back()?);
        Some((last.1 - first.1) as f64 / (last.0 - first.0) as f64)
    }
}

/// Starts a server, asks it, and stops it. Each CPU has a loop that counts while no other thread wants it, interrupts included: what is missing of its counts, against the
/// time before the client began, is what the machine did.
pub(super) async fn cpu_of_queries(
    session: &Session,
    server: &str,
    ask: &[String],
    most: Duration,
) -> anyhow::Result<Sample> {
    let measure = async |_: &Server| cpu_of_asking(session, ask, most).await;
    session.launcher.beside(Side::Server, &words(server), measure).await
}

/// The same for a server that runs already.
pub(super) async fn cpu_of_asking(
    session: &Session,
    ask: &[String],
    most: Duration,
) -> anyhow::Result<Sample> {
    let counts =
        |side, cpu| session.launcher.background(side, &words(&format!("plain busy --idle --cpu {cpu}")));
    let loops: [anyhow::Result<Background>; 2] =
        [counts(Side::Client, session.cpus[0]), counts(Side::Server, session.cpus[1])];
    tokio::time::sleep(CALIBRATION).await;
    let client = session.launcher.client(Side::Client, ask, most, None).await;
    let mut marks = Vec::new();
    for counting in loops {
        marks.push(Marks::of(&session.launcher.finish(counting?).await?)?);
    }
    let asked = asked(&client?.stdout)?;
    ensure!(asked.lost * 1000 <= asked.answered, "{} of {} queries were lost", asked.lost, asked.answered);
    let length_ns = asked.to_ns - asked.from_ns;
    let margin_ns = (length_ns as f64 * MARGIN) as u64;
    let mut busy = 0.0;
    for marks in &marks {
        let idle =
            marks.speed(0, asked.from_ns).context("a counting loop did not count before the client")?;
        // A CPU that others had for the whole time has no marks.
        let loaded = marks.speed(asked.from_ns + margin_ns, asked.to_ns - margin_ns).unwrap_or(0.0);
        if idle <= 0.0 {
            bail!("a counting loop did not count before the client");
        }
        busy += (1.0 - loaded / idle).max(0.0);
    }
    // CPUs in use, of which the client had a part.
    let client = asked.cpu_s / (length_ns as f64 / 1e9);
    let per_query = (busy - client) * 1e6 / asked.requests_per_s;
    let values =
        [(CPU, per_query), ("cpus", busy), ("client_cpus", client), (RATE, asked.requests_per_s)].into();
    Ok(Sample { values, ..Sample::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_counts_between_the_marks_of_a_window() {
        let marks = Marks { marks: (0..100).map(|at| (at * 5_000_000, at * at)).collect() };
        let ms = 1_000_000;
        // 100 ms to 200 ms: marks 20 to 40.
        let per_s = marks.speed(100 * ms, 203 * ms).unwrap() * 1e9;
        assert!((per_s - (1600.0 - 400.0) / 0.1).abs() < 1e-6, "{per_s}");
        assert_eq!(marks.speed(501 * ms, 600 * ms), None);
        assert_eq!(marks.speed(100 * ms, 104 * ms), None);
    }
}
