//! The metric families of switches; they follow the others in docs/metrics.md.

use super::declared::{OPENFLOW, PORTS, SWITCH, SWITCHING, TABLES};
use super::families::gauge;
use super::rows::{each, flag};
use super::{Family, Row, Value};
use crate::report::{OpenFlow, Report, SwitchPort};

/// The families.
pub(super) fn all() -> Vec<Family> {
    let families = [
        of_port(),
        PORTS.families(),
        SWITCH.families(),
        SWITCHING.families(),
        OPENFLOW.families(),
        TABLES.families(),
        of_openflow(),
    ];
    families.into_iter().flatten().collect()
}

fn of_port() -> Vec<Family> {
    vec![
        gauge(
            "twinpath_switch_port_up",
            "1 while the port of a switch carries frames.",
            &["port"],
            |report| of_ports(report, |port| port.state == "up"),
        ),
        gauge(
            "twinpath_switch_port_blocked",
            "1 while the port is blocked because it is in a loop with another.",
            &["port"],
            |report| of_ports(report, |port| port.blocked_for.is_some()),
        ),
    ]
}

fn of_openflow() -> Vec<Family> {
    vec![
        gauge(
            "twinpath_openflow_standalone",
            "1 while frames go by learned addresses because no controller is connected.",
            &[],
            |report| of_the_openflow(report, |openflow| (openflow.forwarding == "addresses").into()),
        ),
        gauge(
            "twinpath_openflow_workers_late",
            "Workers that are late with changes of the tables.",
            &[],
            |report| of_the_openflow(report, |openflow| openflow.waiting_for.len() as u64),
        ),
    ]
}

/// One row, if the program is a switch with OpenFlow tables.
fn of_the_openflow(report: &Report, value: fn(&OpenFlow) -> u64) -> Vec<Row> {
    let openflow = report.switch.iter().filter_map(|switch| switch.openflow.as_ref());
    openflow.map(|openflow| Row { labels: vec![], value: Value::Count(value(openflow)) }).collect()
}

fn of_ports(report: &Report, is: fn(&SwitchPort) -> bool) -> Vec<Row> {
    each(&report.ports, |port| [Row { labels: vec![port.name.clone()], value: flag(is(port)) }])
}
