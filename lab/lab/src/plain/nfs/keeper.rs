//! `plain nfs-tree`: makes a tree that it alone sees, and has twinpath serve it, as this process or as one that is killed
//! and started again.

use std::convert::Infallible;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::json;
use tokio::process::Child;
use twinpath_clients::measure::print;

use super::TreeArgs;
use super::server::create_hidden;
use super::tree::Tree;
use crate::foreign;
use crate::lab::programs::Programs;

/// It takes seconds where instructions are emulated.
const READY_DEADLINE: Duration = Duration::from_secs(35);

/// Serves until a signal comes.
pub(crate) fn keep(args: &TreeArgs) -> anyhow::Result<ExitCode> {
    create_hidden(&Tree::new(&args.shape)?, &args.directory.join("tree"), &[])?;
    match args.kill_every_ms {
        None => match become_server(args)? {},
        Some(every_ms) => {
            crate::plain::on_event_loop(kill_and_start(args, Duration::from_millis(every_ms)))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn become_server(args: &TreeArgs) -> anyhow::Result<Infallible> {
    let error = Command::new(Programs::found()?.product).args(&args.args).exec();
    Err(error).context("cannot start twinpath")
}

/// Once the server is ready, it is killed so often, and started again at once.
async fn kill_and_start(args: &TreeArgs, every: Duration) -> anyhow::Result<()> {
    let mut told = crate::plain::EndSignals::new()?;
    let mut server = started(args).await?;
    print(json!({ "ready": true, "pid": std::process::id() }))?;
    let mut kills = 0;
    loop {
        tokio::select! {
            () = told.come() => break,
            () = tokio::time::sleep(every) => {}
            ended = server.wait() => bail!("twinpath ended by itself: {}", ended?),
        }
        server.kill().await.context("cannot kill twinpath")?;
        server = started(args).await?;
        kills += 1;
    }
    foreign::stop(server).await?;
    Ok(print(json!({ "kills": kills }))?)
}

async fn started(args: &TreeArgs) -> anyhow::Result<Child> {
    let mut command = Command::new(Programs::found()?.product);
    command.args(&args.args);
    let log = args.directory.join("twinpath.log");
    let mut server = foreign::spawn(command, &log)?;
    let is_ready = |said: &str| said.lines().any(|line| line.starts_with("ready "));
    foreign::ready(&mut server, &log, READY_DEADLINE, is_ready).await.context("twinpath")?;
    Ok(server)
}
