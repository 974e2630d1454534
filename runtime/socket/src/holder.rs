//! The receiving side of a socket that has a lease: one thread at a time has it, and turns it itself.

use std::hint::spin_loop;
use std::io;
use std::mem;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::thread::yield_now;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SocketAddrAny, recvfrom};
use twinpath_idle::{Arrival, Woken};
use twinpath_lending::{Connection, Lent};
use twinpath_rings::lease::{LEASE, Lease, Next, Room};
use twinpath_sys::clock;
use twinpath_time::{Duration, Instant};
use twinpath_wire::{ChecksumTrust, udp_frame};
use twinpath_worker::idle::{Decision, Idle, IdleConfig, Mode};

use crate::address::View;
use crate::beside::{self, Beside};
use crate::counts::SocketCounts;
use crate::precise::Precise;

/// How often a thread that spins looks at the kernel's socket, for what does not come through the interface.
pub(crate) const LOOK_EVERY: Duration = Duration::from_micros(50);

/// A frame that is being written takes less than a microsecond. After so many looks the program's CPU may be this one.
const LOOKS_BEFORE_YIELD: u32 = 1024;

/// How long a call may wait for a datagram.
#[derive(Clone, Copy, Debug)]
pub enum Wait {
    /// Not at all.
    Not,
    /// Until then; [`Instant::NEVER`] is for ever.
    Until(Instant),
}

/// What a receiving call asks for.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// To leave the datagram where it is.
    pub peek: bool,
    /// How long to wait.
    pub wait: Wait,
    /// Whether the lease may be held after the call: nobody waits for the socket but by this library.
    pub stays: bool,
    /// Whether somebody else decides when to spin and when to sleep.
    pub polled: bool,
}

impl Call {
    /// If somebody could wait for the socket without this library, no datagram may be left in the ring.
    const fn room(self) -> Room {
        if self.stays { Room::All } else { Room::One }
    }

    pub(crate) fn flags(self) -> RecvFlags {
        // The length of the datagram is wanted, not only of what fits.
        if self.peek { RecvFlags::TRUNC | RecvFlags::PEEK } else { RecvFlags::TRUNC }
    }
}

/// A datagram in the ring, as the kernel's socket would describe it.
#[derive(Clone, Copy, Debug)]
pub struct Received<'a> {
    /// The datagram.
    pub payload: &'a [u8],
    /// Its sender; mapped if the socket is an IPv6 one.
    pub source: SocketAddr,
    /// The address that it was sent to.
    pub destination: IpAddr,
    /// IPv4 time to live or IPv6 hop limit.
    pub hop_limit: u8,
    /// DSCP (6 bits) and ECN (2).
    pub traffic_class: u8,
    /// The interface that it came by.
    pub ifindex: u32,
}

/// What a receiving call does next.
#[derive(Clone, Copy, Debug)]
pub enum Step<R> {
    /// A datagram came by the ring.
    Ring(R),
    /// To read the kernel's socket without waiting, and to tell what that gave.
    Read,
    /// To wait for the kernel's socket, in the kernel. The lease has been given back, and the ring is empty.
    Sleep {
        /// To look again then, if nothing comes.
        until: Instant,
    },
    /// There is nothing, and the call's time is over.
    Nothing,
    /// The caller was interrupted.
    Interrupted,
}

/// Where a datagram can be received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Nowhere.
    Nothing,
    /// From the kernel's socket, or an error.
    Socket,
    /// From the ring.
    Ring {
        /// How many frames it has taken so far.
        taken: u64,
    },
}

/// What a read of the kernel's socket gave.
#[derive(Clone, Copy, Debug)]
pub struct KernelRead {
    /// Bytes of the datagram, also those that did not fit.
    pub whole_len: usize,
    /// Its sender.
    pub source: IpAddr,
}

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
    beside: Arc<Beside>,
    view: View,
    idle: Idle,
    mode: Mode,
    /// When it last looked for datagrams, and when it looks at the kernel's socket again.
    looked: Instant,
    look_at: Instant,
    /// The kernel's socket has just been found empty by the caller.
    asked: bool,
    /// The policy was told of the next datagram by a call that waited.
    told: bool,
    /// The owner that has given the lease; and that it is gone, so that the kernel alone fills the socket.
    owner: Option<Arc<Connection>>,
    owner_is_gone: bool,
    counts: SocketCounts,
}

