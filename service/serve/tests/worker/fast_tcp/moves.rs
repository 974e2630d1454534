//! Very many connections that move to the kernel: a turn moves some of them, and the others are served meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};

use twinpath_port::{QueueInfo, WaitSource};
use twinpath_sys::Namespace;
use twinpath_test_rig::{ip_here, root_or_skip};

use super::idle::segment;
use super::*;

const MANY: u32 = 3000;

/// What a turn may move (`MOVES_PER_TURN`).
const IN_A_TURN: u64 = 16;

impl Rig {
    fn with_many() -> (Self, Vec<ConnectionId>) {
        let ends = pair(PortId { port: 0, queue: 0 }, PortId { port: 1, queue: 0 }).expect("eventfds");
        let mut rig = Self::with_room(256, MANY, ends);
        rig.learn(Ok(WAY_BACK));
        let mut all = Vec::new();
        while all.len() < MANY as usize {
            let first = 4000 + all.len() as u16;
            all.extend((first..first + 20).map(|port| rig.connect(port)));
            rig.turns(3);
        }
        assert_eq!((rig.counts(), rig.kernel.len()), ((MANY.into(), MANY.into()), 0));
        (rig, all)
    }

    /// Tells the worker to leave, and then to give its port back.
    fn leave(&mut self, command: ServeCommand) {
        assert!(self.commands.send(Command::Engine(DemuxCommand::Each(command))).is_ok());
        assert!(self.commands.send(Command::DetachQueue(PortId { port: 0, queue: 0 })).is_ok());
    }

    fn has_port(&mut self) -> bool {
        let mut has = true;
        while let Some(event) = self.events.take() {
            has &= !matches!(event, Event::Detached(_));
        }
        has
    }

    fn has_drained(&mut self) -> bool {
        let mut has = false;
        while let Some(event) = self.events.take() {
            has |= matches!(event, Event::Engine(ServeEvent::Drained));
        }
        has
    }

    /// How many have moved, or could not.
    fn done(&self) -> u64 {
        self.serve.fast_tcp.fast_moved.get() + self.serve.fast_tcp.fast_not_moved.get()
    }

    /// Turns until the port is back. Returns how many connections the longest turn has dealt with, and how many turns there
    /// were.
    fn until_it_has_left(&mut self) -> (u64, u64) {
        let (mut longest, mut turns, mut before) = (0, 0, self.done());
        let mut tuples = self.programs.known().tuples.len();
        while self.has_port() {
            self.turn();
            longest = longest.max(self.done() - before);
            before = self.done();
            let left = self.programs.known().tuples.len();
            assert!(tuples - left <= 256, "{} were released in a turn", tuples - left);
            tuples = left;
            turns += 1;
            assert!(turns < 2 * u64::from(MANY), "it never ends");
        }
        assert_eq!(tuples, 0, "it has its port until all are released");
        (longest, turns)
    }
}

#[test]
fn connections_that_cannot_move_are_reset_some_in_each_turn_and_the_port_stays_until_then() {
    let (mut rig, all) = Rig::with_many();
    rig.leave(ServeCommand::Leave);
    let (longest, turns) = rig.until_it_has_left();
    assert_eq!(longest, IN_A_TURN);
    assert!(turns >= u64::from(MANY) / IN_A_TURN, "{turns}");
    assert_eq!((rig.serve.fast_tcp.fast_moved.get(), rig.counts().0), (0, 0), "no such address is here");
    assert_eq!(rig.serve.fast_tcp.fast_not_moved.get(), MANY.into());
    let is_open = |id: &&ConnectionId| rig.tcp.info(rig.now, **id).is_some_and(|info| info.ended.is_none());
    assert_eq!(all.iter().filter(is_open).count(), 0, "each client knows");
}

const ADDRESS: &str = "addr add 192.0.2.1/24 dev near";

/// Runs a test where the addresses of the rig are the kernel's.
fn where_the_kernel_has_the_address(test: impl Fn() + Sync) {
    where_the_kernel_has_an_interface(|| {
        ip_here(ADDRESS);
        test();
    });
}

