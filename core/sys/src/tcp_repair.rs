//! A connected TCP socket made from the values of a connection that another implementation has had (TCP_REPAIR,
//! include/uapi/linux/tcp.h; `do_tcp_setsockopt`, net/ipv4/tcp.c). It takes CAP_NET_ADMIN.
//!
//! No segment leaves and none is taken until all values are there. The kernel knows no round trip of such a connection,
//! and begins with the congestion window of a new one.
#![allow(unsafe_code, reason = "these options have no safe wrapper")]

use std::ffi::{c_int, c_void};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    AddressFamily, SendFlags, Shutdown, SocketFlags, SocketType, bind, connect, send, shutdown, socket_with,
    sockopt,
};

use crate::socket_filter;

/// `TCP_REPAIR_OFF`, `TCP_REPAIR_OFF_NO_WP` and `TCP_REPAIR_ON` of linux/tcp.h. Off also sends a probe, unless silently, so
/// that the peer says at once what it has and gets to know our window.
const REPAIR_OFF: c_int = 0;
const REPAIR_OFF_SILENTLY: c_int = -1;
const REPAIR_ON: c_int = 1;

/// `TCP_RECV_QUEUE` and `TCP_SEND_QUEUE` of linux/tcp.h.
const RECEIVE_QUEUE: c_int = 1;
const SEND_QUEUE: c_int = 2;

/// Kinds of TCP options, as TCP_REPAIR_OPTIONS has them (`TCPOPT_...`, include/net/tcp.h).
const OPTION_MSS: u32 = 2;
const OPTION_SCALE: u32 = 3;
const OPTION_SACK: u32 = 4;
const OPTION_TIMESTAMPS: u32 = 8;

/// The smallest MSS that the kernel takes by TCP_MAXSEG (`TCP_MIN_MSS`, include/net/tcp.h).
const MSS_MIN: u16 = 88;

/// `SO_BUF_LOCK` of asm-generic/socket.h (since Linux 5.14), which libc has not for every target.
const SO_BUF_LOCK: c_int = 72;

/// How long a socket whose peer has sent its FIN, and which is closed, may wait for another one, in seconds. Not 0, which
/// is the default of the system.
const FIN_WAIT_S: c_int = 1;

/// A connection in the state ESTABLISHED.
#[derive(Clone, Copy, Debug)]
pub struct Established<'a> {
    /// This end; an IPv6 address of the link has its scope.
    pub local: SocketAddr,
    /// The peer; so has this.
    pub remote: SocketAddr,
    /// Bytes of the largest segment behind a header without options that the peer takes and the path carries. What the
    /// kernel knows of the path may shorten it further.
    pub mss: u16,
    /// By how many bits the windows of the peer, and ours, are scaled; 0 if they are not.
    pub scales: (u8, u8),
    /// Whether the peer takes selective acknowledgements.
    pub sack: bool,
    /// The next value of our clock of timestamps, of 1 kHz, if both ends send them.
    pub timestamp: Option<u32>,
    /// The number of the first byte of `unacknowledged`, or of the next one that is sent.
    pub send_number: u32,
    /// Bytes that were sent.
    pub unacknowledged: &'a [u8],
    /// Bytes behind these that were not.
    pub unsent: &'a [u8],
    /// Our FIN behind these.
    pub fin: Fin,
    /// The number that is expected next.
    pub receive_number: u32,
    /// Whether it is behind the peer's FIN. The kernel does not know: it waits for bytes that never come, and the caller
    /// must not.
    pub is_ended: bool,
    /// Whether the socket is closed at once, to deliver these bytes: what the peer goes on sending is not taken, as it
    /// would answer that by a reset, and forget what is to be sent.
    pub is_orphan: bool,
    /// The windows.
    pub windows: RepairWindow,
    /// Whether small segments are sent at once (TCP_NODELAY).
    pub no_delay: bool,
}

/// Our FIN, which says that nothing more is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fin {
    /// More bytes may follow.
    None,
    /// It follows those that were not sent.
    Unsent,
    /// It was sent, and perhaps acknowledged: it is sent again after a time-out, unless its acknowledgement comes before.
    Sent,
}

/// `struct tcp_repair_window` of linux/tcp.h.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RepairWindow {
    /// The number of the segment that the peer's window was last taken from.
    pub snd_wl1: u32,
    /// The peer's window, bytes.
    pub snd_wnd: u32,
    /// The largest window that the peer has offered, bytes.
    pub max_window: u32,
    /// The window last offered to the peer, bytes.
    pub rcv_wnd: u32,
    /// Where that window begins.
    pub rcv_wup: u32,
}

