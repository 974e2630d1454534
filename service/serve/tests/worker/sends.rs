//! Sends other than answers, on both paths: several datagrams in reply to one, from a service's timer, and
//! from other threads.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use twinpath_inspect::Reason;
use twinpath_serve::{Sends, ServeCommand};
use twinpath_service::{Answer, Begin, Datagram, NotSent, Outbox, SendHandle, Service};
use twinpath_time::{Duration, Instant};
use twinpath_worker::Command;

use crate::wire::{Rig, WAY_BACK};

const PEER: &str = "198.51.100.7:4000";

/// Answers with three datagrams, and sends its last peer one every ten milliseconds, or a number when
/// another thread requests it.
#[derive(Default)]
struct Talker {
    handle: Arc<Mutex<Option<SendHandle>>>,
    peer: Option<(SocketAddr, SocketAddr)>,
    next: Option<Instant>,
    too_many: bool,
}

impl Service for Talker {
    type Connection = ();

    fn start(&mut self, _now: Instant, begin: &Begin) {
        self.handle.lock().expect("no panic").clone_from(&begin.sender);
    }

    fn datagram(&mut self, datagram: &mut Datagram<'_>) -> Answer {
        self.peer = Some((datagram.local(), datagram.peer()));
        self.next = Some(datagram.now() + Duration::from_millis(10));
        if datagram.request() == b"panic" {
            assert!(datagram.send(b"never sent"));
            panic!("as asked");
        }
        let sent = (0..100).take_while(|_| datagram.send(b"x")).count();
        self.too_many = sent == 64;
        if sent == 64 {
            let outbox = datagram.outbox().expect("it is there");
            outbox.clear();
        }
        let sent = datagram.send(b"one") && datagram.send(b"two");
        assert!(sent);
        datagram.answer(b"three")
    }

    fn accept(&mut self, _: Instant, _: SocketAddr) -> Result<(), Reason> {
        Ok(())
    }

    fn deadline(&self) -> Instant {
        self.next.unwrap_or(Instant::NEVER)
    }

    fn timer(&mut self, now: Instant, outbox: &mut Outbox) {
        self.next = Some(now + Duration::from_millis(10));
        if let Some((local, peer)) = self.peer {
            assert!(outbox.send_from(local, peer, b"tick"));
        }
    }

    fn notified(&mut self, _now: Instant, number: u64, outbox: &mut Outbox) {
        if let Some((local, peer)) = self.peer {
            assert!(outbox.send_from(local, peer, &number.to_be_bytes()));
        }
    }

    fn sends_later(&self) -> bool {
        true
    }
}

fn text(replies: Vec<(SocketAddr, Vec<u8>)>) -> Vec<String> {
    assert!(replies.iter().all(|(peer, _)| *peer == PEER.parse().expect("an address")));
    replies.into_iter().map(|(_, bytes)| String::from_utf8_lossy(&bytes).into_owned()).collect()
}

fn rig() -> (Rig<Talker>, SendHandle) {
    let service = Talker::default();
    let handle = Arc::clone(&service.handle);
    let mut rig = Rig::sending(service, Sends::new().expect("an eventfd"));
    rig.learn("198.51.100.7", Ok(WAY_BACK));
    let handle = handle.lock().expect("no panic").clone().expect("it has begun");
    (rig, handle)
}

#[test]
fn several_datagrams_leave_in_order_for_one_on_either_path() {
    let (mut rig, _handle) = rig();
    rig.ask(PEER, b"request");
    rig.turn();
    assert_eq!(text(rig.replies()), ["one", "two", "three"]);
    assert_eq!(rig.serve.fast_replies.get(), 3);
    let client = std::net::UdpSocket::bind("127.0.0.1:0").expect("a free port");
    client.send_to(b"request", rig.server).expect("sent");
    client.set_read_timeout(Some(std::time::Duration::from_secs(20))).expect("set");
    rig.turn();
    let mut buffer = [0; 16];
    let heard = [(); 3].map(|()| {
        let len = client.recv(&mut buffer).expect("it has been sent");
        buffer[..len].to_vec()
    });
    assert_eq!(heard, [&b"one"[..], b"two", b"three"]);
    assert_eq!(rig.pool.free(), rig.pool.frames());
}

#[test]
fn what_a_call_had_to_say_before_it_panicked_is_not_sent() {
    let (mut rig, _handle) = rig();
    rig.ask(PEER, b"panic");
    rig.turn();
    assert_eq!(text(rig.replies()), [""; 0]);
    assert_eq!(rig.counters.drops.get(Reason::HandlerFailed), 1);
    rig.ask(PEER, b"request");
    rig.turn();
    assert_eq!(text(rig.replies()), ["one", "two", "three"]);
}

#[test]
fn a_timer_is_called_at_its_time_and_sends() {
    let (mut rig, _handle) = rig();
    rig.ask(PEER, b"request");
    rig.turn();
    rig.replies();
    // Each turn is a millisecond later.
    let ticks: Vec<_> = (0..30)
        .map(|_| {
            rig.turn();
            text(rig.replies()).len()
        })
        .collect();
    assert_eq!(ticks.iter().sum::<usize>(), 3, "{ticks:?}");
    assert_eq!(ticks.iter().position(|count| *count > 0), Some(9));
}

