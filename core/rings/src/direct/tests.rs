//! Tests the ring against a model of the program that fills it. The model takes the same steps in the same order
//! (`claim_slot` and `put` in stack/bpf/bpf/packet.c) and can be held up between any two of them.
#![allow(unsafe_code, reason = "the model writes into slots as the program does")]

use std::collections::VecDeque;

use proptest::prelude::*;

use super::memory::SlotHeader;
use super::*;
use crate::remains::Remains;

/// An open ring, the second one in the memory of the states.
fn ring(slots: usize) -> DirectRing {
    let memory = |len| Mapping::of_memfd("direct-test", len).expect("memory").0;
    let states = Arc::new(memory(4096));
    let mut ring = DirectRing::new(states, 1, memory(slots * SLOT_LEN), slots).expect("layout");
    ring.open();
    ring
}

/// Bytes of a frame of the model. All have the same value, so that a frame written by two producers at once is
/// detected.
const FRAME_LEN: usize = 6;

/// One run of the program, for one frame.
#[derive(Clone, Copy, Debug)]
enum Producer {
    ReadHead,
    ReadSequence { head: u64 },
    MoveHead { head: u64 },
    WriteLen { head: u64 },
    WriteByte { head: u64, at: usize },
    Publish { head: u64 },
    Done(Outcome),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Taken,
    Full,
    Closed,
}

impl Producer {
    /// Does the next step of putting a frame whose bytes are all `number`. A length of 0 stands for a frame that
    /// cannot be read.
    fn step(self, ring: &DirectRing, number: u8, len: u32) -> Self {
        let place = |head: u64| (head & (ring.memory.count as u64 - 1)) as usize;
        let lap = |head: u64| head - place(head) as u64;
        match self {
            Self::ReadHead => {
                let head = ring.head().load(Ordering::SeqCst);
                if head & OPEN == 0 {
                    return Self::Done(Outcome::Closed);
                }
                Self::ReadSequence { head: head & !OPEN }
            }
            Self::ReadSequence { head } => {
                let sequence = ring.memory.sequence(place(head)).load(Ordering::SeqCst);
                if sequence < lap(head) {
                    ring.word(FULL_AT).fetch_add(1, Ordering::SeqCst);
                    return Self::Done(Outcome::Full);
                }
                if sequence == lap(head) { Self::MoveHead { head } } else { Self::ReadHead }
            }
            Self::MoveHead { head } => {
                let word = head | OPEN;
                let moved = ring.head().compare_exchange(word, word + 1, Ordering::SeqCst, Ordering::SeqCst);
                if moved.is_ok() { Self::WriteLen { head } } else { Self::ReadHead }
            }
            Self::WriteLen { head } => {
                let header = SlotHeader { len, vlan: u16::from(number), is_cut: 0 };
                // SAFETY: the slot is this producer's: that is what the test is about, and all run on one thread.
                unsafe {
                    ring.memory.slot(place(head)).add(size_of::<u64>()).cast::<SlotHeader>().write(header)
                };
                Self::WriteByte { head, at: 0 }
            }
            Self::WriteByte { head, at } if at < FRAME_LEN => {
                // SAFETY: as above; the byte lies in the slot.
                unsafe { ring.memory.slot(place(head)).add(HEADER_LEN + at).write(number) };
                Self::WriteByte { head, at: at + 1 }
            }
            Self::WriteByte { head, .. } => Self::Publish { head },
            Self::Publish { head } => {
                ring.memory.sequence(place(head)).swap(lap(head) + 1, Ordering::SeqCst);
                Self::Done(Outcome::Taken)
            }
            Self::Done(_) => self,
        }
    }

    /// Does all steps; returns whether the ring took the frame.
    fn run(mut self, ring: &DirectRing, number: u8, len: u32) -> bool {
        loop {
            if let Self::Done(outcome) = self {
                return outcome == Outcome::Taken;
            }
            self = self.step(ring, number, len);
        }
    }
}

fn put(ring: &DirectRing, number: u8) -> bool {
    Producer::ReadHead.run(ring, number, FRAME_LEN as u32)
}

