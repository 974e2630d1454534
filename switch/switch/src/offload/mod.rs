//! Flows of a switch that the kernel forwards between the interfaces of one network namespace.
//!
//! [`Offloaded`] keeps three in step: the entries that there are ([`ExactEntries`]), the kernel's maps ([`Offload`]), and the
//! counters of the flows ([`Pipeline`]).
//!
//! When flows, groups or ports change, the entries that this concerns are made void before the change is published. That is in
//! force at once: a frame that arrives later goes to a worker. Before a version is said to be taken
//! ([`Pipeline::taken`]), [`Offloaded::settle`] adds what the void entries have counted to the flows, when nothing counts by
//! them any more; that takes microseconds, and nothing at all if no entry was made void. So what is reported of a flow that is
//! gone is all of it.
//!
//! What users see of it is in docs/switch.md.
//!
//! Frames between learned addresses have entries as well ([`Learned`]), which no flow counts.
//!
//! Never here: which flows are worth it, messages, time-outs of flows. All calls are made by control.

mod homes;
mod kept;
mod learned;
mod moves;
mod peer;

use std::collections::{HashMap, HashSet};

use twinpath_bpf::{Offload, OffloadCount, OffloadEntry, SteerError, Unmoved};
use twinpath_forwarding::openflow::pipeline::{
    Count, ExactEntries, FlowId, Inserted, Path, Pipeline, Trace, WhyNot,
};
use twinpath_openflow_wire::Match;
use twinpath_time::{Duration, Instant};

pub use self::homes::OffloadedHomes;
pub use self::kept::Review;
pub use self::learned::Learned;
pub use self::moves::{LEARNED_HOMES_MAX, Moves};
pub use self::peer::peer_of;

use self::kept::Kept;

/// An interface that is a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelPort {
    /// Its index.
    pub ifindex: u32,
    /// The address of the other end, if it is a virtual pair whose other end is in another network namespace.
    pub peer: Option<[u8; 6]>,
    /// Bytes of the longest frame that it sends, without a tag.
    pub frame_len_max: u32,
    /// Its driver looks for entries, by an XDP program of ours.
    pub has_xdp: bool,
    /// It takes frames from XDP programs of other ports.
    pub takes_xdp: bool,
}

/// How long an entry is good for: no longer than any of its flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lifetime {
    /// From when on it is void.
    pub deadline: Option<Instant>,
    /// It is void when none of its frames has come for this time.
    pub idle: Option<Duration>,
    /// It is void when the source or the destination of its frames has moved.
    pub unmoved: Option<Unmoved>,
}

/// Where frames that the kernel has forwarded count, beside their ports.
pub trait Record {
    /// This many more have gone this way, the last of them at `used`.
    fn record(&mut self, path: &Path, more: Count, used: Instant);
}

impl Record for Pipeline {
    fn record(&mut self, path: &Path, more: Count, used: Instant) {
        Self::record(self, path, more, used);
    }
}

/// Nowhere: there are no flows.
#[derive(Clone, Copy, Debug, Default)]
pub struct PortsAlone;

impl Record for PortsAlone {
    fn record(&mut self, _: &Path, _: Count, _: Instant) {}
}

/// Where in the kernel frames are forwarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Hooks {
    pub tc: bool,
    pub xdp: bool,
}

impl Hooks {
    /// At one of them, or at both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self { tc: self.tc || other.tc, xdp: self.xdp || other.xdp }
    }

    /// As `show flows` has it; empty for none.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match (self.tc, self.xdp) {
            (false, false) => "",
            (true, false) => "tc",
            (false, true) => "xdp",
            (true, true) => "tc and xdp",
        }
    }
}

/// Why the kernel does not forward the frames of a trace.
#[derive(Debug, thiserror::Error)]
pub enum NotOffloaded {
    /// They are none that it could forward.
    #[error("not in the kernel: {}", .0.name())]
    WhyNot(WhyNot),
    /// It refuses.
    #[error(transparent)]
    Kernel(#[from] SteerError),
}

impl From<WhyNot> for NotOffloaded {
    fn from(why_not: WhyNot) -> Self {
        Self::WhyNot(why_not)
    }
}

/// The counters of a port's frames that the kernel has forwarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct PortForwarded {
    pub packets_in: u64,
    pub bytes_in: u64,
    pub packets_out: u64,
    pub bytes_out: u64,
}

