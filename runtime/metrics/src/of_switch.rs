//! The metric families of switches, behind the others in docs/metrics.md.

use twinpath_report::{FlowTable, OpenFlow, Report, Switch, SwitchPort};

use super::families::{counter, gauge};
use super::rows::{each, flag, with};
use super::{Family, Row, Value};

/// The families. Names and labels are stable, because dashboards depend on them.
pub(super) const FAMILIES: &[Family] = &[
    gauge("twinpath_switch_port_up", "1 while the port of a switch carries frames.", |report| {
        of_ports(report, |port| flag(port.state == "up"))
    }),
    gauge(
        "twinpath_switch_port_blocked",
        "1 while the port is blocked, as it is in a loop with another.",
        |report| of_ports(report, |port| flag(port.blocked_for.is_some())),
    ),
    gauge("twinpath_switch_port_addresses", "Addresses learned at the port.", |report| {
        of_ports(report, |port| Value::Count(port.addresses))
    }),
    counter(
        "twinpath_switch_port_frames",
        "Frames of the port, by direction, with those that the kernel forwards.",
        |report| by_direction(report, |port| [port.frames_in, port.frames_out]),
    ),
    counter(
        "twinpath_switch_port_bytes",
        "Bytes of the port from the Ethernet header, by direction.",
        |report| by_direction(report, |port| [port.bytes_in, port.bytes_out]),
    ),
    counter(
        "twinpath_switch_port_kernel_frames",
        "Frames of the port that the kernel forwarded, without a worker, by direction.",
        |report| by_direction(report, |port| [port.kernel_in, port.kernel_out]),
    ),
    gauge(
        "twinpath_switch_kernel_entries",
        "Entries by which the kernel forwards frames between two learned addresses.",
        |report| of_switch(report, |switch| switch.kernel_entries),
    ),
    counter("twinpath_switch_flooded", "Frames flooded, by kind of destination.", |report| {
        let of = |switch: &Switch| {
            let kinds = [
                ("broadcast", switch.flooded_broadcast),
                ("multicast", switch.flooded_multicast),
                ("unknown", switch.flooded_unknown),
            ];
            kinds.map(|(kind, count)| Row {
                labels: vec![("kind", kind.to_owned())],
                value: Value::Count(count),
            })
        };
        report.switch.iter().flat_map(of).collect()
    }),
    counter("twinpath_switch_addresses_learned", "Addresses learned so far.", |report| {
        of_switch(report, |switch| switch.learned)
    }),
    counter("twinpath_switch_addresses_moved", "Addresses that moved from one port to another.", |report| {
        of_switch(report, |switch| switch.moved)
    }),
    counter("twinpath_switch_loops", "Loops of two ports that were found.", |report| {
        of_switch(report, |switch| switch.loops)
    }),
    gauge("twinpath_openflow_controllers", "Controllers that are connected to a switch.", |report| {
        of_openflow(report, |openflow| openflow.connected)
    }),
    gauge(
        "twinpath_openflow_standalone",
        "1 while frames go by learned addresses, as no controller is connected.",
        |report| of_openflow(report, |openflow| (openflow.forwarding == "addresses").into()),
    ),
    gauge("twinpath_openflow_workers_late", "Workers that do not take changes of the tables.", |report| {
        of_openflow(report, |openflow| openflow.waiting_for.len() as u64)
    }),
    gauge("twinpath_openflow_flows", "Flows of a table.", |report| of_tables(report, |table| table.flows)),
    gauge("twinpath_openflow_groups", "Groups of a switch.", |report| {
        of_openflow(report, |openflow| openflow.groups)
    }),
    gauge("twinpath_openflow_meters", "Meters of a switch.", |report| {
        of_openflow(report, |openflow| openflow.meters)
    }),
    counter("twinpath_openflow_lookups", "Packets looked up in a table.", |report| {
        of_tables(report, |table| table.lookups)
    }),
    counter("twinpath_openflow_matched", "Packets that a flow of a table took.", |report| {
        of_tables(report, |table| table.matched)
    }),
    counter("twinpath_openflow_packet_ins", "Frames that workers had for controllers.", |report| {
        of_openflow(report, |openflow| openflow.packet_ins)
    }),
    counter("twinpath_openflow_packet_outs", "Frames of controllers that were sent.", |report| {
        of_openflow(report, |openflow| openflow.packet_outs)
    }),
];

/// One row, if the program is a switch with OpenFlow tables.
fn of_openflow(report: &Report, value: fn(&OpenFlow) -> u64) -> Vec<Row> {
    let openflow = report.switch.iter().filter_map(|switch| switch.openflow.as_ref());
    openflow.map(|openflow| Row { labels: vec![], value: Value::Count(value(openflow)) }).collect()
}

/// A row for each of its tables that is in use.
fn of_tables(report: &Report, value: fn(&FlowTable) -> u64) -> Vec<Row> {
    let tables = report.switch.iter().filter_map(|switch| switch.openflow.as_ref());
    let tables = tables.flat_map(|openflow| &openflow.tables);
    let row = |table: &FlowTable| Row {
        labels: vec![("table", table.table.to_string())],
        value: Value::Count(value(table)),
    };
    tables.map(row).collect()
}

fn of_switch(report: &Report, count: fn(&Switch) -> u64) -> Vec<Row> {
    report.switch.iter().map(|it| Row { labels: vec![], value: Value::Count(count(it)) }).collect()
}

fn of_ports(report: &Report, value: fn(&SwitchPort) -> Value) -> Vec<Row> {
    each(&report.ports, |it| [Row { labels: vec![("port", it.name.clone())], value: value(it) }])
}

fn by_direction(report: &Report, counts: fn(&SwitchPort) -> [u64; 2]) -> Vec<Row> {
    each(&report.ports, |port| {
        let [received, sent] = counts(port);
        [("in", received), ("out", sent)].map(|(direction, count)| Row {
            labels: with(vec![("port", port.name.clone())], "direction", direction),
            value: Value::Count(count),
        })
    })
}
