//! The socket, shaped as the standard library's.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::Duration;

use twinpath_sys::clock;
use twinpath_sys::fork::process_number;
use twinpath_time::Instant;
use twinpath_worker::idle::Mode;

use crate::WhyKernel;
use crate::lending::Access;
use crate::sockets::address::View;
use crate::sockets::beside::Beside;
use crate::sockets::counts::SocketCounts;
use crate::sockets::holder::{Call, Holder, Wait};
use crate::sockets::interfaces;
use crate::sockets::lessee::LentBy;
use crate::sockets::others::{Came, Others};
use crate::sockets::sender::Sender;

/// How datagrams leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SendBy {
    /// By the kernel's own call, always.
    #[default]
    Kernel,
    /// As frames, where the kernel has sent to the same peer within 10 ms, with the headers that it used. That takes a
    /// third less time. The interface's queueing discipline and egress filters see all datagrams. The host's rules for
    /// what it sends (nftables at `output` and `postrouting`, programs on the cgroup) and its counters of UDP see only
    /// those that the kernel has sent, two per peer in about 10 ms. So rules that drop all or nothing work as before;
    /// limits, quotas and counts do not.
    Frames,
}

/// By which path the datagrams of a socket can come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocketPath {
    /// Through a ring while a call looks for them, from this interface; otherwise through the kernel.
    Fast {
        /// The interface.
        interface: String,
        /// By whose rights.
        by: LentBy,
    },
    /// Through the kernel alone.
    Kernel {
        /// Why.
        why: Arc<WhyKernel>,
    },
}

impl fmt::Display for SocketPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fast { interface, by: LentBy::Own } => write!(f, "fast path on {interface}"),
            Self::Fast { interface, by } => write!(f, "fast path on {interface}, {by}"),
            Self::Kernel { why } => write!(f, "kernel: {why}"),
        }
    }
}

/// Maximum time that a thread waits for another one to read what is in the ring.
const RING_WAIT: twinpath_time::Duration = twinpath_time::Duration::from_millis(20);

/// A lease, and where it is to be given back.
#[derive(Debug)]
struct Leased {
    /// Whose it is: a child made by `fork` has a copy of this, but not the memory of the ring.
    process: u64,
    lender: interfaces::Shared,
    holder: Mutex<Option<Holder>>,
    sender: Mutex<Option<Sender>>,
    waiting: Others,
    beside: Arc<Beside>,
}

/// What all descriptors of the socket in this process share.
#[derive(Debug)]
pub(crate) struct Shared {
    socket: std::net::UdpSocket,
    leased: Option<Leased>,
    path: SocketPath,
    /// The descriptor was given out, so it may be waited for without this library.
    given_out: AtomicBool,
    /// Somebody waits for this socket and for others.
    pub(crate) polled: AtomicBool,
    /// Datagrams may leave as frames.
    frames: AtomicBool,
    /// It was connected, so the kernel sends: its call also reports which errors came back.
    connected: AtomicBool,
    /// Threads that receive in the kernel, as another one has the ring.
    others: AtomicU32,
    nonblocking: AtomicBool,
    /// 0: none.
    read_timeout_ns: AtomicU64,
}

/// A UDP socket as `std::net::UdpSocket`, whose datagrams come by a fast path while a thread looks for them.
///
/// [`UdpSocket::bind`] makes a socket of the kernel, and nothing else. [`UdpSocket::on`] adds the fast path of an interface. What
/// comes by other interfaces, from this host or in fragments comes as before; each datagram is received once, and those of
/// a sender that come by the interface in the order in which they came.
///
/// A blocking call spins or sleeps as its mode says ([`UdpSocket::set_mode`]); it sleeps in the kernel's call. If several
/// threads receive at once, one of them has the fast path, and the others wait in the kernel. A thread that returns with
/// a datagram leaves the others to them.
///
/// The fast path is taken only while a thread looks. After a call it is kept for 1 ms at most, for the next call, and not at
/// all once the descriptor was given out ([`AsFd`]), as somebody might wait for it in the kernel then: to wait for the
/// socket and for others, use [`Poll`](crate::sockets::Poll).
///
/// [`UdpSocket::try_clone`] gives another handle of the same socket, which shares the fast path. A child made by `fork` has
/// the socket, and the kernel alone serves it there: the fast path stays with the process that has asked for it.
#[derive(Debug)]
pub struct UdpSocket {
    shared: Arc<Shared>,
}

