//! Receiving: `recvmsg(2)`, and the other calls as it.
#![allow(unsafe_code, reason = "messages are the caller's memory, described by pointers")]

use std::mem::{MaybeUninit, size_of, zeroed};
use std::net::UdpSocket;
use std::sync::atomic::{Ordering, fence};

use libc::{c_int, c_void, iovec, mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t};
use twinpath_leases::sockets::{Call, KernelRead, Readiness, Received, Step, Wait};
use twinpath_sys::clock;
use twinpath_time::{Duration, Instant};

use crate::kernel::{Kernel, errno, set_errno};
use crate::message::{self, Name};
use crate::pointers::{self, Theirs};
use crate::signals::{Blocked, Effect};
use crate::table::{self, Place, Receives};
use crate::times::{duration, timespec};

/// What is the kernel's alone, whatever is in the ring.
const BY_KERNEL: c_int = libc::MSG_ERRQUEUE;

/// Messages of one call; the kernel takes no more either (`UIO_MAXIOV`).
const MESSAGES_MAX: u32 = 1_024;

/// Messages that are received by one call of the kernel: there is room for this many names of senders.
const AT_ONCE: usize = 16;

/// After this time, a call that has opened the ring has ended, or looks at it.
const SETTLES_NS: u64 = 5_000_000;

/// Maximum time that a call waits for another thread to read what is in the ring.
const RING_WAIT: Duration = Duration::from_millis(20);

/// A receiving call on a socket with a lease.
struct Receiving<'a> {
    kernel: &'a Kernel,
    /// With which it has begun.
    named: c_int,
    message: *mut msghdr,
    flags: c_int,
    place: &'static Place,
    call: Call,
    /// While it spins.
    blocked: Option<Blocked>,
    has_timeout: bool,
    more: More,
    theirs: Theirs,
    receives: Receives,
}

/// The messages of `recvmmsg(2)` after the first one.
#[derive(Clone, Copy)]
struct More {
    messages: *mut mmsghdr,
    count: usize,
    /// Number of messages received so far, as one call of the kernel receives several.
    received: usize,
}

impl More {
    const NONE: Self = Self { messages: std::ptr::null_mut(), count: 0, received: 0 };
}

/// As `recvmsg(2)`.
///
/// # Safety
/// As for `recvmsg(2)`: `message` describes memory of the caller.
pub unsafe fn recvmsg(kernel: &Kernel, descriptor: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe { receive(kernel, descriptor, message, flags, &mut { More::NONE }, Theirs::All) }
}

/// As [`recvmsg`]. What one call of the kernel may receive beside, it does.
///
/// # Safety
/// As for `recvmsg(2)`, of all messages.
unsafe fn receive(
    kernel: &Kernel,
    descriptor: c_int,
    message: *mut msghdr,
    flags: c_int,
    more: &mut More,
    theirs: Theirs,
) -> ssize_t {
    // SAFETY: the caller's promise.
    let is_ours = flags & BY_KERNEL == 0 && unsafe { pointers::is_sound(message, theirs) };
    let Some((place, receives)) = is_ours.then(|| table::receives(descriptor, true)).flatten() else {
        // SAFETY: the caller's promise.
        return unsafe { (kernel.recvmsg)(descriptor, message, flags) };
    };
    let peek = flags & libc::MSG_PEEK != 0;
    if let Some(error) = place.take_error() {
        return set_errno(error) as ssize_t;
    }
    // At first it only looks: whether the call may wait is asked if it would have to. A call that does not wait leaves nothing in the
    // ring, unless the program is known to wait for it by calls of this crate.
    let polled = !place.is_waited_for();
    place.look_for_others();
    let call = Call { peek, wait: Wait::Not, stays: place.lessee.may_stay(), polled };
    let (blocked, has_timeout) = (None, false);
    let mut receiving = Receiving {
        kernel,
        named: descriptor,
        message,
        flags,
        place,
        call,
        blocked,
        has_timeout,
        more: *more,
        theirs,
        receives,
    };
    // SAFETY: the caller's promise.
    let received = unsafe { receiving.run() };
    *more = receiving.more;
    received
}