/// The entries of one network namespace.
#[derive(Debug)]
pub struct Offloaded {
    offload: Offload,
    entries: ExactEntries,
    ports: HashMap<u32, KernelPort>,
    /// By an entry's number, what has been added to its flows.
    recorded: Vec<OffloadCount>,
    /// By the OpenFlow number of a port, as recorded so far.
    forwarded: HashMap<u32, PortForwarded>,
    /// Void entries whose last counts have not been added.
    leaving: Vec<u32>,
    /// Void entries of which a port is gone, each with that port. Another port may have the number by now, and what
    /// these entries have counted is not added to it.
    departed: HashSet<(u32, u32)>,
    /// What a former process has left.
    kept: Kept,
}

impl Offloaded {
    /// No entries, and room for as many as the programs have.
    #[must_use]
    pub fn new(offload: Offload) -> Self {
        let capacity = offload.capacity() as usize;
        let recorded = vec![OffloadCount::default(); capacity];
        Self {
            offload,
            entries: ExactEntries::new(capacity),
            ports: HashMap::new(),
            recorded,
            forwarded: HashMap::new(),
            leaving: Vec::new(),
            departed: HashSet::new(),
            kept: Kept::default(),
        }
    }

    /// The kernel's end.
    #[must_use]
    pub const fn offload(&self) -> &Offload {
        &self.offload
    }

    #[doc(hidden)]
    pub const fn offload_mut(&mut self) -> &mut Offload {
        &mut self.offload
    }

    /// The entries.
    #[must_use]
    pub const fn entries(&self) -> &ExactEntries {
        &self.entries
    }

    /// Where the frames of a flow's entries are forwarded; nowhere if it has none. Frames that a port's driver does not
    /// forward, as they have headers that XDP does not see, are forwarded at tc all the same.
    #[must_use]
    pub fn hooks(&self, flow: FlowId) -> Hooks {
        let is_at_xdp = |number| {
            let entry = self.entries.get(number)?;
            let from = self.ports.get(&u32::from(entry.key.in_port()))?;
            Some(from.has_xdp && self.ports.get(&entry.output)?.takes_xdp)
        };
        self.entries.of_flow(flow).fold(Hooks::default(), |hooks, number| {
            let xdp = is_at_xdp(number).unwrap_or(false);
            hooks.and(Hooks { tc: !xdp, xdp })
        })
    }

    /// Says what a port is, by its OpenFlow number; `None`: no interface of this network namespace. Entries for its frames, or
    /// to it, are void if that changes.
    ///
    /// # Errors
    /// [`SteerError::Map`].
    pub fn set_port(&mut self, number: u32, port: Option<KernelPort>) -> Result<(), SteerError> {
        if self.ports.get(&number).copied() == port {
            return Ok(());
        }
        let concerned = self.entries.of_port(number);
        self.make_void(concerned)?;
        match port {
            Some(port) => self.ports.insert(number, port),
            None => self.ports.remove(&number),
        };
        Ok(())
    }

    /// Whether that is a port of this network namespace.
    #[must_use]
    pub fn has_port(&self, number: u32) -> bool {
        self.ports.contains_key(&number)
    }

    /// Removes the ports for which this is not true. What has been forwarded from and to them is forgotten, so the next
    /// port with that number begins at zero.
    ///
    /// # Errors
    /// [`SteerError::Map`].
    pub fn keep_ports(&mut self, is_there: impl Fn(u32) -> bool) -> Result<(), SteerError> {
        let gone: Vec<u32> = self.ports.keys().copied().filter(|number| !is_there(*number)).collect();
        let outcome = gone.into_iter().try_for_each(|number| self.set_port(number, None));
        for number in &self.leaving {
            let Some(entry) = self.entries.get(*number) else { continue };
            let ports = [entry.key.in_port().into(), entry.output].into_iter();
            self.departed.extend(ports.filter(|port| !is_there(*port)).map(|port| (*number, port)));
        }
        self.forwarded.retain(|number, _| is_there(*number));
        outcome
    }

