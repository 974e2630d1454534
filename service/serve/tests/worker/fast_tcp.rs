//! TCP on the fast path: a client's engine over the wire's other end, and the kernel's programs as a double.

mod idle;
mod moves;
mod super_segments;

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::event::{EventfdFlags, eventfd};
use twinpath_frame::{Burst, Frame, Gso, GsoKind, Pool};
use twinpath_inspect::Reason;
use twinpath_port::fit::fit;
use twinpath_port::loopback::{LoopbackPort, pair};
use twinpath_port::{Capabilities, GsoKinds, PortCounters, PortId, PortQueue};
use twinpath_serve::fast_tcp::{FastTcpConfig, Opening, TcpClaims};
use twinpath_serve::{
    Demux, DemuxCommand, KernelSide, Routes, ServeCommand, ServeConfig, ServeCounters, ServeEngine,
    ServeEvent, Served, ServicePart, TcpTotals,
};
use twinpath_service::Echo;
use twinpath_stream::TcpLimits;
use twinpath_tcp::{Config, ConnectionId, Later, Options, Outgoing, Segment, Sink, Tcp, Tuple, Unknown};
use twinpath_time::{Duration, Instant};
use twinpath_udp::egress::{KernelReason, Update};
use twinpath_wire::tcp::Flags;
use twinpath_wire::tcp_frame::{self, TcpFrameRepr};
use twinpath_wire::{ChecksumTrust, Mac, Protocol, TooBig, eth};
use twinpath_worker::mailbox::{Receiver, Sender, mailbox};
use twinpath_worker::{Command, Engine as _, Event, Worker, WorkerConfig, WorkerCounters};

use crate::wire::WAY_BACK;

type Ends = (SocketAddr, SocketAddr);

/// What the kernel's programs know.
#[derive(Default)]
struct Known {
    syns: VecDeque<Vec<u8>>,
    room: u32,
    full: Vec<u16>,
    /// The claimed tuples, with whether they were declined.
    tuples: HashMap<Ends, bool>,
    /// The programs are off: segments reach the filter of the kernel's listener.
    are_off: bool,
    /// Those of the declined tuples that were in TIME_WAIT then, and those of the others that were half-open.
    ended: HashSet<Ends>,
    half_open: HashSet<Ends>,
    leaked: VecDeque<Vec<u8>>,
}

impl Known {
    /// What becomes of a segment at the listener: whether the kernel takes it.
    fn leaks(&mut self, ends: Ends, frame: &[u8], opens: bool) -> bool {
        match self.tuples.get(&ends) {
            None => true,
            Some(true) if opens => {
                self.ended.remove(&ends);
                true
            }
            Some(true) => !self.ended.contains(&ends),
            Some(false) if self.half_open.contains(&ends) => {
                self.leaked.push_back(frame.to_vec());
                false
            }
            Some(false) => false,
        }
    }
}

/// The kernel's programs.
#[derive(Clone)]
struct Programs(Arc<Mutex<Known>>, Arc<OwnedFd>);

impl Programs {
    fn new() -> Self {
        let fd = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).expect("an eventfd");
        Self(Arc::default(), Arc::new(fd))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().expect("nobody panics")
    }
}

impl TcpClaims for Programs {
    fn fd(&self) -> BorrowedFd<'_> {
        self.1.as_fd()
    }

    fn next_syns(&mut self, take: &mut dyn FnMut(Opening<'_>)) {
        let _ = rustix::io::read(&self.1, &mut [0; 8]);
        let syns = std::mem::take(&mut self.known().syns);
        syns.iter().for_each(|syn| take(Opening::Syn(syn)));
        let leaked = std::mem::take(&mut self.known().leaked);
        leaked.iter().for_each(|frame| take(Opening::Leaked(frame)));
    }

    fn room(&self) -> u32 {
        self.known().room
    }

    fn set_room(&mut self, room: u32) {
        self.known().room = room;
    }

    fn set_full(&mut self, ports: &[u16]) {
        self.known().full = ports.to_vec();
    }

    fn release(&mut self, local: SocketAddr, remote: SocketAddr) {
        let (mut known, ends) = (self.known(), (local, remote));
        assert!(known.tuples.remove(&ends).is_some(), "{remote} is not claimed");
        known.ended.remove(&ends);
        known.half_open.remove(&ends);
    }

    fn decline(&mut self, local: SocketAddr, remote: SocketAddr) {
        let before = self.known().tuples.insert((local, remote), true);
        assert_eq!(before, Some(false), "{remote}");
    }

    fn end(&mut self, local: SocketAddr, remote: SocketAddr) {
        self.decline(local, remote);
        self.known().ended.insert((local, remote));
    }

    fn half_open(&mut self, local: SocketAddr, remote: SocketAddr) {
        assert_eq!(self.known().tuples.get(&(local, remote)), Some(&false), "{remote}");
        self.known().half_open.insert((local, remote));
    }

    fn reclaim(&mut self, local: SocketAddr, remote: SocketAddr) {
        assert_eq!(self.known().tuples.get(&(local, remote)), Some(&false), "{remote}");
        self.known().half_open.remove(&(local, remote));
    }
}

