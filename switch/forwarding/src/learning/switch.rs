//! A worker's end of a switch: its snapshot, what it shares with the other workers, its counters.

use std::ops::Range;
use std::sync::Arc;

use twinpath_inspect::Reason;
use twinpath_time::{Duration, Instant};
use twinpath_wire::Mac;

use crate::learning::arrival::{Arrival, mac_of};
use crate::learning::guard::{Loop, Question};
use crate::learning::judge::{self, Classified};
use crate::learning::outputs::{Judgement, Outputs, Tagged};
use crate::learning::runs::{Run, Runs};
use crate::learning::shared::Shared;
use crate::learning::snapshot::{NO_PORT, NO_VLAN, Snapshot};
use crate::learning::table::Learned;
use twinpath_inspect::SwitchCounters;

/// Minimum time between two requests of a worker to free places.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// A notice for control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// Two ports are a loop, and one of them is blocked now.
    Loop(Loop),
    /// An address was not learned for want of a place that [`MacTable::sweep`](crate::learning::MacTable::sweep) might free.
    Sweep,
}

/// Length of a probe: the shortest frame.
const PROBE_LEN: usize = 60;

/// The first of the types that are for experiments within a network (IEEE 802, 9.2).
const PROBE_TYPE: [u8; 2] = [0x88, 0xb5];

/// What a probe says to those who capture it.
const PROBE_TEXT: &[u8] = b"twinpath switch: two of my ports may be a loop";
const _: () = assert!(14 + PROBE_TEXT.len() <= PROBE_LEN);

/// A frame by which the switch finds out whether two of its ports are joined outside.
#[derive(Clone, Debug)]
pub struct Probe<'a> {
    /// The frame, without a tag.
    pub bytes: [u8; PROBE_LEN],
    /// The port that it is sent through.
    pub outputs: Outputs<'a>,
}

/// A probe that is to be sent.
#[derive(Clone, Copy, Debug)]
struct Unsent {
    port: u16,
    vlan: u16,
    source: u64,
}

/// What a worker has to tell control, or to send.
#[derive(Debug, Default)]
struct Notices {
    found: Option<Loop>,
    probes: [Option<Unsent>; 2],
    sweep: bool,
    sweep_after: Instant,
}

impl Notices {
    /// Counts the results of learning, and suspects a loop where addresses move. Most frames teach nothing new.
    #[cold]
    #[inline(never)]
    fn note(
        &mut self,
        snapshot: &Snapshot,
        shared: &Shared,
        counters: &SwitchCounters,
        now: Instant,
        (port, vlan): (u16, u16),
        learned: Learned,
    ) {
        match learned {
            Learned::Known | Learned::Static | Learned::Busy => {}
            Learned::New => counters.learned.add(1),
            Learned::Limited => {
                counters.mac_limit.add(1);
                self.want_sweep(now);
            }
            Learned::Full => {
                counters.table_full.add(1);
                self.want_sweep(now);
            }
            Learned::Moved { from } => {
                counters.moved.add(1);
                let guard = snapshot.config().loop_guard;
                let question = guard.and_then(|guard| shared.guard.moved(now, from, port, guard));
                if let Some(Question { ports: [low, high], sources }) = question {
                    let unsent = |port, source| Some(Unsent { port, vlan, source });
                    self.probes = [unsent(low, sources[0]), unsent(high, sources[1])];
                }
            }
        }
    }

    /// A probe has come in.
    #[cold]
    #[inline(never)]
    fn probe_came(
        &mut self,
        snapshot: &Snapshot,
        shared: &Shared,
        counters: &SwitchCounters,
        now: Instant,
        arrival: &Arrival,
    ) {
        let guard = snapshot.config().loop_guard;
        let found = guard.and_then(|guard| shared.guard.came_back(now, arrival.source, arrival.port, guard));
        if found.is_some() {
            counters.loops.add(1);
            self.found = found;
        }
    }

    fn want_sweep(&mut self, now: Instant) {
        if now >= self.sweep_after {
            self.sweep = true;
            self.sweep_after = now + SWEEP_INTERVAL;
        }
    }
}

/// The steps after the VLAN is known: learns the source, and then judges the frame.
#[inline]
fn judged<'a>(
    snapshot: &'a Snapshot,
    shared: &'a Shared,
    counters: &SwitchCounters,
    notices: &mut Notices,
    now: Instant,
    arrival: &Arrival,
    classified: &Classified,
) -> (Judgement<'a>, Option<Learned>) {
    if shared.guard.is_probe(arrival.source) && classified.vlan.is_ok() {
        notices.probe_came(snapshot, shared, counters, now, arrival);
        let outputs = judge::outputs_of(snapshot, arrival);
        return (Judgement { dropped: Some(Reason::Looped), outputs }, None);
    }
    let learned = judge::learn(snapshot, shared, now, arrival, classified);
    if let Some(learned) = learned.filter(|learned| *learned != Learned::Known) {
        let at = (arrival.port, classified.vlan.unwrap_or(NO_VLAN));
        notices.note(snapshot, shared, counters, now, at, learned);
    }
    (judge::forward(snapshot, shared, counters, now, arrival, classified), learned)
}

