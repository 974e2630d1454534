//! Formats the report of an interface's owner about programs.

use twinpath_observe::report::{Program, Report};

use super::grid::{cells, headers, table};

/// The programs, with their sockets.
pub(super) fn programs(report: &Report) -> String {
    if report.programs.is_empty() {
        return "no programs: `twinpath run` connects to an owner if a program has no rights of its own"
            .to_owned();
    }
    let columns = ["pid", "user", "program"].into_iter().chain(headers::<Program>()).chain(["sockets"]);
    let mut programs = table(&columns.collect::<Vec<_>>(), 4);
    for program in &report.programs {
        let which = [program.pid.to_string(), program.user.to_string(), program.name.clone()];
        programs.add_row(which.into_iter().chain(cells(program)).chain([program.sockets.join(", ")]));
    }
    programs.to_string()
}