/// The client's way to the server: through the programs, onto the wire.
struct Way<'a> {
    programs: &'a Programs,
    pool: &'a mut Pool,
    wire: &'a mut LoopbackPort,
    /// Segments that the kernel's stack got.
    kernel: &'a mut Vec<u8>,
}

impl Sink for Way<'_> {
    fn send(&mut self, tuple: &Tuple, segment: &Outgoing<'_>) -> bool {
        let repr = TcpFrameRepr {
            source_mac: Mac([2, 0, 0, 0, 0, 2]),
            destination_mac: Mac([2, 0, 0, 0, 0, 1]),
            source: tuple.local().ip(),
            destination: tuple.remote().ip(),
            hop_limit: 64,
            ecn_capable: segment.capable,
            id: segment.id,
        };
        let mut bytes = vec![0; repr.frame_len(segment.options.len(), segment.payload.len())];
        repr.write(&mut bytes, &segment.header, segment.options, segment.payload).expect("fits");
        let ends = (tuple.remote(), tuple.local());
        let mut known = self.programs.known();
        if known.are_off {
            let headers = bytes.len() - segment.payload.len();
            let mut frame = bytes[..headers].to_vec();
            if tuple.local().is_ipv4() {
                repr.write(&mut frame, &segment.header, segment.options, &[]).expect("fits");
            }
            if known.leaks(ends, &frame, segment.header.flags.opens()) {
                self.kernel.push(segment.header.flags.0);
            }
            return true;
        }
        match known.tuples.get(&ends) {
            Some(false) => {
                drop(known);
                self.transmit(&bytes, segment.unit);
            }
            None if segment.header.flags.opens() && known.room > 0 => {
                known.room -= 1;
                known.tuples.insert(ends, false);
                known.syns.push_back(bytes);
                rustix::io::write(&self.programs.1, &1u64.to_ne_bytes()).expect("signalled");
            }
            _ => self.kernel.push(segment.header.flags.0),
        }
        true
    }
}

impl Way<'_> {
    /// Several frames if one does not hold it.
    fn transmit(&mut self, bytes: &[u8], unit: u16) {
        let mut frame = self.pool.copy_of([bytes]).expect("free");
        if unit > 0 {
            frame.meta_mut().gso = Gso { kind: GsoKind::TcpV4, ecn: false, size: unit };
        }
        let mut burst = Burst::new();
        burst.push(frame).expect("room");
        self.wire.transmit(self.pool, &mut burst);
    }
}

struct Rig {
    worker: Worker<Demux>,
    commands: Sender<Command<DemuxCommand>>,
    events: Receiver<Event<ServeEvent>>,
    programs: Programs,
    wire: LoopbackPort,
    pool: Pool,
    serve: Arc<ServeCounters>,
    counters: Arc<WorkerCounters>,
    tcp: Tcp,
    now: Instant,
    kernel: Vec<u8>,
    /// The flags of all segments that the server has sent.
    sent: Vec<u8>,
    /// The way to the client carries packets of at most this many bytes.
    carries: usize,
    /// The segments that were longer, as a router quotes them.
    too_big: Vec<TooBig>,
    super_segments: SuperSegments,
}

/// What the rig knows of super-segments of the server, and what it does to the segments that these become.
#[derive(Default)]
struct SuperSegments {
    count: usize,
    /// The longest, bytes of its frame.
    longest: usize,
    /// The longest segment, bytes of its payload.
    unit: u16,
    /// Loses one in 40 of what the client would get.
    losing: Option<fastrand::Rng>,
}

impl SuperSegments {
    /// The frames that reach the client: a super-segment is cut.
    fn arrive(&mut self, frame: Frame, pool: &mut Pool) -> Vec<Vec<u8>> {
        const CUT: Capabilities = Capabilities {
            frame_len_max: 1514,
            super_frame_len_max: 0,
            checksum: false,
            partial_checksums: false,
            segmentation: GsoKinds { tcp: false, udp: false },
            chains: false,
            tags: false,
        };
        let gso = frame.meta().gso;
        if gso.kind != GsoKind::None {
            self.count += 1;
            self.longest = self.longest.max(frame.chain_len());
            self.unit = self.unit.max(gso.size);
        }
        let (counters, mut segments) = (PortCounters::default(), Vec::new());
        fit(frame, &CUT, &counters, pool, |frame, pool| {
            segments.push(frame.bytes().to_vec());
            pool.release(frame);
        });
        assert_eq!(counters.drops.happened().count(), 0);
        if let Some(random) = &mut self.losing {
            segments.retain(|_| random.u8(..40) > 0);
        }
        segments
    }
}

const SERVER: ([u8; 4], u16) = ([192, 0, 2, 1], 7);

impl Rig {
    fn new() -> Self {
        Self::between(pair(PortId { port: 0, queue: 0 }, PortId { port: 1, queue: 0 }).expect("eventfds"))
    }

