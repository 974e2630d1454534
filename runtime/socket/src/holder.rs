//! The receiving side of a socket that has a lease: one thread at a time has it, and turns it itself.

use std::hint::spin_loop;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::thread::yield_now;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketAddrAny, recvfrom};
use twinpath_attach::Lent;
use twinpath_idle::{Arrival, Woken};
use twinpath_rings::lease::{Ends, Lease, Next, Room};
use twinpath_stack::admit::admit_source;
use twinpath_sys::clock;
use twinpath_time::{Duration, Instant};
use twinpath_wire::{ChecksumTrust, udp_frame};
use twinpath_worker::idle::{Decision, Idle, IdleConfig, Mode};

use crate::address::View;

/// How often a thread that spins looks at the kernel's socket, for what does not come through the interface.
pub(crate) const LOOK_EVERY: Duration = Duration::from_micros(50);

/// A frame that is being written takes less than a microsecond. After so many looks the program's CPU may be this one.
const LOOKS_BEFORE_YIELD: u32 = 1024;

/// What a socket has received, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketCounts {
    /// Datagrams that came by the ring.
    pub by_ring: u64,
    /// Datagrams that came by the kernel's socket.
    pub by_kernel: u64,
    /// Frames in the ring that the kernel would have dropped: wrong checksums, impossible senders.
    pub refused: u64,
    /// Leases taken.
    pub leases: u64,
    /// Leases that the program in the kernel ended, for any reason: the two that follow, or a frame that had to go by the kernel.
    pub ended: u32,
    /// Of these, because the ring was full.
    pub full: u32,
    /// Of these, because no call looked for too long.
    pub lapsed: u32,
    /// Datagrams that were sent as frames.
    pub sent_by_frame: u64,
    /// Datagrams that the kernel has sent while it could have been otherwise: to a peer that it has not sent to just before.
    pub sent_by_kernel: u64,
}

/// How long a call may wait for a datagram.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wait {
    Not,
    Until(Instant),
}

/// What a receiving call asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) peek: bool,
    pub(crate) wait: Wait,
    /// Whether the lease may be held after the call: nobody waits for the socket but by this library.
    pub(crate) stays: bool,
    /// Whether somebody else decides when to spin and when to sleep.
    pub(crate) polled: bool,
}

impl Call {
    /// If somebody could wait for the socket without this library, no datagram may be left in the ring.
    const fn room(self) -> Room {
        if self.stays { Room::All } else { Room::One }
    }

    fn flags(self) -> RecvFlags {
        // The length of the datagram is wanted, not only of what fits.
        if self.peek { RecvFlags::TRUNC | RecvFlags::PEEK } else { RecvFlags::TRUNC }
    }
}

const PEEK: RecvFlags = RecvFlags::PEEK.union(RecvFlags::DONTWAIT);

/// IPv4 and UDP.
const HEADERS_MIN: usize = 28;

type Read = (usize, SocketAddr);

/// What to do if there is nothing.
enum Then {
    Look,
    Sleep { until: Instant },
    Return,
}

#[derive(Debug)]
pub(crate) struct Holder {
    pub(crate) number: u32,
    lease: Lease,
    trust: ChecksumTrust,
    own: Vec<IpAddr>,
    /// Bytes of the longest datagram that comes in one frame.
    whole_max: usize,
    view: View,
    idle: Idle,
    /// When it last looked for datagrams, and when it looks at the kernel's socket again.
    looked: Instant,
    look_at: Instant,
    counts: SocketCounts,
}

impl Holder {
    pub(crate) fn new(lent: Lent, view: View) -> Self {
        let Lent { number, lease, partial_checksums, own, mtu, .. } = lent;
        let trust = if partial_checksums { ChecksumTrust::AcceptPartial } else { ChecksumTrust::Verify };
        let now = clock::now();
        Self {
            number,
            lease,
            trust,
            own,
            whole_max: (mtu as usize).saturating_sub(HEADERS_MIN),
            view,
            idle: Idle::new(IdleConfig::default()),
            looked: now,
            look_at: now,
            counts: SocketCounts::default(),
        }
    }

    pub(crate) fn into_lease(self) -> (u32, Lease) {
        (self.number, self.lease)
    }

    pub(crate) fn set_mode(&mut self, mode: Mode) {
        self.idle.set_mode(mode);
    }

    pub(crate) fn counts(&self) -> SocketCounts {
        let Ends { by_program, full, lapsed } = self.lease.ends();
        SocketCounts { ended: by_program, full, lapsed, ..self.counts }
    }

