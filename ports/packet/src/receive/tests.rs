//! Tests the order of frames against a model of CPUs that fill both rings (`filter` in stack/bpf/bpf/packet.c, and
//! `tpacket_rcv` in the kernel) and can be held up between any two steps.
#![allow(unsafe_code, reason = "the model writes into the rings as program and kernel do")]

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use proptest::prelude::*;
use twinpath_frame::Mapping;
use twinpath_rings::direct::{SLOT_LEN, STATE_LEN};

use super::*;

const CPUS: usize = 3;
const DIRECT_SLOTS: usize = 4;
const SOCKET_SLOTS: usize = 8;
const SOCKET_SLOT_LEN: usize = 256;
const OPEN: u64 = 1 << 63;
const HEAD_AT: usize = 64;
/// `struct slot` of the program: the length, the tag, the bytes.
const DIRECT_LEN_AT: usize = 8;
const DIRECT_BYTES_AT: usize = 16;
/// `struct tpacket2_hdr`: the length, the captured length, where the frame starts.
const SOCKET_LEN_AT: usize = 4;
const SOCKET_MAC_AT: usize = 12;
const SOCKET_BYTES_AT: usize = 80;
/// Bytes of a frame: the number of its CPU, then its own.
const FRAME_LEN: usize = 2;
/// The length on the wire of a frame that does not fit into a slot.
const LONG_LEN: usize = 65_549;

/// A second view of the memory of the rings.
struct Kernel {
    states: Mapping,
    slots: Mapping,
    socket: Mapping,
    /// Frames that have a slot of the socket's ring.
    reserved: usize,
    /// Whether a slot of the socket's ring is being written.
    writing: [bool; SOCKET_SLOTS],
}

impl Kernel {
    fn new() -> (Self, Rings) {
        let memory = |len| {
            let (mapping, fd) = Mapping::of_memfd("rings-test", len).expect("memory");
            (mapping, Mapping::of_fd(fd, len, 0).expect("mapped"))
        };
        let (states, its_states) = memory(4096);
        let (slots, its_slots) = memory(DIRECT_SLOTS * SLOT_LEN);
        let (socket, its_socket) = memory(4096);
        const { assert!(STATE_LEN <= 4096 && SOCKET_SLOTS * SOCKET_SLOT_LEN <= 4096) }
        let direct = DirectRing::new(Arc::new(its_states), 0, its_slots, DIRECT_SLOTS).expect("layout");
        let ring = PacketRing::new(its_socket, SOCKET_SLOT_LEN, SOCKET_SLOTS).expect("layout");
        let kernel = Self { states, slots, socket, reserved: 0, writing: [false; SOCKET_SLOTS] };
        (kernel, Rings::new(ring, Some(direct), CPUS).with_headers(true))
    }

    fn head(&self) -> &AtomicU64 {
        // SAFETY: it lies in the mapping, aligned to eight; a 64-bit atomic takes any bits.
        unsafe { self.states.base().add(HEAD_AT).cast::<AtomicU64>().as_ref() }
    }

    fn sequence(&self, place: usize) -> &AtomicU64 {
        assert!(place < DIRECT_SLOTS);
        // SAFETY: as above.
        unsafe { self.slots.base().add(place * SLOT_LEN).cast::<AtomicU64>().as_ref() }
    }

    fn status(&self, place: usize) -> &AtomicU32 {
        assert!(place < SOCKET_SLOTS);
        // SAFETY: it lies in the mapping, aligned to four; a 32-bit atomic takes any bits.
        unsafe { self.socket.base().add(place * SOCKET_SLOT_LEN).cast::<AtomicU32>().as_ref() }
    }

    /// Whether the socket's ring has a slot for another frame.
    fn has_room(&self) -> bool {
        let place = self.reserved % SOCKET_SLOTS;
        !self.writing[place] && self.status(place).load(Ordering::SeqCst) == 0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Idle,
    ReadHead,
    MoveHead {
        head: u64,
    },
    FillDirect {
        position: u64,
    },
    /// Decided: the socket takes it.
    Reserve,
    FillSocket {
        place: usize,
    },
}

/// One CPU, which delivers the frames of one flow.
#[derive(Clone, Copy, Debug)]
struct Cpu {
    number: u8,
    frame: u8,
    /// Whether the frame is a long one.
    is_long: bool,
    step: Step,
    lost: u32,
}

impl Cpu {
    /// The next step of a long frame, which begins now if the CPU is idle. Until frames decided before the direct ring
    /// was opened have been taken, the CPU takes a slot of the socket's ring at once after closing the direct ring.
    fn go_long(&mut self, kernel: &mut Kernel, is_settled: bool) {
        if self.step == Step::Idle {
            self.is_long = true;
            self.go(kernel);
        } else if self.is_long && self.step == Step::ReadHead && !is_settled {
            if kernel.has_room() {
                self.go(kernel);
                self.go(kernel);
            }
        } else {
            self.go(kernel);
        }
    }