    /// Over these ends of a wire: the worker's, and the client's.
    fn between(ends: (LoopbackPort, LoopbackPort)) -> Self {
        Self::with_room(256, 8, ends)
    }

    /// With so many frames of the worker, and room for so many connections.
    fn with_room(frames: u32, connections: u32, ends: (LoopbackPort, LoopbackPort)) -> Self {
        Self::made(frames, connections, true, ends)
    }

    /// The same, with the kernel's programs or without.
    fn made(
        frames: u32,
        connections: u32,
        has_programs: bool,
        (near, wire): (LoopbackPort, LoopbackPort),
    ) -> Self {
        let limits = TcpLimits { connections, connections_per_source: connections, ..TcpLimits::default() };
        let totals = Arc::new(TcpTotals::new(limits, 1));
        let (commands, inbox) = mailbox(16).expect("eventfd");
        let (outbox, events) = mailbox(16).expect("eventfd");
        let serve = Arc::new(ServeCounters::for_entries(1));
        let served = Arc::new(Served::new().with_port(Protocol::Tcp, SERVER.1, &[]));
        let config = ServeConfig {
            served: Arc::clone(&served),
            addresses: [SocketAddr::from(SERVER).ip()].into(),
            reply_rate: 0,
            any_source_port: false,
            keeper: None,
            kernel: KernelSide { connections, totals, ..KernelSide::default() },
            fast_tcp: Some(FastTcpConfig::new(vec!["[::]:7".parse().expect("an address")])),
        };
        let part = ServicePart::new(ServeEngine::new(Echo, config, Arc::clone(&serve)), Arc::clone(&serve));
        let programs = Programs::new();
        let demux = Demux::new(Routes::of([(0, &*served)])).with(0, part);
        let claims: Option<Box<dyn TcpClaims>> =
            if has_programs { Some(Box::new(programs.clone())) } else { None };
        let demux = demux.with_claims(claims);
        let pool = Pool::new(frames).expect("pool");
        let config = WorkerConfig { idle: twinpath_worker::idle::IdleConfig::default() };
        let counters = Arc::new(WorkerCounters::default());
        let mut worker =
            Worker::new(&config, demux, pool, inbox, outbox, Arc::clone(&counters)).expect("a worker");
        worker.attach(Box::new(near));
        worker.start().expect("started");
        let (pool, tcp) =
            (Pool::new(4096).expect("pool"), Tcp::new(Config::default(), Unknown::Reset, [1, 2]));
        let now = Instant::from_nanos(1 << 40);
        let (kernel, sent, carries, too_big) = (Vec::new(), Vec::new(), usize::MAX, Vec::new());
        let super_segments = SuperSegments::default();
        let mut new = Self {
            worker,
            commands,
            events,
            programs,
            wire,
            pool,
            serve,
            counters,
            tcp,
            now,
            kernel,
            sent,
            carries,
            too_big,
            super_segments,
        };
        new.turn();
        new
    }

    fn connect(&mut self, port: u16) -> ConnectionId {
        let local = SocketAddr::from(([192, 0, 2, 2], port));
        self.tcp.connect(self.now, local, SERVER.into(), Options::default()).expect("free")
    }

    fn learn(&mut self, answer: Result<twinpath_udp::egress::Egress, KernelReason>) {
        let peer = [192, 0, 2, 2].into();
        self.tell(ServeCommand::Egress(Update::Learn { peer, answer }));
    }

    fn tell(&mut self, command: ServeCommand) {
        assert!(self.commands.send(Command::Engine(DemuxCommand::Each(command))).is_ok());
        self.turn();
    }

    fn asked(&mut self) -> bool {
        let mut asked = false;
        while let Some(event) = self.events.take() {
            asked |= matches!(event, Event::Engine(ServeEvent::Resolve { .. }));
        }
        asked
    }

    /// A turn of the worker, and what it sends to the client.
    fn turn(&mut self) {
        self.now += Duration::from_millis(1);
        let Self {
            worker,
            programs,
            wire,
            pool,
            tcp,
            now,
            kernel,
            sent,
            carries,
            too_big,
            super_segments,
            ..
        } = self;
        tcp.advance(*now, 100, &mut Way { programs, pool, wire, kernel });
        worker.turn(*now);
        let mut burst = Burst::new();
        wire.receive(*now, pool, &mut burst);
        let arrived: Vec<_> =
            burst.drain(usize::MAX).flat_map(|frame| super_segments.arrive(frame, pool)).collect();
        for frame in arrived {
            let found = tcp_frame::parse(&frame, ChecksumTrust::Verify).expect("a right segment");
            // A router cuts what it may, and the client's host puts it together.
            let may_be_cut = frame[20] & 0x40 == 0;
            if frame.len() - eth::HEADER_LEN > *carries && !may_be_cut {
                let (local, remote, seq) = (found.source, found.destination, found.segment.sequence());
                too_big.push(TooBig { local, remote, seq, mtu: *carries as u16 });
                continue;
            }
            sent.push(found.segment.flags().0);
            let tuple = Tuple::new(found.destination, found.source);
            let segment = Segment::new(&found.segment, found.congestion, 0);
            let (mut later, mut bytes) = (Kept::default(), Vec::new());
            tcp.segment(*now, &tuple, &segment, &mut Later, &mut later);
            std::mem::swap(&mut bytes, &mut later.0);
            let mut way = Way { programs, pool, wire, kernel };
            for Owned { tuple, header, options, payload, capable, id } in bytes {
                let segment = Outgoing { header, options: &options, payload: &payload, unit: 0, capable, id };
                way.send(&tuple, &segment);
            }
        }
    }

