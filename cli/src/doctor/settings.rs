//! The settings that `twinpath tune` finds not as advised.

use twinpath_config::Mode;
use twinpath_tune::{Host, Line, State, Wish, advise, survey, topology};

use super::NotKnown;

/// Names of such settings of an interface, or only of the machine, for workers in the default mode on any
/// CPU.
pub(super) fn not_as_advised(interface: Option<&str>, not_known: &mut Vec<NotKnown>) -> Vec<String> {
    let what = || format!("settings of {}", interface.unwrap_or("the machine"));
    let host = match Host::open(interface) {
        Ok(host) => host,
        Err(error) => {
            not_known.push(NotKnown::new(what(), error));
            return Vec::new();
        }
    };
    let topology = match topology::look(&host, interface) {
        Ok(topology) => topology,
        Err(error) => {
            not_known.push(NotKnown::new(what(), error));
            return Vec::new();
        }
    };
    let wish = Wish { mode: Mode::default(), cpus: Vec::new() };
    let is_open = |line: &Line| matches!(line.state, State::Change | State::ForYou);
    let is_meant = |line: &Line| interface.is_none() || !line.id.is_of_machine();
    let mut lines = survey::survey(&host, advise::advise(&topology, &wish));
    lines.retain(|line| is_open(line) && is_meant(line));
    let mut names: Vec<String> = lines.iter().map(|line| line.id.to_string()).collect();
    names.dedup();
    names
}
