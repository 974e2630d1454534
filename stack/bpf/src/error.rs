//! Errors of loading, attaching and configuring the programs.

use aya::maps::MapError;
use aya::programs::ProgramError;
use rustix::io::Errno;
use twinpath_netlink::NetlinkError;

use crate::XdpHolder;

/// One variant per step.
#[derive(Debug, thiserror::Error)]
pub enum SteerError {
    /// The kernel refused the object or its maps.
    #[error(
        "loading the BPF object: {0}; CAP_BPF and CAP_NET_ADMIN (or root) are needed, and in a container a seccomp profile that lets bpf(2) pass"
    )]
    Object(#[source] Box<aya::EbpfError>),
    /// The object lacks a program or map: it is not the object that belongs to this code.
    #[error("the BPF object has no {0}; rebuild it with `cargo run -p xtask -- bpf`")]
    Missing(&'static str),
    /// The kernel refused a program.
    #[error("loading the BPF program {name}: {}", refusal(error))]
    Program {
        /// The program.
        name: &'static str,
        /// The kernel's answer, with the verifier's log. It is no source of this error: whoever says an error with its sources would
        /// say the whole log, which has megabytes.
        error: Box<ProgramError>,
    },
    /// A map could not be read or written.
    #[error("{action} the BPF map {map}: {error}")]
    Map {
        /// The map.
        map: &'static str,
        /// The operation that failed.
        action: &'static str,
        /// The kernel's answer.
        #[source]
        error: Box<MapError>,
    },
    /// This object was loaded for the other path.
    #[error("{0} belongs to the other path than the one loaded")]
    OtherPath(&'static str),
    /// The filter could not be attached to the socket.
    #[error("attaching the filter to the packet socket: {0}")]
    Filter(#[source] Box<ProgramError>),
    /// The filter could not be attached to a listener.
    #[error("attaching the filter to a listening socket: {0}")]
    Listener(#[source] std::io::Error),
    /// The socket could not be made that gets what the kernel is not to answer.
    #[error("making a listening socket that nobody connects to: {0}")]
    Catcher(#[source] std::io::Error),
    /// The network namespace of this thread could not be opened.
    #[error(transparent)]
    Namespace(twinpath_sys::netns::NetnsError),
    /// The network namespace has no such interface.
    #[error("there is no interface with index {ifindex} in this network namespace: {error}")]
    NoInterface {
        /// Its index.
        ifindex: u32,
        /// The kernel's answer.
        #[source]
        error: std::io::Error,
    },
    /// The tcx link could not be made.
    #[error("attaching at tc of {interface}: {error}; tcx links need Linux 6.6 and CAP_NET_ADMIN")]
    Tcx {
        /// The interface's name.
        interface: String,
        /// The kernel's answer.
        #[source]
        error: Box<ProgramError>,
    },
    /// The filter could not be added.
    #[error("attaching at tc of {interface} by a filter ({step}): {error}{}", lacking(step, error))]
    Clsact {
        /// The interface's name.
        interface: String,
        /// The step that failed.
        step: &'static str,
        /// The kernel's answer.
        #[source]
        error: NetlinkError,
    },
    /// A filter could not be named after this process.
    #[error("cannot hold a name that ends with the process: {0}")]
    Alive(#[source] std::io::Error),
    /// A foreign program runs before ours and we cannot get in front of it.
    #[error(
        "{who} is asked before any filter of ours at tc of {interface}, and what it passes would be served twice: give it a \
         higher number as its priority, or take it off"
    )]
    NotFirst {
        /// The interface's name.
        interface: String,
        /// Name of that filter or program.
        who: String,
    },
    /// The filters of dead instances cannot be listed or removed.
    #[error("asking the kernel for filters at tc: {0}; removing one takes CAP_NET_ADMIN")]
    Leftovers(#[source] NetlinkError),
    /// The order of the programs at tc ingress cannot be read.
    #[error("asking which programs are at tc ingress of {interface}: {error}; it takes CAP_SYS_ADMIN")]
    Order {
        /// The interface's name.
        interface: String,
        /// The kernel's answer.
        #[source]
        error: Box<ProgramError>,
    },
    /// The kernel attached at tc ingress, but without a link.
    #[error(
        "this kernel attaches at tc ingress of {0} only in a way that outlives a crash: it needs Linux 6.6"
    )]
    TcxWithoutLink(String),
    /// Another twinpath instance holds the interface.
    #[error(
        "{interface} is held already {holder}: stop that first; two programs cannot withhold one interface from the kernel"
    )]
    TcxHeld {
        /// The interface's name.
        interface: String,
        /// A description of that instance.
        holder: String,
    },
    /// Flows of a switch that has ended are still being forwarded at the interface.
    #[error(
        "switch {switch}, whose process has ended, has left its flows at {interface} (on_exit = \"keep=SECONDS\"): start {switch} \
         again, or end that by `twinpath tidy --kept {switch}`"
    )]
    TcxKept {
        /// The interface's name.
        interface: String,
        /// The switch.
        switch: String,
    },
    /// The end of this process cannot be recorded.
    #[error(
        "flows cannot go on after this process, as the kernel would not know when it ended: {step}: {error}"
    )]
    Lease {
        /// The step that failed.
        step: &'static str,
        /// The kernel's answer.
        #[source]
        error: std::io::Error,
    },
    /// Something cannot be made to outlive the process.
    #[error("flows cannot go on after this process: {}: {error}", path.display())]
    Pin {
        /// The pin.
        path: std::path::PathBuf,
        /// The kernel's answer.
        error: String,
    },
    /// The kernel has no links at tc, or others were asked for.
    #[error(
        "flows can go on after this process only where programs at tc are attached by BPF links: that needs Linux 6.6"
    )]
    KeepWithoutLinks,
    /// The XDP link could not be made.
    #[error("attaching XDP ({mode}) to interface {ifindex}: {error}")]
    Xdp {
        /// The interface.
        ifindex: u32,
        /// `native` or `generic`.
        mode: &'static str,
        /// The kernel's answer.
        #[source]
        error: Box<ProgramError>,
    },
    /// The kernel has no links for XDP: the program would outlive a crash.
    #[error(
        "this kernel attaches XDP only in a way that outlives a crash (links need Linux 5.9): use the packet path"
    )]
    XdpWithoutLink,
    /// Another program holds the interface.
    #[error(
        "another XDP program holds the interface: {0}; it is never replaced: stop it, or use the packet path"
    )]
    XdpHeld(Box<XdpHolder>),
    /// A test run was refused.
    #[error("running the BPF program {program} for a test: {error}")]
    TestRun {
        /// The program.
        program: &'static str,
        /// The kernel's answer.
        #[source]
        error: Box<ProgramError>,
    },
    /// The queue number exceeds the map.
    #[error("queue {queue} is beyond the {max} that are steered")]
    Queue {
        /// The queue.
        queue: u32,
        /// Number of queues of the map.
        max: u32,
    },
    /// The interface's XDP program could not be read.
    #[error("asking the kernel for the XDP program of an interface: {0}")]
    Query(#[source] NetlinkError),
}

