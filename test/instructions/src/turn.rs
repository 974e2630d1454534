//! A request by UDP through the whole of a worker's turn: port, demultiplexer, stack, service, and back to the port.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use twinpath_frame::{Burst, Pool};
use twinpath_port::loopback::pair;
use twinpath_port::{PortId, PortQueue};
use twinpath_serve::{Demux, DemuxCommand, KernelSide, Prototype, Routes, ServeCommand, ServeConfig, Served};
use twinpath_stack::egress::{Egress, Update};
use twinpath_stack::udp;
use twinpath_time::Instant;
use twinpath_wire::Mac;
use twinpath_worker::mailbox::mailbox;
use twinpath_worker::{Command, Worker, WorkerConfig};

const SERVER_MAC: Mac = Mac([2, 0, 0, 0, 0, 1]);
const CLIENT_MAC: Mac = Mac([2, 0, 0, 0, 0, 2]);
const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
const PORT: u16 = 2049;
const FRAMES: u32 = 64;

/// Has a worker with so many services serve so many datagrams at the last one of them, one a turn.
pub(crate) fn serve(service: &dyn Prototype, services: usize, payload: &[u8], peer: SocketAddr, turns: u64) {
    let (near, mut wire) =
        pair(PortId { port: 0, queue: 0 }, PortId { port: 1, queue: 0 }).expect("eventfds");
    let (mut commands, inbox) = mailbox(16).expect("eventfd");
    let (outbox, _events) = mailbox(16).expect("eventfd");
    let served = |slot: usize| Arc::new(Served::new().with_port(PORT - slot as u16, &[]));
    let all: Vec<_> = (0..services).map(|slot| (slot, served(slot))).collect();
    let routes = Routes::of(all.iter().map(|(slot, served)| (*slot, &**served)));
    let demux = all.iter().fold(Demux::new(routes), |demux, (slot, served)| {
        let (served, kernel) = (Arc::clone(served), KernelSide::default());
        let config = ServeConfig { served, addresses: [SERVER].into(), reply_rate: 0, kernel };
        demux.with(*slot, service.slot(config).0)
    });
    let config = WorkerConfig { idle: twinpath_worker::idle::IdleConfig::default() };
    let memory = || Pool::new(FRAMES).expect("memory");
    let mut worker =
        Worker::new(&config, demux, memory(), inbox, outbox, Arc::default()).expect("descriptors");
    worker.attach(Box::new(near));
    worker.start().expect("started");
    let way = |source_mac, next_hop_mac| Egress { ifindex: 0, source_mac, next_hop_mac, mtu: 1500 };
    let update = Update::Learn { peer: peer.ip(), answer: Ok(way(SERVER_MAC, CLIENT_MAC)) };
    let told = DemuxCommand::Each(ServeCommand::Egress(update));
    assert!(commands.send(Command::Engine(told)).is_ok());
    let (mut pool, mut burst, mut answered) = (memory(), Burst::new(), 0);
    let (there, to) = (way(CLIENT_MAC, SERVER_MAC), SocketAddr::new(SERVER, PORT + 1 - services as u16));
    worker.turn(Instant::from_nanos(1));
    for turn in 0..turns {
        let mut frame = pool.take().expect("free");
        let write = |room: &mut [u8]| room.copy_from_slice(payload);
        udp::send(&mut frame, payload.len(), peer, to, &there, write).expect("fits");
        burst.push(frame).expect("room");
        wire.transmit(&mut pool, &mut burst);
        // Ten microseconds from one to the next.
        worker.turn(Instant::from_nanos(10_000 * (turn + 1)));
        wire.receive(Instant::ZERO, &mut pool, &mut burst);
        answered += burst.frames().len() as u64;
        burst.release(usize::MAX, &mut pool);
    }
    assert_eq!(answered, turns, "each is answered on the fast path");
}
