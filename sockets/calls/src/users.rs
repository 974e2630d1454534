//! Which processes use a socket that several of them have since a fork. All of them know it from memory that they
//! share.
//!
//! Most sockets that are there at a fork are used by one process only: a daemon's by the child, and those of a server
//! that starts helpers by the server. While a second process receives from such a socket, or waits for it, the ring
//! takes one datagram at a time. A process that has the socket may begin to use it at any time. So as long as there is
//! one, no call leaves a ring open.
#![allow(unsafe_code, reason = "memory is shared with children, and the kernel is asked for numbers")]

use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU16, AtomicU32, Ordering};

use libc::c_int;

use twinpath_sys::clock;

use crate::presence::{self, Presence};

/// Nothing is known of descriptors from here on.
pub(crate) const DESCRIPTORS: usize = 1 << 16;

/// Maximum number of sockets that were there at forks of one family of processes. Who uses further ones is not known.
const SOCKETS: usize = 1_024;
/// Processes that use one of them, or may.
const USERS: usize = 16;
/// A child that is about to be made has this number and the second of the fork: below the numbers of all processes.
const CHILD_TO_COME: c_int = c_int::MIN;
/// The seconds of forks begin again then.
const SECONDS: u64 = 1 << 30;
const _: () = assert!(CHILD_TO_COME + (SECONDS as c_int) <= -(presence::NUMBERS as c_int));
/// A child that has not begun by then was killed before its handlers have run, as a rule. One that was stopped says
/// later that it is there.
const BEGINS_WITHIN_S: u64 = 10;
/// Number of looks at sockets that others have between two checks whether these are still there.
const LOOK_EACH: u32 = 32;

/// The socket is this process's alone.
const OWN: u16 = 0;
/// Others may have it, and nothing is known of them.
const UNKNOWN: u16 = u16::MAX;

/// Of each descriptor, the number of its socket among those that are shared, which children inherit; or [`OWN`], or [`UNKNOWN`].
static NUMBERS: [AtomicU16; DESCRIPTORS] = [const { AtomicU16::new(OWN) }; DESCRIPTORS];

/// What all processes of the family know. Zeros are its beginning. A child needs one page of it, if it has few sockets: the first.
#[repr(C)]
struct Family {
    given: AtomicU32,
    presence: Presence,
    /// Of each socket the processes that use it; as negative numbers those that have it since a fork and have not used it; 0: none.
    /// A process has its number in the family ([`own`]).
    users: [[AtomicI32; USERS]; SOCKETS],
}

/// Null before the first fork.
static FAMILY: AtomicPtr<Family> = AtomicPtr::new(null_mut());

/// A socket that other processes may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shared(u16);

fn family() -> Option<&'static Family> {
    // SAFETY: it is null, or mapped for good with as many bytes, of which all are atomic and any are valid.
    unsafe { FAMILY.load(Ordering::Acquire).as_ref() }
}

/// Makes the memory, before the first fork.
fn begin() {
    if family().is_some() {
        return;
    }
    let len = size_of::<Family>();
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: it is new memory, of zeros.
    let memory = unsafe { libc::mmap(null_mut(), len, protection, flags, -1, 0) };
    if memory == libc::MAP_FAILED {
        return;
    }
    let new = memory.cast::<Family>();
    // SAFETY: it has as many bytes, of which all are atomic or of locks, and zeros are their beginning.
    let presence = unsafe { &(*new).presence };
    presence.begin();
    // Of threads that do this at the same time each gives the first number.
    presence.number();
    if FAMILY.compare_exchange(null_mut(), new, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        // Another thread that forks was faster.
        // SAFETY: nobody else has it.
        unsafe { libc::munmap(memory, len) };
    }
}

/// The number of this process in its family; 0 before its first fork.
pub(crate) fn own() -> c_int {
    presence::own()
}

fn number(descriptor: c_int) -> Option<&'static AtomicU16> {
    NUMBERS.get(usize::try_from(descriptor).ok()?)
}

/// The socket of a descriptor, if others may have it.
pub(crate) fn shared(descriptor: c_int) -> Option<Shared> {
    let number = number(descriptor)?.load(Ordering::Relaxed);
    (number != OWN).then_some(Shared(number))
}