impl Receiving<'_> {
    /// # Safety
    /// The message describes memory of the caller.
    unsafe fn run(&mut self) -> ssize_t {
        loop {
            // The check costs a system call, so it is made only where the ring was not looked at for a while.
            if self.place.lessee.begin() && table::is_replaced(self.descriptor(), self.place) {
                // SAFETY: the caller's promise.
                return unsafe { (self.kernel.recvmsg)(self.named, self.message, self.flags) };
            }
            // SAFETY: the caller's promise.
            let done = unsafe { self.run_to_end() };
            // Another thread may have begun to sleep in the kernel while this call had the ring: nothing more may come there, as this
            // thread may be busy for long.
            fence(Ordering::SeqCst);
            if self.place.lessee.may_stay() {
                return done;
            }
            let error = errno();
            let has_frames = self.place.lessee.has_frames();
            set_errno(error);
            // What has come until then is this call's: nobody else is told of it.
            if done >= 0 || error != libc::EAGAIN || has_frames != Some(true) {
                return done;
            }
        }
    }

    /// By which the kernel is asked.
    fn descriptor(&self) -> c_int {
        self.place.descriptor(self.named)
    }

    /// # Safety
    /// As [`Self::run`].
    unsafe fn run_to_end(&mut self) -> ssize_t {
        loop {
            // Another thread may have closed it.
            let socket = &*table::socket(self.descriptor());
            self.place.look_for_others();
            // Once another thread sleeps in the kernel the ring is opened for one datagram only, which this call returns.
            self.call.stays = self.place.lessee.may_stay();
            // SAFETY: the caller's promise.
            let done = match unsafe { self.step(socket) } {
                None => self.by_the_kernel_alone(socket),
                Some(Step::Ring(len)) => Some(len),
                Some(Step::Read) => self.read(socket),
                Some(Step::Sleep { until }) => self.sleep(socket, until),
                Some(Step::Nothing) => self.has_nothing(),
                Some(Step::Interrupted) => self.interrupted(),
            };
            if let Some(done) = done {
                return done;
            }
        }
    }

    /// # Safety
    /// As [`Self::run`].
    unsafe fn step(&self, socket: &UdpSocket) -> Option<Step<ssize_t>> {
        let (message, flags, place) = ((self.message, self.theirs), self.flags, self.place);
        // What is asked for when the datagram is received, and not when the call began to wait.
        let mut see = |received: Received<'_>| {
            // SAFETY: the caller's promise.
            unsafe { message::fill(message, flags, place.wanted(), &received) }
        };
        let (lessee, stays, descriptor) = (&self.place.lessee, self.call.stays, self.descriptor());
        // Also by another thread that begins to sleep in the kernel: then the call goes on with a ring for one datagram. And by one that
        // closes the socket: then it goes on by another descriptor.
        let mut is_interrupted = || {
            self.place.look_for_others();
            stays && !lessee.may_stay()
                || self.descriptor() != descriptor
                || self.blocked.as_ref().is_some_and(|blocked| Blocked::has_come(blocked.before()))
        };
        self.place.lessee.step(socket, self.call, &mut see, &mut is_interrupted)
    }

    /// Reads the kernel's socket without waiting.
    fn read(&mut self, socket: &UdpSocket) -> Option<ssize_t> {
        let (len, read) = self.receive(libc::MSG_DONTWAIT);
        if len < 0 && errno() == libc::EAGAIN {
            self.place.lessee.was_empty();
            let waits = matches!(self.call.wait, Wait::Until(_));
            // Nothing is there, and poll(2) says that something is: whether that ends this call the kernel knows.
            return if waits && self.has_other() { self.sleep_by_kernel(socket) } else { None };
        }
        let error = errno();
        // A receiver that always finds something never waits, but would: it is one that waits by calls of this crate.
        if self.call.polled
            && self.flags & libc::MSG_DONTWAIT == 0
            && !message::is_nonblocking(self.descriptor())
        {
            self.place.set_waited_for();
            self.call.polled = false;
        }
        if len >= 0 && self.more.count > 0 {
            self.read_more();
        }
        self.place.lessee.was_read(socket, read, self.call);
        set_errno(error);
        Some(len)
    }

    /// Reads what else the kernel's socket has, into the messages that follow. Only calls for several messages have its names on their stack.
    #[inline(never)]
    fn read_more(&mut self) {
        let mut sources = [const { MaybeUninit::<Name>::zeroed() }; AT_ONCE];
        let mut theirs = [(std::ptr::null_mut::<c_void>(), 0); AT_ONCE];
        let messages = self.more.messages;
        // SAFETY: the caller of `receive` has promised that there are as many messages.
        let header_at = |at: usize| unsafe { &raw mut (*messages.add(at)).msg_hdr };
        // Names that cannot be written, as they may lie anywhere, are refused where each message is received by itself.
        let has_room = |at: &usize| {
            pointers::can_change_of(messages.wrapping_add(*at), 1)
                // SAFETY: as above, and it can be read.
                && message::has_name_room(&unsafe { header_at(*at).read_unaligned() })
        };
        let count = (0..self.more.count.min(AT_ONCE)).take_while(has_room).count();
        for (at, (source, theirs)) in sources.iter_mut().zip(&mut theirs).enumerate().take(count) {
            // SAFETY: as above; what can be changed can be written.
            unsafe {
                let mut header = header_at(at).read_unaligned();
                *theirs = (header.msg_name, header.msg_namelen);
                header.msg_name = source.as_mut_ptr().cast();
                header.msg_namelen = size_of::<Name>() as socklen_t;
                header_at(at).write_unaligned(header);
            }
        }
        let flags = self.flags & !libc::MSG_WAITFORONE | libc::MSG_DONTWAIT | libc::MSG_TRUNC;
        let nothing = std::ptr::null_mut();
        // SAFETY: the messages are the caller's, with room for names.
        let got =
            unsafe { (self.kernel.recvmmsg)(self.descriptor(), messages, count as u32, flags, nothing) };
        // As in the kernel, the next call returns the error.
        if got < 0 && !matches!(errno(), libc::EAGAIN | libc::EINTR) {
            self.place.set_error(errno());
        }
        let received = usize::try_from(got).unwrap_or(0);
        for (at, ((name, room), source)) in theirs.into_iter().zip(&sources).enumerate().take(count) {
            // SAFETY: as above.
            let mut message = unsafe { messages.add(at).read_unaligned() };
            let header = &mut message.msg_hdr;
            let name_len = header.msg_namelen;
            (header.msg_name, header.msg_namelen) = (name, room);
            if at < received {
                // SAFETY: all zeros are a valid value of it, and the kernel has written another.
                let source = unsafe { source.assume_init_ref() };
                if !name.is_null() {
                    // SAFETY: the caller's room for the name is what the message said.
                    unsafe { message::put_name(source, name_len, name.cast(), room) };
                    header.msg_namelen = name_len;
                }
                let whole = message.msg_len;
                if self.flags & libc::MSG_TRUNC == 0 {
                    // SAFETY: the caller of `receive` has promised that the message is valid.
                    let room = unsafe { message::room(&message.msg_hdr) };
                    message.msg_len = whole.min(u32::try_from(room).unwrap_or(u32::MAX));
                }
                if let Some(source) = message::ip_of(source).filter(|_| !self.call.peek) {
                    self.place.lessee.was_read_beside(KernelRead { whole_len: whole as usize, source });
                }
            }
            // SAFETY: as above.
            unsafe { messages.add(at).write_unaligned(message) };
        }
        self.more.received = received;
    }

    /// The kernel's call, with a place for the sender's address.
    fn receive(&self, more_flags: c_int) -> (ssize_t, Option<KernelRead>) {
        let mut source = MaybeUninit::<Name>::zeroed();
        // SAFETY: the caller of `run` has promised that the message is valid.
        let mut message = unsafe { self.message.read_unaligned() };
        message.msg_name = source.as_mut_ptr().cast();
        message.msg_namelen = size_of::<Name>() as socklen_t;
        let flags = self.flags | more_flags | libc::MSG_TRUNC;
        let whole = if self.theirs == Theirs::Bytes {
            // The caller sees no flags and no control data: the kernel has a cheaper call for these.
            // SAFETY: such a message has one piece.
            let piece = unsafe { message.msg_iov.read_unaligned() };
            let (name, name_len) = (message.msg_name.cast(), &raw mut message.msg_namelen);
            // SAFETY: as above, and there is room for the name.
            unsafe {
                (self.kernel.recvfrom)(
                    self.descriptor(),
                    piece.iov_base,
                    piece.iov_len,
                    flags,
                    name,
                    name_len,
                )
            }
        } else {
            // SAFETY: as above, and there is room for the name.
            unsafe { (self.kernel.recvmsg)(self.descriptor(), &raw mut message, flags) }
        };
        if whole < 0 {
            return (whole, None);
        }
        // SAFETY: all zeros are a valid value of it, and the kernel has written another.
        let source = unsafe { source.assume_init() };
        // SAFETY: as above; the caller's room for the name is what the message says.
        let room = unsafe {
            let mut theirs = self.message.read_unaligned();
            if !self.theirs.can_change(self.message) || !message::can_put_name(&theirs, message.msg_namelen) {
                let read = message::ip_of(&source);
                let read = read.map(|source| KernelRead { whole_len: whole as usize, source });
                return (set_errno(libc::EFAULT) as ssize_t, read);
            }
            if !theirs.msg_name.is_null() {
                message::put_name(&source, message.msg_namelen, theirs.msg_name.cast(), theirs.msg_namelen);
                theirs.msg_namelen = message.msg_namelen;
            }
            theirs.msg_controllen = message.msg_controllen;
            theirs.msg_flags = message.msg_flags;
            self.message.write_unaligned(theirs);
            message::room(&theirs)
        };
        let len = if self.flags & libc::MSG_TRUNC != 0 { whole } else { whole.min(room as ssize_t) };
        let read = message::ip_of(&source).map(|source| KernelRead { whole_len: whole as usize, source });
        (len, read)
    }

    /// Nothing is there. Either the call has not waited yet, or it has waited as long as it may.
    fn has_nothing(&mut self) -> Option<ssize_t> {
        let returns = !matches!(self.call.wait, Wait::Not)
            || self.flags & libc::MSG_DONTWAIT != 0
            || message::is_nonblocking(self.descriptor());
        if returns {
            self.blocked = None;
            return Some(set_errno(libc::EAGAIN) as ssize_t);
        }
        let timeout_ns = message::timeout_ns(self.descriptor());
        let deadline = timeout_ns.map_or(Instant::NEVER, |ns| clock::now() + Duration::from_nanos(ns));
        self.has_timeout = timeout_ns.is_some();
        self.call.wait = Wait::Until(deadline);
        self.call.polled = false;
        self.place.set_waited_for();
        self.blocked = Some(Blocked::new());
        None
    }

    /// A signal came while the call was spinning.
    fn interrupted(&mut self) -> Option<ssize_t> {
        let effect = self.blocked.as_ref().map_or(Effect::None, Blocked::effect);
        // Now handlers run.
        self.blocked = None;
        if effect == Effect::Interrupts || effect == Effect::Restarts && self.has_timeout {
            return Some(set_errno(libc::EINTR) as ssize_t);
        }
        self.blocked = Some(Blocked::new());
        None
    }

    /// Another call may be about to open the ring, and not have seen that this one sleeps. After a while it has, or has closed the ring
    /// again: signals are held back meanwhile.
    fn settle(&mut self) {
        let waits = self.flags & libc::MSG_DONTWAIT == 0 && self.place.calls.look();
        if !waits || message::is_nonblocking(self.descriptor()) {
            return;
        }
        self.blocked.get_or_insert_with(Blocked::new);
        let (some, mut waited) =
            (timespec(SETTLES_NS), libc::pollfd { fd: self.descriptor(), events: libc::POLLIN, revents: 0 });
        // SAFETY: it is one structure.
        let _ = unsafe { (self.kernel.ppoll)(&raw mut waited, 1, &raw const some, std::ptr::null()) };
    }

    /// Whether the kernel's socket has something other than a datagram: an error, an entry in the error queue, or the
    /// end of its receiving side.
    fn has_other(&self) -> bool {
        let now = timespec(0);
        let mut asked = libc::pollfd { fd: self.descriptor(), events: READABLE, revents: 0 };
        // SAFETY: it is one structure.
        let has = unsafe { (self.kernel.ppoll)(&raw mut asked, 1, &raw const now, std::ptr::null()) };
        has > 0 && is_other(asked.revents)
    }

    /// Sleeps in the kernel.
    fn sleep(&mut self, socket: &UdpSocket, until: Instant) -> Option<ssize_t> {
        let until = self.has_timeout.then_some(until);
        self.sleep_for(socket, until)
    }

    /// As [`Self::sleep`], in the kernel's receiving call whatever time is left: it may take as long as if it began now.
    fn sleep_by_kernel(&mut self, socket: &UdpSocket) -> Option<ssize_t> {
        self.sleep_for(socket, None)
    }

    fn sleep_for(&mut self, socket: &UdpSocket, until: Option<Instant>) -> Option<ssize_t> {
        let waits = self.place.lessee.waits();
        // Before it was known that this thread waits, another one may have taken the lease, and have left something in the ring.
        if self.has_datagram(socket) {
            return None;
        }
        self.receives.rest();
        self.settle();
        if self.has_datagram(socket) {
            self.receives.look_again();
            return None;
        }
        self.blocked = None;
        let slept = match until {
            Some(until) => self.sleep_until(until),
            None => self.sleep_on(),
        };
        let error = errno();
        self.receives.look_again();
        drop(waits);
        if slept.is_some() {
            set_errno(error);
        } else {
            self.blocked = Some(Blocked::new());
        }
        slept
    }

    fn has_datagram(&self, socket: &UdpSocket) -> bool {
        let readiness = self.place.lessee.readiness(socket, clock::now());
        matches!(readiness, Some(Readiness::Ring { .. } | Readiness::Socket))
    }

    /// Until something comes: only the kernel's own call is restarted after a signal as its handler asks for, so it is not woken
    /// ahead of what the policy expects.
    fn sleep_on(&self) -> Option<ssize_t> {
        let (len, read) = self.receive(0);
        let error = errno();
        self.place.lessee.slept(read, self.call);
        set_errno(error);
        Some(len)
    }

    /// A call with a time-out is never restarted after a signal, nor is this one.
    fn sleep_until(&self, until: Instant) -> Option<ssize_t> {
        let left = timespec(until.nanos_since(clock::now()));
        let mut waited = libc::pollfd { fd: self.descriptor(), events: READABLE, revents: 0 };
        // SAFETY: it is one structure.
        let came = unsafe { (self.kernel.ppoll)(&raw mut waited, 1, &raw const left, std::ptr::null()) };
        if came > 0 && is_other(waited.revents) {
            return self.sleep_on();
        }
        self.place.lessee.woken(came > 0);
        (came < 0).then_some(came as ssize_t)
    }

    /// Another thread has the lease, or there is none any more: the kernel's call, as it is. `None`: the lease is free again.
    fn by_the_kernel_alone(&mut self, socket: &UdpSocket) -> Option<ssize_t> {
        let waits = self.place.lessee.waits();
        // The thread that had the lease may have returned before it could see this one, and have left something in the
        // ring. If it still has the ring, its contents came before what the kernel has by now. Usually that thread
        // reads them immediately. If it has been preempted, it takes until it has a CPU again. After some time the call
        // goes on nevertheless, as this thread may have interrupted the other one's work.
        if self.place.lessee.is_ready(socket, clock::now()).is_some()
            || self.place.lessee.await_ring(clock::now() + RING_WAIT)
        {
            return None;
        }
        self.receives.rest();
        self.settle();
        if self.place.lessee.is_ready(socket, clock::now()).is_some() {
            self.receives.look_again();
            return None;
        }
        self.blocked = None;
        let (len, read) = self.receive(0);
        let error = errno();
        self.receives.look_again();
        drop(waits);
        if let Some(read) = read.filter(|_| !self.call.peek) {
            self.place.lessee.was_read_beside(read);
        }
        set_errno(error);
        Some(len)
    }
}

