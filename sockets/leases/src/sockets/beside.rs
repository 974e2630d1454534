//! What threads do without the lease of a socket: they read from the kernel's socket, ask what was received, and say
//! how calls wait. None of this takes the lock. A thread that had the lock without looking at the ring would keep it
//! from one that is about to leave the ring's contents to waiting threads. Those would never be told.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketAddrAny, recvfrom};
use twinpath_rings::lease::{Ends, LeaseView};
use twinpath_worker::idle::Mode;

use crate::sockets::counts::SocketCounts;

/// IPv4 and UDP.
const HEADERS_MIN: usize = 28;

/// What the thread that has the lease has counted. It alone writes it.
#[derive(Debug, Default)]
struct Counted {
    by_ring: AtomicU64,
    by_kernel: AtomicU64,
    refused: AtomicU64,
    leases: AtomicU64,
    /// How many frames were read of those that the ring has taken.
    consumed: AtomicU64,
}

/// Counts what was read, for the lease, which compares it with what was passed to the kernel.
#[derive(Debug)]
pub(crate) struct Beside {
    view: LeaseView,
    counted: Counted,
    /// The number of the mode in which calls wait.
    mode: AtomicU8,
    /// The lease is to end: the ring is not opened any more.
    is_ending: AtomicBool,
    /// The kernel has told a thread that waited that its socket may have something.
    is_told: AtomicBool,
    own: Vec<IpAddr>,
    /// Bytes of the longest datagram that comes in one frame.
    whole_max: usize,
    /// Datagrams that the lease does not know of yet, and all.
    unknown: AtomicU32,
    count: AtomicU64,
}

impl Beside {
    /// Of a host with these addresses, on an interface for IP packets of up to `mtu` bytes.
    pub(crate) fn new(own: Vec<IpAddr>, mtu: u32, view: LeaseView) -> Self {
        let whole_max = (mtu as usize).saturating_sub(HEADERS_MIN);
        let counted = Counted { consumed: AtomicU64::new(view.taken()), ..Counted::default() };
        let mode = AtomicU8::new(Mode::default() as u8);
        let [is_ending, is_told] = [const { AtomicBool::new(false) }; 2];
        let (unknown, count) = (AtomicU32::new(0), AtomicU64::new(0));
        Self { view, counted, mode, is_ending, is_told, own, whole_max, unknown, count }
    }

    /// The thread that has the lease says what it has counted, and how many frames it has read.
    pub(crate) fn set_counted(&self, counts: &SocketCounts, read: u64) {
        let Counted { by_ring, by_kernel, refused, leases, consumed } = &self.counted;
        for (word, count) in [
            (by_ring, counts.by_ring),
            (by_kernel, counts.by_kernel),
            (refused, counts.refused),
            (leases, counts.leases),
            (consumed, read),
        ] {
            if word.load(Ordering::Relaxed) != count {
                word.store(count, Ordering::Relaxed);
            }
        }
    }

    /// What was received so far.
    pub(crate) fn counts(&self) -> SocketCounts {
        let Ends { by_program, full, lapsed } = self.view.ends();
        let get = |word: &AtomicU64| word.load(Ordering::Relaxed);
        SocketCounts {
            by_ring: get(&self.counted.by_ring),
            by_kernel: get(&self.counted.by_kernel) + get(&self.count),
            refused: get(&self.counted.refused),
            leases: get(&self.counted.leases),
            ended: by_program,
            full,
            lapsed,
            ..SocketCounts::default()
        }
    }

    /// Whether something is in the ring: it came before what the kernel is given from now on.
    pub(crate) fn has_unread(&self) -> bool {
        self.view.taken() != self.counted.consumed.load(Ordering::Acquire)
    }

    /// Sets how calls wait, from their next decision on.
    pub(crate) fn set_mode(&self, mode: Mode) {
        self.mode.store(mode as u8, Ordering::Relaxed);
    }

    pub(crate) fn mode(&self) -> Mode {
        let number = usize::from(self.mode.load(Ordering::Relaxed));
        Mode::ALL.get(number).copied().unwrap_or_default()
    }

    /// The lease is to end. The thread that has it closes the ring, and calls receive what is in it.
    pub(crate) fn set_ending(&self) {
        self.is_ending.store(true, Ordering::SeqCst);
    }

    #[inline]
    pub(crate) fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Relaxed)
    }

    /// The kernel has something for a thread that waits for the socket: the next call that does not wait looks there, however often calls
    /// look otherwise. An edge is told once.
    pub(crate) fn set_told(&self) {
        self.is_told.store(true, Ordering::Release);
    }

    /// Whether that is so, once.
    pub(crate) fn take_told(&self) -> bool {
        self.is_told.load(Ordering::Relaxed) && self.is_told.swap(false, Ordering::Acquire)
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
