//! The capabilities of the machine, for all of its interfaces. Each finding says what it is needed for.

use std::fs::OpenOptions;

use serde::Serialize;
use twinpath_attach::path::privileges::Capabilities;
use twinpath_bpf::{KeptMaps, TcAttach};
use twinpath_reflex::ENTRIES_DEFAULT;
use twinpath_sys::{affinity, scheduling};

use super::interface::Interface;
use super::{NotKnown, settings};

/// The machine.
#[derive(Debug, Default, Serialize)]
pub(super) struct Host {
    /// The release of its kernel.
    pub(super) kernel: String,
    /// Its architecture.
    pub(super) architecture: String,
    /// CPUs that this process may use.
    pub(super) cpus: usize,
    /// Whether it reports that it is a virtual machine.
    pub(super) is_virtual: bool,
    /// What it can do.
    pub(super) abilities: Vec<Ability>,
    /// Names of settings that `tune` finds not as advised.
    pub(super) to_tune: Vec<String>,
    /// Features that it lacks, and that a newer kernel has.
    pub(super) newer: Vec<Newer>,
}

/// Something that the machine can do for this user, or cannot.
#[derive(Debug, Serialize)]
pub(super) struct Ability {
    /// Its name.
    pub(super) name: &'static str,
    /// Whether it can.
    pub(super) can: bool,
    /// How; or why not, and what is lost by that.
    pub(super) note: String,
}

/// A feature that newer kernels have.
#[derive(Debug, Serialize)]
pub(super) struct Newer {
    /// The first kernel that has it.
    pub(super) since: &'static str,
    /// The feature.
    pub(super) feature: &'static str,
    /// Its benefit.
    pub(super) brings: &'static str,
}

/// Collects the findings. Nothing is attached, and no setting is changed.
pub(super) fn look(interfaces: &[Interface], not_known: &mut Vec<NotKnown>) -> Host {
    let uname = rustix::system::uname();
    let cpus = affinity::allowed_cpus().map_or(1, |cpus| cpus.len());
    let features = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    Host {
        kernel: uname.release().to_string_lossy().into_owned(),
        architecture: uname.machine().to_string_lossy().into_owned(),
        cpus,
        is_virtual: features.split_whitespace().any(|flag| flag == "hypervisor"),
        abilities: abilities(),
        to_tune: settings::not_as_advised(None, not_known),
        newer: newer(interfaces),
    }
}

fn abilities() -> Vec<Ability> {
    let probe = twinpath_bpf::probe();
    let packet = probe.packet.map(|()| match probe.tc {
        TcAttach::Tcx => "by BPF links, which end with the process".to_owned(),
        TcAttach::Clsact => {
            "by classic filters; `twinpath tidy` removes those of a killed process".to_owned()
        }
    });
    let ability = |name, found: Result<String, String>| {
        let can = found.is_ok();
        Ability { name, can, note: found.unwrap_or_else(|reason| reason) }
    };
    let held = Capabilities::held();
    let reflexes = twinpath_bpf::probe_reflexes();
    vec![
        ability("packet path", packet),
        ability("replies by the kernel", reflexes.mirrors.map(|()| replies(reflexes.at_xdp))),
        ability("kept replies", reflexes.kept.map(|()| kept_replies())),
        ability(
            "AF_XDP path",
            probe.xdp.map(|()| "where the interface allows it (`--json`: why_not)".to_owned()),
        ),
        ability("BPF compiler", compiler()),
        ability("ports below 1024", ports_below_1024(held)),
        ability("real-time priority", real_time()),
        ability("latency request", device("/dev/cpu_dma_latency", "a sleeping CPU takes longer to wake")),
        ability("TAP interfaces", taps(held)),
        ability("unmodified programs", unmodified_programs()),
    ]
}

/// Where the kernel can send replies.
fn replies(at_xdp: Result<(), String>) -> String {
    match at_xdp {
        Ok(()) => "on every fast path, where services allow it (`--reflex`)".to_owned(),
        Err(reason) => format!(
            "on the packet path, where services allow it (`--reflex`); on the XDP paths workers answer: {reason}"
        ),
    }
}

