//! Hands what is in rings that are no longer read over to the kernel's sockets.

use twinpath_sys::clock;

use crate::program::Ring;
use crate::{HANDED_EVERY, Owner};

impl Owner {
    /// A program has gone: what it has not read is for those who have its sockets as well.
    pub(crate) fn give_all_unread(&mut self, at: usize) {
        let program = &self.programs[at];
        let (Some(interface), Some(process)) = (&self.leased, program.process) else { return };
        let is_unread = |ring: &&Ring| ring.number.is_some_and(|number| interface.is_unread(process, number));
        let rings: Vec<_> = program.rings.iter().filter(is_unread).map(|ring| ring.ring).collect();
        rings.into_iter().for_each(|ring| self.give_unread(at, ring));
    }

    /// Hands over what is in a ring of a program, which may name a ring that it does not have. This owner has no
    /// memory of the rings that a former owner has given.
    pub(crate) fn give_unread(&mut self, at: usize, ring: u32) {
        let program = &self.programs[at];
        let number = program.rings.iter().find(|of| of.ring == ring).and_then(|of| of.number);
        let (Some(interface), Some(process), Some(number)) = (&mut self.leased, program.process, number)
        else {
            return;
        };
        let (user, now) = (program.user, clock::now());
        if !self.handings.spend(user, now) {
            // The program goes on without what is in the ring, or ends its lease.
            tracing::debug!(user, "so much was handed over lately that only one ring in {HANDED_EVERY:?} is");
            return;
        }
        match interface.hand_over(process, number) {
            Ok(handed) => {
                self.unread.add(handed.lost);
                self.handings.charge(user, clock::now().since(now));
                tracing::debug!(pid = program.pid, "of what was in a ring: {handed:?}");
            }
            Err(error) => tracing::warn!("what is in a ring is not handed over: {error}"),
        }
    }
}
