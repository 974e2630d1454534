//! The guest's init process: mounts file systems, loads modules, runs the lab, sends its results, powers the machine
//! off.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::inotify;
use rustix::mount::{MountFlags, mount};
use rustix::system::{RebootCommand, finit_module, reboot};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::Command;

use super::message::{Message, Order};
use crate::lab::topology::set_up;

/// The modules that a lab and the port to the host need; a name that is not a module is part of the kernel.
pub(super) const MODULES: &[&str] =
    &["virtio_pci", "virtio_console", "veth", "tun", "sch_ingress", "cls_bpf", "af_packet", "ipv6"];
pub(super) const DIRECTORIES: &[&str] = &["dev", "proc", "sys", "tmp", "run", "var/lib/nfs"];
pub(super) const ORDER: &str = "/order.json";

const PORT: &str = "/dev/vport0p1";
const PORT_DEADLINE: Duration = Duration::from_secs(30);
const ALIVE_PERIOD: Duration = Duration::from_secs(5);
const JSON: &str = "/tmp/report.json";
const HTML: &str = "/tmp/report.html";

/// The path of a module in the guest.
pub(super) fn module_path(name: &str) -> String {
    format!("/modules/{name}.ko")
}

/// Never returns, as the machine is powered off.
pub(crate) fn run() -> anyhow::Result<ExitCode> {
    ensure!(rustix::process::getpid().is_init(), "lab-guest is what the guest of a lab starts with");
    if let Err(error) = prepare().and_then(|order| report(&order)) {
        // To the console: there is no other output.
        eprintln!("twinpath-lab: {error:#}");
    }
    reboot(RebootCommand::PowerOff).or_else(|_| reboot(RebootCommand::Restart))?;
    Ok(ExitCode::FAILURE)
}

fn prepare() -> anyhow::Result<Order> {
    for (kind, place) in
        [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev"), ("tmpfs", "/tmp"), ("tmpfs", "/run")]
    {
        mount(kind, place, kind, MountFlags::empty(), None)
            .with_context(|| format!("cannot mount {place}"))?;
    }
    let order: Order = serde_json::from_slice(&std::fs::read(ORDER).context("no order")?)?;
    load(&order.modules)?;
    for card in &order.divided {
        set_up(card)?;
        std::fs::write(format!("/sys/class/net/{card}/device/sriov_numvfs"), "1")
            .with_context(|| format!("cannot make a virtual function of {card}"))?;
    }
    // A card is reset when functions are made of it, and a reset card answers a function only after the function has
    // asked for a reset of its own. The function's driver does that when it is loaded, and then not for 10 s.
    load(&order.function_modules)?;
    Ok(order)
}

fn load(modules: &[String]) -> anyhow::Result<()> {
    for name in modules {
        let file = File::open(module_path(name)).with_context(|| format!("no module {name}"))?;
        finit_module(file, c"", 0).with_context(|| format!("cannot load the module {name}"))?;
    }
    Ok(())
}

fn report(order: &Order) -> anyhow::Result<()> {
    let mut port = Port(port()?);
    port.send(&Message::Started)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match runtime.block_on(lab(order, &mut port)) {
        Ok(code) => port.send(&Message::Ended(code)),
        Err(error) => port.send(&Message::Failed(format!("{error:#}"))),
    }
}

/// Opens the port to the host, which appears some time after its module was loaded.
fn port() -> anyhow::Result<File> {
    let appearing = inotify::init(inotify::CreateFlags::CLOEXEC)?;
    inotify::add_watch(&appearing, "/dev", inotify::WatchFlags::CREATE)?;
    let deadline = Instant::now() + PORT_DEADLINE;
    while !Path::new(PORT).exists() {
        let left = deadline.saturating_duration_since(Instant::now());
        ensure!(!left.is_zero(), "no {PORT} after {} s", PORT_DEADLINE.as_secs());
        let left = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
        rustix::event::poll(&mut [PollFd::new(&appearing, PollFlags::IN)], Some(&left))?;
        rustix::io::read(&appearing, &mut [0; 4096])?;
    }
    File::options().write(true).open(PORT).with_context(|| format!("cannot open {PORT}"))
}

struct Port(File);

impl Port {
    fn send(&mut self, message: &Message) -> anyhow::Result<()> {
        let mut line = serde_json::to_vec(message)?;
        line.push(b'\n');
        self.0.write_all(&line).context("cannot tell the host")
    }
}

async fn lab(order: &Order, port: &mut Port) -> anyhow::Result<u8> {
    let mut command = Command::new("/init");
    command.args(&order.lab).args(["--json", JSON, "--html", HTML]);
    order.notes.iter().chain([&facts()]).for_each(|note| {
        command.arg(format!("--note={note}"));
    });
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start the lab")?;
    let mut stdout = child.stdout.take().context("no output of the lab")?;
    let mut lines = BufReader::new(child.stderr.take().context("no error output of the lab")?).lines();
    let mut printed = String::new();
    let mut alive = tokio::time::interval(ALIVE_PERIOD);
    let read = stdout.read_to_string(&mut printed);
    tokio::pin!(read);
    // The lab's output ends with the lab.
    loop {
        tokio::select! {
            result = &mut read => {
                result.context("cannot read the lab's output")?;
                break;
            }
            Ok(Some(line)) = lines.next_line() => port.send(&Message::Progress(line))?,
            _ = alive.tick() => port.send(&Message::Alive)?,
        };
    }
    while let Ok(Some(line)) = lines.next_line().await {
        port.send(&Message::Progress(line))?;
    }
    let status = child.wait().await?;
    port.send(&Message::Printed(without_place(&printed)))?;
    for (path, message) in [(JSON, Message::Json as fn(String) -> Message), (HTML, Message::Html)] {
        if let Ok(text) = std::fs::read_to_string(path) {
            port.send(&message(text))?;
        }
    }
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

/// The lab's output without the path of its report, which does not exist on the host.
fn without_place(printed: &str) -> String {
    printed.lines().filter(|line| !line.contains(HTML)).fold(String::new(), |text, line| text + line + "\n")
}

/// Facts about the machine from the guest's kernel.
fn facts() -> String {
    let read = |path: &str| {
        std::fs::read_to_string(path).map_or_else(|_| "none".to_owned(), |text| text.trim().to_owned())
    };
    format!(
        "the guest runs Linux {} and reads the time by {}; its CPUs idle by the driver {}, governor {}",
        read("/proc/sys/kernel/osrelease"),
        read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        read("/sys/devices/system/cpu/cpuidle/current_driver"),
        read("/sys/devices/system/cpu/cpuidle/current_governor_ro"),
    )
}
