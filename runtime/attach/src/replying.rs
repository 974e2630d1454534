//! What an attachment's programs answer by themselves: what they know for it, and what they have counted.

use twinpath_stack::egress::{Egress, Update};
use twinpath_steer_bpf::{ReflexPeer, Reflexes, SteerError};
use twinpath_wire::eth;

use crate::attachment::Attachment;

impl Attachment {
    /// Why the programs answer nothing by themselves; `None` if they do.
    #[must_use]
    pub fn no_reflex(&self) -> Option<&str> {
        self.replying.none.as_deref()
    }

    /// Why they do not repeat kept replies, though there are some; `None` if they do.
    #[must_use]
    pub fn no_kept(&self) -> Option<&str> {
        self.replying.no_kept.as_deref()
    }

    /// Whether the programs were loaded with the memory of kept replies, or the kernel refused that.
    #[must_use]
    pub const fn knows_kept(&self) -> bool {
        self.replying.knows_kept
    }

    /// What the programs have counted of their own replies; `None` if they give none.
    #[must_use]
    pub const fn reflexes(&self) -> Option<&Reflexes> {
        self.steering.counted_reflexes()
    }

    /// While they are suspended, every request goes to a worker.
    pub fn suspend_reflexes(&self, suspended: bool) {
        if let Some(reflexes) = self.steering.counted_reflexes() {
            reflexes.suspend(suspended);
        }
    }

    /// The interface's MTU, bytes, has changed, or is known.
    pub fn mtu_changed(&self, mtu: u32) {
        if let Some(reflexes) = self.steering.counted_reflexes() {
            reflexes.set_frame_len_max(mtu + eth::HEADER_LEN as u32);
        }
    }

    /// Replies to a peer leave in another way than before: the programs reply to those whose replies leave by this
    /// interface.
    ///
    /// # Errors
    /// The map of peers refused it; the programs do not reply to that peer then.
    pub fn egress_changed(&mut self, update: &Update) -> Result<(), SteerError> {
        let ifindex = self.target.ifindex;
        let Some(reflexes) = self.steering.reflexes() else { return Ok(()) };
        let here = |egress: &Egress| egress.ifindex == ifindex;
        match update {
            Update::Learn { peer, answer } => {
                let way = answer.ok().filter(here).map(|egress| ReflexPeer {
                    next_hop: egress.next_hop_mac,
                    own: egress.source_mac,
                    mtu: egress.mtu,
                });
                reflexes.set_peer(*peer, way, twinpath_sys::clock::now().as_nanos())
            }
            Update::Forget { peer } => reflexes.set_peer(*peer, None, 0),
            Update::Clear => reflexes.clear_peers(),
        }
    }
}
