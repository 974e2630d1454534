//! Rows of sockets whose rings the owner of the interface gives them (`twinpath sockets`).

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use twinpath_sys::child;

use super::measure::Bench;
use crate::lab::instance::Instance;
use crate::lab::model::Sample;
use crate::lab::peers::{self, PLAIN_PORT};
use crate::lab::process::{Server, Side, words};
use crate::lab::topology::SERVER;

/// Share of a core.
const CPU: &str = "cpu";
/// The port of memcached in the row `run-idle`.
const MEMCACHED_PORT: u16 = 11_211;

/// How long a program may take until it has a lease, and after that until it has nothing to do any more.
const START_MAX: Duration = Duration::from_secs(20);
const SETTLING: Duration = Duration::from_secs(1);
/// Time in which an idle program is watched: so long that a timer of a second counts.
const IDLE: Duration = Duration::from_secs(5);

/// The owner of the server's interface.
struct Owner {
    instance: Instance,
    /// Where programs connect.
    listen: PathBuf,
}

impl Bench<'_> {
    async fn owner(&self) -> anyhow::Result<Owner> {
        let folder = self.session.run_dir.path();
        // Every user may enter.
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755))?;
        let (listen, socket) = (folder.join("programs"), folder.join("owner.sock"));
        let line = format!(
            "sockets --on {} --listen {} --socket {} --quiet",
            SERVER.interface,
            listen.display(),
            socket.display()
        );
        let instance = Instance::start_at(&self.session.launcher, Side::Both, &words(&line)).await?;
        Ok(Owner { instance, listen })
    }

    /// Round trips to a socket with a ring from the owner.
    pub(super) async fn owned(&self) -> anyhow::Result<Sample> {
        let owner = self.owner().await?;
        let args = echo(Some(&owner.listen));
        let measured = self.peer(&args, true).await;
        owner.instance.stop(&self.session.launcher).await?;
        measured
    }

    /// Round trips to a socket with a ring of its own.
    pub(super) async fn own(&self) -> anyhow::Result<Sample> {
        self.peer(&echo(None), true).await
    }

    /// The CPU time of a program that has nothing to do, and of the owner.
    pub(super) async fn run_idle(&self) -> anyhow::Result<Sample> {
        let owner = self.owner().await?;
        let line = format!(
            "plain program memcached --listen {} --run adaptive --owner {}",
            peers::server(MEMCACHED_PORT),
            owner.listen.display()
        );
        let launcher = &self.session.launcher;
        let running = launcher.server(Side::Server, &words(&line)).await;
        let used = match &running {
            Ok(running) => idle_share(&owner.instance, program_of(running)).await,
            Err(_) => Ok([0.0; 2]),
        };
        let ended = match running {
            Ok(running) => launcher.stop(running).await,
            Err(error) => Err(error),
        };
        owner.instance.stop(launcher).await?;
        ended?;
        let [program, owner] = used?;
        let values = BTreeMap::from([(CPU, program + owner), ("cpu_program", program), ("cpu_owner", owner)]);
        Ok(Sample { values, ..Sample::default() })
    }
}

/// An echo server that sends by the kernel.
fn echo(owner: Option<&Path>) -> Vec<String> {
    let by = owner.map_or_else(String::new, |owner| format!(" --owner {}", owner.display()));
    let listen = peers::server(PLAIN_PORT);
    words(&format!("plain socket-echo --listen {listen} --on {} --mode poll{by}", SERVER.interface))
}

/// Shares of a core that the program and the owner use.
async fn idle_share(owner: &Instance, program: anyhow::Result<u32>) -> anyhow::Result<[f64; 2]> {
    let program = program?;
    let begun = Instant::now();
    loop {
        let programs = owner.report().await?.programs;
        if programs.iter().any(|program| !program.sockets.is_empty()) {
            break;
        }
        if begun.elapsed() > START_MAX {
            bail!("no socket of memcached has a lease after {} s", START_MAX.as_secs());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    tokio::time::sleep(SETTLING).await;
    let used = || anyhow::Ok([child::cpu_time(program)?, child::cpu_time(owner.pid())?]);
    let (before, begun) = (used()?, Instant::now());
    tokio::time::sleep(IDLE).await;
    let (after, seconds) = (used()?, begun.elapsed().as_secs_f64());
    let share = |at: usize| after[at].saturating_sub(before[at]).as_secs_f64() / seconds;
    Ok([share(0), share(1)])
}

/// The process of the program that `plain program` has started.
fn program_of(running: &Server) -> anyhow::Result<u32> {
    let pid = running.ready["program_pid"]
        .as_u64()
        .context("plain program did not say which process it has started")?;
    Ok(u32::try_from(pid)?)
}
