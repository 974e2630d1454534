//! The engine of a switch: frames that arrive on one port leave by those that the switch says, in the same turn.
//!
//! [`twinpath_switch`] judges each frame and never touches one. Here further ports share the bytes of a frame, VLAN tags
//! are changed, and what a port does not take is done in software ([`twinpath_port::fit`]). Control sends a new snapshot
//! for each change of the configuration; the former one goes back to it, so that the worker frees nothing.
//!
//! Never here: a queue of its own, a timer, a decision about where a frame goes.

mod message;
mod tables;

use rustix::io::Errno;
use twinpath_frame::{BURST_MAX, Burst, Frame};
use twinpath_inspect::Reason;
use twinpath_port::fit::remove_tag;
use twinpath_port::{PortId, packets_of};
use twinpath_switch::{Arrival, Judgement, Switch, Tagging};
use twinpath_time::Instant;
use twinpath_worker::{Engine, Io};

use self::tables::Tables;

pub use message::{
    Forwarding, LENT_MAX, PACKET_OUTS_MAX, PacketInBuffer, PacketOut, SwitchCommand, SwitchEvent,
};

/// Carries frames between the ports of a switch.
#[derive(Debug)]
pub struct SwitchEngine {
    switch: Switch,
    /// OpenFlow's tables, if the switch has any.
    tables: Option<Box<Tables>>,
}

impl SwitchEngine {
    /// One worker's engine. Its frames leave by the queue that this worker has of a port, or by the worker that has the
    /// port. `tables` are this worker's end of OpenFlow's tables; `None`: frames go by learned addresses alone.
    #[must_use]
    pub fn new(switch: Switch, tables: Option<twinpath_pipeline::Worker>) -> Self {
        Self { switch, tables: tables.map(|worker| Box::new(Tables::new(worker))) }
    }
}

impl Engine for SwitchEngine {
    type Command = SwitchCommand;
    type Event = SwitchEvent;

    fn start(&mut self, _now: Instant, _io: &mut Io<'_, SwitchEvent>) -> Result<(), Errno> {
        Ok(())
    }

    fn receive(&mut self, now: Instant, _: PortId, frames: &mut Burst, io: &mut Io<'_, SwitchEvent>) {
        let mut arrivals = [Arrival::default(); BURST_MAX];
        let count = frames.len();
        for (arrival, frame) in arrivals.iter_mut().zip(frames.frames()) {
            let meta = frame.meta();
            let packets = u32::try_from(packets_of(frame)).unwrap_or(u32::MAX);
            *arrival = Arrival::read(meta.port, frame.bytes(), meta.vlan, packets);
        }
        let arrivals = &arrivals[..count];
        let mut frames = frames.drain(usize::MAX);
        self.switch.judge_each(now, arrivals, |number, judged| {
            // As many frames as arrivals, in the same order.
            if let Some(frame) = frames.next() {
                pass_on(frame, arrivals[number].tag_in_bytes(), judged, io);
            }
        });
        drop(frames);
        if let Some(notice) = self.switch.take_notice() {
            // If it is lost, it comes again.
            let _ = io.tell(SwitchEvent::Notice(notice));
        }
    }

    fn ready(&mut self, _now: Instant, _token: u32, _error: bool, _io: &mut Io<'_, SwitchEvent>) -> bool {
        false
    }

    fn run(&mut self, _now: Instant, _io: &mut Io<'_, SwitchEvent>) -> bool {
        false
    }

    fn next_deadline(&self) -> Instant {
        Instant::NEVER
    }

    fn command(&mut self, _now: Instant, command: SwitchCommand, io: &mut Io<'_, SwitchEvent>) {
        let event = match command {
            SwitchCommand::Adopt(number, snapshot) => {
                Some(SwitchEvent::Adopted(number, self.switch.replace(snapshot)))
            }
            command => match &mut self.tables {
                Some(tables) => tables.command(command),
                None => without_tables(command),
            },
        };
        if let Some(event) = event
            && io.tell_reserved(event).is_err()
        {
            io.drops().add(Reason::MailboxFull, 1);
        }
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
        | SwitchCommand::LocalPort(_)
        | SwitchCommand::PacketInRate(_) => None,
    }
}

/// Sends a frame by each of its outputs: the last one gets the frame itself, those before it frames with the same bytes.
fn pass_on(mut frame: Frame, tag_in_bytes: bool, judged: Judgement<'_>, io: &mut Io<'_, SwitchEvent>) {
    let Judgement { dropped, mut outputs } = judged;
    if let Some(reason) = dropped {
        count_drop(frame.meta().port, reason, io);
    }
    let Some(mut output) = outputs.next() else { return io.release(frame) };
    for further in outputs {
        match io.share(&mut frame) {
            Some(twin) => send(twin, tag_in_bytes, output.tagging, output.port, io),
            None => count_drop(output.port, Reason::PoolEmpty, io),
        }
        output = further;
    }
    send(frame, tag_in_bytes, output.tagging, output.port, io);
}

/// Counts a drop at a port, or at the worker if the port is not attached.
fn count_drop(port: u16, reason: Reason, io: &Io<'_, SwitchEvent>) {
    match io.port_numbered(port) {
        Some(attached) => attached.counters().drops.add(reason, 1),
        None => io.drops().add(reason, 1),
    }
}

fn send(mut frame: Frame, tag_in_bytes: bool, tagging: Tagging, to: u16, io: &mut Io<'_, SwitchEvent>) {
    if retag(&mut frame, tag_in_bytes, tagging) {
        io.forward_to(to, frame);
    } else {
        count_drop(to, Reason::OffloadRefused, io);
        io.release(frame);
    }
}

/// Changes the outer tag of a frame. Returns whether that was possible.
#[inline]
fn retag(frame: &mut Frame, tag_in_bytes: bool, tagging: Tagging) -> bool {
    match tagging {
        Tagging::Keep => true,
        Tagging::Strip if tag_in_bytes => remove_tag(frame),
        Tagging::Strip => {
            frame.meta_mut().vlan = None;
            true
        }
        Tagging::Put(control) if tag_in_bytes => {
            let tag = frame.bytes_mut().get_mut(TAG_CONTROL);
            tag.map(|tag| tag.copy_from_slice(&control.to_be_bytes())).is_some()
        }
        // A port that has no tags beside frames takes it in (`twinpath_port::fit`).
        Tagging::Put(control) => {
            frame.meta_mut().vlan = Some(control);
            true
        }
    }
}

/// Where the control information of a tag is among a frame's bytes: after the addresses and the tag's own type.
const TAG_CONTROL: std::ops::Range<usize> = 14..16;

#[cfg(test)]
mod tests;