/// A child is about to have the socket as well. `of_socket` is what another descriptor of it got.
pub(crate) fn share(descriptor: c_int, of_socket: Option<Shared>) -> Option<Shared> {
    let number = number(descriptor)?;
    if number.load(Ordering::Relaxed) == OWN {
        begin();
        let new = || {
            let given = family().map(|family| family.given.fetch_add(1, Ordering::Relaxed) as usize + 1);
            given.filter(|given| *given < SOCKETS).map_or(UNKNOWN, |given| given as u16)
        };
        number.store(of_socket.map_or_else(new, |shared| shared.0), Ordering::Relaxed);
    }
    shared(descriptor)
}

/// The process is about to fork, from this thread: its children find out when it is gone.
pub(crate) fn enter_before_fork() {
    family().filter(|family| !family.presence.has(own())).inspect(|family| family.enter());
}

/// The process is a child that has just been made, with or without the handlers of `fork(3)`: it has a number of its own.
/// If they run, others find out when it is gone.
pub(crate) fn begin_child(by_fork: bool) {
    presence::begin_child(by_fork);
    let Some(family) = family() else { return };
    family.presence.number();
    if by_fork {
        family.enter();
    }
}

impl Family {
    fn enter(&'static self) {
        self.presence.enter(own(), |gone| self.forget(gone));
    }

    /// The process uses no socket any more.
    fn forget(&self, process: c_int) {
        let given = self.given.load(Ordering::Relaxed) as usize;
        self.users.iter().take(given + 1).for_each(|users| forget(users, process));
    }
}

