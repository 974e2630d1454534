//! OpenFlow's tables on a worker: each frame that arrives goes through them, and so do the frames of controllers.

use twinpath_forwarding::learning::Switch;
use twinpath_forwarding::openflow::pipeline::{Arrival, Count, Ingress, Outlet as _, Worker};
use twinpath_frame::{BURST_MAX, Burst, Frame};
use twinpath_inspect::Reason;
use twinpath_port::packets_of;
use twinpath_time::Instant;
use twinpath_worker::Io;

use crate::engine::forward::copy_to;
use crate::engine::message::{
    Forwarding, PACKET_OUTS_MAX, PacketOut, SwitchCommand, SwitchEvent, tell_reserved,
};
use crate::engine::outlet::{Out, PortNumbers};
use crate::engine::packet_ins::PacketIns;
use crate::engine::samples::{self, Samples};

/// Maximum cost of the look-ups of one port in a turn, in comparisons with a rule that is not in the CPU's caches: some
/// 50 us. A sender of headers that no cache has can take no more of the time that all ports share.
/// [`FRAMES_PER_TURN_MIN`] frames are taken in any case.
const COLD_COST_PER_TURN: u32 = 768;

/// Fewer frames than this are not worth a turn.
const FRAMES_PER_TURN_MIN: usize = 32;

/// This worker's end of the tables.
#[derive(Debug)]
pub(crate) struct Tables {
    worker: Worker,
    pub(crate) forwarding: Forwarding,
    numbers: PortNumbers,
    packet_ins: PacketIns,
    samples: Samples,
    frames_per_turn: usize,
    /// Frames of controllers that leave at the end of this turn, and those that have left.
    leaving: Frames,
    left: Frames,
}

/// Packet-outs that were done; there is room for all that a worker may have.
#[allow(clippy::vec_box, reason = "a box comes from control and goes back to it")]
type Frames = Vec<Box<PacketOut>>;

impl Tables {
    pub(crate) fn new(worker: Worker) -> Self {
        Self {
            worker,
            forwarding: Forwarding::Tables,
            numbers: PortNumbers::default(),
            packet_ins: PacketIns::new(),
            samples: Samples::new(),
            frames_per_turn: BURST_MAX,
            leaving: Vec::with_capacity(PACKET_OUTS_MAX),
            left: Vec::with_capacity(PACKET_OUTS_MAX),
        }
    }

    /// How many frames of a port a turn takes.
    pub(crate) const fn frames_per_turn(&self) -> usize {
        self.frames_per_turn
    }

    /// Takes frames that arrived through the tables.
    pub(crate) fn receive(
        &mut self,
        now: Instant,
        frames: &mut Burst,
        switch: &mut Switch,
        io: &mut Io<'_, SwitchEvent>,
    ) {
        let sample = frames.frames().first().and_then(|first| {
            let port = first.meta().port;
            let (in_port, tunnel_id) = (self.numbers.to_openflow(port), switch.snapshot().tunnel_id(port));
            self.samples.of(now, first, in_port, tunnel_id)
        });
        if let Some(sample) = sample {
            samples::tell(sample, io);
        }
        let (numbers, packet_ins) = (self.numbers, &mut self.packet_ins);
        let mut out = Out { now, numbers, switch, packet_ins, io };
        let is_outdated = self.worker.is_outdated();
        for mut frame in frames.drain(usize::MAX) {
            let port = frame.meta().port;
            if is_outdated {
                // This worker was stuck, and control has gone on without it.
                out.discard(frame, numbers.to_openflow(port), Reason::WorkerStuck);
                continue;
            }
            if let Some(mirror) = out.switch.snapshot().mirror_ingress(port) {
                copy_to(&mut frame, mirror, out.io);
            }
            let arrival =
                arrival_of(&frame, numbers.to_openflow(port), out.switch.snapshot().tunnel_id(port));
            self.worker.receive(now, frame, &arrival, &mut out);
        }
    }

    /// Tells control of its frames that have left. What is done in a turn leaves at its end. Returns whether there were any.
    pub(crate) fn tell_of_left(&mut self, io: &mut Io<'_, SwitchEvent>) -> bool {
        let had_left = !self.left.is_empty();
        for packet in self.left.drain(..) {
            tell_reserved(SwitchEvent::PacketOutDone(packet), io);
        }
        std::mem::swap(&mut self.leaving, &mut self.left);
        had_left
    }

    /// Whether there is something to tell in the next turn.
    pub(crate) const fn has_left(&self) -> bool {
        !self.left.is_empty() || !self.leaving.is_empty()
    }

    /// Does a command, and returns what control must hear.
    pub(crate) fn command(
        &mut self,
        now: Instant,
        command: SwitchCommand,
        switch: &mut Switch,
        io: &mut Io<'_, SwitchEvent>,
    ) -> Option<SwitchEvent> {
        match command {
            SwitchCommand::Tables(snapshot) => {
                let version = snapshot.number();
                self.samples.tables_changed();
                self.frames_per_turn = frames_per_turn(snapshot.cold_cost());
                return Some(SwitchEvent::TablesAdopted { version, former: self.worker.replace(snapshot) });
            }
            SwitchCommand::Lend(buffer) => return self.packet_ins.lend(buffer).map(SwitchEvent::PacketIn),
            SwitchCommand::PacketOut(mut packet) => {
                packet.refused = self.packet_out(now, &packet, switch, io).err();
                self.leaving.push(packet);
            }
            SwitchCommand::LendSample(sample) => return self.samples.lend(sample).map(SwitchEvent::Sample),
            SwitchCommand::Forward(forwarding) => self.forwarding = forwarding,
            SwitchCommand::LocalPort(local) => self.numbers = PortNumbers { local },
            SwitchCommand::PacketInRate(per_s) => self.packet_ins.set_rate(per_s),
            // It belongs to the learning switch.
            SwitchCommand::Adopt(..) => {}
        }
        None
    }

    /// Does a controller's actions with its frame.
    fn packet_out(
        &mut self,
        now: Instant,
        packet: &PacketOut,
        switch: &mut Switch,
        io: &mut Io<'_, SwitchEvent>,
    ) -> Result<(), Reason> {
        let Some(mut frame) = io.take_with(&packet.bytes) else {
            io.drops().add(Reason::PoolEmpty, 1);
            return Err(Reason::PoolEmpty);
        };
        let numbers = self.numbers;
        frame.meta_mut().port = numbers.of_openflow(packet.in_port);
        let tunnel_id = switch.snapshot().tunnel_id(frame.meta().port);
        let arrival = arrival_of(&frame, packet.in_port, tunnel_id);
        let mut out = Out { now, numbers, switch, packet_ins: &mut self.packet_ins, io };
        self.worker.packet_out(now, frame, &arrival, &packet.actions, &mut out);
        Ok(())
    }
}

/// How many frames of a port a turn takes, if the look-ups for each cost as much as they can.
fn frames_per_turn(cold_cost: u32) -> usize {
    COLD_COST_PER_TURN
        .checked_div(cold_cost)
        .map_or(BURST_MAX, |frames| (frames as usize).clamp(FRAMES_PER_TURN_MIN, BURST_MAX))
}

/// A frame that came in by this port, out of a tunnel if its network is not 0. It counts as the packets that it is on a wire, and as the bytes that ports count.
#[inline]
fn arrival_of(frame: &Frame, in_port: u32, tunnel_id: u32) -> Arrival {
    let count = Count { packets: packets_of(frame), bytes: frame.chain_len() as u64 };
    Arrival { ingress: Ingress { in_port, in_phy_port: in_port, tunnel_id: tunnel_id.into() }, count }
}
