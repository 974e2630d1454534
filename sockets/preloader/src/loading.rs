//! Loads the library with the hooks, where that is possible.
#![allow(unsafe_code, reason = "the C library and the dynamic loader are asked by pointers")]

use core::ffi::{CStr, c_char, c_int, c_void};
use core::hint::black_box;
use core::mem::{MaybeUninit, transmute};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

use crate::errno::keeping_errno;
use crate::explain;
use crate::given::{LAYOUT, OTHER};
use crate::handler;
use crate::hooks::{HOOKS, Hook, OF_THE_OTHER, TO, Table, is_fork, name_of};
use crate::real::real;
use crate::{sanitizer, stack};

/// In the folder of this library. Another library may have a hook of `dlopen(3)` that calls it for us, so `$ORIGIN` may be another folder.
const LIBRARY: &CStr = c"libtwinpath_preload.so";

/// Nothing is to be loaded any more.
static IS_DONE: AtomicBool = AtomicBool::new(false);
/// It is to be loaded by the next call that can do so.
static IS_LATE: AtomicBool = AtomicBool::new(false);
/// The process that has made the first thread; 0: there was none.
static OF_THREADS: AtomicI32 = AtomicI32::new(0);
/// The hooks of the library that was loaded, all of them once [`ARE_HERE`].
static HOOKS_OF_OTHER: Table = Table::new();
static ARE_HERE: AtomicBool = AtomicBool::new(false);
/// How often it could not be loaded. The program may have had no descriptor to spare, or no memory: the next socket tries again.
static FAILED: AtomicU32 = AtomicU32::new(0);
const TRIES: u32 = 8;

pub(crate) fn is_done() -> bool {
    IS_DONE.load(Ordering::Acquire)
}

pub(crate) fn is_late() -> bool {
    IS_LATE.load(Ordering::Acquire)
}

/// Nothing is to be loaded.
pub(crate) fn end() {
    IS_LATE.store(false, Ordering::Release);
    IS_DONE.store(true, Ordering::Release);
}

/// The program makes a thread.
pub(crate) fn has_threads() {
    if !may_have_threads() {
        // SAFETY: it takes nothing.
        OF_THREADS.store(unsafe { libc::getpid() }, Ordering::Release);
        // Forks look anew whether to load.
        HOOKS.into_iter().filter(|hook| is_fork(*hook)).for_each(forget);
    }
}

/// Whether this process, or one that it was forked by, has made a thread.
pub(crate) fn may_have_threads() -> bool {
    OF_THREADS.load(Ordering::Acquire) != 0
}

/// Whether this is a child of a program with threads. One of these may have held the dynamic loader's lock when the child was forked, and
/// the child would wait for it for ever.
fn is_child_of_threads() -> bool {
    let of_threads = OF_THREADS.load(Ordering::Acquire);
    // SAFETY: it takes nothing.
    of_threads != 0 && of_threads != unsafe { libc::getpid() }
}

/// The next call looks anew where it goes.
fn forget(hook: Hook) {
    TO.at(hook).store(null_mut(), Ordering::Release);
}

/// Loads the library, unless this is not the time: then it is late, or stays out.
#[cold]
pub(crate) fn load() {
    keeping_errno(|| {
        if !has_own_memory() {
            return;
        }
        if is_child_of_threads() {
            publish();
        } else if handler::is_running() {
            IS_LATE.store(true, Ordering::Release);
            HOOKS.into_iter().for_each(forget);
        } else if let Some(checks) = sanitizer::found() {
            if !IS_DONE.swap(true, Ordering::AcqRel) {
                explain::stays_with_kernel(&[b"the program is built with ", checks.to_bytes()]);
            }
            end();
        } else {
            // Two threads may come here at a time: the second one waits in `dlopen(3)`, and finds the same.
            stack::with_room(load_here);
        }
    });
}

/// The path of the library.
struct Path([c_char; libc::PATH_MAX as usize]);

impl Path {
    /// `None`: the dynamic loader does not say which file this library is, or there is no room.
    fn of_library() -> Option<Self> {
        let mut own = MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: it is an address of this library, there is room for the answer, and zeros are a valid one.
        let own = unsafe {
            libc::dladdr((&raw const IS_DONE).cast(), own.as_mut_ptr());
            own.assume_init()
        };
        if own.dli_fname.is_null() {
            return None;
        }
        // SAFETY: it is a string of C, which stays as long as this library.
        let own = unsafe { CStr::from_ptr(own.dli_fname) }.to_bytes();
        let own = behind_steps(own);
        let folder = own.get(..=own.iter().rposition(|byte| *byte == b'/')?)?;
        let bytes = folder.iter().chain(LIBRARY.to_bytes_with_nul());
        let mut path = Self([0; libc::PATH_MAX as usize]);
        if bytes.clone().count() > path.0.len() {
            return None;
        }
        path.0.iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte.cast_signed() as c_char);
        Some(path)
    }
}

