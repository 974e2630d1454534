//! Replies per second, and CPU time per reply. One source asks at full speed, so budgets are raised.

use std::time::Duration;

use anyhow::{Context, bail};

use super::echo::{answered, bare, serve};
use crate::lab::asking::{self, cpu_of_asking};
use crate::lab::client::bench;
use crate::lab::model::Sample;
use crate::lab::peers::{self, Bench, FAST_PORT, PLAIN_PORT, server};
use crate::lab::process::{Side, words};
use crate::lab::session::Session;

/// Requests on their way in the rows of rates.
const INFLIGHT: u32 = 128;
const RATE_TIME: Duration = Duration::from_millis(700);
/// No limit for one source, and the highest in all.
const BUDGETS: &str = "--reply-rate 0 --reflex always --reflex-rate 10000000";
/// Requests a second where CPU time is measured: what each plain server answers without loss.
const OFFERED_PER_S: u32 = 60_000;
const CPU_TIME: Duration = Duration::from_secs(1);
/// CPU time of the whole machine for a reply, without that of the request.
const CPU_PER_REPLY: &str = "cpu_us_per_reply";
/// Replies that a CPU gives a second, by that time.
const SAVED: &str = "replies_per_cpu_s";
/// Start-up and calibration, beyond the measured time.
const SLACK: Duration = Duration::from_secs(10);

pub(super) async fn measure(session: &Session, row: &str) -> anyhow::Result<Sample> {
    match row {
        "rate-reflex" => {
            let instance = serve(session, BUDGETS).await?;
            let client = flood(FAST_PORT);
            let load = bench(session, &client, Some(instance.pid()));
            let result = answered(session, &instance, load).await;
            instance.stop(&session.launcher).await?;
            result
        }
        "rate-bare" => beside(session, &bare(""), bench(session, &flood(PLAIN_PORT), None)).await,
        "cpu-reflex" => {
            let instance = serve(session, BUDGETS).await?;
            let result = answered(session, &instance, cpu(session, FAST_PORT, "")).await;
            instance.stop(&session.launcher).await?;
            less_dropped(session, result?).await
        }
        _ => {
            let kernel = row.strip_prefix("rate-kernel-").map(|kind| (true, kind));
            let (rate, kind) = kernel
                .or_else(|| row.strip_prefix("cpu-kernel-").map(|kind| (false, kind)))
                .with_context(|| format!("no such row: {row}"))?;
            let (method, mode) = match kind.strip_suffix("-spinning") {
                Some(method) => (method, "poll"),
                None => (kind, "interrupt"),
            };
            let args = peers::udp_echo(method, mode);
            if rate {
                return beside(session, &args, bench(session, &flood(PLAIN_PORT), None)).await;
            }
            less_dropped(session, beside(session, &args, cpu(session, PLAIN_PORT, "")).await?).await
        }
    }
}

/// Our client on the fast path, spinning.
fn flood(port: u16) -> Bench {
    Bench { inflight: INFLIGHT, ..Bench::flood(port, RATE_TIME) }
}

/// Measures while a plain server runs.
async fn beside(
    session: &Session,
    server: &[String],
    measure: impl Future<Output = anyhow::Result<Sample>>,
) -> anyhow::Result<Sample> {
    session.launcher.beside(Side::Server, server, async |_| measure.await).await
}

/// The CPU time of the whole machine while a client that sleeps offers datagrams.
async fn cpu(session: &Session, port: u16, more: &str) -> anyhow::Result<Sample> {
    let args = words(&format!(
        "plain offer {} --rate {OFFERED_PER_S} --duration {:.3} {more}",
        server(port),
        CPU_TIME.as_secs_f64()
    ));
    cpu_of_asking(session, &args, CPU_TIME + SLACK).await
}

/// CPU time per reply, without that of the same datagrams if a program at tc drops them.
async fn less_dropped(session: &Session, mut sample: Sample) -> anyhow::Result<Sample> {
    let dropped = beside(session, &bare("--drop"), cpu(session, PLAIN_PORT, "--dropped")).await?;
    let per_datagram = |sample: &Sample| sample.values.get(asking::CPU).copied();
    let (Some(all), Some(dropped)) = (per_datagram(&sample), per_datagram(&dropped)) else {
        bail!("no CPU time was measured")
    };
    sample.values.insert("cpu_us_per_dropped", dropped);
    sample.values.insert(CPU_PER_REPLY, all - dropped);
    sample.values.insert(SAVED, 1e6 / (all - dropped).max(1e-3));
    Ok(sample)
}