/// `struct tcp_repair_opt` of linux/tcp.h.
#[repr(C)]
#[derive(Clone, Copy)]
struct RepairOption {
    kind: u32,
    value: u32,
}

/// Whether this process may make such sockets.
///
/// # Errors
/// What the kernel returns; `PermissionDenied` without CAP_NET_ADMIN in the network namespace's user namespace.
pub fn probe() -> io::Result<()> {
    let fd = open(AddressFamily::INET)?;
    set_repair(&fd, REPAIR_ON)
}

/// Makes a socket that goes on with a connection: not blocking, with all bytes that are to be sent in its send queue. A
/// listener at the same address does not matter; another connection between the same ends does.
///
/// # Errors
/// What the kernel returns; nothing was sent then. `PermissionDenied` as for [`probe`], `AddrInUse` if there is a
/// connection between these ends, `OutOfMemory` if the kernel has none for the bytes. Without the address or a route, one of
/// those that [`is_without_way`] knows.
pub fn restore(connection: &Established<'_>) -> io::Result<OwnedFd> {
    let fd = connected(connection)?;
    // Closed in repair mode it says nothing, and so it does until the peer's window is set.
    set_repair(&fd, REPAIR_ON)?;
    set(&fd, libc::IPPROTO_TCP, libc::TCP_REPAIR_WINDOW, &connection.windows)?;
    if connection.fin == Fin::Sent {
        // In repair mode it counts as sent. Otherwise an acknowledgement of it would be one of what was never sent, and
        // all that comes along with it would be dropped (`tcp_ack`, net/ipv4/tcp_input.c).
        set_int(&fd, libc::IPPROTO_TCP, libc::TCP_REPAIR_QUEUE, SEND_QUEUE)?;
        shutdown(&fd, Shutdown::Write)?;
    }
    if connection.is_ended {
        set_int(&fd, libc::IPPROTO_TCP, libc::TCP_LINGER2, FIN_WAIT_S)?;
    }
    if connection.is_orphan {
        socket_filter::drop_payload(&fd)?;
        set_repair(&fd, REPAIR_OFF_SILENTLY)?;
    } else {
        socket_filter::detach(&fd)?;
        set_repair(&fd, REPAIR_OFF)?;
    }
    // Repair mode has taken it away. Listeners need it of all that is bound to their port, also of what is left of a
    // connection without a user. Like the rest, it cannot fail.
    sockopt::set_socket_reuseaddr(&fd, true)?;
    if connection.fin == Fin::Unsent {
        // It fails only if the peer has reset the connection meanwhile, which its user will see.
        let _ = shutdown(&fd, Shutdown::Write);
    }
    // Both send what the window has room for.
    sockopt::set_tcp_cork(&fd, false)?;
    sockopt::set_tcp_nodelay(&fd, connection.no_delay)?;
    Ok(fd)
}

/// Whether [`restore`] has failed as our address, its link or the route to the peer is gone. They may come back.
#[must_use]
pub fn is_without_way(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    errno.is_some_and(|errno| {
        [Errno::ADDRNOTAVAIL, Errno::NODEV, Errno::NETDOWN, Errno::NETUNREACH, Errno::HOSTUNREACH]
            .contains(&errno)
    })
}

/// A socket with all values but the windows, and with all bytes. What arrives is dropped, and comes again. The peer's
/// window is closed, so nothing leaves.
fn connected(connection: &Established<'_>) -> io::Result<OwnedFd> {
    let family = if connection.local.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let fd = open(family)?;
    set_repair(&fd, REPAIR_ON)?;
    socket_filter::drop_all(&fd)?;
    size_buffers(&fd, connection)?;
    bind(&fd, &connection.local)?;
    set_number(&fd, RECEIVE_QUEUE, connection.receive_number)?;
    set_number(&fd, SEND_QUEUE, connection.send_number)?;
    // Connecting would otherwise begin with the size of a peer that has named none.
    set_int(&fd, libc::IPPROTO_TCP, libc::TCP_MAXSEG, connection.mss.max(MSS_MIN).into())?;
    // It has no other meaning here: the address is there.
    let in_use = |error| if error == Errno::ADDRNOTAVAIL { Errno::ADDRINUSE } else { error };
    connect(&fd, &connection.remote).map_err(in_use)?;
    set_options(&fd, connection)?;
    if let Some(stamp) = connection.timestamp {
        // The lowest bit would choose a clock of microseconds (Linux 6.7).
        let even = stamp.wrapping_add(1) & !1;
        set(&fd, libc::IPPROTO_TCP, libc::TCP_TIMESTAMP, &even)?;
    }
    set_int(&fd, libc::IPPROTO_TCP, libc::TCP_REPAIR_QUEUE, SEND_QUEUE)?;
    queue(&fd, connection.unacknowledged)?;
    if !connection.unsent.is_empty() {
        // In repair mode they would count as sent.
        set_repair(&fd, REPAIR_OFF_SILENTLY)?;
        if let Err(error) = queue(&fd, connection.unsent) {
            // Otherwise closing it would send a FIN.
            set_repair(&fd, REPAIR_ON)?;
            return Err(error);
        }
    }
    Ok(fd)
}

