//! Tests the guarantees of the simulated network for tests of services.
#![allow(clippy::unwrap_used, reason = "a test says what it needs")]

use std::net::SocketAddr;

use twinpath::test::{Network, Simulation};
use twinpath::{
    Answer, Closed, Datagram, Duration, Echo, Instant, Order, Output, Reason, Service, SessionLimits,
    Sessions, TcpLimits, WhenFull,
};

/// Counts the datagrams of each peer, answers lines later, in capitals, and fills the output on demand.
#[derive(Clone)]
struct Various {
    sessions: Sessions<u32>,
    closed: Vec<Closed>,
}

impl Various {
    fn new() -> Self {
        let limits =
            SessionLimits { sessions: 2, idle: Duration::from_secs(10), when_full: WhenFull::Refuse };
        Self { sessions: Sessions::new(limits), closed: Vec::new() }
    }
}

impl Service for Various {
    type Connection = usize;

    fn datagram(&mut self, datagram: &mut Datagram<'_>) -> Answer {
        match self.sessions.at(datagram.now(), datagram.peer(), || 0) {
            Ok(count) => {
                *count += 1;
                let count = count.to_string();
                datagram.later(move || count.into_bytes())
            }
            Err(reason) => Answer::Drop(reason),
        }
    }

    fn accept(&mut self, _now: Instant, peer: SocketAddr) -> Result<usize, Reason> {
        if peer.port() == 9 { Err(Reason::ServiceRefused) } else { Ok(0) }
    }

    fn stream(&mut self, _now: Instant, left: &mut usize, input: &[u8], output: &mut Output<'_>) -> usize {
        let Some(end) = input.iter().position(|byte| *byte == b'\n') else { return 0 };
        if let Ok(count) = String::from_utf8_lossy(&input[..end]).parse() {
            *left = count;
            self.writable(Instant::ZERO, left, output);
            return end + 1;
        }
        let line = input[..=end].to_ascii_uppercase();
        if output.later(Order::AsAsked, move || line) { end + 1 } else { 0 }
    }

    fn writable(&mut self, _now: Instant, left: &mut usize, output: &mut Output<'_>) {
        let len = (*left).min(output.room());
        if len > 0 && output.write(&vec![b'x'; len]) {
            *left -= len;
        }
    }

    fn defers(&self) -> bool {
        true
    }

    fn close(&mut self, _: usize, why: Closed) {
        self.closed.push(why);
    }
}

#[test]
fn sessions_age_by_the_simulated_clock() {
    let mut simulation = Simulation::new(Various::new());
    let peers = [simulation.new_peer(), simulation.new_peer(), simulation.new_peer()];
    for count in 1..4 {
        assert_eq!(simulation.ask(peers[0], b"?"), [count.to_string().into_bytes()]);
    }
    assert_eq!(simulation.ask(peers[1], b"?"), [b"1"]);
    assert!(simulation.ask(peers[2], b"?").is_empty());
    assert_eq!(simulation.dropped(Reason::SessionLimit), 1);
    simulation.advance(Duration::from_secs(11));
    assert_eq!(simulation.ask(peers[2], b"?"), [b"1"]);
    assert_eq!(simulation.ask(peers[0], b"?"), [b"1"], "it was forgotten");
    assert_eq!(simulation.service().sessions.len(), 2);
}

#[test]
fn the_same_seed_gives_the_same_losses_and_another_one_others() {
    let answered = |seed: u64| {
        let delay_max = Duration::from_millis(3);
        let network = Network { seed, loss: 0.2, duplicates: 0.1, delay_max, ..Network::default() };
        let mut simulation = Simulation::on(network, Echo);
        let peer = simulation.new_peer();
        for number in 0..200_u8 {
            simulation.send(peer, &[number]);
            simulation.advance(Duration::from_millis(1));
        }
        simulation.settle();
        simulation.received(peer)
    };
    let first = answered(1);
    assert_eq!(first, answered(1));
    assert_ne!(first, answered(2));
    assert!((100..200).contains(&first.len()), "{}", first.len());
    assert!(first.windows(2).any(|two| two[0] > two[1]), "some overtake others");
}

#[test]
fn a_client_that_does_not_read_is_given_up_after_the_limit() {
    let limits = TcpLimits { send: Duration::from_secs(5), ..TcpLimits::default() };
    let mut simulation = Simulation::new(Various::new()).limits(&limits);
    let peer = simulation.new_peer();
    let (slow, dead) = (simulation.connect(peer).unwrap(), simulation.connect(peer).unwrap());
    for client in [slow, dead] {
        simulation.set_window(client, 1000);
        simulation.write(client, b"5000\n");
    }
    let mut read = 0;
    for _ in 0..5 {
        simulation.advance(Duration::from_secs(3));
        read += simulation.read(slow).len();
        simulation.set_window(slow, 1000);
    }
    simulation.settle();
    read += simulation.read(slow).len();
    assert_eq!((read, simulation.closed(slow)), (5000, None));
    assert_eq!(simulation.closed(dead), Some(Closed::For(Reason::PeerNotReading)));
    assert_eq!(simulation.dropped(Reason::PeerNotReading), 1);
}

#[test]
fn replies_keep_their_order_in_pieces_and_a_drain_ends_what_is_answered() {
    let network = Network {
        segment_bytes: 3,
        delay_max: Duration::from_millis(7),
        work: Duration::from_millis(20),
        ..Network::default()
    };
    let mut simulation = Simulation::on(network, Various::new());
    let peer = simulation.new_peer();
    assert_eq!(simulation.connect(SocketAddr::new(peer.ip(), 9)), Err(Reason::ServiceRefused));
    let client = simulation.connect(peer).unwrap();
    simulation.write(client, b"one\n3\ntwo\n");
    simulation.settle();
    assert_eq!(simulation.read(client), b"ONE\nxxxTWO\n");
    simulation.drain();
    simulation.settle();
    assert!(simulation.is_finished(client));
    simulation.finish(client);
    simulation.settle();
    assert_eq!(simulation.service().closed, [Closed::Stopped]);
    assert!(simulation.connect(peer).is_err(), "it accepts no more");
}
