//! Work on one thing by one thread at a time, while other things are not held up.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The things that are being worked on: at most one for each thread.
pub(super) struct Turns<T> {
    taken: Mutex<HashSet<T>>,
    freed: Condvar,
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        Self { taken: Mutex::default(), freed: Condvar::new() }
    }
}

impl<T: Copy + Eq + Hash> Turns<T> {
    /// Waits until nobody works on `thing`, and works on it until the result is dropped.
    pub(super) fn take(&self, thing: T) -> Turn<'_, T> {
        let taken = self.freed.wait_while(self.taken(), |taken| taken.contains(&thing));
        taken.unwrap_or_else(PoisonError::into_inner).insert(thing);
        Turn { turns: self, thing }
    }

    fn taken(&self) -> MutexGuard<'_, HashSet<T>> {
        // No code under this lock panics halfway.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Work on one thing.
pub(super) struct Turn<'a, T: Copy + Eq + Hash> {
    turns: &'a Turns<T>,
    thing: T,
}

impl<T: Copy + Eq + Hash> Drop for Turn<'_, T> {
    fn drop(&mut self) {
        self.turns.taken().remove(&self.thing);
        self.turns.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn work_on_one_thing_follows_and_other_things_are_not_held_up() {
        let (turns, is_done, (sender, receiver)) = (Turns::default(), AtomicBool::new(false), channel());
        let first = turns.take(1);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                sender.send(()).expect("it is received");
                let _second = turns.take(1);
                assert!(is_done.load(Ordering::SeqCst), "the first one works still");
            });
            receiver.recv().expect("the thread runs");
            drop(turns.take(2));
            is_done.store(true, Ordering::SeqCst);
            drop(first);
        });
        drop(turns.take(1));
    }
}