    /// The client sends, and the worker does not turn.
    fn client_turn(&mut self) {
        let Self { tcp, programs, wire, pool, kernel, now, .. } = self;
        tcp.advance(*now, 100, &mut Way { programs, pool, wire, kernel });
    }

    fn turns(&mut self, count: usize) {
        (0..count).for_each(|_| self.turn());
    }

    /// Writes to a connection, and returns what has come back after some turns.
    fn echo(&mut self, id: ConnectionId, text: &[u8]) -> Vec<u8> {
        self.echo_within(2000, id, text)
    }

    /// The same, after so many turns at most.
    fn echo_within(&mut self, turns: usize, id: ConnectionId, text: &[u8]) -> Vec<u8> {
        let (mut said, mut heard) = (0, Vec::new());
        for _ in 0..turns {
            if let Some(mut stream) = self.tcp.stream(self.now, id) {
                said += stream.write(&text[said..]);
                heard.extend_from_slice(stream.received());
                stream.consume(usize::MAX);
            }
            if heard.len() == text.len() {
                break;
            }
            self.turn();
        }
        heard
    }

    fn counts(&self) -> (u64, u64) {
        (self.serve.fast_connections.connections.get(), self.serve.fast_connections.accepted.get())
    }

    fn was_reset(&self) -> bool {
        self.sent.iter().any(|flags| flags & Flags::RST != 0)
    }
}

/// Segments with bytes of their own.
#[derive(Default)]
struct Kept(Vec<Owned>);

struct Owned {
    tuple: Tuple,
    header: twinpath_wire::tcp::Header,
    options: Vec<u8>,
    payload: Vec<u8>,
    capable: bool,
    id: Option<u16>,
}

impl Sink for Kept {
    fn send(&mut self, tuple: &Tuple, segment: &Outgoing<'_>) -> bool {
        let Outgoing { header, options, payload, capable, id, .. } = *segment;
        let (tuple, options, payload) = (*tuple, options.to_vec(), payload.to_vec());
        self.0.push(Owned { tuple, header, options, payload, capable, id });
        true
    }
}

#[test]
fn a_connection_is_served_whole_and_its_tuple_released_after_its_end() {
    let mut rig = Rig::new();
    rig.learn(Ok(WAY_BACK));
    let id = rig.connect(4000);
    let text: Vec<u8> = (0..200_000u32).map(|at| at as u8).collect();
    assert!(rig.echo(id, &text) == text);
    assert_eq!((rig.counts(), rig.kernel.len()), ((1, 1), 0));
    rig.tcp.close(rig.now, id);
    rig.turns(20);
    assert_eq!((rig.counts(), rig.programs.known().tuples.len()), ((0, 1), 0), "the client has TIME_WAIT");
    assert!(!rig.was_reset());
    let drops: Vec<_> = rig.counters.drops.happened().collect();
    assert_eq!(drops, []);
}

#[test]
fn a_worker_that_turns_finds_a_syn_before_its_descriptor_says_so() {
    let mut rig = Rig::new();
    rig.learn(Ok(WAY_BACK));
    rig.connect(4000);
    rig.client_turn();
    assert_eq!(rustix::io::read(&rig.programs.1, &mut [0; 8]), Ok(8));
    rig.turn();
    assert_eq!(rig.sent, [Flags::SYN | Flags::ACK]);
}

#[test]
fn an_end_that_comes_with_the_last_bytes_is_heard() {
    let mut rig = Rig::new();
    rig.learn(Ok(WAY_BACK));
    let id = rig.connect(4000);
    rig.turns(5);
    let mut stream = rig.tcp.stream(rig.now, id).expect("open");
    stream.write(b"hello");
    stream.end();
    rig.turns(5);
    let mut stream = rig.tcp.stream(rig.now, id).expect("open");
    assert_eq!(stream.received(), b"hello");
    stream.consume(5);
    assert!(stream.is_at_end());
}

