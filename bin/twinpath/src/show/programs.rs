//! Formats what the owner of an interface reports of programs.

use twinpath_report::Report;

use super::grid::table;

/// The programs, with their sockets.
pub(super) fn programs(report: &Report) -> String {
    if report.programs.is_empty() {
        return "no programs: `twinpath run` connects to an owner if a program has no rights of its own"
            .to_owned();
    }
    let mut programs = table(&["pid", "user", "program", "by the ring", "sockets"], 4);
    for program in &report.programs {
        programs.add_row([
            program.pid.to_string(),
            program.user.to_string(),
            program.name.clone(),
            program.by_ring.to_string(),
            program.sockets.join(", "),
        ]);
    }
    programs.to_string()
}
