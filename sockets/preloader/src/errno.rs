//! The number of an error, which calls of the program do not find changed.
#![allow(unsafe_code, reason = "the C library gives a pointer")]

/// Runs `call`, and leaves `errno` as it was.
pub(crate) fn keeping_errno<T>(call: impl FnOnce() -> T) -> T {
    // SAFETY: it is the calling thread's, as long as that runs.
    let (at, error) = unsafe {
        let at = libc::__errno_location();
        (at, at.read())
    };
    let done = call();
    // SAFETY: as above.
    unsafe { at.write(error) };
    done
}
