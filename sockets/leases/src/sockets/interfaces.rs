//! The interfaces on which sockets of this process have leases: one program for all sockets of a process on an interface.

use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};

use twinpath_attach::Sending;
use twinpath_rings::lease::Lease;
use twinpath_sys::clock;
use twinpath_sys::fork::{OfProcess, process_number};

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

static KNOWN: OfProcess<Mutex<Vec<Known>>> =
    OfProcess::new(Mutex::new(Vec::new()), || Mutex::new(Vec::new()));

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
    FIRST.lend(|| {
        let lender = lender(name, access, may_wait, Lender::open)?;
        let (lent, sending) = if may_wait { Some(locked(&lender)) } else { try_locked(&lender) }
            .ok_or(WhyKernel::Busy)?
            .lend(socket.as_fd(), local)?;
        Ok((lender, lent, sending))
    })
}

/// Whether the first lease of a process by its own rights is being given.
#[derive(Debug)]
struct First {
    is_done: AtomicBool,
    /// The process that was last to begin one, and how many of its threads give one.
    process: AtomicU64,
    threads: AtomicU32,
}

static FIRST: First = First::new();

impl First {
    const fn new() -> Self {
        Self { is_done: AtomicBool::new(false), process: AtomicU64::new(0), threads: AtomicU32::new(0) }
    }

    /// The libraries that load programs into the kernel look at the kernel once for each process, and keep others waiting
    /// meanwhile. A child that is forked at that moment would wait for ever, for a thread that it does not have.
    fn lend<R>(&self, lend: impl FnOnce() -> Result<R, WhyKernel>) -> Result<R, WhyKernel> {
        if self.is_done.load(Ordering::Acquire) {
            return lend();
        }
        let own = process_number();
        if self.threads.load(Ordering::Acquire) > 0 && self.process.load(Ordering::Acquire) != own {
            return Err(WhyKernel::ForkedAtFirst);
        }
        self.process.store(own, Ordering::Release);
        self.threads.fetch_add(1, Ordering::AcqRel);
        let lent = lend();
        if lent.is_ok() {
            self.is_done.store(true, Ordering::Release);
        }
        self.threads.fetch_sub(1, Ordering::AcqRel);
        lent
    }
}

/// Who gives leases on an interface of the calling thread's network namespace.
fn lender(name: &str, access: &Access, may_wait: bool, open: Open) -> Result<Shared, WhyKernel> {
    let namespace = std::fs::metadata("/proc/thread-self/ns/net")?.ino();
    let known = KNOWN.own();
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

    /// Whether the owner may hold the socket; `None` while another thread asks it.
    pub(crate) fn may_hold(&self) -> Option<bool> {
        try_locked(&self.lender).map(|mut lender| lender.may_hold(self.asked))
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

#[cfg(test)]
mod tests {
    use twinpath_sys::fork::fork;

    use super::*;

    #[test]
    fn a_child_that_was_forked_at_the_first_lease_has_none_and_waits_for_nothing() {
        let first = First::new();
        let of_child = || {
            let child = fork(|| i32::from(first.lend(|| Ok(())) == Err(WhyKernel::ForkedAtFirst)));
            child.unwrap().wait().unwrap()
        };
        // One that has failed is over.
        let failed = first.lend(|| Err::<(), _>(WhyKernel::Busy));
        assert_eq!((failed, of_child()), (Err(WhyKernel::Busy), Some(0)));
        // Beside one of another thread, in the same process.
        let meanwhile = first.lend(|| Ok((first.lend(|| Err::<(), _>(WhyKernel::Busy)), of_child())));
        assert_eq!(meanwhile, Ok((Err(WhyKernel::Busy), Some(1))));
        assert_eq!((first.lend(|| Ok(())), of_child()), (Ok(()), Some(0)));
    }
}