/// What a socket is asked for that a call receives from.
const READABLE: i16 = libc::POLLIN | libc::POLLRDHUP;

/// Whether something else than a datagram is there, beside it or alone.
const fn is_other(revents: i16) -> bool {
    revents & !libc::POLLIN != 0
}

/// As `recvfrom(2)`.
///
/// # Safety
/// As for `recvfrom(2)`.
pub unsafe fn recvfrom(
    kernel: &Kernel,
    descriptor: c_int,
    buffer: *mut c_void,
    len: size_t,
    flags: c_int,
    address: *mut sockaddr,
    address_len: *mut socklen_t,
) -> ssize_t {
    let mut piece = iovec { iov_base: buffer, iov_len: pointers::cut(len) };
    let with_address = !address.is_null() && pointers::can_read_of(address_len, 1);
    // SAFETY: the caller's promise.
    let room = if with_address { unsafe { address_len.read_unaligned() } } else { 0 };
    // The kernel looks at these when it has received.
    let is_refused = match (address.is_null(), with_address) {
        (true, _) => None,
        (false, false) => Some(libc::EFAULT),
        (false, true) => (room > c_int::MAX as u32).then_some(libc::EINVAL),
    };
    let with_address = with_address && is_refused.is_none();
    // SAFETY: all zeros are a valid value of it.
    let mut message: msghdr = unsafe { zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut piece, 1);
    if with_address {
        (message.msg_name, message.msg_namelen) = (address.cast(), room);
    }
    // SAFETY: the message describes what the caller has passed, in one piece.
    let received =
        unsafe { receive(kernel, descriptor, &raw mut message, flags, &mut { More::NONE }, Theirs::Bytes) };
    if let Some(error) = is_refused.filter(|_| received >= 0) {
        return set_errno(error) as ssize_t;
    }
    if with_address && received >= 0 {
        if !pointers::can_change_of(address_len, 1) {
            return set_errno(libc::EFAULT) as ssize_t;
        }
        // SAFETY: the caller's promise.
        unsafe { address_len.write_unaligned(message.msg_namelen) };
    }
    received
}

