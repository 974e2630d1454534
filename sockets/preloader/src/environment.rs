//! The beginning of a program: what is kept of its environment, which it may change.
#![allow(unsafe_code, reason = "the dynamic loader passes strings of C")]

use core::cell::UnsafeCell;
use core::ffi::{c_char, c_int};
use core::mem::MaybeUninit;
use core::sync::atomic::Ordering;

use crate::given::{EXPLAIN, GIVEN, PREFIX, RULES, VARIABLES};
use crate::loading;

/// Bytes of values that are kept.
const KEPT: usize = 4096;

struct Kept(UnsafeCell<[c_char; KEPT]>);

// SAFETY: it is written to by the dynamic loader's thread at the beginning, and only read after that.
unsafe impl Sync for Kept {}

static KEPT_VALUES: Kept = Kept(UnsafeCell::new([0; KEPT]));

/// Of the shared library alone.
#[cfg(panic = "abort")]
#[used]
#[unsafe(link_section = ".init_array")]
static AT_BEGIN: unsafe extern "C" fn(c_int, *const *const c_char, *const *const c_char) = begin;

/// The program begins. Called on its first thread, before all else of the program.
///
/// # Safety
/// As the dynamic loader calls functions at the beginning: the environment is an array of strings of C that ends with null.
pub unsafe extern "C" fn begin(_: c_int, _: *const *const c_char, environment: *const *const c_char) {
    let (mut at, mut used, mut are_kept) = (environment, 0, true);
    // SAFETY: the caller's promise.
    while let Some(entry) = unsafe { at.as_ref() }.copied().filter(|entry| !entry.is_null()) {
        // SAFETY: it ends with null, and this is not that.
        at = unsafe { at.add(1) };
        // SAFETY: they are strings of C.
        if let Some(name) = unsafe { behind(entry, PREFIX) } {
            for (variable, kept) in VARIABLES.iter().zip(&GIVEN.variables) {
                // SAFETY: as above.
                let value = unsafe { behind(name, variable).and_then(|rest| behind(rest, "=")) };
                if let Some(value) = value {
                    // SAFETY: as above.
                    let copy = unsafe { keep(value, &mut used) };
                    are_kept &= copy.is_some();
                    kept.store(copy.unwrap_or(value).cast_mut(), Ordering::Relaxed);
                }
            }
        }
    }
    keep_errors();
    if !GIVEN.has(RULES) {
        loading::end();
    } else if !are_kept {
        // The program might change it.
        loading::load();
    }
}

/// What is behind the text, if the string begins with it. Functions of the C library would have to be found first, in each program.
///
/// # Safety
/// It is a string of C.
unsafe fn behind(mut string: *const c_char, text: &str) -> Option<*const c_char> {
    for byte in text.bytes() {
        // SAFETY: the string has not ended before.
        unsafe {
            if string.read() as u8 != byte {
                return None;
            }
            string = string.add(1);
        }
    }
    Some(string)
}

/// Keeps the value. `None`: there is no room for it.
///
/// # Safety
/// It is a string of C.
unsafe fn keep(value: *const c_char, used: &mut usize) -> Option<*const c_char> {
    let (start, mut from) = (*used, value);
    while *used < KEPT {
        // SAFETY: the string has not ended before, there is room, and no other thread is here.
        unsafe {
            let byte = from.read_volatile();
            KEPT_VALUES.0.get().cast::<c_char>().add(*used).write_volatile(byte);
            (from, *used) = (from.add(1), *used + 1);
            if byte == 0 {
                return Some(KEPT_VALUES.0.get().cast::<c_char>().add(start));
            }
        }
    }
    None
}

/// Standard error may be another file when the library is loaded. It is kept if lines of `--explain` go to a file of their own.
fn keep_errors() {
    let Some(to) = GIVEN.variables.get(EXPLAIN).map(|value| value.load(Ordering::Relaxed)) else { return };
    // SAFETY: null, or a string of C.
    if to.is_null() || unsafe { to.read() } as u8 == b'-' {
        return;
    }
    let mut file = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: there is room for it, and zeros are a valid value.
    let file = unsafe {
        if libc::fstat(libc::STDERR_FILENO, file.as_mut_ptr()) != 0 {
            return;
        }
        file.assume_init()
    };
    let [device, inode] = &GIVEN.errors;
    device.store(file.st_dev, Ordering::Relaxed);
    inode.store(file.st_ino, Ordering::Relaxed);
}
