//! The cases of `lab stall`: what disturbs the switch.

use super::LAB;

/// What happens while packets are timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Disturbance {
    /// A controller does this, by its name in `plain openflow disturb`; undisturbed, a process that discards has it.
    Controller(&'static str),
    /// A controller causes lines of a log that nobody reads.
    Log,
    /// The switch has a controller whose name no resolver answers.
    Resolver,
    /// Ports are added and removed.
    Ports,
    /// The bulk traffic has many source addresses.
    Macs,
}

const DISTURBANCES: [(&str, Disturbance); 11] = [
    ("mods", Disturbance::Controller("mods")),
    ("priorities", Disturbance::Controller("priorities")),
    ("replace", Disturbance::Controller("replace")),
    ("dump", Disturbance::Controller("dump")),
    ("barriers", Disturbance::Controller("barriers")),
    ("silent", Disturbance::Controller("silent")),
    ("log", Disturbance::Log),
    ("resolver", Disturbance::Resolver),
    ("ports", Disturbance::Ports),
    ("macs", Disturbance::Macs),
    ("hostile", Disturbance::Controller("hostile")),
];

/// A row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    pub(super) row: &'static str,
    pub(super) disturbance: Disturbance,
    pub(super) is_disturbed: bool,
}

impl Case {
    fn of(row: &'static str) -> Option<Self> {
        let (how, name) = row.split_once('-')?;
        let (_, disturbance) = DISTURBANCES.into_iter().find(|(known, _)| *known == name)?;
        let is_disturbed = match how {
            "base" | "again" => false,
            "stall" => true,
            _ => return None,
        };
        Some(Self { row, disturbance, is_disturbed })
    }

    /// What a controller does, as `plain openflow disturb` has it.
    pub(super) fn controller(&self) -> Option<&'static str> {
        match self.disturbance {
            Disturbance::Controller(how) => Some(how),
            Disturbance::Log => Some("port-mods"),
            Disturbance::Resolver | Disturbance::Ports | Disturbance::Macs => None,
        }
    }

    /// The flows that take the traffic, as `plain openflow` has them.
    pub(super) fn flows(&self) -> &'static str {
        match self.disturbance {
            Disturbance::Macs => "normal",
            Disturbance::Controller("silent") if self.is_disturbed => "two-ports --flood",
            _ => "two-ports",
        }
    }

    /// What differs between the frames of the bulk traffic, as `plain frame-source` has it.
    pub(super) fn varied(&self) -> &'static str {
        match self.disturbance {
            Disturbance::Macs if self.is_disturbed => "sources",
            Disturbance::Controller("hostile") => "hostile",
            _ => "nothing",
        }
    }
}

/// All of them.
pub(super) fn all() -> impl Iterator<Item = Case> {
    LAB.table.rows.iter().filter_map(|row| Case::of(row.id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_a_case_and_every_disturbance_has_rows() {
        let cases: Vec<_> = all().collect();
        assert_eq!(cases.iter().map(|case| case.row).collect::<Vec<_>>(), ids());
        for (name, disturbance) in DISTURBANCES {
            let rows = cases.iter().filter(|case| case.disturbance == disturbance).count();
            assert_eq!(rows, 3, "{name}");
        }
    }

    fn ids() -> Vec<&'static str> {
        LAB.table.rows.iter().map(|row| row.id).collect()
    }
}