fn forget(users: &[AtomicI32; USERS], process: c_int) {
    for user in users {
        for of in [process, -process] {
            let _ = user.compare_exchange(of, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}

/// The descriptor has another meaning: it is of a new socket, or a duplicate of a descriptor that is shared so.
pub(crate) fn set(descriptor: c_int, shared: Option<Shared>) {
    if let Some(number) = number(descriptor) {
        let value = shared.map_or(OWN, |shared| shared.0);
        if number.load(Ordering::Relaxed) != value {
            number.store(value, Ordering::Relaxed);
        }
    }
}

/// Others may have the socket, and it is not known who.
pub(crate) fn set_unknown(descriptor: c_int) {
    set(descriptor, Some(Shared(UNKNOWN)));
}

impl Shared {
    pub(crate) const fn bits(self) -> u16 {
        self.0
    }

    pub(crate) const fn from_bits(bits: u16) -> Option<Self> {
        if bits == OWN { None } else { Some(Self(bits)) }
    }

    fn users(self) -> Option<&'static [AtomicI32; USERS]> {
        family()?.users.get(usize::from(self.0)).filter(|_| self.0 != UNKNOWN)
    }

    /// The process uses the socket, from now on. Returns whether others do.
    pub(crate) fn is_used_by_others(self, process: c_int) -> bool {
        self.others(process) == Others::Use
    }

    /// The process uses the socket, from now on. Returns what others do.
    pub(crate) fn others(self, process: c_int) -> Others {
        self.others_at(process, now_s)
    }

    fn others_at(self, process: c_int, now_s: impl Fn() -> u64) -> Others {
        static LOOKS: AtomicU32 = AtomicU32::new(0);
        let Some(users) = self.users() else { return Others::Use };
        let (mut is_in, mut others) = look(users, process);
        // A process says when it ends, if it can. Otherwise it is found to be gone.
        let looks = others != Others::None && LOOKS.fetch_add(1, Ordering::Relaxed).is_multiple_of(LOOK_EACH);
        if looks || !is_in {
            family().inspect(|family| family.presence.look(|gone| family.forget(gone)));
            forget_late(users, now_s());
            // Before it is looked who else there is: of two that begin at a time one sees the other.
            is_in = is_in || replace(users, -process, process) || replace(users, 0, process);
            others = look(users, process).1;
        }
        if is_in { others } else { Others::Use }
    }

    /// The process is about to fork: a child will have the socket as well, and this one may use it.
    pub(crate) fn forks(self, process: c_int) {
        self.forks_at(process, now_s());
    }

    fn forks_at(self, process: c_int, now_s: u64) {
        let Some(users) = self.users() else { return };
        if users.iter().all(|user| user.load(Ordering::Relaxed).saturating_abs() != process) {
            replace(users, 0, -process);
        }
        replace(users, 0, to_come(now_s));
    }

    /// The process is a child that has just been made. Returns whether it is late: nobody has reckoned with it any more, so
    /// that another process may have left its ring open.
    pub(crate) fn begins(self, process: c_int) -> bool {
        self.users().is_some_and(|users| !replace_to_come(users, -process) && replace(users, 0, -process))
    }

    /// The process uses it no longer.
    pub(crate) fn end(self, process: c_int) {
        self.users().inspect(|users| forget(users, process));
    }

    /// A fork has failed after [`Self::forks`]: there is no child.
    pub(crate) fn has_not_forked(self) {
        self.users().inspect(|users| {
            replace_to_come(users, 0);
        });
    }
}

/// What other processes do with a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Others {
    /// None has it, as far as is known.
    None,
    /// They have not used it, but may.
    May,
    /// They use it.
    Use,
}

fn now_s() -> u64 {
    clock::now().as_nanos() / 1_000_000_000
}

/// The number of a child that is about to be made.
const fn to_come(now_s: u64) -> c_int {
    CHILD_TO_COME + (now_s % SECONDS) as c_int
}

/// The second of the fork, modulo [`SECONDS`], if that is a child that was about to be made.
fn second_of(user: c_int) -> Option<u64> {
    let second = user.checked_sub(CHILD_TO_COME)? as u64;
    (second < SECONDS).then_some(second)
}

/// One of the children to come has another number from now on. Returns whether there was one.
fn replace_to_come(users: &[AtomicI32; USERS], number: c_int) -> bool {
    users.iter().any(|user| {
        let before = user.load(Ordering::Relaxed);
        second_of(before).is_some()
            && user.compare_exchange(before, number, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    })
}

/// Children that have not begun for so long are none. `now_s` may lie before a fork of another thread or process: it is
/// read first, and the clock of a time namespace has an offset.
fn forget_late(users: &[AtomicI32; USERS], now_s: u64) {
    for user in users {
        let before = user.load(Ordering::Relaxed);
        let since_s = |second| (now_s % SECONDS + SECONDS - second) % SECONDS;
        let is_late = |second| (BEGINS_WITHIN_S + 1..SECONDS / 2).contains(&since_s(second));
        if second_of(before).is_some_and(is_late) {
            let _ = user.compare_exchange(before, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}

/// Replaces one of the numbers. Returns whether it was there.
fn replace(users: &[AtomicI32; USERS], before: c_int, after: c_int) -> bool {
    users.iter().any(|user| user.compare_exchange(before, after, Ordering::SeqCst, Ordering::Relaxed).is_ok())
}

/// Whether the process is among the users, and what others do.
fn look(users: &[AtomicI32; USERS], process: c_int) -> (bool, Others) {
    users.iter().fold((false, Others::None), |(is_in, others), user| {
        let user = user.load(Ordering::SeqCst);
        let does = match user {
            0 => Others::None,
            user if user == process || user == -process => Others::None,
            1.. => Others::Use,
            _ => Others::May,
        };
        (is_in || user == process, others.max(does))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that no process of this test has.
    const fn processes() -> [c_int; 2] {
        [1_000_001, 1_000_002]
    }

    #[test]
    fn of_several_processes_one_is_alone_until_another_one_uses_the_socket() {
        let [first, second] = processes();
        let socket = share(101, None).expect("a socket that is shared");
        assert_eq!((share(101, None), share(102, Some(socket))), (Some(socket), Some(socket)));
        assert!(!socket.is_used_by_others(first) && !socket.is_used_by_others(first));
        assert!(socket.is_used_by_others(second) && socket.is_used_by_others(first));
        socket.end(first);
        assert!(!socket.is_used_by_others(second));
        let other = share(103, None).expect("another socket");
        assert_ne!(other, socket);
        assert!(!other.is_used_by_others(first));
        set(101, None);
        assert_eq!((shared(101), shared(102)), (None, Some(socket)));
    }

    #[test]
    fn a_child_may_use_the_socket_until_it_ends_or_does() {
        let [first, second] = processes();
        let socket = share(121, None).expect("a socket that is shared");
        assert_eq!(socket.others(first), Others::None);
        socket.forks(first);
        assert_eq!(socket.others(first), Others::May, "also before the child has run");
        assert!(!socket.begins(second));
        assert_eq!(socket.others(first), Others::May);
        assert_eq!((socket.others(second), socket.others(first)), (Others::Use, Others::Use));
        socket.end(second);
        assert_eq!(socket.others(first), Others::None);
        // A parent that has not used it may as well.
        let other = share(122, None).expect("another one");
        other.forks(second);
        assert!(!other.begins(first));
        assert_eq!(other.others(first), Others::May);
        other.end(second);
        assert_eq!(other.others(first), Others::None);
    }

    #[test]
    fn a_process_that_is_gone_uses_no_socket_and_a_failed_fork_has_left_nothing() {
        let [first, _] = processes();
        let sockets = [131, 132].map(|descriptor| share(descriptor, None).expect("a socket that is shared"));
        sockets.iter().for_each(|socket| socket.forks(first));
        // SAFETY: the child calls only functions that a child of a program with threads may call.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: they take nothing.
            unsafe {
                begin_child(true);
                assert!(sockets.iter().all(|socket| !socket.begins(own())));
                loop {
                    libc::pause();
                }
            }
        }
        let is_there = |socket: &Shared| {
            let mut users =
                socket.users().expect("its users").iter().map(|user| user.load(Ordering::Relaxed));
            users.any(|user| user < 0 && second_of(user).is_none() && user != -first)
        };
        let begun = std::time::Instant::now();
        while !sockets.iter().all(is_there) {
            assert!(begun.elapsed().as_secs() < 20, "the child says nothing");
            std::thread::yield_now();
        }
        assert_eq!(sockets.map(|socket| socket.others(first)), [Others::May; 2]);
        // SAFETY: they take numbers.
        unsafe {
            assert_eq!(libc::kill(child, libc::SIGKILL), 0);
            assert_eq!(libc::waitpid(child, null_mut(), 0), child);
        }
        let [one, other] = sockets;
        let looks = (0..2 * LOOK_EACH).filter(|_| one.others(first) != Others::None);
        assert!(looks.count() <= LOOK_EACH as usize, "within so many looks");
        assert_eq!(other.others(first), Others::None);
        one.forks(first);
        assert_eq!(one.others(first), Others::May);
        one.has_not_forked();
        assert_eq!(one.others(first), Others::None);
    }

    #[test]
    fn a_child_that_is_killed_before_it_begins_is_forgotten_and_one_that_was_stopped_is_seen_later() {
        let [first, second] = processes();
        let socket = share(141, None).expect("a socket that is shared");
        // The seconds begin again between.
        let forked = 3 * SECONDS - 4;
        socket.forks_at(first, forked);
        let others_at = |now_s| {
            let looks = (0..=LOOK_EACH).map(|_| socket.others_at(first, || now_s));
            looks.fold(Others::None, |_, others| others)
        };
        assert_eq!(others_at(forked), Others::May);
        assert_eq!(others_at(forked - 1), Others::May, "another thread has forked after the clock was read");
        assert_eq!(others_at(forked + BEGINS_WITHIN_S), Others::May);
        assert_eq!(others_at(forked + BEGINS_WITHIN_S + 1), Others::None);
        assert!(socket.begins(second), "it is late");
        assert_eq!(others_at(forked), Others::May);
    }

    /// Such as the first ones of two namespaces of processes.
    #[test]
    fn processes_of_one_family_have_numbers_of_their_own() {
        share(151, None).expect("a socket that is shared");
        let parent = own();
        // SAFETY: the child calls only functions that a child of a program with threads may call.
        let child = unsafe { libc::fork() };
        if child == 0 {
            begin_child(true);
            // SAFETY: it takes a number.
            unsafe { libc::_exit(i32::from(own() <= parent)) };
        }
        let mut status = -1;
        // SAFETY: there is room for the status.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
    }

    #[test]
    fn of_too_many_processes_nothing_is_known() {
        let [first, second] = processes();
        let full = share(112, None).expect("a socket that is shared");
        full.users().expect("its users").iter().for_each(|user| user.store(second, Ordering::Relaxed));
        assert!(full.is_used_by_others(first));
        assert!(Shared(UNKNOWN).is_used_by_others(first));
    }
}
