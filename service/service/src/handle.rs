//! Sending from other threads: a handle of a service on its worker.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use crate::outbox::{ConnectionId, Recipient};

/// Maximum length of one message, bytes.
const MESSAGE_BYTES_MAX: usize = 64 << 10;

/// A message from another thread to a worker, about one of its services.
#[derive(Debug, PartialEq, Eq)]
pub enum Message {
    /// Send these bytes.
    Send(Recipient, Vec<u8>),
    /// Tell the service: see [`Service::notified`](crate::Service::notified).
    Notify(u64),
}

impl Message {
    /// The bytes that it holds.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self {
            Self::Send(_, bytes) => bytes.len(),
            Self::Notify(_) => 0,
        }
    }

    /// Whether it holds no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The bounded queue of such messages, which wakes the worker.
pub trait MessageQueue: Send + Sync {
    /// Adds a message; never blocks.
    ///
    /// # Errors
    /// [`NotSent::Full`] and [`NotSent::Ended`].
    fn push(&self, message: Message) -> Result<(), NotSent>;
}

/// The reason why a message was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotSent {
    /// The queue is full; counted as `send_queue_full`. Try again later, or drop the message.
    #[error("too much waits for the worker")]
    Full,
    /// A message has at most 64 KiB.
    #[error("a message has 64 KiB at most")]
    TooLong,
    /// The worker has ended, or does not serve this service any more.
    #[error("the service has ended")]
    Ended,
}

/// Sends for a service from any thread, through one of its workers: to peers, on connections of that
/// worker, and to the service itself. Its calls never block. All clones share one queue, limited to 1024
/// messages and 4 MiB.
///
/// A service gets it in [`Service::start`](crate::Service::start), and must return true from
/// [`Service::sends_later`](crate::Service::sends_later).
#[derive(Clone)]
pub struct SendHandle(Arc<dyn MessageQueue>);

impl fmt::Debug for SendHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SendHandle")
    }
}

impl SendHandle {
    /// A handle of this queue.
    #[must_use]
    pub fn new(queue: Arc<dyn MessageQueue>) -> Self {
        Self(queue)
    }

    /// Sends a datagram from an address of the service to a peer, by the path that leads there at that
    /// time.
    ///
    /// # Errors
    /// [`NotSent`]; what happens to it afterwards is counted, as for [`Outbox::send_from`](crate::Outbox::send_from).
    pub fn send_from(
        &self,
        local: SocketAddr,
        peer: SocketAddr,
        datagram: impl Into<Vec<u8>>,
    ) -> Result<(), NotSent> {
        self.send(Recipient::Peer { local, peer }, datagram.into())
    }

    /// Sends bytes on a connection of its worker.
    ///
    /// # Errors
    /// [`NotSent`]; what happens to them afterwards is counted, as for [`Outbox::send_on`](crate::Outbox::send_on).
    pub fn send_on(&self, connection: ConnectionId, bytes: impl Into<Vec<u8>>) -> Result<(), NotSent> {
        self.send(Recipient::Connection(connection), bytes.into())
    }

    /// Makes the worker call [`Service::notified`](crate::Service::notified) with this number.
    ///
    /// # Errors
    /// [`NotSent`].
    pub fn notify(&self, number: u64) -> Result<(), NotSent> {
        self.0.push(Message::Notify(number))
    }

    fn send(&self, to: Recipient, bytes: Vec<u8>) -> Result<(), NotSent> {
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Err(NotSent::TooLong);
        }
        self.0.push(Message::Send(to, bytes))
    }
}

/// The information about its worker that a clone of a service gets when it begins.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Begin {
    /// The worker's number, from 0. A stand-in for a stuck worker has the number after the last.
    pub worker: u32,
    /// Sends from other threads, if the service [sends later](crate::Service::sends_later).
    pub sender: Option<SendHandle>,
}

impl Begin {
    /// The service begins on this worker.
    #[must_use]
    pub const fn new(worker: u32, sender: Option<SendHandle>) -> Self {
        Self { worker, sender }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    struct Queue(Mutex<Vec<Message>>);

    impl MessageQueue for Queue {
        fn push(&self, message: Message) -> Result<(), NotSent> {
            let mut messages = self.0.lock().expect("no panic");
            if messages.len() == 2 {
                return Err(NotSent::Full);
            }
            messages.push(message);
            Ok(())
        }
    }

    #[test]
    fn messages_are_passed_on_if_they_are_not_too_long() {
        let queue = Arc::new(Queue(Mutex::default()));
        let handle = SendHandle::new(Arc::clone(&queue) as Arc<dyn MessageQueue>);
        let connection = ConnectionId::new(1, 2);
        assert_eq!(handle.send_on(connection, vec![0; MESSAGE_BYTES_MAX + 1]), Err(NotSent::TooLong));
        assert_eq!((handle.send_on(connection, b"bytes"), handle.clone().notify(7)), (Ok(()), Ok(())));
        assert_eq!(handle.notify(8), Err(NotSent::Full));
        let expected =
            [Message::Send(Recipient::Connection(connection), b"bytes".to_vec()), Message::Notify(7)];
        assert_eq!(*queue.0.lock().expect("no panic"), expected);
    }
}