/// Runs a test where the kernel has an interface for them.
fn where_the_kernel_has_an_interface(test: impl Fn() + Sync) {
    if !root_or_skip() {
        return;
    }
    let work = || {
        for arguments in [
            // Without any local address, the kernel takes each for its own.
            "link set lo up",
            "link add near type veth peer name far",
            "link set far up",
            "link set near up",
        ] {
            ip_here(arguments);
        }
        test();
    };
    Namespace::new().expect("root may").run(work).expect("no panic");
}

#[test]
fn those_whose_turn_has_not_come_are_served_by_the_fast_path() {
    where_the_kernel_has_the_address(|| {
        let (mut rig, all) = Rig::with_many();
        rig.leave(ServeCommand::Leave);
        rig.turns(2);
        let moved = rig.serve.fast_tcp.fast_moved.get();
        assert!((1..=3 * IN_A_TURN).contains(&moved), "{moved}");
        let last = *all.last().expect("many");
        assert_eq!(rig.echo_within(40, last, b"still here"), b"still here");
        assert!(rig.serve.fast_tcp.fast_moved.get() < u64::from(MANY) / 2);
        let (longest, _) = rig.until_it_has_left();
        assert_eq!((longest, rig.serve.fast_tcp.fast_moved.get()), (IN_A_TURN, MANY.into()));
        assert_eq!((rig.serve.fast_tcp.fast_not_moved.get(), rig.was_reset()), (0, false));
        assert_eq!(rig.counts().0, MANY.into(), "the service has them all");
        assert_eq!(rig.serve.fast_tcp.fast_in_kernel.get(), MANY.into());
        drop(rig);
    });
}

#[test]
fn a_drain_that_is_cut_lets_the_kernel_deliver_some_in_each_turn() {
    where_the_kernel_has_the_address(|| {
        let (mut rig, _) = Rig::with_many();
        rig.tell(ServeCommand::Drain { handed_over: false });
        assert!(rig.counts().0 > u64::from(MANY) / 2, "no turn tells all of them to end");
        rig.leave(ServeCommand::Cut);
        let (longest, _) = rig.until_it_has_left();
        assert_eq!((longest, rig.counts().0), (IN_A_TURN, 0));
        assert_eq!((rig.serve.fast_tcp.fast_not_moved.get(), rig.was_reset()), (0, false));
    });
}

impl Rig {
    /// Its path is back, by another port.
    fn gets_a_port(&mut self, number: u16) {
        let [near, far] = [number, number + 1].map(|port| PortId { port, queue: 0 });
        let (near, wire) = pair(near, far).expect("eventfds");
        self.wire = wire;
        assert!(self.commands.send(Command::Attach(Box::new(near))).is_ok());
        self.turn();
    }

    /// The client takes what is on the wire, and answers; the worker does not turn.
    fn answers_reach_the_client(&mut self) {
        let mut burst = Burst::new();
        self.wire.receive(self.now, &mut self.pool, &mut burst);
        let frames: Vec<_> = burst.drain(usize::MAX).collect();
        for frame in frames {
            let mut kept = Kept::default();
            let found = tcp_frame::parse(frame.bytes(), ChecksumTrust::Verify).expect("a right segment");
            let tuple = Tuple::new(found.destination, found.source);
            let segment = Segment::new(&found.segment, found.congestion, 0);
            self.tcp.segment(self.now, &tuple, &segment, &mut Later, &mut kept);
            self.pool.release(frame);
            let Self { programs, pool, wire, kernel, .. } = self;
            let mut way = Way { programs, pool, wire, kernel };
            for Owned { tuple, header, options, payload, capable, id } in kept.0 {
                let segment = Outgoing { header, options: &options, payload: &payload, unit: 0, capable, id };
                way.send(&tuple, &segment);
            }
        }
    }
}

