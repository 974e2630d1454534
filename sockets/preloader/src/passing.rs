//! Where a call goes that has no place in the table yet, and whether the other library is loaded before it.
#![allow(unsafe_code, reason = "functions are found by name, and called by pointers")]

use core::ffi::{c_int, c_long, c_void};
use core::mem::transmute;
use core::ptr::null_mut;
use core::sync::atomic::Ordering;

use libc::sockaddr_in;

use crate::errno::keeping_errno;
use crate::given::{EXPLAIN, GIVEN};
use crate::hooks::{HOOKS, Hook, TO, is_fork, makes_thread, runs_libraries};
use crate::libraries::{self, Caller};
use crate::loading;
use crate::real::{find_all, missing, real};
use crate::vfork::vfork_noted;

/// Arguments of integers and pointers that are in registers.
const ARGUMENTS: usize = 6;

/// Where a call of the hook with that index goes. `arguments`: those in registers, of which the function has some. Called on any thread, also
/// in handlers of signals.
///
/// # Safety
/// There are that many arguments.
pub(crate) unsafe extern "C" fn find(at: usize, arguments: *const [usize; ARGUMENTS]) -> *mut c_void {
    // SAFETY: the caller's promise.
    let (caller, arguments) = unsafe { (Caller::of(arguments), &*arguments) };
    keeping_errno(|| match HOOKS.get(at) {
        Some(hook) => found(*hook, arguments, &caller),
        None => missing as *mut c_void,
    })
}

fn found(hook: Hook, arguments: &[usize; ARGUMENTS], caller: &Caller) -> *mut c_void {
    if is_fork(hook) || makes_thread(hook) || runs_libraries(hook) {
        find_all();
    }
    let is_only_thread = !loading::may_have_threads();
    if runs_libraries(hook) && is_only_thread && !loading::is_done() {
        libraries::run(caller);
    }
    if makes_thread(hook) {
        if is_only_thread && !loading::is_done() && libraries::may_run(caller) {
            loading::load();
        }
        loading::has_threads();
    }
    if loading::is_late() || !loading::is_done() && loads(hook, arguments) {
        loading::load();
    }
    let to = TO.at(hook);
    let known = to.load(Ordering::Acquire);
    if !known.is_null() {
        return known;
    }
    let goes_to = match loading::hook_of_other(hook).unwrap_or_else(|| real(hook)) {
        found if hook == Hook::vfork && found != missing as *mut c_void => vfork_noted as *mut c_void,
        found => found,
    };
    if loading::is_late() {
        // Each call looks anew whether it can be loaded.
        return match hook {
            Hook::socket if is_udp(arguments) => socket_noted as *mut c_void,
            Hook::bind => bind_noted as *mut c_void,
            _ => goes_to,
        };
    }
    let is_there = goes_to != missing as *mut c_void;
    if is_there && (loading::is_done() || !may_load(hook)) {
        // Another thread may have loaded the library meanwhile.
        let _ = to.compare_exchange(null_mut(), goes_to, Ordering::AcqRel, Ordering::Acquire);
    }
    goes_to
}

/// Whether calls of the hook may load the library, so that each is looked at until it is loaded.
fn may_load(hook: Hook) -> bool {
    match hook {
        _ if is_fork(hook) => loading::may_have_threads(),
        _ if runs_libraries(hook) => true,
        Hook::chroot
        | Hook::epoll_create
        | Hook::epoll_create1
        | Hook::prctl
        | Hook::socket
        | Hook::syscall => true,
        Hook::seteuid | Hook::setresuid | Hook::setreuid | Hook::setuid => true,
        _ => false,
    }
}

/// Whether the call loads the library.
fn loads(hook: Hook, arguments: &[usize; ARGUMENTS]) -> bool {
    let first = arguments[0];
    match hook {
        Hook::socket => is_udp(arguments),
        Hook::epoll_create | Hook::epoll_create1 | Hook::chroot => true,
        _ if is_fork(hook) || runs_libraries(hook) => loading::may_have_threads(),
        Hook::prctl => first as c_int == libc::PR_SET_SECCOMP,
        Hook::syscall => {
            matches!(first as c_long, libc::SYS_seccomp | libc::SYS_landlock_restrict_self | libc::SYS_chroot)
        }
        // The file of --explain is opened by whoever the program is when the library is loaded.
        Hook::seteuid | Hook::setresuid | Hook::setreuid | Hook::setuid => GIVEN.has(EXPLAIN),
        _ => false,
    }
}

/// Whether `socket(2)` makes a UDP socket with these arguments: as `SocketKind::made_by` in `core/sys/src/socket_kind.rs`.
fn is_udp(arguments: &[usize; ARGUMENTS]) -> bool {
    let [domain, kind, protocol, ..] = arguments.map(|argument| argument as c_int);
    matches!(domain, libc::AF_INET | libc::AF_INET6)
        && kind & !(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) == libc::SOCK_DGRAM
        && matches!(protocol, 0 | libc::IPPROTO_UDP)
}

/// `socket(2)` of a UDP socket, where the library cannot be loaded yet.
extern "C" fn socket_noted(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: the C library declares the function so.
    let socket =
        unsafe { transmute::<*mut c_void, extern "C" fn(c_int, c_int, c_int) -> c_int>(real(Hook::socket)) };
    let made = socket(domain, kind, protocol);
    if made >= 0 {
        GIVEN.note(made);
    }
    made
}

/// `bind(2)`, where the library cannot be loaded yet.
extern "C" fn bind_noted(fd: c_int, address: *const sockaddr_in, len: libc::socklen_t) -> c_int {
    type Bind = extern "C" fn(c_int, *const sockaddr_in, libc::socklen_t) -> c_int;
    // SAFETY: the C library declares the function so.
    let bind = unsafe { transmute::<*mut c_void, Bind>(real(Hook::bind)) };
    let bound = bind(fd, address, len);
    if bound == 0 {
        for made in GIVEN.made().filter(|made| made.fd.load(Ordering::Acquire) == fd) {
            // The port is at the same place in addresses of both families.
            // SAFETY: the kernel has read as much of the address.
            if unsafe { address.read_unaligned() }.sin_port != 0 {
                made.is_port_named.store(true, Ordering::Release);
            }
        }
    }
    bound
}

#[cfg(test)]
mod tests {
    use super::{ARGUMENTS, is_udp};
    use twinpath_sys::socket_kind::SocketKind;

    #[test]
    fn the_same_sockets_count_as_udp() {
        let flags = [0, libc::SOCK_CLOEXEC, libc::SOCK_NONBLOCK, libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK];
        for domain in 0..48 {
            for kind in (0..12).flat_map(|kind| flags.map(|flags| kind | flags)) {
                for protocol in [0, 1, libc::IPPROTO_TCP, libc::IPPROTO_UDP, libc::IPPROTO_UDPLITE, 255] {
                    let mut arguments = [0; ARGUMENTS];
                    arguments[..3]
                        .copy_from_slice(&[domain, kind, protocol].map(|argument| argument as usize));
                    let is_known = SocketKind::made_by(domain, kind, protocol) == Some(SocketKind::Udp);
                    assert_eq!(is_udp(&arguments), is_known, "{domain} {kind} {protocol}");
                }
            }
        }
    }
}