fn set_repair(fd: &OwnedFd, mode: c_int) -> io::Result<()> {
    set_int(fd, libc::IPPROTO_TCP, libc::TCP_REPAIR, mode)
}

fn open(family: AddressFamily) -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(socket_with(family, SocketType::STREAM, flags, None)?)
}

/// Buffers for all that is to be sent, and for the window that was offered. They still grow by themselves.
fn size_buffers(fd: &OwnedFd, connection: &Established<'_>) -> io::Result<()> {
    let unsent = connection.unacknowledged.len() + connection.unsent.len();
    // The kernel doubles what is asked for, as its own structures take about as much.
    let wanted = [
        (libc::SO_SNDBUF, libc::SO_SNDBUFFORCE, unsent),
        (libc::SO_RCVBUF, libc::SO_RCVBUFFORCE, connection.windows.rcv_wnd as usize),
    ];
    for (option, force, bytes) in wanted {
        if bytes > get::<c_int>(fd, libc::SOL_SOCKET, option)? as usize / 2 {
            let bytes = c_int::try_from(bytes).unwrap_or(c_int::MAX / 2);
            set_int(fd, libc::SOL_SOCKET, force, bytes)?;
        }
    }
    set_int(fd, libc::SOL_SOCKET, SO_BUF_LOCK, 0)
}

fn set_options(fd: &OwnedFd, connection: &Established<'_>) -> io::Result<()> {
    let (send, receive) = connection.scales;
    let option = |kind, value| RepairOption { kind, value };
    let mut options = vec![
        option(OPTION_MSS, connection.mss.into()),
        // Without it the kernel would scale our window as it likes.
        option(OPTION_SCALE, u32::from(send) | u32::from(receive) << 16),
    ];
    options.extend(connection.sack.then_some(option(OPTION_SACK, 0)));
    options.extend(connection.timestamp.map(|_| option(OPTION_TIMESTAMPS, 0)));
    set(fd, libc::IPPROTO_TCP, libc::TCP_REPAIR_OPTIONS, options.as_slice())
}

fn set_number(fd: &OwnedFd, queue: c_int, number: u32) -> io::Result<()> {
    set_int(fd, libc::IPPROTO_TCP, libc::TCP_REPAIR_QUEUE, queue)?;
    set(fd, libc::IPPROTO_TCP, libc::TCP_QUEUE_SEQ, &number)
}

/// Puts bytes into the send queue; in repair mode, as sent.
fn queue(fd: &OwnedFd, bytes: &[u8]) -> io::Result<()> {
    let mut rest = bytes;
    while !rest.is_empty() {
        match retry_on_intr(|| send(fd, rest, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)) {
            Ok(sent) => rest = &rest[sent..],
            // There is room by `size_buffers`; the kernel's memory for all sockets may be short.
            Err(Errno::AGAIN) => return Err(io::ErrorKind::OutOfMemory.into()),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn set_int(fd: impl AsFd, level: c_int, option: c_int, value: c_int) -> io::Result<()> {
    set(fd, level, option, &value)
}

fn set<T: ?Sized>(fd: impl AsFd, level: c_int, option: c_int, value: &T) -> io::Result<()> {
    let (data, len) = (std::ptr::from_ref(value).cast::<c_void>(), size_of_val(value) as libc::socklen_t);
    // SAFETY: the descriptor is open for the call, and the option's value has the length given.
    let done = unsafe { libc::setsockopt(fd.as_fd().as_raw_fd(), level, option, data, len) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// An option's value of integers.
fn get<T: Default>(fd: impl AsFd, level: c_int, option: c_int) -> io::Result<T> {
    let mut value = T::default();
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the descriptor is open for the call, and the kernel writes at most the value whose length it is told.
    // Each value of integers is valid.
    let done = unsafe {
        libc::getsockopt(fd.as_fd().as_raw_fd(), level, option, (&raw mut value).cast(), &raw mut len)
    };
    if done == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests;
