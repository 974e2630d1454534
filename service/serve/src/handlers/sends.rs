//! Messages from other threads to a service on its worker: a bounded queue, and a descriptor that wakes the
//! worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use rustix::io::Errno;
use twinpath_service::{Message, MessageQueue, NotSent, SendHandle};
use twinpath_sys::EventFd;

/// Maximum number of waiting messages.
const MESSAGES_MAX: usize = 1024;

/// Maximum number of bytes in them.
const BYTES_MAX: usize = 4 << 20;

struct Shared {
    messages: SyncSender<Message>,
    /// Bytes of the messages that wait.
    bytes: AtomicUsize,
    ready: EventFd,
    /// Whether the worker has been signalled since it last looked: one signal is enough for any number of
    /// messages.
    signalled: AtomicBool,
    refused: AtomicU64,
}

/// The worker's end of the queue.
pub struct Sends {
    messages: Receiver<Message>,
    shared: Arc<Shared>,
}

impl MessageQueue for Shared {
    fn push(&self, message: Message) -> Result<(), NotSent> {
        let len = message.len();
        let with_it = |bytes: usize| Some(bytes + len).filter(|bytes| *bytes <= BYTES_MAX);
        // Relaxed: only the count matters, and the queue itself orders the messages.
        if self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, with_it).is_err() {
            return Err(self.refuse());
        }
        let refused = match self.messages.try_send(message) {
            Ok(()) => {
                self.signal();
                return Ok(());
            }
            Err(TrySendError::Full(_)) => self.refuse(),
            Err(TrySendError::Disconnected(_)) => NotSent::Ended,
        };
        self.bytes.fetch_sub(len, Ordering::Relaxed);
        Err(refused)
    }
}

impl Shared {
    /// Counts a message for which there was no room.
    fn refuse(&self) -> NotSent {
        self.refused.fetch_add(1, Ordering::Relaxed);
        // Signalled so that the worker counts it.
        self.signal();
        NotSent::Full
    }

    fn signal(&self) {
        // The worker clears this before it takes messages, so a message that it misses has signalled again.
        if !self.signalled.swap(true, Ordering::SeqCst) {
            self.ready.signal();
        }
    }
}

impl Sends {
    /// An empty queue.
    ///
    /// # Errors
    ///
    /// What `eventfd(2)` returns.
    pub fn new() -> Result<Self, Errno> {
        let (sender, messages) = sync_channel(MESSAGES_MAX);
        let shared = Shared {
            messages: sender,
            bytes: AtomicUsize::new(0),
            ready: EventFd::new()?,
            signalled: AtomicBool::new(false),
            refused: AtomicU64::new(0),
        };
        Ok(Self { messages, shared: Arc::new(shared) })
    }

    /// The other end, for any thread.
    #[must_use]
    pub fn handle(&self) -> SendHandle {
        SendHandle::new(Arc::clone(&self.shared) as Arc<dyn MessageQueue>)
    }

    /// Readable while there is a message that [`Self::drain`] has not seen.
    #[must_use]
    pub fn fd(&self) -> &EventFd {
        &self.shared.ready
    }

    /// Makes the descriptor unreadable until the next message; returns how many were refused since the last call.
    pub fn drain(&self) -> u64 {
        self.shared.ready.drain();
        self.shared.signalled.store(false, Ordering::SeqCst);
        self.shared.refused.swap(0, Ordering::Relaxed)
    }

    /// Takes the next message.
    pub fn take(&self) -> Option<Message> {
        let message = self.messages.try_recv().ok()?;
        self.shared.bytes.fetch_sub(message.len(), Ordering::Relaxed);
        Some(message)
    }

    /// Makes the descriptor readable again: messages are left for the next turn.
    pub fn go_on(&self) {
        self.shared.signal();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_message_of_any_thread_is_taken_or_refused_and_counted() {
        let sends = Sends::new().expect("an eventfd");
        let senders: Vec<_> = (0..4)
            .map(|_| {
                let handle = sends.handle();
                std::thread::spawn(move || (0..10_000).filter(|_| handle.notify(1).is_ok()).count() as u64)
            })
            .collect();
        let (mut taken, mut refused) = (0, 0);
        let mut look = || {
            refused += sends.drain();
            while sends.take().is_some() {
                taken += 1;
            }
            taken + refused
        };
        while look() < 40_000 {
            std::thread::yield_now();
        }
        let sent: u64 = senders.into_iter().map(|sender| sender.join().expect("no panic")).sum();
        assert_eq!((look(), taken), (40_000, sent));
    }

    #[test]
    fn messages_are_bounded_by_their_bytes_too() {
        let sends = Sends::new().expect("an eventfd");
        let handle = sends.handle();
        let connection = twinpath_service::ConnectionId::new(1, 2);
        let largest = vec![0; 64 << 10];
        let sent = (0..MESSAGES_MAX).take_while(|_| handle.send_on(connection, &*largest).is_ok()).count();
        assert_eq!(sent, BYTES_MAX / largest.len());
        assert_eq!((handle.send_on(connection, [0]), handle.notify(1)), (Err(NotSent::Full), Ok(())));
        assert_eq!(sends.drain(), 2);
        assert!(sends.take().is_some());
        assert_eq!(handle.send_on(connection, [0]), Ok(()));
        while sends.take().is_some() {}
        assert_eq!(sends.shared.bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_message_makes_the_descriptor_readable_until_it_is_seen() {
        let sends = Sends::new().expect("an eventfd");
        let handle = sends.handle();
        assert_eq!(sends.fd().drain(), 0);
        assert_eq!((handle.notify(1), handle.notify(2)), (Ok(()), Ok(())));
        assert_eq!(sends.fd().drain(), 1, "one signal for both");
        sends.drain();
        assert_eq!((sends.take(), sends.take()), (Some(Message::Notify(1)), Some(Message::Notify(2))));
        assert_eq!((sends.take(), handle.notify(3)), (None, Ok(())));
        assert_eq!(sends.fd().drain(), 1);
        drop(sends);
        assert_eq!(handle.notify(4), Err(NotSent::Ended));
    }
}
