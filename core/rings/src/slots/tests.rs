//! Order and limits of a ring of slots, peers that violate the protocol, and every interleaving of push, sleep and
//! wake (loom).

use super::*;

#[cfg(not(loom))]
mod exact {
    use twinpath_frame::Mapping;

    use super::*;

    const SHAPE: Shape = match Shape::new(4, 20) {
        Ok(shape) => shape,
        Err(_) => panic!("a possible shape"),
    };

    fn note(tag: u32) -> Note {
        Note { original_len: 1 + tag, time_ns: u64::MAX - u64::from(tag), tag }
    }

    #[test]
    fn slots_come_in_order_with_their_notes_and_a_full_ring_refuses() {
        let (mut producer, mut consumer) = ring(SHAPE).expect("memory");
        let mut into = [0xff; 20];
        for round in 0..3u32 {
            assert!(!consumer.look() && consumer.pop_into(&mut into).is_none());
            for tag in 0..4 {
                let bytes = [tag as u8; 20];
                assert_eq!(producer.push(note(tag), &bytes[..(5 * tag + round) as usize]), Ok(()));
            }
            assert_eq!(producer.push(note(9), &[]), Err(Refused::Full));
            for tag in 0..4 {
                assert!(consumer.look());
                let len = (5 * tag + round) as usize;
                assert_eq!(consumer.pop_into(&mut into), Some(Ok(Slot { len, note: note(tag) })));
                assert_eq!(into[..len], [tag as u8; 20][..len]);
            }
        }
        assert_eq!(producer.push(note(0), &[0; 21]), Err(Refused::TooLarge));
    }

    #[test]
    fn positions_move_when_a_burst_is_published_or_taken_or_after_an_eighth_of_the_ring() {
        let (mut producer, mut consumer) = ring(Shape::new(64, 20).expect("possible")).expect("memory");
        for number in 0..7 {
            producer.push(note(number), &[]).expect("room");
        }
        assert!(!consumer.look(), "nothing is published yet");
        producer.push(note(7), &[]).expect("room");
        assert!(consumer.look());
        producer.push(note(8), &[]).expect("room");
        assert!(!producer.publish());
        let tail = |consumer: &SlotConsumer| consumer.memory.tail().load(Ordering::Relaxed);
        let mut tails = Vec::new();
        while let Some(slot) = consumer.pop_into(&mut []) {
            assert_eq!(slot.expect("sound").note, note(tails.len() as u32));
            tails.push(tail(&consumer));
        }
        assert_eq!(tails, [0, 0, 0, 0, 0, 0, 0, 8, 9]);
    }

    /// Lengths around the end of a slot's first line, and of its words, into buffers of every length.
    #[test]
    fn packets_of_every_length_come_as_they_were() {
        let bytes: [u8; 150] = std::array::from_fn(|at| 0x51 + at as u8);
        for slot_bytes in [20, 60, 61, 150] {
            let (mut producer, mut consumer) =
                ring(Shape::new(4, slot_bytes).expect("possible")).expect("memory");
            for len in 0..=slot_bytes as usize {
                for room in 0..=bytes.len() + 3 {
                    producer.push(Note::default(), &bytes[..len]).expect("room");
                    let mut into = [0x50; 153];
                    let taken = consumer.pop_into(&mut into[..room]).expect("a slot").expect("sound");
                    assert_eq!(taken.len, len);
                    assert_eq!(into[..len.min(room)], bytes[..len.min(room)]);
                    // A whole line is read where there is room for it.
                    let touched = if room < 60 { len.min(room) } else { len.min(room).max(60) };
                    assert!(
                        into[touched..].iter().all(|byte| *byte == 0x50),
                        "{len} of {slot_bytes}, {room}"
                    );
                }
            }
            let too_long = vec![0; slot_bytes as usize + 1];
            assert_eq!(producer.push(Note::default(), &too_long), Err(Refused::TooLarge));
        }
    }

    /// As many at a time as fit, from any position: the packets arrive as if they had been pushed one by one.
    #[test]
    fn packets_are_pushed_together_until_one_is_refused() {
        let (mut producer, mut consumer) = ring(Shape::new(16, 20).expect("possible")).expect("memory");
        let (mut sent, mut taken) = (0, 0);
        for count in (0..=20u32).chain([3, 16, 5]) {
            let bytes: Vec<_> = (sent..sent + count).map(u32::to_ne_bytes).collect();
            let packets = bytes.iter().map(|bytes| (note(count), bytes.as_slice()));
            let (pushed, refused) = producer.push_each(packets);
            assert_eq!((pushed, refused), (count.min(16) as usize, (count > 16).then_some(Refused::Full)));
            sent += pushed as u32;
            assert!(!producer.publish());
            let mut into = [0; 4];
            while let Some(slot) = consumer.pop_into(&mut into) {
                assert_eq!(slot, Ok(Slot { len: 4, note: note(count) }));
                assert_eq!(u32::from_ne_bytes(into), taken);
                taken += 1;
            }
            assert_eq!(taken, sent);
        }
        let packets = [20, 20, 21, 20].map(|len| (note(0), &[0; 21][..len]));
        assert_eq!(producer.push_each(packets), (2, Some(Refused::TooLarge)));
    }

