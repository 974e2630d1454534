//! Tests of a switch's ports: those that come and go, of all kinds, and changes while it runs.

use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::poll;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::time::Timespec;
use twinpath_shm::{Application, Woken};
use twinpath_sys::PacketSocket;
use twinpath_sys::packet_socket::interface_index;
use twinpath_vnet::Tap;

use super::{Site, port, terminate};
use crate::rig::{Server, forget_neighbours, ip, kill, move_link, udp_in, until};
use crate::root_or_skip;

/// An EtherType for experiments (IEEE 802, table 3).
const EXPERIMENT: u16 = 0x88b5;
/// Where the application connects, for the process that is one.
const CONNECTS_TO: &str = "TWINPATH_TEST_MEMORY_PORT";
/// Its address on the switch.
const APPLICATION: [u8; 6] = [2, 0, 0, 0, 0, 0xaa];

/// Changes a port by command; what was said.
pub(super) fn change(site: &Site, switch: &Server, arguments: &[&str]) -> Result<String, String> {
    let socket = switch.socket.display().to_string();
    let said = site.rig.twinpath(&site.rig.server, &[&["port"], arguments, &["--socket", &socket]].concat());
    if said.code == Some(0) { Ok(said.stdout) } else { Err(said.stderr) }
}

pub(super) fn state(switch: &Server, name: &str) -> String {
    port(switch, name)["link"].as_str().unwrap_or_default().to_owned()
}

/// A packet socket of a host, for frames of an experiment; it waits for a tenth of a second.
fn frames(site: &Site, host: usize) -> PacketSocket {
    let open = || PacketSocket::open(interface_index("eth0")?, EXPERIMENT);
    let socket = site.hosts[host - 1].run(open).expect("entered").expect("a packet socket");
    set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_millis(100))).expect("set");
    socket
}

/// Has threads beside a test end when it ends, also when it fails: the scope that they are in waits for them.
pub(super) struct StopAtEnd<'a>(pub(super) &'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sends datagrams back until it is to stop.
pub(super) fn echo_until(socket: &UdpSocket, stop: &AtomicBool) {
    socket.set_read_timeout(Some(Duration::from_millis(50))).expect("set");
    while !stop.load(Ordering::Relaxed) {
        if let Ok((len, peer)) = socket.recv_from(&mut [0; 64]) {
            let _ = socket.send_to(&[7; 64][..len], peer);
        }
    }
}

/// Has a datagram go from one host to another and back, and then the next one, while `during` runs; none is lost.
pub(super) fn undisturbed(site: &Site, from: usize, to: usize, during: impl FnOnce()) {
    let (there, back) = (site.udp(to, 9100), site.udp(from, 9101));
    let (stop, enough) = (AtomicBool::new(false), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| echo_until(&there, &stop));
        let traffic = scope.spawn(|| {
            back.set_read_timeout(Some(crate::rig::PATIENCE)).expect("set");
            let mut rounds = 0_u64;
            while !enough.load(Ordering::Relaxed) {
                back.send_to(&[1; 60], (super::ip_of(to), 9100)).expect("sent");
                back.recv_from(&mut [0; 64]).expect("traffic of other ports goes on");
                rounds += 1;
            }
            rounds
        });
        // Traffic ends before its echo does: each request has a reply.
        let (echo_at_end, traffic_at_end) = (StopAtEnd(&stop), StopAtEnd(&enough));
        during();
        drop(traffic_at_end);
        assert!(traffic.join().expect("no panic") > 10);
        drop(echo_at_end);
    });
}

