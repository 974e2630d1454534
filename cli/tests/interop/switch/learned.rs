//! Tests of frames that the kernel forwards between learned addresses, without a worker.

use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::process::{Signal, kill_process};
use twinpath_sys::PacketSocket;
use twinpath_sys::packet_socket::interface_index;

use super::ending::bridge;
use super::ports::change;
use super::traffic::{bulk, echo};
use super::{BY_WORKERS, Site, address, terminate};
use crate::rig::{PATIENCE, Server, until};
use crate::root_or_skip;

/// For experiments (IEEE 802, local experimental EtherType 1): no host's stack has a use for it.
const EXPERIMENTAL: u16 = 0x88b5;

/// Something at a host's port that sends and receives frames with addresses of its own.
struct Station(PacketSocket);

impl Station {
    fn at(site: &Site, host: usize) -> Self {
        let open = || PacketSocket::open(interface_index("eth0")?, EXPERIMENTAL);
        let socket = site.hosts[host - 1].run(open).expect("entered").expect("a packet socket");
        set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_millis(20))).expect("set");
        Self(socket)
    }

    fn send(&self, from: u8, to: u8, text: &str) {
        let mut frame = [mac(to), mac(from)].concat();
        frame.extend(EXPERIMENTAL.to_be_bytes());
        frame.extend(text.as_bytes());
        frame.resize(60, 0);
        self.0.send(&frame).expect("sent");
    }

    /// The text of the next frame that comes, if one comes soon.
    fn receive(&self) -> Option<String> {
        let mut buffer = [0; 2048];
        let len = self.0.receive(&mut buffer).ok()?;
        let text = buffer.get(14..len)?;
        Some(String::from_utf8_lossy(text).trim_end_matches('\0').to_owned())
    }

    /// Waits for a text, and returns those that have come before it.
    fn waits_for(&self, wanted: &str) -> Vec<String> {
        let (begun, mut before) = (Instant::now(), Vec::new());
        loop {
            match self.receive() {
                Some(text) if text == wanted => return before,
                Some(text) => before.push(text),
                None => assert!(begun.elapsed() < PATIENCE, "{wanted} does not come, but {before:?}"),
            }
        }
    }
}

/// The address of a station; 0 is all of them.
const fn mac(station: u8) -> [u8; 6] {
    if station == 0 { [0xff; 6] } else { [2, 0, 0, 0, 2, station] }
}

fn count(switch: &Server, port: &str, figure: &str) -> u64 {
    let ports = switch.show("ports");
    let port = ports.as_array().expect("a list").iter().find(|it| it["name"] == port).expect("there");
    port[figure].as_u64().expect("a count")
}

/// The port that an address is on.
fn place(switch: &Server, station: u8) -> Option<String> {
    let [.., high, low] = mac(station);
    let address = format!("02:00:00:00:{high:02x}:{low:02x}");
    let macs = switch.show("macs");
    let found = macs.as_array().expect("a list").iter().find(|it| it["mac"] == address.as_str())?;
    Some(found["port"].as_str().expect("a name").to_owned())
}

/// Sends until the kernel forwards a frame from this port.
pub(super) fn until_by_kernel(switch: &Server, port: &str, mut send: impl FnMut()) {
    let before = count(switch, port, "kernel_in");
    until(&format!("the kernel forwards frames of {port}"), || {
        send();
        count(switch, port, "kernel_in") > before
    });
}

/// Frames that a host's interface has sent and received.
fn frames_of(site: &Site, host: usize) -> [u64; 2] {
    let read = || std::fs::read_to_string("/proc/thread-self/net/dev");
    let text = site.hosts[host - 1].run(read).expect("entered").expect("readable");
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix("eth0:")).expect("eth0");
    let numbers: Vec<u64> = line.split_whitespace().map(|word| word.parse().expect("a number")).collect();
    [numbers[9], numbers[1]]
}

