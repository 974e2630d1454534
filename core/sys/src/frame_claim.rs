//! Reserves an EtherType on an interface against other processes.
//!
//! The kernel has no such lock, but each interface has a list of link-layer multicast addresses to receive, with
//! the number of users of each (`__dev_mc_add` in net/core/dev_addr_lists.c; /proc/net/dev_mcast). So a claim is a
//! packet socket that adds an address derived from interface and EtherType to that list. Like the claim itself,
//! this takes CAP_NET_RAW in the interface's network namespace, so no unprivileged user can take it or block it. It
//! belongs to the interface, whatever files the process sees, and it ends with the socket, however the process
//! ends. The address is locally administered (IEEE 802, bit 1 of the first byte), nobody sends to it, and the
//! socket receives nothing.
#![cfg_attr(test, allow(unsafe_code, reason = "a test gives up its user's rights on a thread of its own"))]

use std::fmt::Write as _;
use std::fs::read_to_string;
use std::io;
use std::os::fd::OwnedFd;

use rustix::net::{SocketFlags, SocketType};

use crate::descriptors::close_late;
use crate::packet_socket::{self, Membership};

/// A socket of this protocol receives nothing.
const NO_PROTOCOL: u16 = 0;

/// An EtherType held on an interface. Dropping it releases it, which takes an RCU grace period of the kernel.
#[derive(Debug)]
pub struct FrameClaim {
    ethertype: u16,
    _socket: OwnedFd,
}

impl FrameClaim {
    /// Takes the EtherType, in the calling thread's network namespace; `None` if another process holds it. If two
    /// processes try at the same moment, neither gets it.
    ///
    /// # Errors
    /// What socket(2), bind(2) and setsockopt(2) return: `EPERM` without CAP_NET_RAW.
    pub fn take(ifindex: u32, ethertype: u16) -> io::Result<Option<Self>> {
        let socket = close_late(packet_socket::open(SocketType::DGRAM, SocketFlags::empty())?);
        packet_socket::bind(&socket, ifindex, NO_PROTOCOL)?;
        let address = address(ifindex, ethertype);
        packet_socket::add_membership(&socket, ifindex, Membership::Multicast(address))?;
        // From now on every other process sees us, and we see every process that came earlier.
        let list = read_to_string("/proc/thread-self/net/dev_mcast")?;
        Ok((count(&list, ifindex, address) == Some(1)).then_some(Self { ethertype, _socket: socket }))
    }

    /// The EtherType.
    #[must_use]
    pub const fn ethertype(&self) -> u16 {
        self.ethertype
    }
}

/// Inodes of the sockets with which processes hold EtherTypes on the interface, in the calling thread's network
/// namespace, for an error message. The inodes do not show which EtherType is held.
///
/// # Errors
/// Reading /proc/net/packet.
pub fn holders(ifindex: u32) -> io::Result<Vec<u64>> {
    // Columns: sk RefCnt Type Proto Iface R Rmem User Inode (`packet_seq_show`, net/packet/af_packet.c).
    let table = read_to_string("/proc/thread-self/net/packet")?;
    let (kind, ifindex) = (libc::SOCK_DGRAM.to_string(), ifindex.to_string());
    let inode = |line: &str| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let ours = columns.get(2..5)? == [kind.as_str(), "0000", ifindex.as_str()];
        ours.then(|| columns.get(8)?.parse().ok())?
    };
    Ok(table.lines().skip(1).filter_map(inode).collect())
}

/// The address that represents the claim. It includes the interface, because a VLAN's list is copied to the device
/// below.
fn address(ifindex: u32, ethertype: u16) -> [u8; 6] {
    let [_, a, b, c] = ifindex.to_be_bytes();
    let [d, e] = ethertype.to_be_bytes();
    [0x03, a, b, c, d, e]
}

/// The number of users of the address, from the list's columns: index, name, users, users that count for all,
/// address.
fn count(list: &str, ifindex: u32, address: [u8; 6]) -> Option<u32> {
    let mut digits = String::new();
    for byte in address {
        // Writing to a string cannot fail.
        let _ = write!(digits, "{byte:02x}");
    }
    list.lines().find_map(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let [index, _, users, _, found] = columns.as_slice() else { return None };
        (index.parse() == Ok(ifindex) && *found == digits).then(|| users.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use twinpath_test_rig::until;

    use super::*;
    use crate::Namespace;

    /// Index of the loopback interface, which every new namespace has.
    const LO: u32 = 1;

    #[test]
    fn one_process_holds_a_type_on_an_interface_of_a_namespace() {
        if !twinpath_test_rig::root_or_skip() {
            return;
        }
        let take = |ethertype| FrameClaim::take(LO, ethertype).unwrap();
        let namespace = Namespace::new().unwrap();
        let (first, again, other) =
            namespace.run(|| (take(0x88b5), take(0x88b5).is_some(), take(0x88b6).is_some())).unwrap();
        assert_eq!((first.is_some(), again, other), (true, false, true));
        assert_eq!(namespace.run(|| holders(LO).unwrap().len()).unwrap(), 1);
        assert!(Namespace::new().unwrap().run(|| take(0x88b5).is_some()).unwrap(), "another namespace");
        drop(first);
        // A child of another test may have the descriptor for a moment.
        until("the type is free", || namespace.run(|| take(0x88b5).is_some()).unwrap());
    }

    #[test]
    fn another_user_can_neither_take_nor_block_a_frame_claim() {
        if !twinpath_test_rig::root_or_skip() {
            return;
        }
        let namespace = Namespace::new().unwrap();
        let squat = || {
            let nobody = rustix::fs::Uid::from_raw(65_534);
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
            let taken = FrameClaim::take(LO, 0x88b5).unwrap_err();
            // A capability in a user namespace of its own is none in this one.
            // SAFETY: only this short-lived thread's user and network namespaces are unshared, no descriptors.
            let own = unsafe {
                rustix::thread::unshare_unsafe(
                    rustix::thread::UnshareFlags::NEWUSER | rustix::thread::UnshareFlags::NEWNET,
                )
            };
            (taken.kind(), own.ok().map(|()| FrameClaim::take(LO, 0x88b5)))
        };
        // The threads' sockets are kept until the test has checked.
        let (kind, _elsewhere) = namespace.run(squat).unwrap();
        assert_eq!(kind, io::ErrorKind::PermissionDenied);
        assert!(namespace.run(|| FrameClaim::take(LO, 0x88b5).unwrap().is_some()).unwrap());
    }

    #[test]
    fn the_list_is_read_by_its_columns() {
        let list =
            "2    eth0            1     0     333300000001\n7    eth1            2     0     0300000788b5\n";
        assert_eq!(count(list, 7, address(7, 0x88b5)), Some(2));
        assert_eq!(count(list, 2, address(7, 0x88b5)), None);
        assert_eq!(count("", 7, address(7, 0x88b5)), None);
    }
}
