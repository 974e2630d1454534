//! Spare sockets, so that frames queued for one port do not delay frames of another port.
//!
//! The kernel charges a frame to the socket that sent it until the frame is freed, wherever it waits: in the queue
//! of a device, or of a shaper that it reached through a veth pair and a bridge. It does not say which port's
//! frames these are. So a port whose frames stay (they are sent slowly, or not at all) fills the socket that all
//! ports share. From then on, a port that finds the shared socket full gets a spare one. If the port's frames do
//! not stay, its spare socket becomes empty, and another port may have it immediately. If they stay, as behind a
//! shaper with a standing queue, the port keeps the socket, fills it, and then loses only its own frames. The
//! choice of a socket has no other effect: frames leave in the order in which they are sent.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use twinpath_sys::send_queue;

/// Maximum number of spare sockets of a queue. This many ports may be stuck without cost to others.
pub const SPARES_MAX: usize = 16;

/// One in this many calls of [`Spares::give_back`] looks at the sockets, which costs a system call each.
const BURSTS_PER_LOOK: u32 = 64;

#[derive(Debug)]
struct Spare {
    socket: Arc<OwnedFd>,
    /// The port that has it.
    port: Option<u16>,
}

/// The spare sockets of a queue. No memory is allocated after the start.
#[derive(Debug)]
pub(crate) struct Spares {
    spares: Vec<Spare>,
    /// How many are in use by a port.
    given: usize,
    bursts: u32,
}

impl Spares {
    pub(crate) fn new() -> Self {
        Self { spares: Vec::with_capacity(SPARES_MAX), given: 0, bursts: 0 }
    }

    /// Adds a socket that came with a port. It stays with the queue; more than [`SPARES_MAX`] are not needed.
    pub(crate) fn add(&mut self, socket: &Arc<OwnedFd>) {
        if self.spares.len() < SPARES_MAX {
            self.spares.push(Spare { socket: Arc::clone(socket), port: None });
        }
    }

    /// The index of a port's spare socket.
    #[inline]
    pub(crate) fn of(&self, port: u16) -> Option<usize> {
        if self.given == 0 { None } else { self.spares.iter().position(|spare| spare.port == Some(port)) }
    }

    pub(crate) fn socket(&self, place: usize) -> &OwnedFd {
        &self.spares[place].socket
    }

    /// Gives a port without a spare socket one that has nothing queued. `None` if there is none.
    #[cold]
    pub(crate) fn give(&mut self, port: u16) -> Option<usize> {
        let free = self.spares.iter().position(|spare| spare.port.is_none());
        let place = free.or_else(|| self.spares.iter().position(|spare| queued(&spare.socket) == 0))?;
        self.given += usize::from(free.is_some());
        self.spares[place].port = Some(port);
        Some(place)
    }

    /// Before a burst: once the shared sockets have room again, takes back the spare sockets that have nothing
    /// queued.
    #[inline]
    pub(crate) fn give_back(&mut self, has_room: impl FnOnce() -> bool) {
        if self.given > 0 {
            self.bursts = self.bursts.wrapping_add(1);
            if self.bursts.is_multiple_of(BURSTS_PER_LOOK) && has_room() {
                self.take_back();
            }
        }
    }

    #[cold]
    fn take_back(&mut self) {
        for spare in self.spares.iter_mut().filter(|spare| spare.port.is_some()) {
            if queued(&spare.socket) == 0 {
                spare.port = None;
                self.given -= 1;
            }
        }
    }
}

/// Frames sent by this socket that the kernel has not freed yet, in bytes of the kernel's memory.
pub(crate) fn queued(socket: &OwnedFd) -> usize {
    // This does not fail for a packet socket; one that did is not given to another port.
    send_queue::queued(socket).unwrap_or(usize::MAX)
}
