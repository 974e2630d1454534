//! A stack for what takes more than threads of the program may have: their stacks may be of 16 KiB (PTHREAD_STACK_MIN), or smaller ones for
//! handlers of signals.
#![allow(unsafe_code, reason = "memory is mapped, and a function called on it")]

use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::ptr::null_mut;

use crate::arch;

/// Loading a library takes some KB, and the beginning of a lease some 60.
const LEN: usize = 256 << 10;

struct Call<W, R> {
    work: Option<W>,
    done: Option<R>,
}

/// Does the work on a stack of its own, which is unmapped again. `None`: there is no memory for that. The work must not panic, or ask whether
/// a handler of a signal runs ([`is_running`](crate::handler::is_running)).
pub fn with_room<W: FnOnce() -> R, R>(work: W) -> Option<R> {
    /// # Safety
    /// `call` is a [`Call`] of these types, which nobody else has.
    unsafe extern "C" fn run<W: FnOnce() -> R, R>(call: *mut c_void) {
        // SAFETY: it is the value below, which nobody else has meanwhile.
        let call = unsafe { &mut *call.cast::<Call<W, R>>() };
        call.done = call.work.take().map(|work| work());
    }
    let (rights, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // A handler must not see this stack: those of garbage collectors read from where they are to the end of the thread's.
    let [mut all, mut before] = [const { MaybeUninit::<libc::sigset_t>::zeroed() }; 2];
    let mut call = Call { work: Some(work), done: None };
    // SAFETY: new memory, of nobody else. It ends at the end of a page, and is not used any more when the call returns. The function takes
    // what is passed with it.
    unsafe {
        let stack = libc::mmap(null_mut(), LEN, rights, kind | libc::MAP_STACK, -1, 0);
        if stack == libc::MAP_FAILED {
            return None;
        }
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        arch::call_on(stack.byte_add(LEN), run::<W, R>, (&raw mut call).cast());
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), null_mut());
        libc::munmap(stack, LEN);
    }
    call.done
}

#[cfg(test)]
mod tests {
    use core::hint::black_box;

    use super::{LEN, with_room};

    #[test]
    fn work_has_its_own_stack_and_returns_what_it_has_made() {
        let (here, factor) = (0u8, black_box(3usize));
        let done = with_room(|| {
            let large = black_box([1u8; LEN / 16]);
            (large.iter().map(|byte| usize::from(*byte)).sum::<usize>() * factor, (&raw const large).addr())
        });
        let (sum, there) = done.expect("memory");
        assert_eq!(sum, 3 * LEN / 16);
        assert!(there.abs_diff((&raw const here).addr()) > LEN);
    }
}
