//! The receiving side of a socket with a lease. One thread at a time has it, and drives it itself.

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
use twinpath_rings::lease::{LEASE, Lease, Next, Room};
use twinpath_sys::clock;
use twinpath_time::{Duration, Instant};
use twinpath_wire::ChecksumTrust;
use twinpath_wire::udp_frame::{self, UdpFrame};
use twinpath_worker::idle::{Decision, Idle, IdleConfig, Mode};

use crate::lending::{Connection, Lent};
use crate::sockets::address::View;
use crate::sockets::beside::{self, Beside};
use crate::sockets::counts::SocketCounts;
use crate::sockets::precise::Precise;

/// How often a thread that spins looks at the kernel's socket, for what does not come through the interface.
pub(crate) const LOOK_EVERY: Duration = Duration::from_micros(50);
/// Maximum of [`LOOK_EVERY`], to which it grows where there was always more to read.
const LOOK_EVERY_MAX: Duration = Duration::from_micros(800);

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
    /// Whether the lease may be held after the call: all that wait for the socket use this library.
    pub stays: bool,
    /// Whether somebody else decides when to spin and when to sleep.
    pub polled: bool,
}

impl Call {
    /// If the socket could be waited for without this library, no datagram may be left in the ring.
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
    /// From the kernel's socket.
    Socket,
    /// The kernel's socket has no datagram, but an error, or something in its queue of errors. What the next call returns, and whether
    /// one that may wait returns at all, only the kernel can say.
    Error,
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
    look_every: Duration,
    /// The kernel's socket has just been found empty by the caller.
    asked: bool,
    /// The policy was told of the next datagram by a call that waited.
    told: bool,
    /// The owner that has given the lease: with it the lease ends.
    owner: Option<Arc<Connection>>,
    /// For the next frame, once it is found to be one that is received: how many were read before it, and how long its
    /// datagram is.
    admitted: Option<(u64, usize)>,
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
            look_every: LOOK_EVERY,
            asked: false,
            told: false,
            owner,
            admitted: None,
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

