//! Distinguishes a process from the children that it forks, by one load. Memory that a process shares with the
//! kernel must not be touched by a child, although the child has a copy of every value that owns such memory.
#![allow(unsafe_code, reason = "fork(2), and a page that the kernel clears in children")]

use std::ffi::c_void;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
use rustix::process::{Pid, WaitOptions, WaitStatus, getpid, waitpid};

/// A page that is zeros in each child (MADV_WIPEONFORK, Linux 4.14).
struct Page(NonNull<AtomicU64>);

static PAGE: OnceLock<Option<Page>> = OnceLock::new();
/// A child has a copy of this counter, so its number is larger than that of any ancestor.
static NEXT: AtomicU64 = AtomicU64::new(1);

// SAFETY: the page is never unmapped, and holds nothing but an atomic.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

impl Page {
    fn new() -> Option<Self> {
        const LEN: usize = 4096;
        // SAFETY: a null hint lets the kernel choose an address that no other mapping has.
        let base = unsafe {
            mmap_anonymous(ptr::null_mut(), LEN, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        };
        let base = NonNull::new(base.ok()?.cast::<c_void>())?;
        // SAFETY: the range is the mapping just made; its contents are zeros already.
        unsafe { madvise(base.as_ptr(), LEN, Advice::LinuxWipeOnFork) }.ok()?;
        Some(Self(base.cast()))
    }

    /// Gives this process a number, if it has none. Returns its number.
    fn give(&self) -> u64 {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        self.word()
            .compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed)
            .map_or_else(|other| other, |_| number)
    }

    const fn word(&self) -> &AtomicU64 {
        // SAFETY: the page is mapped as long as the process lives, zeroed, and aligned to any atomic.
        unsafe { self.0.as_ref() }
    }
}

/// A descriptor that a child made by `fork` inherits, and can close for itself only: the parent keeps its own. The
/// child must never drop its copy of the value that holds the descriptor.
#[derive(Debug)]
pub struct InheritedFd {
    fd: ManuallyDrop<OwnedFd>,
    is_closed: AtomicBool,
}

impl InheritedFd {
    /// Takes the descriptor.
    #[must_use]
    pub const fn new(fd: OwnedFd) -> Self {
        Self { fd: ManuallyDrop::new(fd), is_closed: AtomicBool::new(false) }
    }

    /// The descriptor; EBADF if it was closed.
    ///
    /// # Errors
    /// See above.
    pub fn get(&self) -> Result<BorrowedFd<'_>, Errno> {
        if self.is_closed.load(Ordering::Acquire) { Err(Errno::BADF) } else { Ok(self.fd.as_fd()) }
    }

    /// Closes it, in a child that still has only one thread. It neither allocates nor waits.
    pub fn close_in_child(&self) {
        self.close();
    }

    fn close(&self) {
        if !self.is_closed.swap(true, Ordering::AcqRel) {
            // SAFETY: it is open, and nobody uses it any more: `get` gives it to nobody else, and those who had it before are
            // threads that a child does not have, or are over as this value is dropped.
            unsafe { libc::close(self.fd.as_raw_fd()) };
        }
    }
}

impl Drop for InheritedFd {
    fn drop(&mut self) {
        self.close();
    }
}

/// A number that this process has and none of its ancestors by `fork`: a value made under another number was
/// inherited. It allocates nothing, and takes a lock only in the first call.
#[inline]
#[must_use]
pub fn process_number() -> u64 {
    let Some(page) = PAGE.get_or_init(Page::new) else {
        // Before Linux 4.14. A process can have the number of an ancestor only if the ancestor is gone.
        return u64::from(getpid().as_raw_nonzero().get().unsigned_abs());
    };
    match page.word().load(Ordering::Relaxed) {
        0 => page.give(),
        number => number,
    }
}

/// As [`process_number`], in a process that has just been forked: the page is written to without being read first, which saves a page
/// fault.
pub fn begin_child() -> u64 {
    PAGE.get().and_then(Option::as_ref).map_or_else(process_number, Page::give)
}

/// A child made by [`fork`].
#[derive(Debug)]
pub struct Forked {
    pid: Pid,
}

impl Forked {
    /// Waits until it ends. Returns its exit code; `None` if it was killed.
    ///
    /// # Errors
    /// What `waitpid(2)` returns.
    pub fn wait(self) -> io::Result<Option<i32>> {
        let ended = rustix::io::retry_on_intr(|| waitpid(Some(self.pid), WaitOptions::empty()))?;
        Ok(ended.map(|(_, status)| status).and_then(WaitStatus::exit_status))
    }

    /// Its process ID.
    #[must_use]
    pub const fn pid(&self) -> Pid {
        self.pid
    }
}

/// Forks a child that runs `work` and exits with the code that it returns, or with 101 if it panics, without
/// running destructors. For tests and labs.
///
/// The child has only the calling thread. A lock that another thread held at the fork stays locked there.
///
/// # Errors
/// What `fork(2)` returns.
pub fn fork(work: impl FnOnce() -> i32) -> io::Result<Forked> {
    // SAFETY: the child goes on with a copy of this process's memory, in which nothing of another thread runs. The C library's
    // allocator is made usable there by the library. A lock that stays locked can stop the child, and nothing else.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let code = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or(101);
            // SAFETY: it ends the process at once.
            unsafe { libc::_exit(code) }
        }
        pid => Pid::from_raw(pid).map(|pid| Forked { pid }).ok_or_else(|| io::Error::other("no process ID")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_have_other_numbers_and_keep_theirs() {
        let own = process_number();
        assert_eq!(own, process_number());
        let child = fork(|| {
            let number = process_number();
            let grandchild = fork(|| i32::from([own, number].contains(&process_number())));
            let same = grandchild.and_then(Forked::wait).ok().flatten() != Some(0);
            i32::from(number == own || number != process_number() || same)
        });
        assert_eq!(child.unwrap().wait().unwrap(), Some(0));
        assert_eq!(own, process_number());
        let killed = fork(|| -> i32 { std::process::abort() }).unwrap();
        assert_eq!(killed.wait().unwrap(), None);
    }
}
