//! `twinpath run`: starts an unmodified program with the library that gives its UDP sockets a fast path.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail};
use twinpath_lending::Access;
use twinpath_rules::{
    ASAN_VARIABLE, EXPLAIN_VARIABLE, OWNER_VARIABLE, PRELOAD_VARIABLE, RULES_VARIABLE, Rule, Rules,
    asan_options, preload,
};
use twinpath_worker::idle::Mode;

use crate::elf::Why;
use crate::preload::library;
use crate::program::{self, LeftAlone};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Rules: which UDP sockets of which programs have a fast path (twinpath-run(1) says how they are written). Without them: every
    /// one that a program binds to a port that it names itself.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["on", "wait"])]
    rules: Option<PathBuf>,
    /// Without rules: the interface of the fast path. Otherwise it is the one with the address that a socket is bound to, or the only
    /// one beside the loopback.
    #[arg(long, value_name = "INTERFACE")]
    on: Option<String>,
    /// Without rules: how calls wait: adaptive, poll or interrupt.
    #[arg(long, value_name = "MODE")]
    wait: Option<Mode>,
    /// By whose rights: the owner (`twinpath sockets`) that listens at this path, or none: the program's own rights alone. Without it:
    /// the program's own, if it has them, or else the owner of the interface at its usual path.
    #[arg(long, value_name = "PATH|none")]
    owner: Option<Access>,
    /// Say which path each UDP socket has, why, and how much it has received by which; on standard error, or in a file.
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
    command.args(arguments).env(RULES_VARIABLE, rules.to_line());
    if let Some(access) = &args.owner {
        let access = match access {
            Access::Owner(path) => Access::Owner(std::path::absolute(path)?),
            access => access.clone(),
        };
        command.env(OWNER_VARIABLE, access.to_string());
    }
    if let Some(to) = &args.explain {
        let to = if to == "-" { PathBuf::from(to) } else { std::path::absolute(to)? };
        command.env(EXPLAIN_VARIABLE, to);
    }
    let left_alone = program::left_alone(name);
    if let Some(left_alone) = left_alone.as_ref().filter(|_| args.explain.is_some()) {
        eprintln!("twinpath run: {}: everything stays with the kernel: {left_alone}", name.display());
    }
    if !matches!(left_alone, Some(LeftAlone { why: Why::CannotLoad(_), .. })) {
        let (others, options) = (std::env::var_os(PRELOAD_VARIABLE), std::env::var_os(ASAN_VARIABLE));
        command.env(PRELOAD_VARIABLE, preload(&library, others.as_deref()));
        command.env(ASAN_VARIABLE, asan_options(options.as_deref()));
    }
    let error = command.exec();
    Err(error).with_context(|| format!("cannot run {}", name.display()))
}

fn rules(args: &Args) -> Result<Rules> {
    let Some(path) = &args.rules else {
        let rule =
            Rule { interface: args.on.clone(), mode: args.wait.unwrap_or_default(), ..Rule::default() };
        rule.check_names().map_err(anyhow::Error::msg)?;
        return Ok(Rules { rules: vec![rule] });
    };
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Rules::parse(&text).with_context(|| path.display().to_string())
}
