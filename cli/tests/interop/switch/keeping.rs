//! Tests of flows that go on in the kernel when their switch has ended.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use twinpath_bpf::Keep;
use twinpath_openflow_wire::{Field, FlowMod, FlowModCommand, Match, MatchField, number};
use twinpath_sys::PacketSocket;
use twinpath_sys::ethtool::{Offload, set_offload};

use super::controller::{Controller, flow, output};
use super::{Site, terminate};
use crate::rig::{Finished, Lateness, Server, until};
use crate::root_or_skip;

/// EtherTypes for experiments, which no host answers.
const KEPT: u16 = 0x88b5;
const OTHER: u16 = 0x88b6;

/// A switch of three hosts that may leave flows behind, with a name that no other test has.
struct Kept {
    site: Site,
    name: String,
}

impl Kept {
    fn new(test: &str) -> Self {
        Self { site: Site::new(3), name: format!("{test}-{}", std::process::id()) }
    }

    fn path(&self) -> PathBuf {
        self.site.rig.directory.path().join("of")
    }

    fn start(&self, ports: &[&str], on_exit: &str) -> Server {
        self.try_start(ports, on_exit).unwrap_or_else(|stderr| panic!("no switch: {stderr}"))
    }

    fn try_start(&self, ports: &[&str], on_exit: &str) -> Result<Server, String> {
        // What listened there before is gone.
        let _ = std::fs::remove_file(self.path());
        let listen = format!("unix:{}", self.path().display());
        let ports: Vec<&str> = ports.iter().flat_map(|port| ["--port", port]).collect();
        let more = ["--listen", &listen, "--on-exit", on_exit];
        self.site.try_switch(&[&[&self.name[..]], &ports[..], &more].concat())
    }

    /// A switch of which the kernel forwards the first type from the first host to the second.
    fn with_flow(&self, on_exit: &str, flow: FlowMod) -> (Server, [PacketSocket; 3]) {
        self.with_flow_at(&PORTS, on_exit, flow)
    }

    fn with_flow_at(&self, ports: &[&str], on_exit: &str, flow: FlowMod) -> (Server, [PacketSocket; 3]) {
        let server = self.start(ports, on_exit);
        let mut controller = Controller::connect(&self.path());
        controller.add(flow);
        controller.barrier();
        let hosts = [1, 2, 3].map(|host| self.site.listen(host));
        until("the kernel forwards the flow", || {
            assert!(arrives(&hosts[0], &hosts[1], KEPT));
            server.show("flows")[0]["place"] == "kernel"
        });
        (server, hosts)
    }

    fn tidy(&self, more: &[&str]) -> String {
        let Finished { code, stdout, stderr, .. } =
            self.site.rig.twinpath(&self.site.rig.server, &[&["tidy"], more].concat());
        assert_eq!(code, Some(0), "{stderr}");
        stdout
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Ok(Some(left)) = Keep::take_left(&self.name) {
            let _ = left.remove();
        }
    }
}

const PORTS: [&str; 3] = ["p1", "p2", "p3"];

fn of_type(ethertype: u16) -> Match {
    Match::new([MatchField::exact(Field::EthType, ethertype.into())]).expect("a match")
}

/// A frame for every host.
fn frame(ethertype: u16, number: u32) -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, 9]);
    frame.extend(ethertype.to_be_bytes());
    frame.extend(number.to_be_bytes());
    frame.resize(60, 0);
    frame
}

/// The number of the next frame of that type that a host sees; `None`: there is none for a while.
fn number_of(seen: &PacketSocket, ethertype: u16, patience: Duration) -> Option<u32> {
    let timeout = Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: patience.subsec_nanos().into() };
    let mut buffer = [0; 2048];
    loop {
        if poll(&mut [PollFd::new(seen, PollFlags::IN)], Some(&timeout)).expect("polled") == 0 {
            return None;
        }
        let len = seen.receive(&mut buffer).expect("received");
        if buffer[..len].get(12..14) == Some(&ethertype.to_be_bytes()) {
            return Some(u32::from_be_bytes(buffer[14..18].try_into().expect("four bytes")));
        }
    }
}

