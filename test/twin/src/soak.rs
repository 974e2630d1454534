//! Many seeds after each other, and what came of them.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::compare::Difference;
use crate::generate::script;
use crate::twin::{Outcome, Script, Twin};

/// Maximum number of seeds that end for reasons unrelated to the comparison. After each, everything is made anew.
const UNFINISHED_MAX: u64 = 8;

/// How often a script that fails is run again.
const AGAIN: u32 = 2;

/// An owner gives up what it holds for a program within this time after the program's end.
const GIVEN_UP: Duration = Duration::from_secs(10);

/// What came of them.
#[derive(Debug, Default)]
pub struct Totals {
    /// Seeds.
    pub seeds: u64,
    /// Steps of their scripts.
    pub steps: usize,
    /// Datagrams of the leased side that came by the ring.
    pub by_ring: u64,
    /// And by the kernel.
    pub by_kernel: u64,
    /// Calls that have returned datagrams of different senders, as these came in another order.
    pub across_senders: u64,
    /// Seeds with a difference that is not known, when they were run beside others.
    pub differed: u64,
    /// Those whose difference came again when they were run alone.
    pub failed: u64,
    /// Those whose difference did not; without those that differed only in what is measured.
    pub once: u64,
    /// Seeds whose scripts could not be run to their end, for a reason that has nothing to do with what is compared.
    pub unfinished: u64,
    /// These differences by their kind.
    pub by_kind: BTreeMap<String, u64>,
    /// How often each known difference was found.
    pub known: BTreeMap<&'static str, u64>,
    /// Descriptors that the owners still hold for programs which have ended, by what they are: sockets, maps, programs
    /// and links of BPF, files.
    pub left: BTreeMap<String, usize>,
    /// How long it took.
    pub took: Duration,
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, count) in &self.known {
            writeln!(f, "{count:7} times {name}")?;
        }
        for (kind, count) in &self.by_kind {
            writeln!(f, "{count:7} seeds with a difference in {kind}")?;
        }
        for (kind, count) in &self.left {
            writeln!(f, "{count:7} descriptors are left after the last program's end: {kind}")?;
        }
        write!(
            f,
            "{} seeds, {} steps in {} s; {} datagrams by the ring, {} by the kernel, {} calls with another order across senders; {} seeds with a difference: of {} it came again when they were run alone, of {} not, of the others a measure was bad once; {} not run to their end",
            self.seeds,
            self.steps,
            self.took.as_secs(),
            self.by_ring,
            self.by_kernel,
            self.across_senders,
            self.differed,
            self.failed,
            self.once,
            self.unfinished
        )
    }
}

/// The descriptors of this process by what they are. The owners run in it, so these are what they hold.
fn descriptors() -> Result<BTreeMap<String, usize>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir("/proc/self/fd").context("/proc/self/fd")? {
        // The one that reads the folder may be gone, as others that are closed meanwhile.
        let Ok(target) = fs::read_link(entry?.path()) else { continue };
        let target = target.display().to_string();
        // "socket:[4711]", "anon_inode:bpf-map", "/some/file".
        let kind = target.split(":[").next().unwrap_or("").to_owned();
        let kind = if kind.starts_with('/') { "a file".to_owned() } else { kind };
        *found.entry(kind).or_default() += 1;
    }
    Ok(found)
}

/// What there is beyond `before`, once the owners have had the time to give it up. Each opens one socket when it hands something over for
/// the first time, and keeps that.
fn left(before: &BTreeMap<String, usize>, owners: usize) -> Result<BTreeMap<String, usize>> {
    let deadline = Instant::now() + GIVEN_UP;
    loop {
        let mut now = descriptors()?;
        for (kind, count) in &mut now {
            let kept = if kind == "socket" { owners } else { 0 };
            *count = count.saturating_sub(before.get(kind).copied().unwrap_or(0) + kept);
        }
        now.retain(|_, count| *count > 0);
        if now.is_empty() || Instant::now() >= deadline {
            return Ok(now);
        }
        thread::yield_now();
    }
}

/// A seed with a difference.
struct Found {
    seed: u64,
    script: Script,
    difference: Difference,
}

/// The seeds that are still to be run.
struct Work<'a> {
    next: AtomicU64,
    end: u64,
    until: Option<Instant>,
    only: &'a [String],
    unfinished: AtomicU64,
}

