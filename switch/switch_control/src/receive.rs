//! Threads of the kernel that take the frames of ports.

use twinpath_attach::ReceiveThread;
use twinpath_attach::mirror::table::Link;
use twinpath_config::Receive;

use super::Switching;
use super::port::{OpenError, Port};

impl Switching {
    /// Has a thread of the kernel take a port's frames, if that is asked for.
    pub(super) fn start_thread(&self, port: &mut Port, link: &Link) -> Result<(), OpenError> {
        if port.config.receive == Receive::Thread {
            port.thread =
                Some(self.homes.run(port.home, || ReceiveThread::start(&link.name, link.ifindex))??);
        }
        Ok(())
    }
}