/// Whether a frame of the type gets from one host to another.
fn arrives(from: &PacketSocket, to: &PacketSocket, ethertype: u16) -> bool {
    static NUMBER: AtomicU32 = AtomicU32::new(1 << 24);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    from.send(&frame(ethertype, number)).expect("sent");
    std::iter::from_fn(|| number_of(to, ethertype, Duration::from_millis(300))).any(|seen| seen == number)
}

#[test]
fn flows_go_on_after_a_switch_is_killed_or_ends_and_stop_when_their_time_is_over() {
    if !root_or_skip() {
        return;
    }
    let kept = Kept::new("lease");
    for is_killed in [true, false] {
        let (server, [first, second, third]) = kept.with_flow("keep=3", flow(of_type(KEPT), &[output(2)]));
        if is_killed {
            server.kill();
        } else {
            assert_eq!(terminate(server), Some(0));
        }
        let (ended, lateness) = (Instant::now(), Lateness::measure());
        // A machine that is busy may take longer for these steps.
        let is_over = || ended.elapsed() > Duration::from_millis(2900);
        for _ in 0..100 {
            assert!(arrives(&first, &second, KEPT) || is_over(), "the kernel goes on");
        }
        assert!(!arrives(&first, &second, OTHER) && !arrives(&first, &third, KEPT), "as the rules said");
        let goes_on = format!("switch {}: its flows go on in the kernel", kept.name);
        let tidied = kept.tidy(&[]);
        assert!(tidied.contains(&goes_on) || is_over(), "not removed: {tidied}");
        // Beside load one may come late, and count as none.
        let mut last = Duration::ZERO;
        until("the time is over", || {
            let is_forwarded = arrives(&first, &second, KEPT);
            last = if is_forwarded { ended.elapsed() } else { last };
            !is_forwarded && is_over()
        });
        assert!(lateness.allows(last) > Duration::from_millis(2900), "not before: {last:?}");
    }
    // Nothing of that is in the way of the next one.
    let (server, _) = kept.with_flow("keep=60", flow(of_type(KEPT), &[output(2)]));
    server.kill();
    let there_is =
        format!("switch {}: there is what it has left at 3 interfaces, whose flows go on", kept.name);
    assert!(kept.tidy(&["--dry-run"]).contains(&there_is));
    let removed = format!("switch {}: removed what it has left at 3 interfaces", kept.name);
    assert!(kept.tidy(&["--kept", &kept.name]).contains(&removed));
    assert_eq!(terminate(kept.start(&PORTS, "dark")), Some(0));
}

#[test]
fn a_flow_of_a_driver_goes_on_at_tc_and_in_the_driver_with_the_next_switch() {
    if !root_or_skip() {
        return;
    }
    let kept = Kept::new("driver");
    let set = || set_offload("eth0", Offload::Receive, true);
    kept.site.hosts[1].run(set).expect("entered").expect("set");
    let ports = ["p1,offload=xdp", "p2", "p3"];
    let wanted = || flow(of_type(KEPT), &[output(2)]);
    let hook = |server: &Server| server.show("flows")[0]["hook"].as_str().map(str::to_owned);
    let (server, [first, second, third]) = kept.with_flow_at(&ports, "keep=60", wanted());
    assert_eq!(hook(&server).as_deref(), Some("xdp"));
    server.kill();
    // The program in the driver has ended with the process, and what was in the driver's queue with it.
    until("the kernel goes on", || arrives(&first, &second, KEPT));
    for _ in 0..100 {
        assert!(arrives(&first, &second, KEPT), "the kernel goes on");
    }
    assert!(!arrives(&first, &second, OTHER) && !arrives(&first, &third, KEPT), "as the rules said");

    let server = kept.start(&ports, "keep=60");
    until("a frame passes", || arrives(&first, &second, KEPT));
    let mut controller = Controller::connect(&kept.path());
    controller.add(wanted());
    controller.barrier();
    assert_eq!(server.answer("ports")["switch"]["openflow"]["kept"], 0, "confirmed");
    until("the driver forwards the flow again", || {
        arrives(&first, &second, KEPT) && hook(&server).as_deref() == Some("xdp")
    });
    let before = counted(&server)[0];
    for _ in 0..20 {
        assert!(arrives(&first, &second, KEPT));
    }
    assert_eq!(counted(&server)[0], before + 20, "every frame counts once");
    assert_eq!(terminate(server), Some(0));
    let removed = format!("switch {}: removed what it has left at 3 interfaces", kept.name);
    assert!(kept.tidy(&["--kept", &kept.name]).contains(&removed));
    assert!(!arrives(&first, &second, KEPT));
}