#[test]
fn ports_come_go_and_change_by_command_while_traffic_flows() {
    if !root_or_skip() {
        return;
    }
    let site = Site::new(4);
    let switch = site.switch(&["sw0", "--port", "p1", "--port", "p2"]);
    site.passes(1, 2);
    undisturbed(&site, 1, 2, || {
        for _ in 0..5 {
            assert_eq!(change(&site, &switch, &["add", "p3"]).as_deref(), Ok("port p3 is new\n"));
            site.passes(1, 3);
            let said = change(&site, &switch, &["set", "p3", "vlan=30"]).expect("changed");
            assert_eq!(said, "port p3: vlan 1 -> 30\n");
            assert!(!site.tries(1, 3), "VLAN 30 is apart");
            assert_eq!(
                change(&site, &switch, &["set", "p3", "vlan=1"]).as_deref(),
                Ok("port p3: vlan 30 -> 1\n")
            );
            site.passes(1, 3);
            assert_eq!(change(&site, &switch, &["remove", "p3"]).as_deref(), Ok("port p3 goes\n"));
            // The interface is the kernel's again as soon as that is answered.
            ip(&site.rig.server, &["address", "add", "10.9.0.1/24", "dev", "p3"]);
            ip(&site.rig.server, &["address", "flush", "dev", "p3"]);
        }
    });
    // What cannot be is refused, and nothing is changed.
    for (arguments, why) in [
        (&["add", "nonesuch"][..], "there is no interface nonesuch; there is"),
        (&["add", "p1"], "p1 twice"),
        (&["add", "p4,vlan=4095"], "give 1 to 4094"),
        (&["add", "p4,vlan=0"], "give 1 to 4094"),
        (&["add", "p4,color=red"], "a port has no key `color`"),
        (&["remove", "p4"], "there is no port p4; there is p1, p2"),
        (&["set", "p1", "mirror_to=p9"], "there is no port p9"),
        (&["set", "p1", "vlans=3"], "only a trunk has it"),
    ] {
        let said = change(&site, &switch, arguments).expect_err("refused");
        assert!(said.contains(why), "{arguments:?}: {said}");
    }
    site.passes(1, 2);
    assert_eq!(terminate(switch), Some(0));
}

#[test]
fn a_port_whose_interface_goes_is_back_with_it() {
    if !root_or_skip() {
        return;
    }
    let site = Site::new(3);
    let switch = site.switch(&["sw0", "--port", "p1", "--port", "p2", "--port", "p3"]);
    site.passes(1, 2);
    ip(&site.rig.server, &["link", "delete", "p2"]);
    until("the port is gone", || state(&switch, "p2") == "gone");
    site.passes(1, 3);
    site.plug_in(2);
    // Its address is another one now, which ARP would find out by and by.
    forget_neighbours(&site.hosts[0], "eth0");
    until("the port is back", || state(&switch, "p2") == "up");
    site.passes(1, 2);
    // Moved to another namespace, and back.
    move_link(&site.rig.server, "p2", &site.rig.client);
    until("the port is gone", || state(&switch, "p2") == "gone");
    move_link(&site.rig.client, "p2", &site.rig.server);
    ip(&site.rig.server, &["link", "set", "p2", "up"]);
    until("the port is back", || state(&switch, "p2") == "up");
    site.passes(1, 2);
    assert_eq!(terminate(switch), Some(0));
}

/// Sends while `during` runs, and for half a minute at most.
pub(super) fn beside(send: impl Fn() + Sync, during: impl FnOnce()) {
    let (begun, stop) = (Instant::now(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) && begun.elapsed() < Duration::from_secs(30) {
                send();
            }
        });
        let _at_end = StopAtEnd(&stop);
        during();
    });
}

#[test]
fn a_namespace_that_ends_under_traffic_takes_its_port_and_nothing_else() {
    if !root_or_skip() {
        return;
    }
    let mut site = Site::new(3);
    let switch = site.switch(&["sw0", "--port", "p1", "--port", "p2", "--port", "p3"]);
    site.passes(1, 3);
    let here = site.udp(1, 0);
    // Refused while nobody knows the address.
    let send = || {
        let _ = here.send_to(&[1; 1_000], (super::ip_of(3), 9001));
    };
    beside(send, || {
        // Its last descriptor.
        drop(site.hosts.pop());
        until("the port is gone", || state(&switch, "p3") == "gone");
        site.passes(1, 2);
        site.add_host();
        until("the port is back", || state(&switch, "p3") == "up");
        forget_neighbours(&site.hosts[0], "eth0");
        site.passes(1, 3);
    });
    assert_eq!(terminate(switch), Some(0));
}

