//! Measures a busy connection beside others that are a burden: 10,000 idle ones, and some that never read.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use rustix::process::{Resource, getrlimit};

use super::measure::{Stage, Target};
use super::peers;
use crate::lab::instance::Instance;
use crate::lab::model::{How, Sample};
use crate::lab::process::{Server, Side};
use crate::lab::session::Session;

/// Rows with the same server, so that the one that comes first measures the other as well.
const IDLE: [&str; 2] = ["idle-10k-alone", "idle-10k-beside"];

/// Number of idle connections.
const IDLE_CONNECTIONS: usize = 10_000;
/// Other descriptors of a process.
const OTHER_DESCRIPTORS: u64 = 256;
/// Number of connections that never read.
const NEVER_READ: usize = 16;
/// The limit for each of them in each direction, bytes: the default, set explicitly so that a change of the default has
/// no effect here.
const CONNECTION_BYTES: u64 = 256 << 10;
/// The limit for all of them together: the default.
const QUEUED_BYTES: u64 = 64 << 20;
/// How long the server may take to accept all.
const ACCEPT_DEADLINE: Duration = Duration::from_secs(10);
/// How long all buffers may take to fill, and how many checks in a row must find no progress.
const SETTLE_DEADLINE: Duration = Duration::from_secs(20);
const SETTLED_LOOKS: u32 = 10;
/// The interval of checks.
const LOOK: Duration = Duration::from_millis(50);

/// The client of the busy connection, and the one beside connections that never read.
const BUSY: How = How("client=tcp mode=poll inflight=128");
const OTHERS: How = How("client=tcp mode=poll inflight=16");

/// Measures a row of a connection alone or beside idle ones. `other`: the other one's, once the first has measured both.
pub(super) async fn idle(
    stage: &Stage<'_>,
    row: &'static str,
    other: &mut Option<(&'static str, anyhow::Result<Sample>)>,
) -> anyhow::Result<Sample> {
    match other.take() {
        Some((known, measured)) if known == row => return measured,
        _ => {}
    }
    let [alone, beside] = IDLE;
    if row == alone {
        let (first, second) = apart(both(stage, true).await);
        *other = Some((beside, second));
        first
    } else {
        let (first, second) = apart(both(stage, false).await);
        *other = Some((alone, first));
        second
    }
}

fn apart(both: anyhow::Result<[Sample; 2]>) -> (anyhow::Result<Sample>, anyhow::Result<Sample>) {
    match both {
        Ok([first, second]) => (Ok(first), Ok(second)),
        Err(error) => (Err(anyhow!("{error:#}")), Err(error)),
    }
}

/// Alone and beside idle connections; `alone_first` is the order.
async fn both(stage: &Stage<'_>, alone_first: bool) -> anyhow::Result<[Sample; 2]> {
    let (connections, fewer) = connections(IDLE_CONNECTIONS);
    // All of them have the same source.
    let most = connections + 16;
    let more = format!("--connections {most} --connections-per-source {most}");
    let instance = stage.twinpath("adaptive", &more).await?;
    let result = idle_of(stage, &instance, alone_first, connections).await;
    instance.stop(&stage.session.launcher).await?;
    let mut samples = result?;
    samples[1].notes.extend(fewer);
    Ok(samples)
}

async fn idle_of(
    stage: &Stage<'_>,
    instance: &Instance,
    alone_first: bool,
    connections: usize,
) -> anyhow::Result<[Sample; 2]> {
    let alone = async || stage.ask(&Target::twinpath(instance), BUSY, None).await;
    let beside = async || {
        let before = Memory::of(instance).await?;
        let holder = hold(stage.session, instance, peers::twinpath(), connections, false).await?;
        let grown = Memory::of(instance).await?.since(&before);
        let result = alone().await;
        let kept = open(instance).await;
        stage.session.launcher.stop(holder).await?;
        let mut sample = result?;
        let kept = kept?;
        ensure!(kept >= connections as u64, "only {kept} of {connections} connections were still open");
        sample.values.extend(grown.per_connection(kept));
        anyhow::Ok(sample)
    };
    if alone_first {
        Ok([alone().await?, beside().await?])
    } else {
        // Memory that the first connection ever allocates does not count for the idle ones.
        alone().await?;
        let beside = beside().await?;
        Ok([alone().await?, beside])
    }
}

/// Measures beside connections that send and never read.
pub(super) async fn never_reads(stage: &Stage<'_>) -> anyhow::Result<Sample> {
    let more = format!("--connection-bytes {CONNECTION_BYTES} --queued-bytes {QUEUED_BYTES}");
    let instance = stage.twinpath("adaptive", &more).await?;
    let result = never_reads_of(stage, &instance).await;
    instance.stop(&stage.session.launcher).await?;
    result
}

async fn never_reads_of(stage: &Stage<'_>, instance: &Instance) -> anyhow::Result<Sample> {
    let ask = async || stage.ask(&Target::twinpath(instance), OTHERS, None).await;
    let alone = ask().await?;
    let before = Memory::of(instance).await?;
    let holder = hold(stage.session, instance, peers::twinpath(), NEVER_READ, true).await?;
    let settled = settle(instance).await;
    let result = ask().await;
    let after = Memory::of(instance).await;
    let kept = open(instance).await;
    stage.session.launcher.stop(holder).await?;
    settled?;
    let (mut sample, grown, kept) = (result?, after?.since(&before), kept?);
    ensure!(kept >= NEVER_READ as u64, "only {kept} of {NEVER_READ} connections were still open");
    // The limits for a connection's replies and its requests.
    let limit = (2 * CONNECTION_BYTES * NEVER_READ as u64).min(QUEUED_BYTES) as f64;
    let held = grown.heap.max(grown.queued) as f64;
    let p99 = |sample: &Sample| sample.values.get("p99_us").copied().unwrap_or(f64::NAN);
    let (p99_alone, p99_beside) = (p99(&alone), p99(&sample));
    sample.values.extend([
        ("connections", NEVER_READ as f64),
        ("memory_bytes", held),
        ("memory_limit_bytes", limit),
        ("memory_share", held / limit),
        ("private_bytes", grown.private as f64),
        ("p99_alone_us", p99_alone),
        ("p99_ratio", p99_beside / p99_alone),
    ]);
    Ok(sample)
}

/// Opens connections from the client's side; the server has accepted all when this returns.
pub(crate) async fn hold(
    session: &Session,
    instance: &Instance,
    target: SocketAddr,
    connections: usize,
    never_read: bool,
) -> anyhow::Result<Server> {
    let before = accepted(instance).await?;
    let args = peers::hold(target, connections, never_read);
    let holder = session.launcher.server(Side::Client, &args).await?;
    let deadline = Instant::now() + ACCEPT_DEADLINE;
    loop {
        let taken = accepted(instance).await?.saturating_sub(before);
        if taken >= connections as u64 {
            return Ok(holder);
        }
        ensure!(
            Instant::now() < deadline,
            "only {taken} of {connections} connections were accepted within {} s",
            ACCEPT_DEADLINE.as_secs()
        );
        tokio::time::sleep(LOOK).await;
    }
}

/// Waits until the server neither receives nor sends any more: all buffers between it and the connections that never
/// read are full.
async fn settle(instance: &Instance) -> anyhow::Result<()> {
    let moved = async || {
        let report = instance.report().await?;
        let moved =
            report.services.iter().map(|service| service.tcp.stream_bytes_in + service.tcp.stream_bytes_out);
        anyhow::Ok(moved.sum::<u64>())
    };
    let (mut still, mut last) = (0, moved().await?);
    let deadline = Instant::now() + SETTLE_DEADLINE;
    while still < SETTLED_LOOKS {
        ensure!(
            Instant::now() < deadline,
            "bytes to those that never read still move after {} s",
            SETTLE_DEADLINE.as_secs()
        );
        tokio::time::sleep(LOOK).await;
        let now = moved().await?;
        still = if now == last { still + 1 } else { 0 };
        last = now;
    }
    Ok(())
}

/// The number of open TCP connections.
pub(crate) async fn open(instance: &Instance) -> anyhow::Result<u64> {
    Ok(instance.report().await?.services.iter().map(|service| service.tcp.connections).sum())
}

/// TCP connections accepted so far. Unlike the open ones, this number does not decrease when a client ends.
async fn accepted(instance: &Instance) -> anyhow::Result<u64> {
    Ok(instance.report().await?.services.iter().map(|service| service.tcp.accepted).sum())
}

/// The number of idle connections that both processes may have, and a note if these are fewer than wanted.
pub(crate) fn connections(wanted: usize) -> (usize, Option<String>) {
    let allowed = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
    let most = usize::try_from(allowed.saturating_sub(OTHER_DESCRIPTORS)).unwrap_or(usize::MAX);
    if most >= wanted {
        return (wanted, None);
    }
    let note =
        format!("{most} idle connections instead of {wanted}: a process may have {allowed} descriptors here");
    (most, Some(note))
}

/// A server's memory for its connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    /// Heap of its workers, as counted by its allocator.
    heap: u64,
    /// The part of it with incomplete calls and replies not taken, as counted by the server.
    queued: u64,
    /// Private pages of the process, including swapped ones, but without the kernel's memory.
    private: u64,
}