    fn go(&mut self, kernel: &mut Kernel) {
        let lap = |position: u64| position & !(DIRECT_SLOTS as u64 - 1);
        let place = |position: u64| (position - lap(position)) as usize;
        self.step = match self.step {
            Step::Idle => {
                self.frame += 1;
                Step::ReadHead
            }
            Step::ReadHead if self.is_long => {
                kernel.head().fetch_and(!OPEN, Ordering::SeqCst);
                Step::Reserve
            }
            Step::ReadHead => match kernel.head().load(Ordering::SeqCst) {
                head if head & OPEN == 0 => Step::Reserve,
                head if kernel.sequence(place(head & !OPEN)).load(Ordering::SeqCst) < lap(head & !OPEN) => {
                    self.lost += 1;
                    Step::Idle
                }
                head => Step::MoveHead { head },
            },
            Step::MoveHead { head } => {
                let moved =
                    kernel.head().compare_exchange(head, head + 1, Ordering::SeqCst, Ordering::SeqCst);
                if moved.is_ok() { Step::FillDirect { position: head & !OPEN } } else { Step::ReadHead }
            }
            Step::FillDirect { position } => {
                // SAFETY: the slot lies in the mapping and is this CPU's until its sequence is set.
                unsafe {
                    let slot = kernel.slots.base().add(place(position) * SLOT_LEN);
                    slot.add(DIRECT_LEN_AT).cast::<u32>().write(FRAME_LEN as u32);
                    slot.add(DIRECT_BYTES_AT).cast::<[u8; FRAME_LEN]>().write([self.number, self.frame]);
                }
                kernel.sequence(place(position)).store(lap(position) + 1, Ordering::SeqCst);
                Step::Idle
            }
            Step::Reserve => {
                let place = kernel.reserved % SOCKET_SLOTS;
                if kernel.has_room() {
                    kernel.reserved += 1;
                    kernel.writing[place] = true;
                    Step::FillSocket { place }
                } else {
                    self.lost += 1;
                    Step::Idle
                }
            }
            Step::FillSocket { place } => {
                // SAFETY: the slot lies in the mapping and is this CPU's until its status is set.
                unsafe {
                    let slot = kernel.socket.base().add(place * SOCKET_SLOT_LEN);
                    let len = if self.is_long { LONG_LEN } else { FRAME_LEN };
                    slot.add(SOCKET_LEN_AT).cast::<[u32; 2]>().write([len as u32, FRAME_LEN as u32]);
                    slot.add(SOCKET_MAC_AT).cast::<u16>().write(SOCKET_BYTES_AT as u16);
                    slot.add(SOCKET_BYTES_AT).cast::<[u8; FRAME_LEN]>().write([self.number, self.frame]);
                }
                kernel.writing[place] = false;
                kernel.status(place).store(1, Ordering::SeqCst);
                Step::Idle
            }
        };
        self.is_long &= self.step != Step::Idle;
    }

    /// Whether its frame is on the way to the socket's ring.
    const fn fills_socket(&self) -> bool {
        matches!(self.step, Step::Reserve | Step::FillSocket { .. })
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    /// For any order of the steps of three CPUs and the worker, which opens and closes the direct ring meanwhile, as long
    /// frames do: the frames of a CPU are taken in order, none twice, and those not lost in a full ring all. A worker
    /// that is told that it may sleep leaves nothing in the direct ring.
    #[test]
    fn frames_of_a_flow_are_taken_once_and_in_order(schedule in prop::collection::vec(0usize..11, 0..800)) {
        let (mut kernel, mut rings) = Kernel::new();
        let mut cpus = [0, 1, 2].map(|number| Cpu { number, frame: 0, is_long: false, step: Step::Idle, lost: 0 });
        let (mut now, mut taken, mut last) = (Instant::ZERO, [0; CPUS], [0; CPUS]);
        // Long frames in the socket's ring.
        let longs = Cell::new(0_usize);
        let mut see = |arrived: Arrived<'_>| {
            if matches!(&arrived, Arrived::Socket(slot) if slot.bytes.len() < slot.len) {
                longs.set(longs.get().saturating_sub(1));
            }
            let bytes = match arrived {
                Arrived::Direct(frame) => frame.bytes.to_vec(),
                Arrived::Socket(slot) => slot.bytes.to_vec(),
            };
            let cpu = usize::from(bytes[0]);
            assert!(bytes[1] > last[cpu], "frame {} of CPU {cpu} after {}", bytes[1], last[cpu]);
            last[cpu] = bytes[1];
            taken[cpu] += 1;
        };
        for choice in schedule {
            // The direct ring is not opened while a long frame is on its way, nor while one is in the socket's ring.
            let none_on_way = !cpus.iter().any(|cpu| cpu.is_long);
            match choice {
                3 if none_on_way && longs.get() == 0 => drop(rings.open(now)),
                3 if none_on_way => prop_assert!(!rings.begin_polling(now)),
                7 if none_on_way => drop(rings.end_burst(now, false)),
                3 | 7 => {}
                4 => {
                    if rings.close() {
                        prop_assert!(kernel.head().load(Ordering::SeqCst) & OPEN == 0);
                        prop_assert!(!rings.direct.as_ref().is_some_and(DirectRing::look));
                    }
                }
                // No CPU takes this long to get a frame into the socket's ring.
                5 if !cpus.iter().any(Cpu::fills_socket) => now += SETTLING,
                5 | 6 => drop(rings.take(now, &mut see)),
                cpu if cpu < CPUS && !cpus[cpu].is_long => cpus[cpu].go(&mut kernel),
                cpu => {
                    let before = kernel.reserved;
                    cpus[cpu % 8].go_long(&mut kernel, rings.settles_at == Instant::ZERO);
                    if cpus[cpu % 8].is_long {
                        longs.set(longs.get() + kernel.reserved - before);
                    }
                }
            }
        }
        while cpus.iter().any(|cpu| cpu.step != Step::Idle) {
            cpus.iter_mut().filter(|cpu| cpu.step != Step::Idle).for_each(|cpu| cpu.go(&mut kernel));
        }
        while rings.take(now, &mut see).is_some() {}
        prop_assert!(!rings.look());
        prop_assert!(rings.close());
        for (cpu, taken) in cpus.iter().zip(taken) {
            prop_assert_eq!(taken + cpu.lost, u32::from(cpu.frame));
        }
    }
}
