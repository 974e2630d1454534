use std::sync::mpsc::{self, TryRecvError};
use std::time::Instant as StdInstant;

use twinpath_time::Duration;

use super::*;

const PATIENCE: std::time::Duration = std::time::Duration::from_secs(20);
const LIMITS: PoolLimits = PoolLimits {
    threads_min: 2,
    threads_max: 6,
    requests: 100,
    connection_requests: 10,
    datagram_requests: 20,
    idle: Duration::from_millis(20),
};

fn until(so: impl Fn() -> bool) {
    let begun = StdInstant::now();
    while !so() {
        assert!(begun.elapsed() < PATIENCE);
        thread::yield_now();
    }
}

/// A pool, its threads, and work that reports its begin and ends when allowed.
struct Bench {
    pool: HandlerPool,
    threads: Arc<AtomicU32>,
    began: mpsc::Receiver<Vec<usize>>,
    begins: Sender<Vec<usize>>,
    go: Arc<Mutex<Receiver<()>>>,
    goes: Sender<()>,
}

impl Bench {
    fn new(limits: PoolLimits, cpu: Option<usize>) -> Self {
        let pool = HandlerPool::new(limits, cpu).expect("threads");
        let threads = pool.threads();
        let ((begins, began), (goes, go)) = (channel(), channel());
        Self { pool, threads, began, begins, go: Arc::new(Mutex::new(go)), goes }
    }

    fn hand_over(&mut self, requester: Requester) {
        self.hand_over_in(0, requester);
    }

    fn hand_over_in(&mut self, lane: u32, requester: Requester) {
        let (begins, go) = (self.begins.clone(), Arc::clone(&self.go));
        let work = move || {
            begins.send(affinity::allowed_cpus().expect("told")).expect("the test is there");
            go.lock().expect("no panic").recv().expect("the test is there");
            Vec::new()
        };
        self.pool.submit(requester, Work::new(lane, work));
    }

    fn threads(&self) -> u32 {
        self.threads.load(Ordering::Relaxed)
    }
}

#[test]
fn threads_come_as_they_are_needed_and_go_when_they_are_not() {
    let mut bench = Bench::new(LIMITS, None);
    assert_eq!(bench.threads(), 2, "the least is there at once");
    for busy in 1..=9 {
        bench.hand_over(Requester::Connection(0));
        if busy <= 6 {
            bench.began.recv_timeout(PATIENCE).expect("it need not wait for those that block");
        }
        assert!(bench.threads() <= 6);
    }
    until(|| bench.threads() == 6);
    assert_eq!(bench.began.try_recv(), Err(TryRecvError::Empty), "the most work, the rest waits");
    for _ in 0..9 {
        bench.goes.send(()).expect("they wait");
    }
    until(|| bench.threads() == 2);
    bench.hand_over(Requester::Connection(0));
    bench.began.recv_timeout(PATIENCE).expect("those that are left work");
    bench.goes.send(()).expect("it waits");
}

#[test]
fn threads_stay_on_the_workers_cpu_those_that_come_later_as_well() {
    let cpus = affinity::allowed_cpus().expect("told");
    let cpu = *cpus.last().expect("one at least");
    let mut bench = Bench::new(LIMITS, Some(cpu));
    for _ in 0..6 {
        bench.hand_over(Requester::Connection(0));
        assert_eq!(bench.began.recv_timeout(PATIENCE).expect("begun"), [cpu]);
    }
    for _ in 0..6 {
        bench.goes.send(()).expect("they wait");
    }
}

#[test]
fn everybody_has_room_within_the_limits_and_datagrams_leave_some_to_connections() {
    let mut bench = Bench::new(LIMITS, None);
    assert_eq!((bench.pool.room(0), bench.pool.room(7), bench.pool.room(11)), (10, 3, 0));
    for _ in 0..20 {
        assert!(bench.pool.room_for_datagram(0) > 0);
        bench.hand_over(Requester::Peer);
    }
    assert_eq!((bench.pool.room_for_datagram(0), bench.pool.room(0)), (0, 10));
    for _ in 0..76 {
        bench.hand_over(Requester::Connection(1));
    }
    assert_eq!((bench.pool.in_flight(), bench.pool.room(0)), (96, 4));
    for _ in 0..96 {
        bench.goes.send(()).expect("they wait");
    }
    let begun = StdInstant::now();
    while bench.pool.in_flight() > 0 {
        assert!(begun.elapsed() < PATIENCE);
        while bench.pool.take().is_some() {}
        thread::yield_now();
    }
    assert_eq!((bench.pool.room_for_datagram(0), bench.pool.room(0)), (10, 10));
}

#[test]
fn a_lane_whose_threads_do_not_return_blocks_its_own_work_alone() {
    let limits = PoolLimits { threads_min: 1, threads_max: 2, ..LIMITS };
    let mut bench = Bench::new(limits, None);
    bench.pool = HandlerPool::for_lanes(limits, None, 3).expect("threads");
    bench.threads = bench.pool.threads();
    for lane in [0, 0, 0, 0, 1, 1, 1] {
        bench.hand_over_in(lane, Requester::Connection(lane));
    }
    // Two of each.
    for _ in 0..4 {
        bench.began.recv_timeout(PATIENCE).expect("each lane has two threads");
    }
    assert_eq!(bench.pool.room(0), 30, "ten for each lane");
    let (sender, done) = channel();
    for number in 0..50 {
        let sender = sender.clone();
        let work = move || {
            sender.send(number).expect("the test is there");
            Vec::new()
        };
        bench.pool.submit(Requester::Peer, Work::new(2, work));
    }
    for _ in 0..50 {
        done.recv_timeout(PATIENCE).expect("the third lane has threads");
    }
    assert_eq!(bench.began.try_recv(), Err(TryRecvError::Empty), "the others wait");
    for _ in 0..7 {
        bench.goes.send(()).expect("they wait");
    }
    for _ in 0..3 {
        bench.began.recv_timeout(PATIENCE).expect("what waited follows");
    }
    until(|| bench.threads() == 1);
}
