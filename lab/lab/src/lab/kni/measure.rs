//! Measures one walk in one mode, and evaluates captures of another.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow};
use hdrhistogram::Histogram;
use twinpath_clients::measure::report::{RttUs, buckets};
use twinpath_sys::clock;

use super::modes::{Beside, Mode, Scene, Stage, ensure_full_load};
use super::tick::Near;
use super::{LAB, hops};
use crate::lab::model::Sample;
use crate::lab::process::{Finished, Server, Side, words};
use crate::lab::session::Session;
use crate::plain::nfs::{self, ListReport, NFS_PORT, Shape, WalkReport};
use crate::plain::tap::Passed;

/// Three calls per name of 20,000 files are more than 60,000 calls.
const SHAPE: Shape = Shape { files: super::CHECK_FILES as usize, directories: 300, seed: 20_150_605 };
/// Calls of a walk with captures. It is measured apart from the others, because captures slow it down.
const CAPTURED_CALLS: u64 = 8_000;
/// A walk takes two seconds; after a hundred times that it has failed.
const WALK_DEADLINE: Duration = Duration::from_secs(200);
/// Longer times count as this.
const TIME_MAX_NS: u64 = 10_000_000_000;

/// The value for the share of times near a multiple of a tick, and their number.
const TICK_SHARE: &str = "tick_share";
pub(super) const TICK_NEAR: &str = "tick_near";
pub(super) const TIMES: &str = "times";

/// Where times are taken: transit between both ends, and waiting times at each.
const PLACES: [&str; 5] = ["transit", "next-call", "next-call-at-server", "ack", "ack-at-server"];

/// The rows from captures in this mode, in the order of [`PLACES`].
pub(super) fn captured_rows(mode: Mode) -> impl Iterator<Item = &'static str> {
    let suffix = mode.row().strip_prefix("nfs-").unwrap_or_default();
    let named = move |place: &'static str| {
        let is = |id: &str| id.strip_prefix(place).and_then(|rest| rest.strip_prefix('-')) == Some(suffix);
        LAB.table.rows.iter().map(|row| row.id).find(|id| is(id))
    };
    PLACES.into_iter().filter_map(named)
}

/// All rows of a walk in this mode.
pub(super) fn rows(mode: Mode) -> impl Iterator<Item = &'static str> {
    walk_rows(mode).chain(mode.listing_row())
}

/// All rows except those of a guest.
pub(super) fn walk_rows(mode: Mode) -> impl Iterator<Item = &'static str> {
    captured_rows(mode).chain([mode.row()])
}

/// The NFS server, and everything that walks its tree.
pub(super) struct Walks<'a> {
    session: &'a Session,
    stage: Stage<'a>,
    server: Server,
    ganesha: u32,
    export: PathBuf,
}

