//! Two network namespaces joined by a veth pair: `near`, where the programs are, and `far`, which sends.
//!
//! The namespaces have no names: they go away with the last descriptor, however the test ends.
#![allow(unsafe_code, reason = "packet sockets and namespaces have no safe call")]

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{SocketFlags, SocketType};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use twinpath_bpf::QUEUES_MAX;
use twinpath_frame::Mapping;
use twinpath_rings::pending::STRIDE;
use twinpath_sys::{Namespace, packet_socket};
use twinpath_test_rig::{ip_here, name_of, run_here};

pub(crate) const NEAR: &str = "tpnear";
const FAR: &str = "tpfar";
const DEADLINE: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

/// Held while a test closes descriptors and checks the effect: when another test starts `ip`, the child holds copies
/// of them for a moment, between fork and exec.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The pair; the calling thread is in the near namespace. Only one at a time.
pub(crate) struct Lab {
    near: Namespace,
    far: Namespace,
    pub(crate) ifindex: u32,
    _alone: MutexGuard<'static, ()>,
}

impl Lab {
    /// With addresses (10.0.0.2 near, 10.0.0.1 far, fd00:: likewise) and static neighbour entries, or with neither,
    /// so that the kernel sends no frame by itself.
    pub(crate) fn new(addresses: bool) -> Self {
        let alone = alone();
        let [near, far] = [(); 2].map(|()| Namespace::new().unwrap());
        enter(&near);
        let far_path = name_of(&far);
        ip_here(&format!(
            "link add {NEAR} address 02:00:00:00:00:02 mtu 3000 type veth peer name {FAR} address 02:00:00:00:00:01 mtu 3000 netns {far_path}"
        ));
        let lab = Self { near, far, ifindex: index_of(NEAR), _alone: alone };
        lab.set_up(NEAR, 2, 1, addresses);
        lab.in_far(|| lab.set_up(FAR, 1, 2, addresses));
        lab
    }

    fn set_up(&self, name: &str, own: u8, other: u8, addresses: bool) {
        ip_here("link set lo up");
        if !addresses {
            ip_here(&format!("link set {name} addrgenmode none"));
        }
        ip_here(&format!("link set {name} up"));
        if addresses {
            ip_here(&format!("addr add 10.0.0.{own}/24 dev {name}"));
            ip_here(&format!("addr add fd00::{own}/64 dev {name} nodad"));
            for peer in [format!("10.0.0.{other}"), format!("fd00::{other}")] {
                ip_here(&format!(
                    "neigh replace {peer} lladdr 02:00:00:00:00:0{other} dev {name} nud permanent"
                ));
            }
        }
    }

    /// Runs `action` on this thread in the far namespace; sockets it makes stay there.
    pub(crate) fn in_far<T>(&self, action: impl FnOnce() -> T) -> T {
        enter(&self.far);
        let result = action();
        enter(&self.near);
        result
    }

    /// A packet socket that injects frames at the far end.
    pub(crate) fn injector(&self) -> PacketSocket {
        self.in_far(|| PacketSocket::new(index_of(FAR), 0, |_| {}))
    }

    /// A packet socket that receives every frame that arrives at the far end.
    pub(crate) fn far_listener(&self) -> PacketSocket {
        self.in_far(|| PacketSocket::receiver(index_of(FAR), |_| {}))
    }

    /// A kernel UDP socket at the far end.
    pub(crate) fn far_udp(&self, address: &str) -> UdpSocket {
        self.in_far(|| UdpSocket::bind(address).unwrap())
    }
}

fn enter(namespace: &Namespace) {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
}

/// Runs `tc` and returns its output.
pub(crate) fn tc(arguments: &[&str]) -> String {
    run_here("tc", arguments)
}

fn index_of(name: &str) -> u32 {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    rustix::net::netdevice::name_to_index(socket, name).unwrap()
}

/// An AF_PACKET socket on one interface.
pub(crate) struct PacketSocket(OwnedFd);

