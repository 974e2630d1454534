//! Words of the calling thread, for forks and for its end. A library that is loaded while the program runs has memory of a thread only after
//! an allocation, and a program may fork in a handler that has interrupted the allocator. So such a library says where the words are.
#![allow(unsafe_code, reason = "another library gives pointers")]

use std::cell::Cell;
use std::ffi::c_void;
use std::mem::transmute;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::c_int;

/// Where they are, as long as the thread runs.
#[derive(Clone, Copy, Debug)]
pub struct ThreadWords {
    /// What `errno` was before the fork.
    pub before_fork: *mut c_int,
    /// The process that has entered by this thread ([`twinpath_sys::fork::process_number`]); a child has its parent's.
    pub entered: *mut u64,
    /// Not 0: the thread has called `vfork(2)`, and its child may run by it, which has this memory. `None`: nobody notes that.
    pub may_be_child: Option<*mut c_int>,
}

thread_local! {
    /// Where no library says otherwise.
    static BEFORE_FORK: Cell<c_int> = const { Cell::new(0) };
    static ENTERED: Cell<u64> = const { Cell::new(0) };
}

/// A function of the library that says it; null: there is none.
static OF_LIBRARY: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

type OfLibrary = fn() -> Option<ThreadWords>;

/// Says what the words of the calling thread are.
pub(crate) fn set(of_library: OfLibrary) {
    OF_LIBRARY.store(of_library as *mut c_void, Ordering::Release);
}

fn words() -> ThreadWords {
    let of_library = OF_LIBRARY.load(Ordering::Acquire);
    let said = (!of_library.is_null()).then(|| {
        // SAFETY: it is a function of that type.
        let of_library = unsafe { transmute::<*mut c_void, OfLibrary>(of_library) };
        of_library()
    });
    said.flatten().unwrap_or_else(|| ThreadWords {
        before_fork: BEFORE_FORK.with(Cell::as_ptr),
        entered: ENTERED.with(Cell::as_ptr),
        may_be_child: None,
    })
}

pub(crate) fn before_fork() -> c_int {
    // SAFETY: the word is this thread's alone.
    unsafe { words().before_fork.read() }
}

pub(crate) fn set_before_fork(errno: c_int) {
    // SAFETY: as above.
    unsafe { words().before_fork.write(errno) };
}

/// Whether a child may run by this thread that has this memory, as far as is noted.
pub(crate) fn may_be_child() -> bool {
    // SAFETY: as above.
    words().may_be_child.is_none_or(|word| unsafe { word.read() } != 0)
}

/// The thread is this process's own: its child by `vfork(2)`, if it had one, has ended or has memory of its own.
pub(crate) fn is_no_child() {
    // SAFETY: as above.
    words().may_be_child.inspect(|word| unsafe { word.write(0) });
}

pub(crate) fn entered() -> u64 {
    // SAFETY: as above.
    unsafe { words().entered.read() }
}

pub(crate) fn set_entered(process: u64) {
    // SAFETY: as above.
    unsafe { words().entered.write(process) };
}