#[test]
fn what_has_moved_takes_up_room_and_does_not_move_again() {
    where_the_kernel_has_the_address(|| {
        let ends = pair(PortId { port: 0, queue: 0 }, PortId { port: 1, queue: 0 }).expect("eventfds");
        let mut rig = Rig::with_room(256, 4, ends);
        rig.learn(Ok(WAY_BACK));
        for port in 4000..4003 {
            let id = rig.connect(port);
            assert_eq!(rig.echo(id, b"hello"), b"hello");
        }
        // Acknowledgements that are delayed leave before.
        rig.turns(500);
        rig.leave(ServeCommand::Leave);
        rig.until_it_has_left();
        rig.gets_a_port(2);
        assert_eq!((rig.counts().0, rig.programs.known().room), (3, 1));
        let last = rig.connect(4003);
        assert_eq!(rig.echo(last, b"fast again"), b"fast again");
        rig.kernel.clear();
        rig.connect(4004);
        rig.turns(5);
        assert_eq!((rig.counts().0, rig.kernel.as_slice()), (4, &[Flags::SYN][..]), "it is full");
        assert!(rig.commands.send(Command::Engine(DemuxCommand::Each(ServeCommand::Leave))).is_ok());
        assert!(rig.commands.send(Command::DetachQueue(PortId { port: 2, queue: 0 })).is_ok());
        rig.until_it_has_left();
        let counted = &rig.serve.fast_tcp;
        assert_eq!((counted.fast_moved.get(), counted.fast_not_moved.get()), (4, 0));
        assert_eq!((counted.fast_in_kernel.get(), rig.counts().0, rig.was_reset()), (4, 4, false));
    });
}

/// A connection whose SYN is answered, with the answer under way; the programs come off.
fn answered() -> (Rig, ConnectionId) {
    let mut rig = Rig::new();
    rig.learn(Ok(WAY_BACK));
    let id = rig.connect(4000);
    rig.client_turn();
    rig.now += Duration::from_millis(1);
    rig.worker.turn(rig.now);
    assert_eq!(rig.serve.fast_tcp.fast_half_open.get(), 1);
    (rig, id)
}

impl Rig {
    fn programs_come_off(&self) {
        self.programs.known().are_off = true;
    }

    /// A turn of the worker; all that it sends is lost.
    fn deaf_turn(&mut self) {
        self.now += Duration::from_millis(1);
        self.worker.turn(self.now);
        let mut burst = Burst::new();
        self.wire.receive(self.now, &mut self.pool, &mut burst);
        burst.release(usize::MAX, &mut self.pool);
    }

    /// It has moved, silently.
    fn went_on(&mut self, id: ConnectionId) {
        assert!(!self.has_port());
        let counted = &self.serve.fast_tcp;
        assert_eq!((counted.fast_moved.get(), counted.fast_not_moved.get()), (1, 0));
        assert_eq!((self.counts().0, self.kernel.len(), self.was_reset()), (1, 0, false));
        assert!(self.tcp.info(self.now, id).is_some_and(|info| info.ended.is_none()));
        assert_eq!(self.programs.known().tuples.len(), 0);
    }
}

#[test]
fn a_handshake_under_way_is_completed_by_what_reaches_the_listener_and_goes_on_in_the_kernel() {
    where_the_kernel_has_the_address(|| {
        let (mut rig, id) = answered();
        rig.programs_come_off();
        rig.leave(ServeCommand::Leave);
        rig.turns(10);
        rig.went_on(id);
    });
}

#[test]
fn a_peer_whose_acknowledgement_was_lost_as_the_programs_came_off_sends_it_again() {
    where_the_kernel_has_the_address(|| {
        let (mut rig, id) = answered();
        rig.programs_come_off();
        // The client is connected, and says so in vain.
        rig.turn();
        assert!(rig.tcp.stream(rig.now, id).is_some_and(|stream| stream.may_write()));
        rig.turns(3);
        assert_eq!(rig.serve.fast_tcp.fast_half_open.get(), 1);
        rig.leave(ServeCommand::Leave);
        rig.turns(10);
        rig.went_on(id);
    });
}

