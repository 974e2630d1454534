//! Groups of sockets on a port (SO_REUSEPORT) whose datagrams a BPF program distributes. Our program in the kernel,
//! which finds the socket of a frame, does not run that one. It uses the kernel's hash, as for groups without a
//! program. So sockets of such a port stay with the kernel.

use std::sync::atomic::{AtomicU64, Ordering};

use libc::c_int;
use twinpath_calls::{WhyKernel, table};

use crate::explain;

/// A bit for each port.
static PORTS: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];
/// A bit for each socket that got its program before it was bound, and whether there is any.
static UNBOUND: [AtomicU64; 1024] = [const { AtomicU64::new(0) }; 1024];

/// Whether an option gives the socket's group a program.
pub(crate) const fn is_program(level: c_int, name: c_int) -> bool {
    level == libc::SOL_SOCKET
        && matches!(name, libc::SO_ATTACH_REUSEPORT_CBPF | libc::SO_ATTACH_REUSEPORT_EBPF)
}

fn set(bits: &[AtomicU64; 1024], number: usize, is: bool) {
    let Some(word) = bits.get(number / 64) else { return };
    let bit = 1 << (number % 64);
    if is {
        word.fetch_or(bit, Ordering::Relaxed);
    } else {
        word.fetch_and(!bit, Ordering::Relaxed);
    }
}

#[inline]
fn is_set(bits: &[AtomicU64; 1024], number: usize) -> bool {
    bits.get(number / 64).is_some_and(|word| word.load(Ordering::Relaxed) & 1 << (number % 64) != 0)
}

/// The group of a socket has got a program: sockets of its port that have a lease lose it.
pub(crate) fn has_program(descriptor: c_int) {
    match table::local_address(descriptor) {
        Some(local) => port_has_program(local.port()),
        None => set(&UNBOUND, descriptor as usize, true),
    }
}

/// A socket was bound.
pub(crate) fn bound(descriptor: c_int) {
    if has_unbound(descriptor) {
        set(&UNBOUND, descriptor as usize, false);
        has_program(descriptor);
    }
}

/// Whether the socket of that number got its program before it was bound.
#[inline]
pub(crate) fn has_unbound(descriptor: c_int) -> bool {
    is_set(&UNBOUND, descriptor as usize)
}

/// A number gets another meaning.
pub(crate) fn forget(descriptor: c_int) {
    if has_unbound(descriptor) {
        set(&UNBOUND, descriptor as usize, false);
    }
}

fn port_has_program(port: u16) {
    set(&PORTS, usize::from(port), true);
    for descriptor in table::leased_sockets() {
        let is_on_port = table::local_address(descriptor).is_some_and(|local| local.port() == port);
        if is_on_port && table::give_up(descriptor) {
            explain::from_now_on(descriptor, &WhyKernel::Distributed);
        }
    }
}

/// Whether a program distributes the datagrams of a port.
pub(crate) fn is_distributed(port: u16) -> bool {
    is_set(&PORTS, usize::from(port))
}
