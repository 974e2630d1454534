//! The metric families of owners of an interface; they follow the others in docs/metrics.md.

use super::declared::PROGRAMS;
use super::families::gauge;
use super::{Family, Row, Value};

/// The families.
pub(super) fn all() -> Vec<Family> {
    let sockets =
        gauge("twinpath_program_sockets", "Sockets of a program with a lease.", PROGRAMS.labels, |report| {
            let programs = (PROGRAMS.each)(report).into_iter();
            programs
                .map(|(labels, program)| Row { labels, value: Value::Count(program.sockets.len() as u64) })
                .collect()
        });
    std::iter::once(sockets).chain(PROGRAMS.families()).collect()
}
