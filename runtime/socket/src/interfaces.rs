//! The interfaces on which sockets of this process have leases: one program for all sockets of a process on an interface.

use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError, Weak};

use twinpath_attach::{LeaseError, LeasedInterface, Lent, Sending};
use twinpath_rings::lease::Lease;
use twinpath_sys::fork::process_number;

/// An interface, for all sockets that have a lease there.
pub(crate) type Shared = Arc<Mutex<LeasedInterface>>;

struct Known {
    /// Identifies the network namespace.
    namespace: u64,
    name: String,
    interface: Weak<Mutex<LeasedInterface>>,
}

/// What a process knows. A child made by `fork` has its own: a thread that it does not have may hold the lock of its parent's for ever.
struct OfProcess {
    /// 0: of none yet.
    process: AtomicU64,
    known: Mutex<Vec<Known>>,
    /// Of a child of this process, or of a child of that.
    next: OnceLock<Box<Self>>,
}

static FIRST: OfProcess = OfProcess::new();

impl OfProcess {
    const fn new() -> Self {
        Self { process: AtomicU64::new(0), known: Mutex::new(Vec::new()), next: OnceLock::new() }
    }

    /// Of this process. Each ancestor that had a lease has left one.
    fn own() -> &'static Self {
        let own = process_number();
        let mut at = &FIRST;
        while at
            .process
            .compare_exchange(0, own, Ordering::Relaxed, Ordering::Relaxed)
            .is_err_and(|process| process != own)
        {
            at = at.next.get_or_init(|| Box::new(Self::new()));
        }
        at
    }
}

pub(crate) const BUSY: &str = "another thread is giving a lease at this moment";

/// Why a socket has no lease, as text.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    #[error("{0}")]
    Lease(#[from] LeaseError),
    #[error("{BUSY}")]
    Busy,
    #[error("it was asked for inside of a tokio runtime: ask before, or from a thread of its own")]
    InsideLoop,
    #[error("cannot look at the interface: {0}")]
    Io(#[from] io::Error),
}

/// Gives the socket a lease on an interface of the calling thread's network namespace. If it may not wait for another thread it fails
/// while that does the same.
pub(crate) fn lend(
    socket: &std::net::UdpSocket,
    name: &str,
    may_wait: bool,
) -> Result<(Shared, Lent, Sending), Refused> {
    use std::os::fd::AsFd as _;
    let namespace = std::fs::metadata("/proc/thread-self/ns/net")?.ino();
    let local = socket.local_addr()?;
    let known = &OfProcess::own().known;
    let known = if may_wait { Some(locked(known)) } else { try_locked(known) };
    let mut known = known.ok_or(Refused::Busy)?;
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
    let (lent, sending) = if may_wait { Some(locked(&interface)) } else { try_locked(&interface) }
        .ok_or(Refused::Busy)?
        .lend(socket.as_fd(), local)?;
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

fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn try_locked<T>(shared: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match shared.try_lock() {
        Ok(shared) => Some(shared),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
