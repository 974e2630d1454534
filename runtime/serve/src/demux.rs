//! Several services on one worker: each is an engine of its own, and every call is handed to the engine that it is for.
//!
//! A frame goes by its protocol and port, with one look-up; the rest by the token or slot that it names. One service alone needs neither.

use std::net::IpAddr;
use std::sync::Arc;

use rustix::io::Errno;
use twinpath_frame::Burst;
use twinpath_inspect::Reason;
use twinpath_port::PortId;
use twinpath_service::Service;
use twinpath_stack::served::Served;
use twinpath_time::Instant;
use twinpath_wire::{EtherType, Protocol, eth};
use twinpath_worker::{ENGINE_RESERVE, Engine, Io, part_of};

use crate::counters::ServeCounters;
use crate::engine::{ServeCommand, ServeEngine, ServeEvent};
use crate::limits::Limits;

/// Services that a worker may have.
pub const SLOTS_MAX: usize = 64;

/// No service has the port.
const NOBODY: u8 = u8::MAX;
/// Several services have the port, at different addresses of ours.
const SEVERAL: u8 = u8::MAX - 1;

const ETHERTYPE_V4: u16 = EtherType::IPV4.0;
const ETHERTYPE_V6: u16 = EtherType::IPV6.0;

// Of each: that it has begun, that it has drained, and that it has left; and the answers to a change.
const _: () = assert!(3 * SLOTS_MAX + 2 <= ENGINE_RESERVE as usize);
const _: () = assert!(SLOTS_MAX <= SEVERAL as usize && SLOTS_MAX <= twinpath_worker::PARTS_MAX);

/// The slot that each frame goes to.
#[derive(Debug)]
pub struct Routes {
    /// By protocol and port: 65,536 of each.
    ports: [Box<[u8]>; Protocol::COUNT],
    /// Of the ports that several services share: protocol and port, our address, slot.
    shared: Vec<((Protocol, u16), IpAddr, u8)>,
    ethertypes: Vec<(u16, u8)>,
}