#[test]
fn a_flow_that_goes_on_ends_at_its_own_deadline() {
    if !root_or_skip() {
        return;
    }
    let kept = Kept::new("deadline");
    let timed = FlowMod { hard_timeout_s: 3, priority: 200, ..flow(of_type(KEPT), &[output(2)]) };
    let (server, [first, second, third]) = kept.with_flow("keep=60", timed);
    let mut controller = Controller::connect(&kept.path());
    controller.add(flow(of_type(OTHER), &[output(3)]));
    controller.barrier();
    until("the kernel forwards both", || {
        assert!(arrives(&first, &third, OTHER));
        server.show("flows")[1]["place"] == "kernel"
    });
    server.kill();
    assert!(arrives(&first, &third, OTHER));
    until("the deadline has come", || !arrives(&first, &second, KEPT));
    assert!(arrives(&first, &third, OTHER), "the other flow has none");
}

/// What the flow and the ports of a switch have counted.
fn counted(server: &Server) -> [u64; 3] {
    let flow = &server.show("flows")[0];
    let ports = server.show("ports");
    let of_port = |at: usize, what: &str| ports[at][what].as_u64().expect("a count");
    [flow["packets"].as_u64().expect("a count"), of_port(0, "frames_in"), of_port(1, "frames_out")]
}

#[test]
fn the_next_switch_goes_on_with_them_and_no_frame_is_lost_or_counted_twice() {
    if !root_or_skip() {
        return;
    }
    let kept = Kept::new("adopted");
    let wanted = || flow(of_type(KEPT), &[output(2)]);
    let (server, [first, second, third]) = kept.with_flow("keep=60", wanted());
    server.kill();
    // What arrives while the array of tail calls is being emptied counts for the process that was killed.
    assert!(arrives(&first, &second, KEPT));
    let (is_over, sent, come) = (AtomicBool::new(false), AtomicU32::new(0), AtomicU32::new(0));
    let server = std::thread::scope(|scope| {
        let seen = scope.spawn(|| {
            for expected in 0.. {
                let number = number_of(&second, KEPT, Duration::from_secs(1));
                if number.is_none() && is_over.load(Ordering::SeqCst) {
                    return expected;
                }
                assert_eq!(number, Some(expected), "no frame is lost");
                come.store(expected + 1, Ordering::SeqCst);
            }
            unreachable!()
        });
        let sender = scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                // No more than the host's socket has room for.
                if sent.load(Ordering::SeqCst) < come.load(Ordering::SeqCst) + 64 {
                    first.send(&frame(KEPT, sent.fetch_add(1, Ordering::SeqCst))).expect("sent");
                }
                std::thread::yield_now();
            }
        });
        let passed = |count: u32| {
            let from = sent.load(Ordering::SeqCst);
            until("frames have passed", || sent.load(Ordering::SeqCst) > from + count);
        };
        passed(100);
        let server = kept.start(&PORTS, "keep=60");
        server.wait_until_said("goes on with 1 entries");
        assert_eq!(server.answer("ports")["switch"]["openflow"]["kept"], 1);
        passed(100);
        let mut controller = Controller::connect(&kept.path());
        controller.add(wanted());
        controller.barrier();
        assert_eq!(server.answer("ports")["switch"]["openflow"]["kept"], 0, "confirmed");
        passed(100);
        is_over.store(true, Ordering::SeqCst);
        sender.join().expect("sent");
        assert_eq!(seen.join().expect("seen"), sent.load(Ordering::SeqCst));
        server
    });
    let sent = u64::from(sent.load(Ordering::SeqCst));
    let [by_flow, by_first, by_second] = counted(&server);
    // One frame was sent before, when the count may have been the killed process's.
    assert!([sent, sent + 1].contains(&by_flow), "{by_flow} for {sent}");
    assert_eq!(by_second, by_flow);
    assert!(by_first >= by_flow);
    assert_eq!(server.show("flows")[0]["place"], "kernel", "it has stayed there");

    // The flow is as any other from now on.
    let mut controller = Controller::connect(&kept.path());
    controller.add(flow(of_type(KEPT), &[output(3)]));
    controller.barrier();
    assert!(arrives(&first, &third, KEPT) && !arrives(&first, &second, KEPT));
    assert_eq!(terminate(server), Some(0));
}

