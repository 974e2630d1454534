//! DPDK's testpmd, as Debian builds it: passes every frame of one port to the other, without looking at it.

use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use tokio::io::AsyncWriteExt;

use super::{Running, programs};
use crate::foreign;

/// It starts within a second or two.
const DEADLINE: Duration = Duration::from_secs(20);
/// The version of the libraries that its drivers are, in the packages of DPDK 22.11.
const LIBRARIES: &str = "so.23";
/// MiB of its memory, without huge pages.
const MEMORY_MIB: &str = "256";

/// What joins it to an interface, and to another process by shared memory.
const AF_XDP: &str = "net_af_xdp";
const MEMIF: &str = "net_memif";
/// The socket of memif, in the directory of the switch.
pub(super) const MEMIF_SOCKET: &str = "memif.sock";
/// Until both ends of memif are connected.
const CONNECTING: Duration = Duration::from_secs(1);
/// Bursts of 32 frames that go round between two processes: as many as the rings of memif hold.
const BURSTS_ROUND: u32 = 16;

/// Frames are passed by a thread on `cpu`, which polls; another thread sleeps.
pub(super) async fn start(ports: &[String], directory: &Path, cpu: usize) -> anyhow::Result<Running> {
    let ports = ports.iter().map(|port| format!("iface={port}")).collect::<Vec<_>>();
    let mut testpmd = command(AF_XDP, &ports, directory, cpu)?;
    testpmd.args(["--forward-mode=io", "--auto-start"]);
    let log = directory.join("testpmd.out");
    let mut process = foreign::spawn(testpmd, &log)?;
    foreign::ready(&mut process, &log, DEADLINE, |said| said.contains("Press enter to exit")).await?;
    Ok(Running { processes: vec![process], what: what().await?, _programs: None })
}

/// Between two memif ports, whose other ends are in one process that connects to [`MEMIF_SOCKET`].
pub(super) async fn start_memif(directory: &Path, cpu: usize) -> anyhow::Result<Running> {
    let ports = memif("server", &directory.join(MEMIF_SOCKET));
    let mut testpmd = command(MEMIF, &ports, directory, cpu)?;
    testpmd.args(["--forward-mode=io", "--auto-start"]);
    let log = directory.join("testpmd.out");
    let mut process = foreign::spawn(testpmd, &log)?;
    // It waits for links, which come with the other process.
    foreign::ready(&mut process, &log, DEADLINE, |said| said.contains("Checking link statuses")).await?;
    Ok(Running { processes: vec![process], what: what().await?, _programs: None })
}

/// The other ends, in one process, which sends on what it receives. Returns the frames per second that come to it.
pub(super) async fn drive_memif(
    socket: &Path,
    directory: &Path,
    cpu: usize,
    duration: Duration,
) -> anyhow::Result<f64> {
    let mut testpmd = command(MEMIF, &memif("client", socket), directory, cpu)?;
    testpmd.arg("-i");
    let log = directory.join("testpmd-client.out");
    let mut process = foreign::spawn(testpmd, &log)?;
    let mut input = process.stdin.take().context("testpmd has no input")?;
    foreign::ready(&mut process, &log, DEADLINE, |said| said.contains("testpmd>")).await?;
    tokio::time::sleep(CONNECTING).await;
    let rates = |said: &str| -> Vec<f64> {
        let rate = |line: &str| line.trim().strip_prefix("Rx-pps:")?.split_whitespace().next()?.parse().ok();
        said.lines().filter_map(rate).collect()
    };
    input.write_all(format!("set fwd io\nstart tx_first {BURSTS_ROUND}\n").as_bytes()).await?;
    // It counts from one look to the next one.
    for (looks, pause) in [(1, CONNECTING / 4), (2, duration)] {
        tokio::time::sleep(pause).await;
        input.write_all(b"show port stats all\n").await?;
        foreign::ready(&mut process, &log, DEADLINE, |said| rates(said).len() >= 2 * looks).await?;
    }
    let said = std::fs::read_to_string(&log)?;
    process.kill().await?;
    Ok(rates(&said)[2..4].iter().sum())
}

/// Two ports of memif.
fn memif(role: &str, socket: &Path) -> [String; 2] {
    let socket = socket.display();
    [0, 1].map(|id| format!("role={role},id={id},socket={socket},socket-abstract=no"))
}

/// testpmd on `cpu` with a port for each of these arguments of the driver; its own arguments may follow.
fn command(
    driver: &str,
    ports: &[String],
    directory: &Path,
    cpu: usize,
) -> anyhow::Result<std::process::Command> {
    let mut testpmd = programs::command("dpdk-testpmd")?;
    // The second logical core passes frames. Both are threads that may run anywhere, but the caller's CPUs are those.
    testpmd.args([
        "--lcores",
        &format!("0@{cpu},1@{cpu}"),
        "--main-lcore",
        "0",
        "--no-huge",
        "-m",
        MEMORY_MIB,
    ]);
    testpmd.args(["--no-pci", "--no-telemetry", "--no-shconf"]);
    testpmd.env("XDG_RUNTIME_DIR", directory);
    for library in ["mempool_ring", driver] {
        testpmd.args(["-d", &format!("librte_{library}.{LIBRARIES}")]);
    }
    for (at, port) in ports.iter().enumerate() {
        testpmd.arg(format!("--vdev={driver}{at},{port}"));
    }
    testpmd.args(["--", "--nb-cores=1", "--no-mlockall"]);
    testpmd.args(["--total-num-mbufs=16384", "--no-lsc-interrupt", "--no-rmv-interrupt"]);
    Ok(testpmd)
}

/// Its version.
async fn what() -> anyhow::Result<String> {
    let mut version = programs::command("dpdk-testpmd")?;
    version.arg("--version");
    let said = foreign::run(version).await.unwrap_or_default();
    let version = said.lines().find_map(|line| line.split("RTE Version: ").nth(1)).unwrap_or("DPDK");
    Ok(format!("testpmd of {}", version.replace('\'', "")))
}
