//! The lease of a socket whose descriptor belongs to the caller. The caller makes the kernel's calls on it.

use std::fmt;
use std::net::UdpSocket;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, RwLock, TryLockError};

use rustix::event::{Timespec, poll};
use rustix::fs::CWD;
use rustix::thread::futex;
use twinpath_attach::Sending;
use twinpath_idle::Woken;
use twinpath_rings::lease::{LEASE, Room};
use twinpath_sys::clock;
use twinpath_time::Instant;
use twinpath_worker::idle::{Decision, Mode};

use crate::WhyKernel;
use crate::lending::{Access, Connection, Lent, Withdrawal};
use crate::sockets::address::View;
use crate::sockets::beside::Beside;
use crate::sockets::counts::SocketCounts;
use crate::sockets::early;
use crate::sockets::holder::{Call, Holder, KernelRead, Readiness, Received, SocketState, Step, state_of};
use crate::sockets::interfaces;
use crate::sockets::leading::{Lead, Leading, Watch};

/// By whose rights a socket has its lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LentBy {
    /// This process's own.
    Own,
    /// Those of the owner that listens there.
    Owner(PathBuf),
}

impl LentBy {
    pub(crate) fn of(lent: &Lent) -> Self {
        lent.owner.as_ref().map_or(Self::Own, |owner| Self::Owner(owner.path().to_owned()))
    }
}

impl fmt::Display for LentBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own => f.write_str("by its own rights"),
            Self::Owner(path) => write!(f, "by the owner at {}", path.display()),
        }
    }
}

/// A request for a lease, which waits for nothing.
#[derive(Debug)]
pub struct Asking(interfaces::Asking);

/// The interface that a lease was given on.
#[derive(Debug)]
pub struct LentOn(interfaces::Shared);

impl Asking {
    /// Begins to ask for the lease of an interface of the calling thread's network namespace. `access`: by whose rights. Allocates.
    ///
    /// # Errors
    /// Why there is none; [`WhyKernel::Busy`] if another thread is about to do the same.
    pub fn begin(interface: &str, access: &Access) -> Result<Self, WhyKernel> {
        interfaces::Asking::begin(interface, access).map(Self)
    }

    /// Goes on with it: what [`Lessee::take_up`] needs, if the lease was given meanwhile. Allocates when it was.
    ///
    /// # Errors
    /// Why there is none.
    pub fn go_on(&mut self, socket: &UdpSocket) -> Result<Option<(LentOn, Lent)>, WhyKernel> {
        let lent = self.0.go_on(socket)?;
        Ok(lent.map(|lent| (LentOn(Arc::clone(&self.0.lender)), lent)))
    }

    /// The descriptor of the connection to the owner; `None` by own rights.
    #[must_use]
    pub fn connection(&self) -> Option<i32> {
        self.0.owner().map(|owner| owner.as_raw_fd())
    }

    /// The owner that was asked; `None` by own rights, or while another thread asks it.
    #[must_use]
    pub fn owner(&self) -> Option<Arc<Connection>> {
        self.0.owner()
    }

    /// Whether the owner may hold the socket, so that its port is not free when the program closes it; `None` while another thread asks
    /// the owner. It takes up what was answered, and so allocates.
    #[must_use]
    pub fn may_hold(&self) -> Option<bool> {
        self.0.may_hold()
    }

    /// The socket is closed, or stays with the kernel. Returns whether that could be said: otherwise it is to be said again.
    #[must_use]
    pub fn abandon(&self) -> bool {
        self.0.abandon()
    }
}