    /// For a caller that waits for several sockets.
    pub(crate) fn decide(&mut self, now: Instant, deadline: Instant) -> Decision {
        let mode = self.beside.mode();
        if mode != self.mode {
            self.mode = mode;
            self.idle.set_mode(mode);
        }
        if self.beside.is_ending() {
            Decision::Sleep { until: deadline }
        } else {
            self.idle.decide(now, deadline)
        }
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
                    Err(Errno::AGAIN) => {
                        self.was_empty();
                        let waits = matches!(call.wait, Wait::Until(deadline) if clock::now() < deadline);
                        if waits && state_of(socket) == SocketState::Other {
                            return self.sleep_by_kernel(socket, buffer, call);
                        }
                    }
                    read => {
                        let read = self.came_by_kernel(read, call)?;
                        self.take_lease_early(socket, call, clock::now());
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
        // Another thread may have ended the lease.
        self.heed_end();
        let is_open = self.lease.is_open();
        if is_open {
            self.lease.looks(now);
        }
        let returns = matches!(call.wait, Wait::Not);
        let has_asked = mem::take(&mut self.asked);
        if !has_asked && (now >= self.look_at || returns && (!is_open || self.beside.take_told())) {
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
        if !self.beside.is_ending() {
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
            if came == SocketState::Other {
                return self.sleep_by_kernel(socket, buffer, call).map(Some);
            }
            self.woken(came == SocketState::Datagram);
            return Ok(None);
        }
        self.sleep_by_kernel(socket, buffer, call).map(Some)
    }

    /// Sleeps in the kernel's own call. Only that call knows whether something other than a datagram ends it. Errors
    /// that are still in their queue are reported by poll(2) as long as they are there, and end no receiving call.
    fn sleep_by_kernel(&mut self, socket: &UdpSocket, buffer: &mut [u8], call: Call) -> io::Result<Read> {
        let read = recvfrom(socket, &mut *buffer, call.flags());
        self.slept(read.is_ok());
        self.came_by_kernel(read, call)
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
        let (trust, view) = (self.trust_in_next(), self.view);
        let mut see = |frame: &[u8]| {
            let datagram = admit(frame, trust)?;
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
                self.drop_next();
            }
            return seen.flatten();
        }
        let taken = self.lease.take(|frame| see(frame.bytes));
        self.counts.refused += u64::from(matches!(taken, Some(None)));
        self.counts.by_ring += u64::from(matches!(taken, Some(Some(_))));
        self.beside.set_counted(&self.counts, self.lease.consumed());
        taken.flatten()
    }

    /// The next frame is none that a call receives.
    fn drop_next(&mut self) {
        self.counts.refused += u64::from(self.lease.take(|_| ()).is_some());
        self.beside.set_counted(&self.counts, self.lease.consumed());
    }

    /// How its checksum is looked at: once.
    fn trust_in_next(&self) -> ChecksumTrust {
        let is_admitted = self.admitted.is_some_and(|(before, _)| before == self.lease.consumed());
        if is_admitted { ChecksumTrust::Trusted } else { self.trust }
    }

    /// The length of the next datagram, after [`Next::Ring`]; `None` if a receiving call would refuse the frame, which is dropped then.
    fn admit_next(&mut self) -> Option<usize> {
        if let Some((_, len)) = self.admitted.filter(|(before, _)| *before == self.lease.consumed()) {
            return Some(len);
        }
        let trust = self.trust;
        let len = self.lease.peek(|frame| admit(frame.bytes, trust).map(|datagram| datagram.payload.len()));
        match len {
            Some(Some(len)) => {
                self.admitted = Some((self.lease.consumed(), len));
                Some(len)
            }
            Some(None) => {
                self.drop_next();
                None
            }
            None => None,
        }
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
        self.came(KernelRead { whole_len, source: peer.ip() }, call, clock::now());
        Ok((len, peer))
    }

    /// A datagram was read from the kernel's socket.
    pub(crate) fn came(&mut self, read: KernelRead, call: Call, now: Instant) {
        if !call.peek {
            let is_odd = self.beside.is_odd(read.whole_len, read.source);
            self.lease.socket_was_read(is_odd);
            self.counts.by_kernel += 1;
            self.beside.set_counted(&self.counts, self.lease.consumed());
        }
        self.found(now);
    }

    /// Looks at the kernel's socket while the ring is open. If something is there, the lease is given back, so that it
    /// is read after what is in the ring.
    fn socket_has_some(&mut self, socket: &UdpSocket) -> bool {
        let has_some = state_of(socket) != SocketState::Empty;
        if has_some {
            self.lease.close();
            self.lease.socket_has_some();
            // Its descriptors are closed one after the other, so the program may still run: but the ring is closed now.
            if self.owner.as_ref().is_some_and(|owner| owner.has_ended(clock::now())) {
                self.beside.set_ending();
            }
        }
        has_some
    }

    /// A datagram was read from the kernel's socket: if there is no other, the next ones come by the ring, unless the policy
    /// would rather sleep. A thread that always finds something has no other time to take the lease.
    pub(crate) fn take_lease_early(&mut self, socket: &UdpSocket, call: Call, now: Instant) {
        if !call.stays || call.polled || call.peek || self.lease.is_open() {
            return;
        }
        // In this mode no call spins, so a look at the socket would be of no use.
        if matches!(self.beside.mode(), Mode::Interrupt) {
            return;
        }
        self.count_beside();
        // If something is missing, or was of no use, not each time: where there is always more to read, ever more rarely.
        let looks = now >= self.look_at || self.look_every == LOOK_EVERY && self.lease.has_read_all();
        // A datagram that no program has counted may have others behind it.
        let is_empty = looks
            && matches!(self.lease.next(now), Next::Socket | Next::Idle)
            && state_of(socket) == SocketState::Empty;
        if is_empty {
            self.socket_was_empty(now);
        }
        let opens = is_empty
            && matches!(self.lease.next(now), Next::Idle)
            && matches!(self.decide(now, Instant::NEVER), Decision::Turn);
        if opens {
            self.open(now, Room::All);
        }
        if looks {
            self.look_every = if opens { LOOK_EVERY } else { (self.look_every * 2).min(LOOK_EVERY_MAX) };
            self.look_at = now + self.look_every;
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
                // Ready is what a receiving call returns, and not what it drops.
                Next::Ring if self.admit_next().is_some() => {
                    return Readiness::Ring { taken: self.lease.taken() };
                }
                Next::Ring => {}
                Next::Soon => wait_for_program(&mut looks),
                Next::Nowhere | Next::Idle => return Readiness::Nothing,
                Next::Socket => match state_of(socket) {
                    SocketState::Empty => self.socket_was_empty(now),
                    SocketState::Datagram => return Readiness::Socket,
                    SocketState::Other => return Readiness::Error,
                },
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

    /// Whether what is in the ring came before everything that the kernel's socket has, as far as counts can tell: nothing was passed there
    /// since.
    pub(crate) fn is_before_all(&mut self) -> bool {
        self.count_beside();
        self.lease.has_read_all()
    }

    /// Leaves what is in the ring for a hand-over that ends by `until`. The ring stays open meanwhile if it is
    /// open, so that what comes next stays behind that. Returns whether something is there; otherwise the ring is
    /// closed.
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

    /// As [`Self::give_back`]; returns whether a datagram is there.
    pub(crate) fn leave(&mut self) -> bool {
        self.lease.close();
        self.next_len().is_some()
    }

    /// The length of the datagram that the next call receives, if it is in the ring.
    pub(crate) fn next_len(&mut self) -> Option<usize> {
        let mut looks = 0;
        loop {
            match self.lease.next(clock::now()) {
                Next::Ring => {
                    if let Some(len) = self.admit_next() {
                        return Some(len);
                    }
                }
                Next::Soon => wait_for_program(&mut looks),
                Next::Nowhere | Next::Idle | Next::Socket => return None,
            }
        }
    }

    /// Closes the ring if the lease is to end. What is in it is still to be received. Returns whether nothing is left,
    /// so that the lease is over.
    pub(crate) fn heed_end(&mut self) -> bool {
        let is_ending = self.beside.is_ending();
        if is_ending {
            self.lease.close();
        }
        is_ending && !self.lease.has_frames()
    }
}

/// The datagram of a frame; `None` if the kernel would drop it.
fn admit(frame: &[u8], trust: ChecksumTrust) -> Option<UdpFrame> {
    // From where it comes the program in the kernel has judged.
    udp_frame::parse(frame, trust).ok()
}

/// What the kernel's socket has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SocketState {
    Empty,
    Datagram,
    /// Errors, or what is in their queue; or its receiving side was shut down. They stay there: a read would take an error away.
    Other,
}

pub(crate) fn state_of(socket: &UdpSocket) -> SocketState {
    const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll_for(socket, Some(&NOW)).unwrap_or(SocketState::Other)
}

fn poll_for(socket: &UdpSocket, timeout: Option<&Timespec>) -> Result<SocketState, Errno> {
    let mut asked = [PollFd::new(socket, PollFlags::IN | PollFlags::RDHUP)];
    Ok(match poll(&mut asked, timeout)? {
        0 => SocketState::Empty,
        _ if asked[0].revents() == PollFlags::IN => SocketState::Datagram,
        _ => SocketState::Other,
    })
}

fn wait_for_program(looks: &mut u32) {
    *looks += 1;
    if *looks < LOOKS_BEFORE_YIELD { spin_loop() } else { yield_now() }
}

/// Waits until the socket has something, or `until`.
fn wait_readable(socket: &UdpSocket, until: Instant) -> io::Result<SocketState> {
    let left = until.nanos_since(clock::now());
    let timeout = Timespec { tv_sec: (left / 1_000_000_000) as i64, tv_nsec: (left % 1_000_000_000) as i64 };
    let timeout = (until != Instant::NEVER).then_some(&timeout);
    let _precise = timeout.map(|_| Precise::new());
    Ok(poll_for(socket, timeout)?)
}
