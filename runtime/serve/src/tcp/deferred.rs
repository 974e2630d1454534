//! Replies of a connection that are still to come, and what was written after them and waits.

use std::collections::VecDeque;

use twinpath_service::{Later, Order};

use crate::pool::{Asker, Desk};

/// What leaves in order.
enum Part {
    Bytes(Vec<u8>),
    Awaited(u64),
}

#[derive(Default)]
pub(crate) struct Deferred {
    /// From the oldest reply on that is awaited in order.
    parts: VecDeque<Part>,
    /// Tickets of replies that leave as soon as they are there.
    unordered: Vec<u64>,
    ordered: usize,
    bytes: usize,
}

impl Deferred {
    pub(crate) fn is_empty(&self) -> bool {
        self.awaited() == 0 && self.parts.is_empty()
    }

    /// Replies still to come.
    pub(crate) const fn awaited(&self) -> usize {
        self.ordered + self.unordered.len()
    }

    /// Whether what is written now has to wait for a reply.
    pub(crate) fn holds_back(&self) -> bool {
        !self.parts.is_empty()
    }

    /// Bytes that wait.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Gives the desk what a service handed over while it wrote `output`, and keeps back what has to wait.
    pub(crate) fn hand_over(
        &mut self,
        number: u32,
        output: &mut Vec<u8>,
        later: &mut Later,
        desk: &mut Desk,
    ) {
        let (mut pending, mut at, mut passes) = (Vec::new(), 0, !self.parts.is_empty());
        let mut kept = if passes { 0 } else { output.len() };
        for job in later.take() {
            let ticket = desk.hand_over(Asker::Connection(number), job.work);
            if job.order == Order::AsDone {
                self.unordered.push(ticket);
                continue;
            }
            pending.push((job.at, ticket));
        }
        for (before, ticket) in pending {
            if passes {
                self.push(&output[at..before]);
            } else {
                (kept, passes) = (before, true);
            }
            self.parts.push_back(Part::Awaited(ticket));
            self.ordered += 1;
            at = before;
        }
        if passes {
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

    /// Takes a reply that has come; adds to `unsent` what may leave now. Says whether it was awaited.
    pub(crate) fn done(&mut self, ticket: u64, reply: Vec<u8>, unsent: &mut Vec<u8>) -> bool {
        if let Some(at) = self.unordered.iter().position(|awaited| *awaited == ticket) {
            self.unordered.swap_remove(at);
            unsent.extend_from_slice(&reply);
            return true;
        }
        let is = |part: &Part| matches!(part, Part::Awaited(awaited) if *awaited == ticket);
        let Some(at) = self.parts.iter().position(is) else { return false };
        self.bytes += reply.len();
        self.parts[at] = Part::Bytes(reply);
        self.ordered -= 1;
        while let Some(Part::Bytes(_)) = self.parts.front() {
            if let Some(Part::Bytes(bytes)) = self.parts.pop_front() {
                self.bytes -= bytes.len();
                unsent.extend_from_slice(&bytes);
            }
        }
        true
    }
}