/// Runs the scripts of seeds, up to a point in time; as many at a time as there are twins. Those that fail are run again
/// afterwards, each alone. Says of each what the first difference is, and how to repeat it. `only`: with moves of these
/// kinds.
///
/// # Errors
/// What has nothing to do with what is compared, of more than [`UNFINISHED_MAX`] seeds.
pub fn run(twins: &mut [Twin], seeds: Range<u64>, until: Option<Instant>, only: &[String]) -> Result<Totals> {
    let began = Instant::now();
    let held = descriptors()?;
    let work = Work {
        next: AtomicU64::new(seeds.start),
        end: seeds.end,
        until,
        only,
        unfinished: AtomicU64::new(0),
    };
    let done = thread::scope(|scope| {
        let threads: Vec<_> = twins.iter_mut().map(|twin| scope.spawn(|| work.run(twin))).collect();
        threads.into_iter().map(|thread| thread.join().expect("it does not panic")).collect::<Vec<_>>()
    });
    let (mut totals, mut all) = (Totals::default(), Vec::new());
    for done in done {
        let (part, found) = done?;
        totals.add(part);
        all.extend(found);
    }
    totals.unfinished = work.unfinished.into_inner();
    totals.differed = all.len() as u64;
    all.sort_by_key(|found| found.seed);
    for found in &all {
        let twin = twins.first_mut().context("a twin")?;
        repeat(twin, found, only, &mut totals).with_context(|| format!("seed {}", found.seed))?;
    }
    // A twin that was made anew leaves its former owner behind.
    if totals.unfinished == 0 {
        totals.left = left(&held, twins.len())?;
    }
    totals.took = began.elapsed();
    Ok(totals)
}

impl Work<'_> {
    fn next(&self) -> Option<u64> {
        if self.until.is_some_and(|until| Instant::now() >= until) {
            return None;
        }
        Some(self.next.fetch_add(1, Ordering::Relaxed)).filter(|seed| *seed < self.end)
    }

    /// Runs seeds on one twin, as long as there are any.
    fn run(&self, twin: &mut Twin) -> Result<(Totals, Vec<Found>)> {
        let (mut totals, mut found) = (Totals::default(), Vec::new());
        while let Some(seed) = self.next() {
            let script = script(seed, self.only);
            let error = match twin.run(&script, false) {
                Ok(mut outcome) => {
                    let difference = outcome.difference.take();
                    found.extend(difference.map(|difference| Found { seed, script, difference }));
                    totals.count(outcome);
                    continue;
                }
                Err(error) => error.context(format!("seed {seed}")),
            };
            println!("{error:#}");
            if self.unfinished.fetch_add(1, Ordering::Relaxed) >= UNFINISHED_MAX {
                return Err(error);
            }
            twin.renew()?;
        }
        Ok((totals, found))
    }
}

impl Totals {
    fn count(&mut self, outcome: Outcome) {
        self.seeds += 1;
        self.steps += outcome.steps;
        self.by_ring += outcome.by_ring;
        self.by_kernel += outcome.by_kernel;
        self.across_senders += outcome.across_senders;
        for name in outcome.known {
            *self.known.entry(name).or_default() += 1;
        }
    }

    fn add(&mut self, other: Self) {
        self.seeds += other.seeds;
        self.steps += other.steps;
        self.by_ring += other.by_ring;
        self.by_kernel += other.by_kernel;
        self.across_senders += other.across_senders;
        for (name, count) in other.known {
            *self.known.entry(name).or_default() += count;
        }
    }
}

/// Runs the script of a seed that has failed again, alone, and says what came of it.
fn repeat(twin: &mut Twin, found: &Found, only: &[String], totals: &mut Totals) -> Result<()> {
    let Found { seed, script, difference } = found;
    let mut again = 0;
    for _ in 0..AGAIN {
        let other = twin.run(script, false)?.difference;
        again += u32::from(
            other.is_some_and(|other| (&other.kind, other.step) == (&difference.kind, difference.step)),
        );
    }
    // On a machine that others use, a measure may be bad once.
    if difference.is_measured() && again < AGAIN {
        return Ok(());
    }
    // A difference that cannot be repeated is printed, and does not fail: nobody could find its cause.
    totals.failed += u64::from(again > 0);
    totals.once += u64::from(again == 0);
    *totals.by_kind.entry(difference.kind.clone()).or_default() += 1;
    let step = script.steps.get(difference.step).map_or("the end", String::as_str);
    let only = if only.is_empty() { String::new() } else { format!(" --only {}", only.join(",")) };
    println!(
        "seed {seed} ({}), step {}, again {again} of {AGAIN}: {}: {step}\n    plain:  {}\n    leased: {}\n    \
         repeat: twinpath-twin --seed {seed}{only}",
        script.mode, difference.step, difference.kind, difference.plain, difference.leased
    );
    Ok(())
}