/// Takes the next frame and returns its number; all its bytes must be one producer's.
fn take(ring: &mut DirectRing) -> Option<u8> {
    ring.take(|frame| {
        let number = frame.bytes[0];
        assert_eq!(frame.bytes, [number; FRAME_LEN], "one slot was given to two producers");
        assert_eq!(frame.vlan_tci, Some(number.into()));
        number
    })
}

#[test]
fn a_delayed_producer_keeps_its_slot_when_others_wrap_around() {
    for slots in [2, 4] {
        let mut ring = ring(slots);
        let steps_until_it_has_a_slot = 3;
        let mut held = Producer::ReadHead;
        for _ in 0..steps_until_it_has_a_slot {
            held = held.step(&ring, 200, FRAME_LEN as u32);
        }
        // Fills the rest of the ring. Then it is full: the slot that is held is not given away.
        let taken = (0..20).filter(|&number| put(&ring, number)).count();
        assert_eq!((taken, ring.lost() as usize), (slots - 1, 21 - slots));
        assert!(!ring.look(), "the first frame is still being filled");
        assert!(held.run(&ring, 200, FRAME_LEN as u32));
        let rest = 0..slots as u8 - 1;
        assert_eq!(
            std::iter::from_fn(|| take(&mut ring)).collect::<Vec<_>>(),
            std::iter::once(200).chain(rest).collect::<Vec<_>>()
        );
        // The ring works as before.
        for number in 0..20 {
            assert!(put(&ring, number));
            assert_eq!((take(&mut ring), take(&mut ring), ring.lost()), (Some(number), None, 0));
        }
    }
}

#[test]
fn unreadable_frames_are_skipped_and_lengths_are_bounded() {
    let mut ring = ring(4);
    assert!(Producer::ReadHead.run(&ring, 1, 0));
    assert!(ring.look());
    assert_eq!(ring.take(|_| ()), None);
    assert!(Producer::ReadHead.run(&ring, 2, 0) && Producer::ReadHead.run(&ring, 7, u32::MAX));
    let seen = ring.take(|frame| (frame.bytes.len(), frame.bytes[0], frame.vlan_tci));
    assert_eq!(seen, Some((SLOT_LEN - HEADER_LEN, 7, Some(7))));
    assert!((0..4).all(|number| put(&ring, number)), "every slot is free again");
    assert!(!put(&ring, 5));
}

#[test]
fn lost_frames_are_told_once_and_a_layout_beyond_the_mapping_is_refused() {
    let mut ring = ring(2);
    ring.word(FULL_AT).store(7, Ordering::Relaxed);
    assert_eq!((ring.lost(), ring.lost()), (7, 0));
    let memory = |len| Mapping::of_memfd("direct-test", len).expect("memory").0;
    let layouts =
        [(2 * SLOT_LEN, 4), (3 * SLOT_LEN, 3), (SLOT_LEN, 0), (SLOT_LEN, 1), (SLOT_LEN, usize::MAX)];
    for (slots, count) in layouts {
        assert!(DirectRing::new(Arc::new(memory(4096)), 0, memory(slots), count).is_err());
    }
    for queue in [4096 / STATE_LEN as u32, u32::MAX] {
        assert!(DirectRing::new(Arc::new(memory(4096)), queue, memory(4 * SLOT_LEN), 4).is_err());
    }
}

#[test]
fn a_closed_ring_takes_nothing_and_is_drained_once_its_last_producer_is_done() {
    let mut ring = ring(4);
    assert!(ring.is_open() && !ring.is_drained());
    assert!(put(&ring, 1));
    let mut late = Producer::ReadHead;
    for _ in 0..3 {
        late = late.step(&ring, 2, FRAME_LEN as u32);
    }
    // This one has read the head but has no position.
    let too_late = Producer::ReadHead.step(&ring, 3, FRAME_LEN as u32);
    ring.close();
    assert!(!ring.is_open() && !ring.is_drained());
    assert!(!too_late.run(&ring, 3, FRAME_LEN as u32) && !put(&ring, 4));
    assert_eq!((take(&mut ring), take(&mut ring)), (Some(1), None));
    assert!(!ring.is_drained(), "a frame is still to come");
    assert!(late.run(&ring, 2, FRAME_LEN as u32));
    assert_eq!((take(&mut ring), ring.lost()), (Some(2), 0));
    assert!(ring.is_drained());
    ring.open();
    assert!(put(&ring, 5));
    assert_eq!(take(&mut ring), Some(5));
}

