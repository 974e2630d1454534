//! Finds the program on an interface's XDP hook, and the processes that hold it.

use std::fs;

use aya::programs::{ProgramInfo, loaded_programs};
use twinpath_netlink::route::{IFLA_XDP, IFLA_XDP_ATTACHED, LinkChange, XDP_PROGRAMS};
use twinpath_netlink::{Attributes, Netlink, Protocol};

use crate::SteerError;
use crate::xdp_holder::{Attachment, XdpHolder};

/// The program on an interface's XDP hook, if there is one.
///
/// # Errors
/// [`SteerError::Query`].
pub fn xdp_holder(ifindex: u32) -> Result<Option<XdpHolder>, SteerError> {
    let Some((program_id, mode)) = on_hook(ifindex)? else { return Ok(None) };
    // Without CAP_SYS_ADMIN the kernel gives no details; the ID alone is still useful.
    let info = loaded_programs().filter_map(Result::ok).find(|info| info.id() == program_id);
    let name = info.as_ref().and_then(|info| info.name_as_str()).filter(|name| !name.is_empty());
    Ok(Some(XdpHolder {
        program_id,
        name: name.map(str::to_owned),
        // The library returns the tag as a number in the machine's byte order; tools print its bytes.
        tag: info.as_ref().map(|info| u64::from_be(info.tag())),
        mode,
        processes: processes_holding(program_id),
        parts: if name == Some(DISPATCHER) { parts_of(ifindex, program_id) } else { Vec::new() },
        run_ns: info.as_ref().and_then(|info| run_ns(info.run_time().as_nanos(), info.run_count())),
    }))
}

/// The ID of the program on an interface's XDP hook: one netlink request, cheap enough for every periodic check.
///
/// # Errors
/// [`SteerError::Query`].
pub fn xdp_program(ifindex: u32) -> Result<Option<u32>, SteerError> {
    Ok(on_hook(ifindex)?.map(|(program_id, _)| program_id))
}

fn on_hook(ifindex: u32) -> Result<Option<(u32, Attachment)>, SteerError> {
    let link = LinkChange::of(ifindex);
    let read = |netlink: Netlink| link.look(&netlink, |_, link| attached(link.inside(IFLA_XDP)));
    Netlink::open(Protocol::Route).and_then(read).map_err(SteerError::Query)
}

/// libxdp's dispatcher: it calls up to ten programs, which it pins as `prog0-prog`, `prog1-prog`, ... in the order of
/// their calls.
const DISPATCHER: &str = "xdp_dispatcher";
const DISPATCHER_PARTS_MAX: usize = 10;

fn parts_of(ifindex: u32, program_id: u32) -> Vec<String> {
    let pins = format!("/sys/fs/bpf/xdp/dispatch-{ifindex}-{program_id}");
    (0..DISPATCHER_PARTS_MAX)
        .map_while(|at| ProgramInfo::from_pin(format!("{pins}/prog{at}-prog")).ok())
        .filter_map(|info| info.name_as_str().map(str::to_owned))
        .collect()
}

fn run_ns(total_ns: u128, runs: u64) -> Option<u64> {
    let mean = total_ns.checked_div(runs.into())?;
    (total_ns > 0).then(|| u64::try_from(mean).unwrap_or(u64::MAX))
}

fn attached(xdp: Attributes<'_>) -> Option<(u32, Attachment)> {
    // XDP_ATTACHED_* of linux/if_link.h.
    let mode = match xdp.get(IFLA_XDP_ATTACHED)? {
        [1] => Attachment::Native,
        [2] => Attachment::Generic,
        [3] => Attachment::Offloaded,
        [4] => Attachment::Several,
        _ => return None,
    };
    let program = xdp.iter().find(|(kind, _)| XDP_PROGRAMS.contains(kind));
    let program_id = program.and_then(|(_, id)| id.first_chunk().map(|id| u32::from_ne_bytes(*id)))?;
    Some((program_id, mode))
}

/// Processes with a descriptor of the program or of a link to it: the fdinfo of both has `prog_id` (Linux,
/// `bpf_link_show_fdinfo`).
pub(crate) fn processes_holding(program_id: u32) -> Vec<(u32, String)> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let line = format!("prog_id:\t{program_id}");
    let holds = |pid: u32| {
        let files = fs::read_dir(format!("/proc/{pid}/fdinfo")).ok()?;
        let mut texts = files.flatten().filter_map(|file| fs::read_to_string(file.path()).ok());
        texts.any(|text| text.lines().any(|other| other == line)).then_some(())
    };
    processes
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|&pid| holds(pid).is_some())
        .map(|pid| {
            let command = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            (pid, command.trim_end().to_owned())
        })
        .collect()
}

/// The TAP interface that a process has open: the kernel names it in the descriptor's fdinfo (`tun_chr_show_fdinfo`).
pub(crate) fn tap_of(pid: u32) -> Option<String> {
    let files = fs::read_dir(format!("/proc/{pid}/fdinfo")).ok()?;
    let mut texts = files.flatten().filter_map(|file| fs::read_to_string(file.path()).ok());
    texts.find_map(|text| tap_in(&text))
}

fn tap_in(fdinfo: &str) -> Option<String> {
    let name = fdinfo.lines().find_map(|line| line.strip_prefix("iff:"))?.trim();
    (!name.is_empty()).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdp_holder::tool_of;

    #[test]
    fn tools_are_known_by_the_names_of_their_programs() {
        assert_eq!(tool_of("xdpfilt_alw_udp"), Some("xdp-filter"));
        assert_eq!(tool_of("xdp_dispatcher"), Some("libxdp"));
        assert_eq!(tool_of("my_xdp"), None);
    }

    #[test]
    fn the_interface_of_a_tap_is_read_from_its_descriptor() {
        assert_eq!(
            tap_in("pos:\t0\nflags:\t02104002\nmnt_id:\t15\nino:\t97\niff:\tk1\n").as_deref(),
            Some("k1")
        );
        // Open, but not attached to an interface yet.
        assert_eq!(tap_in("pos:\t0\niff:\t\n"), None);
        assert_eq!(tap_in("pos:\t0\nprog_id:\t7\n"), None);
    }

    #[test]
    fn a_time_per_run_needs_runs_that_were_timed() {
        assert_eq!(run_ns(0, 0), None);
        // Loaded while statistics were off, so runs were not counted either.
        assert_eq!(run_ns(0, 5), None);
        assert_eq!(run_ns(300, 4), Some(75));
    }
}