    /// Receives a datagram into `buffer`. Returns its length, as far as it fits, and its sender.
    pub(crate) fn receive(&mut self, socket: &UdpSocket, buffer: &mut [u8], call: Call) -> io::Result<Read> {
        let mut looks = 0;
        self.looked = clock::now();
        loop {
            let now = clock::now();
            match self.lease.next(now) {
                Next::Ring => {
                    if let Some(read) = self.take(buffer, call) {
                        return Ok(self.found(now, read));
                    }
                }
                Next::Soon => wait_for_program(&mut looks),
                Next::Socket => {
                    if let Some(read) = self.read_socket(socket, buffer, call, now)? {
                        let read = self.found(now, read);
                        self.take_lease_early(socket, call, now);
                        return Ok(read);
                    }
                }
                Next::Nowhere | Next::Idle => {
                    if let Some(read) = self.with_nothing(socket, buffer, call, now)? {
                        return Ok(read);
                    }
                }
            }
            self.looked = now;
        }
    }

    /// There is nothing, as far as is known: looks at the kernel's socket now and then, spins or sleeps. `None`: look again.
    fn with_nothing(
        &mut self,
        socket: &UdpSocket,
        buffer: &mut [u8],
        call: Call,
        now: Instant,
    ) -> io::Result<Option<Read>> {
        let is_open = self.lease.is_open();
        if is_open {
            self.lease.looks(now);
        }
        let returns = matches!(call.wait, Wait::Not);
        if now >= self.look_at || returns && !is_open {
            self.look_at = now + LOOK_EVERY;
            if is_open {
                if self.socket_has_some(socket) {
                    return Ok(None);
                }
            } else if let Some(read) = self.read_socket(socket, buffer, call, now)? {
                return Ok(Some(self.found(now, read)));
            }
        }
        match self.then(now, call) {
            Then::Look => {
                if !is_open {
                    self.open(now, call.room());
                }
                spin_loop();
                Ok(None)
            }
            Then::Return => {
                if !call.stays {
                    self.lease.close();
                }
                // If it has taken a frame meanwhile, that is returned.
                if self.lease.has_frames() { Ok(None) } else { Err(io::ErrorKind::WouldBlock.into()) }
            }
            Then::Sleep { .. } if is_open => {
                self.lease.close();
                Ok(None)
            }
            Then::Sleep { until } => self.sleep(socket, buffer, call, until),
        }
    }

    fn then(&mut self, now: Instant, call: Call) -> Then {
        match call.wait {
            Wait::Until(deadline) if now < deadline => match self.idle.decide(now, deadline) {
                Decision::Turn => Then::Look,
                Decision::Sleep { until } => Then::Sleep { until },
            },
            // A loop of its own calls this again: the lease is taken if the policy would spin, and given back if not.
            Wait::Not if call.stays && !call.polled => {
                match self.idle.decide(now, Instant::NEVER) {
                    Decision::Turn if !self.lease.is_open() => self.open(now, Room::All),
                    Decision::Turn => {}
                    Decision::Sleep { .. } => self.lease.close(),
                }
                Then::Return
            }
            Wait::Not | Wait::Until(_) => Then::Return,
        }
    }

    /// Takes the lease, unless the socket has to be read first.
    fn open(&mut self, now: Instant, room: Room) {
        self.counts.leases += u64::from(self.lease.open(now, room));
    }

    /// Sleeps in the kernel's call. The lease has been given back, and its ring is empty.
    fn sleep(
        &mut self,
        socket: &UdpSocket,
        buffer: &mut [u8],
        call: Call,
        until: Instant,
    ) -> io::Result<Option<Read>> {
        let Wait::Until(deadline) = call.wait else { return Ok(None) };
        if until < deadline || deadline != Instant::NEVER {
            let came = wait_readable(socket, until)?;
            let woken = if came { Woken::Packet(None) } else { Woken::Timer };
            self.idle.woke(clock::now(), woken);
            self.look_at = Instant::ZERO;
            return Ok(None);
        }
        let read = recvfrom(socket, &mut *buffer, call.flags());
        let now = clock::now();
        let woken = if read.is_ok() { Woken::Packet(None) } else { Woken::Other };
        self.idle.woke(now, woken);
        self.looked = now;
        let read = self.came_by_kernel(read, call)?;
        Ok(Some(self.found(now, read)))
    }

    /// Takes the next datagram from the ring; `None` if it is refused.
    fn take(&mut self, buffer: &mut [u8], call: Call) -> Option<Read> {
        let (trust, own, view) = (self.trust, &self.own, self.view);
        let mut see = |frame: &[u8]| {
            let datagram = udp_frame::parse(frame, trust).ok()?;
            admit_source(datagram.source.ip(), own).ok()?;
            let payload = frame.get(datagram.payload)?;
            let len = payload.len().min(buffer.len());
            buffer[..len].copy_from_slice(&payload[..len]);
            Some((len, view.of(datagram.source)))
        };
        if call.peek {
            let seen = self.lease.peek(|frame| see(frame.bytes));
            // What is refused must not be in the way.
            if matches!(seen, Some(None)) {
                self.lease.take(|_| ());
            }
            return seen.flatten();
        }
        let taken = self.lease.take(|frame| see(frame.bytes));
        self.counts.refused += u64::from(matches!(taken, Some(None)));
        self.counts.by_ring += u64::from(matches!(taken, Some(Some(_))));
        taken.flatten()
    }

