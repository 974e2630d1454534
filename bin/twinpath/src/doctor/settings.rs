//! The settings that `twinpath tune` finds not as advised.

use twinpath_config::Mode;
use twinpath_tune::{Host, Line, State, Wish, advise, survey, topology};

/// The names of those of an interface, or of the machine alone, for workers in the default mode on any CPU.
pub(super) fn not_as_advised(interface: Option<&str>) -> Vec<String> {
    let Ok(host) = Host::open(interface) else { return Vec::new() };
    let Ok(topology) = topology::look(&host, interface) else { return Vec::new() };
    let wish = Wish { mode: Mode::default(), cpus: Vec::new() };
    let is_open = |line: &Line| matches!(line.state, State::Change | State::ForYou);
    let is_meant = |line: &Line| interface.is_none() || !line.id.is_of_machine();
    let mut lines = survey::survey(&host, advise::advise(&topology, &wish));
    lines.retain(|line| is_open(line) && is_meant(line));
    let mut names: Vec<String> = lines.iter().map(|line| line.id.to_string()).collect();
    names.dedup();
    names
}
