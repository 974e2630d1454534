//! The functions that the hooks take the place of.
#![allow(unsafe_code, reason = "functions are found by name")]

use core::ffi::{c_long, c_void};
use core::sync::atomic::{AtomicBool, Ordering};

use crate::given::next;
use crate::hooks::{HOOKS, Hook, Table, name_of};

pub(crate) static REAL: Table = Table::new();
/// All of them were looked for.
static ARE_FOUND: AtomicBool = AtomicBool::new(false);

/// The function of the C library; [`missing`]: none that is loaded has it yet.
pub(crate) fn real(hook: Hook) -> *mut c_void {
    let place = REAL.at(hook);
    let mut found = place.load(Ordering::Acquire);
    if found.is_null() {
        // SAFETY: it is a string of C.
        found = unsafe { next(name_of(hook).as_ptr()) };
        if found.is_null() {
            // A library that the program loads later may have it: before glibc 2.34 that of threads is one of its own.
            return missing as *mut c_void;
        }
        place.store(found, Ordering::Release);
    }
    found
}

/// What is found here is found for all children. In a child of a program with threads another thread's lock in the dynamic loader would
/// never be given back. A thread may also have that lock while it waits for another one, in the constructor of a library; and to look for a
/// function forgets what `dlerror(3)` would say.
pub(crate) fn find_all() {
    if !ARE_FOUND.load(Ordering::Acquire) {
        for hook in HOOKS {
            real(hook);
        }
        ARE_FOUND.store(true, Ordering::Release);
    }
}

/// This C library has no function of that name.
pub(crate) extern "C" fn missing() -> c_long {
    // SAFETY: it is the calling thread's.
    unsafe { libc::__errno_location().write(libc::ENOSYS) };
    -1
}
