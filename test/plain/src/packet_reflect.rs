//! An echo server over a packet socket: it receives whole frames, swaps their addresses and sends them back.

use std::io;
use std::os::fd::AsFd;

use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;
use twinpath_socket_load::socket::set_receive_timeout;
use twinpath_socket_load::{EchoCounts, SocketError, Stop, Wait};
use twinpath_sys::packet_socket::PacketSocket;
use twinpath_time::Duration;

use crate::PlainError;

/// Largest frame: MTU 1500, a VLAN tag, and some reserve.
const FRAME_BYTES: usize = 2048;
/// The two addresses at the start of a frame, six bytes each.
const ADDRESSES: usize = 12;
/// A packet socket cannot be shut down, so one that sleeps checks this often whether it is to stop.
const LOOK: Duration = Duration::from_millis(200);

/// A packet socket bound to one interface and EtherType, to which only the kernel delivers.
#[derive(Debug)]
pub struct PacketReflect {
    socket: PacketSocket,
}

impl PacketReflect {
    /// Opens the socket on the interface with that index. It spins or sleeps; it has no adaptive mode.
    ///
    /// # Errors
    /// Without CAP_NET_RAW, or if there is no such interface.
    pub fn open(ifindex: u32, ethertype: u16, wait: Wait) -> Result<Self, PlainError> {
        let socket = PacketSocket::open(ifindex, ethertype)
            .map_err(|source| PlainError::PacketSocket { ifindex, source })?;
        if wait != Wait::Sleep {
            fcntl_setfl(&socket, OFlags::NONBLOCK)
                .map_err(|source| SocketError::Option { option: "O_NONBLOCK", source: source.into() })?;
        } else {
            set_receive_timeout(socket.as_fd(), LOOK)?;
        }
        Ok(Self { socket })
    }

    /// Serves on the calling thread until `stop` is requested: one system call to receive, one to send.
    ///
    /// # Errors
    /// Receiving failed with an error that is not temporary.
    pub fn run(self, stop: &Stop) -> Result<EchoCounts, SocketError> {
        let mut counts = EchoCounts::default();
        let mut frame = [0; FRAME_BYTES];
        while !stop.is_requested() {
            let len = match self.socket.receive(&mut frame) {
                Ok(len) => len,
                // No frame now, or none within the time-out: it tries again.
                Err(Errno::AGAIN | Errno::INTR | Errno::NETDOWN) => continue,
                Err(error) => return Err(SocketError::Receive(io::Error::from(error))),
            };
            counts.received += 1;
            if !(ADDRESSES..=FRAME_BYTES).contains(&len) {
                counts.refused += 1;
                continue;
            }
            let (destination, source) = frame[..ADDRESSES].split_at_mut(ADDRESSES / 2);
            destination.swap_with_slice(source);
            match self.socket.send(&frame[..len]) {
                Ok(()) => counts.sent += 1,
                Err(_) => counts.refused += 1,
            }
        }
        Ok(counts)
    }
}
