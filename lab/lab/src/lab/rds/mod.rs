//! `lab rds`: Reliable Datagram Sockets between two programs, by a daemon on each host, against UDP's sockets of the same
//! programs. All parties sleep.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};

use super::instance::Instance;
use super::model::Sample;
use super::process::{Launcher, Server, Side, words};
use super::session::{Session, lab};
use super::topology::{CLIENT, SERVER};

const QUICK_PAIRS: usize = 5;
const QUICK_TIME: Duration = Duration::from_millis(400);
const CHECK_TIME: Duration = Duration::from_millis(1000);
/// Time for start-up and tear-down, beyond the measured time.
const SLACK: Duration = Duration::from_secs(20);
const PORT: u16 = 4000;

lab!("rds", "Reliable Datagram Sockets between two programs, against UDP's", run);

async fn run(session: &Session) -> anyhow::Result<usize> {
    let rounds = session.rounds(QUICK_PAIRS);
    let time = session.either(CHECK_TIME, QUICK_TIME);
    // A row: what it is by, and how long its messages are and how many are in flight.
    let measure = async |row: &'static str, _| {
        let (kind, what) = row.split_once('-').context("a row names its sockets")?;
        let [len, inflight] = match what {
            "rtt-64" => [64, 1],
            "rtt-8k" => [8192, 1],
            "rate-64" => [64, 64],
            "rate-8k" => [8192, 8],
            _ => bail!("no such row: {row}"),
        };
        let options = format!("--len {len} --inflight {inflight} --duration {:.3}", time.as_secs_f64());
        match kind {
            "udp" => between(session, &options, None, time).await,
            _ => by_daemons(session, &options, time).await,
        }
    };
    Ok(session.by_turns(&session.rows(), rounds, Duration::MAX, measure).await)
}

/// One daemon on each host, each on its program's CPU.
async fn by_daemons(session: &Session, options: &str, time: Duration) -> anyhow::Result<Sample> {
    let folder = session.run_dir.path();
    let places = ["client", "server"].map(|host| folder.join(format!("{host}.programs")));
    let launcher = &session.launcher;
    let line = |host: usize, interface: &str| {
        let socket = folder.join(format!("rds{host}.sock"));
        let [listen, socket] = [places[host].display(), socket.display()];
        words(&format!("rds --on {interface} --listen {listen} --socket {socket} --quiet"))
    };
    let client = Instance::start_at(launcher, Side::Client, &line(0, CLIENT.interface)).await?;
    let server = Instance::start_at(launcher, Side::Server, &line(1, SERVER.interface)).await;
    let measured = match &server {
        Ok(_) => between(session, options, Some(&places), time).await,
        Err(_) => Ok(Sample::default()),
    };
    client.stop(launcher).await?;
    server?.stop(launcher).await?;
    measured
}

async fn between(
    session: &Session,
    options: &str,
    programs: Option<&[PathBuf; 2]>,
    time: Duration,
) -> anyhow::Result<Sample> {
    let by =
        |host: usize| programs.map_or_else(String::new, |all| format!(" --programs {}", all[host].display()));
    let listen = format!("{}:{PORT}", SERVER.ipv4);
    let echo = words(&format!("plain message-echo --listen {listen}{}", by(1)));
    let ask = words(&format!("plain message-ask {listen} --local {}:0 {options}{}", CLIENT.ipv4, by(0)));
    let server = session.launcher.server(Side::Server, &echo).await?;
    let measured = session.launcher.client(Side::Client, &ask, 2 * time + SLACK, None).await;
    end(&session.launcher, server).await?;
    Ok(Sample { values: measured?.values("plain message-ask")?, ..Sample::default() })
}

/// The echo blocks in its call.
async fn end(launcher: &Launcher, server: Server) -> anyhow::Result<()> {
    launcher.kill(server).await
}