/// Whether the next frame of the same flow at the same time gets the same judgement, and changes and counts nothing.
#[inline]
fn repeated(judgement: &Judgement<'_>, learned: Option<Learned>) -> bool {
    let nothing_to_learn = matches!(learned, Some(Learned::Known | Learned::Static | Learned::New));
    nothing_to_learn && judgement.outputs.is_to_known_address()
}

/// One worker's end of a switch.
#[derive(Debug)]
pub struct Switch {
    snapshot: Arc<Snapshot>,
    shared: Arc<Shared>,
    counters: Arc<SwitchCounters>,
    notices: Notices,
}

impl Switch {
    /// A worker's end of the switch that has this snapshot and this state.
    #[must_use]
    pub fn new(snapshot: Arc<Snapshot>, shared: Arc<Shared>, counters: Arc<SwitchCounters>) -> Self {
        Self { snapshot, shared, counters, notices: Notices::default() }
    }

    /// Goes on with a new snapshot. The former one goes back to control, which frees it.
    #[must_use]
    pub fn replace(&mut self, snapshot: Arc<Snapshot>) -> Arc<Snapshot> {
        std::mem::replace(&mut self.snapshot, snapshot)
    }

    /// The snapshot in use.
    #[must_use]
    pub const fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// What the workers of the switch share.
    #[must_use]
    pub const fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// This worker's counters.
    #[must_use]
    pub const fn counters(&self) -> &Arc<SwitchCounters> {
        &self.counters
    }

    /// Judges one frame: learns its source, and says where it goes.
    pub fn judge(&mut self, now: Instant, arrival: &Arrival) -> Judgement<'_> {
        let Self { snapshot, shared, counters, notices } = self;
        let classified = judge::classify(snapshot, shared, arrival);
        judged(snapshot, shared, counters, notices, now, arrival, &classified).0
    }

    /// Judges frames in order, as [`Self::judge`] does each. Calls `each` with the numbers of consecutive frames, what
    /// is known of each of them, and their judgement. Faster than one call per frame: addresses are looked up together,
    /// and consecutive frames of one flow are judged once.
    pub fn judge_each(
        &mut self,
        now: Instant,
        runs: &mut Runs,
        mut each: impl FnMut(Range<usize>, &Arrival, Judgement<'_>),
    ) {
        let Self { snapshot, shared, counters, notices } = self;
        let runs = runs.as_mut_slice();
        for run in &mut *runs {
            run.classified = judge::classify(snapshot, shared, &run.arrival);
        }
        shared.table.fetch(runs.iter().flat_map(|run| [&run.classified.source, &run.classified.destination]));
        let mut number = 0;
        for Run { arrival, frames, classified } in runs {
            let end = number + *frames;
            while number < end {
                let (judgement, learned) =
                    judged(snapshot, shared, counters, notices, now, arrival, classified);
                let behind = if repeated(&judgement, learned) { end } else { number + 1 };
                each(number..behind, arrival, judgement);
                number = behind;
            }
        }
    }

    /// OpenFlow's output to NORMAL (OpenFlow 1.3.5, 4.5): judges a frame as [`Self::judge`], except that the copy for a mirror
    /// of the port that it came by was made when it came.
    pub fn normal(&mut self, now: Instant, arrival: &Arrival) -> Judgement<'_> {
        let Judgement { dropped, outputs } = self.judge(now, arrival);
        Judgement { dropped, outputs: outputs.without_ingress_mirror() }
    }

    /// OpenFlow's output to FLOOD: all other ports of the frame's VLAN, also if its destination is known or reserved. Nothing
    /// is learned. The storm limits and the loop guard hold here too.
    pub fn flood(&mut self, now: Instant, arrival: &Arrival) -> Judgement<'_> {
        let Judgement { dropped, outputs } =
            judge::flood(&self.snapshot, &self.shared, &self.counters, now, arrival);
        Judgement { dropped, outputs: outputs.without_ingress_mirror() }
    }

    /// The next frame to be sent, if there is one. To be called after each burst, until there is none.
    #[inline]
    pub fn take_probe(&mut self) -> Option<Probe<'_>> {
        let Unsent { port, vlan, source } = self.notices.probes.iter_mut().find_map(Option::take)?;
        let mut bytes = [0; PROBE_LEN];
        bytes[..6].copy_from_slice(&Mac::BROADCAST.0);
        bytes[6..12].copy_from_slice(&mac_of(source).0);
        bytes[12..14].copy_from_slice(&PROBE_TYPE);
        bytes[14..][..PROBE_TEXT.len()].copy_from_slice(PROBE_TEXT);
        let (none, tagged) = (Outputs::none(NO_PORT, NO_PORT), Tagged { tag: None, vlan });
        // A port that is no longer there, or not in that VLAN, gets none.
        let outputs = self.snapshot.member(port, vlan).map_or(none.clone(), |to| none.single(tagged, to));
        Some(Probe { bytes, outputs })
    }

    /// The next notice for control, if there is one. To be called after each burst. A notice that cannot be passed on
    /// may be dropped: a loop can be read from [`Shared::loops`], and a sweep is requested again.
    #[inline]
    pub fn take_notice(&mut self) -> Option<Notice> {
        if let Some(found) = self.notices.found.take() {
            return Some(Notice::Loop(found));
        }
        std::mem::take(&mut self.notices.sweep).then_some(Notice::Sweep)
    }
}
