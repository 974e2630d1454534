//! Changes, reads and late publications from several threads, against the reference model of the table: no
//! reply is older than a change that was acknowledged before its request was sent.
//!
//! `TWINPATH_HAMMER_SECONDS` sets the duration; the default is short.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant as Clock};

use twinpath_reflex::{Generations, NotKept, Publication, Table, generations};
use twinpath_service::{
    Answer, Beside, Datagram, Instant, Keep, Keeper, KeptReplies, Name, Reason, Reflex, Service, Shape,
    Version,
};

const BY_ID: Shape = Shape::EXACT.copying(0, 2, 0);
const KEYS: u64 = 7;
const READERS: u64 = 3;

/// Values that only grow, by key.
#[derive(Clone)]
struct Counters {
    values: Arc<[AtomicU64; KEYS as usize]>,
    kept: KeptReplies,
    seed: u64,
}

impl Counters {
    /// Returns once the change is acknowledged.
    fn change(&self, key: u64) -> u64 {
        let value = self.values[key as usize].fetch_add(1, Ordering::Relaxed) + 1;
        self.kept.withdraw(key);
        value
    }
}

/// A pause of random length, so that threads meet in every order.
fn dawdle(seed: &mut u64) {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    match *seed >> 60 {
        0 => std::thread::yield_now(),
        short @ 1..8 => (0..short * 20).for_each(|_| std::hint::spin_loop()),
        _ => {}
    }
}

impl Service for Counters {
    type Connection = ();

    fn datagram(&mut self, datagram: &mut Datagram<'_>) -> Answer {
        let [high, low, key] = *datagram.request() else { return Answer::Nothing };
        let version = datagram.version_of(u64::from(key));
        dawdle(&mut self.seed);
        let value = self.values[usize::from(key)].load(Ordering::Relaxed);
        dawdle(&mut self.seed);
        let reply = [&[high, low][..], &value.to_be_bytes()].concat();
        datagram.answer_and_keep(&reply, &Keep { shape: &BY_ID, version, hold: Duration::from_secs(60) })
    }

    fn reflex(&self) -> Reflex {
        Reflex::Kept(self.kept.clone())
    }

    fn accept(&mut self, _now: Instant, _peer: SocketAddr) -> Result<(), Reason> {
        Ok(())
    }
}

/// The table and its generations, with a stand-in for the program: a look-up before the service is called.
#[derive(Clone)]
struct Program {
    table: Arc<Mutex<Table>>,
    words: Arc<dyn Generations>,
}

impl Program {
    fn find(&self, request: &[u8]) -> Option<Vec<u8>> {
        let mut reply = Vec::new();
        let mut table = self.table.lock().expect("no panic");
        table.find(Instant::ZERO, 0, &[BY_ID], self.words.words(), request, &mut reply).ok().map(|()| reply)
    }
}

impl Keeper for Program {
    fn version_of(&self, name: Name) -> Version {
        Version::now(self.words.words(), name)
    }

    fn keep(&mut self, now: Instant, reply: &Publication<'_>) {
        // A late reply is refused or void.
        let _ = self.table.lock().expect("no panic").publish(now, 0, &[BY_ID], self.words.words(), reply);
    }

    fn not_kept(&mut self, why: NotKept) {
        panic!("{why}");
    }
}

#[test]
fn no_reply_is_older_than_what_was_acknowledged_before_its_request() {
    let seconds = std::env::var("TWINPATH_HAMMER_SECONDS").ok().and_then(|text| text.parse().ok());
    let end = Clock::now() + seconds.map_or(Duration::from_millis(300), Duration::from_secs);
    let service = Counters { values: Arc::default(), kept: KeptReplies::new(&[BY_ID]), seed: 1 };
    let words: Arc<dyn Generations> = Arc::new(generations());
    let program = Program { table: Arc::new(Mutex::new(Table::new(64, 3))), words };
    service.kept.bind(&program.words).expect("the first one");
    // By key, the values that clients have been told.
    let told: [AtomicU64; KEYS as usize] = Default::default();
    let (done, by_reflex, by_service) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for number in 0..READERS {
            let (mut service, program, told, done) = (service.clone(), program.clone(), &told, &done);
            let (by_reflex, by_service) = (&by_reflex, &by_service);
            scope.spawn(move || {
                let mut seed = number;
                let mut beside = Beside { keeper: Some(Box::new(program.clone())), ..Beside::default() };
                let peer = SocketAddr::from(([192, 0, 2, 1], 9));
                for id in (0..=u16::MAX).cycle() {
                    if done.load(Ordering::Relaxed) {
                        return;
                    }
                    dawdle(&mut seed);
                    let key = (seed >> 32) % KEYS;
                    let [high, low] = id.to_be_bytes();
                    let request = [high, low, key as u8];
                    let before = told[key as usize].load(Ordering::Acquire);
                    let reply = match program.find(&request) {
                        Some(reply) => {
                            by_reflex.fetch_add(1, Ordering::Relaxed);
                            reply
                        }
                        None => {
                            by_service.fetch_add(1, Ordering::Relaxed);
                            let mut buffer = [0; 64];
                            buffer[..3].copy_from_slice(&request);
                            let mut datagram =
                                Datagram::new(Instant::ZERO, peer, peer, &mut buffer, 3).with(&mut beside);
                            let Answer::Reply { len } = service.datagram(&mut datagram) else {
                                panic!("no reply")
                            };
                            buffer[..len].to_vec()
                        }
                    };
                    let (own, value) = reply.split_first_chunk::<2>().expect("an ID");
                    assert_eq!(*own, [high, low]);
                    let value = u64::from_be_bytes(value.try_into().expect("a value"));
                    assert!(value >= before, "key {key}: {value} after {before} was acknowledged");
                }
            });
        }
        let (service, told, done) = (service.clone(), &told, &done);
        scope.spawn(move || {
            let mut seed = 99;
            while Clock::now() < end {
                for _ in 0..1000 {
                    dawdle(&mut seed);
                    let key = (seed >> 33) % KEYS;
                    let value = service.change(key);
                    told[key as usize].store(value, Ordering::Release);
                }
            }
            done.store(true, Ordering::Relaxed);
        });
    });
    let (by_reflex, by_service) = (by_reflex.into_inner(), by_service.into_inner());
    assert!(by_reflex > 0 && by_service > 0, "{by_reflex} by reflex, {by_service} by the service");
}
