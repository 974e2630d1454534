//! Starts a server of Debian, alone or under `twinpath run`, and ends it.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde_json::json;
use tokio::net::UnixDatagram;
use tokio::process::Child;
use twinpath_clients::measure::print;
use twinpath_config::TcpPathAsked;
use twinpath_worker::idle::Mode;

use super::{Kind, command, example};
use crate::foreign;

/// Each of them is ready within a second on an idle machine.
const READY_DEADLINE: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(10);
/// Memory for values: memcached's default.
const MEMORY_MIB: usize = 64;
/// Names that the name server knows.
pub(super) const HOSTS: usize = 1000;

#[derive(clap::Args)]
pub(crate) struct ServerArgs {
    #[arg(value_enum)]
    kind: Kind,
    /// Where it is to listen
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: SocketAddr,
    /// Under `twinpath run`, whose calls wait so; without it the program runs alone
    #[arg(long, value_name = "MODE")]
    run: Option<Mode>,
    /// With memcached: as user nobody, over UDP alone, with rings from the owner that listens there
    #[arg(long, value_name = "PATH", requires = "run")]
    owner: Option<PathBuf>,
    /// The interface of an example of the library
    #[arg(long, value_name = "INTERFACE", default_value = "lo")]
    on: String,
    /// The path of TCP of the example of a memcached
    #[arg(long, value_name = "PATH", default_value = TcpPathAsked::Auto.name())]
    tcp_path: TcpPathAsked,
    /// Names that a name server has
    #[arg(long, value_name = "N", default_value_t = HOSTS)]
    names: usize,
}

/// Serves until a signal comes.
pub(crate) fn serve(args: &ServerArgs) -> anyhow::Result<()> {
    let folder = tempfile::tempdir().context("cannot create a temporary folder")?;
    let (program, arguments) = arguments(args, folder.path())?;
    let alone = match args.kind {
        Kind::OwnMemcached | Kind::OwnDns => example(program)?,
        _ => command(program)?,
    };
    let mut command = match args.run {
        None => alone,
        Some(mode) => {
            let mut command = under_run(mode, args.owner.as_deref(), folder.path())?;
            command.arg(alone.get_program());
            for (name, value) in alone.get_envs() {
                command.env(name, value.unwrap_or_default());
            }
            command
        }
    };
    let notified = match args.kind {
        Kind::OwnMemcached | Kind::OwnDns => Some(folder.path().join("notify")),
        _ => None,
    };
    if let Some(notified) = &notified {
        command.env("NOTIFY_SOCKET", notified);
    }
    let log = folder.path().join("log");
    command.args(arguments);
    let said = || foreign::last_lines(&std::fs::read_to_string(&log).unwrap_or_default());
    crate::plain::on_event_loop(serve_until_told(command, args, &log, notified.as_deref()))
        .with_context(|| format!("{program}: {}", said()))?;
    let explained = std::fs::read_to_string(folder.path().join("explain")).unwrap_or_default();
    Ok(print(json!({ "explained": explained.lines().collect::<Vec<_>>() }))?)
}

async fn serve_until_told(
    command: Command,
    args: &ServerArgs,
    log: &Path,
    notified: Option<&Path>,
) -> anyhow::Result<()> {
    let mut signals = crate::plain::EndSignals::new()?;
    let told = notified.map(UnixDatagram::bind).transpose().context("cannot listen for its notice")?;
    let mut server = foreign::spawn(command, log)?;
    match &told {
        Some(told) => await_notice(&mut server, told).await?,
        None => await_ready(&mut server, args).await?,
    }
    print(json!({ "ready": true, "pid": std::process::id(), "program_pid": server.id() }))?;
    tokio::select! {
        () = signals.come() => {}
        status = server.wait() => bail!("it ended ({})", status?),
    }
    foreign::stop(server).await
}

/// The product, which lies beside this program.
fn under_run(mode: Mode, owner: Option<&Path>, folder: &Path) -> anyhow::Result<Command> {
    let own = std::env::current_exe().context("cannot find this program's own file")?;
    let mut command = Command::new(own.with_file_name("twinpath"));
    let mut explain = OsString::from("--explain=");
    explain.push(folder.join("explain"));
    command.arg("run").arg("--wait").arg(mode.name()).arg(explain);
    if let Some(owner) = owner {
        command.arg("--owner").arg(owner);
    }
    Ok(command)
}