#[test]
fn segments_fit_the_path_once_a_router_has_quoted_one_that_is_in_flight() {
    let mut rig = Rig::new();
    rig.learn(Ok(WAY_BACK));
    let id = rig.connect(4000);
    assert_eq!(rig.echo(id, b"hello"), b"hello");
    rig.carries = 1000;
    let text: Vec<u8> = (0..5000u32).map(|at| at as u8).collect();
    let said = rig.tcp.stream(rig.now, id).expect("open").write(&text[..1400]);
    assert_eq!(said, 1400);
    rig.turns(5);
    let quoted = rig.too_big.pop().expect("a long segment");
    // What is not in flight is forged; so is a connection that there is not.
    let elsewhere = SocketAddr::from(([192, 0, 2, 3], 4000));
    for forged in
        [TooBig { seq: quoted.seq.wrapping_sub(1 << 20), ..quoted }, TooBig { remote: elsewhere, ..quoted }]
    {
        rig.tell(ServeCommand::TooBig(forged));
    }
    let heard = |rig: &Rig| rig.tcp.info(rig.now, id).expect("open").queued;
    assert_eq!(heard(&rig), 0);
    rig.too_big.clear();
    let began = rig.now;
    rig.tell(ServeCommand::TooBig(quoted));
    rig.turns(20);
    assert_eq!((heard(&rig), rig.too_big.as_slice()), (1400, &[][..]));
    let counted = &rig.serve.fast_tcp;
    assert_eq!((counted.fast_path_told.get(), counted.fast_path_forged.get()), (1, 1));
    assert!(rig.now.since(began) < Duration::from_millis(200), "it was sent again before any time-out");
    rig.tcp.stream(rig.now, id).expect("open").consume(usize::MAX);
    assert!(rig.echo(id, &text) == text);
    assert!(rig.too_big.is_empty(), "what follows is short from the start");
}

#[test]
fn connections_that_begin_later_know_what_a_router_has_said_of_their_peer() {
    for carries in [1000, 500] {
        let mut rig = Rig::new();
        rig.learn(Ok(WAY_BACK));
        let text: Vec<u8> = (0..5000u32).map(|at| at as u8).collect();
        let first = rig.connect(4000);
        rig.carries = carries;
        rig.tcp.stream(rig.now, first).expect("open").write(&text);
        rig.turns(5);
        let quoted = rig.too_big.pop().expect("a long segment");
        rig.tell(ServeCommand::TooBig(quoted));
        rig.turns(50);
        rig.too_big.clear();
        let second = rig.connect(4001);
        assert!(rig.echo(second, &text) == text, "{carries}");
        assert!(rig.too_big.is_empty(), "what it sends is short from the start, or may be cut");
        rig.now += Duration::from_secs(600);
        rig.learn(Ok(WAY_BACK));
        let third = rig.connect(4002);
        rig.turns(3);
        rig.tcp.stream(rig.now, third).expect("open").write(&text);
        rig.turns(5);
        assert!(!rig.too_big.is_empty(), "the path may carry more by now");
    }
}

#[test]
fn a_router_that_does_not_say_what_its_path_carries_stops_no_connection_that_begins_later() {
    let mut rig = Rig::new();
    rig.learn(Ok(WAY_BACK));
    let text = vec![7; 5000];
    let first = rig.connect(4000);
    rig.carries = 1000;
    rig.tcp.stream(rig.now, first).expect("open").write(&text);
    rig.turns(5);
    let quoted = rig.too_big.pop().expect("a long segment");
    rig.tell(ServeCommand::TooBig(TooBig { mtu: 0, ..quoted }));
    rig.carries = 1500;
    let second = rig.connect(4001);
    assert!(rig.echo(second, &text) == text);
}

#[test]
fn a_syn_waits_until_the_next_hop_is_known() {
    let mut rig = Rig::new();
    let id = rig.connect(4000);
    rig.turns(10);
    assert!(rig.asked() && rig.sent.is_empty());
    rig.learn(Err(KernelReason::UnresolvedPeer { prefix_len: 24 }));
    rig.turns(10);
    assert!(rig.sent.is_empty());
    rig.learn(Ok(WAY_BACK));
    assert_eq!(rig.echo(id, b"hello"), b"hello");
    // What is known of the next hop is used until control has answered again.
    rig.tell(ServeCommand::Egress(Update::Clear));
    assert_eq!(rig.echo(id, b"again"), b"again");
    assert!(rig.asked() && rig.kernel.is_empty());
}

#[test]
fn a_peer_whose_next_hop_is_not_ours_is_left_to_the_kernel() {
    for answer in [Err(KernelReason::NotPlain), Ok(twinpath_udp::egress::Egress { ifindex: 9, ..WAY_BACK })] {
        let mut rig = Rig::new();
        rig.learn(answer);
        rig.connect(4000);
        rig.turns(5);
        assert_eq!(rig.serve.fast_tcp.fast_declined.get(), 1);
        assert!(rig.programs.known().tuples.values().all(|declined| *declined));
        // The client sends its SYN again.
        rig.turns(1100);
        assert_eq!(rig.kernel, [Flags::SYN]);
        rig.turns(10_000);
        assert!(rig.programs.known().tuples.is_empty(), "by then the kernel has its own connection");
    }
}

