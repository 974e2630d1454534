//! Moves of learned addresses, as workers tell the kernel's programs of all network namespaces.

use std::sync::atomic::{AtomicU8, Ordering, fence};
use std::sync::{PoisonError, RwLock, RwLockWriteGuard};

use twinpath_bpf::{MoveWords, Offload};
use twinpath_forwarding::learning::{OnMove, PORT_MAX};
use twinpath_wire::Mac;

/// Maximum number of network namespaces in which the kernel forwards between learned addresses at the same time. Each
/// has programs of its own, which take some MiB of the kernel's memory.
pub const LEARNED_HOMES_MAX: usize = 64;

/// The port is in none of the namespaces.
const NOWHERE: u8 = u8::MAX;

/// The words of the namespaces that there are so far, and in which of them each port is. Workers share it.
#[derive(Debug)]
pub struct Moves {
    words: [RwLock<Option<MoveWords>>; LEARNED_HOMES_MAX],
    ports: Box<[AtomicU8]>,
    secret: [u64; 2],
}

impl Moves {
    /// No namespace yet. Without the secret, nobody can find addresses whose moves make entries of others void.
    #[must_use]
    pub fn new(secret: [u64; 2]) -> Self {
        let ports = (0..=PORT_MAX).map(|_| AtomicU8::new(NOWHERE)).collect();
        Self { words: [const { RwLock::new(None) }; LEARNED_HOMES_MAX], ports, secret }
    }

    /// Has workers tell the programs of another namespace. Returns its place, if there was room.
    pub fn add(&self, offload: &mut Offload) -> Option<u8> {
        offload.moves_mut().keep_secret(self.secret);
        // Those in use are never locked for writing: a worker would miss a move.
        let is_free = |words: &RwLock<Option<MoveWords>>| words.read().is_ok_and(|words| words.is_none());
        let place = self.words.iter().position(is_free)?;
        *write(&self.words[place]) = Some(offload.moves().clone());
        Some(place as u8)
    }

    /// The namespace at that place has no entries any more: another one may have the place.
    pub(crate) fn remove(&self, place: u8) {
        for port in self.ports.iter().filter(|port| port.load(Ordering::SeqCst) == place) {
            port.store(NOWHERE, Ordering::SeqCst);
        }
        if let Some(words) = self.words.get(usize::from(place)) {
            *write(words) = None;
        }
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

fn write(words: &RwLock<Option<MoveWords>>) -> RwLockWriteGuard<'_, Option<MoveWords>> {
    words.write().unwrap_or_else(PoisonError::into_inner)
}

impl OnMove for Moves {
    /// Only entries of the namespace of the port `from` can be for the address.
    fn moved(&self, mac: Mac, vlan: u16, from: u16) {
        fence(Ordering::SeqCst);
        let place = self.ports.get(usize::from(from)).map_or(NOWHERE, |place| place.load(Ordering::SeqCst));
        // It never waits: words are only taken away or put in while no port is in their namespace, so there is no entry that this
        // move could concern.
        let words = self.words.get(usize::from(place)).and_then(|words| words.try_read().ok());
        if let Some(words) = words.as_ref().and_then(|words| words.as_ref()) {
            words.moved(mac, vlan);
        }
    }
}
