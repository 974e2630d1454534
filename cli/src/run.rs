//! `twinpath run`: starts an unmodified program with the library that gives its UDP sockets a fast path.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail};
use twinpath_leases::lending::Access;
use twinpath_leases::rules::{
    ASAN_VARIABLE, EXPLAIN_VARIABLE, OWNER_VARIABLE, PRELOAD_VARIABLE, RULES_VARIABLE, Rule, Rules,
    asan_options, preload,
};
use twinpath_worker::idle::Mode;

use crate::elf::Why;
use crate::preload::library;
use crate::program::{self, LeftAlone};
use crate::starter;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// A file of rules: which UDP sockets of which programs have a fast path (format: twinpath-run(1)). Without it: every socket
    /// that a program binds to a port of its own choice.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["on", "wait", "lease"])]
    rules: Option<PathBuf>,
    /// Without rules: the interface of the fast path. Otherwise it is the interface with the address of a socket, or the only one
    /// beside the loopback.
    #[arg(long, value_name = "INTERFACE")]
    on: Option<String>,
    /// Without rules: how calls wait: adaptive, poll or interrupt.
    #[arg(long, value_name = "MODE")]
    wait: Option<Mode>,
    /// Without rules: when a socket gets its rings: earned (once it has received enough) or at-bind (bind waits for them).
    #[arg(long, value_name = "earned|at-bind", value_parser = ["earned", "at-bind"])]
    lease: Option<String>,
    /// The owner (`twinpath sockets`) of the rings, by the path at which it listens; none: no rings. Without it: an owner that is
    /// started for the program, if you have the rights for that, or else the owner of the interface at its usual path.
    #[arg(long, value_name = "PATH|none")]
    owner: Option<Access>,
    /// Print the path of each UDP socket, the reason, and how much it has received by each path; to standard error, or to a file.
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    explain: Option<String>,
    /// The program, and its arguments.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

pub(crate) fn run(args: Args) -> Result<ExitCode> {
    let rules = rules(&args)?;
    let library = library()?;
    let [name, arguments @ ..] = args.command.as_slice() else { bail!("which program is to be run?") };
    let mut command = Command::new(name);
    command.args(arguments);
    let left_alone = program::left_alone(name);
    if let Some(left_alone) = left_alone.as_ref().filter(|_| args.explain.is_some()) {
        eprintln!("twinpath run: {}: everything stays with the kernel: {left_alone}", name.display());
    }
    if !matches!(left_alone, Some(LeftAlone { why: Why::CannotLoad(_), .. })) {
        load(&mut command, &args, &rules, &library)?;
    }
    let error = command.exec();
    Err(error).with_context(|| format!("cannot run {}", name.display()))
}

/// Makes the program load the library, and passes the library its settings.
fn load(command: &mut Command, args: &Args, rules: &Rules, library: &Path) -> Result<()> {
    let access = match &args.owner {
        Some(Access::Owner(path)) => Access::Owner(std::path::absolute(path)?),
        Some(access) => access.clone(),
        None => starter::started_for_this_process(),
    };
    command.env(RULES_VARIABLE, rules.to_line()).env(OWNER_VARIABLE, access.to_string());
    if let Some(to) = &args.explain {
        let to = if to == "-" { PathBuf::from(to) } else { appendable(to)? };
        command.env(EXPLAIN_VARIABLE, to);
    }
    let (others, options) = (std::env::var_os(PRELOAD_VARIABLE), std::env::var_os(ASAN_VARIABLE));
    command.env(PRELOAD_VARIABLE, preload(library, others.as_deref()));
    command.env(ASAN_VARIABLE, asan_options(options.as_deref()));
    Ok(())
}

/// The path of a file to which lines can be appended.
fn appendable(to: &str) -> Result<PathBuf> {
    let to = std::path::absolute(to)?;
    let opened = OpenOptions::new().append(true).create(true).open(&to);
    opened.with_context(|| format!("cannot write --explain={}", to.display()))?;
    Ok(to)
}

fn rules(args: &Args) -> Result<Rules> {
    let Some(path) = &args.rules else {
        let rule = Rule {
            interface: args.on.clone(),
            mode: args.wait.unwrap_or_default(),
            at_bind: args.lease.as_deref() == Some("at-bind"),
            ..Rule::default()
        };
        rule.check_names().map_err(anyhow::Error::msg)?;
        return Ok(Rules { rules: vec![rule] });
    };
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Rules::parse(&text).with_context(|| path.display().to_string())
}