impl From<std::net::UdpSocket> for UdpSocket {
    /// The socket must be blocking; one that is not is made so by [`UdpSocket::set_nonblocking`].
    fn from(socket: std::net::UdpSocket) -> Self {
        let why = Arc::new(WhyKernel::NotAsked);
        Self { shared: Arc::new(Shared::new(socket, None, SocketPath::Kernel { why })) }
    }
}

impl Shared {
    const fn new(socket: std::net::UdpSocket, leased: Option<Leased>, path: SocketPath) -> Self {
        Self {
            socket,
            leased,
            path,
            given_out: AtomicBool::new(false),
            polled: AtomicBool::new(false),
            frames: AtomicBool::new(false),
            connected: AtomicBool::new(false),
            others: AtomicU32::new(0),
            nonblocking: AtomicBool::new(false),
            read_timeout_ns: AtomicU64::new(0),
        }
    }

    pub(crate) const fn kernel(&self) -> &std::net::UdpSocket {
        &self.socket
    }

    /// Passes the lease to `work`, unless the socket has none, or another thread has it.
    pub(crate) fn with_holder<R>(
        &self,
        work: impl FnOnce(&mut Holder, &std::net::UdpSocket) -> R,
    ) -> Option<R> {
        with_locked(&self.leased()?.holder, |holder| work(holder, &self.socket))
    }

    /// The kernel has told somebody who waits for this socket, and for others, that something is there.
    pub(crate) fn was_told(&self) {
        self.leased().inspect(|leased| leased.beside.set_told());
    }

    /// The lease, if this process has one.
    fn leased(&self) -> Option<&Leased> {
        self.leased.as_ref().filter(|leased| leased.process == process_number())
    }

    /// The same of the sending side.
    fn with_sender<R>(&self, work: impl FnOnce(&mut Sender) -> R) -> Option<R> {
        with_locked(&self.leased()?.sender, work)
    }

    /// Whether a datagram may leave without the kernel's call. If the descriptor was given out, options may have been
    /// set by it that are not seen here.
    fn may_send_frames(&self) -> bool {
        self.frames.load(Ordering::Relaxed)
            && self.leased().is_some()
            && !self.given_out.load(Ordering::Relaxed)
            && !self.connected.load(Ordering::Relaxed)
    }

    fn send_to(&self, payload: &[u8], to: SocketAddr) -> io::Result<usize> {
        let by_kernel = || self.socket.send_to(payload, to);
        let sent = self
            .may_send_frames()
            .then(|| self.with_sender(|sender| sender.send(payload, to, clock::now(), by_kernel)));
        sent.flatten().unwrap_or_else(by_kernel)
    }

    /// Whether the lease may be held when no call of this library looks.
    pub(crate) fn may_stay(&self) -> bool {
        !self.given_out.load(Ordering::Relaxed) && self.others.load(Ordering::Relaxed) == 0
    }

    fn call(&self, peek: bool) -> Call {
        let timeout_ns = self.read_timeout_ns.load(Ordering::Relaxed);
        let wait = match (self.nonblocking.load(Ordering::Relaxed), timeout_ns) {
            (true, _) => Wait::Not,
            (false, 0) => Wait::Until(Instant::NEVER),
            (false, timeout_ns) => Wait::Until(clock::now() + Duration::from_nanos(timeout_ns)),
        };
        Call { peek, wait, stays: self.may_stay(), polled: self.polled.load(Ordering::Relaxed) }
    }

    fn receive(
        &self,
        buffer: &mut [u8],
        peek: bool,
        by_kernel: impl FnOnce(&std::net::UdpSocket, &mut [u8]) -> io::Result<(usize, SocketAddr)>,
    ) -> io::Result<(usize, SocketAddr)> {
        let Some(leased) = self.leased() else { return by_kernel(&self.socket, buffer) };
        let mut call = self.call(peek);
        loop {
            if let Some(read) = self.with_holder(|holder, socket| holder.receive(socket, buffer, call)) {
                // Another thread may have begun to wait while this call had the lease.
                self.leave_to_others(leased);
                return read;
            }
            if let Some(read) = self.wait_beside(leased, buffer, call)? {
                return Ok(read);
            }
            call.stays = self.may_stay();
        }
    }

