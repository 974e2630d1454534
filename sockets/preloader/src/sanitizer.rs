//! Programs with a sanitizer of memory or of threads, which the compiler has built in. A sanitizer takes the place of the same calls of the
//! C library, and watches memory and stacks. Such a program is left alone: `twinpath run` starts it without this library, but another
//! program that has it may start it.
#![allow(unsafe_code, reason = "functions are looked for by name")]

use core::ffi::CStr;

/// What the checks have, in the program or in a library of theirs, and how they are called.
const ALL: [(&CStr, &CStr); 4] = [
    (c"__asan_init", c"AddressSanitizer"),
    (c"__tsan_init", c"ThreadSanitizer"),
    (c"__hwasan_init", c"HWAddressSanitizer"),
    (c"__msan_init", c"MemorySanitizer"),
];

/// The checks that the program has been built with, if any. Not for handlers of signals: the dynamic loader is asked.
#[must_use]
pub fn found() -> Option<&'static CStr> {
    // SAFETY: it is a string of C.
    let has = |name: &CStr| unsafe { !libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()).is_null() };
    ALL.into_iter().find(|(name, _)| has(name)).map(|(_, called)| called)
}
