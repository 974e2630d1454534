//! `twinpath run`: starts an unmodified program with the library that gives its UDP sockets a fast path.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail};
use twinpath_lending::Access;
use twinpath_rules::{EXPLAIN_VARIABLE, OWNER_VARIABLE, RULES_VARIABLE, Rule, Rules};
use twinpath_worker::idle::Mode;

use crate::{elf, preload, starter};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Rules: which UDP sockets of which programs have a fast path (twinpath-run(1) says how they are written). Without them: every
    /// one that a program binds to a port that it names itself.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["on", "wait", "lease"])]
    rules: Option<PathBuf>,
    /// Without rules: the interface of the fast path. Otherwise it is the one with the address that a socket is bound to, or the only
    /// one beside the loopback.
    #[arg(long, value_name = "INTERFACE")]
    on: Option<String>,
    /// Without rules: how calls wait: adaptive, poll or interrupt.
    #[arg(long, value_name = "MODE")]
    wait: Option<Mode>,
    /// Without rules: when a socket gets its rings: earned, as soon as it has received enough, or at-bind, which makes bind wait.
    #[arg(long, value_name = "earned|at-bind", value_parser = ["earned", "at-bind"])]
    lease: Option<String>,
    /// Who gives sockets their rings: the owner (`twinpath sockets`) that listens at this path, or none: nobody. Without it: an owner
    /// that is started for the program, if you have the rights for that, or else the owner of the interface at its usual path.
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
    let library = preload::library()?;
    let [program, arguments @ ..] = args.command.as_slice() else { bail!("which program is to be run?") };
    let mut command = Command::new(program);
    command.args(arguments).env(RULES_VARIABLE, rules.to_line());
    let access = match &args.owner {
        Some(Access::Owner(path)) => Access::Owner(std::path::absolute(path)?),
        Some(access) => access.clone(),
        None => starter::started_for_this_process(),
    };
    command.env(OWNER_VARIABLE, access.to_string());
    if let Some(to) = &args.explain {
        let to = if to == "-" { PathBuf::from(to) } else { std::path::absolute(to)? };
        command.env(EXPLAIN_VARIABLE, to);
        if let Some(why) = found(program).as_deref().and_then(left_alone) {
            eprintln!("twinpath run: {}: everything stays with the kernel: {why}", program.display());
        }
    }
    let mut preload = library.into_os_string();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    let error = command.env("LD_PRELOAD", preload).exec();
    Err(error).with_context(|| format!("cannot run {}", program.display()))
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

/// The file of a program, as the shell finds it.
fn found(program: &OsString) -> Option<PathBuf> {
    if program.to_string_lossy().contains('/') {
        return Some(PathBuf::from(program));
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Why a library cannot be loaded into a program, or is not; `None` if it is, as far as its file says.
fn left_alone(file: &Path) -> Option<String> {
    let mode = file.metadata().ok()?.permissions().mode();
    if mode & 0o6000 != 0 {
        return Some(format!("{} is run with the rights of its owner or group", file.display()));
    }
    let left_alone = elf::left_alone(&File::open(file).ok()?)?;
    Some(format!("{} {left_alone}", file.display()))
}
