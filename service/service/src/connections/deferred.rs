//! The deferred replies of a connection, and the output written after them that has to wait.

use std::collections::VecDeque;

use crate::connections::chain::Chain;
use crate::connections::host::Host;
use crate::{Job, Later, Order};

/// A part of the output that is sent in order.
enum Part {
    Bytes(Vec<u8>),
    Awaited(u64),
}

#[derive(Default)]
pub(crate) struct Deferred {
    /// Starts with the oldest reply that is awaited in order.
    parts: VecDeque<Part>,
    /// Numbers of replies that may be sent as soon as they are ready, and the ready replies that wait until
    /// another one is complete.
    unordered: Vec<u64>,
    ready: Chain,
    ordered: usize,
    /// Bytes in `parts`.
    bytes: usize,
}

impl Deferred {
    pub(crate) fn is_empty(&self) -> bool {
        self.awaited() == 0 && self.parts.is_empty() && self.ready.is_empty()
    }

    /// The number of replies still to come.
    pub(crate) const fn awaited(&self) -> usize {
        self.ordered + self.unordered.len()
    }

    /// Whether output written now has to wait for a deferred reply.
    pub(crate) fn holds_back(&self) -> bool {
        !self.parts.is_empty()
    }

    /// Bytes that wait for a reply.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of replies that wait until another one is complete. They do not reduce its room: without room it could
    /// not be distinguished from one that has ended.
    pub(crate) const fn ready_bytes(&self) -> usize {
        self.ready.len()
    }

    /// Bytes of memory of these replies.
    pub(crate) fn ready_capacity(&self) -> usize {
        self.ready.capacity()
    }

    /// Hands over to the host the work that a service deferred while it wrote `output`, and keeps back the output that
    /// has to wait.
    pub(crate) fn hand_over(&mut self, output: &mut Vec<u8>, later: &mut Later, host: &mut impl Host) {
        // Everything after the first reply that is awaited in order has to wait.
        let (mut at, mut kept) = if self.parts.is_empty() { (0, None) } else { (0, Some(0)) };
        for Job { at: before, order, work, .. } in later.take() {
            let number = host.hand_over(work);
            if order == Order::AsDone {
                self.unordered.push(number);
                continue;
            }
            if kept.is_some() {
                self.push(&output[at..before]);
            } else {
                kept = Some(before);
            }
            at = before;
            self.parts.push_back(Part::Awaited(number));
            self.ordered += 1;
        }
        if let Some(kept) = kept {
            self.push(&output[at..]);
            output.truncate(kept);
        }
    }

    /// Keeps `output` back if it has to wait for a reply.
    pub(crate) fn hold_back(&mut self, output: &mut Vec<u8>) {
        if !self.parts.is_empty() {
            self.push(output);
            output.clear();
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.bytes += bytes.len();
        match self.parts.back_mut() {
            Some(Part::Bytes(last)) => last.extend_from_slice(bytes),
            _ => self.parts.push_back(Part::Bytes(bytes.to_vec())),
        }
    }

    /// Takes the reply with this number, and adds to `unsent` everything that can be sent now. An unordered
    /// reply waits while another reply is half written. Returns whether the reply was awaited.
    pub(crate) fn done(
        &mut self,
        number: u64,
        reply: Vec<u8>,
        half_written: bool,
        unsent: &mut Chain,
    ) -> bool {
        if let Some(at) = self.unordered.iter().position(|awaited| *awaited == number) {
            self.unordered.swap_remove(at);
            self.ready.push(reply);
            if !half_written {
                self.release_ready(unsent);
            }
            return true;
        }
        let is = |part: &Part| matches!(part, Part::Awaited(awaited) if *awaited == number);
        let Some(at) = self.parts.iter().position(is) else { return false };
        self.bytes += reply.len();
        self.parts[at] = Part::Bytes(reply);
        self.ordered -= 1;
        while let Some(Part::Bytes(_)) = self.parts.front() {
            if let Some(Part::Bytes(bytes)) = self.parts.pop_front() {
                self.bytes -= bytes.len();
                unsent.push(bytes);
            }
        }
        true
    }

    /// Adds to `unsent` bytes that may be sent as soon as no reply is half written.
    pub(crate) fn push_ready(&mut self, bytes: &[u8], half_written: bool, unsent: &mut Chain) {
        // A reply that is awaited in order may be the rest of one whose beginning was already sent.
        if self.holds_back() {
            return self.push(bytes);
        }
        self.ready.push_copy(bytes);
        if !half_written {
            self.release_ready(unsent);
        }
    }

    /// Releases replies that have waited for the end of another one.
    pub(crate) fn release_ready(&mut self, unsent: &mut Chain) {
        unsent.append(&mut self.ready);
    }
}