    /// Has the kernel forward the frames of a trace, if it can; `trace` is of the flows as they are now. If it does already,
    /// the entry is good for its idle time again. Returns the number of the entry, and whether it is new.
    ///
    /// # Errors
    /// [`NotOffloaded`]; then workers go on forwarding them.
    pub fn offer(
        &mut self,
        now: Instant,
        trace: &Trace,
        lifetime: Lifetime,
    ) -> Result<Inserted, NotOffloaded> {
        let to = self.ports.get(&trace.verdict()?).copied().ok_or(WhyNot::Port)?;
        let key = trace.exact_key()?;
        let in_port = u32::from(key.in_port());
        let from = *self.ports.get(&in_port).ok_or(WhyNot::Port)?;
        if from.ifindex == to.ifindex {
            return Err(WhyNot::Port.into());
        }
        let inserted = self.entries.insert(trace)?;
        let number = match inserted {
            Inserted::Before(number) => {
                self.offload.used_at(number, now);
                return Ok(inserted);
            }
            Inserted::Now(number) => number,
        };
        let mask = self.entries.get(number).map_or(0, |entry| entry.mask);
        let entry = entry_to(number, &to, lifetime);
        self.recorded[number as usize] = self.offload.count(number);
        let masks = self.entries.masks_of(in_port);
        let offload = &mut self.offload;
        let put = offload
            .set_mask(mask, &key.mask)
            .and_then(|()| offload.put(mask, &key.value, &entry, now))
            .and_then(|()| offload.look_for_entries(from.ifindex, key.in_port(), masks));
        if let Err(error) = put {
            self.make_void([number])?;
            return Err(error.into());
        }
        Ok(inserted)
    }

    /// Gives an entry another lifetime. It goes on being idle since then.
    ///
    /// # Errors
    /// [`SteerError::Map`].
    pub fn prolong(&mut self, number: u32, lifetime: Lifetime) -> Result<(), SteerError> {
        let Some(entry) = self.entries.get(number).filter(|_| self.entries.is_in_force(number)) else {
            return Ok(());
        };
        let Some(to) = self.ports.get(&entry.output) else { return Ok(()) };
        self.offload.put_again(entry.mask, &entry.key.value, &entry_to(number, to, lifetime))
    }

    /// These entries are void.
    ///
    /// # Errors
    /// [`SteerError::Map`].
    pub fn end(&mut self, numbers: impl IntoIterator<Item = u32>) -> Result<(), SteerError> {
        self.make_void(numbers)
    }

    /// A flow was added, or is about to be: entries whose frames it may take are void.
    ///
    /// # Errors
    /// [`SteerError::Map`].
    pub fn flow_added(&mut self, table: u8, priority: u16, fields: &Match) -> Result<(), SteerError> {
        let concerned = self.entries.overlapping(table, priority, fields);
        self.make_void(concerned)
    }

    /// A flow does something else from now on, or is gone: its entries are void.
    ///
    /// # Errors
    /// [`SteerError::Map`].
    pub fn flow_changed(&mut self, flow: FlowId) -> Result<(), SteerError> {
        let concerned: Vec<u32> = self.entries.of_flow(flow).collect();
        self.make_void(concerned)
    }

    /// A group has changed, and so may others that it leads to: entries whose frames go through any are void.
    ///
    /// # Errors
    /// [`SteerError::Map`].
    pub fn groups_changed(&mut self) -> Result<(), SteerError> {
        let concerned = self.entries.of_groups();
        self.make_void(concerned)
    }

    /// Makes all entries void: first by one store, and then takes them out.
    ///
    /// # Errors
    /// [`SteerError::Map`].
    pub fn clear(&mut self) -> Result<(), SteerError> {
        self.offload.void_all();
        let all: Vec<u32> = self.entries.numbers().collect();
        self.make_void(all)
    }

