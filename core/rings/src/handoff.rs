//! A bounded ring from one thread to another.
//!
//! The mailboxes between control and workers are such rings. When the ring is full, the producer gets its value back
//! and decides what to do (drop and count, or keep it); nothing blocks and nothing is overwritten.
#![allow(
    unsafe_code,
    reason = "slots are shared between two threads; the cursors prove that only one of them touches a slot at a time"
)]

use std::mem::MaybeUninit;

use crate::cursor::{ConsumerCursor, ProducerCursor};
use crate::sync::{Arc, AtomicBool, AtomicU32, Ordering, UnsafeCell};

/// Keeps the two positions on cache lines of their own (128: adjacent lines are fetched in pairs).
#[derive(Debug)]
#[repr(align(128))]
struct Line<T>(T);

#[derive(Debug)]
struct Shared<T> {
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
    head: Line<AtomicU32>,
    tail: Line<AtomicU32>,
    closed: AtomicBool,
}

// SAFETY: a slot is touched by the producer only between the consumer's release of it and its own, and by the consumer
// only the other way round; so values of a `Send` type pass from one thread to the other like through a channel.
unsafe impl<T: Send> Send for Shared<T> {}
// SAFETY: as above; `&Shared` itself offers no access to a slot.
unsafe impl<T: Send> Sync for Shared<T> {}

/// The writing end.
#[derive(Debug)]
pub struct Producer<T> {
    shared: Arc<Shared<T>>,
    cursor: ProducerCursor,
}

/// The reading end.
#[derive(Debug)]
pub struct Consumer<T> {
    shared: Arc<Shared<T>>,
    cursor: ConsumerCursor,
}

/// Makes a ring of `len` entries, rounded up to a power of two.
#[must_use]
pub fn ring<T: Send>(len: u32) -> (Producer<T>, Consumer<T>) {
    let len = len.max(1).next_power_of_two();
    let shared = Arc::new(Shared {
        slots: (0..len).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect(),
        head: Line(AtomicU32::new(0)),
        tail: Line(AtomicU32::new(0)),
        closed: AtomicBool::new(false),
    });
    let producer = Producer { shared: Arc::clone(&shared), cursor: ProducerCursor::new(len, 0) };
    (producer, Consumer { shared, cursor: ConsumerCursor::new(len, 0) })
}

impl<T> Producer<T> {
    /// Hands `value` over.
    ///
    /// # Errors
    /// Returns the value if the ring is full.
    pub fn push(&mut self, value: T) -> Result<(), T> {
        self.push_leaving(0, value)
    }

    /// Hands `value` over if at least `room` entries stay free after it.
    ///
    /// # Errors
    /// Returns the value if fewer would stay free.
    pub fn push_leaving(&mut self, room: u32, value: T) -> Result<(), T> {
        let shared = &self.shared;
        let wanted = room.saturating_add(1);
        // Acquire: the consumer's reads of the slot are done before we write it again.
        if self.cursor.free(wanted, || shared.tail.0.load(Ordering::Acquire)) < wanted {
            return Err(value);
        }
        // SAFETY: `free` said that the consumer has left this slot and it will not return before we publish.
        shared.slots[self.cursor.index(0)].with_mut(|slot| unsafe { (*slot).write(value) });
        // Release: the slot is written before the position says so.
        shared.head.0.store(self.cursor.advance(1), Ordering::Release);
        Ok(())
    }

    /// Tells the reader that no more values follow; dropping this end does the same.
    pub fn close(&self) {
        self.shared.closed.store(true, Ordering::Release);
    }

    /// Whether the reading end has been dropped: values pushed from now on are never read.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared.closed.load(Ordering::Acquire)
    }
}

impl<T> Consumer<T> {
    /// Takes the oldest value, if there is one.
    pub fn pop(&mut self) -> Option<T> {
        let shared = &self.shared;
        // Acquire: the producer's write of the slot is seen before we read it.
        if self.cursor.available(1, || shared.head.0.load(Ordering::Acquire)) == 0 {
            return None;
        }
        // SAFETY: `available` said that the producer has published this slot and it will not return before we release.
        let value = shared.slots[self.cursor.index(0)].with(|slot| unsafe { (*slot).assume_init_read() });
        // Release: the slot is read before the position says so.
        shared.tail.0.store(self.cursor.advance(1), Ordering::Release);
        Some(value)
    }

