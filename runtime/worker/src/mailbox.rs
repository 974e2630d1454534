//! Mailboxes: a hand-off ring and an eventfd that says there is something in it.

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
    let (producer, consumer) = handoff::ring(len);
    let ready = Arc::new(EventFd::new()?);
    Ok((Sender { ring: producer, ready: Arc::clone(&ready) }, Receiver { ring: consumer, ready }))
}

impl<T: Send> Sender<T> {
    /// Posts `message` and wakes the receiver.
    ///
    /// # Errors
    /// Gives it back when the mailbox is full.
    pub fn send(&mut self, message: T) -> Result<(), T> {
        self.ring.push(message)?;
        self.ready.signal();
        Ok(())
    }
}

#[cfg(test)]
impl<T> Sender<T> {
    /// The signal alone, as it comes when the receiver was quicker than the second half of a send.
    pub(crate) fn signal_late(&self) {
        self.ready.signal();
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
    fn a_full_mailbox_gives_the_message_back() {
        let (mut sender, mut receiver) = mailbox(1).expect("eventfd");
        assert_eq!(sender.send(1), Ok(()));
        assert_eq!(sender.send(2), Err(2));
        assert!(receiver.look());
        assert_eq!((receiver.take(), receiver.take()), (Some(1), None));
        assert!(!receiver.look());
        drop(sender);
        assert!(receiver.look() && receiver.is_closed(), "the end of the sender is something to look at");
    }
}
