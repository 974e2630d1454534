//! Open vSwitch with its datapath in user space (`datapath_type=netdev`), as Debian builds it, with the settings that
//! its documentation gives for speed.

use std::path::Path;
use std::time::Duration;

use super::{Args, Running, programs};
use crate::foreign;

const SCHEMA: &str = "usr/share/openvswitch/vswitch.ovsschema";
/// Its start, and a change of a port's kind, take well below a second.
const DEADLINE: Duration = Duration::from_secs(8);
const BRIDGE: &str = "br0";

/// `kind`: the kind of its ports, `None` for packet sockets. Ports of kind `afxdp` are polled by a thread on `cpu`; others
/// by its main thread, which sleeps between frames. With `--openflow` it passes what controllers say and nothing else; they
/// come by the socket `br0.mgmt` in the directory. Controllers number the ports from 1 on.
pub(super) async fn start(args: &Args, kind: Option<&str>, directory: &Path) -> anyhow::Result<Running> {
    let cpu = args.cpu;
    let at = |name: &str| directory.join(name);
    // A program of it keeps to the files in that directory.
    let private = |program: &str| -> anyhow::Result<std::process::Command> {
        let mut command = programs::command(program)?;
        for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
            command.env(variable, directory);
        }
        Ok(command)
    };
    let option = |name: &str, file: &str| format!("--{name}={}", at(file).display());
    let mut create = private("ovsdb-tool")?;
    create.arg("create").arg(at("conf.db")).arg(programs::file(SCHEMA)?);
    foreign::run(create).await?;
    let mut database = private("ovsdb-server")?;
    database.arg(at("conf.db")).arg(format!("--remote=punix:{}", at("db.sock").display()));
    database.args([option("unixctl", "db.ctl"), option("pidfile", "db.pid")]);
    let mut database = foreign::spawn(database, &at("db.out"))?;
    let socket = at("db.sock");
    foreign::ready(&mut database, &at("db.out"), DEADLINE, |_| socket.exists()).await?;
    let mut switch = private("ovs-vswitchd")?;
    switch.arg(format!("unix:{}", socket.display()));
    switch.args([option("unixctl", "vs.ctl"), option("pidfile", "vs.pid")]);
    let mut switch = foreign::spawn(switch, &at("vs.out"))?;
    let control = at("vs.ctl");
    foreign::ready(&mut switch, &at("vs.out"), DEADLINE, |_| control.exists()).await?;
    // It returns when the change is in force.
    let mut configure = private("ovs-vsctl")?;
    configure.arg(format!("--db=unix:{}", socket.display()));
    configure.arg(format!("--timeout={}", DEADLINE.as_secs()));
    // 2^cpu: the CPUs of threads that poll.
    configure.args(["set", "Open_vSwitch", ".", &format!("other_config:pmd-cpu-mask={:x}", 1_u64 << cpu)]);
    configure.args(["--", "add-br", BRIDGE]);
    configure.args(["--", "set", "bridge", BRIDGE, "datapath_type=netdev"]);
    if args.openflow {
        configure.args(["protocols=OpenFlow13", "fail-mode=secure"]);
    }
    for (number, port) in (1..).zip(&args.ports) {
        configure.args(["--", "add-port", BRIDGE, port, "--", "set", "interface", port]);
        configure.arg(format!("ofport_request={number}"));
        if let Some(kind) = kind {
            configure.args([format!("type={kind}"), "options:n_rxq=1".to_owned()]);
        }
    }
    foreign::run(configure).await?;
    let mut version = private("ovs-vswitchd")?;
    version.arg("--version");
    let version = foreign::run(version).await?;
    let what = version.lines().next().unwrap_or_default().replace("ovs-vswitchd ", "");
    Ok(Running { processes: vec![switch, database], what, _programs: None })
}
