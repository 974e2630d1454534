//! Moves of learned addresses, as workers tell the kernel's programs of all network namespaces.

use std::sync::OnceLock;

use twinpath_steer_bpf::MoveWords;
use twinpath_switch::OnMove;
use twinpath_wire::Mac;

/// Network namespaces in which the kernel forwards between learned addresses, at most: each has programs of its own, which
/// take some MiB of the kernel's memory.
pub const LEARNED_HOMES_MAX: usize = 64;

/// The words of the namespaces that there are so far. Workers share it.
#[derive(Debug)]
pub struct Moves([OnceLock<MoveWords>; LEARNED_HOMES_MAX]);

impl Default for Moves {
    fn default() -> Self {
        Self([const { OnceLock::new() }; LEARNED_HOMES_MAX])
    }
}

impl Moves {
    /// Has workers tell the programs of another namespace. Returns whether there was room.
    pub fn add(&self, words: &MoveWords) -> bool {
        self.0.iter().any(|place| place.set(words.clone()).is_ok())
    }
}

impl OnMove for Moves {
    fn moved(&self, mac: Mac, vlan: u16) {
        self.0.iter().map_while(OnceLock::get).for_each(|words| words.moved(mac, vlan));
    }
}