    /// Makes all entries void that flows of this process stand for.
    ///
    /// # Errors
    /// [`SteerError::Map`].
    pub fn clear_own(&mut self) -> Result<(), SteerError> {
        if self.kept.is_empty() {
            return self.clear();
        }
        let own = self.entries.which(|entry| !entry.is_kept);
        self.make_void(own)
    }

    fn make_void(&mut self, numbers: impl IntoIterator<Item = u32>) -> Result<(), SteerError> {
        let mut outcome = Ok(());
        for number in numbers {
            let Some(entry) = self.entries.make_void(number) else { continue };
            let (mask, value, in_port) = (entry.mask, entry.key.value, entry.key.in_port());
            self.leaving.push(number);
            outcome = outcome.and(self.offload.remove(mask, &value));
            let masks = self.entries.masks_of(u32::from(in_port));
            if masks & 1 << mask == 0
                && let Some(port) = self.ports.get(&u32::from(in_port))
            {
                outcome = outcome.and(self.offload.look_for_entries(port.ifindex, in_port, masks));
            }
        }
        outcome
    }

    /// Adds to their flows what void entries have counted, once nothing counts by them any more. To be called before
    /// [`Pipeline::taken`].
    ///
    /// # Errors
    /// [`SteerError::Map`]; then it has to be called again.
    pub fn settle(&mut self, pipeline: &mut impl Record) -> Result<(), SteerError> {
        if self.leaving.is_empty() {
            return Ok(());
        }
        self.offload.settle()?;
        for number in std::mem::take(&mut self.leaving) {
            self.record(pipeline, number);
            self.kept.forget(number);
            self.entries.forget(number);
        }
        self.departed.clear();
        Ok(())
    }

    /// What has been forwarded from and to a port, as recorded so far.
    #[must_use]
    pub fn forwarded(&self, port: u32) -> PortForwarded {
        self.forwarded.get(&port).copied().unwrap_or_default()
    }

    /// Adds to a flow what the kernel has counted for it until now; and to others that its frames match too.
    pub fn record_flow(&mut self, pipeline: &mut impl Record, flow: FlowId) {
        let numbers: Vec<u32> = self.entries.of_flow(flow).collect();
        numbers.into_iter().for_each(|number| self.record(pipeline, number));
    }

    /// Adds to all flows what the kernel has counted for them until now.
    pub fn record_all(&mut self, pipeline: &mut impl Record) {
        let numbers: Vec<u32> = self.entries.numbers().collect();
        numbers.into_iter().for_each(|number| self.record(pipeline, number));
    }

    fn record(&mut self, pipeline: &mut impl Record, number: u32) {
        let Some(entry) = self.entries.get(number) else { return };
        let count = self.offload.count(number);
        let recorded = std::mem::replace(&mut self.recorded[number as usize], count);
        let more = Count {
            packets: count.packets.wrapping_sub(recorded.packets),
            bytes: count.bytes.wrapping_sub(recorded.bytes),
        };
        if more.packets > 0 {
            let is_there = |port| !self.departed.contains(&(number, port));
            let [from, to] = [u32::from(entry.key.in_port()), entry.output];
            if is_there(from) {
                let from = self.forwarded.entry(from).or_default();
                from.packets_in += more.packets;
                from.bytes_in += more.bytes;
            }
            if is_there(to) {
                let to = self.forwarded.entry(to).or_default();
                to.packets_out += more.packets;
                to.bytes_out += more.bytes;
            }
            if entry.is_kept {
                self.kept.counted(number, more);
            } else {
                pipeline.record(&entry.path, more, self.offload.used(number));
            }
        }
    }
}

/// What the programs are told of an entry whose frames leave by that port.
const fn entry_to(number: u32, to: &KernelPort, lifetime: Lifetime) -> OffloadEntry {
    OffloadEntry {
        number,
        ifindex: to.ifindex,
        peer: to.peer,
        frame_len_max: to.frame_len_max,
        by_xdp: to.takes_xdp,
        deadline: lifetime.deadline,
        idle: lifetime.idle,
        unmoved: lifetime.unmoved,
    }
}
