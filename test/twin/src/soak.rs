//! Many seeds after each other, and what came of them.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::generate::script;
use crate::twin::Twin;

/// Maximum number of seeds that end for reasons unrelated to the comparison. After each, everything is made anew.
const UNFINISHED_MAX: u64 = 8;

/// How often a script that fails is run again.
const AGAIN: u32 = 2;

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
    /// Seeds with a difference that is not known.
    pub failed: u64,
    /// Seeds whose difference did not come again.
    pub once: u64,
    /// Seeds whose scripts could not be run to their end, for a reason that has nothing to do with what is compared.
    pub unfinished: u64,
    /// These differences by their kind.
    pub by_kind: BTreeMap<String, u64>,
    /// How often each known difference was found.
    pub known: BTreeMap<&'static str, u64>,
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
        write!(
            f,
            "{} seeds, {} steps in {} s; {} datagrams by the ring, {} by the kernel; {} seeds with a difference, {} with one that did not come again, {} not run to their end",
            self.seeds,
            self.steps,
            self.took.as_secs(),
            self.by_ring,
            self.by_kernel,
            self.failed,
            self.once,
            self.unfinished
        )
    }
}

/// Runs the scripts of seeds, up to a point in time. Says of each that fails what the first difference is, and how to repeat it. `only`:
/// with moves of these kinds.
///
/// # Errors
/// What has nothing to do with what is compared, of more than [`UNFINISHED_MAX`] seeds.
pub fn run(twin: &mut Twin, seeds: Range<u64>, until: Option<Instant>, only: &[String]) -> Result<Totals> {
    let began = Instant::now();
    let mut totals = Totals::default();
    for seed in seeds {
        if until.is_some_and(|until| Instant::now() >= until) {
            break;
        }
        let Err(error) = one(twin, seed, only, &mut totals) else { continue };
        totals.unfinished += 1;
        let error = error.context(format!("seed {seed}"));
        println!("{error:#}");
        if totals.unfinished > UNFINISHED_MAX {
            return Err(error);
        }
        twin.renew()?;
    }
    totals.took = began.elapsed();
    Ok(totals)
}

fn one(twin: &mut Twin, seed: u64, only: &[String], totals: &mut Totals) -> Result<()> {
    let script = script(seed, only);
    let outcome = twin.run(&script, false)?;
    totals.seeds += 1;
    totals.steps += outcome.steps;
    totals.by_ring += outcome.by_ring;
    totals.by_kernel += outcome.by_kernel;
    for name in outcome.known {
        *totals.known.entry(name).or_default() += 1;
    }
    let Some(found) = outcome.difference else { return Ok(()) };
    let mut again = 0;
    for _ in 0..AGAIN {
        let difference = twin.run(&script, false)?.difference;
        again +=
            u32::from(difference.is_some_and(|other| (&other.kind, other.step) == (&found.kind, found.step)));
    }
    // On a machine that others use, a measure may be bad once.
    if found.is_measured() && again < AGAIN {
        return Ok(());
    }
    // A difference that cannot be repeated is printed, and does not fail: nobody could find its cause.
    totals.failed += u64::from(again > 0);
    totals.once += u64::from(again == 0);
    *totals.by_kind.entry(found.kind.clone()).or_default() += 1;
    let step = script.steps.get(found.step).map_or("the end", String::as_str);
    let only = if only.is_empty() { String::new() } else { format!(" --only {}", only.join(",")) };
    println!(
        "seed {seed} ({}), step {}, again {again} of {AGAIN}: {}: {step}\n    plain:  {}\n    leased: {}\n    \
         repeat: twinpath-twin --seed {seed}{only}",
        script.mode, found.step, found.kind, found.plain, found.leased
    );
    Ok(())
}