/// Steps up that lead to the root: as many as `STEPS` in `sockets/leases/src/rules/loading.rs`, which writes them.
const STEPS: usize = 64;

/// The path without the folder of the program and the steps from there to the root. That folder may have been removed since, or the
/// program's user may not be allowed to search it.
fn behind_steps(path: &[u8]) -> &[u8] {
    let is_step = |at: usize| path.get(at..at + 4).is_some_and(|bytes| bytes == b"/../");
    let (mut steps, mut behind) = (0, 0);
    for at in 0..path.len() {
        if is_step(at) {
            (steps, behind) = (steps + 1, at + 3);
        }
    }
    path.get(behind..).filter(|_| steps >= STEPS).unwrap_or(path)
}

fn load_here() {
    let how = libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NODELETE;
    let library = match Path::of_library() {
        // SAFETY: it is a string of C. The library is ours.
        Some(path) => unsafe { open(path.0.as_ptr(), how) },
        None => null_mut(),
    };
    if library.is_null() && FAILED.fetch_add(1, Ordering::Relaxed) + 1 < TRIES {
        IS_LATE.store(false, Ordering::Release);
    } else {
        if !library.is_null() && is_of_this_layout(library) {
            for hook in HOOKS.into_iter().take(OF_THE_OTHER) {
                // SAFETY: it was loaded, and it is a string of C.
                let found = unsafe { libc::dlsym(library, name_of(hook).as_ptr()) };
                HOOKS_OF_OTHER.at(hook).store(found, Ordering::Release);
            }
            ARE_HERE.store(true, Ordering::Release);
        }
        publish();
        if library.is_null() {
            explain::stays_with_kernel(&[LIBRARY.to_bytes(), b" cannot be loaded"]);
        }
    }
    // Nothing of this is for the program.
    // SAFETY: it takes nothing.
    unsafe { libc::dlerror() };
}

/// Whether the library was built for what this one gives. If not, it has said so itself.
fn is_of_this_layout(library: *mut c_void) -> bool {
    // SAFETY: it was loaded, and it is a string of C.
    let found = unsafe { libc::dlsym(library, OTHER.as_ptr()) };
    // SAFETY: the library has a function of that name, in all versions.
    !found.is_null() && unsafe { transmute::<*mut c_void, extern "C" fn() -> u64>(found) }() == LAYOUT
}

/// `dlopen(3)` of the C library: that of this library is for the program.
///
/// # Safety
/// As for that function.
unsafe fn open(path: *const c_char, how: c_int) -> *mut c_void {
    type Open = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;
    // SAFETY: the C library declares the function so.
    let open = unsafe { transmute::<*mut c_void, Open>(real(Hook::dlopen)) };
    // SAFETY: the caller's promise. It looks who calls it, so this must not become a jump.
    black_box(unsafe { open(path, how) })
}

/// The hook of the library; `None`: it is not there, or has none.
pub(crate) fn hook_of_other(hook: Hook) -> Option<*mut c_void> {
    let is_here = ARE_HERE.load(Ordering::Acquire);
    Some(HOOKS_OF_OTHER.at(hook).load(Ordering::Acquire)).filter(|found| is_here && !found.is_null())
}

/// Calls go to the hooks of the library, if it is there. A child may do this that was forked while a thread of its parent did.
fn publish() {
    for hook in HOOKS {
        if let Some(found) = hook_of_other(hook) {
            TO.at(hook).store(found, Ordering::Release);
        }
    }
    end();
}

/// Whether this process has memory of its own. The C library knows the number of a thread, also in a child by `fork(3)`. In one that
/// shares its parent's memory (`vfork`) that number is the parent's. A lock has the number of its holder.
fn has_own_memory() -> bool {
    let mut lock = libc::PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
    // SAFETY: nobody else has it. Its holder is its third number (glibc, sysdeps/nptl/bits/struct_mutex.h).
    unsafe {
        if libc::pthread_mutex_lock(&raw mut lock) != 0 {
            return false;
        }
        let holder = (&raw const lock).cast::<c_int>().add(2).read_volatile();
        libc::pthread_mutex_unlock(&raw mut lock);
        holder == libc::gettid()
    }
}

const _: () = assert!(size_of::<libc::pthread_mutex_t>() > 3 * size_of::<c_int>());
const _: () = assert!(size_of::<*mut c_void>() == 8);

#[cfg(test)]
mod tests {
    extern crate std;

    use super::{STEPS, behind_steps};

    #[test]
    fn the_folder_of_the_program_is_no_part_of_the_path() {
        let steps = "/..".repeat(STEPS);
        let path = std::format!("/srv/bin{steps}/usr/lib/library.so");
        assert_eq!(behind_steps(path.as_bytes()), b"/usr/lib/library.so");
        for plain in ["/usr/lib/library.so", "/opt/../usr/lib/library.so", "../library.so", "library.so"] {
            assert_eq!(behind_steps(plain.as_bytes()), plain.as_bytes());
        }
    }
}
