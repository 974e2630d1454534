//! Counters of interfaces, from `/proc/net/dev` of their namespace.

use anyhow::Context;
use twinpath_sys::Namespace;

/// Frames of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counters {
    pub(crate) received: u64,
    pub(crate) sent: u64,
}

impl Counters {
    /// Those of an interface of that namespace.
    pub(crate) fn of(namespace: &Namespace, interface: &str) -> anyhow::Result<Self> {
        let table = namespace.run(|| std::fs::read_to_string("/proc/thread-self/net/dev"))??;
        Self::read(&table, interface).with_context(|| format!("{interface} has no counters"))
    }

    /// The second and the tenth number of the interface's line: bytes come first.
    fn read(table: &str, interface: &str) -> Option<Self> {
        let mut lines = table.lines();
        let line = lines.find_map(|line| line.trim_start().strip_prefix(interface)?.strip_prefix(':'))?;
        let number = |at| line.split_whitespace().nth(at)?.parse().ok();
        Some(Self { received: number(1)?, sent: number(9)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_found_in_the_kernels_table() {
        let table =
            " face |bytes packets errs\n    lo: 1 2 0\nhost10:3 4 0\n host1:   5 66 0 0 0 0 0 0 7 88 0\n";
        assert_eq!(Counters::read(table, "host1"), Some(Counters { received: 66, sent: 88 }));
        assert_eq!(Counters::read(table, "host"), None);
    }
}
