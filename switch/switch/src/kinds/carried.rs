//! What control knows of an interface that is a port, beside its link.

use twinpath_attach::ReceiveThread;
use twinpath_attach::mirror::table::Link;
use twinpath_sys::ethtool::{self, LinkSettings};

use crate::homes::{HomeAt, Homes};
use crate::offload::peer_of;

/// An interface that the queues of its network namespace carry.
#[derive(Default)]
pub(crate) struct Carried {
    /// The address of its other end, if it is a virtual pair that leads to another network namespace.
    pub(crate) peer: Option<[u8; 6]>,
    /// Whether its driver forwards frames, if the kernel forwards any; or why not.
    pub(crate) xdp: Option<Result<(), String>>,
    /// The thread of the kernel that takes its frames, if it is to have one.
    pub(crate) thread: Option<ReceiveThread>,
    /// Set while the kernel has not yet announced that it was set down (`true`) or up for a controller.
    pub(crate) asked_down: Option<bool>,
    /// How it is connected, as far as the kernel knows.
    pub(crate) settings: Option<LinkSettings>,
    /// It is the kernel's until all workers have the snapshot of that number.
    pub(crate) joins_with: Option<u64>,
}

impl Carried {
    /// Whether it is set down.
    pub(crate) fn is_down(&self, link: &Link) -> bool {
        self.asked_down.unwrap_or(!link.up)
    }

    /// The kernel has announced how it is.
    pub(crate) fn link_is(&mut self, up: bool) {
        self.asked_down.take_if(|down| *down != up);
    }

    /// Reads again how it is connected: that may change with its link.
    ///
    /// # Errors
    /// Its thread of the kernel cannot be set up again: a sentence.
    pub(crate) fn read_settings(
        &mut self,
        homes: &Homes,
        home: HomeAt,
        ifindex: u32,
        name: &str,
    ) -> Result<(), String> {
        self.settings = homes.run(home, || ethtool::link_settings(name)).ok().and_then(Result::ok);
        // Its other end may have another address by now.
        if homes.has_entries(home) {
            self.peer = homes.run(home, || peer_of(ifindex)).ok().and_then(Result::ok).flatten();
        }
        match self.thread.as_ref().map(|thread| homes.run(home, || thread.renew())) {
            Some(Ok(Err(error))) => Err(error.to_string()),
            _ => Ok(()),
        }
    }
}