/// Whether `readv(2)` would receive anything into these pieces.
///
/// # Safety
/// As for `readv(2)`.
#[must_use]
pub unsafe fn has_room(pieces: *const iovec, count: c_int) -> bool {
    let Some(count) = usize::try_from(count).ok().filter(|count| (1..=pointers::PIECES_MAX).contains(count))
    else {
        return false;
    };
    if !pointers::can_read_of(pieces, count) {
        return false;
    }
    // SAFETY: the caller's promise.
    unsafe { pointers::values(pieces, count) }.any(|piece| piece.iov_len > 0)
}

/// As `readv(2)`.
///
/// # Safety
/// As for `readv(2)`.
pub unsafe fn readv(kernel: &Kernel, descriptor: c_int, pieces: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: all zeros are a valid value of it.
    let mut message: msghdr = unsafe { zeroed() };
    (message.msg_iov, message.msg_iovlen) = (pieces.cast_mut(), count.max(0) as usize);
    // SAFETY: the message describes what the caller has passed.
    unsafe { receive(kernel, descriptor, &raw mut message, 0, &mut { More::NONE }, Theirs::Pieces) }
}

/// A message of `recvmmsg(2)`, with its length. Returns whether it was received.
///
/// # Safety
/// As for `recvmmsg(2)`.
unsafe fn receive_into(
    kernel: &Kernel,
    descriptor: c_int,
    message: *mut mmsghdr,
    flags: c_int,
    more: &mut More,
) -> bool {
    // SAFETY: the caller's promise.
    let len = unsafe { receive(kernel, descriptor, &raw mut (*message).msg_hdr, flags, more, Theirs::All) };
    if len < 0 {
        return false;
    }
    // The length lies behind the message, and may be in another page.
    if !pointers::can_change_of(message, 1) {
        set_errno(libc::EFAULT);
        return false;
    }
    // SAFETY: as above.
    unsafe { (&raw mut (*message).msg_len).write_unaligned(len as u32) };
    true
}

