//! The effective capabilities of the calling thread (capabilities(7)).
//!
//! `rustix` passes memory that is not initialised to `capget(2)`. Valgrind knows only the first half of what the kernel
//! writes there, and takes the capabilities from 32 on (CAP_BPF is one) for undefined.
#![allow(unsafe_code, reason = "capget(2) has no other safe wrapper")]

use libc::c_int;
use rustix::thread::CapabilitySet;

/// `_LINUX_CAPABILITY_VERSION_3` of linux/capability.h: 64 capabilities, in two parts.
const VERSION: u32 = 0x2008_0522;

/// `__user_cap_header_struct`
#[repr(C)]
struct Header {
    version: u32,
    /// 0: the calling thread.
    pid: c_int,
}

/// `__user_cap_data_struct`: 32 capabilities.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Part {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// The effective capabilities of the calling thread. If they cannot be read, there are none.
#[must_use]
pub fn effective() -> CapabilitySet {
    let mut header = Header { version: VERSION, pid: 0 };
    let mut parts = [Part::default(); 2];
    // SAFETY: both live across the call, and that version writes two parts.
    let got = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, parts.as_mut_ptr()) };
    if got != 0 {
        return CapabilitySet::empty();
    }
    let [low, high] = parts.map(|part| u64::from(part.effective));
    CapabilitySet::from_bits_retain(high << 32 | low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_are_those_that_the_kernel_lists() {
        let status = std::fs::read_to_string("/proc/thread-self/status").expect("a thread's status");
        let listed = status.lines().find_map(|line| line.strip_prefix("CapEff:\t")).expect("capabilities");
        assert_eq!(effective().bits(), u64::from_str_radix(listed, 16).expect("a number"));
    }
}
