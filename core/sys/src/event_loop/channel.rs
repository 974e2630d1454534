//! Messages between the futures of a loop, and from other threads to it. They work on any loop, as they call its waker.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// A message could not be sent; it is returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError<T> {
    /// There is no room for now.
    Full(T),
    /// The receiver has gone.
    Closed(T),
}

struct Shared<T> {
    queue: Mutex<Queue<T>>,
    /// A message was taken, or the receiver has gone.
    changed: Condvar,
}

struct Queue<T> {
    waiting: VecDeque<T>,
    room: usize,
    senders: usize,
    has_receiver: bool,
    /// Those who wait for a change.
    wakers: Vec<Waker>,
}

impl<T> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, Queue<T>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells all who wait for a change. They are called without the lock.
    fn tell(&self, mut queue: MutexGuard<'_, Queue<T>>) {
        let wakers = std::mem::take(&mut queue.wakers);
        drop(queue);
        self.changed.notify_all();
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl<T> Queue<T> {
    fn wait(&mut self, context: &Context<'_>) {
        if !self.wakers.iter().any(|waker| waker.will_wake(context.waker())) {
            self.wakers.push(context.waker().clone());
        }
    }

    fn put(&mut self, message: T) -> Result<(), SendError<T>> {
        if !self.has_receiver {
            return Err(SendError::Closed(message));
        }
        if self.waiting.len() >= self.room {
            return Err(SendError::Full(message));
        }
        self.waiting.push_back(message);
        Ok(())
    }
}

/// A channel with room for `room` messages.
#[must_use]
pub fn bounded<T>(room: usize) -> (Sender<T>, Receiver<T>) {
    let queue = Queue {
        waiting: VecDeque::new(),
        room: room.max(1),
        senders: 1,
        has_receiver: true,
        wakers: Vec::new(),
    };
    let shared = Arc::new(Shared { queue: Mutex::new(queue), changed: Condvar::new() });
    (Sender(Arc::clone(&shared)), Receiver(shared))
}

/// A channel for one message.
#[must_use]
pub fn once<T>() -> (SendOnce<T>, Receiver<T>) {
    let (sender, receiver) = bounded(1);
    (SendOnce(sender), receiver)
}

/// The sending end, of any thread.
pub struct Sender<T>(Arc<Shared<T>>);

impl<T> Sender<T> {
    /// Sends a message, if there is room.
    ///
    /// # Errors
    /// [`SendError`], with the message.
    pub fn try_send(&self, message: T) -> Result<(), SendError<T>> {
        let mut queue = self.0.lock();
        queue.put(message)?;
        self.0.tell(queue);
        Ok(())
    }

    /// Sends a message as soon as there is room.
    ///
    /// # Errors
    /// The receiver has gone: the message.
    pub async fn send(&self, message: T) -> Result<(), T> {
        let mut message = Some(message);
        poll_fn(|context| {
            let Some(taken) = message.take() else { return Poll::Pending };
            let mut queue = self.0.lock();
            match queue.put(taken) {
                Ok(()) => {
                    self.0.tell(queue);
                    Poll::Ready(Ok(()))
                }
                Err(SendError::Closed(taken)) => Poll::Ready(Err(taken)),
                Err(SendError::Full(taken)) => {
                    message = Some(taken);
                    queue.wait(context);
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Sends a message; blocks this thread, which must not be the receiver's, until there is room.
    ///
    /// # Errors
    /// The receiver has gone: the message.
    pub fn blocking_send(&self, mut message: T) -> Result<(), T> {
        let mut queue = self.0.lock();
        loop {
            match queue.put(message) {
                Ok(()) => break,
                Err(SendError::Closed(message)) => return Err(message),
                Err(SendError::Full(returned)) => message = returned,
            }
            queue = self.0.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        self.0.tell(queue);
        Ok(())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.lock().senders += 1;
        Self(Arc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut queue = self.0.lock();
        queue.senders -= 1;
        if queue.senders == 0 {
            self.0.tell(queue);
        }
    }
}

/// The sending end for one message. If it is dropped without one, the receiver gets `None`.
pub struct SendOnce<T>(Sender<T>);

impl<T> SendOnce<T> {
    /// Sends the message.
    ///
    /// # Errors
    /// The receiver has gone: the message.
    pub fn send(self, message: T) -> Result<(), T> {
        // There is room for the only message.
        self.0.try_send(message).map_err(|error| match error {
            SendError::Full(message) | SendError::Closed(message) => message,
        })
    }
}

/// The receiving end.
pub struct Receiver<T>(Arc<Shared<T>>);

impl<T> Receiver<T> {
    /// Waits for the next message; `None` once all senders have gone and all messages were taken. Cancelling it loses
    /// nothing.
    pub async fn recv(&mut self) -> Option<T> {
        poll_fn(|context| {
            let mut queue = self.0.lock();
            match queue.waiting.pop_front() {
                Some(message) => {
                    self.0.tell(queue);
                    Poll::Ready(Some(message))
                }
                None if queue.senders == 0 => Poll::Ready(None),
                None => {
                    queue.wait(context);
                    Poll::Pending
                }
            }
        })
        .await
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut queue = self.0.lock();
        queue.has_receiver = false;
        let unread = std::mem::take(&mut queue.waiting);
        self.0.tell(queue);
        // Without the lock: a message may hold a sender of this channel.
        drop(unread);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::task::Waker;

    use super::*;

    #[test]
    fn a_message_is_returned_if_there_is_no_room_or_no_receiver() {
        let (sender, receiver) = bounded(2);
        assert_eq!(
            [1, 2, 3].map(|number| sender.try_send(number)),
            [Ok(()), Ok(()), Err(SendError::Full(3))]
        );
        drop(receiver);
        assert_eq!(sender.try_send(4), Err(SendError::Closed(4)));
        assert_eq!(sender.blocking_send(5), Err(5));
        let (answer, wait) = once();
        drop(wait);
        assert_eq!(answer.send(6), Err(6));
    }

    #[test]
    fn a_thread_that_waits_for_room_is_told_when_the_receiver_goes() {
        let (sender, receiver) = bounded(1);
        sender.try_send(1).unwrap();
        let (done, ended) = mpsc::channel();
        std::thread::spawn(move || done.send(sender.blocking_send(2)));
        drop(receiver);
        assert_eq!(ended.recv_timeout(std::time::Duration::from_secs(30)), Ok(Err(2)));
    }

    #[test]
    fn one_who_has_sent_nothing_and_goes_is_noticed() {
        let (answer, mut wait) = once::<u32>();
        drop(answer);
        let mut recv = std::pin::pin!(wait.recv());
        let polled = std::future::Future::poll(recv.as_mut(), &mut Context::from_waker(Waker::noop()));
        assert_eq!(polled, Poll::Ready(None));
    }
}
