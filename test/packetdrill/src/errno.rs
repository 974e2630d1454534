//! Errors as the C library numbers them.

#![allow(unsafe_code, reason = "errno is a variable of the C library")]

/// The number of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

/// What a call gives, or why not.
pub(crate) type Answer<T> = Result<T, Errno>;

macro_rules! errors {
    ($($name:ident)*) => { $(#[doc = concat!("`", stringify!($name), "`.")] pub(crate) const $name: Self = Self(libc::$name);)* };
}

impl Errno {
    errors! {
        EACCES EADDRNOTAVAIL EAFNOSUPPORT EAGAIN EALREADY EBADF ECONNABORTED ECONNREFUSED ECONNRESET EDESTADDRREQ
        EEXIST EFAULT EHOSTUNREACH EINPROGRESS EINVAL EISCONN ENETUNREACH ENOENT ENOPROTOOPT ENOTCONN ENOTSOCK
        EPIPE EPROTO EPROTONOSUPPORT ETIMEDOUT
    }

    /// Makes it the calling thread's `errno`.
    pub(crate) fn set(self) {
        // SAFETY: the C library gives the place of the calling thread's own variable.
        unsafe { *libc::__errno_location() = self.0 };
    }
}