impl Memory {
    pub(crate) async fn of(instance: &Instance) -> anyhow::Result<Self> {
        let report = instance.report().await?;
        Ok(Self {
            heap: report.workers.iter().map(|worker| worker.counts.heap_bytes).sum(),
            queued: report.services.iter().map(|service| service.tcp.queued_bytes).sum(),
            private: private_bytes(instance.pid())?,
        })
    }

    /// Of an idle one, where these are all that there is.
    pub(crate) fn per_connection(&self, connections: u64) -> [(&'static str, f64); 3] {
        let each = |bytes: u64| bytes as f64 / connections as f64;
        [
            ("connections", connections as f64),
            ("bytes_per_connection", each(self.heap.max(self.private))),
            ("heap_bytes_per_connection", each(self.heap)),
        ]
    }

    pub(crate) fn since(&self, before: &Self) -> Self {
        Self {
            heap: self.heap.saturating_sub(before.heap),
            queued: self.queued.saturating_sub(before.queued),
            private: self.private.saturating_sub(before.private),
        }
    }
}

fn private_bytes(pid: u32) -> anyhow::Result<u64> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    private_of(&text).with_context(|| format!("no Private_Dirty in {path}"))
}

fn private_of(text: &str) -> Option<u64> {
    let kib = |name: &str| -> Option<u64> {
        text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
    };
    Some((kib("Private_Dirty:")? + kib("SwapPss:").unwrap_or(0)) << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_pages_are_counted_in_bytes() {
        let text = "Rss:  1784 kB\nPrivate_Clean:  0 kB\nPrivate_Dirty:      92 kB\nSwapPss:  8 kB\n";
        assert_eq!(private_of(text), Some(100 << 10));
        assert_eq!(private_of("Rss: 1 kB\n"), None);
        assert!(private_bytes(std::process::id()).unwrap() > 4096);
    }
}