    /// This thread had the lease, and may be busy for long from now on. If others wait for the socket, what is left in
    /// the ring is for them. If another thread has the lease by now, that thread sees to it.
    fn leave_to_others(&self, leased: &Leased) {
        fence(Ordering::SeqCst);
        if !self.may_stay() && self.with_holder(|holder, _| holder.leave()) == Some(true) {
            leased.waiting.tell();
        }
    }

    /// Waits until nothing is in the ring, for some time at most. Returns whether no other thread has the ring by then.
    fn waits_for_ring(&self, leased: &Leased) -> bool {
        let until = clock::now() + RING_WAIT;
        while leased.beside.has_unread() && clock::now() < until {
            std::thread::yield_now();
            if self.with_holder(|_, _| ()).is_some() {
                return true;
            }
        }
        false
    }

    /// Another thread has the ring: waits for it to leave something there, and for what comes by the kernel. `None`: look again.
    fn wait_beside(
        &self,
        leased: &Leased,
        buffer: &mut [u8],
        call: Call,
    ) -> io::Result<Option<(usize, SocketAddr)>> {
        leased.waiting.prepare(&self.socket)?;
        self.others.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        // The thread that had the lease may have returned before it could see this one.
        let is_free = self.with_holder(|holder, _| holder.give_back()).is_some();
        let came = if is_free { Ok(Came::InRing) } else { leased.waiting.wait(&self.socket, call.wait) };
        self.others.fetch_sub(1, Ordering::Relaxed);
        match came? {
            Came::InRing => Ok(None),
            Came::Nothing => Err(io::ErrorKind::WouldBlock.into()),
            // What is in the ring came before. A thread that has it and has lost its CPU reads it when it has one again.
            Came::BySocket if self.waits_for_ring(leased) => Ok(None),
            Came::BySocket => match leased.beside.receive(&self.socket, buffer, call.flags()) {
                // Another thread was faster.
                Err(error)
                    if error.kind() == io::ErrorKind::WouldBlock && !matches!(call.wait, Wait::Not) =>
                {
                    Ok(None)
                }
                read => read.map(Some),
            },
        }
    }
}

fn with_locked<T, R>(of: &Mutex<Option<T>>, work: impl FnOnce(&mut T) -> R) -> Option<R> {
    let mut held = match of.try_lock() {
        Ok(held) => held,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return None,
    };
    held.as_mut().map(work)
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.leased().is_none() {
            // A child's copy: the lease is its parent's, and so is the memory, which must not be unmapped here either.
            std::mem::forget(self.leased.take());
            return;
        }
        let Some(Leased { lender, holder, sender, .. }) = self.leased.take() else { return };
        let holder = holder.into_inner().unwrap_or_else(PoisonError::into_inner);
        let sender = sender.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(holder) = holder {
            let sending = sender.map(Sender::into_sending);
            interfaces::take_back(&lender, self.socket.as_fd(), holder.into_lease(), sending);
        }
    }
}

impl UdpSocket {
    /// Binds a socket, as `std::net::UdpSocket::bind`. Its path is the kernel's until [`UdpSocket::on`].
    ///
    /// # Errors
    /// What the kernel returns.
    pub fn bind(address: impl ToSocketAddrs) -> io::Result<Self> {
        std::net::UdpSocket::bind(address).map(Self::from)
    }

    /// The same socket with the fast path of an interface, for datagrams that arrive there as whole Ethernet frames. If it cannot
    /// have that, it stays with the kernel, and [`UdpSocket::path`] says why. It takes CAP_BPF, CAP_NET_ADMIN and CAP_NET_RAW, or an owner of the
    /// interface (`twinpath sockets`), and some tens of milliseconds.
    ///
    /// A socket that has a fast path already, or other handles, is returned as it is. A socket of a `SO_REUSEPORT` group gets what
    /// the kernel gives it by its hash: a group whose datagrams are distributed by a BPF program must not have the fast path.
    #[must_use]
    pub fn on(self, interface: &str) -> Self {
        self.on_by(interface, &Access::Auto)
    }