impl Holder {
    pub(crate) fn new(lent: Lent, view: View) -> Self {
        let Lent { number, lease, on, owner, .. } = lent;
        let trust = if on.partial_checksums { ChecksumTrust::AcceptPartial } else { ChecksumTrust::Verify };
        let now = clock::now();
        let beside = Arc::new(Beside::new(on.own, on.mtu, lease.view()));
        Self {
            number,
            lease,
            trust,
            mode: beside.mode(),
            beside,
            view,
            idle: Idle::new(IdleConfig::default()),
            looked: now,
            look_at: now,
            asked: false,
            told: false,
            owner,
            owner_is_gone: false,
            counts: SocketCounts::default(),
        }
    }

    /// For threads that read the kernel's socket meanwhile.
    pub(crate) const fn beside(&self) -> &Arc<Beside> {
        &self.beside
    }

    pub(crate) fn into_lease(self) -> (u32, Lease) {
        (self.number, self.lease)
    }

    /// What somebody does who waits for several sockets.
    pub(crate) fn decide(&mut self, now: Instant, deadline: Instant) -> Decision {
        let mode = self.beside.mode();
        if mode != self.mode {
            self.mode = mode;
            self.idle.set_mode(mode);
        }
        if self.owner_is_gone { Decision::Sleep { until: deadline } } else { self.idle.decide(now, deadline) }
    }