    #[test]
    fn a_note_is_that_of_its_packet_whether_it_is_written_again_or_not() {
        let (mut producer, mut consumer) = ring(SHAPE).expect("memory");
        let note = |original_len, time_ns, tag| Note { original_len, time_ns, tag };
        let notes = [
            note(5, 0, 0),
            note(5, 7, 1),
            note(5, 7, 1),
            note(9, 7, 1),
            note(5, 7, 1),
            note(5, 7, 2),
            note(5, 8, 2),
            note(0, 8, 2),
            note(5, 0, 0),
        ];
        for sent in notes.repeat(2) {
            producer.push(sent, b"bytes").expect("room");
            let mut into = [0; 5];
            assert_eq!(consumer.pop_into(&mut into), Some(Ok(Slot { len: 5, note: sent })));
            assert_eq!(&into, b"bytes");
        }
    }

    #[test]
    fn a_shorter_buffer_gets_the_beginning_and_the_whole_length() {
        let (mut producer, mut consumer) = ring(SHAPE).expect("memory");
        producer.push(Note::default(), b"0123456789abcdef").expect("room");
        let mut into = [0; 11];
        assert_eq!(consumer.pop_into(&mut into).expect("a slot").expect("sound").len, 16);
        assert_eq!(&into, b"0123456789a");
    }

    #[test]
    fn the_producer_is_told_once_per_sleep_of_the_consumer() {
        let (mut producer, mut consumer) = ring(SHAPE).expect("memory");
        assert!(!producer.publish());
        consumer.arm();
        assert!(producer.publish());
        assert!(!producer.publish(), "one signal per sleep");
        assert!(consumer.disarm(), "a signal is on its way");
        assert!(!consumer.disarm());
        consumer.arm();
        assert!(!consumer.disarm(), "nobody took note");
        assert!(!producer.publish());
    }

    #[test]
    fn an_impossible_position_breaks_the_ring_and_is_reported_once() {
        let (mut producer, mut consumer) = ring(SHAPE).expect("memory");
        for lie in [5, u32::MAX, 1 << 31] {
            let (_, mut lied_to) = ring(SHAPE).expect("memory");
            lied_to.memory.head().store(lie, Ordering::Relaxed);
            assert_eq!(lied_to.pop_into(&mut []), Some(Err(Fault::Position)));
            assert!(lied_to.is_broken() && !lied_to.look());
            assert_eq!(lied_to.pop_into(&mut []), None);
        }
        for _ in 0..4 {
            producer.push(Note::default(), &[]).expect("room");
        }
        consumer.pop_into(&mut []).expect("a slot").expect("sound");
        producer.push(Note::default(), &[]).expect("room");
        // Back to a position that was seen before: impossible, although the number of free slots would be the same.
        consumer.memory.tail().store(0, Ordering::Relaxed);
        assert_eq!(producer.push(Note::default(), &[]), Err(Refused::Fault(Fault::Position)));
        consumer.memory.tail().store(4, Ordering::Relaxed);
        assert_eq!(
            producer.push(Note::default(), &[]),
            Err(Refused::Fault(Fault::Position)),
            "not believed again"
        );
    }

    #[test]
    fn a_length_beyond_the_slot_drops_that_slot_only() {
        let (mut producer, mut consumer) = ring(SHAPE).expect("memory");
        producer.push(note(1), b"first").expect("room");
        producer.push(note(2), b"second").expect("room");
        producer.memory.write(0, 21, None, &[]);
        let mut into = [0; 64];
        assert_eq!(consumer.pop_into(&mut into), Some(Err(Fault::Length)));
        assert_eq!(into, [0; 64]);
        assert_eq!(consumer.pop_into(&mut into), Some(Ok(Slot { len: 6, note: note(2) })));
        assert_eq!(&into[..6], b"second");
    }

