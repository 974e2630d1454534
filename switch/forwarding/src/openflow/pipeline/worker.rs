//! A worker's end of a pipeline: takes frames through the tables (OpenFlow 1.3.5, 5.1 to 5.12).

use std::sync::Arc;

use twinpath_frame::Frame;
use twinpath_inspect::Reason;
use twinpath_openflow_wire::{Action, Count, number};
use twinpath_time::Instant;

use crate::openflow::pipeline::action_set::SetPart;
use crate::openflow::pipeline::counters::Counters;
use crate::openflow::pipeline::group::Choice;
use crate::openflow::pipeline::meter::{Metered, remarked};
use crate::openflow::pipeline::outlet::{Destination, Outlet, PacketIn, PacketInReason};
use crate::openflow::pipeline::packet::Packet;
use crate::openflow::pipeline::parse::Ingress;
use crate::openflow::pipeline::rewrite::{CannotRewrite, rewrite, set_dscp};
use crate::openflow::pipeline::rule::{Instructions, Program, Rule};
use crate::openflow::pipeline::snapshot::Snapshot;
use crate::openflow::pipeline::sync::{AtomicU64, Ordering};

/// Maximum number of buckets that one frame may go through, so that groups of groups do not multiply it without bound.
const BUCKETS_MAX: u32 = 1024;

/// Maximum nesting of groups.
const GROUP_DEPTH_MAX: u32 = 16;

/// A frame's arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// Where it came in.
    pub ingress: Ingress,
    /// What it is on a wire: a super-frame is several packets.
    pub count: Count,
}

/// A worker's end of a pipeline. It never allocates and never blocks.
#[derive(Debug)]
pub struct Worker {
    snapshot: Arc<Snapshot>,
    counters: Arc<Counters>,
    set: SetPart,
    required: Arc<AtomicU64>,
}

impl Worker {
    pub(crate) fn new(snapshot: Arc<Snapshot>, counters: Arc<Counters>, required: Arc<AtomicU64>) -> Self {
        Self { snapshot, counters, set: SetPart::default(), required }
    }

    /// Whether control has put a later version in force. Then new arrivals are dropped, not judged. To be checked after
    /// frames were taken from a ring, and before the first of them is judged.
    #[inline]
    #[must_use]
    pub fn is_outdated(&self) -> bool {
        self.snapshot.number() < self.required.load(Ordering::Acquire)
    }

    /// Goes on with a new version. The former one goes back to control, which frees it.
    #[must_use]
    pub fn replace(&mut self, snapshot: Arc<Snapshot>) -> Arc<Snapshot> {
        std::mem::replace(&mut self.snapshot, snapshot)
    }

    /// The version in use.
    #[must_use]
    pub const fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// Takes a frame that arrived through the tables.
    #[inline]
    pub fn receive<O: Outlet>(&mut self, now: Instant, frame: Frame, arrival: &Arrival, outlet: &mut O) {
        let in_port = arrival.ingress.in_port;
        let port = self.snapshot.ports.get(in_port);
        if port.is_some_and(|port| port.no_receive) {
            return outlet.discard(frame, in_port, Reason::PortDown);
        }
        let mut packet = Packet::new(frame, arrival.ingress);
        if !packet.read() {
            return outlet.discard(packet.frame, in_port, Reason::Truncated);
        }
        if self.snapshot.drop_fragments && packet.layout().is_in_parts {
            return outlet.discard(packet.frame, in_port, Reason::Fragment);
        }
        let mut run = Run::new(&self.snapshot, &self.counters, now, arrival, outlet);
        match run.tables(&mut packet, &mut self.set) {
            // Most frames end so: the packet is not moved for them.
            Some(Next::To(to)) => run.send(packet.frame, to),
            next => run.finish(packet, next),
        }
    }

