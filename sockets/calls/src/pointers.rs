//! Arguments that the kernel refuses. A call with such a one goes to the kernel unchanged, or returns EFAULT as it does. Whether memory
//! can be read or written only the kernel knows: it is asked once for each page that no call has read or written before. A page that is
//! unmapped later is not noticed.
#![allow(unsafe_code, reason = "messages are the caller's memory, described by pointers")]

use std::mem::{MaybeUninit, size_of};
use std::ptr::null;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use libc::{c_int, iovec, msghdr, sigset_t};

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

/// The same, of so many values. As for the kernel, they may lie anywhere: a program may have packed structures.
pub(crate) fn can_be_of<T>(at: *const T, count: usize) -> bool {
    count.checked_mul(size_of::<T>()).is_some_and(|len| can_be(at.cast(), len))
}

/// Bytes of a page; where they are larger, the kernel is asked more often.
const PAGE: usize = 4096;
/// The kernel reads or writes at most as many bytes when it is asked: those of its `sigset_t`.
const ASKED_MAX: usize = 8;

const PLACES_LOG2: u32 = 10;

/// Pages that can be read (twice their number), or written as well (one more). Each has one place, as a program has few buffers, and only a
/// system call is lost if two share it.
static PAGES: [AtomicUsize; 1 << PLACES_LOG2] = [const { AtomicUsize::new(usize::MAX) }; 1 << PLACES_LOG2];

/// The place of a page. Buffers that are a power of two apart have different ones (Fibonacci hashing).
#[inline]
fn place_of(page: usize) -> &'static AtomicUsize {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    &PAGES[((page as u64).wrapping_mul(GOLDEN) >> (u64::BITS - PLACES_LOG2)) as usize]
}

/// What is asked about memory.
trait Ask: Copy {
    /// Whether it is known of a page, by what its place has.
    fn is_known(self, page: usize) -> bool;

    /// Asks the kernel for the part of this memory that is in the page. What is in its place from then on; `None`: it is refused. `errno` may
    /// be another one then.
    fn ask(self, at: *const u8, len: usize, page: usize) -> Option<usize>;
}

/// Whether it can be read.
#[derive(Clone, Copy)]
struct Read;
/// Whether it can be written, and loses what is there by that.
#[derive(Clone, Copy)]
struct Write;
/// Whether it can be written, and keeps what is there.
#[derive(Clone, Copy)]
struct Change;

const fn readable(page: usize) -> usize {
    page << 1
}

const fn writable(page: usize) -> usize {
    page << 1 | 1
}

fn is_writable(page: usize) -> bool {
    place_of(page).load(Ordering::Relaxed) == writable(page)
}

/// Whether the kernel has refused a pointer. One that does not do what it is asked to, as a filter of seccomp(2) forbids the call, has said
/// nothing against it.
fn is_refused(done: libc::c_long) -> bool {
    done < 0 && errno() == libc::EFAULT
}

/// Whether the page is there after the kernel has been asked to make it so (Linux 5.14). Otherwise what a call does there has to be tried: the
/// kernel may be older, or the page may be that by which a stack grows next.
fn is_populated(page: *const u8, advice: c_int) -> bool {
    // SAFETY: the kernel looks at the pointer itself, and changes nothing that is there.
    unsafe { libc::madvise(page.cast_mut().cast(), PAGE, advice) == 0 }
}

impl Ask for Read {
    #[inline]
    fn is_known(self, page: usize) -> bool {
        place_of(page).load(Ordering::Relaxed) >> 1 == page
    }

    fn ask(self, at: *const u8, _: usize, page: usize) -> Option<usize> {
        const NO_CHANGE: c_int = -1;
        let (place, none) = (at.with_addr(page * PAGE), null::<u8>());
        let is_there = is_populated(place, libc::MADV_POPULATE_READ) || {
            // SAFETY: the kernel looks at the pointer itself, reads, and refuses what it is to do with that.
            let done = unsafe { libc::syscall(libc::SYS_rt_sigprocmask, NO_CHANGE, place, none, ASKED_MAX) };
            !is_refused(done)
        };
        is_there.then_some(readable(page))
    }
}

