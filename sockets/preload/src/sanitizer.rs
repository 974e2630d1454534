//! Programs with a sanitizer of memory or of threads, which the compiler has built in. A sanitizer takes the place of
//! the same calls of the C library, and stops a program in which something else has done so first. `twinpath run`
//! starts such a program without this library; here another program has started it.
#![allow(unsafe_code, reason = "functions are looked for by name")]

use std::ffi::CStr;

/// What the checks have, in the program or in a library of theirs, and how they are called.
const ALL: [(&CStr, &str); 4] = [
    (c"__asan_init", "AddressSanitizer"),
    (c"__tsan_init", "ThreadSanitizer"),
    (c"__hwasan_init", "HWAddressSanitizer"),
    (c"__msan_init", "MemorySanitizer"),
];

/// The checks that the program has been built with, if any.
pub(crate) fn found() -> Option<&'static str> {
    // SAFETY: it is a string of C.
    let has = |name: &CStr| unsafe { !libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()).is_null() };
    ALL.into_iter().find(|(name, _)| has(name)).map(|(_, called)| called)
}