impl PacketSocket {
    /// `protocol` 0: only for sending. `prepare` runs before the first frame can arrive.
    pub(crate) fn new(ifindex: u32, protocol: u16, prepare: impl FnOnce(BorrowedFd<'_>)) -> Self {
        let socket = Self(packet_socket::open(SocketType::RAW, SocketFlags::empty()).unwrap());
        set_option(&socket.0, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1);
        set_option(&socket.0, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 512 << 20);
        prepare(socket.0.as_fd());
        packet_socket::bind(&socket, ifindex, protocol).unwrap();
        socket
    }

    /// A packet socket that receives all frames of an interface, as the packet path needs it.
    pub(crate) fn receiver(ifindex: u32, prepare: impl FnOnce(BorrowedFd<'_>)) -> Self {
        Self::new(ifindex, libc::ETH_P_ALL as u16, prepare)
    }

    pub(crate) fn send(&self, frame: &[u8]) {
        rustix::net::send(&self.0, frame, rustix::net::SendFlags::empty()).unwrap();
    }

    /// The next frame, if there is one.
    pub(crate) fn take(&self) -> Option<Vec<u8>> {
        let mut buffer = vec![0; 70_000];
        match rustix::net::recv(&self.0, &mut buffer[..], rustix::net::RecvFlags::DONTWAIT) {
            Ok((len, _)) => {
                buffer.truncate(len);
                Some(buffer)
            }
            Err(rustix::io::Errno::AGAIN) => None,
            Err(error) => panic!("{error}"),
        }
    }

    pub(crate) fn join_fanout(&self, group: u16) {
        // Round robin, so that both members get some.
        set_option(&self.0, libc::SOL_PACKET, libc::PACKET_FANOUT, i32::from(group) | 1 << 16);
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

pub(crate) fn set_option(socket: impl AsFd, level: i32, name: i32, value: i32) {
    // SAFETY: the value outlives the call, its size is given.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<i32>() as u32,
        )
    };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
}

/// A kernel UDP socket at the near end that keeps what arrives.
pub(crate) fn near_udp(address: &str) -> UdpSocket {
    let socket = UdpSocket::bind(address).unwrap();
    set_option(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 512 << 20);
    socket.set_nonblocking(true).unwrap();
    socket
}

/// The next datagram, if there is one.
pub(crate) fn take(socket: &UdpSocket) -> Option<(Vec<u8>, SocketAddr)> {
    let mut buffer = vec![0; 70_000];
    match socket.recv_from(&mut buffer) {
        Ok((len, from)) => {
            buffer.truncate(len);
            Some((buffer, from))
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
        Err(error) => panic!("{error}"),
    }
}

/// Waits until one of the sockets is readable, at most five seconds.
pub(crate) fn wait_for(sockets: &[BorrowedFd<'_>]) {
    let mut fds: Vec<_> = sockets.iter().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
    let ready = poll(&mut fds, Some(&DEADLINE)).unwrap();
    assert!(ready > 0, "nothing arrived in five seconds");
}

/// The word of the first queue that says since when a frame has waited for its worker, and those of the other queues.
pub(crate) struct Word(Mapping);

impl Word {
    pub(crate) fn load_of(&self, queue: usize) -> u64 {
        assert!(queue < QUEUES_MAX as usize);
        // SAFETY: the mapping has as many words, aligned to a page; a 64-bit atomic takes any bits.
        unsafe { self.0.base().add(queue * STRIDE).cast::<AtomicU64>().as_ref() }.load(Ordering::SeqCst)
    }

    pub(crate) fn store(&self, value: u64) {
        // SAFETY: the mapping begins with the word, aligned to a page; a 64-bit atomic takes any bits.
        unsafe { self.0.base().cast::<AtomicU64>().as_ref() }.store(value, Ordering::SeqCst);
    }
}

/// Maps it.
pub(crate) fn first_word(words: BorrowedFd<'_>) -> Word {
    Word(Mapping::of_fd(words, QUEUES_MAX as usize * STRIDE, 0).unwrap())
}
