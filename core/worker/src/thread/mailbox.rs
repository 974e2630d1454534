//! Mailboxes: a ring and an eventfd that signals that there is something in it.
//!
//! A mailbox may reserve room for messages that must arrive. Ordinary messages never use that room, so a flood of
//! them cannot cause the loss of a message that must arrive.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::io::Errno;
use twinpath_rings::handoff::{self, Consumer, Producer};
use twinpath_sys::EventFd;

/// The sending end.
#[derive(Debug)]
pub struct Sender<T> {
    ring: Producer<T>,
    ready: Arc<EventFd>,
    /// Entries that only [`Sender::send_reserved`] may use.
    reserved: u32,
}

/// The receiving end.
#[derive(Debug)]
pub struct Receiver<T> {
    ring: Consumer<T>,
    ready: Arc<EventFd>,
}

/// Makes a mailbox for `len` messages.
///
/// # Errors
/// What `eventfd(2)` returns.
pub fn mailbox<T: Send>(len: u32) -> Result<(Sender<T>, Receiver<T>), Errno> {
    mailbox_with_reserve(len, 0)
}

/// Makes a mailbox for `len` ordinary messages, with room for `reserved` more that must arrive.
///
/// # Errors
/// What `eventfd(2)` returns.
pub fn mailbox_with_reserve<T: Send>(len: u32, reserved: u32) -> Result<(Sender<T>, Receiver<T>), Errno> {
    let entries = len.saturating_add(reserved).max(1).next_power_of_two();
    let (producer, consumer) = handoff::ring(entries);
    // The number of entries is a power of two: those beyond the requested number are reserved too.
    let reserved = entries - len;
    let ready = Arc::new(EventFd::new()?);
    Ok((Sender { ring: producer, ready: Arc::clone(&ready), reserved }, Receiver { ring: consumer, ready }))
}

impl<T: Send> Sender<T> {
    /// Posts `message` and wakes the receiver.
    ///
    /// # Errors
    /// Returns the message if only the reserved room is left.
    pub fn send(&mut self, message: T) -> Result<(), T> {
        self.ring.push_leaving(self.reserved, message)?;
        self.ready.signal();
        Ok(())
    }

    /// Posts a message that must arrive; it may use the reserved room.
    ///
    /// # Errors
    /// Returns the message if the reserved room is used up, too. The sender must bound the number of such messages
    /// that are unread.
    pub fn send_reserved(&mut self, message: T) -> Result<(), T> {
        self.ring.push(message)?;
        self.ready.signal();
        Ok(())
    }
}

impl<T> Drop for Sender<T> {
    /// Wakes the receiver, so that it learns that nothing more will come.
    fn drop(&mut self) {
        self.ring.close();
        self.ready.signal();
    }
}

impl<T: Send> Receiver<T> {
    /// Takes the oldest message.
    pub fn take(&mut self) -> Option<T> {
        self.ring.pop()
    }

    /// Whether there is one, or never will be again.
    #[inline]
    #[must_use]
    pub fn look(&self) -> bool {
        self.ring.look() || self.ring.is_closed()
    }

    /// Whether the sender is gone.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.ring.is_closed()
    }

    /// Silences the fd until the next message. Look again afterwards: one may have come in between.
    pub fn drain(&self) {
        self.ready.drain();
    }
}

impl<T> AsFd for Receiver<T> {
    /// Readable when a message has been posted since the last [`Receiver::drain`].
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_of_ordinary_messages_leaves_the_reserved_room() {
        let (mut sender, mut receiver) = mailbox_with_reserve(2, 2).expect("eventfd");
        while sender.send("ordinary").is_ok() {}
        assert_eq!(sender.send_reserved("must arrive"), Ok(()));
        assert_eq!(sender.send_reserved("must arrive"), Ok(()));
        assert_eq!(sender.send_reserved("one too many"), Err("one too many"));
        let arrived: Vec<_> = std::iter::from_fn(|| receiver.take()).collect();
        assert_eq!(arrived, ["ordinary", "ordinary", "must arrive", "must arrive"]);
        assert_eq!(sender.send("ordinary"), Ok(()));
    }

    #[test]
    fn a_full_mailbox_gives_the_message_back() {
        let (mut sender, mut receiver) = mailbox(1).expect("eventfd");
        assert_eq!(sender.send(1), Ok(()));
        assert_eq!(sender.send(2), Err(2));
        assert!(receiver.look());
        assert_eq!((receiver.take(), receiver.take()), (Some(1), None));
        assert!(!receiver.look());
        assert_eq!(sender.send_reserved(3), Ok(()), "without a reserve it is an ordinary message");
        assert_eq!(receiver.take(), Some(3));
        drop(sender);
        assert!(receiver.look() && receiver.is_closed(), "the end of the sender is something to look at");
    }
}