impl Ask for Write {
    #[inline]
    fn is_known(self, page: usize) -> bool {
        is_writable(page)
    }

    /// By having the kernel write at the beginning of what is to be written there.
    fn ask(self, at: *const u8, len: usize, page: usize) -> Option<usize> {
        let (from, to) = (at.addr().max(page * PAGE), (at.addr() + len).min((page + 1) * PAGE));
        let (place, len) = (at.with_addr(from), ASKED_MAX.min(to - from));
        // SAFETY: the kernel looks at the pointer itself. It writes the signals that are held back, or as many bytes as are asked for of
        // those that wait, and changes nothing else.
        let done = unsafe {
            if len == ASKED_MAX {
                libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, null::<u8>(), place, len)
            } else {
                libc::syscall(libc::SYS_rt_sigpending, place, len)
            }
        };
        (!is_refused(done)).then_some(writable(page))
    }
}

impl Ask for Change {
    #[inline]
    fn is_known(self, page: usize) -> bool {
        is_writable(page)
    }

    /// At last by having the kernel add nothing to the first word of the page, at once as regards other threads.
    fn ask(self, at: *const u8, _: usize, page: usize) -> Option<usize> {
        static NOBODY_WAITS: AtomicU32 = AtomicU32::new(0);
        let operation = libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG;
        let (place, add_nothing) = (at.with_addr(page * PAGE), libc::FUTEX_OP_ADD << 28);
        let (own, none) = (NOBODY_WAITS.as_ptr(), 0 as libc::c_long);
        let is_there = is_populated(place, libc::MADV_POPULATE_WRITE) || {
            // SAFETY: the kernel looks at the pointer itself.
            let done = unsafe { libc::syscall(libc::SYS_futex, own, operation, 0, none, place, add_nothing) };
            !is_refused(done)
        };
        is_there.then_some(writable(page))
    }
}

#[inline]
fn can(what: impl Ask, at: *const u8, len: usize) -> bool {
    let page = at.addr() / PAGE;
    let last = at.addr().wrapping_add(len).wrapping_sub(1) / PAGE;
    // Most datagrams lie in one page, or in two.
    what.is_known(page) && (last == page || last == page + 1 && what.is_known(last)) || look(what, at, len)
}

#[cold]
fn look(what: impl Ask, at: *const u8, len: usize) -> bool {
    let mut pages = at.addr() / PAGE..at.addr().wrapping_add(len).div_ceil(PAGE);
    len == 0 || can_be(at, len) && pages.all(|page| what.is_known(page) || asked(what, at, len, page))
}

/// Asks for a page. `errno` stays as it is.
fn asked(what: impl Ask, at: *const u8, len: usize, page: usize) -> bool {
    let before = errno();
    let answer = what.ask(at, len, page);
    set_errno(before);
    answer.inspect(|answer| place_of(page).store(*answer, Ordering::Relaxed)).is_some()
}

/// Whether the bytes can be written, which is done then: some may be overwritten by this.
#[inline]
#[must_use]
pub fn can_write(at: *mut u8, len: usize) -> bool {
    can(Write, at, len)
}

/// Whether the bytes can be read.
#[inline]
#[must_use]
pub fn can_read(at: *const u8, len: usize) -> bool {
    can(Read, at, len)
}

/// The same, of so many values, which may lie anywhere.
#[inline]
pub(crate) fn can_read_of<T>(at: *const T, count: usize) -> bool {
    count.checked_mul(size_of::<T>()).is_some_and(|len| can_read(at.cast(), len))
}

/// Whether so many values can be changed: they can be written, and are as they were.
#[inline]
pub(crate) fn can_change_of<T>(at: *const T, count: usize) -> bool {
    count.checked_mul(size_of::<T>()).is_some_and(|len| can(Change, at.cast(), len))
}

/// An argument that may be null.
///
/// # Errors
/// EFAULT: it cannot be read.
///
/// # Safety
/// What can be read there is such a value.
#[inline]
pub(crate) unsafe fn optional<T: Copy>(at: *const T) -> Result<Option<T>, c_int> {
    if at.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    if can_read_of(at, 1) { Ok(Some(unsafe { at.read_unaligned() })) } else { Err(libc::EFAULT) }
}

