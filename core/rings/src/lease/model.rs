//! Checks every interleaving of programs, kernel and holder, with a bound on the number of preemptions. Each
//! datagram must reach the holder once, and those of one sender in order.
//!
//! The programs are `put_leased` and `pass_by` of stack/bpf/bpf/lease.c, step by step; the kernel is a queue. Time
//! stands still while a CPU is busy, so a holder that waits for `SETTLING` waits for all of them. This models the
//! holder's assumption that passed frames arrive within that time.

use loom::sync::Mutex;
use loom::thread;

use super::*;
use crate::direct::HEAD_AT;
use crate::direct::memory::Memory;
use crate::sync::{Arc, Ordering};

const SLOTS: usize = 2;

/// The state shared by the CPUs and the holder.
#[derive(Clone)]
struct Machine {
    memory: Memory,
    kernel: Arc<Mutex<Kernel>>,
}

#[derive(Default)]
struct Kernel {
    /// The socket's receive buffer: numbers, and whether they came in fragments.
    socket: Vec<(u8, bool)>,
    /// CPUs that are handling a frame.
    busy: u32,
}

/// How a program treats a frame.
#[derive(Clone, Copy)]
enum Kind {
    Whole,
    /// It cannot be put into a ring.
    Fragment,
    /// It comes after the lease has expired.
    Late,
}

impl Machine {
    fn new() -> Self {
        Self { memory: Memory::new(SLOTS), kernel: Arc::new(Mutex::new(Kernel::default())) }
    }

