//! What the library with the hooks gets from this one.
#![allow(unsafe_code, reason = "the dynamic loader is asked by pointers")]

use core::ffi::{CStr, c_char, c_int, c_void};
use core::hint::black_box;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use crate::arch;

/// The variables of the environment that are kept, by the index in [`Given::variables`]. Their names begin with [`PREFIX`].
pub const VARIABLES: [&str; 3] = ["RULES", "EXPLAIN", "OWNER"];
pub(crate) const RULES: usize = 0;
pub(crate) const EXPLAIN: usize = 1;

/// What the names of the variables begin with.
pub const PREFIX: &str = "TWINPATH_RUN_";

/// UDP sockets that are noted. Of further ones, made before the program has called anything outside of a handler, nothing is known.
const MADE: usize = 16;

/// The name of the function that returns it ([`twinpath_preloader`]).
pub const FUNCTION: &CStr = c"twinpath_preloader";

/// A UDP socket that was made in a handler of a signal, where nothing can be loaded.
#[derive(Debug)]
#[repr(C)]
pub struct Made {
    /// Its descriptor.
    pub fd: AtomicI32,
    /// Whether the program has named its port.
    pub is_port_named: AtomicBool,
}

/// What that library gets. It lives as long as the process, and changes only while calls are not that library's yet.
#[derive(Debug)]
#[repr(C)]
pub struct Given {
    /// The next function of that name after this library's; null: there is none.
    pub next: unsafe extern "C" fn(name: *const c_char) -> *mut c_void,
    /// A word of the calling thread, in memory that the thread has from its beginning: no call has to allocate it.
    pub inside: extern "C" fn() -> *mut c_int,
    /// Values of the variables; null: not set.
    pub variables: [AtomicPtr<c_char>; VARIABLES.len()],
    /// Device and inode of standard error at the beginning, if lines of `--explain` go to a file.
    pub errors: [AtomicU64; 2],
    made: [Made; MADE],
    count: AtomicUsize,
}

impl Given {
    /// The sockets that were noted. A number may have another meaning by now.
    pub fn made(&self) -> impl Iterator<Item = &Made> {
        self.made.iter().take(self.count.load(Ordering::Acquire))
    }

    /// Notes a socket.
    pub(crate) fn note(&self, fd: c_int) {
        if let Some(made) = self.made.get(self.count.fetch_add(1, Ordering::AcqRel)) {
            made.is_port_named.store(false, Ordering::Relaxed);
            made.fd.store(fd, Ordering::Release);
        }
    }

    /// Whether the variable is set.
    pub(crate) fn has(&self, variable: usize) -> bool {
        self.variables.get(variable).is_some_and(|value| !value.load(Ordering::Relaxed).is_null())
    }
}

pub(crate) static GIVEN: Given = Given {
    next,
    inside: arch::inside,
    variables: [const { AtomicPtr::new(null_mut()) }; VARIABLES.len()],
    errors: [const { AtomicU64::new(0) }; 2],
    made: [const { Made { fd: AtomicI32::new(-1), is_port_named: AtomicBool::new(false) } }; MADE],
    count: AtomicUsize::new(0),
};

/// # Safety
/// As for `dlsym(3)`.
pub(crate) unsafe extern "C" fn next(name: *const c_char) -> *mut c_void {
    // It looks who calls it, so this must not become a jump.
    // SAFETY: the caller's promise.
    black_box(unsafe { libc::dlsym(libc::RTLD_NEXT, name) })
}

/// For the library with the hooks alone.
#[cfg_attr(panic = "abort", unsafe(no_mangle))]
pub extern "C" fn twinpath_preloader() -> *const Given {
    &raw const GIVEN
}