/// As `recvmmsg(2)`.
///
/// # Safety
/// As for `recvmmsg(2)`.
pub unsafe fn recvmmsg(
    kernel: &Kernel,
    descriptor: c_int,
    messages: *mut mmsghdr,
    count: u32,
    flags: c_int,
    timeout: *mut libc::timespec,
) -> c_int {
    let is_sound = count > 0 && pointers::can_be_of(messages, count.min(MESSAGES_MAX) as usize);
    // SAFETY: the caller's promise.
    let limit = unsafe { pointers::optional(timeout) }.ok().filter(|_| is_sound);
    let ours = limit.and_then(|limit| Some((limit, table::receives(descriptor, false)?)));
    let Some((limit, (place, _receives))) = ours else {
        // SAFETY: the caller's promise.
        return unsafe { (kernel.recvmmsg)(descriptor, messages, count, flags, timeout) };
    };
    let Ok(limit) = duration(limit.as_ref()) else { return set_errno(libc::EINVAL) };
    let deadline = limit.map(|limit| clock::now() + limit);
    // What is left of the time is written if something was received.
    let done = |number: usize| {
        if let Some(deadline) = deadline.filter(|_| number > 0) {
            let left = timespec(deadline.nanos_since(clock::now()));
            if !pointers::can_change_of(timeout, 1) {
                return set_errno(libc::EFAULT);
            }
            // SAFETY: the caller's promise.
            unsafe { timeout.write_unaligned(left) };
        }
        number as c_int
    };
    let count = count.min(MESSAGES_MAX);
    let each = flags & !libc::MSG_WAITFORONE;
    let count = count as usize;
    let mut number = 0;
    while number < count {
        let now = if number > 0 && flags & libc::MSG_WAITFORONE != 0 { libc::MSG_DONTWAIT } else { 0 };
        // With a time-out it is looked at after each message.
        let others = if deadline.is_some() { 0 } else { count - number - 1 };
        // SAFETY: the caller's promise: there are as many messages, and the address behind the last one may be computed.
        let (message, next) = unsafe { (messages.add(number), messages.add(number + 1)) };
        let mut more = More { messages: next, count: others, received: 0 };
        // SAFETY: as above.
        let is_done =
            unsafe { receive_into(kernel, place.descriptor(descriptor), message, each | now, &mut more) };
        if !is_done {
            if number == 0 {
                return -1;
            }
            // As in the kernel, the next call returns the error.
            if !matches!(errno(), libc::EAGAIN | libc::EINTR) {
                place.set_error(errno());
            }
            return done(number);
        }
        number += 1 + more.received;
        if deadline.is_some_and(|deadline| clock::now() >= deadline) {
            return done(number);
        }
    }
    done(count)
}
