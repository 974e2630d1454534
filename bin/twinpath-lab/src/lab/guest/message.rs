//! What a guest is told, in a file of its first file system, and what it says, one JSON object per line.

use serde::{Deserialize, Serialize};

/// What the guest is to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Order {
    /// Kernel modules, in the order of loading.
    pub(super) modules: Vec<String>,
    /// Network cards that are to have a virtual function each.
    pub(super) divided: Vec<String>,
    /// The command line of the lab.
    pub(super) lab: Vec<String>,
    /// What the host knows about the machine, for the report.
    pub(super) notes: Vec<String>,
}

/// What the guest says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Message {
    /// First of all: the kernel and the modules are there.
    Started,
    /// Now and then, so that silence means something.
    Alive,
    /// A line of how far the lab is.
    Progress(String),
    /// The table.
    Printed(String),
    /// The object of `--json`.
    Json(String),
    /// The page of `--html`.
    Html(String),
    /// It could not run the lab.
    Failed(String),
    /// Last of all: what the lab ended with.
    Ended(u8),
}
