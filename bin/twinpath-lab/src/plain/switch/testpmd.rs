//! DPDK's testpmd, as Debian builds it: passes every frame of one port to the other, without looking at it.

use std::path::Path;
use std::time::Duration;

use super::{Running, programs};

/// It starts within a second or two.
const DEADLINE: Duration = Duration::from_secs(20);
/// The version of the libraries that its drivers are, in the packages of DPDK 22.11.
const LIBRARIES: &str = "so.23";
/// MiB of its memory, without huge pages.
const MEMORY_MIB: &str = "256";

/// `driver`: `net_af_packet` or `net_af_xdp`. Frames are passed by a thread on `cpu`, which polls; another thread sleeps.
pub(super) async fn start(
    ports: &[String],
    driver: &str,
    directory: &Path,
    cpu: usize,
) -> anyhow::Result<Running> {
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
        testpmd.arg(format!("--vdev={driver}{at},iface={port}"));
    }
    testpmd.args(["--", "--forward-mode=io", "--auto-start", "--nb-cores=1", "--no-mlockall"]);
    testpmd.args(["--total-num-mbufs=16384", "--no-lsc-interrupt", "--no-rmv-interrupt"]);
    let log = directory.join("testpmd.out");
    let mut process = programs::spawn(testpmd, &log)?;
    programs::ready(&mut process, &log, DEADLINE, |said| said.contains("Press enter to exit")).await?;
    let mut version = programs::command("dpdk-testpmd")?;
    version.arg("--version");
    let what = programs::run(version).await.unwrap_or_default();
    let what =
        what.lines().find_map(|line| line.split("RTE Version: ").nth(1)).unwrap_or("DPDK").replace('\'', "");
    Ok(Running { processes: vec![process], what: format!("testpmd of {what}"), _programs: None })
}