/// The memory that an instance needs for kept replies.
fn kept_replies() -> String {
    let mib = KeptMaps::bytes_of(ENTRIES_DEFAULT) as f64 / f64::from(1 << 20);
    format!(
        "for each instance that keeps some {mib:.1} MiB in the BPF maps kept_entries and kept_words, as long as \
         limits.kept_replies is {ENTRIES_DEFAULT}; `twinpath show` says what is in them"
    )
}

fn compiler() -> Result<String, String> {
    match std::fs::read_to_string("/proc/sys/net/core/bpf_jit_enable").as_deref().map(str::trim) {
        Ok("0") => {
            Err("the kernel interprets BPF programs, several times slower: sysctl net.core.bpf_jit_enable=1"
                .to_owned())
        }
        Ok(_) => Ok("the kernel compiles BPF programs".to_owned()),
        // The file exists only in the first network namespace.
        Err(_) => Ok("not to be seen from here; kernels have it on by default".to_owned()),
    }
}

fn ports_below_1024(held: Capabilities) -> Result<String, String> {
    let first = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start");
    let first = first.ok().and_then(|port| port.trim().parse::<u16>().ok()).unwrap_or(1024);
    match (held.net_bind_service, first) {
        (true, _) => Ok("CAP_NET_BIND_SERVICE".to_owned()),
        (false, 0) => Ok("everybody may have them here".to_owned()),
        (false, first) => Err(format!("CAP_NET_BIND_SERVICE is missing: ports from {first} only")),
    }
}

/// Asked on a separate thread, because asking changes the calling thread.
fn real_time() -> Result<String, String> {
    let asked = std::thread::spawn(|| scheduling::set_fifo(1).map_err(|error| error.to_string()));
    match asked.join() {
        Ok(Ok(())) => Ok("SCHED_FIFO".to_owned()),
        Ok(Err(reason)) => Err(format!("{reason}; without it a busy CPU makes answers late")),
        Err(_) => Err("could not be asked for".to_owned()),
    }
}

fn taps(held: Capabilities) -> Result<String, String> {
    const LOST: &str = "no `bridge`, and no port `tap:` or `local` of a switch";
    match held.net_admin {
        true => device("/dev/net/tun", LOST),
        false => Err(format!("CAP_NET_ADMIN is missing; {LOST}")),
    }
}

fn device(path: &str, lost: &str) -> Result<String, String> {
    match OpenOptions::new().write(true).open(path) {
        Ok(_) => Ok(path.to_owned()),
        Err(error) => Err(format!("{path}: {error}; {lost}")),
    }
}

fn unmodified_programs() -> Result<String, String> {
    match crate::preload::library() {
        Ok(library) => Ok(format!("`twinpath run`, by {}", library.display())),
        Err(error) => Err(format!("`twinpath run`: {error}")),
    }
}

fn newer(interfaces: &[Interface]) -> Vec<Newer> {
    let slices = std::thread::spawn(|| scheduling::set_slice(1000));
    let has_slices = !matches!(slices.join(), Ok(Err(scheduling::SchedulingError::NoSlices)));
    let tells_features = interfaces.is_empty() || interfaces.iter().any(|interface| interface.tells_xdp);
    let all = [
        (
            TcAttach::here() == TcAttach::Tcx,
            Newer {
                since: "6.6",
                feature: "BPF links at tc",
                brings: "no program stays after kill -9; a switch whose flows go on without it",
            },
        ),
        (
            tells_features,
            Newer {
                since: "6.3",
                feature: "drivers say what XDP they have",
                brings: "XDP chosen on network cards by itself",
            },
        ),
        (
            has_slices,
            Newer {
                since: "6.12",
                feature: "short slices for normal threads",
                brings: "a worker that runs soon beside busy threads, without real-time priority",
            },
        ),
        (
            twinpath_host::sandbox::has_landlock(),
            Newer { since: "5.13", feature: "Landlock", brings: "a running instance opens no other files" },
        ),
    ];
    all.into_iter().filter(|(here, _)| !here).map(|(_, newer)| newer).collect()
}
