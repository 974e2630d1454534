//! Which processes of a family are still there. Each has a number of its own, and a lock in memory that all of them
//! share: a robust mutex. When the thread that has it ends, by whatever signal, or calls `exec(3)`, the kernel notes
//! that in the lock (`get_robust_list(2)`). So the others find it out without a system call, which a filter of the
//! program may not allow. The kernel's numbers of processes would not do: two processes may have one number in their
//! namespaces, and a later process that of a former one.
#![allow(unsafe_code, reason = "locks of the C library lie in memory that processes share")]

use std::cell::UnsafeCell;
use std::ptr::from_ref;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

use libc::{c_int, c_void, pthread_key_t, pthread_mutex_t};
use twinpath_sys::fork::process_number;

use crate::thread_words;

/// Processes of a family that are known at a time. Of further ones it is not known when they end.
const PROCESSES: usize = 64;
/// Numbers of processes are below, and begin again then.
pub(crate) const NUMBERS: u32 = 1 << 30;

/// The number of this process in its family; 0 before there is one.
static OWN: AtomicI32 = AtomicI32::new(0);
/// Whether the kernel knows the locks of the thread that made this process the caller's. It does not in a child by
/// `clone(2)`: the C library has told it of those of the parent's threads only.
static ARE_LOCKS_KNOWN: AtomicBool = AtomicBool::new(true);

/// A process, and a lock that one of its threads has.
struct Present {
    /// 0: none, or the thread has ended before its process.
    process: AtomicI32,
    lock: UnsafeCell<pthread_mutex_t>,
}

/// In shared memory. Zeros are its beginning.
pub(crate) struct Presence {
    /// Numbers of processes that were given.
    given: AtomicU32,
    /// Number of places, from the first on, that have been used.
    used: AtomicU32,
    /// Number of places with a lock: all, or none where the C library has no such locks.
    usable: AtomicU32,
    each: [Present; PROCESSES],
}

// SAFETY: the C library's lock is made for threads of several processes, and the rest is atomic.
unsafe impl Sync for Presence {}

/// How a lock was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lock {
    /// This thread has it now.
    Taken,
    /// The same; the thread that had it before has ended with it.
    Left,
    /// Another thread has it.
    Held,
}

impl Present {
    fn try_lock(&self) -> Lock {
        // SAFETY: it was initialized before others could see it, and is never moved.
        match unsafe { libc::pthread_mutex_trylock(self.lock.get()) } {
            0 => Lock::Taken,
            libc::EOWNERDEAD => {
                // SAFETY: as above; this thread has it.
                unsafe { libc::pthread_mutex_consistent(self.lock.get()) };
                Lock::Left
            }
            _ => Lock::Held,
        }
    }

    /// If this thread has it; otherwise nothing happens, as the lock is robust.
    fn unlock(&self) {
        // SAFETY: as for `try_lock`.
        unsafe { libc::pthread_mutex_unlock(self.lock.get()) };
    }
}

impl Presence {
    /// Makes the locks, before others see the memory.
    pub(crate) fn begin(&self) {
        // A child finds it made.
        key();
        let mut attributes = std::mem::MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
        let attributes = attributes.as_mut_ptr();
        // SAFETY: the attributes are initialized first, and each lock is of zeros, and nobody has it.
        let is_done = unsafe {
            libc::pthread_mutexattr_init(attributes) == 0
                && libc::pthread_mutexattr_setrobust(attributes, libc::PTHREAD_MUTEX_ROBUST) == 0
                && libc::pthread_mutexattr_setpshared(attributes, libc::PTHREAD_PROCESS_SHARED) == 0
                && self.each.iter().all(|of| libc::pthread_mutex_init(of.lock.get(), attributes) == 0)
        };
        self.usable.store(if is_done { PROCESSES as u32 } else { 0 }, Ordering::Relaxed);
    }

    /// Gives this process its number: it has just been made, or its family.
    pub(crate) fn number(&self) {
        let given = self.given.fetch_add(1, Ordering::Relaxed) % (NUMBERS - 1);
        OWN.store(given as c_int + 1, Ordering::Relaxed);
    }

    /// The process is there as long as this thread is, and until it calls `exec(3)`. `is_gone` is told of processes that
    /// are not. Of a process of whose locks the kernel does not know, nothing is known. Allocates only where the program
    /// has many keys of its own (`pthread_setspecific(3)`).
    pub(crate) fn enter(&'static self, process: c_int, is_gone: impl Fn(c_int)) {
        if !ARE_LOCKS_KNOWN.load(Ordering::Relaxed) {
            return;
        }
        let usable = self.usable.load(Ordering::Relaxed) as usize;
        for (number, of) in self.each.iter().enumerate().take(usable) {
            if of.try_lock() == Lock::Held {
                continue;
            }
            let former = of.process.swap(process, Ordering::AcqRel);
            if former != 0 {
                is_gone(former);
            }
            self.used.fetch_max(number as u32 + 1, Ordering::AcqRel);
            set_at_end_of_thread(of);
            return;
        }
    }