#[test]
fn what_controllers_say_ends_flows_that_went_on() {
    if !root_or_skip() {
        return;
    }
    let kept = Kept::new("contradicted");
    let wanted = || flow(of_type(KEPT), &[output(2)]);
    let any = || Match::new([]).expect("a match");
    for what in ["other", "deleted", "nothing", "missed"] {
        let (server, [first, second, third]) = kept.with_flow("keep=4", wanted());
        server.kill();
        let server = kept.start(&PORTS, "keep=60");
        assert!(arrives(&first, &second, KEPT));
        let mut controller = Controller::connect(&kept.path());
        let miss = FlowMod { priority: 0, ..flow(any(), &[output(number::port::CONTROLLER)]) };
        match what {
            "other" => controller.add(flow(of_type(KEPT), &[output(3)])),
            "deleted" => controller.add(FlowMod {
                command: FlowModCommand::Delete,
                table_id: number::table::ALL,
                ..flow(any(), &[])
            }),
            "missed" => controller.add(miss),
            _ => controller.add(flow(of_type(OTHER), &[output(3)])),
        }
        controller.barrier();
        match what {
            "other" => assert!(!arrives(&first, &second, KEPT) && arrives(&first, &third, KEPT)),
            "deleted" => assert!(!arrives(&first, &second, KEPT)),
            // Until their time is over, which began with the end of the process that had the flows.
            _ => {
                assert!(arrives(&first, &second, KEPT), "{what}");
                until("the time is over", || !arrives(&first, &second, KEPT));
                server.wait_until_said("1 are void as there was no flow");
            }
        }
        assert_eq!(server.answer("ports")["switch"]["openflow"]["kept"], 0);
        server.kill();
        assert!(kept.tidy(&["--kept", &kept.name]).contains(&kept.name));
    }
}

#[test]
fn another_switch_or_another_configuration_does_not_go_on_with_them() {
    if !root_or_skip() {
        return;
    }
    let kept = Kept::new("others");
    let wanted = || flow(of_type(KEPT), &[output(2)]);
    let (server, [first, second, third]) = kept.with_flow("keep=60", wanted());
    let refused = kept.try_start(&PORTS, "keep=60").err().expect("refused");
    assert!(refused.contains(&format!("another process has switch {}", kept.name)), "{refused}");
    assert!(refused.contains(&format!("(pid {})", server.pid().as_raw_nonzero())), "{refused}");
    server.kill();
    let refused = kept.site.try_switch(&["other", "--port", "p2"]).err().expect("refused");
    assert!(
        refused.contains(&format!("switch {}, whose process has ended, has left its flows at p2", kept.name)),
        "{refused}"
    );
    assert!(arrives(&first, &second, KEPT));

    // With other ports: what led to one that is gone ends, and the interface is the kernel's.
    let server = kept.start(&["p1", "p3"], "keep=60");
    assert!(!arrives(&first, &second, KEPT));
    let other = kept.site.switch(&["other", "--port", "p2"]);
    assert_eq!(terminate(other), Some(0));
    let mut controller = Controller::connect(&kept.path());
    controller.add(flow(of_type(KEPT), &[output(2)]));
    controller.barrier();
    assert!(arrives(&first, &third, KEPT), "the second port is another one now");
    server.kill();

    // Without being asked to keep anything.
    let server = kept.start(&PORTS, "dark");
    server.wait_until_said("is removed, as on_exit is dark");
    assert!(!arrives(&first, &second, KEPT) && !arrives(&first, &third, KEPT));
    assert_eq!(terminate(server), Some(0));
    assert!(Keep::take_left(&kept.name).expect("asked").is_none(), "nothing is left");
}
