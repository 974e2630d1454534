//! Whether the consumer of rings sleeps: one word for all rings that lead to it, so that a producer signals the
//! consumer only when it is necessary.

use crate::sync::{AtomicU32, Ordering, fence};

/// The word. The consumer announces its sleep there, and a producer that has pushed something ends the announcement.
#[derive(Debug)]
pub struct Waiting(AtomicU32);

impl Default for Waiting {
    fn default() -> Self {
        Self(AtomicU32::new(0))
    }
}

impl Waiting {
    /// The consumer is about to sleep. It must look into all of its rings once more after this call, and only then
    /// sleep.
    pub fn arm(&self) {
        self.0.store(1, Ordering::Relaxed);
        // Either the consumer's look after this finds what a producer pushed before its own fence, or that producer
        // reads the announcement.
        fence(Ordering::SeqCst);
    }

    /// The consumer is awake.
    pub fn disarm(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Whether a producer that has pushed something must signal the consumer. True for at most one producer per
    /// sleep.
    pub fn must_signal(&self) -> bool {
        // See `arm`.
        fence(Ordering::SeqCst);
        self.0.load(Ordering::Relaxed) != 0 && self.0.swap(0, Ordering::Relaxed) != 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_is_signalled_once() {
        let waiting = Waiting::default();
        assert!(!waiting.must_signal());
        waiting.arm();
        assert!(waiting.must_signal() && !waiting.must_signal());
        waiting.arm();
        waiting.disarm();
        assert!(!waiting.must_signal());
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use crate::handoff::ring;
    use crate::sync::Arc;

    /// Two producers each push into their own ring. If the consumer does not find both values before it sleeps,
    /// exactly one of them signals it.
    #[test]
    fn no_push_is_slept_over_and_one_producer_signals() {
        loom::model(|| {
            let waiting = Arc::new(Waiting::default());
            let mut consumers = Vec::new();
            let producers: Vec<_> = (0..2)
                .map(|_| {
                    let (mut producer, consumer) = ring::<u32>(1);
                    consumers.push(consumer);
                    let waiting = Arc::clone(&waiting);
                    loom::thread::spawn(move || {
                        producer.push(1).expect("room");
                        u32::from(waiting.must_signal())
                    })
                })
                .collect();
            waiting.arm();
            let found = consumers.iter().filter(|consumer| consumer.look()).count();
            let signals: u32 = producers.into_iter().map(|thread| thread.join().expect("it ends")).sum();
            assert!(signals <= 1);
            assert!(found == 2 || signals == 1, "something was pushed after the look, and nobody signals");
        });
    }
}