/// Advice for the user, if the kernel's error allows any.
fn lacking(step: &str, error: &NetlinkError) -> String {
    let module = if step == "the filter" { "cls_bpf" } else { "sch_ingress" };
    match error.errno() {
        Some(Errno::NOENT | Errno::OPNOTSUPP) => {
            format!(
                "; this kernel lacks the module {module}: load it (modprobe {module}) or use another path"
            )
        }
        Some(Errno::PERM) => "; CAP_NET_ADMIN is missing".to_owned(),
        _ => String::new(),
    }
}

/// Why the kernel refused to load a program: the decisive line of the verifier's log, which can have thousands of
/// lines.
fn refusal(error: &ProgramError) -> String {
    let ProgramError::LoadError { io_error, verifier_log } = error else { return with_sources(error) };
    match reason_in(&verifier_log.to_string()) {
        Some(reason) => format!("{io_error}: {reason}"),
        None => io_error.to_string(),
    }
}

fn with_sources(error: &dyn std::error::Error) -> String {
    let sources = std::iter::successors(error.source(), |error| error.source());
    sources.fold(error.to_string(), |told, source| format!("{told}: {source}"))
}

/// The last line before the log's statistics.
fn reason_in(log: &str) -> Option<&str> {
    let statistics = |line: &str| {
        ["verification time", "stack depth", "processed "].iter().any(|start| line.starts_with(start))
    };
    log.lines().map(str::trim).rfind(|line| !line.is_empty() && !statistics(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_extracted_from_the_verifiers_log() {
        let log = "69: (85) call bpf_skb_load_bytes#26\nR4 unbounded memory access, use 'var &= const'\n\
                   verification time 268193 usec\nstack depth 168\nprocessed 3858 insns (limit 1000000)\n\n";
        assert_eq!(reason_in(log), Some("R4 unbounded memory access, use 'var &= const'"));
        assert_eq!(reason_in("processed 1 insns\n"), None);
    }

    /// With its sources, a verifier's log would fill the pipe of whoever waits for something else first.
    #[test]
    fn a_refused_program_is_said_in_one_line_to_its_last_cause() {
        let of = |error| SteerError::Program { name: "twinpath_opens", error: Box::new(error) };
        let failed = std::io::Error::from_raw_os_error(libc::EPERM);
        let error = of(ProgramError::IOError(failed));
        assert!(std::error::Error::source(&error).is_none());
        assert!(error.to_string().contains("Operation not permitted"), "{error}");
        assert_eq!(of(ProgramError::NotLoaded).to_string().lines().count(), 1);
    }
}