#[test]
fn a_peer_that_cannot_be_resolved_is_left_to_the_kernel_in_time() {
    let mut rig = Rig::new();
    rig.connect(4000);
    rig.turns(950);
    assert_eq!(rig.serve.fast_tcp.fast_declined.get(), 1);
    rig.turns(200);
    assert_eq!(rig.kernel, [Flags::SYN]);
}

#[test]
fn the_programs_take_no_more_than_there_is_room_for() {
    let mut rig = Rig::new();
    rig.learn(Ok(WAY_BACK));
    assert_eq!(rig.programs.known().room, 8);
    for port in 4000..4012 {
        rig.connect(port);
    }
    rig.turns(10);
    assert_eq!((rig.counts(), rig.programs.known().room, rig.kernel.len()), ((8, 8), 0, 4));
}

#[test]
fn a_drain_ends_connections_by_fin_and_takes_no_new_ones() {
    let mut rig = Rig::new();
    rig.learn(Ok(WAY_BACK));
    let id = rig.connect(4000);
    assert_eq!(rig.echo(id, b"hello"), b"hello");
    // This one is half-open when the drain begins.
    let late = rig.connect(4001);
    rig.client_turn();
    rig.now += Duration::from_millis(1);
    rig.worker.turn(rig.now);
    rig.tell(ServeCommand::Drain { handed_over: false });
    // An accepted client gets its first answer.
    assert_eq!(rig.echo(late, b"late"), b"late");
    rig.turns(20);
    for id in [id, late] {
        assert!(rig.tcp.stream(rig.now, id).is_some_and(|stream| stream.is_at_end()));
        rig.tcp.close(rig.now, id);
    }
    rig.connect(4002);
    rig.turns(20);
    assert!(!rig.was_reset());
    assert_eq!((rig.counts().0, rig.kernel.as_slice()), (0, &[Flags::SYN][..]));
    let mut drained = false;
    while let Some(event) = rig.events.take() {
        drained |= matches!(event, Event::Engine(ServeEvent::Drained));
    }
    assert!(drained);
}

#[test]
fn connections_that_no_socket_can_go_on_with_are_reset_before_the_port_goes_and_their_tuples_are_the_kernels()
{
    let mut rig = Rig::new();
    rig.learn(Ok(WAY_BACK));
    let (open, closed) = (rig.connect(4000), rig.connect(4001));
    for id in [open, closed] {
        assert_eq!(rig.echo(id, b"hello"), b"hello");
    }
    // The server's side of this one is closed, and its end is not acknowledged yet.
    rig.tcp.stream(rig.now, closed).expect("open").end();
    // This one is half-open, and the next one's SYN was not looked at yet.
    rig.connect(4002);
    rig.client_turn();
    rig.now += Duration::from_millis(1);
    rig.worker.turn(rig.now);
    rig.connect(4003);
    rig.client_turn();
    assert_eq!(rig.programs.known().tuples.len(), 4);
    assert!(rig.commands.send(Command::Engine(DemuxCommand::Each(ServeCommand::Leave))).is_ok());
    assert!(rig.commands.send(Command::DetachQueue(PortId { port: 0, queue: 0 })).is_ok());
    rig.turn();
    assert_eq!(rig.sent.iter().filter(|flags| *flags & Flags::RST != 0).count(), 2);
    assert!(rig.tcp.stream(rig.now, open).is_none_or(|stream| !stream.may_write()), "the client knows");
    assert_eq!((rig.counts().0, rig.programs.known().tuples.len()), (0, 2));
    assert_eq!(rig.programs.known().half_open.len(), 2, "their peers may have had an answer");
    let counted = &rig.serve.fast_tcp;
    assert_eq!((counted.fast_moved.get(), counted.fast_not_moved.get()), (0, 2), "no such address is here");
    assert!(rig.programs.known().room > 0, "it still accepts, should there be a port again");
}

#[test]
fn a_reset_that_finds_no_port_leaves_the_end_to_the_kernel() {
    let mut rig = Rig::new();
    rig.learn(Ok(WAY_BACK));
    let id = rig.connect(4000);
    assert_eq!(rig.echo(id, b"hello"), b"hello");
    assert!(rig.commands.send(Command::DetachQueue(PortId { port: 0, queue: 0 })).is_ok());
    rig.turn();
    assert_eq!(rig.programs.known().tuples.len(), 1, "it may come back soon");
    rig.tell(ServeCommand::Leave);
    assert_eq!((rig.counts().0, rig.programs.known().tuples.len()), (0, 0));
    assert!(!rig.was_reset());
    rig.tcp.stream(rig.now, id).expect("the client knows nothing").write(b"more");
    rig.turn();
    assert_eq!(rig.kernel.len(), 1, "whose listener answers with a reset");
}

