//! A value that changes, of which only the latest counts.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// A value that futures of one thread have in common.
pub struct Latest<T>(Rc<Shared<T>>);

struct Shared<T> {
    value: RefCell<T>,
    changes: Cell<u64>,
    wakers: RefCell<Vec<Waker>>,
}

impl<T> Clone for Latest<T> {
    fn clone(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
}

impl<T: Clone> Latest<T> {
    /// The first value.
    pub fn new(value: T) -> Self {
        let (value, changes, wakers) = (RefCell::new(value), Cell::default(), RefCell::default());
        Self(Rc::new(Shared { value, changes, wakers }))
    }

    /// Replaces the value.
    pub fn set(&self, value: T) {
        let former = self.0.value.replace(value);
        self.0.changes.set(self.0.changes.get() + 1);
        self.0.wakers.take().into_iter().for_each(Waker::wake);
        drop(former);
    }

    /// The present value.
    #[must_use]
    pub fn get(&self) -> T {
        self.0.value.borrow().clone()
    }

    /// How often it was replaced.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.0.changes.get()
    }

    /// Waits until it was replaced more often than that.
    pub async fn changed_since(&self, changes: u64) {
        poll_fn(|context| {
            if self.changes() != changes {
                return Poll::Ready(());
            }
            let mut wakers = self.0.wakers.borrow_mut();
            if !wakers.iter().any(|waker| waker.will_wake(context.waker())) {
                wakers.push(context.waker().clone());
            }
            Poll::Pending
        })
        .await
    }
}
