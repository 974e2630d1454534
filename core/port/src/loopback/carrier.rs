//! A queue in memory that carries several ports, each joined to a far end of its own.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use twinpath_frame::{Burst, Frame, Pool};
use twinpath_inspect::Reason;
use twinpath_time::Instant;

use super::{LoopbackPort, PLAIN, Wire};
use crate::{
    Capabilities, CarriedPort, CarriedPorts, Carrier, LinkState, PortId, PortQueue, QueueInfo, Received,
    WaitSource,
};

/// A queue that carries several ports over one wire inwards, like a ring whose slots name the interface. Outwards,
/// each port has a wire of its own.
#[derive(Debug)]
pub struct LoopbackCarrier {
    info: QueueInfo,
    ports: CarriedPorts,
    incoming: Arc<Wire>,
    /// By number of the port.
    outgoing: Vec<(u16, Arc<Wire>)>,
}

impl LoopbackCarrier {
    /// A queue that carries no port yet, with room for `most`.
    ///
    /// # Errors
    /// What `eventfd(2)` returns.
    pub fn new(id: PortId, most: usize) -> std::io::Result<Self> {
        let (info, ports) = (QueueInfo::new(id, 0), CarriedPorts::new(most));
        Ok(Self { info, ports, incoming: Wire::new()?, outgoing: Vec::new() })
    }

    /// The far end of one of its ports; frames cross once the port has been added.
    ///
    /// # Errors
    /// What `eventfd(2)` returns.
    pub fn far_end(&mut self, port: u16, far: PortId) -> std::io::Result<LoopbackPort> {
        let back = Wire::new()?;
        self.outgoing.push((port, Arc::clone(&back)));
        Ok(LoopbackPort {
            info: QueueInfo::new(far, 0),
            capabilities: PLAIN,
            incoming: back,
            outgoing: Arc::clone(&self.incoming),
            enters: Some(port),
        })
    }

    /// A port with this number for [`Carrier::add`], with the capabilities of a loopback port.
    #[must_use]
    pub fn port(port: u16, ifindex: u32) -> CarriedPort {
        CarriedPort {
            port,
            ifindex,
            capabilities: PLAIN,
            bypass_qdisc: false,
            spares: Vec::new(),
            counters: Arc::default(),
        }
    }

    fn wire_of(&self, port: u16) -> Option<(&CarriedPort, &Wire)> {
        let (_, wire) = self.outgoing.iter().find(|(number, _)| *number == port)?;
        Some((self.ports.get(port)?, wire))
    }
}

impl Carrier for LoopbackCarrier {
    fn ports(&self) -> &CarriedPorts {
        &self.ports
    }

    fn add(&mut self, port: CarriedPort) -> Result<(), CarriedPort> {
        self.ports.add(port)
    }

    fn remove(&mut self, port: u16) -> Option<CarriedPort> {
        self.ports.remove(port)
    }

    fn port_changed(&mut self, port: u16, link: LinkState) -> Option<Capabilities> {
        let capabilities = self.ports.get(port)?.capabilities;
        self.ports
            .set_capabilities(port, Capabilities { frame_len_max: link.frame_len_max(), ..capabilities })
    }
}

impl WaitSource for LoopbackCarrier {
    fn look(&self) -> bool {
        self.incoming.look()
    }

    fn arm(&mut self) -> bool {
        true
    }

    fn disarm(&mut self) {
        self.incoming.disarm();
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.incoming.ready.as_fd())
    }
}

impl PortQueue for LoopbackCarrier {
    fn info(&self) -> &QueueInfo {
        &self.info
    }

    fn capabilities(&self) -> Capabilities {
        PLAIN
    }

    fn carrier(&mut self) -> Option<&mut dyn Carrier> {
        Some(self)
    }

    fn receive(&mut self, now: Instant, pool: &mut Pool, burst: &mut Burst) {
        while burst.room() > 0
            && let Some((frame, bytes)) = self.incoming.take(pool, &self.info.counters)
        {
            let Some(port) = self.ports.get(frame.meta().port) else {
                self.info.counters.drops.add(Reason::PortDown, 1);
                pool.release(frame);
                continue;
            };
            port.counters.count_super_frame_in(&frame);
            let mut received = Received::new(now, port.id(self.info.id.queue));
            received.push(frame, bytes, pool, burst);
            received.count(&port.counters);
        }
    }

