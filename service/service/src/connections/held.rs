//! The buffers of a connection: output that waits for the transport or for a reply.

use twinpath_stream::{Broken, Transport};

use crate::connections::chain::Chain;
use crate::connections::deferred::Deferred;

#[derive(Default)]
pub(crate) struct Held {
    /// Output that the transport has not taken yet.
    unsent: Chain,
    /// Deferred replies, and the output that waits for them.
    pub(crate) deferred: Deferred,
}

impl Held {
    pub(crate) fn is_empty(&self) -> bool {
        self.unsent.is_empty() && self.deferred.is_empty()
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        let deferred = self.deferred.bytes() + self.deferred.ready_capacity();
        size_of::<Self>() + self.unsent.capacity() + deferred
    }

    /// Whether the transport takes no more at the moment.
    pub(crate) const fn is_full(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Keeps output that the transport did not take, in two parts. No other output may be waiting.
    pub(crate) fn keep_unsent(&mut self, first: &[u8], then: &[u8]) {
        self.unsent.push([first, then].concat());
    }

    /// Sends waiting output; returns the number of bytes that the transport took.
    pub(crate) fn send_unsent(&mut self, transport: &mut impl Transport) -> Result<usize, Broken> {
        self.unsent.send(transport)
    }

    /// Takes the reply with this number. It is sent after the earlier ones or, if it is unordered, when no
    /// other reply is half written. Returns whether it was awaited.
    pub(crate) fn done(&mut self, number: u64, reply: Vec<u8>, half_written: bool) -> bool {
        self.deferred.done(number, reply, half_written, &mut self.unsent)
    }

    /// Adds bytes that belong to no reply, like an unordered reply. No limit may be exceeded: see
    /// [`Self::unsent`].
    pub(crate) fn push(&mut self, bytes: &[u8], half_written: bool) {
        self.deferred.push_ready(bytes, half_written, &mut self.unsent);
    }

    /// Bytes of output that the transport has not taken, or that wait for a reply.
    pub(crate) const fn unsent(&self) -> usize {
        self.unsent.len() + self.deferred.bytes() + self.deferred.ready_bytes()
    }

    /// Releases replies that have waited for the end of another one.
    pub(crate) fn release_ready(&mut self) {
        self.deferred.release_ready(&mut self.unsent);
    }
}
