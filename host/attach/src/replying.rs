//! The replies that an attachment's programs send by themselves: the data that they need, and their
//! counters.

use twinpath_bpf::{ReflexPeer, ReflexTap, Reflexes, SteerError};
use twinpath_udp::egress::{Egress, Update};
use twinpath_wire::eth;

use crate::attachment::Attachment;

impl Attachment {
    /// Why the programs answer nothing by themselves; `None` if they do.
    #[must_use]
    pub fn no_reflex(&self) -> Option<&str> {
        self.replying.none.as_deref().or(self.replying.suspended.as_deref())
    }

    /// Why they do not repeat kept replies, although there are some; `None` if they do.
    #[must_use]
    pub fn no_kept(&self) -> Option<&str> {
        self.replying.no_kept.as_deref()
    }

    /// Whether the programs were loaded with the memory of kept replies, or the kernel refused that.
    #[must_use]
    pub const fn knows_kept(&self) -> bool {
        self.replying.knows_kept
    }

    /// The programs' counters of their own replies; `None` if they send none.
    #[must_use]
    pub const fn reflexes(&self) -> Option<&Reflexes> {
        self.steering.counted_reflexes()
    }

    /// Shows these captures the requests that the programs reply to, and no others. While one of them
    /// cannot be shown that, every request goes to a worker.
    pub fn show_replies<'a>(&mut self, taps: impl Iterator<Item = Result<&'a ReflexTap, &'a str>>) {
        let Some(reflexes) = self.steering.reflexes() else { return };
        let taps = taps.map(|tap| tap.map_err(str::to_owned)).collect::<Result<Vec<_>, _>>();
        let shown = taps
            .as_deref()
            .map_err(Clone::clone)
            .and_then(|taps| reflexes.set_taps(taps).map_err(|error| error.to_string()));
        if shown.is_err() {
            // This includes captures that could be shown it: workers show them their requests.
            let _ = reflexes.set_taps(&[]);
        }
        reflexes.suspend(shown.is_err());
        self.replying.suspended = shown.err().map(|why| {
            let why = format!("a capture runs, to which this kernel's programs cannot copy frames: {why}");
            tracing::warn!("workers answer everything: {why}");
            why
        });
    }

    /// The interface's MTU (bytes) has changed, or has become known.
    pub fn mtu_changed(&self, mtu: u32) {
        if let Some(reflexes) = self.steering.counted_reflexes() {
            reflexes.set_frame_len_max(mtu + eth::HEADER_LEN as u32);
        }
    }

    /// The egress of a peer has changed: the programs reply only to peers whose replies leave by this
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
            Update::AskAgain { peer } => {
                reflexes.show_to_worker(*peer, twinpath_sys::clock::now().as_nanos())
            }
            Update::Forget { peer } => reflexes.set_peer(*peer, None, 0),
            Update::Clear => reflexes.clear_peers(),
        }
    }
}