#[test]
fn a_peer_that_has_heard_nothing_of_its_handshake_gets_an_answer_from_the_kernel() {
    let (mut rig, _) = answered();
    rig.programs_come_off();
    rig.leave(ServeCommand::Leave);
    for _ in 0..5 {
        rig.deaf_turn();
    }
    assert!(!rig.has_port(), "it does not wait for it");
    assert_eq!((rig.declined(), rig.kernel.len()), (vec![false], 0));
    rig.turns(1100);
    assert_eq!((rig.declined(), rig.kernel.len()), (vec![true], 0), "its SYN says so");
    rig.turns(2100);
    assert_eq!(rig.kernel, [Flags::SYN], "the next one is the kernel's");
    assert_eq!((rig.serve.fast_tcp.fast_half_open.get(), rig.serve.fast_tcp.fast_declined.get()), (0, 1));
    assert!(!rig.was_reset());
}

#[test]
fn a_peer_whose_repeated_syn_crosses_the_answer_keeps_its_handshake() {
    // Before and after the port has gone.
    for turns_later in [0, 5] {
        where_the_kernel_has_the_address(|| {
            let (mut rig, id) = answered();
            rig.deaf_turn();
            rig.programs_come_off();
            rig.leave(ServeCommand::Leave);
            rig.now += Duration::from_millis(995);
            // The answer is given once more. The peer repeats its SYN before that arrives.
            for _ in 0..=turns_later {
                rig.worker.turn(rig.now);
            }
            rig.now += Duration::from_millis(10);
            rig.client_turn();
            assert_eq!(rig.programs.known().leaked.len(), 1);
            rig.worker.turn(rig.now);
            assert_eq!(rig.declined(), [false]);
            rig.turns(10);
            rig.went_on(id);
        });
    }
}

#[test]
fn what_a_peer_of_time_wait_repeats_is_answered_by_nobody_until_it_begins_anew() {
    let mut rig = Rig::in_time_wait();
    rig.programs_come_off();
    rig.leave(ServeCommand::Leave);
    rig.turns(3);
    assert!(!rig.has_port());
    for _ in 0..3 {
        rig.say(4000, (7, 7), Flags::FIN | Flags::ACK);
        rig.say(4000, (7, 7), Flags::ACK);
    }
    assert_eq!((rig.kernel.as_slice(), rig.declined()), (&[][..], vec![true]));
    for flags in [Flags::SYN, Flags::ACK, Flags::FIN | Flags::ACK] {
        rig.say(4000, (9, 9), flags);
    }
    assert_eq!(rig.kernel, [Flags::SYN, Flags::ACK, Flags::FIN | Flags::ACK], "a connection of its own");
    rig.now += Config::default().time_wait_time;
    rig.turn();
    assert_eq!(rig.declined(), [true; 0]);
}

#[test]
fn tuples_of_time_wait_are_released_when_their_own_time_is_over() {
    let mut rig = Rig::new();
    rig.learn(Ok(WAY_BACK));
    let [first, second] = [4000, 4001].map(|port| rig.connect(port));
    assert_eq!(
        (rig.echo(first, b"hello"), rig.echo(second, b"hello")),
        (b"hello".to_vec(), b"hello".to_vec())
    );
    rig.tell(ServeCommand::Drain { handed_over: false });
    rig.turns(20);
    rig.tcp.close(rig.now, first);
    rig.client_turn();
    // The acknowledgement is lost: the FIN comes again, and the time begins anew.
    rig.deaf_turn();
    rig.tcp.close(rig.now, second);
    rig.turns(20);
    let ended = rig.now;
    rig.turns(1000);
    assert_eq!(rig.serve.fast_tcp.fast_time_wait.get(), 2);
    rig.programs_come_off();
    rig.leave(ServeCommand::Leave);
    rig.turns(3);
    assert_eq!(rig.programs.known().ended.len(), 2);
    rig.now = ended + Config::default().time_wait_time;
    rig.turn();
    let left: Vec<_> = rig.programs.known().tuples.keys().map(|(_, peer)| peer.port()).collect();
    assert_eq!(left, [4000]);
    rig.turns(1000);
    assert_eq!(rig.declined(), [true; 0]);
}