    /// As [`UdpSocket::on`], by these rights.
    #[must_use]
    pub fn on_by(mut self, interface: &str, access: &Access) -> Self {
        let Some(shared) = Arc::get_mut(&mut self.shared) else { return self };
        if shared.leased.is_some() {
            return self;
        }
        match interfaces::lend(&shared.socket, interface, access, true) {
            Ok((on, lent, sending)) => {
                let local = shared.socket.local_addr();
                let is_v6 = local.as_ref().is_ok_and(SocketAddr::is_ipv6);
                let view = View { is_v6, ifindex: lent.on.ifindex };
                let port = local.map_or(0, |local| local.port());
                let sender = Mutex::new(sending.map(|sending| Sender::new(sending, port, lent.on.mtu)));
                let by = LentBy::of(&lent);
                let holder = Holder::new(lent, view);
                let (beside, holder) = (Arc::clone(holder.beside()), Mutex::new(Some(holder)));
                *shared.connected.get_mut() = shared.socket.peer_addr().is_ok();
                let (process, waiting) = (process_number(), Others::default());
                shared.leased = Some(Leased { process, lender: on, holder, sender, waiting, beside });
                shared.path = SocketPath::Fast { interface: interface.to_owned(), by };
            }
            Err(why) => shared.path = SocketPath::Kernel { why: Arc::new(why) },
        }
        self
    }

    /// The path by which its datagrams can come, and why not the better one.
    #[must_use]
    pub fn path(&self) -> &SocketPath {
        &self.shared.path
    }

    /// Sets how a blocking call waits: `poll` spins always, `interrupt` sleeps at once, and `adaptive`, the default, learns
    /// when datagrams come. It has no effect on sockets without the fast path.
    pub fn set_mode(&self, mode: Mode) {
        self.shared.leased().inspect(|leased| leased.beside.set_mode(mode));
    }

    /// Sets how datagrams leave. It has no effect on sockets without the fast path, on those that are connected, as the kernel's
    /// calls report errors that came back, and on those whose descriptor was given out, as options can be set there.
    pub fn set_sending(&self, by: SendBy) {
        self.shared.frames.store(by == SendBy::Frames, Ordering::Relaxed);
    }

    /// What was received and sent, and by which path. Zeros if there is no fast path.
    #[must_use]
    pub fn counts(&self) -> SocketCounts {
        let (sent_by_frame, sent_by_kernel) =
            self.shared.with_sender(|sender| sender.counts()).unwrap_or_default();
        let received = self.shared.leased().map(|leased| leased.beside.counts()).unwrap_or_default();
        SocketCounts { sent_by_frame, sent_by_kernel, ..received }
    }

    /// Sends a datagram to an address; its length. Datagrams leave in the order in which they were sent.
    ///
    /// # Errors
    /// What the kernel returns.
    pub fn send_to(&self, payload: &[u8], to: impl ToSocketAddrs) -> io::Result<usize> {
        let to = to.to_socket_addrs()?.next();
        let to = to.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no address to send to"))?;
        self.shared.send_to(payload, to)
    }

    /// Connects the socket: only datagrams from that address are received. From now on the kernel sends, whose calls then say
    /// which errors came back from the peer.
    ///
    /// # Errors
    /// What the kernel returns.
    pub fn connect(&self, to: impl ToSocketAddrs) -> io::Result<()> {
        self.shared.connected.store(true, Ordering::Relaxed);
        self.shared.socket.connect(to)
    }

