//! The part of the report about programs that the owner of an interface gives rings.

use serde::{Deserialize, Serialize};

/// A program that is connected to the owner of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Program {
    /// Process id; 0 if the owner cannot see the process.
    pub pid: i32,
    /// Its user.
    pub user: u32,
    /// Its name, which it may choose.
    pub name: String,
    /// The addresses that its sockets with a lease are bound to.
    pub sockets: Vec<String>,
    /// Frames that were put into its rings.
    pub by_ring: u64,
}
