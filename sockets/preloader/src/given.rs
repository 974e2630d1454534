//! What the library with the hooks gets from this one.
#![allow(unsafe_code, reason = "the dynamic loader is asked by pointers")]

use core::ffi::{CStr, c_char, c_int, c_void};
use core::hint::black_box;
use core::mem::offset_of;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, AtomicUsize, Ordering};

pub use crate::arch::Words;

use crate::arch;
use crate::hooks::{NAMES, OF_THE_OTHER};

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

/// The name of the function of the library with the hooks that returns [`LAYOUT`].
pub const OTHER: &CStr = c"twinpath_preload";

/// What both libraries have to agree on: the program may have been started before another version was installed, and the library with the
/// hooks is loaded later. To be counted up if something changes its meaning, but neither its name nor its place.
const VERSION: u64 = 1;

/// A sum of the names of hooks and variables, and of where what is given lies (FNV-1a).
pub const LAYOUT: u64 = {
    let mut sum = summed(0xcbf2_9ce4_8422_2325, VERSION);
    let mut hook = 0;
    while hook < NAMES.len() {
        let mut at = 0;
        while at < NAMES[hook].len() {
            sum = summed(sum, NAMES[hook][at] as u64);
            at += 1;
        }
        hook += 1;
    }
    let mut variable = 0;
    while variable < VARIABLES.len() {
        let mut at = 0;
        while at < VARIABLES[variable].len() {
            sum = summed(sum, VARIABLES[variable].as_bytes()[at] as u64);
            at += 1;
        }
        variable += 1;
    }
    let places = [
        OF_THE_OTHER,
        size_of::<Given>(),
        size_of::<Made>(),
        offset_of!(Words, inside),
        offset_of!(Words, before_fork),
        offset_of!(Words, entered),
        offset_of!(Words, may_be_child),
        offset_of!(Given, next),
        offset_of!(Given, words),
        offset_of!(Given, variables),
        offset_of!(Given, errors),
        offset_of!(Given, made),
        offset_of!(Given, count),
    ];
    let mut place = 0;
    while place < places.len() {
        sum = summed(sum, places[place] as u64);
        place += 1;
    }
    sum
};

const fn summed(sum: u64, part: u64) -> u64 {
    (sum ^ part).wrapping_mul(0x0100_0000_01b3)
}

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
    /// [`LAYOUT`] of the library that gives it: if it is another one, the rest means something else.
    pub layout: u64,
    /// The next function of that name after this library's; null: there is none.
    pub next: unsafe extern "C" fn(name: *const c_char) -> *mut c_void,
    /// Those of the calling thread.
    pub words: extern "C" fn() -> *mut Words,
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
    layout: LAYOUT,
    next,
    words: arch::words,
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
