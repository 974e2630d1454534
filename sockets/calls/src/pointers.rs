//! Arguments that the kernel refuses. A call with such a one goes to the kernel unchanged, or returns EFAULT as it does. Whether memory
//! can be written only the kernel knows: it is asked once for each page that a call has not written before. A page that is
//! unmapped later is not noticed.
#![allow(unsafe_code, reason = "messages are the caller's memory, described by pointers")]

use std::mem::{align_of, size_of};
use std::ptr::null;
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::{c_int, iovec, msghdr};

use crate::kernel::{errno, set_errno};

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

/// Bytes of a page; where they are larger, the kernel is asked more often.
const PAGE: usize = 4096;
/// The kernel writes at most as many bytes when it is asked: those of its `sigset_t`.
const ASKED_MAX: usize = 8;

const PLACES_LOG2: u32 = 10;

/// Pages that can be written. Each has one place, as a program has few buffers, and only a system call is lost if two share it.
static PAGES: [AtomicUsize; 1 << PLACES_LOG2] = [const { AtomicUsize::new(usize::MAX) }; 1 << PLACES_LOG2];

/// The place of a page. Buffers that are a power of two apart have different ones (Fibonacci hashing).
#[inline]
fn place_of(page: usize) -> &'static AtomicUsize {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    &PAGES[((page as u64).wrapping_mul(GOLDEN) >> (u64::BITS - PLACES_LOG2)) as usize]
}

/// Whether the bytes can be written, which is done then: some may be overwritten by this.
#[inline]
pub(crate) fn can_write(at: *mut u8, len: usize) -> bool {
    let page = at.addr() / PAGE;
    let last = at.addr().wrapping_add(len).wrapping_sub(1) / PAGE;
    // Most datagrams lie in one page, or in two.
    is_known(page) && (last == page || last == page + 1 && is_known(last)) || look(at, len)
}

#[inline]
fn is_known(page: usize) -> bool {
    place_of(page).load(Ordering::Relaxed) == page
}

#[cold]
fn look(at: *mut u8, len: usize) -> bool {
    let mut pages = at.addr() / PAGE..at.addr().wrapping_add(len).div_ceil(PAGE);
    len == 0 || can_be(at, len) && pages.all(|page| is_known(page) || ask(at, len, page))
}

/// Asks for a page, by having the kernel write at the beginning of what is to be written there. A kernel that does not do it, as a filter
/// of seccomp(2) forbids the call, has said nothing against it. `errno` stays as it is.
fn ask(at: *mut u8, len: usize, page: usize) -> bool {
    let (from, to) = (at.addr().max(page * PAGE), (at.addr() + len).min((page + 1) * PAGE));
    let (place, len) = (at.with_addr(from), ASKED_MAX.min(to - from));
    let before = errno();
    // SAFETY: the kernel looks at the pointer itself. It writes the signals that are held back, or as many bytes as are asked for of
    // those that wait, and changes nothing else.
    let done = unsafe {
        if len == ASKED_MAX {
            libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, null::<u8>(), place, len)
        } else {
            libc::syscall(libc::SYS_rt_sigpending, place, len)
        }
    };
    let is_refused = done < 0 && errno() == libc::EFAULT;
    set_errno(before);
    if !is_refused {
        place_of(page).store(page, Ordering::Relaxed);
    }
    !is_refused
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

    /// Pages of memory of which some are taken away.
    fn pages(count: usize) -> *mut u8 {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: new memory, at any place.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), count * PAGE, protection, flags, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        at.cast()
    }

    #[test]
    fn memory_that_is_not_there_or_can_only_be_read_is_told_from_other() {
        let at = pages(4);
        // SAFETY: they are of that memory, and used by nobody else.
        let (read_only, gone) = unsafe {
            let (read_only, gone) = (at.add(PAGE), at.add(2 * PAGE));
            assert_eq!(libc::mprotect(read_only.cast(), PAGE, libc::PROT_READ), 0);
            assert_eq!(libc::munmap(gone.cast(), PAGE), 0);
            (read_only, gone)
        };
        set_errno(libc::EPROTO);
        for _ in 0..2 {
            assert!(
                can_write(at, PAGE) && !can_write(at, PAGE + 1) && !can_write(at.wrapping_add(PAGE - 1), 2)
            );
            assert!(!can_write(read_only, 1) && !can_write(read_only, PAGE));
            assert!(!can_write(gone, 1) && !can_write(gone, PAGE) && can_write(gone, 0));
        }
        assert_eq!(errno(), libc::EPROTO);
    }

    #[test]
    fn only_what_is_to_be_written_is_touched() {
        let at = pages(2);
        // SAFETY: they are of that memory.
        let all = unsafe {
            at.write_bytes(7, 2 * PAGE);
            assert!(can_write(at.add(PAGE - 9), 12));
            std::slice::from_raw_parts(at, 2 * PAGE)
        };
        let touched: Vec<usize> = (0..2 * PAGE).filter(|place| all[*place] != 7).collect();
        let begins = (PAGE - 9..PAGE - 1).chain(PAGE..PAGE + 3);
        assert_eq!(touched, Vec::from_iter(begins));
    }
}