    /// Whether there is something to take, without taking it.
    #[must_use]
    pub fn look(&self) -> bool {
        self.cursor.peek(|| self.shared.head.0.load(Ordering::Acquire))
    }

    /// Tells the writer that no more values are taken; dropping this end does the same. Values that are in the ring, or
    /// were pushed meanwhile, can still be taken.
    pub fn close(&self) {
        self.shared.closed.store(true, Ordering::Release);
    }

    /// Whether the writing end is closed; values that it left can still be taken.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.shared.closed.load(Ordering::Acquire)
    }
}

impl<T> Drop for Producer<T> {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
    }
}

impl<T> Drop for Consumer<T> {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // Both ends are gone: the last one drops the values that were never taken, on its own thread.
        let head = self.head.0.load(Ordering::Acquire);
        let mut tail = self.tail.0.load(Ordering::Acquire);
        while tail != head {
            let index = tail as usize & (self.slots.len() - 1);
            // SAFETY: both ends are gone, and the slots between tail and head hold values that were never taken.
            self.slots[index].with_mut(|slot| unsafe { (*slot).assume_init_drop() });
            tail = tail.wrapping_add(1);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_full_ring_gives_the_value_back_and_keeps_order() {
        let (mut producer, mut consumer) = ring(2);
        assert_eq!(producer.push(1), Ok(()));
        assert_eq!(producer.push(2), Ok(()));
        assert_eq!(producer.push(3), Err(3));
        assert_eq!(consumer.pop(), Some(1));
        assert_eq!(producer.push(3), Ok(()));
        assert_eq!((consumer.pop(), consumer.pop(), consumer.pop()), (Some(2), Some(3), None));
    }

    #[test]
    fn reserved_room_is_left_for_other_messages() {
        let (mut producer, mut consumer) = ring(4);
        assert_eq!((producer.push_leaving(2, 1), producer.push_leaving(2, 2)), (Ok(()), Ok(())));
        assert_eq!(producer.push_leaving(2, 3), Err(3));
        assert_eq!((producer.push(3), producer.push(4), producer.push(5)), (Ok(()), Ok(()), Err(5)));
        assert_eq!(producer.push_leaving(u32::MAX, 6), Err(6));
        assert_eq!(consumer.pop(), Some(1));
        assert_eq!((producer.push_leaving(1, 6), producer.push_leaving(0, 6)), (Err(6), Ok(())));
    }

    #[test]
    fn values_left_in_the_ring_are_dropped_once() {
        let value = std::sync::Arc::new(());
        let (mut producer, mut consumer) = ring(4);
        for _ in 0..3 {
            producer.push(std::sync::Arc::clone(&value)).expect("room");
        }
        drop(consumer.pop());
        drop(producer);
        assert!(consumer.is_closed() && consumer.look(), "what was sent before the end is still there");
        drop(consumer);
        assert_eq!(std::sync::Arc::strong_count(&value), 1);
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;

    /// Checks every interleaving of a producer and a consumer over a ring that is full half the time.
    #[test]
    fn values_arrive_once_and_in_order() {
        loom::model(|| {
            let (mut producer, mut consumer) = ring::<u32>(2);
            let thread = loom::thread::spawn(move || {
                let mut sent = 0;
                while sent < 3 {
                    match producer.push(sent) {
                        Ok(()) => sent += 1,
                        Err(_) => loom::thread::yield_now(),
                    }
                }
            });
            let mut expected = 0;
            while expected < 3 {
                match consumer.pop() {
                    Some(value) => {
                        assert_eq!(value, expected);
                        expected += 1;
                    }
                    None => loom::thread::yield_now(),
                }
            }
            thread.join().expect("the producer ends");
            assert!(consumer.pop().is_none() && consumer.is_closed());
        });
    }

    /// The ends may be dropped in any order; a value is dropped exactly once.
    #[test]
    fn either_end_may_go_first() {
        loom::model(|| {
            let (mut producer, mut consumer) = ring::<Box<u32>>(2);
            let thread = loom::thread::spawn(move || {
                let _ = producer.push(Box::new(1));
                let _ = producer.push(Box::new(2));
            });
            drop(consumer.pop());
            drop(consumer);
            thread.join().expect("the producer ends");
        });
    }
}
