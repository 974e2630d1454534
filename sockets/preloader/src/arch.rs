//! What no function of Rust does: words of a thread that no call has to allocate, and a call on another stack.
#![allow(unsafe_code, reason = "instructions")]

use core::arch::naked_asm;
use core::ffi::{c_int, c_void};

/// Words of a thread, in memory that it has from its beginning: no call has to allocate them. All are 0 then.
#[derive(Debug)]
#[repr(C)]
pub struct Words {
    /// Whether calls are those of the library with the hooks, and not the program's.
    pub inside: c_int,
    /// What `errno` was before a fork.
    pub before_fork: c_int,
    /// The process that has entered by the thread.
    pub entered: u64,
    /// The thread has called `vfork(2)`: by it a child may run that has this memory, until the thread itself goes on.
    pub may_be_child: c_int,
}

/// The words of the calling thread ([`Words`]). The dynamic loader gives them to each thread at its beginning.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
pub(crate) extern "C" fn words() -> *mut Words {
    naked_asm!(
        ".pushsection .tbss.twinpath_words, \"awT\", @nobits",
        ".p2align 3",
        "twinpath_words:",
        ".zero 24",
        ".popsection",
        ".cfi_startproc",
        "mov rax, qword ptr [rip + twinpath_words@gottpoff]",
        "add rax, qword ptr fs:[0]",
        "ret",
        ".cfi_endproc",
    )
}

/// As on x86-64.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
pub(crate) extern "C" fn words() -> *mut Words {
    naked_asm!(
        ".pushsection .tbss.twinpath_words, \"awT\", @nobits",
        ".p2align 3",
        "twinpath_words:",
        ".zero 24",
        ".popsection",
        ".cfi_startproc",
        "adrp x0, :gottprel:twinpath_words",
        "ldr x0, [x0, :gottprel_lo12:twinpath_words]",
        "mrs x1, tpidr_el0",
        "add x0, x0, x1",
        "ret",
        ".cfi_endproc",
    )
}

const _: () = assert!(size_of::<Words>() == 24);

/// Words from the arguments that `look` in `sockets/preloader/src/entries.rs` saves to the end of its caller's stack. On x86-64 the address is
/// there that the hook returns to.
pub(crate) const CALLER_AT: usize = if cfg!(target_arch = "x86_64") { 9 } else { 10 };

/// Calls the function with the argument, on a stack that ends there.
///
/// # Safety
/// The end is aligned to 16 bytes, and the stack below it is large enough.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn call_on(
    end: *mut c_void,
    function: unsafe extern "C" fn(*mut c_void),
    argument: *mut c_void,
) {
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov rsp, rdi",
        "mov rdi, rdx",
        "call rsi",
        "mov rsp, rbp",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    )
}

/// As on x86-64.
///
/// # Safety
/// As on x86-64.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn call_on(
    end: *mut c_void,
    function: unsafe extern "C" fn(*mut c_void),
    argument: *mut c_void,
) {
    naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-16]!",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset x29, -16",
        ".cfi_offset x30, -8",
        "mov x29, sp",
        ".cfi_def_cfa_register x29",
        "mov sp, x0",
        "mov x0, x2",
        "blr x1",
        "mov sp, x29",
        "ldp x29, x30, [sp], #16",
        ".cfi_def_cfa sp, 0",
        "ret",
        ".cfi_endproc",
    )
}
