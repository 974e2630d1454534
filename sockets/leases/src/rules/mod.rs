//! The rules of `twinpath run`: which UDP sockets of which programs have a fast path. As a user writes them (TOML), and as one line,
//! for the library in the program; and how that gets there.

mod file;
mod line;
mod loading;

use std::net::{IpAddr, SocketAddr};

use twinpath_worker::idle::Mode;

pub use file::FileError;
pub use line::LineError;
pub use loading::{ASAN_VARIABLE, PRELOAD_VARIABLE, asan_options, preload};

/// The environment variable with the rules, as one line.
pub const RULES_VARIABLE: &str = "TWINPATH_RUN_RULES";
/// The one with the file that tells which path each socket has, and why; `-` is standard error.
pub const EXPLAIN_VARIABLE: &str = "TWINPATH_RUN_EXPLAIN";
/// The one that says by whose rights sockets get rings, as `crate::lending::Access` is written.
pub const OWNER_VARIABLE: &str = "TWINPATH_RUN_OWNER";

/// A rule. What is `None` matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// The name of the program's file, without folders.
    pub program: Option<String>,
    /// The first and the last port.
    pub ports: Option<(u16, u16)>,
    /// The address that the socket is bound to.
    pub address: Option<IpAddr>,
    /// Whether it also matches ports that the kernel has chosen, as clients have them.
    pub chosen_ports: bool,
    /// Whether the socket stays with the kernel.
    pub is_kernel: bool,
    /// The interface of the fast path; without one, the interface that has the socket's address, or the only one there is.
    pub interface: Option<String>,
    /// When calls spin and when they sleep.
    pub mode: Mode,
    /// Whether `bind` waits for the lease. Otherwise a socket gets one when it has received enough, and no call waits.
    pub at_bind: bool,
}

/// A bound socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Its address.
    pub local: SocketAddr,
    /// Whether the kernel has chosen its port.
    pub is_chosen: bool,
}

/// Rules: the first one that matches decides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// In the order in which they were written.
    pub rules: Vec<Rule>,
}

impl Rules {
    /// The rule for a socket of a program; `None` if none matches, so that it stays with the kernel.
    #[must_use]
    pub fn of(&self, program: &str, bound: Bound) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.matches(program, bound))
    }
}

impl Rule {
    fn matches(&self, program: &str, bound: Bound) -> bool {
        let Bound { local, is_chosen } = bound;
        self.program.as_ref().is_none_or(|name| name == program)
            && (self.chosen_ports || !is_chosen)
            && self.ports.is_none_or(|(first, last)| (first..=last).contains(&local.port()))
            && self.address.is_none_or(|address| address == local.ip().to_canonical())
    }
}
