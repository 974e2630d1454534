//! Tests of a switch with several workers: the kernel shares the frames of interfaces out among them by flow, and all
//! other ports belong to one of them.

use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use twinpath_shm::Application;
use twinpath_sys::packet_socket::interface_index;
use twinpath_sys::{Namespace, PacketSocket, StoppedThread};
use twinpath_vnet::{Tap, TapHandle};

use super::ports::{StopAtEnd, change, echo_until};
use super::{BY_WORKERS, Site, figure, ip_of, port, terminate};
use crate::fail_open::thread_of;
use crate::rig::{PATIENCE, Server, ip, until};
use crate::root_or_skip;

/// Flows between each two ports: enough that each of two workers gets some.
const FLOWS: u16 = 16;
/// Frames of each flow that are under way at a time.
const AHEAD: u32 = 4;
const ROUNDS: u32 = 10;
const IPV4: u16 = 0x0800;
/// Bytes in front of a frame of a TAP interface: no offloads.
const VNET_HEADER: [u8; 10] = [0; 10];

/// What is at a port, and sends and receives whole frames.
enum Station {
    Host(PacketSocket),
    Machine(OwnedFd),
    Process(Box<Application>),
}

impl Station {
    /// At an interface of a namespace.
    fn on(namespace: &Namespace, interface: &str) -> Self {
        let open = || PacketSocket::open(interface_index(interface)?, IPV4);
        let socket = namespace.run(open).expect("entered").expect("a packet socket");
        set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_millis(20))).expect("set");
        Self::Host(socket)
    }

    fn send(&mut self, frame: &[u8]) {
        match self {
            Self::Host(socket) => socket.send(frame).expect("sent"),
            Self::Machine(queue) => {
                rustix::io::write(queue, &[&VNET_HEADER[..], frame].concat()).expect("written");
            }
            Self::Process(application) => {
                application.send(frame).expect("room");
                application.flush();
            }
        }
    }

    /// The next frame, if one comes soon; its length.
    fn receive(&mut self, buffer: &mut [u8; 2048]) -> Option<usize> {
        match self {
            Self::Host(socket) => socket.receive(buffer).ok(),
            Self::Machine(queue) => {
                let len = rustix::io::read(queue, &mut buffer[..]).ok()?.checked_sub(VNET_HEADER.len())?;
                buffer.copy_within(VNET_HEADER.len().., 0);
                Some(len)
            }
            Self::Process(application) => Some(application.receive(buffer)?.expect("a frame").len),
        }
    }
}

fn mac(station: usize) -> [u8; 6] {
    [2, 0, 0, 0, 1, station as u8]
}

/// A datagram of a flow, with its number.
fn datagram(from: usize, to: usize, flow: u16, number: u32) -> Vec<u8> {
    let mut frame = [mac(to), mac(from)].concat();
    frame.extend(IPV4.to_be_bytes());
    frame.extend([0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 9, 0, from as u8, 10, 9, 0, to as u8]);
    frame.extend((5_000 + flow).to_be_bytes());
    frame.extend([0x23, 0x28, 0, 26, 0, 0]);
    frame.extend(flow.to_be_bytes());
    frame.extend(number.to_be_bytes());
    frame.resize(60, 0x5a);
    frame
}

/// The flow of a datagram between these, and its number.
fn read(frame: &[u8], from: usize, to: usize) -> Option<(u16, u32)> {
    let is_it = frame.len() >= 48 && frame[..6] == mac(to) && frame[6..12] == mac(from);
    let [a, b, c, d, e, f] = *frame.get(42..)?.first_chunk()?;
    is_it.then(|| (u16::from_be_bytes([a, b]), u32::from_be_bytes([c, d, e, f])))
}