#[test]
fn the_kernel_forwards_and_every_frame_is_counted_once() {
    if !root_or_skip() {
        return;
    }
    let site = Site::new(3);
    let switch = site.switch(&["sw0", "--port", "p1", "--port", "p2", "--port", "p3"]);
    site.passes(1, 2);
    site.passes(2, 3);
    until_by_kernel(&switch, "p1", || echo(&site, 1, 2, 100));
    until_by_kernel(&switch, "p2", || echo(&site, 2, 1, 100));
    let ports =
        || ["p1", "p2", "p3"].map(|port| ["frames_in", "frames_out"].map(|it| count(&switch, port, it)));
    // What the hosts send by themselves may come in between.
    let differences = |what: &str| {
        let mut found = None;
        until(&format!("{what}: no frame is under way"), || {
            let hosts = || [1, 2, 3].map(|host| frames_of(&site, host));
            let (before, ports, after) = (hosts(), ports(), hosts());
            let differs = |port: usize, way: usize| before[port][way] as i64 - ports[port][way] as i64;
            found = Some([0, 1, 2].map(|port| [differs(port, 0), differs(port, 1)]));
            before == after
        });
        found
    };
    let at_first = differences("at first");
    for number in 0..200 {
        echo(&site, 1, 2, 1 + number * 7);
        echo(&site, 2, 3, 60);
    }
    // A difference can be that of a frame which a worker has in hand.
    until("all frames are counted once", || differences("at last") == at_first);
    assert!(count(&switch, "p1", "kernel_out") > 0 && count(&switch, "p2", "kernel_out") > 0);
    bulk(&site, 1, 2, &address(2));
    assert_eq!(terminate(switch), Some(0));

    let switch = site.switch(&[&["sw0", "--port", "p1", "--port", "p2"][..], &BY_WORKERS].concat());
    site.passes(1, 2);
    for _ in 0..50 {
        echo(&site, 1, 2, 100);
    }
    assert_eq!(count(&switch, "p1", "kernel_in"), 0);
    assert_eq!(terminate(switch), Some(0));
}

#[test]
fn an_address_that_moves_gets_its_frames_where_it_is() {
    if !root_or_skip() {
        return;
    }
    let site = Site::new(3);
    let switch = site.switch(&["sw0", "--port", "p1", "--port", "p2", "--port", "p3"]);
    let stations = [1, 2, 3].map(|host| Station::at(&site, host));
    let [one, two, three] = &stations;
    one.send(1, 0, "here is 1");
    for (turn, (here, there, port)) in
        [(two, three, "p2"), (three, two, "p3"), (two, three, "p2")].into_iter().enumerate()
    {
        here.send(9, 0, "here is 9");
        until("the switch has learned where it is", || place(&switch, 9).as_deref() == Some(port));
        until_by_kernel(&switch, "p1", || one.send(1, 9, "to 9"));
        let last = format!("the last one of turn {turn}");
        one.send(1, 9, &last);
        here.waits_for(&last);
        // Those that go to all are behind the others.
        let to_all = format!("to all in turn {turn}");
        one.send(1, 0, &to_all);
        let strays = there.waits_for(&to_all);
        let moved = |text: &&String| text.as_str() == last || text.as_str() == "to 9";
        // Before it has moved here, its frames went there.
        let late = strays.iter().rev().take_while(|text| text.as_str() != "here is 9").filter(moved).count();
        assert_eq!(late, 0, "turn {turn}: {strays:?}");
    }
    assert_eq!(terminate(switch), Some(0));
}

#[test]
fn an_address_that_moves_while_the_process_is_stopped_gets_its_frames_by_the_bridge() {
    if !root_or_skip() {
        return;
    }
    let site = Site::new(3);
    bridge(&site, &["p1", "p2", "p3"]);
    let ports = ["sw0", "--port", "p1", "--port", "p2", "--port", "p3"];
    let fails_open = ["--on-exit", "bridge", "--fail-open-ms", "100"];
    let switch = site.switch(&[&ports[..], &fails_open].concat());
    let [one, two, three] = [1, 2, 3].map(|host| Station::at(&site, host));
    one.send(1, 0, "here is 1");
    two.send(9, 0, "here is 9");
    until("the switch has learned where it is", || place(&switch, 9).as_deref() == Some("p2"));
    until_by_kernel(&switch, "p1", || one.send(1, 9, "to 9"));
    kill_process(switch.pid(), Signal::STOP).expect("stopped");
    until("its frames come where it is", || {
        three.send(9, 0, "here is 9 now");
        one.send(1, 9, "to 9 now");
        std::iter::from_fn(|| three.receive()).any(|text| text == "to 9 now")
    });
    kill_process(switch.pid(), Signal::CONT).expect("goes on");
    until("the switch has learned it too", || {
        three.send(9, 0, "here is 9 now");
        place(&switch, 9).as_deref() == Some("p3")
    });
    until_by_kernel(&switch, "p1", || one.send(1, 9, "to 9"));
    assert_eq!(terminate(switch), Some(0));
}

