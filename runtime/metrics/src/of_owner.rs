//! The metric families of owners of an interface, behind the others in docs/metrics.md.

use twinpath_report::{Program, Report};

use super::families::{counter, gauge};
use super::{Family, Row, Value};

/// The families. Names and labels are stable, because dashboards depend on them.
pub(super) const FAMILIES: &[Family] = &[
    gauge("twinpath_program_sockets", "Sockets of a program that have a lease.", |report| {
        of_programs(report, |program| program.sockets.len() as u64)
    }),
    counter("twinpath_program_frames", "Frames that were put into the rings of a program.", |report| {
        of_programs(report, |program| program.by_ring)
    }),
];

fn of_programs(report: &Report, value: fn(&Program) -> u64) -> Vec<Row> {
    let row = |program: &Program| Row {
        labels: vec![
            ("pid", program.pid.to_string()),
            ("user", program.user.to_string()),
            ("program", program.name.clone()),
        ],
        value: Value::Count(value(program)),
    };
    report.programs.iter().map(row).collect()
}