/// Sends the datagrams of all flows, some of each at a time, and asserts that every one arrives once and in the order of
/// its flow.
fn crosses(stations: &mut [Station], from: usize, to: usize) {
    let mut next = [0; FLOWS as usize];
    for round in 0..ROUNDS {
        for number in 0..AHEAD {
            for flow in 0..FLOWS {
                stations[from].send(&datagram(from, to, flow, round * AHEAD + number));
            }
        }
        let (mut missing, began) = (AHEAD * u32::from(FLOWS), Instant::now());
        while missing > 0 {
            assert!(began.elapsed() < PATIENCE, "{missing} frames from {from} to {to} are missing: {next:?}");
            let mut buffer = [0; 2048];
            let Some(len) = stations[to].receive(&mut buffer) else {
                std::thread::yield_now();
                continue;
            };
            let Some((flow, number)) = read(&buffer[..len], from, to) else { continue };
            assert_eq!(number, next[usize::from(flow)], "flow {flow} from {from} to {to}");
            next[usize::from(flow)] += 1;
            missing -= 1;
        }
    }
}

/// A figure of each worker.
fn of_workers(switch: &Server, figure: &str) -> Vec<u64> {
    let workers = switch.show("workers");
    workers.as_array().expect("a list").iter().map(|worker| worker[figure].as_u64().unwrap_or(0)).collect()
}

#[test]
fn frames_cross_between_ports_of_all_kinds_once_and_in_order() {
    if !root_or_skip() {
        return;
    }
    let site = Site::new(2);
    let ports = ["p1", "p2", "tap:vm0", "memory:app1", "memory:app2"];
    let mut arguments = vec!["sw0", "--workers", "2", "--local", "host0"];
    arguments.extend(BY_WORKERS);
    ports.iter().for_each(|port| arguments.extend(["--port", port]));
    let switch = site.switch(&arguments);
    ip(&site.rig.server, &["link", "set", "host0", "up"]);
    let make = || {
        let machine = Tap::make("vm0", 1).expect("a TAP interface");
        TapHandle::of(&machine).expect("a handle").set_carrier(true).expect("set");
        machine
    };
    let machine = site.rig.server.run(make).expect("entered");
    ip(&site.rig.server, &["link", "set", "vm0", "up"]);
    let application = |name: &str| {
        let path = site.rig.directory.path().join(format!("ports/sw0-{name}"));
        Station::Process(Box::new(Application::connect(&path).expect("connected")))
    };
    let mut stations = vec![
        Station::on(&site.hosts[0], "eth0"),
        Station::on(&site.hosts[1], "eth0"),
        Station::Machine(machine.queues.into_iter().next().expect("a queue")),
        application("app1"),
        application("app2"),
        Station::on(&site.rig.server, "host0"),
    ];
    for name in ports.into_iter().chain(["host0"]) {
        until(&format!("{name} is up"), || port(&switch, name)["link"] == "up");
    }
    let known = || {
        let macs = switch.show("macs");
        let macs: BTreeSet<_> = macs.as_array().unwrap().iter().map(|mac| mac["mac"].to_string()).collect();
        (0..6).all(|station| macs.contains(&format!("\"02:00:00:00:01:0{station}\"")))
    };
    until("the addresses of all are known", || {
        // To an address that nobody has.
        (0..6).for_each(|from| stations[from].send(&datagram(from, 99, 0, 0)));
        known()
    });
    let before = (switch.show("drops"), of_workers(&switch, "handed_over"));
    for from in 0..stations.len() {
        for to in (0..stations.len()).filter(|to| *to != from) {
            crosses(&mut stations, from, to);
        }
    }
    assert_eq!(switch.show("drops"), before.0);
    let (handed, came) = (of_workers(&switch, "handed_over"), of_workers(&switch, "frames_in"));
    assert!(handed.iter().zip(&before.1).all(|(now, before)| now > before), "{handed:?} {:?}", before.1);
    assert!(came.len() == 2 && came.iter().all(|frames| *frames > 1_000), "{came:?}");
    // An interface has a queue of each worker, a memory port that of one.
    let queues = |name: &str| port(&switch, name)["queues"].as_array().unwrap().len();
    assert_eq!(["p1", "tap:vm0", "memory:app1", "host0"].map(queues), [2, 2, 1, 1]);
    let shown = switch.show("ports");
    let of_p1 = shown.as_array().unwrap().iter().find(|port| port["name"] == "p1").expect("shown");
    let frames = of_p1["frames_out"].as_u64().expect("a number");
    assert!(frames > 2_000 && frames <= figure(&switch, "p1", "frames_out"), "of both workers: {frames}");
    assert_eq!(terminate(switch), Some(0));
}