#[test]
fn a_handshake_that_begins_as_the_path_ends_is_answered_once_more_like_the_others() {
    let mut rig = Rig::new();
    rig.learn(Ok(WAY_BACK));
    let id = rig.connect(4000);
    assert_eq!(rig.echo(id, b"hello"), b"hello");
    // The server ends what is idle, and has TIME_WAIT.
    rig.now += Duration::from_secs(3600);
    rig.learn(Ok(WAY_BACK));
    rig.turns(20);
    rig.tcp.close(rig.now, id);
    rig.turns(20);
    assert_eq!(rig.serve.fast_tcp.fast_time_wait.get(), 1);
    rig.connect(4001);
    rig.client_turn();
    rig.deaf_turn();
    // The peer in TIME_WAIT begins anew. The worker reads that after it was told to leave.
    rig.connect(4000);
    rig.client_turn();
    rig.programs_come_off();
    rig.leave(ServeCommand::Leave);
    for _ in 0..3 {
        rig.deaf_turn();
    }
    assert_eq!((rig.serve.fast_tcp.fast_half_open.get(), rig.programs.known().half_open.len()), (2, 2));
    assert_eq!(rig.serve.fast_tcp.fast_retransmitted.get(), 2);
}

#[test]
fn a_port_goes_although_the_worker_never_gets_a_frame_for_what_it_has_to_say() {
    let (mut rig, _) = Rig::without_frames();
    rig.leave(ServeCommand::Leave);
    let mut turns = 0;
    while rig.has_port() {
        rig.turn();
        turns += 1;
        assert!(turns < 1000, "it never goes");
    }
    assert_eq!((rig.serve.fast_tcp.fast_not_moved.get(), rig.was_reset()), (STARVED, false));
}

#[test]
fn a_port_stays_until_there_are_frames_for_what_the_worker_has_to_say() {
    let (mut rig, takes) = Rig::without_frames();
    rig.leave(ServeCommand::Leave);
    rig.turns(20);
    assert!(rig.has_port() && !rig.was_reset());
    takes.store(false, Ordering::Relaxed);
    rig.turns(3);
    assert!(!rig.has_port());
    assert_eq!(rig.sent.iter().filter(|flags| **flags & Flags::RST != 0).count() as u64, STARVED);
}

#[test]
fn a_turn_tells_the_programs_of_so_many_declined_tuples_and_the_next_ones_of_the_rest() {
    let mut rig = Rig::new();
    rig.leave(ServeCommand::Leave);
    rig.turns(3);
    let peers = (0..2000).map(|number| SocketAddr::from(([192, 0, 2, 2], 4000 + number)));
    for peer in peers {
        let mut known = rig.programs.known();
        known.tuples.insert((SERVER.into(), peer), false);
        known.syns.push_back(segment(peer, (0, 0), Flags::SYN));
    }
    let mut before = 0;
    for turn in 0.. {
        rig.turn();
        let told = rig.declined().iter().filter(|declined| **declined).count();
        assert!(told - before <= 512 && turn < 20, "{told}");
        before = told;
        if told == 2000 {
            break;
        }
    }
}

/// How many connections are open while a worker has no frames.
const STARVED: u64 = 6;

/// A port that takes all frames of the worker while it is told to.
struct Hoard {
    wire: LoopbackPort,
    takes: Arc<AtomicBool>,
    held: Vec<Frame>,
}

impl PortQueue for Hoard {
    fn info(&self) -> &QueueInfo {
        self.wire.info()
    }

    fn capabilities(&self) -> Capabilities {
        self.wire.capabilities()
    }

    fn receive(&mut self, _: Instant, pool: &mut Pool, _: &mut Burst) {
        if self.takes.load(Ordering::Relaxed) {
            self.held.extend(std::iter::from_fn(|| pool.take()));
        } else {
            self.held.drain(..).for_each(|frame| pool.release(frame));
        }
    }

    fn transmit(&mut self, pool: &mut Pool, burst: &mut Burst) {
        self.wire.transmit(pool, burst);
    }

    fn flush(&mut self, pool: &mut Pool) {
        self.wire.flush(pool);
    }

