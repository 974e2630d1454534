//! Moves of learned addresses, as workers tell the kernel's programs of all network namespaces.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering, fence};

use twinpath_steer_bpf::{MoveWords, Offload};
use twinpath_switch::{OnMove, PORT_MAX};
use twinpath_wire::Mac;

/// Network namespaces in which the kernel forwards between learned addresses, at most: each has programs of its own, which
/// take some MiB of the kernel's memory.
pub const LEARNED_HOMES_MAX: usize = 64;

/// The port is in none of the namespaces.
const NOWHERE: u8 = u8::MAX;

/// The words of the namespaces that there are so far, and in which of them each port is. Workers share it.
#[derive(Debug)]
pub struct Moves {
    words: [OnceLock<MoveWords>; LEARNED_HOMES_MAX],
    ports: Box<[AtomicU8]>,
    secret: [u64; 2],
}

impl Moves {
    /// No namespace yet. Who does not know the secret cannot find addresses whose moves make entries of others void.
    #[must_use]
    pub fn new(secret: [u64; 2]) -> Self {
        let ports = (0..=PORT_MAX).map(|_| AtomicU8::new(NOWHERE)).collect();
        Self { words: [const { OnceLock::new() }; LEARNED_HOMES_MAX], ports, secret }
    }

    /// Has workers tell the programs of another namespace. Returns its place, if there was room.
    pub fn add(&self, offload: &mut Offload) -> Option<u8> {
        offload.moves_mut().keep_secret(self.secret);
        let free = |place: &OnceLock<MoveWords>| place.set(offload.moves().clone()).is_ok();
        self.words.iter().position(free).map(|place| place as u8)
    }

    /// Says in which of them a port is; `None`: in none. No entry for its frames is in force meanwhile.
    pub(crate) fn set_port(&self, port: u32, place: Option<u8>) {
        if let Some(word) = self.ports.get(port as usize) {
            word.store(place.unwrap_or(NOWHERE), Ordering::SeqCst);
        }
        // Before an entry is made, the table is looked at: either that sees a move, or the move sees this.
        fence(Ordering::SeqCst);
    }
}

impl OnMove for Moves {
    /// Only entries of the namespace of the port `from` can be for the address.
    fn moved(&self, mac: Mac, vlan: u16, from: u16) {
        fence(Ordering::SeqCst);
        let place = self.ports.get(usize::from(from)).map_or(NOWHERE, |place| place.load(Ordering::SeqCst));
        if let Some(words) = self.words.get(usize::from(place)).and_then(OnceLock::get) {
            words.moved(mac, vlan);
        }
    }
}