/// The program and its arguments. Its files are in `folder`.
fn arguments(args: &ServerArgs, folder: &Path) -> anyhow::Result<(&'static str, Vec<String>)> {
    let (ip, port) = (args.listen.ip(), args.listen.port());
    let place = folder.to_str().context("a temporary folder whose name is not UTF-8")?;
    let (program, line) = match args.kind {
        // It gives up root before it binds.
        Kind::Memcached if args.owner.is_some() => {
            ("memcached", format!("-u nobody -l {ip} -p 0 -U {port} -t 1"))
        }
        Kind::Memcached => ("memcached", format!("-u root -l {ip} -p {port} -U {port} -t 1")),
        Kind::MemcachedThreads => ("memcached", format!("-u root -l {ip} -p {port} -U {port}")),
        Kind::Redis => (
            "redis-server",
            format!("--bind {ip} --port {port} --protected-mode no --appendonly no --dir {place}"),
        ),
        Kind::Nsd => {
            let config = folder.join("nsd.conf");
            std::fs::write(&config, nsd_config(args.listen, place))?;
            std::fs::write(folder.join("zone"), zone(args.names))?;
            ("nsd", format!("-d -c {}", config.display()))
        }
        Kind::OwnMemcached => {
            ("memcached", format!("{} {port} {MEMORY_MIB} {}", args.on, args.tcp_path.name()))
        }
        Kind::OwnDns => {
            let zone_file = folder.join("zone");
            std::fs::write(&zone_file, zone(args.names))?;
            ("dns", format!("{} {} {port}", args.on, zone_file.display()))
        }
    };
    Ok((program, line.split(' ').map(str::to_owned).collect()))
}

fn nsd_config(listen: SocketAddr, place: &str) -> String {
    let (ip, port) = (listen.ip(), listen.port());
    format!(
        "server:\n ip-address: {ip}\n port: {port}\n username: \"\"\n chroot: \"\"\n database: \"\"\n \
         pidfile: \"{place}/pid\"\n zonesdir: \"{place}\"\n zonelistfile: \"{place}/zones\"\n \
         xfrdfile: \"{place}/xfrd\"\n xfrdir: \"{place}\"\n rrl-ratelimit: 0\n\
         remote-control:\n control-enable: no\n\
         zone:\n name: \"example.org\"\n zonefile: \"zone\"\n"
    )
}

fn zone(names: usize) -> String {
    let head = "$ORIGIN example.org.\n$TTL 3600\n@ IN SOA ns hostmaster 1 3600 600 86400 60\n@ IN NS ns\nns IN A 192.0.2.1\n";
    let hosts = (0..names).map(|number| format!("host{number} IN A 198.51.100.{}\n", number % 250 + 1));
    hosts.fold(head.to_owned(), |zone, host| zone + &host)
}

/// Until a program on the library says that it is ready, as to systemd (sd_notify(3)). It binds its sockets before: while it then loads
/// the kernel's programs, the kernel's own stack serves them.
async fn await_notice(server: &mut Child, told: &UnixDatagram) -> anyhow::Result<()> {
    let notice = async {
        let mut text = [0; 512];
        loop {
            let len = told.recv(&mut text).await.context("cannot read its notice")?;
            if text[..len].split(|byte| *byte == b'\n').any(|line| line == b"READY=1") {
                return Ok(());
            }
        }
    };
    tokio::select! {
        ready = notice => ready,
        status = server.wait() => bail!("it ended ({})", status?),
        () = tokio::time::sleep(READY_DEADLINE) => bail!("it was not ready after {} s", READY_DEADLINE.as_secs()),
    }
}

/// Until a socket of the network namespace has the port.
async fn await_ready(server: &mut Child, args: &ServerArgs) -> anyhow::Result<()> {
    // States that a socket which is served has: that of a listener, and of a UDP socket that is not connected.
    let (kind, state) = if args.kind == Kind::Redis { ("tcp", " 0A ") } else { ("udp", " 07 ") };
    let port = format!(":{:04X}", args.listen.port());
    let begun = Instant::now();
    let mut looks = tokio::time::interval(LOOK);
    loop {
        looks.tick().await;
        // The second word of a line is the socket's own address. Some servers listen on one socket for both versions of IP.
        let is_it = |line: &str| {
            line.split_whitespace().nth(1).is_some_and(|own| own.ends_with(&port)) && line.contains(state)
        };
        for version in ["", "6"] {
            let sockets = std::fs::read_to_string(format!("/proc/thread-self/net/{kind}{version}"));
            if sockets.is_ok_and(|sockets| sockets.lines().any(is_it)) {
                return Ok(());
            }
        }
        if let Some(status) = server.try_wait()? {
            bail!("it ended ({status})");
        }
        ensure!(begun.elapsed() < READY_DEADLINE, "it was not ready after {} s", READY_DEADLINE.as_secs());
    }
}