    /// Writes seeded random values into every word of the ring between any two calls: no panic, no access out of
    /// bounds, and every call returns a result or a fault.
    #[test]
    fn random_values_in_the_shared_memory_cause_no_panic() {
        let mut random = 0x0123_4567_89ab_cdef_u64;
        let mut next = move || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            random >> 29
        };
        let (mut lengths, mut positions, mut sound) = (0, 0, 0);
        for _ in 0..2_000 {
            let (mut producer, mut consumer) = ring(SHAPE).expect("memory");
            for _ in 0..64 {
                match next() % 8 {
                    0 => producer.memory.head().store(next() as u32 % 16, Ordering::Relaxed),
                    1 => producer.memory.tail().store(next() as u32 % 16, Ordering::Relaxed),
                    2 => producer.memory.waiting().store(next() as u32, Ordering::Relaxed),
                    3 => {
                        let head = (next() as u32 % 32) | ((next() as u32 & 1) * SAME_NOTE);
                        let note = Some([next(), next()]);
                        producer.memory.write(next() as usize % 4, head, note, &[next() as u8; 20]);
                    }
                    4 | 5 => match producer.push(note(0), &[7; 20][..next() as usize % 20]) {
                        Err(Refused::Fault(_)) => positions += 1,
                        Ok(()) | Err(_) => sound += 1,
                    },
                    _ => match consumer.pop_into(&mut [0; 24][..next() as usize % 24]) {
                        Some(Err(Fault::Length)) => lengths += 1,
                        Some(Err(Fault::Position)) => positions += 1,
                        Some(Ok(slot)) => {
                            assert!(slot.len <= 20);
                            sound += 1;
                        }
                        None => {}
                    },
                }
                let _ = (producer.publish(), consumer.look());
            }
        }
        assert!(lengths > 100 && positions > 100 && sound > 100, "{lengths} {positions} {sound}");
    }

    #[test]
    fn impossible_shapes_are_refused_with_a_message() {
        assert_eq!(Shape::new(3, 20), Err(BadShape::Slots(3)));
        assert_eq!(Shape::new(0, 20), Err(BadShape::Slots(0)));
        assert_eq!(Shape::new(1 << 17, 20), Err(BadShape::Slots(1 << 17)));
        assert_eq!(Shape::new(4, 0), Err(BadShape::SlotBytes(0)));
        let mapping = Arc::new(Mapping::of_memfd("slots-test", 4096).expect("memory").0);
        let large = Shape::new(64, 64).expect("possible");
        let refused = producer(Arc::clone(&mapping), 0, large).expect_err("no room");
        assert!(refused.to_string().contains("needs 9600 bytes"), "{refused}");
        assert!(consumer(Arc::clone(&mapping), 64, SHAPE).is_err(), "not aligned");
        assert!(consumer(mapping, usize::MAX - 127, SHAPE).is_err());
    }
}

#[cfg(loom)]
mod model {
    use loom::sync::Notify;

    use super::*;

    fn ring() -> (SlotProducer, SlotConsumer) {
        let shape = Shape::new(2, 4).expect("possible");
        let memory = Arc::new(Memory::new(shape));
        (SlotProducer::new(Arc::clone(&memory), shape), SlotConsumer::new(memory, shape))
    }

    /// The producer signals only a sleeping consumer, and the consumer sleeps whenever the ring is empty: all packets
    /// arrive in order, and the consumer never sleeps for ever (the model checker would report a deadlock).
    #[test]
    fn no_wake_up_is_lost() {
        let model = || {
            let (mut producer, mut consumer) = ring();
            let descriptor = Arc::new(Notify::new());
            let signal = Arc::clone(&descriptor);
            let thread = loom::thread::spawn(move || {
                for tag in 0..2u32 {
                    let note = Note { tag, ..Note::default() };
                    producer.push(note, &[tag as u8; 4]).expect("the ring has room for all");
                    if producer.publish() {
                        signal.notify();
                    }
                }
            });
            let mut expected = 0;
            while expected < 2 {
                let mut into = [0xff; 4];
                if let Some(slot) = consumer.pop_into(&mut into) {
                    assert_eq!((slot.expect("sound").note.tag, into), (expected, [expected as u8; 4]));
                    expected += 1;
                    continue;
                }
                consumer.arm();
                if !consumer.look() {
                    descriptor.wait();
                }
                consumer.disarm();
            }
            thread.join().expect("the producer ends");
        };
        let mut builder = loom::model::Builder::new();
        // Exploring every interleaving takes half a minute; a lost wake-up shows with fewer preemptions than these.
        builder.preemption_bound = Some(3);
        builder.check(model);
    }

    /// Over a ring that is full half the time: both sides never touch a slot at the same time, and no packet comes
    /// twice.
    #[test]
    fn slots_are_reused_only_when_read() {
        loom::model(|| {
            let (mut producer, mut consumer) = ring();
            let thread = loom::thread::spawn(move || {
                let mut sent = 0;
                while sent < 3u32 {
                    match producer.push(Note { tag: sent, ..Note::default() }, &[sent as u8]) {
                        Ok(()) => sent += 1,
                        Err(refused) => {
                            assert_eq!(refused, Refused::Full);
                            loom::thread::yield_now();
                        }
                    }
                }
            });
            let mut expected = 0;
            while expected < 3u32 {
                let mut into = [0; 1];
                match consumer.pop_into(&mut into) {
                    Some(slot) => {
                        assert_eq!((slot.expect("sound").note.tag, into[0]), (expected, expected as u8));
                        expected += 1;
                    }
                    None => loom::thread::yield_now(),
                }
            }
            thread.join().expect("the producer ends");
            assert!(!consumer.look());
        });
    }
}
