//! Where calls of the program come in. All arguments stay as they are.
#![allow(unsafe_code, reason = "symbols are named as those of the C library; instructions")]
#![allow(non_snake_case, reason = "they are named as the functions are")]

use core::arch::naked_asm;

use crate::hooks::{Hook, TO, all_hooks};
use crate::passing::find;

/// The hook of that name: it jumps to where the table says, and if that is null to where [`find`] says. It is a jump, so a child that shares
/// its parent's stack (`vfork` by `syscall`) returns to the caller, and a seventh argument is where it was.
#[cfg(target_arch = "x86_64")]
macro_rules! entry {
    ($name:ident) => {
        /// A hook: the function of that name.
        ///
        /// # Safety
        /// As for the function.
        #[unsafe(naked)]
        #[cfg_attr(panic = "abort", unsafe(no_mangle))]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "mov r11, qword ptr [rip + {to} + {offset}]",
                "test r11, r11",
                "jz 2f",
                "jmp r11",
                "2:",
                "mov r11d, {at}",
                "jmp {look}",
                ".cfi_endproc",
                to = sym TO,
                offset = const Hook::$name as usize * size_of::<usize>(),
                at = const Hook::$name as usize,
                look = sym look,
            )
        }
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! entry {
    ($name:ident) => {
        /// A hook: the function of that name.
        ///
        /// # Safety
        /// As for the function.
        #[unsafe(naked)]
        #[cfg_attr(panic = "abort", unsafe(no_mangle))]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                ".cfi_startproc",
                "adrp x16, {to} + {offset}",
                "ldr x16, [x16, :lo12:{to} + {offset}]",
                "cbz x16, 2f",
                "br x16",
                "2:",
                "mov w17, {at}",
                "b {look}",
                ".cfi_endproc",
                to = sym TO,
                offset = const Hook::$name as usize * size_of::<usize>(),
                at = const Hook::$name as usize,
                look = sym look,
            )
        }
    };
}

/// Jumps to what [`find`] finds for the hook, whose index is in r11. Of vector registers a hook has none: al says how many there are.
///
/// # Safety
/// It is jumped to by a hook alone.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn look() {
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "push rax",
        "push rax",
        "push r9",
        "push r8",
        "push rcx",
        "push rdx",
        "push rsi",
        "push rdi",
        "mov edi, r11d",
        "mov rsi, rsp",
        "call {find}",
        "mov r11, rax",
        "pop rdi",
        "pop rsi",
        "pop rdx",
        "pop rcx",
        "pop r8",
        "pop r9",
        "pop rax",
        "pop rax",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "jmp r11",
        ".cfi_endproc",
        find = sym find,
    )
}

/// As on x86-64. The index is in x17.
///
/// # Safety
/// As on x86-64.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn look() {
    naked_asm!(
        ".cfi_startproc",
        "stp x29, x30, [sp, #-96]!",
        ".cfi_def_cfa_offset 96",
        ".cfi_offset x29, -96",
        ".cfi_offset x30, -88",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "stp x2, x3, [sp, #32]",
        "stp x4, x5, [sp, #48]",
        "stp x6, x7, [sp, #64]",
        "str x8, [sp, #80]",
        "mov w0, w17",
        "add x1, sp, #16",
        "bl {find}",
        "mov x16, x0",
        "ldp x0, x1, [sp, #16]",
        "ldp x2, x3, [sp, #32]",
        "ldp x4, x5, [sp, #48]",
        "ldp x6, x7, [sp, #64]",
        "ldr x8, [sp, #80]",
        "ldp x29, x30, [sp], #96",
        ".cfi_def_cfa_offset 0",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "br x16",
        ".cfi_endproc",
        find = sym find,
    )
}

macro_rules! entries {
    ($($name:ident)*) => { $(entry!($name);)* };
}

all_hooks!(entries);
