//! The names that take the place of the C library's, and where their calls go.

#![allow(unsafe_code, reason = "a table has a place for each hook")]

use core::ffi::{c_char, c_void};
use core::ptr::null_mut;
use core::sync::atomic::AtomicPtr;

/// Bytes that a name may have, with the zero behind it.
const NAME_MAX: usize = 16;

/// The name as a string of C. An array of pointers to names would have to be relocated in each program.
const fn name(of: &str) -> [c_char; NAME_MAX] {
    let (of, mut name, mut at) = (of.as_bytes(), [0; NAME_MAX], 0);
    assert!(of.len() < NAME_MAX, "a name has no zero behind it");
    while at < of.len() {
        name[at] = of[at].cast_signed() as c_char;
        at += 1;
    }
    name
}

/// Has `with` make something of all names: those that the library with the hooks has, then those of this library alone.
macro_rules! all_hooks {
    ($with:ident) => {
        $with! {
            __poll_chk __ppoll_chk __read_chk __recv_chk __recvfrom_chk _exit accept accept4 bind close close_range closefrom
            connect dup dup2 dup3 epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait fclose fcntl fcntl64
            freopen freopen64 ioctl poll ppoll pselect read readv recv recvfrom recvmmsg recvmsg select sendmmsg sendmsg
            setsockopt shutdown socket socketpair
            _Fork chroot daemon dlclose dlmopen dlopen fork forkpty prctl pthread_create seteuid setresuid setreuid setuid syscall thrd_create vfork
        }
    };
}

pub(crate) use all_hooks;

macro_rules! hooks {
    ($($name:ident)*) => {
        /// The place of each function in the tables.
        #[allow(non_camel_case_types, reason = "they are named as the functions are")]
        #[derive(Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Hook { $($name),* }

        const COUNT: usize = [$(Hook::$name),*].len();

        /// The functions of the C library that this library takes the place of.
        pub static NAMES: [[c_char; NAME_MAX]; COUNT] = [$(name(stringify!($name))),*];

        pub(crate) const HOOKS: [Hook; COUNT] = [$(Hook::$name),*];
    };
}

all_hooks!(hooks);

/// Hooks of the library that is loaded: the first of [`NAMES`].
pub const OF_THE_OTHER: usize = Hook::socketpair as usize + 1;

/// The name as a string of C.
pub(crate) fn name_of(hook: Hook) -> &'static [c_char; NAME_MAX] {
    // SAFETY: there is one for each.
    unsafe { NAMES.get_unchecked(hook as usize) }
}

/// Whether the function makes a child that has the other threads' locks, and none of the threads.
pub(crate) const fn is_fork(hook: Hook) -> bool {
    matches!(hook, Hook::_Fork | Hook::daemon | Hook::fork | Hook::forkpty)
}

/// Whether the function runs code of libraries, their constructors or destructors, while this thread has the dynamic loader's lock.
pub(crate) const fn runs_libraries(hook: Hook) -> bool {
    matches!(hook, Hook::dlclose | Hook::dlmopen | Hook::dlopen)
}

/// Whether the function makes a thread.
pub(crate) const fn makes_thread(hook: Hook) -> bool {
    matches!(hook, Hook::pthread_create | Hook::thrd_create)
}

/// A function for each hook; null: it was not looked for yet.
#[repr(transparent)]
pub(crate) struct Table([AtomicPtr<c_void>; COUNT]);

impl Table {
    pub(crate) const fn new() -> Self {
        Self([const { AtomicPtr::new(null_mut()) }; COUNT])
    }

    pub(crate) fn at(&self, hook: Hook) -> &AtomicPtr<c_void> {
        // SAFETY: there is one for each.
        unsafe { self.0.get_unchecked(hook as usize) }
    }
}

/// Where calls go.
pub(crate) static TO: Table = Table::new();
