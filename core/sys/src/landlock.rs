//! What this kernel's Landlock has mended (landlock(7), "Errata").
#![allow(unsafe_code, reason = "landlock_create_ruleset(2) has no safe wrapper for its errata")]

/// `LANDLOCK_CREATE_RULESET_ERRATA` of linux/landlock.h.
const ASK_ERRATA: u32 = 1 << 1;
/// Erratum 3 of linux/security/landlock/errata/abi-1.h: access to a file whose entry is not connected to the root of its
/// mount, as after it was opened by its handle, is decided at the root of the mount, and no longer refused.
const DISCONNECTED: i64 = 1 << 2;

/// Whether rules for the root of a mount hold for its files that are opened by handle.
#[must_use]
pub fn takes_handles() -> bool {
    // SAFETY: with this flag and no attributes it reads and writes no memory.
    let errata = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<libc::c_void>(),
            0_usize,
            ASK_ERRATA,
        )
    };
    // A kernel that does not know the flag returns -1.
    errata > 0 && errata & DISCONNECTED != 0
}
