//! The small library that has loaded this one (`sockets/preloader`), and what it gives. Without it, the dynamic loader has loaded this one in
//! front of others, and functions and variables are those that the process has.
#![allow(unsafe_code, reason = "another library gives pointers")]

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::c_int;
use twinpath_calls::{SocketKind, ThreadWords};
use twinpath_preloader::given::{FUNCTION, Given, LAYOUT, PREFIX, VARIABLES};

static GIVEN: AtomicPtr<Given> = AtomicPtr::new(null_mut());

/// Finds out whether that library is there. Returns whether this one can be used: that one is not there, or is of this version.
pub(crate) fn begin() -> bool {
    // SAFETY: it is a string of C.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, FUNCTION.as_ptr()) };
    if found.is_null() {
        return true;
    }
    // SAFETY: that library has a function of that name, in all versions.
    let give = unsafe { std::mem::transmute::<*mut c_void, extern "C" fn() -> *const Given>(found) };
    let given = give();
    // SAFETY: it lives as long as the process, and begins with the layout.
    let is_known = unsafe { (&raw const (*given).layout).read() } == LAYOUT;
    if is_known {
        GIVEN.store(given.cast_mut(), Ordering::Release);
    }
    is_known
}

/// Asked by that library before it uses this one.
#[unsafe(no_mangle)]
pub extern "C" fn twinpath_preload() -> u64 {
    LAYOUT
}

#[inline]
fn given() -> Option<&'static Given> {
    // SAFETY: it is null, or lives as long as the process; what changes in it is atomic.
    unsafe { GIVEN.load(Ordering::Acquire).as_ref() }
}

/// The function of that name which the hook takes the place of; null: there is none.
pub(crate) fn next(name: &CStr) -> *mut c_void {
    match given() {
        // SAFETY: it is a string of C.
        Some(given) => unsafe { (given.next)(name.as_ptr()) },
        // SAFETY: as above.
        None => unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) },
    }
}

/// Sets the word of the calling thread that says whether calls are this library's. Returns what it was; `None`: that library is not there.
#[inline]
pub(crate) fn replace_inside(is: bool) -> Option<bool> {
    // SAFETY: the word is this thread's as long as it runs.
    given().map(|given| unsafe { (&raw mut (*(given.words)()).inside).replace(c_int::from(is)) != 0 })
}

/// As [`replace_inside`], without setting it.
#[inline]
pub(crate) fn is_inside() -> Option<bool> {
    // SAFETY: as above.
    given().map(|given| unsafe { (&raw const (*(given.words)()).inside).read() != 0 })
}

/// The words that forks need; `None`: that library is not there.
pub(crate) fn thread_words() -> Option<ThreadWords> {
    given().map(|given| {
        let words = (given.words)();
        // SAFETY: as above.
        unsafe {
            ThreadWords {
                before_fork: &raw mut (*words).before_fork,
                entered: &raw mut (*words).entered,
                may_be_child: Some(&raw mut (*words).may_be_child),
            }
        }
    })
}

/// The value that a variable of the environment had when the program began; `None`: it had none.
pub(crate) fn variable(name: &str) -> Option<String> {
    let Some(given) = given() else { return std::env::var(name).ok() };
    let name = name.strip_prefix(PREFIX)?;
    let at = VARIABLES.iter().position(|variable| *variable == name)?;
    let value = given.variables.get(at)?.load(Ordering::Acquire);
    // SAFETY: it is null, or a string of C that stays.
    let value = (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) })?;
    value.to_str().ok().map(str::to_owned)
}

/// UDP sockets that were made before this library could be loaded, and whether the program has named their ports.
pub(crate) fn made() -> impl Iterator<Item = (c_int, bool)> {
    let all = given().into_iter().flat_map(|given| {
        given.made().map(|made| (made.fd.load(Ordering::Acquire), made.is_port_named.load(Ordering::Acquire)))
    });
    // The number may have another meaning by now.
    all.filter(|(made, _)| twinpath_calls::kind_of(*made) == Ok(Some(SocketKind::Udp)))
}

/// Device and inode of the standard error that the program was started with.
pub(crate) fn errors() -> Option<[u64; 2]> {
    given().map(|given| given.errors.each_ref().map(|part| part.load(Ordering::Acquire)))
}