    /// Does a controller's actions with a frame (packet-out; OpenFlow 1.3.5, 7.3.7). The port may be one that no frame
    /// comes from, such as that of the controllers.
    pub fn packet_out<O: Outlet>(
        &mut self,
        now: Instant,
        frame: Frame,
        arrival: &Arrival,
        actions: &[Action],
        outlet: &mut O,
    ) {
        let mut packet = Packet::new(frame, arrival.ingress);
        if !packet.read() {
            return outlet.discard(packet.frame, arrival.ingress.in_port, Reason::Truncated);
        }
        let mut run = Run::new(&self.snapshot, &self.counters, now, arrival, outlet);
        let mut next = None;
        for action in actions {
            if !is_to_tables(action) {
                if let Err(reason) = run.act(&mut packet, action, &mut next) {
                    run.reason = reason;
                    break;
                }
                continue;
            }
            run.flush(&mut packet, &mut next);
            if let Some(mut twin) = run.twin(&mut packet) {
                let next = run.tables(&mut twin, &mut self.set);
                run.finish(twin, next);
            }
            // What follows is the controller's again, not a flow's.
            (run.table, run.cookie, run.is_miss, run.has_sent) = (0, u64::MAX, false, true);
        }
        run.finish(packet, next);
    }
}

const fn is_to_tables(action: &Action) -> bool {
    matches!(action, Action::Output { port: number::port::TABLE, .. })
}

/// An output that is not done yet: if none follows, it gets the frame itself.
#[derive(Clone, Copy, Debug)]
enum Next {
    To(Destination),
    /// All ports that forward, but the one that the frame came in by.
    All,
    Group(u32),
}

/// One frame's way through the tables.
struct Run<'a, O> {
    snapshot: &'a Snapshot,
    counters: &'a Counters,
    outlet: &'a mut O,
    now: Instant,
    count: Count,
    in_port: u32,
    /// The table that the frame is in, and the flow that it matched there.
    table: u8,
    cookie: u64,
    is_miss: bool,
    /// What counts if the frame goes nowhere.
    reason: Reason,
    has_sent: bool,
    buckets: u32,
    depth: u32,
}

impl<'a, O: Outlet> Run<'a, O> {
    #[inline]
    fn new(
        snapshot: &'a Snapshot,
        counters: &'a Counters,
        now: Instant,
        arrival: &Arrival,
        outlet: &'a mut O,
    ) -> Self {
        Self {
            snapshot,
            counters,
            outlet,
            now,
            count: arrival.count,
            in_port: arrival.ingress.in_port,
            table: 0,
            cookie: u64::MAX,
            is_miss: false,
            reason: Reason::FlowDrop,
            has_sent: false,
            buckets: 0,
            depth: 0,
        }
    }

    /// From the first table to the end (5.1). Returns what is left to be done.
    #[inline]
    fn tables(&mut self, packet: &mut Packet, set: &mut SetPart) -> Option<Next> {
        set.clear();
        let mut next = None;
        self.table = 0;
        loop {
            let table = self.snapshot.tables.get(usize::from(self.table));
            let rule = table.and_then(|table| table.find(packet.key(), &self.snapshot.seed));
            self.counters.add_lookup(self.table, rule.is_some(), self.count.packets);
            let Some(rule) = rule else {
                // Without a table-miss entry the frame is dropped, and its action set is not done (5.4).
                self.reason = Reason::TableMiss;
                return next;
            };
            let goto = match self.instructions(packet, rule, set, &mut next) {
                Ok(goto) => goto,
                Err(reason) => {
                    self.reason = reason;
                    return next;
                }
            };
            match goto {
                Some(table) if table > self.table => self.table = table,
                _ => break,
            }
        }
        if !set.is_empty() {
            self.is_miss = false;
            for action in set.actions() {
                if let Err(reason) = self.act(packet, &action, &mut next) {
                    self.reason = reason;
                    break;
                }
            }
        }
        next
    }

    /// Does a flow's instructions, in the order of the specification (5.9). Returns the table to go to.
    ///
    /// # Errors
    /// The frame goes no further, for this reason.
    #[inline]
    fn instructions(
        &mut self,
        packet: &mut Packet,
        rule: &Rule,
        set: &mut SetPart,
        next: &mut Option<Next>,
    ) -> Result<Option<u8>, Reason> {
        self.counters.add(rule.counter, self.now, self.count);
        (self.cookie, self.is_miss) = (rule.cookie, rule.is_miss);
        match &rule.program {
            Program::Output { port, max_len } => {
                self.output(packet, *port, *max_len, next);
                Ok(None)
            }
            Program::Drop => Ok(None),
            Program::Many(program) => self.many(packet, program, set, next),
        }
    }

