//! The host's own interface on the switch: a TAP interface that the switch makes.

use std::io;

use rustix::io::Errno;
use twinpath_vnet::{Tap, TapHandle, VnetPort};

use super::kind::{About, Kind, OpenError, Opened, Opening};

/// Why it could not be made, beside the kernel's reasons.
#[derive(Debug, thiserror::Error)]
#[error("cannot hold a descriptor a second time: {0}; raise the limit of open files (ulimit -n)")]
struct NoDescriptor(io::Error);

/// The host's own interface, while it is there.
#[derive(Default)]
pub(crate) struct Local(Option<TapHandle>);

impl Kind for Local {
    fn open(&mut self, opening: Opening<'_>) -> Result<Opened, OpenError> {
        let tap = Tap::make(opening.name.name(), 1).map_err(OpenError::of)?;
        let handle = TapHandle::of(&tap).map_err(|error| OpenError::of(NoDescriptor(error)))?;
        let (ifindex, segmentation) = (tap.ifindex, tap.offloads.segmentation());
        let fd =
            tap.queues.into_iter().next().ok_or_else(|| OpenError::of(NoDescriptor(Errno::BADF.into())))?;
        let queue = VnetPort::tap(opening.queue(0), ifindex, fd).segmenting(segmentation);
        if let Err(error) = handle.set_carrier(true) {
            tracing::warn!("{}: no carrier: {error}", opening.name);
        }
        self.0 = Some(handle);
        Ok(Opened::Queues(vec![Box::new(queue)]))
    }

    fn release(&mut self) {
        self.0 = None;
    }

    /// Its queue is a descriptor, which works wherever the interface is.
    fn has_moved(&self) -> bool {
        self.0.as_ref().is_some_and(TapHandle::exists)
    }

    fn why(&self, about: &About<'_>) -> String {
        format!("this host's own interface on {}", about.switch)
    }
}
