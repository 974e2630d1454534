//! The library that `twinpath run` names to the dynamic loader. Every program that is started under `run` has it, also those that run for
//! a moment and have nothing to do with UDP. So it is small, and keeps some variables of the environment, nothing else, when it begins.
//! It has the same hooks as the library beside it (`libtwinpath_preload.so`), and passes calls on to the C library. It loads that library
//! when
//!
//! - the program makes its first UDP socket or its first set of epoll(7): before that there is nothing to know; or
//! - the program is about to take away from itself what loading needs: its root (chroot), system calls (seccomp), files (landlock); or
//! - a program with threads forks: nothing can be loaded in its child; or
//! - another thread might have to do so while a constructor of a library waits for that thread (`libraries`).
//!
//! A program that is built with a sanitizer gets nothing more (`sanitizer`).
//!
//! From then on calls go to the hooks of that library. It gets the functions of the C library, and what was kept, by [`given::Given`].
//!
//! `sockets/preload/build.rs` builds the shared library: without the standard library, whose 540 relocations cost 0.02 ms an exec, and with
//! `panic=abort`, as cargo has no such profile for one package of several. Built otherwise, this crate exports nothing.
#![no_std]

mod arch;
pub mod entries;
pub mod environment;
mod errno;
mod explain;
pub mod given;
pub mod handler;
pub mod hooks;
mod libraries;
mod loading;
mod passing;
mod real;
pub mod sanitizer;
pub mod stack;
mod vfork;

/// No code of this library panics: a test of `sockets/preload` says so by its size.
#[cfg(panic = "abort")]
#[allow(unsafe_code, reason = "the C library ends the process")]
#[panic_handler]
fn panicked(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: it takes nothing, and does not return.
    unsafe { libc::abort() }
}