    /// Receives a datagram into `buffer`. Returns its length, as far as it fits, and its sender.
    pub(crate) fn receive(&mut self, socket: &UdpSocket, buffer: &mut [u8], call: Call) -> io::Result<Read> {
        self.begin();
        loop {
            let mut see = |received: Received<'_>| {
                let len = received.payload.len().min(buffer.len());
                buffer[..len].copy_from_slice(&received.payload[..len]);
                (len, received.source)
            };
            match self.step(socket, call, &mut see, &mut || false) {
                Step::Ring(read) => return Ok(read),
                Step::Nothing | Step::Interrupted => return Err(io::ErrorKind::WouldBlock.into()),
                Step::Read => match recvfrom(socket, &mut *buffer, call.flags() | RecvFlags::DONTWAIT) {
                    Err(Errno::AGAIN) => self.was_empty(),
                    read => {
                        let read = self.came_by_kernel(read, call)?;
                        self.take_lease_early(socket, call);
                        return Ok(read);
                    }
                },
                Step::Sleep { until } => {
                    if let Some(read) = self.sleep(socket, buffer, call, until)? {
                        return Ok(read);
                    }
                }
            }
        }
    }

    /// A receiving call begins. Returns whether the last one is so long ago that a lease has lapsed since.
    pub(crate) fn begin(&mut self) -> bool {
        let (now, before) = (clock::now(), self.looked);
        (self.looked, self.asked) = (now, false);
        now > before + LEASE
    }

    /// What a receiving call does next. Spins meanwhile, if the policy says so, and asks `is_interrupted` now and then.
    pub(crate) fn step<R>(
        &mut self,
        socket: &UdpSocket,
        call: Call,
        see: &mut dyn FnMut(Received<'_>) -> R,
        is_interrupted: &mut dyn FnMut() -> bool,
    ) -> Step<R> {
        let mut looks = 0;
        loop {
            let now = clock::now();
            match self.lease.next(now) {
                Next::Ring => {
                    if let Some(read) = self.take(call.peek, &mut *see) {
                        self.found(now);
                        return Step::Ring(read);
                    }
                }
                Next::Soon => wait_for_program(&mut looks),
                Next::Socket => return Step::Read,
                Next::Nowhere | Next::Idle => {
                    if let Some(step) = self.with_nothing(socket, call, now, is_interrupted) {
                        return step;
                    }
                }
            }
            self.looked = now;
        }
    }

    /// There is nothing, as far as is known: looks at the kernel's socket now and then, spins or sleeps. `None`: look again.
    fn with_nothing<R>(
        &mut self,
        socket: &UdpSocket,
        call: Call,
        now: Instant,
        is_interrupted: &mut dyn FnMut() -> bool,
    ) -> Option<Step<R>> {
        let is_open = self.lease.is_open();
        if is_open {
            self.lease.looks(now);
        }
        let returns = matches!(call.wait, Wait::Not);
        let has_asked = mem::take(&mut self.asked);
        if !has_asked && (now >= self.look_at || returns && !is_open) {
            self.look_at = now + LOOK_EVERY;
            if !returns && is_interrupted() {
                self.lease.close();
                return if self.lease.has_frames() { None } else { Some(Step::Interrupted) };
            }
            if !is_open {
                return Some(Step::Read);
            }
            if self.socket_has_some(socket) {
                return None;
            }
        }
        match self.then(now, call) {
            Then::Look => {
                // What is only looked at stays in the ring, where others may wait for it.
                if !is_open && (call.stays || !call.peek) {
                    self.open(now, call.room());
                }
                spin_loop();
                None
            }
            Then::Return => {
                if !call.stays {
                    self.lease.close();
                }
                // If it has taken a frame meanwhile, that is returned.
                if self.lease.has_frames() { None } else { Some(Step::Nothing) }
            }
            Then::Sleep { .. } if is_open => {
                self.lease.close();
                None
            }
            Then::Sleep { until } => Some(Step::Sleep { until }),
        }
    }

    fn then(&mut self, now: Instant, call: Call) -> Then {
        match call.wait {
            Wait::Until(deadline) if now < deadline => match self.decide(now, deadline) {
                Decision::Turn => Then::Look,
                Decision::Sleep { until } => Then::Sleep { until },
            },
            // A loop of its own calls this again: the lease is taken if the policy would spin, and given back if not.
            Wait::Not if call.stays && !call.polled => {
                match self.decide(now, Instant::NEVER) {
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
        if !self.owner_is_gone {
            self.counts.leases += u64::from(self.lease.open(now, room));
            self.beside.set_counted(&self.counts, self.lease.consumed());
        }
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
            self.woken(came);
            return Ok(None);
        }
        let read = recvfrom(socket, &mut *buffer, call.flags());
        self.slept(read.is_ok());
        self.came_by_kernel(read, call).map(Some)
    }

    /// The caller slept until the socket was readable, or as long as it was to.
    pub(crate) fn woken(&mut self, came: bool) {
        self.idle.woke(clock::now(), if came { Woken::Packet(None) } else { Woken::Timer });
        self.look_at = Instant::ZERO;
    }

    /// The caller slept in the kernel's receiving call.
    pub(crate) fn slept(&mut self, came: bool) {
        let now = clock::now();
        self.idle.woke(now, if came { Woken::Packet(None) } else { Woken::Other });
        self.looked = now;
    }

    /// Takes the next datagram from the ring; `None` if it is refused.
    fn take<R>(&mut self, peek: bool, see: &mut dyn FnMut(Received<'_>) -> R) -> Option<R> {
        let (trust, view) = (self.trust, self.view);
        let mut see = |frame: &[u8]| {
            let datagram = udp_frame::parse(frame, trust).ok()?;
            let payload = frame.get(datagram.payload)?;
            Some(see(Received {
                payload,
                source: view.of(datagram.source),
                destination: datagram.destination.ip(),
                hop_limit: datagram.hop_limit,
                traffic_class: datagram.traffic_class,
                ifindex: view.ifindex,
            }))
        };
        if peek {
            let seen = self.lease.peek(|frame| see(frame.bytes));
            // What is refused must not be in the way.
            if matches!(seen, Some(None)) {
                self.lease.take(|_| ());
                self.beside.set_counted(&self.counts, self.lease.consumed());
            }
            return seen.flatten();
        }
        let taken = self.lease.take(|frame| see(frame.bytes));
        self.counts.refused += u64::from(matches!(taken, Some(None)));
        self.counts.by_ring += u64::from(matches!(taken, Some(Some(_))));
        self.beside.set_counted(&self.counts, self.lease.consumed());
        taken.flatten()
    }

    /// The kernel's socket was read without waiting, and had nothing.
    pub(crate) fn was_empty(&mut self) {
        self.socket_was_empty(clock::now());
        self.asked = true;
    }

    fn socket_was_empty(&mut self, now: Instant) {
        self.count_beside();
        self.lease.socket_was_empty(now);
    }

    /// What others have read from the kernel's socket, before what was passed is compared with what was read.
    fn count_beside(&mut self) {
        (0..self.beside.take_read()).for_each(|_| self.lease.socket_was_read(false));
    }

    fn came_by_kernel(
        &mut self,
        read: Result<(usize, usize, Option<SocketAddrAny>), Errno>,
        call: Call,
    ) -> io::Result<Read> {
        let (len, whole_len, peer) = beside::with_sender(read)?;
        self.came(KernelRead { whole_len, source: peer.ip() }, call);
        Ok((len, peer))
    }

    /// A datagram was read from the kernel's socket.
    pub(crate) fn came(&mut self, read: KernelRead, call: Call) {
        if !call.peek {
            let is_odd = self.beside.is_odd(read.whole_len, read.source);
            self.lease.socket_was_read(is_odd);
            self.counts.by_kernel += 1;
            self.beside.set_counted(&self.counts, self.lease.consumed());
        }
        self.found(clock::now());
    }

    /// Looks at the kernel's socket while the ring is open. If something is there the lease is given back, so that it is read
    /// after what is in the ring.
    fn socket_has_some(&mut self, socket: &UdpSocket) -> bool {
        let has_some = has_some(socket);
        if has_some {
            self.lease.close();
            self.lease.socket_has_some();
            // Its descriptors are closed one after the other, so the program may still run: but the ring is closed now.
            self.owner_is_gone = self.owner.as_ref().is_some_and(|owner| owner.has_ended(clock::now()));
        }
        has_some
    }

    /// A datagram was read from the kernel's socket: if there is no other, the next ones come by the ring, unless the policy
    /// would rather sleep. A thread that always finds something has no other time to take the lease.
    pub(crate) fn take_lease_early(&mut self, socket: &UdpSocket, call: Call) {
        let now = clock::now();
        if !call.stays || call.polled || call.peek || self.lease.is_open() {
            return;
        }
        self.count_beside();
        // If something is missing, not each time.
        let looks = self.lease.has_read_all() || now >= self.look_at;
        if looks {
            self.look_at = now + LOOK_EVERY;
        }
        if looks && matches!(self.lease.next(now), Next::Socket) && !has_some(socket) {
            self.socket_was_empty(now);
        }
        if matches!(self.lease.next(now), Next::Idle)
            && matches!(self.decide(now, Instant::NEVER), Decision::Turn)
        {
            self.open(now, Room::All);
        }
    }

    fn found(&mut self, now: Instant) {
        if !mem::take(&mut self.told) {
            self.found_among(now, self.looked);
        }
    }

    /// Whether the policy was told of the next datagram that is received.
    pub(crate) const fn set_told(&mut self, told: bool) {
        self.told = told;
    }

    /// Something came, and was not there when it was looked for last.
    pub(crate) fn found_among(&mut self, now: Instant, looked: Instant) {
        self.idle.worked(now);
        self.idle.arrived(now, Arrival::since_look(looked, now, 1));
    }

    /// The call that waits for several sockets slept.
    pub(crate) fn woke(&mut self, now: Instant, woken: Woken) {
        self.idle.woke(now, woken);
    }

    /// Whether a datagram can be received, for somebody who waits for several sockets. It may have to be asked again soon.
    pub(crate) fn is_ready(&mut self, socket: &UdpSocket, now: Instant) -> bool {
        self.readiness(socket, now) != Readiness::Nothing
    }

    /// As [`Self::is_ready`]: where.
    pub(crate) fn readiness(&mut self, socket: &UdpSocket, now: Instant) -> Readiness {
        let mut looks = 0;
        self.count_beside();
        loop {
            match self.lease.next(now) {
                Next::Ring => return Readiness::Ring { taken: self.lease.taken() },
                Next::Soon => wait_for_program(&mut looks),
                Next::Nowhere | Next::Idle => return Readiness::Nothing,
                Next::Socket if has_some(socket) => return Readiness::Socket,
                Next::Socket => self.socket_was_empty(now),
            }
        }
    }

    /// How many frames the ring has taken so far.
    pub(crate) fn taken(&self) -> u64 {
        self.lease.taken()
    }

    /// The lease is held for somebody who looks at several sockets.
    pub(crate) fn hold(&mut self, now: Instant, call_room: Room) {
        if self.lease.is_open() && self.lease.room() == Room::All && call_room == Room::One {
            // Another thread waits now: the ring is opened for one frame by the next call.
            self.lease.close();
        } else if self.lease.is_open() {
            self.lease.looks(now);
        } else if matches!(self.lease.next(now), Next::Idle) {
            self.open(now, call_room);
        }
    }

    /// Gives the lease back. What is in the ring is still to be received.
    pub(crate) fn give_back(&mut self) {
        self.lease.close();
    }

    /// Leaves what is in the ring to somebody who hands it over until then. The ring stays open meanwhile, if it is, so that what comes
    /// next comes after that. Returns whether something is there; otherwise the ring is closed.
    pub(crate) fn leave_rest(&mut self, until: Instant) -> bool {
        if !self.lease.has_frames() {
            self.lease.close();
        }
        let is_unread = self.lease.has_frames();
        if is_unread {
            self.lease.leave(until);
        }
        is_unread
    }

    /// After [`Self::leave_rest`]: whether it was handed over.
    pub(crate) fn was_left(&mut self) -> bool {
        let was_left = self.lease.was_left();
        if was_left {
            self.beside.set_counted(&self.counts, self.lease.consumed());
        }
        was_left
    }

    /// As [`Self::give_back`]; returns whether something is there.
    pub(crate) fn leave(&mut self) -> bool {
        self.lease.close();
        self.lease.has_frames()
    }
}

/// Whether there is something to be received from the kernel's socket. An error is, and stays there: a read would take it away.
fn has_some(socket: &UdpSocket) -> bool {
    const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&NOW)) != Ok(0)
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
    let _precise = timeout.map(|_| Precise::new());
    Ok(poll(&mut [PollFd::new(socket, PollFlags::IN)], timeout)? > 0)
}