#[test]
fn what_belongs_to_no_connection_is_dropped_and_not_answered() {
    let mut rig = Rig::new();
    rig.learn(Ok(WAY_BACK));
    // As if they had been claimed a moment ago.
    for port in [4000, 4001] {
        let ends = (SERVER.into(), SocketAddr::from(([192, 0, 2, 2], port)));
        rig.programs.known().tuples.insert(ends, false);
    }
    rig.connect(4000);
    let tuple = Tuple::new(SocketAddr::from(([192, 0, 2, 2], 4001)), SERVER.into());
    let header = twinpath_wire::tcp::Header {
        source_port: 4001,
        destination_port: 7,
        sequence: 1,
        acknowledgement: 1,
        flags: Flags(Flags::ACK),
        window: 1,
        urgent: 0,
    };
    let Rig { programs, wire, pool, kernel, .. } = &mut rig;
    let segment = Outgoing { header, options: &[], payload: b"x", unit: 0, capable: false, id: None };
    Way { programs, pool, wire, kernel }.send(&tuple, &segment);
    rig.turns(5);
    assert_eq!(rig.sent, []);
    assert_eq!(rig.counters.drops.get(Reason::NoConnection), 2);
}

impl Rig {
    /// A segment of a peer that is no engine.
    fn say(&mut self, port: u16, (sequence, acknowledgement): (u32, u32), flags: u8) {
        let tuple = Tuple::new(SocketAddr::from(([192, 0, 2, 2], port)), SERVER.into());
        let (source_port, destination_port, flags) = (port, SERVER.1, Flags(flags));
        let header = twinpath_wire::tcp::Header {
            source_port,
            destination_port,
            sequence,
            acknowledgement,
            flags,
            window: 1,
            urgent: 0,
        };
        let Self { programs, wire, pool, kernel, .. } = self;
        let segment = Outgoing { header, options: &[], payload: &[], unit: 0, capable: false, id: None };
        Way { programs, pool, wire, kernel }.send(&tuple, &segment);
        self.now += Duration::from_millis(1);
        self.worker.turn(self.now);
    }

    /// The server has a connection in TIME_WAIT, of the client's port 4000.
    fn in_time_wait() -> Self {
        let mut rig = Self::new();
        rig.learn(Ok(WAY_BACK));
        let id = rig.connect(4000);
        assert_eq!(rig.echo(id, b"hello"), b"hello");
        rig.tell(ServeCommand::Drain { handed_over: false });
        rig.turns(20);
        rig.tcp.close(rig.now, id);
        rig.turns(20);
        assert_eq!(rig.serve.fast_tcp.fast_time_wait.get(), 1);
        rig
    }

    /// Whether each tuple that is claimed was declined.
    fn declined(&self) -> Vec<bool> {
        self.programs.known().tuples.values().copied().collect()
    }
}

#[test]
fn a_connection_keeps_its_next_hop_until_control_has_another_answer() {
    let mut rig = Rig::new();
    rig.learn(Ok(WAY_BACK));
    let id = rig.connect(4000);
    assert_eq!(rig.echo(id, b"hello"), b"hello");
    rig.tell(ServeCommand::Egress(Update::Clear));
    // As many peers as the table holds take the place, and control does not answer.
    for number in 0..4096u32 {
        let peer = std::net::Ipv4Addr::from_bits(0xc633_0000 + number).into();
        rig.tell(ServeCommand::Egress(Update::Learn { peer, answer: Ok(WAY_BACK) }));
        rig.asked();
    }
    rig.now += Duration::from_secs(3600);
    assert_eq!(rig.echo(id, b"again"), b"again");
    rig.learn(Err(KernelReason::Unresolved));
    assert_eq!(rig.echo(id, b"lost"), b"");
    rig.learn(Ok(WAY_BACK));
    assert_eq!(rig.echo(id, b""), b"");
    assert_eq!(rig.counts().0, 1);
}

#[test]
fn a_connection_without_a_way_ends_after_a_grace_time() {
    for answer in [Err(KernelReason::NotPlain), Ok(twinpath_udp::egress::Egress { ifindex: 9, ..WAY_BACK })] {
        let mut rig = Rig::new();
        rig.learn(Ok(WAY_BACK));
        let id = rig.connect(4000);
        assert_eq!(rig.echo(id, b"hello"), b"hello");
        // One that is back in time changes nothing.
        rig.learn(answer);
        assert_eq!(rig.echo(id, b"lost"), b"");
        rig.learn(Ok(WAY_BACK));
        rig.turns(4000);
        assert_eq!((rig.counts().0, rig.kernel.len()), (1, 0));
        rig.tcp.stream(rig.now, id).expect("open").consume(usize::MAX);
        assert_eq!(rig.echo(id, b"again"), b"again");
        rig.learn(answer);
        rig.tcp.stream(rig.now, id).expect("open").write(b"lost");
        rig.turns(4900);
        assert_eq!((rig.counts().0, rig.programs.known().tuples.len()), (1, 1));
        rig.turns(5000);
        assert_eq!((rig.counts().0, rig.programs.known().tuples.len()), (0, 0));
        assert!(!rig.kernel.is_empty(), "the kernel resets it");
    }
}