    fn many(
        &mut self,
        packet: &mut Packet,
        program: &Instructions,
        set: &mut SetPart,
        next: &mut Option<Next>,
    ) -> Result<Option<u8>, Reason> {
        if let Some(meter) = program.meter {
            self.meter(packet, meter, next)?;
        }
        for action in &program.apply {
            self.act(packet, action, next)?;
        }
        let goes_on = program.goto.is_some() || program.metadata.is_some() || program.write.is_some();
        if matches!(next, Some(Next::Group(_))) && (goes_on || !set.is_empty()) {
            // What its buckets say of the frame is what is true here.
            self.flush(packet, next);
        }
        if program.clear {
            set.clear();
        }
        if let Some(part) = &program.write {
            set.merge(part);
        }
        if let Some((bits, mask)) = program.metadata {
            packet.metadata = packet.metadata & !mask | bits;
        }
        Ok(program.goto)
    }

    fn meter(&mut self, packet: &mut Packet, meter: u32, next: &mut Option<Next>) -> Result<(), Reason> {
        let Some(meter) = self.snapshot.meter(meter) else { return Ok(()) };
        self.counters.add(meter.counter, self.now, self.count);
        match meter.pass(self.now, self.count) {
            Metered::Passes => {}
            Metered::Exceeds { counter } => self.counters.add(counter, self.now, self.count),
            Metered::Dropped { counter } => {
                self.counters.add(counter, self.now, self.count);
                return Err(Reason::MeterDrop);
            }
            Metered::Remarked { counter, levels } => {
                self.counters.add(counter, self.now, self.count);
                if let Some(dscp) = packet.dscp() {
                    self.flush(packet, next);
                    set_dscp(packet, remarked(dscp, levels));
                }
            }
        }
        Ok(())
    }

    /// Notes an output; one that was noted before is done.
    #[inline]
    fn output(&mut self, packet: &mut Packet, port: u32, max_len: u16, next: &mut Option<Next>) {
        let to = self.destination(packet, port, max_len);
        if to.is_some() {
            self.flush(packet, next);
            *next = to;
        }
    }

    /// Does one action (5.12).
    #[inline]
    fn act(&mut self, packet: &mut Packet, action: &Action, next: &mut Option<Next>) -> Result<(), Reason> {
        match *action {
            Action::Output { port, max_len } => {
                self.output(packet, port, max_len, next);
                Ok(())
            }
            Action::Group(group) => {
                self.flush(packet, next);
                *next = Some(Next::Group(group));
                Ok(())
            }
            // No port of ours has queues; control says so.
            Action::SetQueue(_) | Action::Experimenter { .. } => Ok(()),
            _ => self.rewrite(packet, action, next),
        }
    }

    #[inline(never)]
    fn rewrite(
        &mut self,
        packet: &mut Packet,
        action: &Action,
        next: &mut Option<Next>,
    ) -> Result<(), Reason> {
        self.flush(packet, next);
        match rewrite(packet, action) {
            Ok(()) => Ok(()),
            Err(CannotRewrite::NoRoom) => Err(Reason::FrameTooLarge),
            Err(CannotRewrite::InvalidTtl) => {
                let to = self.packet_in(packet, PacketInReason::InvalidTtl, None);
                *next = Some(Next::To(Destination::Controller(to)));
                Err(Reason::InvalidTtl)
            }
        }
    }

    fn packet_in(&self, packet: &Packet, reason: PacketInReason, max_len: Option<u16>) -> PacketIn {
        let Packet { ingress, metadata, .. } = *packet;
        PacketIn { reason, table: self.table, cookie: self.cookie, max_len, ingress, metadata }
    }

    /// Where an output action leads (4.5); `None`: nowhere.
    #[inline]
    fn destination(&mut self, packet: &Packet, port: u32, max_len: u16) -> Option<Next> {
        use number::port::{ALL, CONTROLLER, FLOOD, IN_PORT, NORMAL};
        match port {
            IN_PORT => self.output_to(self.in_port),
            NORMAL => Some(Next::To(Destination::Normal(self.in_port))),
            FLOOD => Some(Next::To(Destination::Flood(self.in_port))),
            ALL => Some(Next::All),
            CONTROLLER => self.output_to_controller(packet, max_len),
            // A frame goes back to where it came from only if that is asked for by name.
            _ if port == self.in_port => {
                self.reason = Reason::SamePort;
                None
            }
            _ => self.output_to(port),
        }
    }