/// A place for the lease of a socket. Nothing here waits for another thread, and nothing allocates but [`Lessee::lend`] and
/// [`Lessee::set_free`]: so the other calls may be made from a signal handler.
///
/// The socket that is passed to a call is the one that was given the lease, or a duplicate of it.
#[derive(Debug, Default)]
pub struct Lessee {
    leased: Mutex<Option<Leased>>,
    /// What is needed also while another thread has `leased`. It is written only while the place is no socket's, so reading never fails.
    pub(crate) outside: RwLock<Option<Outside>>,
    /// The lease is over: it is only to be set free.
    pub(crate) has_ended: AtomicBool,
    /// It was taken from the socket, so that it can be given to another one.
    is_withdrawn: AtomicBool,
    /// Others may wait for the socket without this library, as long as this place has it.
    is_shared: AtomicBool,
    /// Another process uses the socket.
    is_used_by_others: AtomicBool,
    /// Another process has the socket, and may use it.
    is_had_by_others: AtomicBool,
    /// Threads that wait in the kernel for the socket.
    others: AtomicU32,
    /// How often a thread has left the ring while others waited for that, and how many of these there are.
    was_left: AtomicU32,
    await_ring: AtomicU32,
    /// Several threads have waited for the socket at the same time.
    is_contended: AtomicBool,
    leading: Leading,
    /// The descriptor by which threads are counted that wait since before the lease; -1: nobody does.
    early: AtomicI32,
}

/// For a process that was made without a handler that would have closed its parent's rings: the parent may have looked at one
/// just before. A ring that nobody looks at takes frames for [`LEASE`] at most. So what comes after this call is in the
/// kernel's socket, unless the parent goes on to receive. Allocates nothing.
pub fn await_lapse() {
    let until = clock::now() + LEASE;
    loop {
        let left_ns = until.nanos_since(clock::now());
        if left_ns == 0 {
            return;
        }
        // A handler that interrupts it does not shorten it.
        let _ = poll(&mut [], Some(&Timespec { tv_sec: 0, tv_nsec: left_ns as i64 }));
    }
}

/// A thread waits in the kernel. It is dropped also if the thread is cancelled meanwhile.
#[derive(Debug)]
pub struct Waits<'a>(&'a Lessee);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.no_longer_waits();
    }
}

/// Of a lease, for threads that do not have it.
#[derive(Debug)]
pub(crate) struct Outside {
    /// Takes the lease from the socket.
    pub(crate) withdrawal: Withdrawal,
    beside: Arc<Beside>,
}

#[derive(Debug)]
pub(crate) struct Leased {
    pub(crate) lender: interfaces::Shared,
    pub(crate) holder: Holder,
    /// Sending is the caller's, by the kernel: this is only given back.
    sending: Option<Sending>,
}