    /// Whether the process has entered, and its thread is still there.
    pub(crate) fn has(&self, process: c_int) -> bool {
        let used = self.used.load(Ordering::Acquire) as usize;
        self.each.iter().take(used).any(|of| of.process.load(Ordering::Relaxed) == process)
    }

    /// Tells `is_gone` of each process that is no longer there, once.
    pub(crate) fn look(&self, is_gone: impl Fn(c_int)) {
        let used = self.used.load(Ordering::Acquire) as usize;
        for of in self.each.iter().take(used).filter(|of| of.process.load(Ordering::Relaxed) != 0) {
            match of.try_lock() {
                Lock::Held => continue,
                // A process is about to take the place, or to leave it.
                Lock::Taken => {}
                Lock::Left => {
                    let former = of.process.swap(0, Ordering::AcqRel);
                    if former != 0 {
                        is_gone(former);
                    }
                }
            }
            of.unlock();
        }
    }
}

/// The number of this process in its family; 0 before there is one.
pub(crate) fn own() -> c_int {
    OWN.load(Ordering::Relaxed)
}

/// This process has just been made; `by_fork`: by `fork(3)`, so that the kernel knows the locks of its thread.
pub(crate) fn begin_child(by_fork: bool) {
    if ARE_LOCKS_KNOWN.load(Ordering::Relaxed) != by_fork {
        ARE_LOCKS_KNOWN.store(by_fork, Ordering::Relaxed);
    }
}

/// The key by which a thread has its place. It is made without a lock, which a child that is forked meanwhile would wait for.
fn key() -> Option<pthread_key_t> {
    /// 0: there is none yet. Otherwise one more than the key, which is below PTHREAD_KEYS_MAX.
    static KEY: AtomicU32 = AtomicU32::new(0);
    if let Some(key) = KEY.load(Ordering::Relaxed).checked_sub(1) {
        return Some(key);
    }
    let mut key = 0;
    // SAFETY: it is a function of this library, and there is room for the key.
    if unsafe { libc::pthread_key_create(&raw mut key, Some(thread_ends)) } != 0 {
        return None;
    }
    match KEY.compare_exchange(0, key + 1, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => Some(key),
        Err(others) => {
            // SAFETY: this call made it, and no thread has used it.
            unsafe { libc::pthread_key_delete(key) };
            Some(others - 1)
        }
    }
}

/// The thread that has the lock may end before its process does. Then nothing is known of the process any more.
fn set_at_end_of_thread(of: &'static Present) {
    let set = |key| {
        // SAFETY: it is a key of this library.
        unsafe { libc::pthread_setspecific(key, from_ref(of).cast()) }
    };
    thread_words::set_entered(process_number());
    if key().map(set) != Some(0) {
        of.process.store(0, Ordering::Release);
        of.unlock();
    }
}

