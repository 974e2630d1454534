//! The interfaces on which sockets of this process have leases: one program for all sockets of a process on an interface.

use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError, Weak};

use twinpath_attach::Sending;
use twinpath_rings::lease::Lease;
use twinpath_sys::clock;
use twinpath_sys::fork::process_number;

use crate::WhyKernel;
use crate::lending::{Access, AskedFor, Connection, Lender, Lent, Open};

/// An interface, for all sockets that have a lease there.
pub(crate) type Shared = Arc<Mutex<Lender>>;

struct Known {
    /// Identifies the network namespace.
    namespace: u64,
    name: String,
    access: Access,
    lender: Weak<Mutex<Lender>>,
}

/// The state of a process. A child made by `fork` has its own: a thread that the child does not have may hold the
/// parent's lock for ever.
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

/// Gives the socket a lease on an interface of the calling thread's network namespace. If it may not wait for another thread it fails
/// while that does the same.
pub(crate) fn lend(
    socket: &std::net::UdpSocket,
    name: &str,
    access: &Access,
    may_wait: bool,
) -> Result<(Shared, Lent, Option<Sending>), WhyKernel> {
    use std::os::fd::AsFd as _;
    let local = socket.local_addr()?;
    let lender = lender(name, access, may_wait, Lender::open)?;
    let (lent, sending) = if may_wait { Some(locked(&lender)) } else { try_locked(&lender) }
        .ok_or(WhyKernel::Busy)?
        .lend(socket.as_fd(), local)?;
    Ok((lender, lent, sending))
}

/// Who gives leases on an interface of the calling thread's network namespace.
fn lender(name: &str, access: &Access, may_wait: bool, open: Open) -> Result<Shared, WhyKernel> {
    let namespace = std::fs::metadata("/proc/thread-self/ns/net")?.ino();
    let known = &OfProcess::own().known;
    let known = if may_wait { Some(locked(known)) } else { try_locked(known) };
    let mut known = known.ok_or(WhyKernel::Busy)?;
    known.retain(|known| known.lender.upgrade().is_some_and(|lender| !has_ended(&lender)));
    let is_it =
        |known: &&Known| known.namespace == namespace && known.name == name && known.access == *access;
    if let Some(lender) = known.iter().find(is_it).and_then(|known| known.lender.upgrade()) {
        return Ok(lender);
    }
    let lender = Arc::new(Mutex::new(open(name, access)?));
    let weak = Arc::downgrade(&lender);
    known.push(Known { namespace, name: name.to_owned(), access: access.clone(), lender: weak });
    Ok(lender)
}

/// A lease that a socket has been asked for.
#[derive(Debug)]
pub(crate) struct Asking {
    pub(crate) lender: Shared,
    asked: AskedFor,
}

impl Asking {
    /// Begins to ask. It waits for nothing.
    pub(crate) fn begin(name: &str, access: &Access) -> Result<Self, WhyKernel> {
        Ok(Self { lender: lender(name, access, false, Lender::connect)?, asked: AskedFor::default() })
    }

    /// Goes on: the lease, if it was given meanwhile. It waits for nothing.
    pub(crate) fn go_on(&mut self, socket: &std::net::UdpSocket) -> Result<Option<Lent>, WhyKernel> {
        use std::os::fd::AsFd as _;
        let local = socket.local_addr()?;
        // Another thread asks for another socket.
        let Some(mut lender) = try_locked(&self.lender) else { return Ok(None) };
        Ok(lender.ask(&mut self.asked, socket.as_fd(), local)?)
    }

    pub(crate) fn owner(&self) -> Option<Arc<Connection>> {
        try_locked(&self.lender)?.owner().map(Arc::clone)
    }

    /// The socket is closed, or stays with the kernel. Returns whether that could be said: if another thread asks, it is to be said again.
    pub(crate) fn abandon(&self) -> bool {
        try_locked(&self.lender).map(|mut lender| lender.abandon(self.asked)).is_some()
    }
}

/// Whether it is an owner's and that is gone: a new one may be there.
fn has_ended(lender: &Shared) -> bool {
    try_locked(lender).is_some_and(|lender| lender.owner().is_some_and(|owner| owner.has_ended(clock::now())))
}

/// Gives the lease of a socket back that is about to be closed.
pub(crate) fn take_back(
    lender: &Shared,
    socket: BorrowedFd<'_>,
    (number, lease): (u32, Lease),
    sending: Option<Sending>,
) {
    locked(lender).take_back(socket, number, lease, sending);
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