    fn kernel(&self) -> loom::sync::MutexGuard<'_, Kernel> {
        self.kernel.lock().expect("no panic")
    }

    /// `take_slot`.
    fn take_slot(&self, kind: Kind) -> Option<(usize, u64)> {
        let head = self.memory.long_word(HEAD_AT);
        for _ in 0..2 {
            let word = head.load(Ordering::SeqCst);
            let position = word & POSITION;
            let place = position as usize % SLOTS;
            let lap = position - place as u64;
            if word & OPEN == 0 {
                return None;
            }
            if matches!(kind, Kind::Late) {
                self.memory.word(LAPSED_AT).fetch_add(1, Ordering::Relaxed);
                return None;
            }
            let sequence = self.memory.sequence(place).load(Ordering::Acquire);
            if sequence < lap {
                self.memory.word(FULL_AT).fetch_add(1, Ordering::Relaxed);
                return None;
            }
            let next = if word & SINGLE != 0 { (word + 1) & !(OPEN | SINGLE) } else { word + 1 };
            let took = || head.compare_exchange(word, next, Ordering::SeqCst, Ordering::SeqCst).is_ok();
            if sequence == lap && took() {
                return Some((place, lap + 1));
            }
        }
        None
    }

    /// `pass_by`.
    fn pass_by(&self, kind: Kind) {
        let head = self.memory.long_word(HEAD_AT);
        let count = if matches!(kind, Kind::Fragment) { ODD_AT } else { PASSED_AT };
        self.memory.word(count).fetch_add(1, Ordering::SeqCst);
        let word = head.load(Ordering::SeqCst);
        if word & OPEN == 0 && word & PASSED != 0 {
            return;
        }
        head.fetch_or(PASSED, Ordering::SeqCst);
        if head.fetch_and(!(OPEN | SINGLE), Ordering::SeqCst) & OPEN != 0 {
            self.memory.word(ENDED_AT).fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Frames arrive at a CPU, one after the other.
    fn arrive(&self, frames: &[(u8, Kind)]) {
        for (at, &(number, kind)) in frames.iter().enumerate() {
            let slot = if matches!(kind, Kind::Fragment) { None } else { self.take_slot(kind) };
            if let Some((place, filled)) = slot {
                self.memory.write(place, &[number]);
                self.memory.sequence(place).swap(filled, Ordering::AcqRel);
            } else {
                self.pass_by(kind);
            }
            let is_last = at + 1 == frames.len();
            if slot.is_none() || is_last {
                let mut kernel = self.kernel();
                kernel.socket.extend(slot.is_none().then_some((number, matches!(kind, Kind::Fragment))));
                kernel.busy -= u32::from(is_last);
            }
        }
    }
}

/// The holder, which reads like a socket.
struct Holder {
    machine: Machine,
    lease: Lease,
    now: Instant,
    room: Room,
    /// It gives the lease back whenever it finds nothing.
    sleeps: bool,
    seen: Vec<u8>,
}

impl Holder {
    /// Takes the next step.
    fn turn(&mut self) {
        match self.lease.next(self.now) {
            Next::Ring => self.seen.extend(self.lease.take(|frame| frame.bytes[0])),
            Next::Socket if !self.look() => self.lease.socket_was_empty(self.now),
            Next::Socket => {}
            Next::Idle => {
                if !self.look() && !self.lease.open(self.now, self.room) && self.machine.kernel().busy == 0 {
                    self.now += SETTLING;
                }
            }
            Next::Nowhere if self.sleeps => self.lease.close(),
            // Done rarely, for datagrams that do not come through the interface.
            Next::Nowhere => _ = self.look(),
            Next::Soon => {}
        }
    }

    /// Looks at the socket. Returns whether there is something in it. It is read now if the ring is closed, and
    /// soon otherwise.
    fn look(&mut self) -> bool {
        let mut kernel = self.machine.kernel();
        if kernel.socket.is_empty() {
            return false;
        }
        if self.lease.is_open() {
            self.lease.close();
            self.lease.socket_has_some();
        } else {
            let (number, is_odd) = kernel.socket.remove(0);
            self.seen.push(number);
            self.lease.socket_was_read(is_odd);
        }
        true
    }
}

/// Each CPU gets its frames while the holder takes `turns` turns. Then the holder reads the rest.
fn check(turns: usize, cpus: &'static [&'static [(u8, Kind)]], room: Room, sleeps: bool) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(if cpus.len() > 1 { 2 } else { 3 });
    builder.check(move || {
        let machine = Machine::new();
        machine.kernel().busy = cpus.len() as u32;
        let mut now = Instant::from_nanos(1_000_000);
        let mut lease = Lease::new(DirectRing::over(machine.memory.clone()));
        // The socket has been empty for a long time.
        lease.socket_was_empty(now);
        now += SETTLING;
        lease.socket_was_empty(now);
        assert!(lease.open(now, room));
        let mut holder = Holder { machine: machine.clone(), lease, now, room, sleeps, seen: Vec::new() };
        let cpu = |frames: &'static [(u8, Kind)]| {
            let machine = machine.clone();
            thread::spawn(move || machine.arrive(frames))
        };
        let threads: Vec<_> = cpus.iter().map(|frames| cpu(frames)).collect();
        for _ in 0..turns {
            holder.turn();
        }
        threads.into_iter().for_each(|thread| thread.join().expect("the CPU is done"));
        holder.lease.close();
        holder.sleeps = false;
        while !machine.kernel().socket.is_empty() || holder.lease.has_frames() {
            holder.turn();
        }
        let count: usize = cpus.iter().map(|frames| frames.len()).sum();
        assert_eq!(holder.seen.len(), count, "each once: {:?}", holder.seen);
        for frames in cpus {
            let sent: Vec<_> = frames.iter().map(|(number, _)| *number).collect();
            let of_this: Vec<_> =
                holder.seen.iter().copied().filter(|number| sent.contains(number)).collect();
            assert_eq!(of_this, sent, "of {:?}", holder.seen);
        }
    });
}

use Kind::{Fragment, Late, Whole};

#[test]
fn whole_frames_while_the_holder_looks() {
    check(8, &[&[(1, Whole), (2, Whole), (3, Whole)]], Room::All, false);
}

#[test]
fn whole_frames_while_the_holder_gives_the_lease_back_again_and_again() {
    check(8, &[&[(1, Whole), (2, Whole)]], Room::All, true);
}

#[test]
fn a_lease_of_one_frame_at_a_time() {
    check(8, &[&[(1, Whole), (2, Whole), (3, Whole)]], Room::One, false);
}

#[test]
fn fragments_and_a_lapse_end_the_lease_between_whole_frames() {
    check(8, &[&[(1, Whole), (2, Fragment), (3, Whole)]], Room::All, false);
    check(8, &[&[(1, Whole), (2, Late), (3, Whole)]], Room::All, false);
    check(6, &[&[(1, Fragment), (2, Whole), (3, Late)]], Room::One, true);
}

#[test]
fn two_senders_on_two_cpus() {
    check(6, &[&[(1, Whole), (2, Whole)], &[(11, Fragment), (12, Whole)]], Room::All, false);
    check(6, &[&[(1, Whole), (2, Late)], &[(11, Whole)]], Room::All, true);
}