#[test]
fn the_worker_learns_the_end_of_a_ring_that_the_program_has_closed() {
    let mut ring = ring(4);
    assert!(put(&ring, 1) && put(&ring, 2));
    assert!(!ring.notice() && ring.is_open());
    // As `close_ring` in stack/bpf/bpf/direct.h.
    ring.head().fetch_and(!OPEN, Ordering::SeqCst);
    assert!(!put(&ring, 3) && ring.is_open(), "not noticed yet");
    assert_eq!(take(&mut ring), Some(1));
    assert!(ring.notice() && !ring.is_open() && !ring.is_drained());
    assert_eq!(take(&mut ring), Some(2));
    assert!(ring.is_drained());
    ring.open();
    assert!(put(&ring, 4));
    assert_eq!(take(&mut ring), Some(4));
}

#[test]
fn each_ring_has_its_own_state() {
    let memory = |len| Mapping::of_memfd("direct-test", len).expect("memory").0;
    let states = Arc::new(memory(4096));
    let ring_of =
        |queue| DirectRing::new(Arc::clone(&states), queue, memory(2 * SLOT_LEN), 2).expect("layout");
    let [mut one, mut other] = [0, 1].map(ring_of);
    assert!(!put(&one, 1), "closed at first");
    other.open();
    assert!(!put(&one, 1) && put(&other, 2) && !one.look());
    one.open();
    other.close();
    assert!(put(&one, 1) && !put(&other, 3));
    assert_eq!((take(&mut one), take(&mut other)), (Some(1), Some(2)));
    one.set_without_socket(true);
    assert_eq!((one.word(0).load(Ordering::SeqCst), other.word(0).load(Ordering::SeqCst)), (1, 0));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// For any order of the steps of three CPUs and the worker, with stalls of any length, while the worker closes the
    /// ring and opens it again: each frame that the ring took comes out complete and once, the others are counted or
    /// refused, a drained ring stays empty, and the ring never gets stuck.
    #[test]
    fn concurrent_producers_never_share_a_slot(schedule in prop::collection::vec(0usize..6, 0..600)) {
        let mut ring = ring(2);
        let mut numbers = 0..=u8::MAX;
        let mut cpus: [Option<(Producer, u8)>; 3] = [None; 3];
        let (mut taken, mut full, mut seen) = (Vec::new(), 0, VecDeque::new());
        let mut step = |ring: &DirectRing, cpu: &mut Option<(Producer, u8)>, begin: bool| {
            if cpu.is_none() && begin {
                *cpu = numbers.next().map(|number| (Producer::ReadHead, number));
            }
            let Some((producer, number)) = cpu else { return };
            *producer = producer.step(ring, *number, FRAME_LEN as u32);
            if let Producer::Done(outcome) = *producer {
                match outcome {
                    Outcome::Taken => taken.push(*number),
                    Outcome::Full => full += 1,
                    Outcome::Closed => {}
                }
                *cpu = None;
            }
        };
        for choice in schedule {
            match (cpus.get_mut(choice), choice) {
                (Some(cpu), _) => step(&ring, cpu, true),
                (None, 3) if ring.is_open() => ring.close(),
                (None, 3) if ring.is_drained() => ring.open(),
                (None, _) => seen.extend(take(&mut ring)),
            }
            prop_assert!(!(ring.is_drained() && ring.look()));
        }
        // All producers may finish.
        while cpus.iter().any(Option::is_some) {
            cpus.iter_mut().for_each(|cpu| step(&ring, cpu, false));
        }
        seen.extend(std::iter::from_fn(|| take(&mut ring)));
        let mut seen: Vec<_> = seen.into();
        seen.sort_unstable();
        taken.sort_unstable();
        prop_assert_eq!(seen, taken);
        prop_assert_eq!(ring.lost(), full);
        if !ring.is_open() {
            prop_assert!(ring.is_drained());
            ring.open();
        }
        prop_assert!(put(&ring, 1) && put(&ring, 2), "every slot is free again");
    }
}

