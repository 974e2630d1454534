//! The engine of a switch: frames that arrive on one port leave in the same turn, by the ports that the switch chooses.
//!
//! [`twinpath_forwarding::learning`] judges each frame and never touches one. Here further ports share the bytes of a frame, VLAN tags
//! are changed, and what a port does not take is done in software ([`twinpath_port::fit`]). Control sends a new snapshot
//! for each change of the configuration; the former one goes back to it, so that the worker frees nothing.
//!
//! A switch with OpenFlow tables ([`twinpath_forwarding::openflow::pipeline`]) takes each frame through them first (`tables.rs`). They send it to
//! ports, to the learning switch, or to the controllers (`outlet.rs`), the latter in memory that control has lent
//! (`packet_ins.rs`).
//!
//! Never here: a queue of its own, a timer, a decision about where a frame goes.

mod forward;
mod hosted;
mod message;
mod outlet;
mod packet_ins;
mod samples;
mod tables;

use rustix::io::Errno;
use twinpath_forwarding::learning::{Arrival, FRAMES_MAX, Judgement, NO_PORT, Probe, Runs, Switch};
use twinpath_frame::{BURST_MAX, Burst, Frame};
use twinpath_inspect::Reason;
use twinpath_port::fit::is_plain;
use twinpath_port::{PortId, packets_of};
use twinpath_time::Instant;
use twinpath_worker::{Engine, Io};

use self::forward::pass_on;
use self::message::tell_reserved;
use self::samples::{Samples, tell};
use self::tables::Tables;

pub use message::{
    Forwarding, LENT_MAX, PACKET_OUTS_MAX, PacketInBuffer, PacketOut, SAMPLES_MAX, Sample, SwitchCommand,
    SwitchEvent,
};

/// Carries frames between the ports of a switch.
#[derive(Debug)]
pub struct SwitchEngine {
    switch: Switch,
    /// Of the present burst.
    runs: Box<Runs>,
    /// OpenFlow's tables, if the switch has any.
    tables: Option<Box<Tables>>,
    /// Without tables: heads of frames that go from one learned address to another.
    samples: Samples,
}

impl SwitchEngine {
    /// One worker's engine. Its frames leave by the queue that this worker has of a port, or by the worker that has the
    /// port. `tables` are this worker's end of OpenFlow's tables; `None`: frames go by learned addresses alone.
    #[must_use]
    pub fn new(switch: Switch, tables: Option<twinpath_forwarding::openflow::pipeline::Worker>) -> Self {
        let tables = tables.map(|worker| Box::new(Tables::new(worker)));
        Self { switch, runs: Box::default(), tables, samples: Samples::new() }
    }

    /// Tells control what it should hear of, and sends what the switch asks its surroundings.
    fn pass_on_notice(&mut self, io: &mut Io<'_, SwitchEvent>) {
        while let Some(Probe { bytes, outputs }) = self.switch.take_probe() {
            let Some(mut frame) = io.take_with(&bytes) else {
                io.drops().add(Reason::PoolEmpty, 1);
                continue;
            };
            frame.meta_mut().port = NO_PORT;
            pass_on(frame, false, None, outputs, io);
        }
        if let Some(notice) = self.switch.take_notice() {
            // If it is lost, it comes again.
            let _ = io.tell(SwitchEvent::Notice(notice));
        }
    }

    /// Frames go by learned addresses.
    fn learn(&mut self, now: Instant, frames: &mut Burst, io: &mut Io<'_, SwitchEvent>) {
        let Self { switch, runs, samples, .. } = self;
        let plain = read(frames.frames(), runs);
        let mut wants_sample = samples.is_due(now);
        let mut sample = |first: Option<&Frame>, judged: &Judgement<'_>, io: &mut Io<'_, SwitchEvent>| {
            if wants_sample
                && judged.outputs.only().is_some()
                && let Some(sample) =
                    first.and_then(|first| samples.of(now, first, first.meta().port.into(), 0))
            {
                wants_sample = false;
                tell(sample, io);
            }
        };
        // As many frames as were read, in the same order.
        if let (true, Some(longest)) = (runs.is_one_flow(), plain) {
            return switch.judge_each(now, runs, |numbers, arrival, judged| {
                sample(frames.frames().first(), &judged, io);
                match judged.dropped.is_none().then(|| judged.outputs.only()).flatten() {
                    Some(port) if numbers.len() == frames.len() => io.forward_plain_to(port, frames, longest),
                    _ => pass_on_each(frames.drain(numbers.len()), arrival, &judged, io),
                }
            });
        }
        let mut frames = frames.drain(usize::MAX);
        switch.judge_each(now, runs, |numbers, arrival, judged| {
            let mut these = frames.by_ref().take(numbers.len()).peekable();
            sample(these.peek(), &judged, io);
            pass_on_each(these, arrival, &judged, io);
        });
    }
}

/// The beginning of a frame that says which flow it is of: addresses, type, and a tag among the bytes.
const HEAD: usize = 18;
const _: () = assert!(FRAMES_MAX >= BURST_MAX, "there may be as many flows as frames");

