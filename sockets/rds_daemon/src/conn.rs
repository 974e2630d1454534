//! Connections of TCP to peers.

use std::io::IoSlice;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd as _, OwnedFd};

use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags, SocketType, acceptfrom_with, bind,
    connect, getsockname, recv, sendmsg, socket_with,
};
use twinpath_rds::Pair;
use twinpath_rds_wire::{HEADER_LEN, PATHS_MAX, PAYLOAD_MAX, TCP_PORT};
use twinpath_time::Duration;

/// Bytes that are read at once.
const READ_MAX: usize = 256 << 10;
/// Silence after which a peer is asked whether it is there, the time between questions, and their number
/// (net/rds/tcp.c: `RDS_TCP_KEEPALIVE`).
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(5), Duration::from_secs(5), 5);
/// A peer that acknowledges nothing for so long is gone: as long as it may leave the questions unanswered.
const GONE_AFTER: Duration = Duration::from_secs(30);
/// Ports that are tried for a connection.
const PORTS_TRIED: usize = 32;
/// The range that Linux takes ports from by default (ip_local_port_range).
const PORTS: std::ops::Range<u32> = 32_768..60_992;

/// A connection.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) socket: OwnedFd,
    pub(crate) is_connected: bool,
    /// Its socket is among those that are waited for.
    pub(crate) is_watched: bool,
    /// The engine reads it.
    pub(crate) is_read: bool,
    /// It waits for room to write.
    pub(crate) waits_to_write: bool,
    /// Received, and not used yet.
    pub(crate) bytes: Vec<u8>,
    /// Room for what is read next, kept between calls.
    spare: Vec<u8>,
}

/// What reading has brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    Some,
    /// Nothing for now.
    None,
    /// The peer has ended it, or it is broken.
    End,
}

impl Read {
    /// As bytes have come before.
    pub(crate) fn or_kept(self) -> Self {
        if self == Self::None { Self::Some } else { self }
    }
}

impl Conn {
    pub(crate) fn new(socket: OwnedFd, is_connected: bool) -> Result<Self, Errno> {
        sockopt::set_tcp_nodelay(&socket, true)?;
        let (idle, interval, count) = KEEPALIVE;
        sockopt::set_socket_keepalive(&socket, true)?;
        sockopt::set_tcp_keepidle(&socket, idle)?;
        sockopt::set_tcp_keepintvl(&socket, interval)?;
        sockopt::set_tcp_keepcnt(&socket, count)?;
        // Questions are not asked while something is unacknowledged.
        sockopt::set_tcp_user_timeout(&socket, GONE_AFTER.as_millis() as u32)?;
        Ok(Self {
            socket,
            is_connected,
            is_watched: false,
            is_read: false,
            waits_to_write: false,
            bytes: Vec::new(),
            spare: Vec::new(),
        })
    }

    /// Begins to connect to a peer. The low three bits of the port are the path, if such a port is free.
    pub(crate) fn open(pair: Pair, path: u16, random: &mut u64) -> Result<Self, Errno> {
        let family = if pair.local.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        for attempt in 0..=PORTS_TRIED {
            let socket = socket_with(family, SocketType::STREAM, flags, None)?;
            *random ^= *random << 13;
            *random ^= *random >> 7;
            *random ^= *random << 17;
            let any = PORTS.start + ((*random >> 16) as u32 % (PORTS.end - PORTS.start));
            let chosen = any & !u32::from(PATHS_MAX - 1);
            let port = if attempt < PORTS_TRIED { chosen as u16 | (path % PATHS_MAX) } else { 0 };
            let connected = bind(&socket, &SocketAddr::new(pair.local, port))
                .and_then(|()| connect(&socket, &SocketAddr::new(pair.remote, TCP_PORT)));
            match connected {
                Ok(()) | Err(Errno::INPROGRESS) => return Self::new(socket, false),
                Err(Errno::ADDRINUSE | Errno::ADDRNOTAVAIL) if attempt < PORTS_TRIED => {}
                Err(error) => return Err(error),
            }
        }
        Err(Errno::ADDRINUSE)
    }

    /// Reads what has come, as much as at once.
    pub(crate) fn read(&mut self) -> Read {
        let room = READ_MAX.max(HEADER_LEN + PAYLOAD_MAX - self.bytes.len().min(PAYLOAD_MAX));
        let room = if self.bytes.len() < READ_MAX { READ_MAX } else { room };
        if self.spare.len() < room {
            self.spare.resize(room, 0);
        }
        match recv(&self.socket, &mut self.spare[..room], RecvFlags::DONTWAIT) {
            Ok((0, _)) => Read::End,
            Ok((len, _)) => {
                self.bytes.extend_from_slice(&self.spare[..len]);
                Read::Some
            }
            Err(Errno::AGAIN | Errno::INTR) => Read::None,
            Err(_) => Read::End,
        }
    }

    /// Writes; returns how many bytes.
    pub(crate) fn write(&self, parts: &[IoSlice<'_>]) -> Result<usize, Errno> {
        let mut control = SendAncillaryBuffer::default();
        sendmsg(&self.socket, parts, &mut control, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
    }

    /// Ends it without a word of peace: the peer's calls fail.
    pub(crate) fn reset(self) {
        // What cannot be set makes it end in the usual way.
        let _ = sockopt::set_socket_linger(self.socket.as_fd(), Some(Duration::ZERO));
    }
}

/// The next connection that has come to the listener, with both addresses and the peer's port. The kernel says these together
/// with it: of one that was reset since, `getpeername(2)` knows none, and what it has brought is to be read.
pub(crate) fn accept(listener: &OwnedFd) -> Result<(OwnedFd, Pair, u16), Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (socket, remote) = acceptfrom_with(listener, flags)?;
    let remote: SocketAddr = remote.ok_or(Errno::CONNABORTED)?.try_into().map_err(|_| Errno::CONNABORTED)?;
    let local: SocketAddr = getsockname(&socket)?.try_into().map_err(|_| Errno::CONNABORTED)?;
    let pair = Pair { local: local.ip().to_canonical(), remote: remote.ip().to_canonical() };
    Ok((socket, pair, remote.port()))
}

/// Whether messages can be for such an address.
pub(crate) fn is_host(address: IpAddr) -> bool {
    match address {
        _ if address.is_loopback() => false,
        IpAddr::V4(v4) => v4 != Ipv4Addr::BROADCAST && !v4.is_multicast() && !v4.is_unspecified(),
        // Of an address of a link it would have to be known which link.
        IpAddr::V6(v6) => v6 != Ipv6Addr::UNSPECIFIED && !v6.is_multicast() && !v6.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_connection_that_was_reset_before_it_was_accepted_is_still_read() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let port = peer.local_addr().unwrap().port();
        // The kernel acknowledges it, so that the peer does not send it again.
        peer.write_all(b"acknowledged").unwrap();
        sockopt::set_socket_linger(&peer, Some(Duration::ZERO)).unwrap();
        drop(peer);
        let (socket, pair, from) = accept(&OwnedFd::from(listener)).unwrap();
        assert_eq!((pair.local, pair.remote, from), ([127, 0, 0, 1].into(), [127, 0, 0, 1].into(), port));
        let mut conn = Conn::new(socket, true).unwrap();
        assert_eq!((conn.read(), conn.bytes.as_slice()), (Read::Some, &b"acknowledged"[..]));
        assert_eq!(conn.read(), Read::End);
    }
}
