//! A number by which other processes can tell whether the process that holds it still runs.
//!
//! What a process leaves in the kernel's tables does not prove that it still runs. Its process ID may belong to
//! another process by now, or mean nothing in another PID namespace. So a process that leaves something there adds
//! such a number: the name of a socket in the abstract namespace (unix(7)). That namespace belongs to the network
//! namespace, as interfaces do, independent of visible files and processes. The kernel frees the name when the
//! process ends, however it ends. Numbers are drawn at random, so none is used twice.

use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, socket_with};

/// A number, held while this exists.
#[derive(Debug)]
pub struct Alive {
    id: u64,
    _socket: OwnedFd,
}

impl Alive {
    /// Takes a number, in the calling thread's network namespace.
    ///
    /// # Errors
    /// What socket(2) and bind(2) return.
    pub fn new() -> io::Result<Self> {
        let socket = socket()?;
        // The kernel supplies the keys of this state, and they differ each time.
        let id = RandomState::new().hash_one(std::process::id());
        bind(&socket, &address(id)?)?;
        Ok(Self { id, _socket: socket })
    }

    /// The number.
    #[must_use]
    pub const fn id(&self) -> u64 {
        self.id
    }
}

/// Whether a process in the calling thread's network namespace holds this number. Also true if that cannot be
/// determined, for example because a security module forbids it.
#[must_use]
pub fn is_alive(id: u64) -> bool {
    let asked = socket().and_then(|socket| Ok(connect(&socket, &address(id)?)?));
    // Nobody has bound the name (`unix_find_other`).
    !asked.is_err_and(|error| error.raw_os_error() == Some(Errno::CONNREFUSED.raw_os_error()))
}

fn socket() -> io::Result<OwnedFd> {
    Ok(socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?)
}

fn address(id: u64) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new_abstract_name(format!("twinpath-{id:016x}").as_bytes())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_taken_while_it_is_held_and_no_longer() {
        let (one, other) = (Alive::new().unwrap(), Alive::new().unwrap());
        assert_ne!(one.id(), other.id());
        assert!(is_alive(one.id()) && is_alive(other.id()));
        let id = one.id();
        drop(one);
        assert!(!is_alive(id) && is_alive(other.id()));
    }

    #[test]
    fn a_number_is_known_in_its_own_network_namespace_alone() {
        if !twinpath_test_rig::root_or_skip() {
            return;
        }
        let elsewhere = crate::Namespace::new().unwrap();
        let there = elsewhere.run(Alive::new).unwrap().unwrap();
        assert!(!is_alive(there.id()));
        assert!(elsewhere.run(|| is_alive(there.id())).unwrap());
    }
}
