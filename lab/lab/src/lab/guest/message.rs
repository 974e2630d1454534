//! The messages between host and guest: the order in a file of the guest's first file system, and the guest's messages
//! as lines of JSON.

use serde::{Deserialize, Serialize};

/// The work of the guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Order {
    /// Kernel modules, in the order of loading.
    pub(super) modules: Vec<String>,
    /// Network cards that are to have a virtual function each.
    pub(super) divided: Vec<String>,
    /// The modules of these functions' driver, which are loaded once the functions are there.
    pub(super) function_modules: Vec<String>,
    /// The command line of the lab.
    pub(super) lab: Vec<String>,
    /// Facts about the machine from the host, for the report.
    pub(super) notes: Vec<String>,
}

/// A message of the guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Message {
    /// The first message: kernel and modules are loaded.
    Started,
    /// Sent now and then, so that silence is a failure.
    Alive,
    /// A line of the lab's progress.
    Progress(String),
    /// The lab's table.
    Printed(String),
    /// The object of `--json`.
    Json(String),
    /// The page of `--html`.
    Html(String),
    /// The lab could not be run.
    Failed(String),
    /// The last message: the lab's exit code.
    Ended(u8),
}