/// A set of signals, of which the kernel reads less than the C library has, or null.
///
/// # Errors
/// EFAULT: it cannot be read.
///
/// # Safety
/// What can be read there is such a set.
#[inline]
pub(crate) unsafe fn mask(at: *const sigset_t) -> Result<Option<sigset_t>, c_int> {
    // SAFETY: the caller's promise.
    let signals = unsafe { optional(at.cast::<[u8; ASKED_MAX]>()) }?;
    Ok(signals.map(|signals| {
        let mut mask = MaybeUninit::<sigset_t>::zeroed();
        // SAFETY: there is room for the signals, and all zeros are a valid value of the rest.
        unsafe {
            mask.as_mut_ptr().cast::<[u8; ASKED_MAX]>().write(signals);
            mask.assume_init()
        }
    }))
}

/// Values of an array that may lie anywhere.
///
/// # Safety
/// The array has so many values, as long as this is used.
pub(crate) unsafe fn values<T: Copy>(at: *const T, count: usize) -> impl Iterator<Item = T> {
    // SAFETY: the caller's promise.
    (0..count).map(move |number| unsafe { at.wrapping_add(number).read_unaligned() })
}

/// The length of a buffer, as the kernel cuts it.
pub(crate) fn cut(len: usize) -> usize {
    len.min(BYTES_MAX)
}

/// What of a message is the program's. Our own memory is there: it is not asked for, and takes no place of another page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Theirs {
    All,
    /// The message is ours.
    Pieces,
    /// The message and the array of its pieces are ours.
    Bytes,
}

impl Theirs {
    /// Whether the message can be read.
    fn can_read(self, message: *const msghdr) -> bool {
        self != Self::All || can_read_of(message, 1)
    }

    /// Whether the message can be written.
    pub(crate) fn can_change(self, message: *const msghdr) -> bool {
        self != Self::All || can_change_of(message, 1)
    }
}

/// Whether the kernel would begin to receive. What it refuses later, after it has taken a datagram, is found when that is written.
///
/// # Safety
/// As for `recvmsg(2)`, if the pointers can be of the program's memory.
pub(crate) unsafe fn is_sound(message: *const msghdr, theirs: Theirs) -> bool {
    if !theirs.can_read(message) {
        return false;
    }
    // SAFETY: the caller's promise.
    let message = unsafe { message.read_unaligned() };
    let (pieces, count) = (message.msg_iov, message.msg_iovlen);
    let has_name = !message.msg_name.is_null();
    if count > PIECES_MAX || has_name && message.msg_namelen > c_int::MAX as u32 {
        return false;
    }
    if count == 0 {
        return true;
    }
    // SAFETY: as above.
    (theirs == Theirs::Bytes || can_read_of(pieces, count))
        && unsafe { values(pieces, count) }.all(|piece| is_piece_sound(&piece))
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
        assert!(can_be_of(without_provenance::<u64>(1 << 20 | 1), 1));
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
    fn what_is_read_or_changed_is_as_it_was() {
        let at = pages(3);
        // SAFETY: they are of that memory, and used by nobody else.
        unsafe {
            at.write_bytes(7, 2 * PAGE);
            assert_eq!(libc::mprotect(at.add(PAGE).cast(), PAGE, libc::PROT_READ), 0);
            assert_eq!(libc::munmap(at.add(2 * PAGE).cast(), PAGE), 0);
        }
        for _ in 0..2 {
            assert!(
                can_read(at, 2 * PAGE)
                    && !can_read(at, 2 * PAGE + 1)
                    && !can_read(at.wrapping_add(2 * PAGE), 1)
            );
            assert!(can_change_of(at, PAGE) && !can_change_of(at, PAGE + 1) && can_read(at, 2 * PAGE));
        }
        // SAFETY: as above.
        assert!(unsafe { std::slice::from_raw_parts(at, 2 * PAGE) }.iter().all(|byte| *byte == 7));
        assert!(!can_read(null(), 1) && can_read(null(), 0) && !can_change_of(null::<u64>(), 1));
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