#[test]
fn frames_that_come_before_the_workers_first_turn_are_not_lost() {
    if !root_or_skip() {
        return;
    }
    let site = Site::new(2);
    let from = frames(&site, 1);
    let mut frame = [0; 60];
    frame[..6].fill(0xff);
    frame[6..12].copy_from_slice(&APPLICATION);
    frame[12..14].copy_from_slice(&EXPERIMENT.to_be_bytes());
    // No more than the ring has room for until then: what it is too full for would be lost as well.
    let pause = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
    let send = || {
        let _ = from.send(&frame);
        let _ = poll(&mut [], Some(&pause));
    };
    beside(send, || {
        let switch = site.switch(&["sw0", "--port", "p1", "--port", "p2"]);
        site.passes(1, 2);
        assert_eq!(switch.drops("port_down"), 0);
        assert_eq!(terminate(switch), Some(0));
    });
}

#[test]
fn frames_that_come_while_an_interface_is_added_meet_no_worker_without_it() {
    if !root_or_skip() {
        return;
    }
    let site = Site::new(2);
    let from = [1, 2].map(|host| frames(&site, host));
    let mut frame = [0; 60];
    frame[..6].fill(0xff);
    frame[12..14].copy_from_slice(&EXPERIMENT.to_be_bytes());
    let pause = Timespec { tv_sec: 0, tv_nsec: 50_000 };
    // Broadcasts from the port that is there, which leave by the new one, and the other way round.
    let send = || {
        for (socket, source) in from.iter().zip([1, 2]) {
            let mut frame = frame;
            frame[6..12].copy_from_slice(&[2, 0, 0, 0, 9, source]);
            let _ = socket.send(&frame);
        }
        let _ = poll(&mut [], Some(&pause));
    };
    for workers in ["1", "2", "1"] {
        let switch = site.switch(&["sw0", "--port", "p1", "--workers", workers]);
        beside(send, || {
            change(&site, &switch, &["add", "p2"]).expect("added");
            site.passes(1, 2);
            assert_eq!(switch.drops("port_down"), 0, "{workers} workers");
        });
        assert_eq!(terminate(switch), Some(0));
    }
}

#[test]
fn the_host_is_on_the_switch_by_an_interface_of_its_own() {
    if !root_or_skip() {
        return;
    }
    let site = Site::new(1);
    let switch = site.switch(&["sw0", "--port", "p1", "--local", "host0"]);
    ip(&site.rig.server, &["address", "add", "10.8.0.254/24", "dev", "host0"]);
    ip(&site.rig.server, &["link", "set", "host0", "up"]);
    let there = udp_in(&site.rig.server, "10.8.0.254:9000".parse().unwrap());
    there.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let here = site.udp(1, 0);
    here.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    until("a datagram reaches the host and comes back", || {
        let mut buffer = [0; 64];
        here.send_to(b"host", "10.8.0.254:9000").is_ok()
            && there
                .recv_from(&mut buffer)
                .is_ok_and(|(len, peer)| there.send_to(&buffer[..len], peer).is_ok())
            && here.recv_from(&mut buffer).is_ok()
    });
    // Removed by somebody else, it is made again.
    ip(&site.rig.server, &["link", "delete", "host0"]);
    until("the interface is there again", || {
        !site.rig.link_server("host0").is_null() && port(&switch, "host0")["ifindex"] != 0
    });
    assert_eq!(terminate(switch), Some(0));
    assert!(site.rig.link_server("host0").is_null());
}