    /// Reads the kernel's socket without waiting.
    fn read_socket(
        &mut self,
        socket: &UdpSocket,
        buffer: &mut [u8],
        call: Call,
        now: Instant,
    ) -> io::Result<Option<Read>> {
        match recvfrom(socket, &mut *buffer, call.flags() | RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN) => {
                self.lease.socket_was_empty(now);
                Ok(None)
            }
            read => self.came_by_kernel(read, call).map(Some),
        }
    }

    fn came_by_kernel(
        &mut self,
        read: Result<(usize, usize, Option<SocketAddrAny>), Errno>,
        call: Call,
    ) -> io::Result<Read> {
        let (len, whole_len, peer) = read?;
        let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok());
        let peer = peer.ok_or_else(|| io::Error::other("the kernel named no sender"))?;
        if !call.peek {
            let ip = peer.ip().to_canonical();
            let is_odd = whole_len > self.whole_max || ip.is_loopback() || self.own.contains(&ip);
            self.lease.socket_was_read(is_odd);
            self.counts.by_kernel += 1;
        }
        Ok((len, peer))
    }

    /// Looks at the kernel's socket while the ring is open. If something is there the lease is given back, so that it is read
    /// after what is in the ring.
    fn socket_has_some(&mut self, socket: &UdpSocket) -> bool {
        // An error is to be received as well.
        let has_some = !matches!(recvfrom(socket, &mut [0u8; 0][..], PEEK), Err(Errno::AGAIN));
        if has_some {
            self.lease.close();
            self.lease.socket_has_some();
        }
        has_some
    }

    /// A datagram was read from the kernel's socket: if there is no other, the next ones come by the ring, unless the policy
    /// would rather sleep. A thread that always finds something has no other time to take the lease.
    fn take_lease_early(&mut self, socket: &UdpSocket, call: Call, now: Instant) {
        if !call.stays || call.polled || call.peek || self.lease.is_open() {
            return;
        }
        // If something is missing, not each time.
        let looks = self.lease.has_read_all() || now >= self.look_at;
        if looks {
            self.look_at = now + LOOK_EVERY;
        }
        if looks
            && matches!(self.lease.next(now), Next::Socket)
            && matches!(recvfrom(socket, &mut [0u8; 0][..], PEEK), Err(Errno::AGAIN))
        {
            self.lease.socket_was_empty(now);
        }
        if matches!(self.lease.next(now), Next::Idle)
            && matches!(self.idle.decide(now, Instant::NEVER), Decision::Turn)
        {
            self.open(now, Room::All);
        }
    }

    fn found(&mut self, now: Instant, read: Read) -> Read {
        self.idle.worked(now);
        self.idle.arrived(now, Arrival::since_look(self.looked, now, 1));
        read
    }

    /// Whether a datagram can be received, for somebody who waits for several sockets. It may have to be asked again soon.
    pub(crate) fn is_ready(&mut self, socket: &UdpSocket, now: Instant) -> bool {
        let mut looks = 0;
        loop {
            match self.lease.next(now) {
                Next::Ring => return true,
                Next::Soon => wait_for_program(&mut looks),
                Next::Nowhere | Next::Idle => return false,
                Next::Socket => match recvfrom(socket, &mut [0u8; 0][..], PEEK) {
                    Err(Errno::AGAIN) => self.lease.socket_was_empty(now),
                    // An error is to be received as well.
                    _ => return true,
                },
            }
        }
    }

    /// The lease is held for somebody who looks at several sockets.
    pub(crate) fn hold(&mut self, now: Instant, call_room: Room) {
        if self.lease.is_open() {
            self.lease.looks(now);
        } else if matches!(self.lease.next(now), Next::Idle) {
            self.open(now, call_room);
        }
    }

    /// Gives the lease back. What is in the ring is still to be received.
    pub(crate) fn give_back(&mut self) {
        self.lease.close();
    }
}

fn wait_for_program(looks: &mut u32) {
    *looks += 1;
    if *looks < LOOKS_BEFORE_YIELD { spin_loop() } else { yield_now() }
}

/// Waits until the socket is readable, or `until`.
fn wait_readable(socket: &UdpSocket, until: Instant) -> io::Result<bool> {
    let left = until.nanos_since(clock::now());
    let timeout = Timespec { tv_sec: (left / 1_000_000_000) as i64, tv_nsec: (left % 1_000_000_000) as i64 };
    let timeout = (until != Instant::NEVER).then_some(&timeout);
    Ok(poll(&mut [PollFd::new(socket, PollFlags::IN)], timeout)? > 0)
}
