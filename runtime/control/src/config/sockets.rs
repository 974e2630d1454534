//! How the kernel's TCP sockets are served.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The way asked for: `worker.sockets`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sockets {
    /// The better one by measurement, where the kernel allows it.
    #[default]
    Auto,
    /// Told by epoll, a system call for each receive and send.
    Epoll,
    /// Through io_uring: receives stay armed, and a turn's sends leave with one system call.
    #[serde(rename = "io_uring")]
    IoUring,
}

impl Sockets {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Epoll, Self::IoUring];

    /// The name users see.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Epoll => "epoll",
            Self::IoUring => "io_uring",
        }
    }
}

impl fmt::Display for Sockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Sockets {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|way| way.name() == name);
        found.ok_or_else(|| format!("unknown way to serve sockets '{name}': choose auto, epoll or io_uring"))
    }
}