impl Lessee {
    /// An empty place.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            leased: Mutex::new(None),
            outside: RwLock::new(None),
            has_ended: AtomicBool::new(false),
            is_withdrawn: AtomicBool::new(false),
            is_shared: AtomicBool::new(false),
            is_used_by_others: AtomicBool::new(false),
            is_had_by_others: AtomicBool::new(false),
            others: AtomicU32::new(0),
            was_left: AtomicU32::new(0),
            await_ring: AtomicU32::new(0),
            is_contended: AtomicBool::new(false),
            leading: Leading::new(),
            early: AtomicI32::new(-1),
        }
    }

    /// Gives the socket the lease of an interface of the calling thread's network namespace. Allocates, and takes some tens of
    /// milliseconds. `access`: by whose rights. `is_shared`: as after [`Lessee::set_used_by_others`]. Returns whose rights it was by.
    ///
    /// # Errors
    /// Why there is none; [`WhyKernel::Busy`] if another thread is about to do the same.
    pub fn lend(
        &self,
        socket: &UdpSocket,
        interface: &str,
        access: &Access,
        is_shared: bool,
    ) -> Result<LentBy, WhyKernel> {
        let Some(mut leased) = self.try_lock().filter(|leased| leased.is_none()) else {
            return Err(WhyKernel::Busy);
        };
        let (on, lent, sending) = interfaces::lend(socket, interface, access, false)?;
        Ok(self.occupy(&mut leased, socket, (on, lent, sending), is_shared, -1))
    }

    /// As [`Lessee::lend`], with what an owner has given meanwhile. `descriptor`: threads that wait
    /// for it since before are counted by [`early`].
    ///
    /// # Errors
    /// [`WhyKernel::Busy`]: the place is in use, or was just set free.
    pub fn take_up(
        &self,
        socket: &UdpSocket,
        (on, lent): (LentOn, Lent),
        is_shared: bool,
        descriptor: i32,
    ) -> Result<LentBy, WhyKernel> {
        let Some(mut leased) = self.try_lock().filter(|leased| leased.is_none()) else {
            return Err(WhyKernel::Busy);
        };
        Ok(self.occupy(&mut leased, socket, (on.0, lent, None), is_shared, descriptor))
    }

    fn occupy(
        &self,
        leased: &mut Option<Leased>,
        socket: &UdpSocket,
        (on, lent, sending): (interfaces::Shared, Lent, Option<Sending>),
        is_shared: bool,
        descriptor: i32,
    ) -> LentBy {
        let is_v6 = socket.local_addr().is_ok_and(|local| local.is_ipv6());
        let view = View { is_v6, ifindex: lent.on.ifindex };
        self.is_shared.store(false, Ordering::Relaxed);
        self.others.store(0, Ordering::Relaxed);
        self.set_used_by_others(is_shared);
        self.set_had_by_others(is_shared);
        self.is_contended.store(false, Ordering::Relaxed);
        self.leading.forget();
        let by = LentBy::of(&lent);
        let withdrawal = lent.withdrawal.clone();
        let holder = Holder::new(lent, view);
        self.early.store(descriptor, Ordering::Relaxed);
        self.set_outside(Some(Outside { withdrawal, beside: Arc::clone(holder.beside()) }));
        *leased = Some(Leased { lender: on, holder, sending });
        by
    }

    /// Takes the lease from a socket that is about to be closed. What is in the ring is lost. The place is used again after
    /// [`Lessee::set_free`]. If another thread is receiving, it goes on by the kernel as soon as it sees this.
    pub fn end(&self, socket: &UdpSocket) {
        self.give_back();
        let Ok(outside) = self.outside.try_read() else { return };
        let Some(outside) = outside.as_ref() else { return };
        outside.beside.set_ending();
        // An owner gives the ring to the next socket as soon as it is told: not while another thread reads it.
        let unread = self.try_lock();
        if unread.is_some() || matches!(outside.withdrawal, Withdrawal::Own(_)) {
            self.withdraw(outside, socket.as_fd());
        }
        self.has_ended.store(true, Ordering::Release);
    }

    /// Without it the kernel's program only finds a ring that is never opened, and that cannot be given to another
    /// socket.
    fn withdraw(&self, outside: &Outside, socket: BorrowedFd<'_>) {
        if !self.is_withdrawn.load(Ordering::Acquire) && outside.withdrawal.withdraw(socket) {
            self.is_withdrawn.store(true, Ordering::Release);
        }
    }

    /// Frees what an ended lease has left. If another thread has the lease, or the interface, it has to be tried again.
    /// Allocates.
    pub fn set_free(&self) {
        if !self.is_over() {
            return;
        }
        let Some(mut leased) = self.try_lock() else { return };
        if let Some(outside) = self.outside.try_read().ok().as_ref().and_then(|outside| outside.as_ref())
            && matches!(outside.withdrawal, Withdrawal::Owner { .. })
        {
            // It is told the ring, and not the socket.
            self.withdraw(outside, CWD);
        }
        if !self.is_withdrawn.load(Ordering::Acquire) {
            return;
        }
        let Some(lender) = leased.as_ref().map(|leased| Arc::clone(&leased.lender)) else { return };
        let Some(mut lender) = interfaces::try_locked(&lender) else { return };
        if let Some(Leased { mut holder, sending, .. }) = leased.take() {
            // The thread that had it when it ended may have opened the ring.
            holder.give_back();
            let (number, lease) = holder.into_lease();
            lender.set_free(number, lease, sending);
            self.set_outside(None);
            self.is_withdrawn.store(false, Ordering::Release);
            self.has_ended.store(false, Ordering::Release);
        }
    }

    fn set_outside(&self, new: Option<Outside>) {
        if let Ok(mut outside) = self.outside.try_write() {
            *outside = new;
        }
    }

    /// For a forked process: the lease is its parent's. What is there is forgotten, and never freed. Returns whether
    /// the place can be used again: not if another thread of the parent was using it. `may_free`: memory can be freed.
    /// That is not so if it is unknown which thread had the allocator's lock in the parent.
    pub fn forget(&self, may_free: bool) -> bool {
        self.others.store(0, Ordering::Relaxed);
        self.await_ring.store(0, Ordering::Relaxed);
        self.leading.forget();
        self.has_ended.store(false, Ordering::Relaxed);
        if let Some(Withdrawal::Owner { connection, .. }) = self.withdrawal() {
            connection.close_in_child();
        }
        self.is_withdrawn.store(false, Ordering::Relaxed);
        // The kernel's map is the parent's, which is alive or not: this process has no use for its descriptor.
        let outside = self.outside.try_write().ok().and_then(|mut outside| outside.take());
        if !may_free {
            std::mem::forget(outside);
        }
        self.try_lock().map(|mut leased| std::mem::forget(leased.take())).is_some()
    }

    /// Whether the place can be given to a socket, after [`Lessee::set_free`].
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.try_lock().is_some_and(|leased| leased.is_none())
    }

    /// Ends the lease of a socket that stays open. Nothing comes into its ring from now on; what is in it is received
    /// first, in order. Then the lease is over, and [`Lessee::end`] has to be called.
    pub fn finish(&self) {
        let Ok(outside) = self.outside.try_read() else { return };
        let Some(outside) = outside.as_ref() else { return };
        outside.beside.set_ending();
        // If another thread has the ring, it closes it.
        self.give_back();
    }

    /// Whether the lease has ended and everything that was in its ring has been received: the kernel alone has the socket.
    #[inline]
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// Waits until no other thread has the ring, if something in it came before what the kernel has by now; at most
    /// until the given time. Returns whether the ring is free.
    pub fn await_ring(&self, until: Instant) -> bool {
        self.await_ring.fetch_add(1, Ordering::SeqCst);
        let mut is_free = false;
        while !is_free && self.has_unread() && !self.is_over() {
            let left = self.was_left.load(Ordering::SeqCst);
            is_free = self.with_holder(|_| ()).is_some();
            let rest_ns = until.nanos_since(clock::now());
            if is_free || rest_ns == 0 {
                break;
            }
            let rest = Timespec {
                tv_sec: (rest_ns / 1_000_000_000) as i64,
                tv_nsec: (rest_ns % 1_000_000_000) as i64,
            };
            // Whatever ends the sleep, it is looked again.
            let _ = futex::wait(&self.was_left, futex::Flags::PRIVATE, left, Some(&rest));
        }
        let one_less = |waiting: u32| waiting.checked_sub(1);
        let _ = self.await_ring.fetch_update(Ordering::SeqCst, Ordering::Relaxed, one_less);
        is_free
    }

    /// A thread that had the ring has left it.
    #[inline]
    fn left_ring(&self) {
        if self.await_ring.load(Ordering::SeqCst) > 0 {
            self.tell_those_that_await_ring();
        }
    }

    #[cold]
    fn tell_those_that_await_ring(&self) {
        self.was_left.fetch_add(1, Ordering::SeqCst);
        let _ = futex::wake(&self.was_left, futex::Flags::PRIVATE, u32::MAX >> 1);
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, Option<Leased>>> {
        match self.leased.try_lock() {
            Ok(leased) => Some(leased),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// `None` if there is no lease, or if another thread has it.
    pub(crate) fn with_holder<R>(&self, work: impl FnOnce(&mut Holder) -> R) -> Option<R> {
        let mut locked = self.try_lock()?;
        let leased = locked.as_mut().filter(|_| !self.is_over());
        let done = leased.map(|leased| {
            let done = work(&mut leased.holder);
            if leased.holder.heed_end() {
                self.has_ended.store(true, Ordering::Release);
            }
            done
        });
        drop(locked);
        self.left_ring();
        done
    }

    /// Whether the lease may be held when no call looks: no other thread waits for the socket, and no other process has it.
    #[must_use]
    pub fn may_stay(&self) -> bool {
        self.sleeping() == 0
            && !self.is_had_by_others.load(Ordering::Relaxed)
            && !self.is_shared.load(Ordering::Relaxed)
            && !self.is_used_by_others.load(Ordering::Relaxed)
    }

    /// Says whether another process uses the socket: then no call leaves the ring open.
    pub fn set_used_by_others(&self, is: bool) {
        if self.is_used_by_others.load(Ordering::Relaxed) != is {
            self.is_used_by_others.store(is, Ordering::Relaxed);
        }
    }

    /// Says whether another process has the socket, and so may use it at any time. Then no call leaves the ring open,
    /// so that such a process finds everything in the kernel's socket. A call that waits may have the ring, as if it
    /// had received first what comes meanwhile.
    pub fn set_had_by_others(&self, is: bool) {
        if self.is_had_by_others.load(Ordering::Relaxed) != is {
            self.is_had_by_others.store(is, Ordering::Relaxed);
        }
    }

    /// The socket may be waited for without this library. From now on no datagram is left in the ring, as long as this
    /// place has the lease, and what is there goes to the kernel's socket ([`Lessee::hand_over`]).
    pub fn share(&self) {
        self.is_shared.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.hand_over();
    }

    /// As [`Lessee::share`], for others of this process, which receive by it. If the kernel's socket has later datagrams,
    /// these make it ready, and what is in the ring is received first, in order.
    pub fn share_in_order(&self, socket: &UdpSocket) {
        self.is_shared.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.hand_over_if(|holder| {
            // What was passed to the kernel may have been dropped there.
            let is_handed = holder.is_before_all() || state_of(socket) != SocketState::Datagram;
            if !is_handed {
                holder.give_back();
            }
            is_handed
        });
    }

    /// Whether others may have the socket, by a fork or by [`Lessee::share`].
    #[must_use]
    pub fn is_others_too(&self) -> bool {
        self.is_shared.load(Ordering::Relaxed) || self.is_used_by_others.load(Ordering::Relaxed)
    }

    /// A receiving call begins. Returns whether the last one is some time ago, so that the descriptor may have got another meaning.
    #[must_use]
    pub fn begin(&self) -> bool {
        self.with_holder(Holder::begin).unwrap_or(false)
    }

    /// Whether something is in the ring, as far as can be told without the lease. What the kernel has by now may have come later.
    #[must_use]
    pub fn has_unread(&self) -> bool {
        let outside = self.outside.try_read();
        outside.is_ok_and(|outside| outside.as_ref().is_some_and(|outside| outside.beside.has_unread()))
    }

    /// What a receiving call does next; `None`: to receive from the kernel alone. Spins meanwhile, if the policy says so, and
    /// asks `is_interrupted` every 50 us.
    pub fn step<R>(
        &self,
        socket: &UdpSocket,
        call: Call,
        see: &mut dyn FnMut(Received<'_>) -> R,
        is_interrupted: &mut dyn FnMut() -> bool,
    ) -> Option<Step<R>> {
        self.with_holder(|holder| holder.step(socket, call, see, is_interrupted))
    }

    /// After [`Step::Read`]: the kernel's socket had a datagram or an error (`read` is `None` then), or nothing.
    pub fn was_read(&self, socket: &UdpSocket, read: Option<KernelRead>, call: Call) {
        let Some(read) = read else { return };
        let told = self.with_holder(|holder| {
            let now = clock::now();
            holder.came(read, call, now);
            holder.take_lease_early(socket, call, now);
        });
        self.or_beside(told, read, call);
    }

    /// A datagram that was read has to be counted, even if another thread has the lease by now. Otherwise it would
    /// count as lost, and no lease could begin until that is cleared up.
    fn or_beside(&self, told: Option<()>, read: KernelRead, call: Call) {
        if told.is_none() && !call.peek {
            self.was_read_beside(read);
        }
    }

    /// After [`Step::Read`]: the kernel's socket had nothing.
    pub fn was_empty(&self) {
        self.with_holder(Holder::was_empty);
    }

    /// After [`Step::Sleep`]: what came, if anything.
    pub fn slept(&self, read: Option<KernelRead>, call: Call) {
        let told = self.with_holder(|holder| {
            holder.slept(read.is_some());
            if let Some(read) = read {
                holder.came(read, call, clock::now());
            }
        });
        read.inspect(|read| self.or_beside(told, *read, call));
    }

    /// After [`Step::Sleep`], for a caller that waited for the socket without reading it.
    pub fn woken(&self, came: bool) {
        self.with_holder(|holder| holder.woken(came));
    }

    /// A thread is about to wait for the socket in the kernel: from now on no datagram is left in the ring by others. It waits until
    /// what is returned is dropped.
    pub fn waits(&self) -> Waits<'_> {
        self.waits_from_now_on();
        Waits(self)
    }

    /// As [`Lessee::waits`], until [`Lessee::no_longer_waits`] is called: for a call that waits for many sockets.
    pub fn waits_from_now_on(&self) {
        if self.others.fetch_add(1, Ordering::Relaxed) > 0 {
            self.is_contended.store(true, Ordering::Relaxed);
        }
        fence(Ordering::SeqCst);
        // The thread that had the lease may have returned before it could see this one.
        self.give_back();
    }

    /// After [`Lessee::waits_from_now_on`]. In a child that was forked by a signal handler, nobody has waited.
    pub fn no_longer_waits(&self) {
        let one_less = |others: u32| others.checked_sub(1);
        let _ = self.others.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
    }

    fn sleeping(&self) -> u32 {
        self.others.load(Ordering::Relaxed) + self.waiting_early()
    }

    fn waiting_early(&self) -> u32 {
        let descriptor = self.early.load(Ordering::Relaxed);
        if descriptor < 0 {
            return 0;
        }
        let waiting = early::waiting(descriptor);
        // None begins any more.
        if waiting == 0 {
            self.early.store(-1, Ordering::Relaxed);
        }
        waiting
    }

    /// The length of the datagram that the next call receives, if it is in the ring; `None` as for [`Lessee::is_ready`].
    #[must_use]
    pub fn next_len(&self) -> Option<Option<usize>> {
        self.with_holder(Holder::next_len)
    }

    /// Whether a frame is in the ring; `None` as for [`Lessee::is_ready`].
    #[must_use]
    pub fn has_frames(&self) -> Option<bool> {
        self.with_holder(|holder| holder.leave())
    }

    /// Whether a thread wants to spin, so that others are to look now and then.
    #[must_use]
    pub fn is_wanted(&self, now: Instant) -> bool {
        self.leading.is_wanted(now)
    }

    /// A datagram was received from the kernel while another thread had the lease, which is told of it.
    pub fn was_read_beside(&self, read: KernelRead) {
        let Ok(outside) = self.outside.try_read() else { return };
        outside.as_ref().inspect(|outside| outside.beside.was_read(read.whole_len, read.source));
    }

    /// The kernel has told a thread that waits for this socket, among others, that something is there.
    pub fn was_told(&self) {
        if let Ok(outside) = self.outside.try_read() {
            outside.as_ref().inspect(|outside| outside.beside.set_told());
        }
    }

    /// Of several threads that wait for the socket, one leads: it spins, and the others sleep in the kernel. Returns
    /// whether this one leads from now on, or still does; `lead` is the result of its last call. To be undone by
    /// [`Lessee::follow`].
    #[must_use]
    pub fn lead(&self, lead: Option<Lead>, now: Instant) -> Option<Lead> {
        let leads = self.leading.lead(lead, now);
        if leads.is_none() {
            self.is_contended.store(true, Ordering::Relaxed);
        }
        leads
    }

    /// The leader is about to sleep, as the policy says. Returns whether it still leads meanwhile, which holds for a
    /// short time at most.
    #[must_use]
    pub fn leader_sleeps(&self, lead: Lead, now: Instant, until: Instant) -> Option<Lead> {
        self.leading.sleeps(lead, now, until)
    }

    /// The thread no longer leads.
    pub fn follow(&self, lead: Lead) {
        self.leading.follow(lead);
    }

    /// A thread was woken. Returns whether it is the one that tells the policy, by [`Lessee::woke`] and
    /// [`Lessee::found`]. The same datagram wakes all threads that wait.
    #[must_use]
    pub fn tells(&self) -> bool {
        !self.is_contended() || self.leading.ends_sleep()
    }

    /// The leader wants to spin. Returns whether it can have the lease then: no other thread sleeps in the kernel, or
    /// one keeps watch; and none waits by other means. Otherwise frames could be left in the ring by a leader that does
    /// not come back.
    #[must_use]
    pub fn may_hold(&self, now: Instant) -> bool {
        if self.is_contended() {
            self.leading.want(now);
        }
        // Nobody keeps watch for those who wait by other means.
        !self.is_shared.load(Ordering::Relaxed)
            && !self.is_used_by_others.load(Ordering::Relaxed)
            && (self.sleeping() == 0 || self.leading.is_watched(now))
    }

    /// A thread that does not lead is about to sleep in the kernel. Returns whether it is to keep watch, which means to
    /// look at the ring now and then. To be undone by [`Lessee::end_watch`], and followed by a last look.
    #[must_use]
    pub fn watch(&self, now: Instant) -> Option<Watch> {
        self.leading.watch(now)
    }

    /// After [`Lessee::watch`]. Nothing comes into the ring from now on, until another thread keeps watch.
    pub fn end_watch(&self, watch: Watch) {
        self.leading.end_watch(watch);
        self.give_back();
    }

    /// Whether several threads have waited for the socket at the same time. Then a datagram wakes all of them in the
    /// kernel, and a wake-up does not mean that something came for this thread.
    #[must_use]
    pub fn is_contended(&self) -> bool {
        self.is_contended.load(Ordering::Relaxed)
    }

    /// Whether a datagram can be received; `None` if there is no lease, or if another thread has it.
    #[must_use]
    pub fn is_ready(&self, socket: &UdpSocket, now: Instant) -> Option<bool> {
        self.with_holder(|holder| holder.is_ready(socket, now))
    }

    /// As [`Lessee::is_ready`]: where.
    #[must_use]
    pub fn readiness(&self, socket: &UdpSocket, now: Instant) -> Option<Readiness> {
        self.with_holder(|holder| holder.readiness(socket, now))
    }

    /// How many frames the ring has taken so far; `None` as for [`Lessee::is_ready`].
    #[must_use]
    pub fn taken(&self) -> Option<u64> {
        self.with_holder(|holder| holder.taken())
    }

    /// Holds the lease for somebody who looks at several sockets, as far as [`Lessee::may_hold`] allows it.
    pub fn hold(&self, now: Instant) {
        if !self.may_hold(now) {
            return self.give_back();
        }
        let room = if self.may_stay() { Room::All } else { Room::One };
        self.with_holder(|holder| holder.hold(now, room));
    }

    /// Gives the lease back. What is in the ring is still to be received.
    pub fn give_back(&self) {
        self.with_holder(Holder::give_back);
    }

    /// Sets when calls spin and when they sleep.
    pub fn set_mode(&self, mode: Mode) {
        if let Ok(outside) = self.outside.try_read() {
            outside.as_ref().inspect(|outside| outside.beside.set_mode(mode));
        }
    }

    /// What was received, and by which path, also if the lease has ended; `None` if there never was one.
    #[must_use]
    pub fn counts(&self) -> Option<SocketCounts> {
        self.outside.try_read().ok()?.as_ref().map(|outside| outside.beside.counts())
    }

    /// The call that waited for this socket among others slept.
    pub fn woke(&self, now: Instant, woken: Woken) {
        self.with_holder(|holder| holder.woke(now, woken));
    }

    /// The call that waited for this socket among others found something.
    pub fn found(&self, now: Instant, looked: Instant) {
        let is_contended = self.is_contended();
        self.with_holder(|holder| {
            holder.found_among(now, looked);
            // Which of the threads receives it is not known yet.
            holder.set_told(is_contended);
        });
    }

    /// When to spin and when to sleep, for a call that waits for this socket among others.
    #[must_use]
    pub fn decide(&self, now: Instant, deadline: Instant) -> Option<Decision> {
        self.with_holder(|holder| holder.decide(now, deadline))
    }
}
