//! `lab tcp`: services with connections on the fast path against bare servers on kernel sockets, and beside them the same services
//! on the kernel's TCP. The client is the kernel's, the same for all, but for the row with both ends on the fast path.

mod beside;
mod loss;
mod measure;
pub(super) mod path;

use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use anyhow::{Context, ensure};
use rustix::net::sockopt::tcp_congestion;

use self::measure::Bench;
use crate::lab::peers;
use crate::lab::session::{Session, lab};

/// Pairs without `--check`, and the time beyond which no round of these begins.
const QUICK_PAIRS: usize = 5;
const QUICK_BUDGET: Duration = Duration::from_secs(120);
const CHECK_TIME: Duration = Duration::from_millis(800);
const QUICK_TIME: Duration = Duration::from_millis(300);

/// The congestion control of the kernel's connections. It is that of ours.
const CONGESTION: &str = "cubic";

/// Settings of the client's namespace. A new connection may take the ports of closed ones: there are many in a second.
const CLIENT_SETTINGS: [(&str, &str); 2] =
    [("/proc/sys/net/ipv4/ip_local_port_range", "1024 65535"), ("/proc/sys/net/ipv4/tcp_tw_reuse", "1")];

lab!("tcp", "TCP on the fast path: services against bare servers on kernel sockets", run);

async fn run(session: &Session) -> anyhow::Result<usize> {
    prepare(session)?;
    let rounds = session.rounds(QUICK_PAIRS);
    let rows = session.rows();
    session.progress.expect(rounds * rows.len());
    let measure = async |row: &'static str, round| {
        Bench::new(session, session.either(CHECK_TIME, QUICK_TIME), round).measure(row).await
    };
    Ok(session.by_turns(&rows, rounds, QUICK_BUDGET, measure).await)
}

/// Has all of the kernel's connections use [`CONGESTION`], and says what they have.
fn prepare(session: &Session) -> anyhow::Result<()> {
    let topology = session.launcher.topology();
    topology.congestion(CONGESTION)?;
    topology.client.run(|| {
        CLIENT_SETTINGS.iter().try_for_each(|(path, value)| {
            std::fs::write(path, value).with_context(|| format!("cannot write {path}"))
        })
    })??;
    let listener = topology.server.run(|| TcpListener::bind(peers::server(0)))??;
    let target = listener.local_addr()?;
    let client = topology.client.run(|| TcpStream::connect(target))??;
    let (server, _) = listener.accept()?;
    let [client, server] = [tcp_congestion(&client)?, tcp_congestion(&server)?];
    session
        .progress
        .line(&format!("TCP_CONGESTION of the kernel's connections: client {client}, server {server}"));
    ensure!(
        [&client, &server] == [CONGESTION; 2],
        "the kernel's connections are to have {CONGESTION}: the client has {client}, the server {server}"
    );
    Ok(())
}