    fn close(self: Box<Self>) -> Vec<Frame> {
        self.held
    }
}

impl WaitSource for Hoard {
    fn look(&self) -> bool {
        self.wire.look()
    }

    fn arm(&mut self) -> bool {
        self.wire.arm()
    }

    fn disarm(&mut self) {
        self.wire.disarm();
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.wire.fd()
    }
}

impl Rig {
    /// Connections of a worker that has no frames until the value is false.
    fn without_frames() -> (Self, Arc<AtomicBool>) {
        let mut rig = Self::new();
        rig.learn(Ok(WAY_BACK));
        (0..STARVED as u16).for_each(|number| _ = rig.connect(4000 + number));
        rig.turns(500);
        assert_eq!(rig.counts().0, STARVED);
        let takes = Arc::new(AtomicBool::new(true));
        let ends = pair(PortId { port: 8, queue: 0 }, PortId { port: 9, queue: 0 }).expect("eventfds");
        let hoard = Hoard { wire: ends.0, takes: Arc::clone(&takes), held: Vec::new() };
        assert!(rig.commands.send(Command::Attach(Box::new(hoard))).is_ok());
        rig.turns(2);
        (rig, takes)
    }
}

#[test]
fn a_service_whose_worker_has_no_programs_leaves_at_once() {
    let ends = pair(PortId { port: 0, queue: 0 }, PortId { port: 1, queue: 0 }).expect("eventfds");
    let mut rig = Rig::made(256, 8, false, ends);
    rig.leave(ServeCommand::Leave);
    rig.turns(2);
    assert!(!rig.has_port());
    assert_ne!(rig.worker.into_remains().engine.next_deadline(), Instant::ZERO, "it does not spin");
}

#[test]
fn what_completes_a_handshake_after_the_path_has_ended_moves_as_well() {
    where_the_kernel_has_the_address(|| {
        let (mut rig, id) = answered();
        // More than a turn takes, and the acknowledgement last.
        for _ in 0..100 {
            let ends = Tuple::new(SocketAddr::from(([192, 0, 2, 2], 4009)), SERVER.into());
            rig.programs.known().tuples.insert((ends.remote(), ends.local()), false);
            let header = twinpath_wire::tcp::Header {
                source_port: 4009,
                destination_port: 7,
                sequence: 1,
                acknowledgement: 1,
                flags: Flags(Flags::ACK),
                window: 1,
                urgent: 0,
            };
            let Rig { programs, wire, pool, kernel, .. } = &mut rig;
            let segment = Outgoing { header, options: &[], payload: b"x", unit: 0, capable: false, id: None };
            Way { programs, pool, wire, kernel }.send(&ends, &segment);
        }
        let ends = (SERVER.into(), SocketAddr::from(([192, 0, 2, 2], 4009)));
        rig.programs.known().tuples.remove(&ends);
        rig.answers_reach_the_client();
        rig.programs_come_off();
        rig.leave(ServeCommand::Leave);
        rig.turns(10);
        rig.went_on(id);
    });
}

#[test]
fn a_handshake_goes_on_by_the_path_if_that_is_back() {
    let (mut rig, id) = answered();
    rig.programs_come_off();
    rig.leave(ServeCommand::Leave);
    for _ in 0..5 {
        rig.deaf_turn();
    }
    assert!(!rig.has_port());
    assert_eq!(rig.programs.known().half_open.len(), 1);
    rig.gets_a_port(2);
    rig.programs.known().are_off = false;
    rig.turn();
    assert_eq!(rig.programs.known().half_open.len(), 0);
    // The client repeats its SYN.
    rig.turns(1100);
    assert_eq!(rig.echo(id, b"hello"), b"hello");
    let counted = &rig.serve.fast_tcp;
    assert_eq!((rig.counts().0, counted.fast_moved.get(), counted.fast_not_moved.get()), (1, 0, 0));
}

