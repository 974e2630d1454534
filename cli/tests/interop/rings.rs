//! A worker opens its direct ring while it does not sleep and closes it before each sleep: no datagram is lost, doubled
//! or put before an earlier one of its flow by that.

use std::net::UdpSocket;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::time::Timespec;
use twinpath_test_rig::few_or_all;

use crate::rig::{CLIENT, PORT, Rig, SERVER, Server, until};
use crate::root_or_skip;

const FLOWS: usize = 8;
/// Requests of each flow in a row, each sent when the one before was answered. A worker that takes so many bursts
/// without a sleep opens its ring.
const ROW: usize = 40;
/// How long the workers spin after a datagram: longer than a client takes that has to wait for a CPU.
const SPIN_US: &str = "2000";
/// So they sleep meanwhile.
const REST: Timespec = Timespec { tv_sec: 0, tv_nsec: 4_000_000 };
/// Another flow sends that often. So it comes at any moment of the others' cycle, also when a worker is about to sleep.
const TRICKLE: Timespec = Timespec { tv_sec: 0, tv_nsec: 2_900_000 };
const ALL_TIMES: Duration = Duration::from_secs(90);

/// One flow; its requests and the replies to them are numbered.
struct Flow {
    socket: UdpSocket,
    sent: u32,
    answered: u32,
}

impl Flow {
    fn ask(&mut self) {
        self.sent += 1;
        self.socket.send_to(&self.sent.to_be_bytes(), (SERVER, PORT)).unwrap();
    }

    fn take_replies(&mut self) {
        let mut buffer = [0; 4];
        while self.answered < self.sent {
            let (len, _) = self.socket.recv_from(&mut buffer).expect("each request is answered");
            let number = u32::from_be_bytes(buffer);
            assert_eq!((len, number), (4, self.answered + 1), "each once and in order");
            self.answered += 1;
        }
    }
}

fn of_queues(server: &Server, figure: &str) -> Vec<u64> {
    let interfaces = server.show("interfaces");
    let queues = interfaces[0]["queues"].as_array().unwrap().clone();
    queues.iter().map(|queue| queue[figure].as_u64().unwrap()).collect()
}

/// Sends rows of requests until the rings were opened often enough; returns how often they were.
fn open_often(server: &Server, flows: &mut [Flow], often: u64) -> u64 {
    let (begun, mut opened) = (Instant::now(), 0);
    while opened < often && begun.elapsed() < ALL_TIMES {
        for _ in 0..20 {
            for _ in 0..ROW {
                flows.iter_mut().for_each(Flow::ask);
                flows.iter_mut().for_each(Flow::take_replies);
            }
            rustix::event::poll(&mut [], Some(&REST)).unwrap();
        }
        opened = of_queues(server, "direct_opened").iter().sum();
    }
    opened
}

#[test]
fn rings_that_open_and_close_under_load_change_nothing_for_a_flow() {
    if !root_or_skip() {
        return;
    }
    // How often the rings are to be opened.
    let times = few_or_all(100, 300);
    let setups: [&[&str]; 3] = [&["--workers", "1"], &["--workers", "2"], &["--attach", "clsact"]];
    for setup in setups {
        let rig = Rig::of_workers();
        // On a busy machine a worker may wait so long for a CPU that it is taken to be stuck: what it was handed before is
        // then dropped, which is another matter.
        let adaptive =
            ["--path", "packet", "--mode", "adaptive", "--spin-us", SPIN_US, "--fail-open-ms", "0"];
        let server = rig.serve(&[&adaptive, setup].concat());
        until("the packet path is attached", || server.path().starts_with("packet"));
        let flow = || Flow { socket: rig.client_udp(CLIENT, 0), sent: 0, answered: 0 };
        let mut flows: Vec<_> = (0..FLOWS).map(|_| flow()).collect();
        let mut trickle = flow();
        let over = AtomicBool::new(false);
        let opened = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::SeqCst) {
                    trickle.ask();
                    trickle.take_replies();
                    rustix::event::poll(&mut [], Some(&TRICKLE)).unwrap();
                }
            });
            let opened =
                std::panic::catch_unwind(AssertUnwindSafe(|| open_often(&server, &mut flows, times)));
            over.store(true, Ordering::SeqCst);
            opened.unwrap()
        });
        let direct: u64 = of_queues(&server, "frames_direct").iter().sum();
        println!("{setup:?}: opened {opened} times, {direct} of {} frames by the ring", flows[0].sent * 8);
        assert!(opened >= times && direct >= opened, "{setup:?}: opened {opened} times, {direct} frames");
        for flow in flows.iter().chain([&trickle]) {
            flow.socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
            assert!(flow.socket.recv_from(&mut [0; 4]).is_err(), "a reply came twice");
        }
        assert_eq!(server.interrupt(), Some(0));
    }
}