/// Reads the heads of frames. One with the head of the one before is of the same flow, which is seen at a glance. Returns the length
/// of the longest if nothing is left to be done on any of them, and none has a tag beside it.
#[inline]
fn read(frames: &[Frame], runs: &mut Runs) -> Option<usize> {
    runs.clear();
    let mut former: Option<(&[u8; HEAD], u16)> = None;
    let (mut all_plain, mut longest, mut repeated) = (true, 0, 0);
    for frame in frames {
        let (meta, bytes) = (frame.meta(), frame.bytes());
        let plain = is_plain(frame) && meta.vlan.is_none();
        all_plain &= plain;
        longest = longest.max(bytes.len());
        let present = bytes.first_chunk().filter(|_| plain).map(|head| (head, meta.port));
        if present.is_some() && present == former {
            repeated += 1;
            continue;
        }
        runs.repeat(std::mem::take(&mut repeated));
        former = present;
        let packets = u32::try_from(packets_of(frame)).unwrap_or(u32::MAX);
        let pushed = runs.push(Arrival::read(meta.port, bytes, meta.vlan, packets));
        debug_assert!(pushed.is_ok(), "a burst has no more frames");
    }
    runs.repeat(repeated);
    all_plain.then_some(longest)
}

/// Passes frames on that have the same judgement.
#[inline]
fn pass_on_each(
    frames: impl Iterator<Item = Frame>,
    arrival: &Arrival,
    judged: &Judgement<'_>,
    io: &mut Io<'_, SwitchEvent>,
) {
    let Judgement { dropped, outputs } = judged;
    if let (None, Some(port)) = (dropped, outputs.only()) {
        return io.forward_to(port, frames);
    }
    for frame in frames {
        pass_on(frame, arrival.tag_in_bytes(), *dropped, outputs.clone(), io);
    }
}

impl Engine for SwitchEngine {
    type Command = SwitchCommand;
    type Event = SwitchEvent;

    fn start(&mut self, _now: Instant, _io: &mut Io<'_, SwitchEvent>) -> Result<(), Errno> {
        Ok(())
    }

    fn receive(&mut self, now: Instant, _: PortId, frames: &mut Burst, io: &mut Io<'_, SwitchEvent>) {
        match &mut self.tables {
            Some(tables) if tables.forwarding == Forwarding::Tables => {
                tables.receive(now, frames, &mut self.switch, io);
            }
            _ => self.learn(now, frames, io),
        }
        self.pass_on_notice(io);
    }

    fn frames_per_turn(&self) -> usize {
        match &self.tables {
            Some(tables) if tables.forwarding == Forwarding::Tables => tables.frames_per_turn(),
            _ => BURST_MAX,
        }
    }

    fn ready(&mut self, _now: Instant, _token: u32, _error: bool, _io: &mut Io<'_, SwitchEvent>) -> bool {
        false
    }

    fn run(&mut self, _now: Instant, io: &mut Io<'_, SwitchEvent>) -> bool {
        self.tables.as_mut().is_some_and(|tables| tables.tell_of_left(io))
    }

    fn next_deadline(&self) -> Instant {
        let has_left = self.tables.as_ref().is_some_and(|tables| tables.has_left());
        if has_left { Instant::ZERO } else { Instant::NEVER }
    }

    fn command(&mut self, now: Instant, command: SwitchCommand, io: &mut Io<'_, SwitchEvent>) {
        let event = match command {
            SwitchCommand::Adopt(number, snapshot) => {
                // Frames that were of no use as samples may be now.
                self.samples.tables_changed();
                Some(SwitchEvent::Adopted(number, self.switch.replace(snapshot)))
            }
            SwitchCommand::LendSample(sample) if self.tables.is_none() => {
                self.samples.lend(sample).map(SwitchEvent::Sample)
            }
            command => match &mut self.tables {
                Some(tables) => tables.command(now, command, &mut self.switch, io),
                None => without_tables(command),
            },
        };
        if let Some(event) = event {
            tell_reserved(event, io);
        }
        self.pass_on_notice(io);
    }
}

/// Gives control's memory back, where a command is of no use.
fn without_tables(command: SwitchCommand) -> Option<SwitchEvent> {
    match command {
        SwitchCommand::Tables(snapshot) => {
            Some(SwitchEvent::TablesAdopted { version: snapshot.number(), former: snapshot })
        }
        SwitchCommand::Lend(buffer) => Some(SwitchEvent::PacketIn(buffer)),
        SwitchCommand::PacketOut(mut packet) => {
            packet.refused = Some(Reason::TableMiss);
            Some(SwitchEvent::PacketOutDone(packet))
        }
        SwitchCommand::Adopt(..)
        | SwitchCommand::Forward(_)
        | SwitchCommand::LendSample(_)
        | SwitchCommand::LocalPort(_)
        | SwitchCommand::PacketInRate(_) => None,
    }
}

#[cfg(test)]
mod tests;