/// Sends datagrams by many flows of one host and has another one send them back, until it is to stop. Returns how many
/// came back.
fn many_flows(site: &Site, from: usize, to: usize, stop: &AtomicBool) -> u64 {
    let there = site.udp(to, 9200);
    let sockets: Vec<UdpSocket> = (0..FLOWS).map(|_| site.udp(from, 0)).collect();
    let (mut rounds, all_came) = (0, AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| echo_until(&there, &all_came));
        let _at_end = StopAtEnd(&all_came);
        while !stop.load(Ordering::Relaxed) {
            for socket in &sockets {
                socket.send_to(&[1; 60], (ip_of(to), 9200)).expect("sent");
            }
            for socket in &sockets {
                socket.recv_from(&mut [0; 64]).expect("traffic of other ports goes on");
                rounds += 1;
            }
        }
    });
    rounds
}

#[test]
fn ports_come_and_go_while_several_workers_carry_traffic() {
    if !root_or_skip() {
        return;
    }
    let site = Site::new(3);
    let switch =
        site.switch(&[&["sw0", "--port", "p1", "--port", "p2", "--workers", "2"][..], &BY_WORKERS].concat());
    site.passes(1, 2);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let traffic = scope.spawn(|| many_flows(&site, 1, 2, &stop));
        let at_end = StopAtEnd(&stop);
        for round in 0..5 {
            let memory = format!("memory:app{round}");
            for added in ["p3", &memory] {
                assert_eq!(change(&site, &switch, &["add", added]), Ok(format!("port {added} is new\n")));
            }
            site.passes(1, 3);
            change(&site, &switch, &["set", "p3", "vlan=30"]).expect("changed");
            assert!(!site.tries(1, 3), "VLAN 30 is apart");
            change(&site, &switch, &["set", "p3", "vlan=1"]).expect("changed");
            site.passes(1, 3);
            for removed in ["p3", &memory] {
                assert_eq!(
                    change(&site, &switch, &["remove", removed]),
                    Ok(format!("port {removed} goes\n"))
                );
            }
            ip(&site.rig.server, &["address", "add", "10.9.0.1/24", "dev", "p3"]);
            ip(&site.rig.server, &["address", "flush", "dev", "p3"]);
        }
        drop(at_end);
        assert!(traffic.join().expect("no panic") > 100);
    });
    let came = of_workers(&switch, "frames_in");
    assert!(came.iter().all(|frames| *frames > 10), "both carry: {came:?}");
    assert_eq!(terminate(switch), Some(0));
}

#[test]
fn a_limit_of_a_port_holds_for_all_workers_together() {
    if !root_or_skip() {
        return;
    }
    let site = Site::new(2);
    let limited = "p1,unknown_limit=100";
    let switch = site.switch(&["sw0", "--port", limited, "--port", "p2", "--workers", "2"]);
    site.passes(1, 2);
    let mut host = Station::on(&site.hosts[0], "eth0");
    let (sent, began) = (figure(&switch, "p2", "frames_out"), Instant::now());
    let mut all = 0;
    for number in 0..200 {
        for flow in 0..FLOWS {
            host.send(&datagram(0, 99, flow, number));
        }
        // A queue of a veth holds 256 frames, and a busy machine empties it late.
        all += u64::from(FLOWS);
        if number % 8 == 7 {
            until("all so far were judged", || {
                figure(&switch, "p2", "frames_out") - sent + switch.drops("storm_limit") >= all
            });
        }
    }
    // A tenth of a second's frames at once, and then the rate; a host says a few things by itself.
    let most = 10 + began.elapsed().as_millis() as u64 / 10 + 20;
    let flooded = figure(&switch, "p2", "frames_out") - sent;
    assert!(flooded <= most && flooded >= 10, "{flooded} of {most}");
    let came = of_workers(&switch, "frames_in");
    assert!(came.iter().all(|frames| *frames > 100), "both had some: {came:?}");
    assert_eq!(terminate(switch), Some(0));
}

