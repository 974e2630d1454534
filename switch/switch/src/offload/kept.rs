//! Entries that a former process has left: its flows go on by them until this one's say what becomes of the frames.
//!
//! A kept entry is confirmed by flows of this process that do with all of its frames what it does, and stands for these flows
//! from then on. It is void as soon as they do anything else with any of its frames, or are said to be deleted. As long as the
//! tables have no flow for its frames but the table-miss entry, it stays, until its lease ends. What it has counted since
//! the former process ended counts for the flows that confirm it.

use std::collections::HashMap;

use twinpath_bpf::{KeptEntry, OffloadEntry, SteerError};
use twinpath_forwarding::openflow::pipeline::{Count, ExactKey, Pipeline, Trace};
use twinpath_openflow_wire::Match;
use twinpath_time::Instant;

use crate::offload::{Lifetime, Offloaded, entry_to};

/// Entries that are not confirmed, and what they have counted.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// Of ports that are not known yet.
    left: Vec<KeptEntry>,
    counts: HashMap<u32, Count>,
    /// When the last of them ends.
    ends: Option<Instant>,
}

impl Kept {
    pub(crate) fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    pub(crate) fn forget(&mut self, number: u32) {
        self.counts.remove(&number);
    }

    pub(crate) fn counted(&mut self, number: u32, more: Count) {
        if let Some(count) = self.counts.get_mut(&number) {
            count.packets += more.packets;
            count.bytes += more.bytes;
        }
    }
}

/// What has become of kept entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Review {
    pub confirmed: usize,
    pub made_void: usize,
}

impl Offloaded {
    /// Goes on with entries of a former process. It is done by [`Self::restore`], once the ports are known.
    pub fn adopt(&mut self, left: Vec<KeptEntry>) {
        self.kept.left = left;
    }

    /// Adds the entries of a former process whose ports are the same as then. The others are void.
    ///
    /// # Errors
    /// [`SteerError::Map`].
    pub fn restore(&mut self) -> Result<(), SteerError> {
        let left = std::mem::take(&mut self.kept.left);
        if left.is_empty() {
            return Ok(());
        }
        let mut outcome = Ok(());
        let mut taken = Vec::new();
        let mut kept: HashMap<u32, KeptEntry> = HashMap::new();
        for found in left {
            let key = ExactKey { value: found.value, mask: found.bits };
            let to = self.ports.iter().find(|(_, port)| port.ifindex == found.entry.ifindex);
            let from = self.ports.get(&key.in_port().into()).map(|port| port.ifindex);
            match to.filter(|_| from.is_some() && from == found.from) {
                Some((output, port)) => {
                    let entry = OffloadEntry {
                        peer: port.peer,
                        frame_len_max: port.frame_len_max,
                        by_xdp: port.takes_xdp,
                        ..found.entry
                    };
                    if entry != found.entry {
                        outcome = outcome.and(self.offload.put_again(found.mask, &found.value, &entry));
                    }
                    taken.push((entry.number, found.mask, key, *output));
                    kept.insert(entry.number, found);
                }
                None => {
                    // It may be a port that no longer may have entries, such as one that is mirrored now.
                    if let Some(ifindex) = found.from {
                        outcome = outcome.and(self.offload.look_for_entries(ifindex, 0, 0));
                    }
                    outcome = outcome.and(self.offload.remove(found.mask, &found.value));
                }
            }
        }
        for refused in self.entries.restore(taken) {
            let Some(found) = kept.remove(&refused) else { continue };
            outcome = outcome.and(self.offload.remove(found.mask, &found.value));
        }
        for (number, found) in &kept {
            self.recorded[*number as usize] = found.counted;
            self.kept.counts.insert(*number, Count::default());
            self.kept.ends = self.kept.ends.max(found.entry.deadline);
        }
        for (number, port) in &self.ports {
            let masks = self.entries.masks_of(*number);
            outcome = outcome.and(self.offload.look_for_entries(port.ifindex, *number as u16, masks));
        }
        outcome
    }

    /// When kept entries that no flow has confirmed become void.
    #[must_use]
    pub fn kept_until(&self) -> Option<Instant> {
        self.kept.ends.filter(|_| !self.kept.is_empty())
    }

    /// Entries for frames from or to a port are void.
    ///
    /// # Errors
    /// [`SteerError::Map`].
    pub fn clear_port(&mut self, number: u32) -> Result<(), SteerError> {
        let concerned = self.entries.of_port(number);
        self.make_void(concerned)
    }

    /// How many entries are kept that no flow has confirmed.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.kept.counts.len()
    }

    /// Flows with this match were added, or changed what they do: kept entries of which they may take frames are confirmed,
    /// void, or stay.
    ///
    /// # Errors
    /// [`SteerError::Map`].
    pub fn review(
        &mut self,
        now: Instant,
        pipeline: &mut Pipeline,
        fields: &Match,
        lifetime: impl Fn(&Trace) -> Lifetime,
    ) -> Result<Review, SteerError> {
        let mut review = Review::default();
        if self.kept.is_empty() {
            return Ok(review);
        }
        let mut outcome = Ok(());
        for number in self.entries.kept_overlapping(fields) {
            let Some(entry) = self.entries.get(number) else { continue };
            let trace = pipeline.trace_key(&entry.key);
            let is_same = trace.verdict() == Ok(entry.output)
                && trace.exact_key().is_ok_and(|wanted| entry.key.is_within(&wanted));
            if is_same {
                review.confirmed += 1;
                outcome = outcome.and(self.confirm(now, pipeline, number, &trace, lifetime(&trace)));
            } else if !trace.path().is_missed() {
                review.made_void += 1;
                outcome = outcome.and(self.make_void([number]));
            }
        }
        outcome.map(|()| review)
    }

    /// The entry stands for the flows of a trace from now on.
    pub(crate) fn confirm(
        &mut self,
        now: Instant,
        pipeline: &mut Pipeline,
        number: u32,
        trace: &Trace,
        lifetime: Lifetime,
    ) -> Result<(), SteerError> {
        self.record(pipeline, number);
        self.entries.confirm(number, trace.path());
        let count = self.kept.counts.remove(&number).unwrap_or_default();
        let Some(entry) = self.entries.get(number) else { return Ok(()) };
        let Some(port) = self.ports.get(&entry.output) else { return self.make_void([number]) };
        if count.packets > 0 {
            pipeline.record(&entry.path, count, self.offload.used(number));
        }
        let words = entry_to(number, port, lifetime);
        // In the place of the other one: every frame finds one of the two.
        self.offload.put(entry.mask, &entry.key.value, &words, now)
    }

    /// Flows with this match, and this output if one is given, are said to be gone: so are those of a former process.
    ///
    /// # Errors
    /// [`SteerError::Map`].
    pub fn deleted(&mut self, fields: &Match, output: Option<u32>) -> Result<usize, SteerError> {
        if self.kept.is_empty() {
            return Ok(0);
        }
        let mut concerned = self.entries.kept_overlapping(fields);
        concerned.retain(|number| {
            output.is_none_or(|port| self.entries.get(*number).is_some_and(|entry| entry.output == port))
        });
        let count = concerned.len();
        self.make_void(concerned).map(|()| count)
    }

    /// No flow has confirmed what is left of kept entries: they are void.
    ///
    /// # Errors
    /// [`SteerError::Map`].
    pub fn give_up_kept(&mut self) -> Result<usize, SteerError> {
        let kept = self.entries.kept();
        self.kept.ends = None;
        let count = kept.len();
        self.make_void(kept).map(|()| count)
    }
}