#[test]
fn other_threads_send_to_peers_and_tell_the_service() {
    let (mut rig, handle) = rig();
    rig.ask(PEER, b"request");
    rig.turn();
    rig.replies();
    let (local, peer) = (rig.server, PEER.parse().expect("an address"));
    let sent = std::thread::spawn({
        let handle = handle.clone();
        move || (handle.send_from(local, peer, b"from afar"), handle.notify(u64::from_be_bytes(*b"notified")))
    });
    assert_eq!(sent.join().expect("no panic"), (Ok(()), Ok(())));
    rig.turn();
    assert_eq!(text(rig.replies()), ["from afar", "notified"]);
    // From an address that is not ours, or a port that is not served.
    let foreign = SocketAddr::from(([192, 0, 2, 99], local.port()));
    assert_eq!(handle.send_from(foreign, peer, b"x"), Ok(()));
    let unserved = SocketAddr::new(local.ip(), local.port().wrapping_add(1).max(1));
    assert_eq!(handle.send_from(unserved, peer, b"x"), Ok(()));
    rig.turn();
    let drops = &rig.counters.drops;
    assert_eq!((drops.get(Reason::NotOwnAddress), drops.get(Reason::KernelSocketRefused)), (1, 1));
    let refused = (0..1100).filter(|_| handle.notify(7) == Err(NotSent::Full)).count() as u64;
    assert_eq!(refused, 1100 - 1024);
    for _ in 0..8 {
        rig.turn();
    }
    assert_eq!(rig.counters.drops.get(Reason::SendQueueFull), refused);
    assert!(handle.notify(8).is_ok());
    drop(rig);
    assert_eq!(handle.notify(9), Err(NotSent::Ended));
}

/// Answers with two datagrams that are shorter than the request.
struct Storm;

impl Service for Storm {
    type Connection = ();

    fn datagram(&mut self, datagram: &mut Datagram<'_>) -> Answer {
        let shorter = datagram.request()[1..].to_vec();
        let _ = datagram.send(&shorter);
        Answer::Nothing
    }

    fn accept(&mut self, _: Instant, _: SocketAddr) -> Result<(), Reason> {
        Ok(())
    }
}

#[test]
fn further_datagrams_count_against_the_rate_of_their_source_however_short() {
    let mut rig = Rig::limited(Storm, None, 10);
    rig.now = 1_000_000_000;
    rig.learn("198.51.100.7", Ok(WAY_BACK));
    let sent: usize = (0..20)
        .map(|_| {
            rig.ask(PEER, b"request");
            rig.turn();
            rig.replies().len()
        })
        .sum();
    assert!(sent <= 3, "{sent}");
    assert_eq!(rig.counters.drops.get(Reason::ReplyRate), 20 - sent as u64);
}

#[test]
fn what_was_sent_before_a_drain_leaves_and_then_the_queue_is_closed() {
    let (mut rig, handle) = rig();
    rig.ask(PEER, b"request");
    rig.turn();
    rig.replies();
    let (local, peer) = (rig.server, PEER.parse().expect("an address"));
    for _ in 0..200 {
        assert_eq!(handle.send_from(local, peer, b"x"), Ok(()));
    }
    assert!(rig.commands.send(Command::Engine(ServeCommand::Drain { handed_over: false })).is_ok());
    let mut heard = 0;
    for _ in 0..20 {
        rig.turn();
        heard += rig.replies().iter().filter(|(_, bytes)| bytes == b"x").count();
    }
    assert_eq!((heard, handle.notify(1)), (200, Err(NotSent::Ended)));
}

#[test]
fn messages_that_wait_when_a_drain_is_cut_are_counted() {
    let (mut rig, handle) = rig();
    for number in 0..200 {
        assert_eq!(handle.notify(number), Ok(()));
    }
    for command in [ServeCommand::Drain { handed_over: false }, ServeCommand::Cut] {
        assert!(rig.commands.send(Command::Engine(command)).is_ok());
    }
    let mut told = 0;
    for _ in 0..20 {
        rig.turn();
        told = rig.counters.drops.get(Reason::DrainTimeout);
    }
    // The turn of the cut had taken some of them before.
    assert!((100..=200).contains(&told), "{told}");
    assert_eq!(handle.notify(1), Err(NotSent::Ended));
}

#[test]
fn the_timer_of_a_service_is_not_called_once_another_instance_has_taken_over() {
    let (mut rig, _handle) = rig();
    rig.ask(PEER, b"request");
    rig.turn();
    rig.replies();
    assert!(rig.commands.send(Command::Engine(ServeCommand::Drain { handed_over: true })).is_ok());
    let ticks: usize = (0..30)
        .map(|_| {
            rig.turn();
            rig.replies().len()
        })
        .sum();
    assert_eq!(ticks, 0);
}
