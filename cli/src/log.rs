//! Output of a running instance: the log on standard error, at level `info` or as set by `RUST_LOG`; the
//! ready line, on standard output or a given descriptor; and a description for users on standard output.

mod lines;

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{IsTerminal as _, Write as _};

use anyhow::Context as _;
use clap::ValueEnum;
use serde_json::Value;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::prelude::*;

use lines::Lines;

/// How an instance speaks; the same for every command that runs one.
#[derive(clap::Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct LogArgs {
    /// The format of the log on standard error: text, or one JSON object per line
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
    /// Log only that it is ready, and errors
    #[arg(long, short)]
    quiet: bool,
    /// Write the line `ready` to this descriptor, a pipe or a file, instead of to standard output
    #[arg(long, value_name = "N")]
    ready_fd: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum LogFormat {
    Text,
    Json,
}

/// The destination of the ready line.
pub(crate) struct Voice {
    ready: Option<File>,
    /// Whether a description for users is printed on standard output as well.
    prose: bool,
}

/// Initialises the log; must be called once.
///
/// # Errors
/// The descriptor for the ready line is not open, or not writable.
pub(crate) fn start(args: &LogArgs) -> anyhow::Result<Voice> {
    let asked = std::env::var("RUST_LOG").ok().filter(|asked| !asked.is_empty());
    let least = if args.quiet { LevelFilter::WARN } else { LevelFilter::INFO };
    let (filter, fault) = match asked.as_deref().map(str::parse::<Targets>) {
        Some(Ok(filter)) => (filter, None),
        Some(Err(fault)) => (Targets::new().with_default(least), Some(fault)),
        None => (Targets::new().with_default(least), None),
    };
    let lines = tracing_subscriber::fmt::layer().with_writer(Lines::new(std::io::stderr()));
    let lines = match args.log_format {
        LogFormat::Text => lines.with_ansi(has_colours()).boxed(),
        LogFormat::Json => lines.json().boxed(),
    };
    tracing_subscriber::registry().with(lines).with(filter).init();
    if let Some(fault) = fault {
        tracing::warn!(
            "RUST_LOG is not understood ({fault}): write `debug`, or `twinpath_instance=debug,info`"
        );
    }
    let ready = args.ready_fd.map(open).transpose()?;
    Ok(Voice { ready, prose: !args.quiet && args.log_format == LogFormat::Text })
}

/// Whether standard error shows colours: a terminal without NO_COLOR (no-color.org).
fn has_colours() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// A descriptor that the parent process has opened.
fn open(number: u32) -> anyhow::Result<File> {
    let file = OpenOptions::new().write(true).open(format!("/proc/self/fd/{number}"));
    file.with_context(|| {
        format!("--ready-fd {number}: open a pipe or a file there, as in `twinpath serve ... --ready-fd 3 3>ready`")
    })
}

impl Voice {
    /// Reports that it is ready: `facts` in one line for programs, and `prose` for users. A closed output
    /// does not prevent serving.
    pub(crate) fn ready(mut self, facts: &[Value], prose: &str) {
        let mut text = String::new();
        for facts in facts {
            let _ = writeln!(text, "ready {facts}");
        }
        let mut out = std::io::stdout().lock();
        match &mut self.ready {
            Some(file) => {
                let _ = file.write_all(text.as_bytes()).and_then(|()| file.flush());
            }
            None => drop(out.write_all(text.as_bytes())),
        }
        if self.prose {
            let _ = out.write_all(prose.as_bytes());
        }
        let _ = out.flush();
    }
}
