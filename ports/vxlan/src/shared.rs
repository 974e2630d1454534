//! UDP ports shared by several VXLAN ports, each for a network of its own.
//!
//! Each VXLAN port has its own socket, so the ports may belong to different workers and know nothing of each other.
//! The sockets of a UDP port are a group (SO_REUSEPORT). A filter of the group tells the kernel to which socket a
//! datagram belongs, by the network in its VXLAN header. A datagram of an unknown network goes to one of them,
//! which counts it.
//!
//! A filter names sockets by their index in the group. It is the order in which they were bound, and changes when
//! one is closed. So a socket that is no longer needed stays in the group, and receives nothing, until another
//! network takes its index or no port of the group is left.
//!
//! The kernel may coalesce datagrams that have the same addresses, UDP ports and length. If they belong to
//! different networks, those that are not of the first one's network are dropped and counted. This is rare: senders
//! choose the source port by a hash of the frame's flow, so it takes flows of two networks with equal addresses and
//! ports, or equal hashes.
#![allow(unsafe_code, reason = "filters are set by options without a safe wrapper")]

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::net::IpAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use twinpath_sys::last_errno;

use crate::sockets::{NETWORKS_MAX, OpenError, receiver, refused_filter};

/// Offset of the network in a datagram's payload, in the upper 24 bits of a word (RFC 7348 section 5).
const NETWORK_AT: u32 = 4;

/// The UDP ports of a switch's VXLAN ports in one network namespace.
#[derive(Debug, Default)]
pub struct UdpPorts {
    groups: BTreeMap<(Option<IpAddr>, u16), Weak<Mutex<Group>>>,
}

/// The sockets of one UDP port, in the order in which they were bound, and their networks.
#[derive(Debug, Default)]
struct Group {
    places: Vec<(Arc<OwnedFd>, Option<u32>)>,
}

/// The socket of one VXLAN port. Its index is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Member {
    socket: Arc<OwnedFd>,
    place: usize,
    group: Arc<Mutex<Group>>,
}

impl UdpPorts {
    /// A socket that receives the datagrams of a network. To be called in the network namespace of these ports.
    pub(crate) fn join(
        &mut self,
        local: Option<IpAddr>,
        udp_port: u16,
        vni: u32,
    ) -> Result<Member, OpenError> {
        self.groups.retain(|_, group| group.strong_count() > 0);
        if let Some(group) = self.groups.get(&(local, udp_port)).and_then(Weak::upgrade) {
            let (socket, place) = lock(&group).add(local, udp_port, vni)?;
            return Ok(Member { socket, place, group });
        }
        // A group admits further sockets without a check. Only a socket outside of it learns whether others have
        // the port.
        drop(receiver(local, udp_port, false)?);
        let mut group = Group::default();
        let (socket, place) = group.add(local, udp_port, vni)?;
        let group = Arc::new(Mutex::new(group));
        self.groups.insert((local, udp_port), Arc::downgrade(&group));
        Ok(Member { socket, place, group })
    }
}

impl Group {
    /// A socket for a network, and its index: a free one or a new one. Datagrams of other networks arrive as
    /// before, throughout.
    fn add(
        &mut self,
        local: Option<IpAddr>,
        udp_port: u16,
        vni: u32,
    ) -> Result<(Arc<OwnedFd>, usize), OpenError> {
        if self.places.iter().any(|(_, network)| *network == Some(vni)) {
            return Err(OpenError::NetworkInUse { vni, port: udp_port });
        }
        if let Some(place) = self.places.iter().position(|(_, network)| network.is_none()) {
            let socket = self.places[place].0.clone();
            while recv(&socket, &mut [0_u8; 0][..], RecvFlags::DONTWAIT).is_ok() {}
            self.places[place].1 = Some(vni);
            let opened = self.tell().and_then(|()| take_everything(&socket));
            return match opened {
                Ok(()) => Ok((socket, place)),
                Err(error) => {
                    self.leave(place);
                    Err(refused_filter(self.places.len(), error))
                }
            };
        }
        let place = self.places.len();
        if place == NETWORKS_MAX {
            return Err(OpenError::Networks { port: udp_port });
        }
        // The filter must know the socket before it is bound, so that it gets no datagram of another network.
        if let Some((socket, _)) = self.places.first() {
            tell(socket, &self.program(Some(vni))).map_err(|error| refused_filter(place + 1, error))?;
        }
        let socket = Arc::new(receiver(local, udp_port, true)?);
        self.places.push((socket.clone(), Some(vni)));
        if let Err(error) = self.tell() {
            self.leave(place);
            return Err(refused_filter(self.places.len(), error));
        }
        Ok((socket, place))
    }

    /// A network is no longer received. Its socket receives nothing from now on.
    fn leave(&mut self, place: usize) {
        let Some((socket, network)) = self.places.get_mut(place) else { return };
        *network = None;
        // If that fails, datagrams wait there until the socket's queue is full, and are discarded later.
        let _ = attach(socket, libc::SO_ATTACH_FILTER, &[statement(RETURN, 0)]);
        let _ = self.tell();
    }

    fn tell(&self) -> Result<(), Errno> {
        self.places.first().map_or(Ok(()), |(socket, _)| tell(socket, &self.program(None)))
    }

    /// The filter: it returns the index of the socket for a datagram. If given, one more network gets the index
    /// after the last.
    fn program(&self, further: Option<u32>) -> Vec<libc::sock_filter> {
        let mut program = vec![statement(LOAD_WORD, NETWORK_AT), statement(SHIFT_RIGHT, 8)];
        let networks = self.places.iter().map(|(_, network)| *network).chain([further]);
        let mut other = None;
        for (place, network) in (0..).zip(networks) {
            let Some(network) = network else { continue };
            other.get_or_insert(place);
            // If it is not equal, the next instruction is skipped.
            program.push(libc::sock_filter { code: IF_EQUAL, jt: 0, jf: 1, k: network });
            program.push(statement(RETURN, place));
        }
        program.push(statement(RETURN, other.unwrap_or(0)));
        program
    }
}

impl Member {
    pub(crate) fn socket(&self) -> &OwnedFd {
        &self.socket
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        lock(&self.group).leave(self.place);
    }
}

fn lock(group: &Mutex<Group>) -> MutexGuard<'_, Group> {
    // Each change is complete before anything in it can panic.
    group.lock().unwrap_or_else(PoisonError::into_inner)
}

const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const SHIFT_RIGHT: u16 = (libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K) as u16;
const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

const fn statement(code: u16, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt: 0, jf: 0, k }
}

/// Replaces the filter of a socket's group.
fn tell(socket: &OwnedFd, program: &[libc::sock_filter]) -> Result<(), Errno> {
    attach(socket, libc::SO_ATTACH_REUSEPORT_CBPF, program)
}

fn attach(socket: &OwnedFd, option: c_int, program: &[libc::sock_filter]) -> Result<(), Errno> {
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    // SAFETY: the option's value is a description of the instructions, which live across the call; the kernel copies them.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw const program).cast::<c_void>(),
            size_of_val(&program) as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(last_errno()) }
}

/// Removes the filter that [`Group::leave`] has set.
fn take_everything(socket: &OwnedFd) -> Result<(), Errno> {
    match twinpath_sys::udp_socket::set_option(socket, libc::SOL_SOCKET, libc::SO_DETACH_FILTER, 0) {
        // There was none.
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}
