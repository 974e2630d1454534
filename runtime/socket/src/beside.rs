//! What threads read from the kernel's socket while another one has its lease.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketAddrAny, recvfrom};

/// IPv4 and UDP.
const HEADERS_MIN: usize = 28;

/// Counts what was read, for the lease, which compares it with what was passed to the kernel.
#[derive(Debug)]
pub(crate) struct Beside {
    own: Vec<IpAddr>,
    /// Bytes of the longest datagram that comes in one frame.
    whole_max: usize,
    /// Datagrams that the lease does not know of yet, and all.
    unknown: AtomicU32,
    count: AtomicU64,
}

impl Beside {
    /// Of a host with these addresses, on an interface for IP packets of up to `mtu` bytes.
    pub(crate) fn new(own: Vec<IpAddr>, mtu: u32) -> Self {
        let whole_max = (mtu as usize).saturating_sub(HEADERS_MIN);
        Self { own, whole_max, unknown: AtomicU32::new(0), count: AtomicU64::new(0) }
    }

    pub(crate) fn own(&self) -> &[IpAddr] {
        &self.own
    }

    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Datagrams that were read since the last call.
    pub(crate) fn take_read(&self) -> u32 {
        if self.unknown.load(Ordering::Relaxed) == 0 { 0 } else { self.unknown.swap(0, Ordering::Relaxed) }
    }

    /// Whether the program has not counted what was read as a datagram: it came from this host, or in fragments.
    pub(crate) fn is_odd(&self, whole_len: usize, source: IpAddr) -> bool {
        let source = source.to_canonical();
        whole_len > self.whole_max || source.is_loopback() || self.own.contains(&source)
    }

    /// Reads the kernel's socket without waiting.
    pub(crate) fn receive(
        &self,
        socket: &UdpSocket,
        buffer: &mut [u8],
        flags: RecvFlags,
    ) -> io::Result<(usize, SocketAddr)> {
        let read = recvfrom(socket, &mut *buffer, flags | RecvFlags::DONTWAIT);
        let (len, whole_len, peer) = with_sender(read)?;
        if !flags.contains(RecvFlags::PEEK) {
            self.was_read(whole_len, peer.ip());
        }
        Ok((len, peer))
    }

    /// A datagram was read from the kernel's socket.
    pub(crate) fn was_read(&self, whole_len: usize, source: IpAddr) {
        self.unknown.fetch_add(u32::from(!self.is_odd(whole_len, source)), Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
    }
}

/// What the kernel has returned: bytes in the buffer, bytes of the datagram, and its sender.
pub(crate) fn with_sender(
    read: Result<(usize, usize, Option<SocketAddrAny>), Errno>,
) -> io::Result<(usize, usize, SocketAddr)> {
    let (len, whole_len, peer) = read?;
    let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
    let peer = peer.ok_or_else(|| io::Error::other("the kernel named no sender"))?;
    Ok((len, whole_len, peer))
}