    #[inline]
    fn output_to(&mut self, port: u32) -> Option<Next> {
        if self.snapshot.ports.get(port).is_some_and(|port| !port.no_forward) {
            return Some(Next::To(Destination::Port(port)));
        }
        self.reason = Reason::PortDown;
        None
    }

    fn output_to_controller(&mut self, packet: &Packet, max_len: u16) -> Option<Next> {
        let reason = if self.is_miss { PacketInReason::NoMatch } else { PacketInReason::Action };
        if self.is_miss && self.snapshot.ports.get(self.in_port).is_some_and(|port| port.no_packet_in) {
            self.reason = Reason::TableMiss;
            return None;
        }
        Some(Next::To(Destination::Controller(self.packet_in(packet, reason, Some(max_len)))))
    }

    /// Does an output while the frame goes on: it gets another frame with the same bytes.
    #[inline]
    fn flush(&mut self, packet: &mut Packet, next: &mut Option<Next>) {
        if let Some(to) = next.take() {
            self.perform_by_twin(packet, to);
        }
    }

    #[inline(never)]
    fn perform_by_twin(&mut self, packet: &mut Packet, to: Next) {
        if let Some(twin) = self.twin(packet) {
            self.perform(twin, to);
        }
    }

    fn twin(&mut self, packet: &mut Packet) -> Option<Packet> {
        match self.outlet.share(&mut packet.frame) {
            Some(frame) => Some(packet.twin(frame)),
            None => {
                self.reason = Reason::PoolEmpty;
                None
            }
        }
    }

    #[inline]
    fn send(&mut self, frame: Frame, to: Destination) {
        self.has_sent = true;
        self.outlet.send(frame, to, &self.snapshot.ports);
    }

    /// The end of a frame.
    #[inline(never)]
    fn finish(&mut self, packet: Packet, next: Option<Next>) {
        match next {
            Some(to) => self.perform(packet, to),
            None if self.has_sent => self.outlet.release(packet.frame),
            None => self.outlet.discard(packet.frame, self.in_port, self.reason),
        }
    }

    fn perform(&mut self, packet: Packet, to: Next) {
        match to {
            Next::To(to) => self.send(packet.frame, to),
            Next::All => self.all(packet),
            Next::Group(group) => self.group(packet, group),
        }
    }

    #[inline(never)]
    fn all(&mut self, mut packet: Packet) {
        let in_port = self.in_port;
        let ports = self.snapshot.ports.all().iter();
        let mut next = None;
        for port in ports.filter(|port| !port.no_forward && port.number != in_port) {
            self.flush(&mut packet, &mut next);
            next = Some(Next::To(Destination::Port(port.number)));
        }
        if next.is_none() {
            self.reason = Reason::NoOutputPort;
        }
        self.finish(packet, next);
    }

    /// Takes a frame through a group (5.6).
    #[inline(never)]
    fn group(&mut self, mut packet: Packet, number: u32) {
        self.reason = Reason::NoBucket;
        let group = self.snapshot.group(number).filter(|_| self.depth < GROUP_DEPTH_MAX);
        let Some(group) = group else { return self.finish(packet, None) };
        self.counters.add(group.counter, self.now, self.count);
        self.depth += 1;
        if group.choice == Choice::All {
            for (number, bucket) in group.buckets.iter().enumerate() {
                if number + 1 == group.buckets.len() {
                    self.bucket(packet, &bucket.actions, bucket.counter);
                    self.depth -= 1;
                    return;
                }
                if let Some(twin) = self.twin(&mut packet) {
                    self.bucket(twin, &bucket.actions, bucket.counter);
                }
            }
            self.finish(packet, None);
        } else {
            let is_fragment = packet.layout().is_fragment;
            let hash = self.snapshot.flow_mask.hash(packet.key(), is_fragment, &self.snapshot.seed);
            match group.bucket(hash) {
                Some(bucket) => self.bucket(packet, &bucket.actions, bucket.counter),
                None => self.finish(packet, None),
            }
        }
        self.depth -= 1;
    }

    fn bucket(&mut self, mut packet: Packet, actions: &[Action], counter: u32) {
        self.buckets += 1;
        if self.buckets > BUCKETS_MAX {
            return self.finish(packet, None);
        }
        self.counters.add(counter, self.now, self.count);
        let mut next = None;
        for action in actions {
            if let Err(reason) = self.act(&mut packet, action, &mut next) {
                self.reason = reason;
                break;
            }
        }
        self.finish(packet, next);
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