#[test]
fn a_handshake_does_not_hold_up_a_service_whose_listeners_another_instance_has() {
    let (mut rig, _) = answered();
    rig.programs_come_off();
    rig.leave(ServeCommand::Leave);
    for _ in 0..5 {
        rig.deaf_turn();
    }
    rig.tell(ServeCommand::Drain { handed_over: true });
    rig.turn();
    assert!(rig.has_drained() && rig.programs.known().tuples.is_empty());
}

#[test]
fn a_drain_waits_for_a_handshake_whose_peer_is_slow() {
    let mut rig = Rig::new();
    rig.learn(Ok(WAY_BACK));
    let id = rig.connect(4000);
    rig.client_turn();
    for _ in 0..5 {
        rig.deaf_turn();
    }
    assert_eq!(rig.serve.fast_tcp.fast_half_open.get(), 1);
    rig.tell(ServeCommand::Drain { handed_over: false });
    // Its answers are lost for a while, so it repeats its SYN.
    for _ in 0..2500 {
        rig.deaf_turn();
    }
    rig.turns(8000);
    let counted = &rig.serve.fast_tcp;
    assert_eq!((counted.fast_half_open.get(), counted.fast_given_up.get(), rig.was_reset()), (0, 0, false));
    assert!(rig.tcp.info(rig.now, id).is_some_and(|info| info.ended.is_none()), "it is ended by FIN");
}

#[test]
fn a_drain_waits_a_second_for_many_handshakes_that_nobody_completes() {
    const PEERS: u16 = 300;
    let ends = pair(PortId { port: 0, queue: 0 }, PortId { port: 1, queue: 0 }).expect("eventfds");
    let mut rig = Rig::with_room(256, 2 * u32::from(PEERS), ends);
    rig.learn(Ok(WAY_BACK));
    for port in 4001..4001 + PEERS {
        rig.connect(port);
        rig.client_turn();
        rig.deaf_turn();
    }
    // Nobody hears the answers, and nobody repeats the SYNs.
    for _ in 0..1500 {
        rig.deaf_turn();
    }
    assert_eq!(
        rig.serve.fast_tcp.fast_half_open.get(),
        PEERS.into(),
        "they have a minute while there is no drain"
    );
    assert!(
        rig.commands
            .send(Command::Engine(DemuxCommand::Each(ServeCommand::Drain { handed_over: false })))
            .is_ok()
    );
    let mut turns = 0;
    while !rig.has_drained() {
        rig.deaf_turn();
        turns += 1;
        assert!(turns < 1100, "it waits for nobody");
    }
    assert!(turns > 900, "{turns}: a peer may have had the answer");
    let counted = &rig.serve.fast_tcp;
    assert_eq!((counted.fast_half_open.get(), counted.fast_given_up.get()), (0, PEERS.into()));
    // Each turn releases some.
    rig.deaf_turn();
    assert!(rig.programs.known().tuples.is_empty());
}

impl Rig {
    /// The interface and its address go, and another one with the same name comes, without the address.
    fn has_another_interface(&mut self, port: u16) {
        self.tell(ServeCommand::Addresses([].into()));
        self.learn(Err(KernelReason::NoRoute));
        self.programs_come_off();
        self.leave(ServeCommand::LeaveGone);
        self.turns(3);
        assert!(!self.has_port());
        self.gets_a_port(port);
        self.programs.known().are_off = false;
    }

    fn has_its_address_again(&mut self) {
        self.tell(ServeCommand::Addresses([SocketAddr::from(SERVER).ip()].into()));
        self.learn(Ok(WAY_BACK));
    }
}

#[test]
fn a_connection_whose_interface_is_back_waits_for_its_address() {
    if !root_or_skip() {
        return;
    }
    let mut rig = Rig::new();
    rig.learn(Ok(WAY_BACK));
    let id = rig.connect(4000);
    assert_eq!(rig.echo(id, b"before"), b"before");
    rig.has_another_interface(2);
    // The answer has no way.
    assert_eq!(rig.echo_within(12_000, id, b"after"), b"");
    assert_eq!((rig.counts().0, rig.serve.fast_tcp.fast_not_moved.get()), (1, 0));
    rig.has_its_address_again();
    assert_eq!(rig.echo_within(20_000, id, b"after!")[..5], *b"after");
    assert!(!rig.was_reset());
}