impl<'a> Walks<'a> {
    /// Starts the server, and walks once so that the server has read its tree.
    pub(super) async fn start(session: &'a Session, stage: Stage<'a>) -> anyhow::Result<Self> {
        nfs::find_ganesha()?;
        let directory = session.run_dir.path().join("nfs");
        std::fs::create_dir(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
        let mut args = words("plain nfs-server --directory");
        args.push(directory.display().to_string());
        args.extend(shape(session));
        let side = Side::At(&session.launcher.topology().server, &session.cpus[..1]);
        let server = session.launcher.server(side, &args).await.context("the NFS server")?;
        let ganesha =
            server.ready["ganesha_pid"].as_u64().context("the NFS server did not say its process")?;
        let export = server.ready["export"].as_str().context("the NFS server did not say its export")?.into();
        let walks = Self { session, stage, server, ganesha: ganesha as u32, export };
        let scene = walks.stage.set(Mode::Plain).await?;
        let walked =
            Mode::ALL.into_iter().flat_map(walk_rows).any(|row| session.selection.rows.contains(row));
        let first = if walked {
            walks.walk(&scene, None).await.map(drop)
        } else {
            walks.list(&scene).await.map(drop)
        };
        first.context("the first walk")?;
        walks.stage.clear(scene).await?;
        Ok(walks)
    }

    pub(super) async fn stop(self) -> anyhow::Result<()> {
        self.session.launcher.stop(self.server).await
    }

    /// Measures a mode once. A failure is recorded as the reason; the round continues.
    pub(super) async fn measure(&self, mode: Mode, round: usize, captured: bool) {
        let session = self.session;
        let selected = |row: &&str| session.wants(row);
        if selected(&mode.row()) {
            session.step(mode.row(), round, self.whole(mode)).await;
        }
        if let Some(row) = mode.listing_row().filter(selected) {
            session.step(row, round, self.listing(mode)).await;
        }
        let rows: Vec<_> = captured_rows(mode).filter(selected).collect();
        if !captured || rows.iter().all(|row| session.record.borrow().is_hopeless(row)) {
            return;
        }
        match self.captured(mode).await {
            Ok(samples) => {
                let wanted = samples.into_iter().filter(|(row, _)| rows.contains(row));
                wanted.for_each(|(row, sample)| session.note(row, round, Ok(sample)));
            }
            Err(error) => session.fail(&rows, &error),
        }
    }

    /// Measures in a mode. Also says what was measured beside it, and has the path and the notes of the mode.
    async fn in_mode<T>(
        &self,
        mode: Mode,
        measure: impl AsyncFnOnce(&Scene<'_>) -> anyhow::Result<T>,
    ) -> anyhow::Result<(T, Beside, Sample)> {
        let scene = self.stage.set(mode).await?;
        let measured = measure(&scene).await;
        let (path, notes) = (scene.path.clone(), scene.notes.clone());
        // Also after a failure, whose reason comes first.
        let beside = self.stage.clear(scene).await;
        Ok((measured?, beside?, Sample { path, notes, ..Sample::default() }))
    }

    /// A walk of the whole tree.
    async fn whole(&self, mode: Mode) -> anyhow::Result<Sample> {
        let walk = async |scene: &Scene<'_>| {
            let before = twinpath_sys::child::cpu_time(self.ganesha)?;
            let report = self.walk(scene, None).await?;
            Ok((report, twinpath_sys::child::cpu_time(self.ganesha)?.saturating_sub(before)))
        };
        let ((report, server_cpu), beside, said) = self.in_mode(mode, walk).await?;
        let mut sample = sample_of(&report.call_us, report.histogram);
        sample.values.extend([
            ("wall_s", report.wall_s),
            ("calls", report.calls as f64),
            ("names", report.names as f64),
            ("pages", report.pages as f64),
            ("cpu_client", report.cpu_s / report.wall_s),
            ("cpu_server", server_cpu.as_secs_f64() / report.wall_s),
        ]);
        note_beside(&mut sample, &beside)?;
        (sample.path, sample.notes) = (said.path, said.notes);
        if mode == Mode::Plain {
            let [first, second] = self.session.cpus;
            sample.notes.push(format!(
                "ganesha and its client take turns on CPU {first}; twinpath and all load are on CPU {second}"
            ));
        }
        Ok(sample)
    }

    /// The original report's command over the whole tree, newly mounted by the kernel.
    async fn listing(&self, mode: Mode) -> anyhow::Result<Sample> {
        let (listed, beside, mut sample) =
            self.in_mode(mode, async |scene: &Scene<'_>| self.list(scene).await).await?;
        sample.values.extend([("wall_s", listed.wall_s), ("lines", listed.lines as f64)]);
        note_beside(&mut sample, &beside)?;
        Ok(sample)
    }

    async fn list(&self, scene: &Scene<'_>) -> anyhow::Result<ListReport> {
        let finished = self.walker(scene, "nfs-ls", &[]).await?;
        finished.json("plain nfs-ls")
    }

    /// A shorter walk with a tap at both ends of the link.
    async fn captured(&self, mode: Mode) -> anyhow::Result<Vec<(&'static str, Sample)>> {
        let tapped = async |scene: &Scene<'_>| self.tapped(scene).await;
        let ([client, server], ..) = self.in_mode(mode, tapped).await?;
        let (at_client, at_server) = (hops::gaps(&client), hops::gaps(&server));
        let mut transit = hops::transit(&client, &server, false);
        transit.extend(hops::transit(&server, &client, true));
        let times = [
            transit,
            at_client.next_call,
            at_server.next_call,
            at_client.acknowledged,
            at_server.acknowledged,
        ];
        let samples = captured_rows(mode).zip(times).map(|(row, times)| {
            Ok((
                row,
                times_sample(&times).with_context(|| format!("{row}: the captures hold no such frames"))?,
            ))
        });
        samples.collect()
    }

    async fn tapped(&self, scene: &Scene<'_>) -> anyhow::Result<[Vec<Passed>; 2]> {
        let launcher = &self.session.launcher;
        let ends = [(scene.namespace, scene.interface), (&launcher.topology().server, scene.peer)];
        let mut taps = Vec::new();
        for (namespace, interface) in ends {
            let file = self.session.run_dir.path().join(format!("{interface}.frames"));
            let mut args = words(&format!("plain tap --on {interface} --port {NFS_PORT} --write"));
            args.push(file.display().to_string());
            let side = Side::At(namespace, &self.session.cpus[1..]);
            taps.push((launcher.server(side, &args).await?, file));
        }
        let walked = self.walk(scene, Some(CAPTURED_CALLS)).await;
        let mut passed = Vec::new();
        for (tap, file) in taps {
            launcher.stop(tap).await?;
            passed.push(frames_of(&file)?);
        }
        walked?;
        <[_; 2]>::try_from(passed).map_err(|_| anyhow!("a way has two ends"))
    }

    async fn walk(&self, scene: &Scene<'_>, calls: Option<u64>) -> anyhow::Result<WalkReport> {
        let calls: Vec<_> = calls.into_iter().flat_map(|calls| words(&format!("--calls {calls}"))).collect();
        let finished = self.walker(scene, "nfs-walk", &calls).await?;
        finished.json("plain nfs-walk")
    }

    async fn walker(&self, scene: &Scene<'_>, how: &str, options: &[String]) -> anyhow::Result<Finished> {
        let mut args = words(&format!("plain {how} {} --export", scene.target));
        args.push(self.export.display().to_string());
        args.extend(shape(self.session));
        args.extend_from_slice(options);
        let side = Side::At(scene.namespace, &self.session.cpus[..1]);
        self.session.launcher.client(side, &args, WALK_DEADLINE, None).await
    }
}

/// The requested number of files, with the usual number per directory.
fn shape(session: &Session) -> Vec<String> {
    let Shape { seed, .. } = SHAPE;
    let files = session.files.unwrap_or(SHAPE.files);
    let directories = (files * SHAPE.directories / SHAPE.files).max(1);
    words(&format!("--files {files} --directories {directories} --seed {seed}"))
}

fn frames_of(file: &Path) -> anyhow::Result<Vec<Passed>> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let frames = text.lines().map(serde_json::from_str::<Passed>).collect::<Result<_, _>>();
    frames.with_context(|| format!("cannot read the frames in {}", file.display()))
}

fn note_beside(sample: &mut Sample, beside: &Beside) -> anyhow::Result<()> {
    if let Some(load) = &beside.load {
        ensure_full_load(load)?;
        sample.values.insert("load_per_s", load.requests_per_s);
        sample.values.extend(load.rtt_us.as_ref().map(|rtt| ("load_p99_us", rtt.p99)));
    }
    sample.values.extend(beside.fast_path_frames.map(|frames| ("fast_path_frames", frames as f64)));
    Ok(())
}

fn times_sample(times: &[u64]) -> anyhow::Result<Sample> {
    let mut histogram = Histogram::<u64>::new_with_bounds(1, TIME_MAX_NS, 3)?;
    times.iter().for_each(|time| histogram.saturating_record(*time));
    let summary = RttUs::of(&histogram).context("nothing was measured")?;
    Ok(sample_of(&summary, buckets(&histogram)))
}

fn sample_of(times: &RttUs, histogram: Vec<(u64, u64)>) -> Sample {
    let near = Near::of(&histogram, clock::tick().as_nanos() as u64);
    let values = BTreeMap::from([
        ("min_us", times.min),
        ("p50_us", times.p50),
        ("p90_us", times.p90),
        ("p99_us", times.p99),
        ("p99_9_us", times.p99_9),
        ("max_us", times.max),
        ("mean_us", times.mean),
        (TICK_SHARE, near.share()),
        (TICK_NEAR, near.near),
        (TIMES, near.all),
    ]);
    Sample { values, histogram, ..Sample::default() }
}