/// A ring with slots for its holder, and the same one for somebody else.
fn seen_twice(slots: usize) -> [DirectRing; 2] {
    let (states, states_fd) = Mapping::of_memfd("direct-test", 4096).expect("memory");
    let (memory, slots_fd) = Mapping::of_memfd("direct-test", slots * SLOT_LEN).expect("memory");
    let again = Mapping::of_fd(&states_fd, 4096, 0).expect("the same memory");
    let memory_again = Mapping::of_fd(&slots_fd, slots * SLOT_LEN, 0).expect("the same memory");
    let mut holder = DirectRing::new(Arc::new(states), 1, memory, slots).expect("layout");
    holder.open();
    [holder, DirectRing::new(Arc::new(again), 1, memory_again, slots).expect("layout")]
}

#[test]
fn somebody_else_goes_on_where_the_holder_has_ended() {
    const SLOTS: usize = 8;
    for (consumed, unread) in
        (0..20u8).flat_map(|consumed| (0..=SLOTS as u8).map(move |unread| (consumed, unread)))
    {
        let [mut holder, other] = seen_twice(SLOTS);
        for number in 0..consumed {
            assert!(put(&holder, number));
            assert!(holder.take(|_| ()).is_some());
        }
        let all: Vec<_> = (0..unread).map(|number| 100 + number).collect();
        assert!(all.iter().all(|number| put(&holder, *number)));
        let mut remains = Remains::new(other);
        assert_eq!(remains.is_empty(), unread == 0);
        let (mut got, mut frame) = (Vec::new(), [0; SLOT_LEN]);
        while let Some(len) = remains.take(&mut frame, || ()) {
            assert_eq!((len, &frame[..len]), (FRAME_LEN, &[frame[0]; FRAME_LEN][..]));
            got.push(frame[0]);
        }
        assert_eq!(got, all, "{consumed} were read before");
        // One comes before the ring is closed.
        assert!(put(&holder, 7));
        assert!(!remains.close());
        assert_eq!(remains.take(&mut frame, || ()), Some(FRAME_LEN));
        assert!(remains.close());
        assert!(!put(&holder, 8));
        // The holder finds it empty, and can use it again.
        holder.was_closed(holder.head().load(Ordering::SeqCst));
        if consumed % 2 == 0 {
            holder.catch_up();
        } else {
            holder.discard();
        }
        assert!(holder.is_drained());
        holder.open();
        assert!(put(&holder, 9));
        assert_eq!(holder.take(|frame| frame.bytes[0]), Some(9));
    }
}

#[test]
fn whatever_a_holder_has_written_the_end_comes() {
    const SLOTS: usize = 8;
    let mut state = 1u64;
    let mut random = || {
        // xorshift64
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for _ in 0..300 {
        let [holder, other] = seen_twice(SLOTS);
        let mut scribble = || {
            let value = match random() % 4 {
                0 => OPEN | (random() % 64),
                1 => u64::MAX,
                2 => random() % 64,
                _ => random(),
            };
            holder.head().store(value, Ordering::SeqCst);
            let lap = value & POSITION & !(SLOTS as u64 - 1);
            for place in 0..SLOTS {
                let sequence = [lap, lap + 1, lap.wrapping_sub(7), random()][random() as usize % 4];
                holder.memory.sequence(place).store(sequence, Ordering::SeqCst);
            }
        };
        scribble();
        let (mut remains, mut frame, mut taken) = (Remains::new(other), [0; SLOT_LEN], 0);
        loop {
            while remains.take(&mut frame, || ()).is_some() {
                taken += 1;
            }
            scribble();
            if remains.close() {
                break;
            }
        }
        assert!(taken <= 3 * SLOTS, "{taken}");
    }
}
