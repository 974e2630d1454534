//! `twinpath top`: shows the activity of running instances per second, on a screen, or as text or JSON for other
//! programs.

mod follow;
mod rates;
mod screen;
mod sections;

use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::bail;

use self::follow::{Followed, Look};
use self::sections::sections;
use crate::show::grid::table;

/// Minimum interval: with a shorter one the polling would affect the result.
const INTERVAL_MIN_S: f64 = 0.1;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Text instead of a screen, one page per interval; the default if standard output is no terminal
    #[arg(short, long)]
    batch: bool,
    /// End after this number of pages
    #[arg(short = 'n', long, value_name = "N")]
    count: Option<u64>,
    /// End after one page
    #[arg(long, conflicts_with = "count")]
    once: bool,
    /// One JSON object per instance and interval, each on a line
    #[arg(long)]
    json: bool,
    /// The interval, seconds
    #[arg(short, long, value_name = "S", default_value_t = 1.0)]
    interval: f64,
    /// The command socket of one instance; without it, all running instances
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    if !(INTERVAL_MIN_S..=3_600.0).contains(&args.interval) {
        bail!("an interval of {} s: give {INTERVAL_MIN_S} to 3600", args.interval);
    }
    let interval = Duration::from_secs_f64(args.interval);
    let count = if args.once { Some(1) } else { args.count };
    let mut followed = Followed::new(args.socket.clone());
    if args.batch || args.json || count.is_some() || !std::io::stdout().is_terminal() {
        let first = followed.look()?;
        if first.instances.is_empty() {
            // Without a terminal no one sees an instance start later, so having none is an error, with the message of
            // `show`.
            crate::show::socket(args.socket)?;
            bail!("{}", first.notes.join("; "));
        }
        return pages(followed, interval, count, args.json);
    }
    screen::run(followed, interval)
}

/// Prints a page per interval to standard output.
fn pages(
    mut followed: Followed,
    interval: Duration,
    count: Option<u64>,
    json: bool,
) -> anyhow::Result<ExitCode> {
    // Never signalled: only its timeout is used.
    let (_keep, never) = std::sync::mpsc::channel::<()>();
    let mut next = Instant::now();
    for _ in 0..count.unwrap_or(u64::MAX) {
        next += interval;
        let _ = never.recv_timeout(next.saturating_duration_since(Instant::now()));
        let look = followed.look()?;
        let text = if json { as_json(&look)? } else { as_text(&look) };
        // A closed pipe (`| head`) is not an error.
        if writeln!(std::io::stdout(), "{text}").and_then(|()| std::io::stdout().flush()).is_err() {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn as_json(look: &Look) -> anyhow::Result<String> {
    let instances: Result<Vec<_>, _> = look.instances.iter().map(serde_json::to_string).collect();
    let notes = look.notes.iter().map(|note| serde_json::json!({ "note": note }).to_string());
    Ok(instances?.into_iter().chain(notes).collect::<Vec<_>>().join("\n"))
}

fn as_text(look: &Look) -> String {
    let sections = look.instances.iter().flat_map(sections).map(|section| {
        let mut text = section.title;
        if !section.rows.is_empty() {
            let mut table = table(&section.header, section.first_number);
            table.add_rows(section.rows);
            text.push_str(&format!("\n{table}"));
        }
        for note in section.notes {
            text.push_str(&format!("\n  {note}"));
        }
        text.push('\n');
        text
    });
    sections.chain(look.notes.iter().map(|note| format!("{note}\n"))).collect::<Vec<_>>().join("\n")
}
