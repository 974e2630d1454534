//! Runs the twin.

use std::ops::Range;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Parser;
use twinpath_test_twin::generate::{kinds, script};
use twinpath_test_twin::soak::run;
use twinpath_test_twin::twin::{Script, Twin};
use twinpath_worker::idle::Mode;

/// Drives a plain kernel socket and a leased one through the same sequences, and says where a program sees a difference.
#[derive(Parser)]
struct Arguments {
    /// The seeds, as `FROM..TO`.
    #[arg(long, value_parser = range)]
    seeds: Option<Range<u64>>,
    /// The number of seeds, from the first one on.
    #[arg(long)]
    count: Option<u64>,
    /// As many seeds as fit into this number of seconds.
    #[arg(long)]
    seconds: Option<u64>,
    /// So many pairs of links, each with an owner of its own, on which seeds are run at the same time.
    #[arg(long, default_value_t = 1)]
    workers: usize,
    /// One seed, with every step and answer.
    #[arg(long)]
    seed: Option<u64>,
    /// Only moves of these kinds.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// The kinds of moves, and how many of 1,000 moves are of each.
    #[arg(long)]
    list: bool,
    /// A script to run instead, of a file.
    #[arg(long)]
    script: Option<PathBuf>,
    /// How calls wait in that script.
    #[arg(long, default_value = "poll")]
    mode: Mode,
    /// Takes known differences for failures whose names have one of these texts: `"point 4",FIONREAD`, or `open` for all that are not
    /// mended.
    #[arg(long, value_delimiter = ',')]
    strike: Vec<String>,
    /// Shortens the script of a seed that fails.
    #[arg(long)]
    shorten: bool,
    /// The library that is tested, if it is not beside this program.
    #[arg(long)]
    library: Option<PathBuf>,
}

fn range(text: &str) -> Result<Range<u64>, String> {
    let bounds = text.split_once("..").and_then(|(from, to)| Some(from.parse().ok()?..to.parse().ok()?));
    bounds.ok_or_else(|| "expected FROM..TO".to_owned())
}

fn library() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    Ok(own.parent().context("a folder")?.join("libtwinpath_preloader.so"))
}

fn read(path: &PathBuf, mode: Mode) -> Result<Script> {
    let text = std::fs::read_to_string(path)?;
    let steps = text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect();
    Ok(Script { mode, steps })
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    if arguments.list {
        kinds().for_each(|(name, share)| println!("{name:20}{share:5}"));
        return Ok(ExitCode::SUCCESS);
    }
    let library = arguments.library.clone().map_or_else(library, Ok)?;
    let make = || {
        let mut twin = Twin::new(&library)?;
        twin.struck.clone_from(&arguments.strike);
        anyhow::Ok(twin)
    };
    let one = match (&arguments.script, arguments.seed) {
        (Some(path), _) => Some(read(path, arguments.mode)?),
        (None, Some(seed)) => Some(script(seed, &arguments.only)),
        _ => None,
    };
    if let Some(script) = one {
        let mut twin = make()?;
        let outcome = twin.run(&script, !arguments.shorten)?;
        if let (true, Some(_)) = (arguments.shorten, &outcome.difference) {
            let short = twin.shorten(&script)?;
            println!("mode {}", short.mode);
            short.steps.iter().for_each(|step| println!("{step}"));
            println!("{:#?}", twin.run(&short, false)?);
        } else {
            println!("{outcome:#?}");
        }
        return Ok(ExitCode::from(u8::from(outcome.difference.is_some())));
    }
    let seeds = arguments.seeds.clone().unwrap_or(0..arguments.count.unwrap_or(u64::MAX));
    let until = arguments.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut twins = (0..arguments.workers.max(1)).map(|_| make()).collect::<Result<Vec<_>>>()?;
    let totals = run(&mut twins, seeds, until, &arguments.only)?;
    println!("{totals}");
    Ok(ExitCode::from(u8::from(totals.failed > 0 || !totals.left.is_empty())))
}
