//! The interfaces on which sockets of this process have leases: one program for all sockets of a process on an interface.

use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt as _;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use twinpath_attach::{LeaseError, LeasedInterface, Lent, Sending};
use twinpath_rings::lease::Lease;

/// An interface, for all sockets that have a lease there.
pub(crate) type Shared = Arc<Mutex<LeasedInterface>>;

struct Known {
    /// Identifies the network namespace.
    namespace: u64,
    name: String,
    interface: Weak<Mutex<LeasedInterface>>,
}

static KNOWN: Mutex<Vec<Known>> = Mutex::new(Vec::new());

/// Why a socket has no lease, as text.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    #[error("{0}")]
    Lease(#[from] LeaseError),
    #[error("it was asked for inside of a tokio runtime: ask before, or from a thread of its own")]
    InsideLoop,
    #[error("cannot look at the interface: {0}")]
    Io(#[from] io::Error),
}

/// Gives the socket a lease on an interface of the calling thread's network namespace.
pub(crate) fn lend(socket: &std::net::UdpSocket, name: &str) -> Result<(Shared, Lent, Sending), Refused> {
    use std::os::fd::AsFd as _;
    let namespace = std::fs::metadata("/proc/thread-self/ns/net")?.ino();
    let local = socket.local_addr()?;
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known.retain(|known| known.interface.strong_count() > 0);
    let found = known.iter().find(|known| known.namespace == namespace && known.name == name);
    let interface = match found.and_then(|known| known.interface.upgrade()) {
        Some(interface) => interface,
        None => {
            if tokio::runtime::Handle::try_current().is_ok() {
                return Err(Refused::InsideLoop);
            }
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let opened = runtime.block_on(LeasedInterface::open(name))?;
            let interface = Arc::new(Mutex::new(opened));
            let weak = Arc::downgrade(&interface);
            known.push(Known { namespace, name: name.to_owned(), interface: weak });
            interface
        }
    };
    let (lent, sending) = locked(&interface).lend(socket.as_fd(), local)?;
    Ok((interface, lent, sending))
}

/// Gives the lease of a socket back that is about to be closed.
pub(crate) fn take_back(
    interface: &Shared,
    socket: BorrowedFd<'_>,
    (number, lease): (u32, Lease),
    sending: Sending,
) {
    locked(interface).take_back(socket, number, lease, sending);
}

fn locked(interface: &Shared) -> std::sync::MutexGuard<'_, LeasedInterface> {
    interface.lock().unwrap_or_else(PoisonError::into_inner)
}
