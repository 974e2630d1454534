//! Formats a switch's OpenFlow report.

use std::fmt::Write as _;

use twinpath_observe::command::Topic;
use twinpath_observe::report::{Controller, Flow, Group, Meter, OpenFlow, Report};

use super::grid::table;

/// The output for a switch without tables.
const NO_TABLES: &str = "this instance is no switch with OpenFlow tables: a switch has them once it is given --controller or --listen";

/// The requested part about OpenFlow.
pub(super) fn render(topic: Topic, report: &Report) -> Option<String> {
    let has_tables = report.switch.as_ref().is_some_and(|switch| switch.openflow.is_some());
    let render: fn(&Report) -> String = match topic {
        Topic::Flows => |report| flows(&report.flows),
        Topic::Groups => |report| groups(&report.groups),
        Topic::Meters => |report| meters(&report.meters),
        Topic::Controllers => |report| controllers(&report.controllers),
        Topic::All if has_tables => |report| controllers(&report.controllers),
        _ => return None,
    };
    Some(if has_tables { render(report) } else { NO_TABLES.to_owned() })
}

/// A summary of a switch's OpenFlow, one line each.
pub(super) fn summary(openflow: &OpenFlow) -> Vec<String> {
    let OpenFlow { datapath_id, fail_mode, connected, flows, groups, meters, tables, .. } = openflow;
    let mut lines = vec![format!(
        "OpenFlow: datapath {datapath_id}, {connected} controllers connected, fail mode {fail_mode}; {flows} flows, {groups} groups, \
         {meters} meters; {} frames to controllers, {} from them",
        openflow.packet_ins, openflow.packet_outs
    )];
    if openflow.forwarding == "addresses" {
        lines.push("no controller is connected: frames go by learned addresses".to_owned());
    }
    for worker in &openflow.waiting_for {
        lines.push(format!("worker {worker} does not turn: changes of the tables go on without it"));
    }
    for table in tables {
        lines.push(format!(
            "table {}: {} flows, {} packets looked up, {} matched",
            table.table, table.flows, table.lookups, table.matched
        ));
    }
    lines
}

fn flows(flows: &[Flow]) -> String {
    if flows.is_empty() {
        return "no flows".to_owned();
    }
    let mut grid = table(
        &["table", "priority", "packets", "bytes", "age", "timeouts", "by", "match", "instructions"],
        usize::MAX,
    );
    for flow in flows {
        let timeouts = match (flow.idle_timeout_s, flow.hard_timeout_s) {
            (0, 0) => "-".to_owned(),
            (idle, 0) => format!("idle {idle} s"),
            (0, hard) => format!("hard {hard} s"),
            (idle, hard) => format!("idle {idle} s, hard {hard} s"),
        };
        grid.add_row([
            flow.table.to_string(),
            flow.priority.to_string(),
            flow.packets.to_string(),
            flow.bytes.to_string(),
            format!("{} s", flow.age_s),
            timeouts,
            match (&flow.why_not, &flow.hook) {
                (Some(why_not), _) => format!("{} ({why_not})", flow.place),
                (None, Some(hook)) => format!("{} ({hook})", flow.place),
                (None, None) => flow.place.clone(),
            },
            flow.matches.clone(),
            flow.instructions.clone(),
        ]);
    }
    grid.to_string()
}

fn groups(groups: &[Group]) -> String {
    let mut text = String::new();
    for group in groups {
        let Group { group: number, kind, flows, packets, bytes, buckets } = group;
        let _ = writeln!(
            text,
            "group {number} ({kind}): {packets} packets, {bytes} bytes; {flows} flows send to it"
        );
        for bucket in buckets {
            let mut about = String::new();
            if bucket.weight > 0 {
                let _ = write!(about, ", weight {}", bucket.weight);
            }
            if let Some(port) = bucket.watch_port {
                let _ = write!(about, ", watches port {port}");
            }
            if let Some(group) = bucket.watch_group {
                let _ = write!(about, ", watches group {group}");
            }
            let _ = writeln!(
                text,
                "  {}{about}: {} packets, {} bytes",
                bucket.actions, bucket.packets, bucket.bytes
            );
        }
    }
    if text.is_empty() { "no groups".to_owned() } else { text.trim_end().to_owned() }
}

fn meters(meters: &[Meter]) -> String {
    let mut text = String::new();
    for meter in meters {
        let Meter { meter: number, unit, flows, packets, bytes, bands } = meter;
        let _ = writeln!(
            text,
            "meter {number} ({unit}): {packets} packets, {bytes} bytes; {flows} flows name it"
        );
        for band in bands {
            let _ = writeln!(text, "  {}: {} packets, {} bytes", band.band, band.packets, band.bytes);
        }
    }
    if text.is_empty() { "no meters".to_owned() } else { text.trim_end().to_owned() }
}

fn controllers(controllers: &[Controller]) -> String {
    if controllers.is_empty() {
        return "no controllers".to_owned();
    }
    let mut grid = table(&["controller", "state", "role", "other end", "why"], usize::MAX);
    for controller in controllers {
        let state = match (controller.state.as_str(), controller.seconds) {
            ("connected", Some(seconds)) => format!("connected for {seconds} s"),
            ("waiting", Some(seconds)) => format!("tried again in {seconds} s"),
            (state, _) => state.to_owned(),
        };
        grid.add_row([
            controller.address.clone(),
            state,
            controller.role.clone().unwrap_or_else(|| "-".to_owned()),
            if controller.peer.is_empty() { "-".to_owned() } else { controller.peer.clone() },
            controller.last_error.clone().unwrap_or_default(),
        ]);
    }
    grid.to_string()
}