#[test]
fn connections_that_wait_for_their_address_are_tried_when_something_changes_and_not_by_time() {
    where_the_kernel_has_an_interface(|| {
        let (mut rig, _) = Rig::with_many();
        rig.leave(ServeCommand::LeaveGone);
        let mut turns = 0;
        while rig.has_port() {
            rig.turn();
            turns += 1;
            assert!(turns < 20, "an address is tried once, whoever has it");
        }
        let fast = |rig: &Rig| {
            let counted = &rig.serve.fast_tcp;
            (counted.fast_kept.get(), counted.fast_moved.get(), counted.fast_not_moved.get())
        };
        assert_eq!(fast(&rig), (MANY.into(), 0, 0));
        for second in 0..100 {
            rig.now += Duration::from_secs(1);
            assert!(!rig.worker.turn(rig.now), "it does something in second {second}");
        }
        rig.tell(ServeCommand::Addresses([[192, 0, 2, 7].into()].into()));
        rig.tell(ServeCommand::Routes);
        rig.turns(5);
        assert_eq!(fast(&rig), (MANY.into(), 0, 0));
        ip_here(ADDRESS);
        rig.tell(ServeCommand::Addresses([SocketAddr::from(SERVER).ip()].into()));
        rig.turns(2 * MANY as usize / IN_A_TURN as usize);
        assert_eq!(fast(&rig), (0, MANY.into(), 0));
        assert_eq!((rig.counts().0, rig.was_reset()), (MANY.into(), false));
    });
}

#[test]
fn a_connection_that_ends_while_it_waits_for_its_address_is_not_counted_any_more() {
    where_the_kernel_has_an_interface(|| {
        let mut rig = Rig::new();
        rig.learn(Ok(WAY_BACK));
        let [first, second] = [4000, 4001].map(|port| rig.connect(port));
        for id in [first, second] {
            assert_eq!(rig.echo(id, b"before"), b"before");
        }
        // Its reply is never acknowledged.
        assert_eq!(rig.tcp.stream(rig.now, first).unwrap().write(b"last"), 4);
        rig.client_turn();
        rig.deaf_turn();
        rig.leave(ServeCommand::LeaveGone);
        rig.turns(5);
        assert_eq!((rig.serve.fast_tcp.fast_kept.get(), rig.counts().0), (2, 2));
        for _ in 0..2000 {
            rig.now += Duration::from_secs(1);
            rig.worker.turn(rig.now);
            assert_eq!(rig.serve.fast_tcp.fast_kept.get(), rig.counts().0);
        }
        assert_eq!(rig.counts().0, 0, "it was silent for too long");
    });
}

#[test]
fn connections_that_wait_for_a_route_are_tried_when_routes_change() {
    where_the_kernel_has_an_interface(|| {
        let mut rig = Rig::new();
        rig.learn(Ok(WAY_BACK));
        let id = rig.connect(4000);
        assert_eq!(rig.echo(id, b"before"), b"before");
        ip_here("addr add 192.0.2.1/32 dev near");
        rig.programs_come_off();
        rig.leave(ServeCommand::LeaveGone);
        rig.turns(10);
        assert_eq!(rig.serve.fast_tcp.fast_kept.get(), 1);
        ip_here("route add 192.0.2.0/24 dev near");
        rig.tell(ServeCommand::Routes);
        rig.turns(5000);
        rig.went_on(id);
        assert_eq!(rig.serve.fast_tcp.fast_kept.get(), 0);
    });
}

#[test]
fn a_connection_without_a_way_is_given_up_where_its_address_is_here() {
    let mut rig = Rig::new();
    rig.learn(Ok(WAY_BACK));
    let id = rig.connect(4000);
    assert_eq!(rig.echo(id, b"before"), b"before");
    rig.learn(Err(KernelReason::NoRoute));
    assert_eq!(rig.echo_within(4900, id, b"after"), b"");
    assert_eq!(rig.counts().0, 1);
    rig.turns(3000);
    assert_eq!(rig.counts().0, 0);
}
