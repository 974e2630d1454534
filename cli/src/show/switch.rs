//! Formats a switch's report of its ports and addresses.

use std::fmt::Write as _;

use twinpath_config::PortKind;
use twinpath_observe::report::{Report, SwitchPort};

use super::grid::{cells, headers, table};

/// The ports, and the numbers of learned addresses and flooded frames of the whole switch.
pub(super) fn ports(report: &Report) -> String {
    let Some(switch) = &report.switch else { return NO_SWITCH.to_owned() };
    let vlans = if switch.vlans { "with VLANs" } else { "without VLANs" };
    let mut text = format!(
        "switch {} {vlans}: {} of at most {} addresses, forgotten after {} s; {} learned, {} moved\n  flooded: {} broadcast, {} multicast, {} to \
         unknown addresses",
        switch.name,
        switch.addresses,
        switch.mac_entries_max,
        switch.ageing_s,
        switch.counts.learned,
        switch.counts.moved,
        switch.counts.flooded_broadcast,
        switch.counts.flooded_multicast,
        switch.counts.flooded_unknown
    );
    if switch.counts.loops > 0 {
        let _ = write!(text, "\n  loops found: {}", switch.counts.loops);
    }
    let (all, by_kernel) = report
        .ports
        .iter()
        .fold((0, 0), |(all, by_kernel), port| (all + port.frames_in, by_kernel + port.kernel_in));
    if switch.kernel_entries > 0 || by_kernel > 0 {
        let entries = match (&switch.openflow, switch.kernel_entries) {
            (Some(_), _) => "by flows (show flows)".to_owned(),
            (None, entries) => format!("by {entries} entries for two learned addresses each"),
        };
        let _ = write!(text, "\n  forwarded by the kernel: {by_kernel} of {all} frames received, {entries}");
    }
    for line in switch.openflow.iter().flat_map(super::openflow::summary) {
        let _ = write!(text, "\n  {line}");
    }
    if report.ports.is_empty() {
        return text + "\n  no ports: add one with `twinpath port add`";
    }
    let _ = write!(text, "\n{}", grid(&report.ports));
    for port in &report.ports {
        if port.state != "up" || port.kind != PortKind::Interface.word() {
            let _ = write!(text, "\n{}: {}", port.name, port.why);
        }
        if let Some(other) = &port.blocked_for {
            let _ = write!(
                text,
                "\n{}: blocked, as it is in a loop with {other}; nothing is flooded by it",
                port.name
            );
        }
        if let Some(to) = &port.mirror_to {
            let _ = write!(text, "\n{}: mirrored to {to}", port.name);
        }
    }
    text
}

fn grid(list: &[SwitchPort]) -> comfy_table::Table {
    let columns = ["port", "number", "state", "mode", "VLANs"].into_iter().chain(headers::<SwitchPort>());
    let mut ports = table(&columns.collect::<Vec<_>>(), 5);
    for port in list {
        let which = [
            port.name.clone(),
            port.number.to_string(),
            port.state.clone(),
            port.mode.clone(),
            vlans_of(port),
        ];
        ports.add_row(which.into_iter().chain(cells(port)));
    }
    ports
}

fn vlans_of(port: &SwitchPort) -> String {
    match port.native {
        Some(native) => format!("{} (native {native})", port.vlans),
        None => port.vlans.clone(),
    }
}

/// The addresses, in the order of the report.
pub(super) fn macs(report: &Report) -> String {
    let Some(switch) = &report.switch else { return NO_SWITCH.to_owned() };
    if report.macs.is_empty() {
        return format!("switch {}: no addresses are known", switch.name);
    }
    let mut macs = table(&["mac", "vlan", "port", "last frame"], 3);
    for mac in &report.macs {
        macs.add_row([
            mac.mac.clone(),
            if mac.vlan == 0 { "-".to_owned() } else { mac.vlan.to_string() },
            mac.port.clone(),
            mac.age_s.map_or_else(|| "static".to_owned(), |age| format!("{age} s ago")),
        ]);
    }
    macs.to_string()
}

const NO_SWITCH: &str = "this instance is no switch, and has no ports";