#[test]
fn what_is_left_when_a_drain_is_cut_is_reset_by_the_engine() {
    let mut rig = Rig::new();
    rig.learn(Ok(WAY_BACK));
    let id = rig.connect(4000);
    assert_eq!(rig.echo(id, b"hello"), b"hello");
    rig.tell(ServeCommand::Drain { handed_over: false });
    rig.turns(20);
    // The client does not end its side.
    assert!(!rig.was_reset());
    rig.tell(ServeCommand::Cut);
    rig.turns(5);
    assert!(rig.was_reset());
    assert!(rig.tcp.info(rig.now, id).is_none_or(|info| info.ended.is_some()));
    assert_eq!((rig.counts().0, rig.kernel.len()), (0, 0));
}

#[test]
fn no_syn_is_taken_whose_next_hop_cannot_be_asked_for() {
    let mut rig = Rig::new();
    let mut asked = 0;
    for number in 0..700u32 {
        let local = std::net::Ipv4Addr::from_bits(0xc612_0000 + number);
        rig.tcp.connect(rig.now, (local, 4000).into(), SERVER.into(), Options::default()).expect("free");
        for _ in 0..10 {
            rig.turn();
            asked += u64::from(rig.asked());
        }
    }
    assert!(asked > 512 && !rig.kernel.is_empty() && rig.programs.known().room < 8);
    let waiting = rig.declined().iter().filter(|declined| !**declined).count() as u64;
    assert_eq!(
        rig.serve.fast_tcp.fast_declined.get() + waiting,
        asked,
        "all others were the kernel's at once"
    );
}

#[test]
fn a_port_used_again_right_after_a_reset_is_served_at_once() {
    let mut rig = Rig::new();
    rig.learn(Ok(WAY_BACK));
    let id = rig.connect(4000);
    assert_eq!(rig.echo(id, b"hello"), b"hello");
    rig.tcp.abort(rig.now, id);
    rig.client_turn();
    let (id, before) = (rig.connect(4000), rig.now);
    assert_eq!(rig.echo(id, b"again"), b"again");
    assert!(rig.now.since(before) < Duration::from_millis(100));
    assert_eq!((rig.counts(), rig.declined()), ((1, 2), vec![false]));
}

#[test]
fn an_acknowledgement_of_the_kernels_answer_leaves_the_connection_to_it() {
    let mut rig = Rig::new();
    rig.learn(Ok(WAY_BACK));
    rig.say(4000, (0, 0), Flags::SYN);
    assert_eq!(rig.declined(), [false]);
    rig.say(4000, (1, 1), Flags::ACK);
    assert_eq!((rig.declined(), rig.serve.fast_tcp.fast_declined.get()), (vec![true], 1));
    rig.say(4000, (1, 1), Flags::ACK);
    assert_eq!(rig.kernel, [Flags::ACK]);
    rig.turn();
    assert!(!rig.was_reset());
}

#[test]
fn time_wait_of_a_service_that_leaves_does_not_hold_its_port() {
    let mut rig = Rig::in_time_wait();
    assert_eq!(rig.declined(), [false], "the server has TIME_WAIT");
    rig.connect(4000);
    rig.turns(1100);
    assert_eq!((rig.kernel.as_slice(), rig.declined()), (&[Flags::SYN][..], Vec::new()));
}

#[test]
fn a_syn_that_nothing_can_be_made_of_is_the_kernels() {
    let mut rig = Rig::new();
    rig.say(4000, (0, 0), Flags::ACK);
    rig.kernel.clear();
    let tuple = (SocketAddr::from(SERVER), SocketAddr::from(([192, 0, 2, 2], 4000)));
    let mut bytes = vec![0; 54];
    let repr = TcpFrameRepr {
        source_mac: Mac([2, 0, 0, 0, 0, 2]),
        destination_mac: Mac([2, 0, 0, 0, 0, 1]),
        source: tuple.1.ip(),
        destination: tuple.0.ip(),
        hop_limit: 64,
        ecn_capable: false,
        id: None,
    };
    let header = twinpath_wire::tcp::Header {
        source_port: 4000,
        destination_port: SERVER.1,
        sequence: 0,
        acknowledgement: 0,
        flags: Flags(Flags::SYN),
        window: 1,
        urgent: 0,
    };
    repr.write(&mut bytes, &header, &[], &[]).expect("fits");
    // It says that it is longer than its frame.
    bytes[17] = 0xff;
    rig.programs.known().tuples.insert(tuple, false);
    rig.programs.known().syns.push_back(bytes);
    rustix::io::write(&rig.programs.1, &1u64.to_ne_bytes()).expect("signalled");
    rig.turn();
    assert_eq!(rig.declined(), [true]);
    rig.turns(10_100);
    assert_eq!(rig.declined(), [true; 0]);
}

#[test]
fn a_syn_that_a_turn_finds_is_an_arrival() {
    for (turns, found) in [(1, true), (2, false)] {
        let mut rig = Rig::new();
        rig.learn(Ok(WAY_BACK));
        rig.connect(4000);
        rig.turns(turns);
        assert_eq!(rig.worker.into_remains().engine.found(), found, "{turns}");
    }
}
