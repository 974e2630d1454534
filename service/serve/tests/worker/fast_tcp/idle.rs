//! Very many connections that are silent.

use twinpath_sys::allocations::bytes_of_this_thread;

use super::*;

const MANY: u32 = 100_000;

/// MSS, SACK, a scale of windows.
const OPTIONS: [u8; 12] = [2, 4, 5, 180, 4, 2, 1, 3, 3, 7, 1, 1];

/// A segment of a peer.
pub(super) fn segment(peer: SocketAddr, (sequence, acknowledgement): (u32, u32), flags: u8) -> Vec<u8> {
    let repr = TcpFrameRepr {
        source_mac: Mac([2, 0, 0, 0, 0, 2]),
        destination_mac: Mac([2, 0, 0, 0, 0, 1]),
        source: peer.ip(),
        destination: SocketAddr::from(SERVER).ip(),
        hop_limit: 64,
        ecn_capable: false,
        id: None,
    };
    let header = twinpath_wire::tcp::Header {
        source_port: peer.port(),
        destination_port: SERVER.1,
        sequence,
        acknowledgement,
        flags: Flags(flags),
        window: 60_000,
        urgent: 0,
    };
    let options: &[u8] = if flags == Flags::SYN { &OPTIONS } else { &[] };
    let mut frame = vec![0; repr.frame_len(options.len(), 0)];
    repr.write(&mut frame, &header, options, &[]).expect("fits");
    frame
}

impl Rig {
    fn silent_turn(&mut self, after: Duration) -> bool {
        self.now += after;
        self.worker.turn(self.now)
    }

    /// Opens a connection from each of these peers, which are no engines.
    fn open(&mut self, peers: &[SocketAddr]) {
        for peer in peers {
            let mut known = self.programs.known();
            known.tuples.insert((SERVER.into(), *peer), false);
            known.syns.push_back(segment(*peer, (0, 0), Flags::SYN));
        }
        self.silent_turn(Duration::from_millis(1));
        let mut burst = Burst::new();
        self.wire.receive(self.now, &mut self.pool, &mut burst);
        let answers: Vec<_> = burst.drain(usize::MAX).collect();
        for answer in answers {
            let found = tcp_frame::parse(answer.bytes(), ChecksumTrust::Verify).expect("a right segment");
            let next = found.segment.sequence().wrapping_add(1);
            let frame = segment(found.destination, (1, next), Flags::ACK);
            self.pool.release(answer);
            let Self { programs, pool, wire, kernel, .. } = self;
            Way { programs, pool, wire, kernel }.transmit(&frame, 0);
        }
        self.silent_turn(Duration::from_millis(1));
    }
}

#[test]
fn a_hundred_thousand_idle_connections_make_no_timer_tick_and_take_a_kibibyte_each() {
    let ends = pair(PortId { port: 0, queue: 0 }, PortId { port: 1, queue: 0 }).expect("eventfds");
    let mut rig = Rig::with_room(256, MANY, ends);
    let hosts: [std::net::IpAddr; 2] = [[192, 0, 2, 2].into(), [192, 0, 2, 3].into()];
    for peer in hosts {
        rig.tell(ServeCommand::Egress(Update::Learn { peer, answer: Ok(WAY_BACK) }));
    }
    // What the double of the programs needs is not counted.
    rig.programs.known().tuples.reserve(MANY as usize);
    let before = bytes_of_this_thread();
    let peers: Vec<_> = (0..MANY)
        .map(|number| SocketAddr::new(hosts[number as usize % 2], 2000 + (number / 2) as u16))
        .collect();
    peers.chunks(50).for_each(|some| rig.open(some));
    drop(peers);
    assert_eq!(rig.counts(), (MANY.into(), MANY.into()));
    for _ in 0..20 {
        rig.silent_turn(Duration::from_secs(1));
    }
    let each = (bytes_of_this_thread() - before) / i64::from(MANY);
    assert!(each <= 1024, "{each} bytes");
    assert!(!rig.silent_turn(Duration::from_secs(1)), "there is nothing to do");
    let now = rig.now;
    let deadline = rig.worker.into_remains().engine.next_deadline();
    assert!(deadline >= now + Duration::from_secs(300), "{:?} after {now:?}", deadline);
}