impl Routes {
    /// The routes to services, each with its slot (below [`SLOTS_MAX`]) and what it serves. Of two that serve the same port at the same
    /// address, or the same EtherType, the earlier one gets it. No two of them overlap otherwise: the configuration is refused before.
    #[must_use]
    pub fn of<'a>(services: impl IntoIterator<Item = (usize, &'a Served)>) -> Self {
        let mut ends = Vec::new();
        let mut ethertypes = Vec::new();
        for (slot, served) in services {
            let slot = slot as u8;
            let ports = served.ports().iter().map(|port| ((port.protocol, port.port), port.address));
            let flows = served
                .flows()
                .iter()
                .map(|flow| ((flow.protocol, flow.destination.port()), Some(flow.destination.ip())));
            let earlier = ends.len();
            for (port, address) in ports.chain(flows) {
                let is =
                    |(its, at, _): &((Protocol, u16), Option<IpAddr>, u8)| (*its, *at) == (port, address);
                if !ends[..earlier].iter().any(is) {
                    ends.push((port, address, slot));
                }
            }
            ethertypes.extend(served.ethertype().map(|ethertype| (ethertype, slot)));
        }
        let mut ports = Protocol::ALL.map(|_| vec![NOBODY; 1 << u16::BITS].into_boxed_slice());
        for ((protocol, port), _, slot) in &ends {
            let found = &mut ports[protocol.index()][usize::from(*port)];
            *found = if *found == NOBODY || found == slot { *slot } else { SEVERAL };
        }
        let shared = ends
            .iter()
            .filter(|((protocol, port), ..)| ports[protocol.index()][usize::from(*port)] == SEVERAL);
        let shared = shared.filter_map(|(port, address, slot)| Some((*port, (*address)?, *slot))).collect();
        Self { ports, shared, ethertypes }
    }

    /// The slot that a frame is for.
    #[inline]
    fn slot_of(&self, frame: &[u8]) -> Option<usize> {
        let ethertype = u16::from_be_bytes(*frame.get(12..eth::HEADER_LEN)?.first_chunk()?);
        if let Some((_, slot)) = self.ethertypes.iter().find(|(claimed, _)| *claimed == ethertype) {
            return Some(usize::from(*slot));
        }
        let (protocol_at, port_at, address_at) = match ethertype {
            ETHERTYPE_V4 => {
                (23, eth::HEADER_LEN + 4 * usize::from(frame.get(eth::HEADER_LEN)? & 15) + 2, 30..34)
            }
            ETHERTYPE_V6 => (20, eth::HEADER_LEN + 40 + 2, 38..54),
            _ => return None,
        };
        let protocol = Protocol::from_number(*frame.get(protocol_at)?)?;
        let port = u16::from_be_bytes(*frame.get(port_at..)?.first_chunk()?);
        match self.ports[protocol.index()][usize::from(port)] {
            NOBODY => None,
            SEVERAL => {
                let address = address(frame.get(address_at)?)?;
                let is = |(shared, at, _): &&((Protocol, u16), IpAddr, u8)| {
                    *shared == (protocol, port) && *at == address
                };
                self.shared.iter().find(is).map(|(.., slot)| usize::from(*slot))
            }
            slot => Some(usize::from(slot)),
        }
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

/// What a demultiplexer asks of the engine of one service. So services of several types are on one worker, and the code of each is
/// compiled where its type is named.
trait ServiceEngine: Engine<Command = ServeCommand, Event = ServeEvent> {
    fn exchange_limits(&mut self, limits: &mut Limits);
    fn leave(&mut self, now: Instant, io: &Io<'_, ServeEvent>);
    fn is_drained(&self) -> bool;
    fn forget(&self, io: &Io<'_, ServeEvent>);
}

impl<S: Service + 'static> ServiceEngine for ServeEngine<S> {
    fn exchange_limits(&mut self, limits: &mut Limits) {
        self.exchange_limits(limits);
    }

    fn leave(&mut self, now: Instant, io: &Io<'_, ServeEvent>) {
        self.leave(now, io);
    }

    fn is_drained(&self) -> bool {
        self.is_drained()
    }

    fn forget(&self, io: &Io<'_, ServeEvent>) {
        self.forget(io);
    }
}

/// One service of a worker.
pub struct Slot {
    engine: Box<dyn ServiceEngine>,
    counters: Arc<ServeCounters>,
    /// Told to leave: it is taken out once it has drained.
    leaving: bool,
}

impl Slot {
    /// That service, and what it counts.
    #[must_use]
    pub fn new<S: Service + 'static>(engine: ServeEngine<S>, counters: Arc<ServeCounters>) -> Self {
        Self { engine: Box::new(engine), counters, leaving: false }
    }

    /// Its counters.
    #[must_use]
    pub const fn counters(&self) -> &Arc<ServeCounters> {
        &self.counters
    }
}

/// What control tells the services of a worker.
pub enum DemuxCommand {
    /// The same to each of them.
    Each(ServeCommand),
    /// To the one in that slot.
    One(usize, ServeCommand),
    /// Take in services that wait, and hand frames on by other routes; answered by [`ServeEvent::Prepared`].
    Prepare(Box<Prepare>),
    /// Other routes and limits, some services begin, and others leave; answered by [`ServeEvent::Switched`].
    Switch(Box<Switch>),
}

/// Services to come, which serve nothing before a [`Switch`] has them begin but the frames that the routes give them.
pub struct Prepare {
    /// For the answer.
    pub number: u32,
    /// Each with its slot, which is free.
    pub services: Vec<(usize, Slot)>,
    /// Routes from now on.
    pub routes: Routes,
}

/// A change of all services at once.
pub struct Switch {
    /// For the answer.
    pub number: u32,
    /// Routes from now on.
    pub routes: Routes,
    /// Slots of services that serve the kernel's sockets from now on.
    pub begin: Vec<usize>,
    /// Slots of services that take no more, and go once what they have accepted is answered.
    pub leave: Vec<usize>,
    /// Limits of services that go on.
    pub limits: Vec<(usize, Limits)>,
}

/// The services of one worker.
pub struct Demux {
    slots: Box<[Option<Slot>]>,
    /// Slots in use, ascending.
    used: Vec<u8>,
    routes: Routes,
    /// How many have been told to leave.
    leaving: usize,
    /// Frames of one service on their way to it.
    burst: Burst,
}

impl Demux {
    /// Frames go by `routes`.
    #[must_use]
    pub fn new(routes: Routes) -> Self {
        let slots = (0..SLOTS_MAX).map(|_| None).collect();
        Self { slots, used: Vec::with_capacity(SLOTS_MAX), routes, leaving: 0, burst: Burst::new() }
    }

    /// With one service more, in a slot that is free.
    #[must_use]
    pub fn with(mut self, slot: usize, service: Slot) -> Self {
        self.put(slot, Some(service));
        self
    }

    /// Puts a service into a slot, or nothing; what was there.
    fn put(&mut self, slot: usize, service: Option<Slot>) -> Option<Slot> {
        let former = self.slots.get_mut(slot).and_then(|place| std::mem::replace(place, service));
        self.used.clear();
        self.used.extend((0u8..).zip(&self.slots).filter_map(|(slot, at)| at.as_ref().map(|_| slot)));
        former
    }

    /// Has one service do something.
    #[inline]
    fn one<T>(
        &mut self,
        slot: usize,
        io: &mut Io<'_, ServeEvent>,
        call: impl FnOnce(&mut dyn ServiceEngine, &mut Io<'_, ServeEvent>) -> T,
    ) -> Option<T> {
        let alone = self.is_single(slot);
        let Slot { engine, counters, .. } = self.slots.get_mut(slot)?.as_mut()?;
        let engine = &mut **engine;
        Some(if alone { call(engine, io) } else { call(engine, &mut io.part(slot, &counters.drops)) })
    }

    /// Whether that slot is all there is: it needs no tokens of its own then.
    #[inline]
    const fn is_single(&self, slot: usize) -> bool {
        self.used.len() == 1 && slot == 0
    }

    /// Has each service do something.
    #[inline]
    fn each(
        &mut self,
        io: &mut Io<'_, ServeEvent>,
        mut call: impl FnMut(&mut dyn ServiceEngine, &mut Io<'_, ServeEvent>),
    ) {
        for at in 0..self.used.len() {
            self.one(usize::from(self.used[at]), io, &mut call);
        }
    }

    fn engines(&self) -> impl Iterator<Item = &dyn ServiceEngine> {
        self.used.iter().filter_map(|slot| Some(&*self.slots.get(usize::from(*slot))?.as_ref()?.engine))
    }

    /// Hands what was collected to its service.
    fn hand_on(&mut self, now: Instant, port: PortId, slot: usize, io: &mut Io<'_, ServeEvent>) {
        let Self { slots, burst, .. } = self;
        if let Some(Slot { engine, counters, .. }) = slots.get_mut(slot).and_then(Option::as_mut) {
            engine.receive(now, port, burst, &mut io.part(slot, &counters.drops));
        }
        // Only without any service there is something left.
        for frame in burst.drain(usize::MAX) {
            io.drops().add(Reason::NotClaimed, 1);
            io.release(frame);
        }
    }
}

impl Demux {
    fn prepare(&mut self, now: Instant, mut prepare: Box<Prepare>, io: &mut Io<'_, ServeEvent>) {
        let mut outcome = Ok(());
        for (slot, service) in prepare.services.drain(..) {
            self.put(slot, Some(service));
            let started = self.one(slot, io, |engine, io| {
                // The ports were attached before it came.
                for place in 0..io.ports().len() {
                    engine.attached(io.ports()[place].id(), io);
                }
                engine.start(now, io)
            });
            outcome = outcome.and(started.unwrap_or(Ok(())));
        }
        std::mem::swap(&mut self.routes, &mut prepare.routes);
        let number = prepare.number;
        // There is room: control has one change under way at a time.
        let _ = io.tell_reserved(ServeEvent::Prepared { number, outcome, former: prepare });
    }

    fn switch(&mut self, now: Instant, mut switch: Box<Switch>, io: &mut Io<'_, ServeEvent>) {
        std::mem::swap(&mut self.routes, &mut switch.routes);
        for (slot, limits) in &mut switch.limits {
            self.one(*slot, io, |engine, _| engine.exchange_limits(limits));
        }
        // First those that leave: what waits in a socket that both have is theirs.
        for slot in &switch.leave {
            self.one(*slot, io, |engine, io| engine.leave(now, io));
            if let Some(service) = self.slots.get_mut(*slot).and_then(Option::as_mut) {
                self.leaving += usize::from(!std::mem::replace(&mut service.leaving, true));
            }
        }
        for slot in &switch.begin {
            self.one(*slot, io, |engine, io| engine.command(now, ServeCommand::Begin, io));
        }
        let number = switch.number;
        let _ = io.tell_reserved(ServeEvent::Switched { number, former: switch });
    }

    /// Takes out those that were told to leave and have drained.
    fn let_leave(&mut self, io: &mut Io<'_, ServeEvent>) {
        for slot in 0..self.slots.len() {
            let is_done = |service: &Slot| service.leaving && service.engine.is_drained();
            if self.slots[slot].as_ref().is_some_and(is_done) {
                self.one(slot, io, |engine, io| engine.forget(io));
                // Its counters are the engine's as well, so nothing is freed here.
                if let Some(Slot { engine, .. }) = self.put(slot, None) {
                    self.leaving -= 1;
                    let _ = io.tell_reserved(ServeEvent::Left { slot, service: engine });
                }
            }
        }
    }
}

impl Engine for Demux {
    type Command = DemuxCommand;
    type Event = ServeEvent;

    fn start(&mut self, now: Instant, io: &mut Io<'_, ServeEvent>) -> Result<(), Errno> {
        let mut outcome = Ok(());
        self.each(io, |engine, io| {
            if outcome.is_ok() {
                outcome = engine.start(now, io);
            }
        });
        outcome
    }

    fn attached(&mut self, port: PortId, io: &mut Io<'_, ServeEvent>) {
        self.each(io, |engine, io| engine.attached(port, io));
    }

    fn changed(&mut self, port: PortId, io: &mut Io<'_, ServeEvent>) {
        self.each(io, |engine, io| engine.changed(port, io));
    }

    fn detached(&mut self, port: PortId, io: &mut Io<'_, ServeEvent>) {
        self.each(io, |engine, io| engine.detached(port, io));
    }

    fn receive(&mut self, now: Instant, port: PortId, frames: &mut Burst, io: &mut Io<'_, ServeEvent>) {
        if let [only] = *self.used {
            self.one(only.into(), io, |engine, io| engine.receive(now, port, frames, io));
            return;
        }
        let first = self.used.first().map_or(0, |slot| usize::from(*slot));
        let mut collected = first;
        for frame in frames.drain(usize::MAX) {
            // What is for nobody is dropped by the first one, under a name.
            let slot = self.routes.slot_of(frame.bytes()).unwrap_or(first);
            if slot != collected && !self.burst.is_empty() {
                self.hand_on(now, port, collected, io);
            }
            collected = slot;
            if let Err(frame) = self.burst.push(frame) {
                io.release(frame);
            }
        }
        if !self.burst.is_empty() {
            self.hand_on(now, port, collected, io);
        }
    }

    fn ready(&mut self, now: Instant, token: u32, error: bool, io: &mut Io<'_, ServeEvent>) -> bool {
        let (slot, token) = part_of(token);
        // What a service that is gone had watched is ready for nobody.
        self.one(slot, io, |engine, io| engine.ready(now, token, error, io)).unwrap_or(false)
    }

    fn run(&mut self, now: Instant, io: &mut Io<'_, ServeEvent>) -> bool {
        let mut busy = false;
        self.each(io, |engine, io| busy |= engine.run(now, io));
        if self.leaving > 0 {
            self.let_leave(io);
        }
        busy
    }

    fn next_deadline(&self) -> Instant {
        self.engines().map(|engine| engine.next_deadline()).min().unwrap_or(Instant::NEVER)
    }

    fn spins(&self) -> bool {
        self.engines().any(|engine| engine.spins())
    }

    fn found(&self) -> bool {
        self.engines().any(|engine| engine.found())
    }

    fn rest(&mut self, io: &mut Io<'_, ServeEvent>) {
        self.each(io, |engine, io| engine.rest(io));
    }

    fn command(&mut self, now: Instant, command: DemuxCommand, io: &mut Io<'_, ServeEvent>) {
        match command {
            DemuxCommand::Each(command) => {
                self.each(io, |engine, io| engine.command(now, command.clone(), io));
            }
            DemuxCommand::One(slot, command) => {
                self.one(slot, io, |engine, io| engine.command(now, command, io));
            }
            DemuxCommand::Prepare(prepare) => self.prepare(now, prepare, io),
            DemuxCommand::Switch(switch) => self.switch(now, switch, io),
        }
    }
}

#[cfg(test)]
mod tests;
