//! Arguments that the kernel refuses, as far as that can be told without asking it. Such a call goes to the kernel
//! unchanged. Memory that is not mapped, or not writable, cannot be recognised here.
#![allow(unsafe_code, reason = "messages are the caller's memory, described by pointers")]

use std::mem::{align_of, size_of};

use libc::{c_int, iovec, msghdr};

/// Upper bound of a program's memory. Beyond it are addresses of the kernel, and invalid ones.
const END: usize = if cfg!(target_arch = "x86_64") { (1 << 47) - 4096 } else { 1 << 52 };
/// Nothing is mapped below.
const BEGIN: usize = 4096;

/// Maximum bytes of one call; a longer piece is cut (`MAX_RW_COUNT`).
const BYTES_MAX: usize = c_int::MAX as usize & !4095;
/// Pieces of a message, and messages of a call (`UIO_MAXIOV`).
pub(crate) const PIECES_MAX: usize = 1_024;

/// Whether this many bytes can be a program's memory.
pub(crate) fn can_be(at: *const u8, len: usize) -> bool {
    at.addr() >= BEGIN && at.addr().checked_add(len).is_some_and(|end| end <= END)
}

/// The same, of values that have an alignment.
pub(crate) fn can_be_of<T>(at: *const T, count: usize) -> bool {
    at.addr().is_multiple_of(align_of::<T>())
        && count.checked_mul(size_of::<T>()).is_some_and(|len| can_be(at.cast(), len))
}

/// The length of a buffer, as the kernel cuts it.
pub(crate) fn cut(len: usize) -> usize {
    len.min(BYTES_MAX)
}

/// Whether the kernel would begin to receive. What it refuses later, after it has taken a datagram, is found when that is written.
///
/// # Safety
/// As for `recvmsg(2)`, if the pointers can be of the program's memory.
pub(crate) unsafe fn is_sound(message: *const msghdr) -> bool {
    if !can_be_of(message, 1) {
        return false;
    }
    // SAFETY: the caller's promise.
    let message = unsafe { &*message };
    let (pieces, count) = (message.msg_iov, message.msg_iovlen);
    if count > PIECES_MAX || message.msg_namelen > c_int::MAX as u32 {
        return false;
    }
    if count == 0 {
        return true;
    }
    // SAFETY: as above.
    can_be_of(pieces, count)
        && unsafe { std::slice::from_raw_parts(pieces, count) }.iter().all(is_piece_sound)
}

fn is_piece_sound(piece: &iovec) -> bool {
    let len = cut(piece.iov_len);
    isize::try_from(piece.iov_len).is_ok()
        && piece.iov_base.addr().checked_add(len).is_some_and(|end| end <= END)
}

#[cfg(test)]
mod tests {
    use std::ptr::without_provenance;

    use super::*;

    #[test]
    fn addresses_that_no_program_has_are_told_from_others() {
        let value = 1u64;
        assert!(can_be_of(&raw const value, 1) && !can_be_of(&raw const value, usize::MAX));
        for address in [0, 1, 4095, END, 1 << 63, usize::MAX] {
            assert!(!can_be(without_provenance(address), 1), "{address:x}");
        }
        assert!(!can_be_of(without_provenance::<u64>(1 << 20 | 1), 1));
        assert_eq!((cut(5), cut(usize::MAX)), (5, 0x7fff_f000));
    }
}