#[test]
fn an_address_that_is_silent_is_forgotten_and_one_that_sends_by_the_kernel_is_not() {
    if !root_or_skip() {
        return;
    }
    const AGEING: Duration = Duration::from_secs(10);
    let site = Site::new(3);
    let ports = ["sw0", "--port", "p1", "--port", "p2", "--port", "p3", "--ageing-s", "10"];
    let switch = site.switch(&ports);
    let [one, two, three] = [1, 2, 3].map(|host| Station::at(&site, host));
    one.send(1, 0, "here is 1");
    let spoke = Instant::now();
    two.send(9, 1, "here is 9");
    until_by_kernel(&switch, "p1", || one.send(1, 9, "to 9"));
    until("its frames are flooded", || {
        one.send(1, 9, "to 9");
        std::iter::from_fn(|| three.receive()).any(|text| text == "to 9")
    });
    assert!(spoke.elapsed() >= AGEING, "only after {AGEING:?}, not {:?}", spoke.elapsed());
    until("it is no longer listed", || {
        one.send(1, 9, "to 9");
        place(&switch, 9).is_none()
    });
    assert_eq!(place(&switch, 1).as_deref(), Some("p1"), "it has sent all the time");
    // It is forwarded to by the kernel again once it is known again.
    two.send(9, 1, "here is 9 again");
    until_by_kernel(&switch, "p1", || one.send(1, 9, "to 9"));
    assert_eq!(terminate(switch), Some(0));
}

#[test]
fn a_change_or_a_capture_has_workers_forward_and_an_end_nobody() {
    if !root_or_skip() {
        return;
    }
    let site = Site::new(3);
    let switch = site.switch(&["sw0", "--port", "p1", "--port", "p2", "--port", "p3"]);
    site.passes(1, 2);
    until_by_kernel(&switch, "p1", || echo(&site, 1, 2, 100));
    // Another VLAN: what the kernel has forwarded before must not pass.
    change(&site, &switch, &["set", "p2", "vlan=20"]).expect("changed");
    assert!(!site.tries(1, 2));
    assert!(!site.tries(2, 1));
    change(&site, &switch, &["set", "p2", "vlan=1"]).expect("changed");
    site.passes(1, 2);
    until_by_kernel(&switch, "p1", || echo(&site, 1, 2, 100));
    // A mirror gets every frame.
    change(&site, &switch, &["set", "p3", "mode=monitor"]).expect("changed");
    change(&site, &switch, &["set", "p1", "mirror_to=p3"]).expect("changed");
    let before = count(&switch, "p1", "kernel_in");
    let seen = site.listen(3);
    for _ in 0..20 {
        echo(&site, 1, 2, 333);
    }
    assert_eq!(count(&switch, "p1", "kernel_in"), before);
    let to = site.mac(2);
    let mut copies = 0;
    while copies < 20 {
        let frame = super::next(&seen).expect("a copy of each");
        copies += usize::from(frame.starts_with(&to) && frame.len() > 333);
    }
    assert_eq!(terminate(switch), Some(0));
    let switch = site.switch(&["sw0", "--port", "p1", "--port", "p2"]);
    site.passes(1, 2);
    until_by_kernel(&switch, "p1", || echo(&site, 1, 2, 100));
    switch.kill();
    until("nobody forwards any more", || !site.tries(1, 2));
}
