//! Libraries that the program opens itself. Their constructors run while the thread has the dynamic loader's lock. One that makes a thread,
//! and waits for it, would wait for ever if that thread had to load the library with the hooks. So that is loaded before: when a
//! constructor makes the first thread, or a program with threads opens a library. Destructors run in the same way.
#![allow(unsafe_code, reason = "calls are told apart by their places on the stack")]

use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::arch::CALLER_AT;

/// Where a hook was called from.
pub(crate) struct Caller {
    /// The end of the caller's stack.
    stack: *mut usize,
    /// What is there.
    top: usize,
}

impl Caller {
    /// # Safety
    /// These are the arguments that a hook has saved.
    pub(crate) unsafe fn of<T>(arguments: *const T) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            let stack = arguments.cast::<usize>().add(CALLER_AT);
            Self { stack: stack.cast_mut(), top: stack.read() }
        }
    }
}

/// The outermost call that runs code of libraries, and may not have ended. There is one thread as long as this is looked at.
static STACK: AtomicPtr<usize> = AtomicPtr::new(null_mut());
static TOP: AtomicUsize = AtomicUsize::new(0);

/// The only thread of the program is about to run code of libraries.
pub(crate) fn run(caller: &Caller) {
    if !may_run(caller) {
        STACK.store(caller.stack, Ordering::Relaxed);
        TOP.store(caller.top, Ordering::Relaxed);
    }
}

/// Whether code of such a library may be calling: then the outer call is further up the stack, and the address that it returns to is still
/// there. If that call has ended nothing may have changed there, so this may be said of a caller that is none.
pub(crate) fn may_run(caller: &Caller) -> bool {
    let stack = STACK.load(Ordering::Relaxed);
    stack > caller.stack && (!IS_RETURN_THERE || read(stack) == Some(TOP.load(Ordering::Relaxed)))
}

/// Whether the address that a call returns to is on the stack, and in no register.
const IS_RETURN_THERE: bool = cfg!(target_arch = "x86_64");

/// What is there on the stack; `None`: the stack is not there any more, or a filter of seccomp(2) does not let the kernel say so.
fn read(from: *const usize) -> Option<usize> {
    const NO_CHANGE: c_int = -1;
    // SAFETY: the kernel looks itself whether the pointer can be read, and then refuses what it is asked to do with that.
    let (done, error) = unsafe {
        let none = null_mut::<c_void>();
        let done = libc::syscall(libc::SYS_rt_sigprocmask, NO_CHANGE, from, none, size_of::<usize>());
        (done, libc::__errno_location().read())
    };
    // It has read the set before it refuses what it is to do with that.
    // SAFETY: it can be read, and no other thread could change that.
    (done < 0 && error == libc::EINVAL).then(|| unsafe { from.read_volatile() })
}

#[cfg(test)]
mod tests {
    use core::ptr::without_provenance;

    use super::read;

    #[test]
    fn only_what_can_be_read_is_read() {
        let word = 7;
        assert_eq!(read(&raw const word), Some(7));
        assert_eq!((read(without_provenance(8)), read(without_provenance(1 << 63))), (None, None));
    }
}