#[test]
fn a_virtual_machines_interface_is_a_port_while_the_machine_runs() {
    if !root_or_skip() {
        return;
    }
    let site = Site::new(1);
    let switch = site.switch(&["sw0", "--port", "p1", "--port", "tap:vm0"]);
    assert_eq!(state(&switch, "tap:vm0"), "gone");
    for _ in 0..2 {
        // As a virtual machine opens it; frames that its kernel would send are written there.
        let machine = site.rig.server.run(|| Tap::make("vm0", 1)).expect("entered").expect("a TAP interface");
        twinpath_vnet::TapHandle::of(&machine).unwrap().set_carrier(true).unwrap();
        ip(&site.rig.server, &["link", "set", "vm0", "up"]);
        until("the port is up", || state(&switch, "tap:vm0") == "up");
        let listens = frames(&site, 1);
        let mut frame = vec![0; 10];
        frame.extend([0xff; 6]);
        frame.extend([2, 0, 0, 0, 0, 9]);
        frame.extend(EXPERIMENT.to_be_bytes());
        frame.extend([0x5a; 46]);
        let mut buffer = [0; 128];
        until("the machine's frame arrives at the host", || {
            rustix::io::write(&machine.queues[0], &frame).expect("written");
            listens.receive(&mut buffer).is_ok_and(|len| len >= 14 && buffer[6..12] == frame[16..22])
        });
        drop(machine);
        until("the port is gone with the machine", || state(&switch, "tap:vm0") == "gone");
    }
    assert_eq!(terminate(switch), Some(0));
}

#[test]
fn a_port_of_another_namespace_is_carried_here() {
    if !root_or_skip() {
        return;
    }
    let site = Site::new(2);
    // The switch's end of host 2's cable is in a namespace that the switch is not in.
    let holder = site.rig.run(&site.rig.client, "sleep", &["600"]);
    ip(&site.rig.server, &["link", "set", "p2", "netns", &holder.id().to_string()]);
    ip(&site.rig.client, &["link", "set", "p2", "up"]);
    let there = format!("p2@/proc/{}/ns/net", holder.id());
    let switch = site.switch(&["sw0", "--port", "p1", "--port", &there]);
    site.passes(1, 2);
    let said = change(&site, &switch, &["remove", &there]).expect("removed");
    assert!(said.contains("goes"), "{said}");
    assert!(!site.tries(1, 2));
    // With its last port the namespace was given back, and a confined process may not look into that of another.
    let said = change(&site, &switch, &["add", &there]).expect_err("refused");
    assert!(said.contains("give the namespace a name (ip netns attach NAME PID)"), "{said}");
    kill(holder);
    assert_eq!(terminate(switch), Some(0));
}

/// A name of a namespace for `ip netns`, which is removed afterwards.
pub(super) struct Named(pub(super) String);

impl Named {
    /// `what` is one of the test's own.
    pub(super) fn new(what: &str) -> Self {
        let named = Self(format!("twinpath-test-{what}-{}", std::process::id()));
        named.make();
        named
    }

    /// Makes another namespace of that name.
    pub(super) fn make(&self) {
        assert!(self.netns("add"));
    }

    /// The namespace is there for as long as somebody has it.
    pub(super) fn delete(&self) {
        assert!(self.netns("delete"));
    }

    fn netns(&self, what: &str) -> bool {
        let done = Command::new("ip").args(["netns", what, &self.0]).stderr(Stdio::null()).status();
        done.expect("iproute2 is installed").success()
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        self.netns("delete");
    }
}