    fn transmit(&mut self, pool: &mut Pool, burst: &mut Burst) {
        for frame in burst.drain(usize::MAX) {
            match self.wire_of(frame.meta().port) {
                Some((port, wire)) => wire.put(&frame, frame.meta().port, &port.capabilities, &port.counters),
                None => self.info.counters.drops.add(Reason::PortDown, 1),
            }
            pool.release(frame);
        }
    }

    fn flush(&mut self, _pool: &mut Pool) {
        self.outgoing.iter().for_each(|(_, wire)| wire.wake());
    }

    fn close(self: Box<Self>) -> Vec<Frame> {
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends one frame with these bytes through the port that `port` names.
    fn send(queue: &mut dyn PortQueue, port: u16, bytes: &[u8], pool: &mut Pool) {
        let (mut frame, mut burst) = (pool.take().expect("free"), Burst::new());
        frame.copy_from(bytes).expect("fits");
        frame.meta_mut().port = port;
        burst.push(frame).expect("room");
        queue.transmit(pool, &mut burst);
        queue.flush(pool);
    }

    fn received(queue: &mut dyn PortQueue, pool: &mut Pool) -> Vec<(u16, u8)> {
        let mut burst = Burst::new();
        queue.receive(Instant::from_nanos(5), pool, &mut burst);
        let came = burst.frames().iter().map(|frame| (frame.meta().port, frame.bytes()[0])).collect();
        burst.release(usize::MAX, pool);
        came
    }

    #[test]
    fn each_frame_says_by_which_port_it_came_and_leaves_by_the_one_it_names() {
        let mut pool = Pool::new(8).expect("pool");
        let mut queue = LoopbackCarrier::new(PortId { port: 5000, queue: 1 }, 3).expect("eventfds");
        let mut far: Vec<_> = (0..4u16)
            .map(|port| queue.far_end(port, PortId { port: 90 + port, queue: 0 }).expect("eventfds"))
            .collect();
        for port in 0..3 {
            assert!(queue.add(LoopbackCarrier::port(port, 10 + u32::from(port))).is_ok());
        }
        assert!(queue.add(LoopbackCarrier::port(3, 13)).is_err(), "there is no room for a fourth");
        for (number, far) in far.iter_mut().enumerate().rev() {
            send(far, 0, &[number as u8 + 40], &mut pool);
        }
        assert!(queue.look());
        assert_eq!(received(&mut queue, &mut pool), [(2, 42), (1, 41), (0, 40)]);
        assert_eq!(queue.counters().drops.get(Reason::PortDown), 1, "of the port that is not carried");
        for port in [1, 2, 1, 3] {
            send(&mut queue, port, &[port as u8 + 60], &mut pool);
        }
        let back: Vec<_> = far.iter_mut().map(|far| received(far, &mut pool)).collect();
        assert_eq!(back, [vec![], vec![(91, 61), (91, 61)], vec![(92, 62)], vec![]]);
        assert_eq!(queue.counters().drops.get(Reason::PortDown), 2);
        let counted = |port: u16| {
            let counters = &queue.ports.get(port).expect("carried").counters;
            (counters.frames_in.get(), counters.frames_out.get())
        };
        assert_eq!([counted(0), counted(1), counted(2)], [(1, 0), (1, 2), (1, 1)]);
        assert_eq!(pool.free(), pool.frames());
    }

    #[test]
    fn a_port_changes_alone_and_is_carried_until_it_is_removed() {
        let mut pool = Pool::new(8).expect("pool");
        let mut queue = LoopbackCarrier::new(PortId { port: 5000, queue: 0 }, 2).expect("eventfds");
        let mut far = queue.far_end(7, PortId::default()).expect("eventfds");
        for port in [7, 8] {
            assert!(queue.add(LoopbackCarrier::port(port, u32::from(port))).is_ok());
        }
        let link = LinkState { mtu: 1000, takes_super_frames: false };
        let carrier = queue.carrier().expect("it carries several");
        assert_eq!(carrier.port_changed(7, link).map(|now| now.frame_len_max), Some(1014));
        assert_eq!(carrier.ports().get(8).map(|port| port.capabilities), Some(PLAIN));
        send(&mut queue, 7, &[1; 1015], &mut pool);
        let counters = queue.remove(7).expect("carried").counters;
        assert_eq!(counters.drops.get(Reason::FrameTooLarge), 1);
        assert!(queue.remove(7).is_none() && queue.port_changed(7, link).is_none());
        send(&mut far, 0, &[1], &mut pool);
        assert_eq!(received(&mut queue, &mut pool), []);
    }
}