    /// Sets the hop limit of what is sent.
    ///
    /// # Errors
    /// What the kernel returns.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        let set = self.shared.socket.set_ttl(ttl);
        if let Some(leased) = &self.shared.leased {
            let mut sender = leased.sender.lock().unwrap_or_else(PoisonError::into_inner);
            sender.as_mut().map(Sender::forget);
        }
        set
    }

    /// Receives a datagram: its length, or as much as fits into the buffer, and its sender.
    ///
    /// # Errors
    /// What the kernel returns. `WouldBlock` if there is none and the socket is non-blocking, or after the time-out. `Interrupted`
    /// if a signal came while the call slept.
    pub fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.shared.receive(buffer, false, std::net::UdpSocket::recv_from)
    }

    /// As [`UdpSocket::recv_from`], but leaves the datagram to be received again.
    ///
    /// # Errors
    /// As [`UdpSocket::recv_from`].
    pub fn peek_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.shared.receive(buffer, true, std::net::UdpSocket::peek_from)
    }

    /// Receives from the address that the socket is connected to, as [`UdpSocket::recv_from`].
    ///
    /// # Errors
    /// As [`UdpSocket::recv_from`].
    pub fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.recv_from(buffer).map(|(len, _)| len)
    }

    /// As [`UdpSocket::recv`], but leaves the datagram to be received again.
    ///
    /// # Errors
    /// As [`UdpSocket::recv_from`].
    pub fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.peek_from(buffer).map(|(len, _)| len)
    }

    /// Another handle of the same socket. Both share its lease, its time-outs and whether it blocks.
    ///
    /// # Errors
    /// None at present.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { shared: Arc::clone(&self.shared) })
    }

    /// Makes calls non-blocking. Use only this handle or a clone of it for that, not the descriptor: the fast path
    /// would not notice.
    ///
    /// # Errors
    /// What the kernel returns.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.shared.socket.set_nonblocking(nonblocking)?;
        self.shared.nonblocking.store(nonblocking, Ordering::Relaxed);
        Ok(())
    }

    /// Bounds how long a receiving call waits.
    ///
    /// # Errors
    /// `InvalidInput` for a time-out of zero; what the kernel returns.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.shared.socket.set_read_timeout(timeout)?;
        let timeout_ns = timeout.map_or(0, |timeout| u64::try_from(timeout.as_nanos()).unwrap_or(0));
        self.shared.read_timeout_ns.store(timeout_ns, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) const fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

/// What is the kernel's alone.
macro_rules! by_the_kernel {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        impl UdpSocket {
            $($(#[$doc])*
            ///
            /// # Errors
            /// What the kernel returns.
            pub fn $name(&self, $($argument: $type),*) -> io::Result<$result> {
                self.shared.socket.$name($($argument),*)
            })*
        }
    };
}

by_the_kernel! {
    /// Sends a datagram to the address that the socket is connected to; its length.
    send(payload: &[u8]) -> usize;
    /// The address that the socket is bound to.
    local_addr() -> SocketAddr;
    /// The address that the socket is connected to.
    peer_addr() -> SocketAddr;
    /// The time-out of sending.
    write_timeout() -> Option<Duration>;
    /// Bounds how long sending waits.
    set_write_timeout(timeout: Option<Duration>) -> ();
    /// The time-out of receiving.
    read_timeout() -> Option<Duration>;
    /// The error of the socket, which is cleared.
    take_error() -> Option<io::Error>;
    /// Whether datagrams may be sent to a broadcast address.
    broadcast() -> bool;
    /// Sets [`UdpSocket::broadcast`].
    set_broadcast(broadcast: bool) -> ();
    /// The hop limit of what is sent.
    ttl() -> u32;
    /// Joins a multicast group. Its datagrams come by the kernel.
    join_multicast_v4(group: &Ipv4Addr, interface: &Ipv4Addr) -> ();
    /// Leaves it.
    leave_multicast_v4(group: &Ipv4Addr, interface: &Ipv4Addr) -> ();
    /// Joins a multicast group. Its datagrams come by the kernel.
    join_multicast_v6(group: &Ipv6Addr, interface: u32) -> ();
    /// Leaves it.
    leave_multicast_v6(group: &Ipv6Addr, interface: u32) -> ();
}

impl AsFd for UdpSocket {
    /// The kernel's socket. From now on no datagram is left in the ring when a call of this socket returns, so that waiting for the
    /// descriptor in the kernel is right; what is there at this moment is received by the next call.
    fn as_fd(&self) -> BorrowedFd<'_> {
        if !self.shared.given_out.swap(true, Ordering::Relaxed) {
            self.shared.leased().inspect(|leased| self.shared.leave_to_others(leased));
        }
        self.shared.socket.as_fd()
    }
}

impl AsRawFd for UdpSocket {
    /// As [`AsFd`].
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}
