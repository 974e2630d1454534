//! Threads of the kernel that take the frames of ports.

use twinpath_attach::ReceiveThread;
use twinpath_config::Receive;
use twinpath_mirror::table::Link;

use super::Switching;
use super::port::{OpenError, Port};

impl Switching {
    /// Has a thread of the kernel take a port's frames, if that is asked for.
    pub(super) fn start_thread(&self, port: &mut Port, link: &Link) -> Result<(), OpenError> {
        if port.config.receive == Receive::Thread {
            let start = || ReceiveThread::start(&link.name, link.ifindex);
            port.thread = Some(self.homes.run(port.home, start)??);
        }
        Ok(())
    }

    /// The kernel takes a port's frames as it did before.
    pub(super) fn end_thread(&self, port: &mut Port) {
        let Some(thread) = port.thread.take() else { return };
        // An interface that is gone has no settings; one that was moved keeps them.
        if let Ok(Err(error)) = self.homes.run(port.home, || thread.end()) {
            tracing::debug!("{}: receive=thread: {error}", port.name);
        }
    }
}