#[test]
fn a_namespace_has_several_names_and_an_interface_is_one_port_of_a_switch() {
    if !root_or_skip() {
        return;
    }
    let (site, named) = (Site::new(2), Named::new("names"));
    let there = &named.0;
    let switch = site.switch(&["sw0", "--port", "p1"]);
    ip(&site.rig.server, &["link", "set", "p2", "netns", there]);
    ip(&site.rig.server, &["-n", there, "link", "set", "p2", "up"]);
    let said =
        change(&site, &switch, &["add", &format!("p2@{there}")]).expect("added, though it is confined");
    assert!(said.contains("is new"), "{said}");
    site.passes(1, 2);
    let refused = |port: &str| change(&site, &switch, &["add", port]).expect_err("refused");
    let said = refused(&format!("p2@/run/netns/{there}"));
    assert!(said.contains(&format!("p2 is port p2@{there} of this switch already")), "{said}");
    // The namespace of another process, which a confined one may not look at.
    let holder = site.rig.run(&site.rig.client, "sleep", &["60"]);
    let said = refused(&format!("p1@/proc/{}/ns/net", holder.id()));
    assert!(said.contains("give the namespace a name (ip netns attach NAME PID)"), "{said}");
    kill(holder);
    let said = refused("p1@/proc/self/ns/net");
    assert!(said.contains("p1 is port p1 of this switch already"), "{said}");
    let said = refused("p1@/proc/self/status");
    assert!(said.contains("/proc/self/status is no network namespace"), "{said}");
    site.passes(1, 2);
    assert_eq!(terminate(switch), Some(0));
}

/// Not a test but the process of an application, started by the test below: it sends frames back.
#[test]
fn an_application_of_a_memory_port() {
    let Some(path) = std::env::var_os(CONNECTS_TO) else { return };
    let mut port = Application::connect(path.as_ref()).expect("connected");
    let mut frame = [0; 2048];
    while port.wait(None).expect("waits") != Woken::OwnerGone {
        while let Some(packet) = port.receive(&mut frame) {
            let len = packet.expect("a frame").len;
            let is_ours = len >= 14 && frame[..6] == APPLICATION && frame[12..14] == EXPERIMENT.to_be_bytes();
            if is_ours {
                frame.copy_within(6..12, 0);
                frame[6..12].copy_from_slice(&APPLICATION);
                port.send(&frame[..len]).expect("sent");
            }
        }
        port.flush();
    }
}

fn application(path: &str) -> Child {
    let own = std::env::current_exe().expect("this program");
    let name = "switch::ports::an_application_of_a_memory_port";
    let mut command = Command::new(own);
    command.args([name, "--exact"]).env(CONNECTS_TO, path).stdin(Stdio::null()).stdout(Stdio::null());
    command.spawn().expect("it runs")
}

#[test]
fn a_process_is_on_the_switch_by_memory_and_the_next_one_after_it() {
    if !root_or_skip() {
        return;
    }
    let site = Site::new(2);
    let switch = site.switch(&["sw0", "--port", "p1", "--port", "p2", "--port", "memory:app1"]);
    assert_eq!(state(&switch, "memory:app1"), "waiting");
    let path = site.rig.directory.path().join("ports/sw0-app1").display().to_string();
    assert!(port(&switch, "memory:app1")["why"].as_str().unwrap().contains(&path));
    let host = frames(&site, 1);
    let mut frame = APPLICATION.to_vec();
    frame.extend([2, 0, 0, 0, 0, 1]);
    frame.extend(EXPERIMENT.to_be_bytes());
    frame.extend([0x5a; 46]);
    for _ in 0..2 {
        let mut process = application(&path);
        until("it is connected", || state(&switch, "memory:app1") == "up");
        let why = port(&switch, "memory:app1")["why"].as_str().unwrap().to_owned();
        assert!(why.contains(&format!("process {} has it", process.id())), "{why}");
        let mut buffer = [0; 128];
        until("a frame comes back", || {
            host.send(&frame).expect("sent");
            host.receive(&mut buffer).is_ok_and(|len| len >= 14 && buffer[6..12] == APPLICATION)
        });
        // A second one finds its connection closed.
        let second = Application::connect(path.as_ref()).expect_err("one at a time");
        assert!(second.to_string().contains("closed the connection"), "{second}");
        process.kill().expect("it runs");
        process.wait().expect("it ends");
        until("its port waits for the next one", || state(&switch, "memory:app1") == "waiting");
        site.passes(1, 2);
    }
    assert_eq!(terminate(switch), Some(0));
    assert!(!std::path::Path::new(&path).exists());
}
