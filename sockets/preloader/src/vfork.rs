//! `vfork(2)`, noted for the calls of its child, which has this memory.
#![allow(unsafe_code, reason = "machine code")]

use core::arch::naked_asm;
use core::mem::offset_of;

use crate::arch::{Words, words};
use crate::hooks::Hook;
use crate::real::REAL;

/// `vfork(2)`: the word of the thread says so first, which its child has as well. It is a jump: the child returns to the caller, and uses the
/// stack from there on.
///
/// # Safety
/// As for `vfork(2)`. The function was looked for ([`real`](crate::real::real)), and is there.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn vfork_noted() {
    naked_asm!(
        ".cfi_startproc",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {words}",
        "mov dword ptr [rax + {may_be_child}], 1",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "jmp qword ptr [rip + {real} + {offset}]",
        ".cfi_endproc",
        words = sym words,
        may_be_child = const offset_of!(Words, may_be_child),
        real = sym REAL,
        offset = const Hook::vfork as usize * size_of::<usize>(),
    )
}

/// As on x86-64.
///
/// # Safety
/// As on x86-64.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn vfork_noted() {
    naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-16]!",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset x29, -16",
        ".cfi_offset x30, -8",
        "bl {words}",
        "mov w1, #1",
        "str w1, [x0, #{may_be_child}]",
        "ldp x29, x30, [sp], #16",
        ".cfi_def_cfa_offset 0",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "adrp x16, {real} + {offset}",
        "ldr x16, [x16, :lo12:{real} + {offset}]",
        "br x16",
        ".cfi_endproc",
        words = sym words,
        may_be_child = const offset_of!(Words, may_be_child),
        real = sym REAL,
        offset = const Hook::vfork as usize * size_of::<usize>(),
    )
}
