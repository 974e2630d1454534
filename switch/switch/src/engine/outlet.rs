//! Where frames go that leave OpenFlow's tables: ports, the learning switch, the controllers.

use twinpath_forwarding::learning::{Arrival, Judgement, NO_PORT, Switch};
use twinpath_forwarding::openflow::pipeline::{Destination, Outlet, Ports};
use twinpath_frame::Frame;
use twinpath_inspect::Reason;
use twinpath_openflow_wire::number::port::LOCAL;
use twinpath_port::packets_of;
use twinpath_time::Instant;
use twinpath_worker::Io;

use crate::engine::forward::{count_drop, pass_on, send_as_it_is};
use crate::engine::message::SwitchEvent;
use crate::engine::packet_ins::PacketIns;

/// OpenFlow's numbers of ports are the switch's own, but for LOCAL.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PortNumbers {
    /// The port that is LOCAL.
    pub(crate) local: Option<u16>,
}

impl PortNumbers {
    /// The number that OpenFlow has for a port.
    #[inline]
    pub(crate) fn to_openflow(self, port: u16) -> u32 {
        if Some(port) == self.local { LOCAL } else { u32::from(port) }
    }

    /// The switch's number of a port; [`NO_PORT`] if it is none of the switch.
    #[inline]
    pub(crate) fn of_openflow(self, number: u32) -> u16 {
        match u16::try_from(number) {
            Ok(port) => port,
            Err(_) if number == LOCAL => self.local.unwrap_or(NO_PORT),
            Err(_) => NO_PORT,
        }
    }
}

/// What the tables may use of a worker during one call.
pub(crate) struct Out<'a, 'io> {
    pub(crate) now: Instant,
    pub(crate) numbers: PortNumbers,
    pub(crate) switch: &'a mut Switch,
    pub(crate) packet_ins: &'a mut PacketIns,
    pub(crate) io: &'a mut Io<'io, SwitchEvent>,
}

impl Outlet for Out<'_, '_> {
    #[inline]
    fn share(&mut self, frame: &mut Frame) -> Option<Frame> {
        self.io.share(frame)
    }

    #[inline]
    fn send(&mut self, frame: Frame, to: Destination, ports: &Ports) {
        match to {
            Destination::Port(number) => {
                let port = self.numbers.of_openflow(number);
                let mirror = self.switch.snapshot().mirror_egress(port);
                send_as_it_is(frame, port, mirror, self.io);
            }
            Destination::Normal(in_port) => self.learn(frame, in_port, false, ports),
            Destination::Flood(in_port) => self.learn(frame, in_port, true, ports),
            Destination::Controller(about) => {
                self.packet_ins.send(self.now, frame, about, self.switch.shared(), self.io);
            }
        }
    }

    fn discard(&mut self, frame: Frame, from: u32, reason: Reason) {
        count_drop(self.numbers.of_openflow(from), reason, self.io);
        self.io.release(frame);
    }

    fn release(&mut self, frame: Frame) {
        self.io.release(frame);
    }
}

impl Out<'_, '_> {
    /// The learning switch says where the frame goes. It is read again, as the tables may have changed its addresses and
    /// tags.
    fn learn(&mut self, frame: Frame, in_port: u32, is_flood: bool, ports: &Ports) {
        let (from, numbers) = (self.numbers.of_openflow(in_port), self.numbers);
        let packets = u32::try_from(packets_of(&frame)).unwrap_or(u32::MAX);
        let arrival = Arrival::read(from, frame.bytes(), frame.meta().vlan, packets);
        let Judgement { dropped, outputs } = if is_flood {
            self.switch.flood(self.now, &arrival)
        } else {
            self.switch.normal(self.now, &arrival)
        };
        let is_open = |port| !ports.is_closed(numbers.to_openflow(port));
        let mut outputs = outputs.filter(|output| output.mirrored || is_open(output.port)).peekable();
        let dropped = dropped.or_else(|| outputs.peek().is_none().then_some(Reason::PortDown));
        pass_on(frame, arrival.tag_in_bytes(), dropped, outputs, self.io);
    }
}
