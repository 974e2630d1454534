//! The process that starts owners for the program of `twinpath run`: this program again, separated from the
//! program that it serves.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;

use anyhow::Context as _;
use twinpath_attach::path::privileges::Capabilities;
use twinpath_config::Sandbox;
use twinpath_leases::lending::{Access, Started};
use twinpath_leases::rules::OWNER_VARIABLE;
use twinpath_owner::starter::{self, Family};
use twinpath_owner::{self as owner, OwnerPlan, PROGRAMS_MAX, Passed, ProgramLimits, SOCKETS_MAX};
use twinpath_sys::child;

/// Its own file, by the kernel's link.
const OWN_FILE: &str = "/proc/self/exe";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The process of the program.
    #[arg(long)]
    process: u32,
    /// The interface of the owner that this process is to be; without it, it starts these.
    #[arg(long)]
    on: Option<String>,
}

/// How the program that this process becomes gets rings: from an owner started for it, if possible.
pub(crate) fn started_for_this_process() -> Access {
    let held = Capabilities::held();
    if !(held.bpf && held.net_admin && held.net_raw) {
        return Access::Usual;
    }
    start().map_or(Access::Usual, Access::Started)
}

fn start() -> io::Result<Started> {
    let mut random = [0; 24];
    getrandom(&mut random)?;
    let (name, token) = random.split_at(8);
    let name: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
    let token = token.try_into().map_err(io::Error::other)?;
    let started = Started { name: format!("twinpath-run-{name}"), token };
    let listener = starter::listening(&started)?;
    let mut command = Command::new(OWN_FILE);
    command.args(["starter", "--process", &std::process::id().to_string()]);
    become_apart(&mut command, listener, &started.to_string());
    child::detach(&mut command);
    // The spawned process ends immediately, and leaves the starter running.
    command.spawn()?.wait()?;
    Ok(started)
}

/// Gives it nothing of the program except its input.
fn become_apart(command: &mut Command, input: OwnedFd, started: &str) {
    command.env_clear().env(OWNER_VARIABLE, started).current_dir("/");
    command.stdin(Stdio::from(input)).stdout(Stdio::null()).stderr(Stdio::null());
}

fn getrandom(into: &mut [u8]) -> io::Result<()> {
    use std::io::Read as _;
    std::fs::File::open("/dev/urandom")?.read_exact(into)
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let value = std::env::var(OWNER_VARIABLE).context("it is started by `twinpath run`")?;
    let started: Started = value.parse().ok().context("it is started by `twinpath run`")?;
    let input = io::stdin().as_fd().try_clone_to_owned()?;
    let Some(interface) = &args.on else {
        let family = Family { first: args.process, variable: (OWNER_VARIABLE, &value) };
        let start = |interface: &str, connections: OwnedFd| {
            let mut command = Command::new(OWN_FILE);
            command.args(["starter", "--process", &args.process.to_string(), "--on", interface]);
            become_apart(&mut command, connections, &value);
            command.spawn()
        };
        starter::run(&input, &family, start)?;
        return Ok(ExitCode::SUCCESS);
    };
    let all = ProgramLimits {
        programs: PROGRAMS_MAX,
        programs_per_user: PROGRAMS_MAX,
        sockets_per_program: SOCKETS_MAX,
        sockets_per_user: PROGRAMS_MAX * SOCKETS_MAX,
    };
    owner::run(
        OwnerPlan {
            interface: interface.clone(),
            listen: std::path::PathBuf::new(),
            passed: Some(Passed { from: Arc::new(input), token: started.token }),
            rules: None,
            limits: all,
            sandbox: Sandbox::On,
            socket: None,
            metrics: None,
            take_over: None,
        },
        |_| {},
    )?;
    Ok(ExitCode::SUCCESS)
}
