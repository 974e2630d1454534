//! Distinguishes a process from the children that it forks, by one load. Memory that a process shares with the
//! kernel must not be touched by a child, although the child has a copy of every value that owns such memory.
#![allow(unsafe_code, reason = "fork(2), and a page that the kernel clears in children")]

use std::ffi::c_void;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use rustix::process::{Pid, WaitOptions, WaitStatus, getpid, waitpid};

const PAGE_LEN: usize = 4096;

/// The first word of a page that is zeros in each child (MADV_WIPEONFORK, Linux 4.14); null before the first use. It is
/// found without a lock: a process may be forked while another of its threads makes it, and in the child nobody would
/// ever release the lock.
static PAGE: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());
/// In place of the page on a kernel that has no such pages.
static NO_PAGE: AtomicU64 = AtomicU64::new(0);
/// A child has a copy of this counter, so its number is larger than that of any ancestor.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// The word of the page; `None` before Linux 4.14.
#[inline]
fn page() -> Option<&'static AtomicU64> {
    let known = PAGE.load(Ordering::Acquire);
    let word = if known.is_null() { make_page() } else { known };
    // SAFETY: it is not null; the page, as `NO_PAGE`, is there as long as the process and its children live, and aligned to any
    // atomic.
    (!ptr::eq(word, &raw const NO_PAGE)).then(|| unsafe { &*word })
}

#[cold]
fn make_page() -> *mut AtomicU64 {
    let made = map_page().map_or_else(|| (&raw const NO_PAGE).cast_mut(), |page| page.as_ptr().cast());
    match PAGE.compare_exchange(ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => made,
        Err(others) => {
            if !ptr::eq(made, &raw const NO_PAGE) {
                // SAFETY: this call mapped it, and nobody else has seen it. If it fails, a page of memory stays mapped.
                let _ = unsafe { munmap(made.cast(), PAGE_LEN) };
            }
            others
        }
    }
}

/// A page of zeros, which it is in each child as well.
fn map_page() -> Option<NonNull<c_void>> {
    // SAFETY: a null hint lets the kernel choose an address that no other mapping has.
    let base = unsafe {
        mmap_anonymous(ptr::null_mut(), PAGE_LEN, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
    };
    let base = NonNull::new(base.ok()?)?;
    // SAFETY: the range is the mapping just made; its contents are zeros already.
    unsafe { madvise(base.as_ptr(), PAGE_LEN, Advice::LinuxWipeOnFork) }.ok()?;
    Some(base)
}

/// Gives this process a number, if it has none. Returns its number.
fn give(word: &AtomicU64) -> u64 {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    word.compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed)
        .map_or_else(|other| other, |_| number)
}

/// A static value of which each process has its own: a child made by `fork` gets a new one, as a thread that the child does not have
/// may have been changing the parent's, or hold its lock for ever.
#[derive(Debug)]
pub struct OfProcess<T: 'static> {
    /// 0: of none yet.
    process: AtomicU64,
    value: T,
    make: fn() -> T,
    /// Of a child of this process, or of a child of that; null if there is none.
    next: AtomicPtr<Self>,
}

impl<T> OfProcess<T> {
    /// `value` is of the first process that asks, and must be what `make` makes.
    #[must_use]
    pub const fn new(value: T, make: fn() -> T) -> Self {
        Self { process: AtomicU64::new(0), value, make, next: AtomicPtr::new(ptr::null_mut()) }
    }

    /// Of this process. It waits for no other thread. Each ancestor that had one has left it in memory.
    pub fn own(&'static self) -> &'static T {
        let own = process_number();
        let mut at = self;
        while at
            .process
            .compare_exchange(0, own, Ordering::Relaxed, Ordering::Relaxed)
            .is_err_and(|process| process != own)
        {
            at = at.next();
        }
        &at.value
    }

    fn next(&'static self) -> &'static Self {
        let mut next = self.next.load(Ordering::Acquire);
        if next.is_null() {
            let made = Box::into_raw(Box::new(Self::new((self.make)(), self.make)));
            match self.next.compare_exchange(next, made, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => next = made,
                Err(others) => {
                    // SAFETY: it comes from the box above, and nobody else has seen it.
                    drop(unsafe { Box::from_raw(made) });
                    next = others;
                }
            }
        }
        // SAFETY: it comes from a box that is never freed once it is here.
        unsafe { &*next }
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
/// inherited. It allocates nothing, and takes no lock.
#[inline]
#[must_use]
pub fn process_number() -> u64 {
    let Some(word) = page() else {
        // Before Linux 4.14. A process can have the number of an ancestor only if the ancestor is gone.
        return u64::from(getpid().as_raw_nonzero().get().unsigned_abs());
    };
    match word.load(Ordering::Relaxed) {
        0 => give(word),
        number => number,
    }
}

/// As [`process_number`], in a process that has just been forked: the page is written to without being read first, which saves a page
/// fault.
pub fn begin_child() -> u64 {
    page().map_or_else(process_number, give)
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