/// Whether a datagram crosses from this socket and comes back soon.
fn crosses_soon(socket: &UdpSocket, to: usize) -> bool {
    socket.set_read_timeout(Some(Duration::from_millis(50))).expect("set");
    socket.send_to(b"here", (ip_of(to), 9300)).is_ok() && socket.recv_from(&mut [0; 64]).is_ok()
}

#[test]
fn when_one_worker_is_stuck_the_others_go_on_and_the_bridge_has_its_flows() {
    if !root_or_skip() {
        return;
    }
    let site = Site::new(2);
    ip(&site.rig.server, &["link", "add", "br0", "type", "bridge"]);
    for port in ["p1", "p2"] {
        ip(&site.rig.server, &["link", "set", port, "master", "br0"]);
    }
    ip(&site.rig.server, &["link", "set", "br0", "up"]);
    let arguments = ["sw0", "--port", "p1", "--port", "p2", "--on-exit", "bridge", "--workers", "2"];
    let switch = site.switch(&[&arguments[..], &["--fail-open-ms", "100"], &BY_WORKERS].concat());
    site.passes(1, 2);
    let (there, stop) = (site.udp(2, 9300), AtomicBool::new(false));
    let sockets: Vec<UdpSocket> = (0..FLOWS).map(|_| site.udp(1, 0)).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| echo_until(&there, &stop));
        let _at_end = StopAtEnd(&stop);
        sockets.iter().for_each(|socket| until("a flow passes", || crosses_soon(socket, 2)));
        let frames = of_workers(&switch, "frames_in");
        let stopped = StoppedThread::stop(thread_of(&switch, 1)).expect("stopped");
        // Flows of the other worker never notice; a flow may have one worker for each direction.
        let unharmed = sockets.iter().filter(|socket| crosses_soon(socket, 2)).count();
        for socket in &sockets {
            until("the other worker or the bridge carries each flow", || crosses_soon(socket, 2));
        }
        let workers = switch.show("workers");
        assert!(workers[1]["stuck_ms"].as_u64().is_some_and(|ms| ms >= 100), "{workers}");
        // Beside load it may have no CPU for so long that it is stuck as well, for a moment.
        until("the other worker goes on", || switch.show("workers")[0]["stuck_ms"].is_null());
        assert!(of_workers(&switch, "frames_in")[0] > frames[0] || unharmed == 0);
        switch.wait_until_said("worker 1 is stuck");
        // A change is complete for the worker that turns; the answer waits for nothing that a port has left behind.
        assert!(change(&site, &switch, &["set", "p1", "mac_limit=9"]).is_ok());
        drop(stopped);
        until("the worker goes on", || {
            sockets.iter().filter(|socket| crosses_soon(socket, 2)).count() > 0
                && switch.show("workers")[1]["stuck_ms"].is_null()
        });
        let frames = of_workers(&switch, "frames_in");
        for socket in &sockets {
            until("each flow passes", || crosses_soon(socket, 2));
        }
        assert!(of_workers(&switch, "frames_in").iter().zip(&frames).all(|(now, before)| now > before));
    });
    assert!(of_workers(&switch, "times_stuck")[1] > 0);
    assert_eq!(terminate(switch), Some(0));
}