extern "C" fn thread_ends(of: *mut c_void) {
    // SAFETY: it is null, or what was set: a place in memory that is mapped for good.
    let Some(of) = (unsafe { of.cast::<Present>().cast_const().as_ref() }) else { return };
    // Otherwise it is the parent's.
    if thread_words::entered() == process_number() {
        of.process.store(0, Ordering::Release);
        of.unlock();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::thread;

    use super::*;

    /// Memory that a child shares.
    fn presence() -> &'static Presence {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        let len = size_of::<Presence>();
        // SAFETY: it is new memory of zeros, which is never unmapped, and any bits of it are valid.
        let presence = unsafe {
            let memory = libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0);
            assert_ne!(memory, libc::MAP_FAILED);
            &*memory.cast::<Presence>()
        };
        presence.begin();
        presence
    }

    fn gone(presence: &Presence) -> Vec<c_int> {
        let found = Cell::new(Vec::new());
        presence.look(|process| {
            let mut all = found.take();
            all.push(process);
            found.set(all);
        });
        found.into_inner()
    }

    /// A child that enters, says so, and then does what it is to do.
    fn child(presence: &'static Presence, then: fn() -> !) -> c_int {
        let mut pipe = [0; 2];
        // SAFETY: there is room for two descriptors.
        assert_eq!(unsafe { libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
        // SAFETY: the child calls only functions that a child of a program with threads may call.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            // SAFETY: they take numbers, and a byte that is there.
            unsafe {
                presence.enter(libc::getpid(), |_| {});
                libc::write(pipe[1], c"x".as_ptr().cast(), 1);
            }
            then();
        }
        let mut byte = 0_u8;
        // SAFETY: there is room for a byte; the descriptors are this test's.
        unsafe {
            assert_eq!(libc::read(pipe[0], (&raw mut byte).cast(), 1), 1);
            libc::close(pipe[0]);
            libc::close(pipe[1]);
        }
        child
    }

    fn pause() -> ! {
        loop {
            // SAFETY: it takes nothing.
            unsafe { libc::pause() };
        }
    }

    fn become_another() -> ! {
        let words = [c"/bin/sleep".as_ptr(), c"600".as_ptr(), std::ptr::null()];
        // SAFETY: these are strings of C, and the list ends with null.
        unsafe { libc::execv(words[0], words.as_ptr()) };
        std::process::abort()
    }

    fn kill(child: c_int) {
        // SAFETY: they take numbers.
        unsafe {
            assert_eq!(libc::kill(child, libc::SIGKILL), 0);
            assert_eq!(libc::waitpid(child, std::ptr::null_mut(), 0), child);
        }
    }

    #[test]
    fn a_process_that_is_killed_is_gone_once() {
        let presence = presence();
        let [first, second] = [0; 2].map(|_| child(presence, pause));
        assert!(presence.has(first) && presence.has(second));
        assert!(gone(presence).is_empty());
        kill(first);
        assert_eq!((gone(presence), gone(presence)), (vec![first], Vec::new()));
        kill(second);
        // The next one finds out as well, and has its place.
        let found = Cell::new(0);
        presence.enter(1, |process| found.set(found.get() + process));
        assert_eq!(found.get() + gone(presence).iter().sum::<c_int>(), second);
        assert!(presence.has(1) && !presence.has(first));
    }

    #[test]
    fn a_process_that_has_become_another_program_is_gone() {
        let presence = presence();
        let child = child(presence, become_another);
        let begun = std::time::Instant::now();
        let mut found = gone(presence);
        while found.is_empty() && begun.elapsed().as_secs() < 20 {
            thread::yield_now();
            found = gone(presence);
        }
        assert_eq!(found, [child]);
        // SAFETY: it takes numbers.
        assert_eq!(unsafe { libc::kill(child, 0) }, 0, "it lives");
        kill(child);
    }

    /// The C library knows nothing of such a child, and the kernel nothing of its locks.
    #[test]
    fn a_child_without_handlers_of_the_c_library_takes_no_place() {
        let presence = presence();
        // SAFETY: as fork, without what the C library does; the child calls only functions that touch its own memory.
        let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) } as c_int;
        assert!(child >= 0);
        if child == 0 {
            begin_child(false);
            presence.number();
            presence.enter(own(), |_| {});
            // SAFETY: it takes a number.
            unsafe { libc::_exit(own()) };
        }
        let mut status = 0;
        // SAFETY: there is room for the status.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(libc::WEXITSTATUS(status), 1, "it has a number of its own");
        let is_free = |of: &Present| of.try_lock() != Lock::Held;
        assert_eq!(presence.each.iter().filter(|of| is_free(of)).count(), PROCESSES);
    }

    #[test]
    fn of_a_process_whose_thread_has_ended_nothing_is_known() {
        let presence = presence();
        // SAFETY: it takes nothing.
        let own = unsafe { libc::getpid() };
        thread::spawn(move || presence.enter(own, |_| {})).join().expect("no panic");
        assert!(!presence.has(own));
        assert!(gone(presence).is_empty());
    }

    #[test]
    fn more_processes_than_there_are_places_are_not_known() {
        let presence = presence();
        let threads: Vec<_> = (0..PROCESSES as c_int + 2)
            .map(|number| {
                let (tell, told) = std::sync::mpsc::channel::<()>();
                let (end, ends) = std::sync::mpsc::channel::<()>();
                let thread = thread::spawn(move || {
                    presence.enter(1_000_000 + number, |_| {});
                    drop(tell);
                    let _ = ends.recv();
                });
                assert!(told.recv().is_err());
                (thread, end)
            })
            .collect();
        let known = (0..PROCESSES as c_int + 2).filter(|number| presence.has(1_000_000 + number));
        assert_eq!(known.count(), PROCESSES);
        for (thread, end) in threads {
            drop(end);
            thread.join().expect("no panic");
        }
    }
}
