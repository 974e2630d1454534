//! The twin of the switch: hosts at a bridge of the kernel, and the same hosts at `twinpath switch`. On both sides they send the
//! same seeded frames of every kind, and each host must see the same ones. The bridge is right by definition.
//!
//! Frames are compared as they would be on a wire: where a host receives them, the kernel cuts super-frames, completes checksums
//! and puts tags in, so it does not matter where on the way that is done.
//!
//! What differs, and is meant to (docs/switch.md, "Beside a kernel bridge"), has a name here: [`BPDU`], [`address_of_port`],
//! [`is_probe`], [`is_a_little_longer`], [`without_id`], [`Config::keeps_order`], [`Config::frames_of_a_step`]; in the frames:
//! `least`, `mtu_of_packets`.

mod frames;

use std::fmt::Write as _;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use fastrand::Rng;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde_json::Value;
use twinpath_sys::Namespace;
use twinpath_sys::packet_socket::interface_index;
use twinpath_vnet::{SocketConfig, Tap, TapHandle, open_socket};
use twinpath_wire::Mac;
use twinpath_wire::checksum::Sum;

use twinpath_test_rig::few_or_all;

use self::frames::{Bounds, Frame, VNET_HEADER_LEN, frame};
use super::learned::until_by_kernel;
use super::namespaces::move_to;
use super::ports::Named;
use super::{BY_WORKERS, Site};
use crate::rig::{PATIENCE, Server, ip, move_link};
use crate::root_or_skip;

/// Steps of a seed, few and in full: in each one host sends some frames.
const STEPS: [usize; 2] = [60, 400];
/// Seeds begin, and their steps go on, until then; each has some steps, however late it is.
const TIME: [Duration; 2] = [Duration::from_secs(6), Duration::from_secs(60)];
const STEPS_LEAST: usize = 20;

/// What does not come within this time after the end of a step does not come at all.
const LATE: Duration = PATIENCE;

const HOSTS: usize = 4;
/// Of a frame that ends a step.
const MARKER: u16 = 0x88b6;
/// The group of the spanning tree protocol, the first of those that no bridge forwards by IEEE 802.1Q. The kernel's does if it takes
/// no part in the protocol.
const BPDU: [u8; 6] = [1, 0x80, 0xc2, 0, 0, 0];

/// What is at the third port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Third {
    /// A host like the others; and the fourth one has a port.
    Host,
    /// A bridge, behind which the fourth host is.
    Bridge,
    /// A host that takes nothing: a bridge into a shaper with a long queue. What it gets is its own matter.
    Slow,
}

#[derive(Clone, Copy, Debug)]
struct Config {
    third: Third,
    /// The port of the second host is in a network namespace of its own.
    is_apart: bool,
    /// The kernel forwards between learned addresses.
    by_kernel: bool,
    mtu: usize,
    /// That of the second host and its port.
    mtu_of_second: usize,
    /// Hosts send with the addresses of others.
    they_lie: bool,
    /// Tunnels have checksums.
    tunnel_checksums: bool,
    ports: Ports,
}

/// How the kernel gives frames of ports to the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ports {
    Plain,
    /// A thread of the kernel takes them, which may join them.
    Thread,
    /// The driver forwards what it can; so hosts leave no checksum to it.
    Xdp,
}

impl Config {
    fn draw(random: &mut Rng) -> Self {
        let ports = [Ports::Plain, Ports::Plain, Ports::Thread, Ports::Xdp][random.usize(..4)];
        let mtu = [1500, 1500, 9000, 65_535][random.usize(..4)];
        // A veth takes no program with more.
        let mtu = if ports == Ports::Xdp { 1500 } else { mtu };
        Self {
            third: [Third::Host, Third::Bridge, Third::Slow][random.usize(..3)],
            is_apart: random.u32(0..3) == 0,
            by_kernel: random.bool(),
            mtu,
            mtu_of_second: if random.u32(0..4) == 0 { 1400 } else { mtu },
            they_lie: random.bool(),
            tunnel_checksums: random.bool(),
            ports,
        }
    }

    const fn mtu_of(&self, host: usize) -> usize {
        if host == 2 { self.mtu_of_second } else { self.mtu }
    }

    /// Where the kernel forwards some frames and workers the others, those may overtake these. A thread that joins frames keeps only
    /// those of a flow in order.
    fn keeps_order(&self) -> bool {
        !self.by_kernel && self.ports != Ports::Thread
    }

    /// What a worker learns from a frame holds for those that the kernel forwards a little later, or that came before.
    fn frames_of_a_step(&self) -> usize {
        if self.ports == Ports::Thread || self.by_kernel && self.they_lie { 1 } else { 6 }
    }

    /// The hosts that a frame to all reaches, and that are waited for.
    fn reached_from(&self, from: usize) -> Vec<usize> {
        let is_reached = |host: &usize| match self.third {
            Third::Host => *host != from,
            Third::Bridge => *host != from && (from < 3 || *host < 3),
            Third::Slow => *host != from && *host != 3,
        };
        (1..=HOSTS).filter(is_reached).collect()
    }
}

/// An address of a host; number 0 is that of its interface.
const fn mac(host: usize, number: u8) -> [u8; 6] {
    [2, 0x5e, 0, 0, host as u8, number]
}

/// The address of a port, which is one of the bridge's own. Nothing is sent to it, as the bridge would take that for its host.
const fn address_of_port(host: usize) -> [u8; 6] {
    [2, 0x5e, 0, 1, 0, host as u8]
}

/// The host that this one has a tunnel to.
const fn tunnel_from(host: usize) -> usize {
    if host == 1 { 2 } else { 1 }
}

/// What a host sends and sees by.
struct End {
    line: OwnedFd,
    tunnel: OwnedFd,
    /// A TAP interface to which the kernel passes what the host receives.
    seen: OwnedFd,
}

/// One of both networks.
struct Side {
    site: Site,
    ends: Vec<End>,
    switch: Option<Server>,
    _apart: Option<Named>,
    config: Config,
    steps: u32,
}

/// What came of a step: which frames were refused by the sender's own interface, what each host has received, and which hosts the
/// frame that ends the step has not reached.
#[derive(PartialEq, Eq)]
struct Seen {
    refused: Vec<Option<Errno>>,
    received: Vec<Vec<Vec<u8>>>,
    cut_off: Vec<usize>,
}

fn sh(site: &Site, namespace: &Namespace, script: &str) {
    let done = site.rig.run(namespace, "sh", &["-ec", script]).wait().expect("it ends");
    assert!(done.success(), "{script}");
}

impl Side {
    fn new(config: Config, is_ours: bool) -> Self {
        let site = Site::new(HOSTS);
        let quiet = "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6\n\
                     echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6\n";
        let set = |host| {
            let own = Mac(address_of_port(host));
            format!("ip link set p{host} address {own} mtu {}\n", config.mtu_of(host))
        };
        let ports: String = (1..=HOSTS).map(set).collect();
        sh(&site, &site.rig.server, &format!("{quiet}{ports}"));
        let ends = (1..=HOSTS).map(|host| end_of(&site, host, config, quiet)).collect();
        match config.third {
            Third::Host => {}
            Third::Bridge => bridge_on(&site),
            Third::Slow => slow_down(&site),
        }
        let named = ["p1", "p2", "p3", "p4"];
        let ports = if config.third == Third::Bridge { &named[..3] } else { &named[..] };
        let (mut switch, mut apart) = (None, None);
        if is_ours {
            if config.is_apart {
                let namespace = Named::new("twin");
                sh(&site, &site.rig.server, &format!("ip netns exec {} sh -ec '{quiet}'", namespace.0));
                move_to(&site, 2, &namespace);
                let mtu = config.mtu_of(2).to_string();
                ip(&site.rig.server, &["-n", &namespace.0, "link", "set", "p2", "mtu", &mtu]);
                apart = Some(namespace);
            }
            let mut arguments = vec!["sw0".to_owned()];
            let more = match config.ports {
                Ports::Plain => "",
                Ports::Thread => ",receive=thread",
                Ports::Xdp => ",offload=xdp",
            };
            for port in ports {
                let there = apart.as_ref().filter(|_| *port == "p2").map(|named| format!("@{}", named.0));
                arguments.extend(["--port".to_owned(), format!("{port}{}{more}", there.unwrap_or_default())]);
            }
            if !config.by_kernel {
                arguments.extend(BY_WORKERS.map(str::to_owned));
            }
            let start = |arguments: &[String]| {
                site.try_switch(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
            };
            let started = start(&arguments).or_else(|stderr| {
                let without: Vec<_> = arguments.iter().map(|it| it.replace(",receive=thread", "")).collect();
                if stderr.contains("it needs Linux 6.17") { start(&without) } else { Err(stderr) }
            });
            switch = Some(started.unwrap_or_else(|stderr| panic!("no switch: {stderr}")));
        } else {
            sh(&site, &site.rig.server, &bridge_of(ports));
        }
        Self { site, ends, switch, _apart: apart, config, steps: 0 }
    }

    /// Sends a frame, on the sender's line or into its tunnel.
    fn send(&self, from: usize, frame: &Frame) -> Option<Errno> {
        let end = &self.ends[from - 1];
        let socket = if frame.in_tunnel { &end.tunnel } else { &end.line };
        let bytes = [&frame.header[..], &frame.bytes].concat();
        let begun = Instant::now();
        loop {
            match rustix::io::write(socket, &bytes) {
                Ok(_) => return None,
                Err(Errno::AGAIN) if begun.elapsed() < PATIENCE => {
                    wait_for(socket, PollFlags::OUT);
                }
                Err(error) => return Some(error),
            }
        }
    }

    /// Has a host send frames, and returns what came of that once all have come.
    fn run(&mut self, from: usize, frames: &[Frame]) -> Seen {
        let refused = frames.iter().map(|frame| self.send(from, frame)).collect();
        let marker = self.mark(from);
        let (mut received, mut cut_off) = (vec![Vec::new(); HOSTS], Vec::new());
        let begun = Instant::now();
        for host in self.config.reached_from(from) {
            loop {
                match self.next(host, PATIENCE.saturating_sub(begun.elapsed())) {
                    Some(frame) if frame == marker => break,
                    Some(frame) => received[host - 1].push(frame),
                    None => {
                        cut_off.push(host);
                        break;
                    }
                }
            }
        }
        let mut seen = Seen { refused, received, cut_off };
        self.take_late(&mut seen);
        seen
    }

    /// Takes what has come since the frame that ends the step, and leaves out what differs by its name.
    fn take_late(&self, seen: &mut Seen) {
        for host in 1..=HOSTS {
            let frames = &mut seen.received[host - 1];
            frames.extend(std::iter::from_fn(|| self.next(host, Duration::ZERO)));
            let mtu = self.config.mtu_of(host);
            let is_by_kernel = self.switch.is_none() || self.config.by_kernel;
            let is_bridges = |frame: &[u8]| {
                self.switch.is_none() && frame.starts_with(&BPDU)
                    || is_by_kernel && is_a_little_longer(frame, mtu)
            };
            frames.retain(|frame| !is_probe(frame) && !is_bridges(frame));
            frames.iter_mut().for_each(|frame| without_id(frame));
            if !self.config.keeps_order() {
                frames.sort();
            }
        }
        if self.config.third == Third::Slow {
            seen.received[2].clear();
        }
    }

    /// Sends a frame to all that is behind the others.
    fn mark(&mut self, from: usize) -> Vec<u8> {
        self.steps += 1;
        let mut frame = bare(mac(from, 0xff), [0xff; 6]);
        frame.bytes[14..18].copy_from_slice(&self.steps.to_be_bytes());
        assert_eq!(self.send(from, &frame), None);
        frame.bytes
    }

    /// The next frame that a host receives.
    fn next(&self, host: usize, wait: Duration) -> Option<Vec<u8>> {
        let seen = &self.ends[host - 1].seen;
        let begun = Instant::now();
        let mut buffer = vec![0; 70_000];
        loop {
            match rustix::io::read(seen, &mut buffer) {
                Ok(len) => return Some(buffer[VNET_HEADER_LEN..len].to_vec()),
                Err(Errno::AGAIN) if begun.elapsed() < wait => wait_for(seen, PollFlags::IN),
                Err(Errno::AGAIN) => return None,
                Err(error) => panic!("host {host}: {error}"),
            }
        }
    }

    /// Has the slow port take as much as it may.
    fn fill_the_slow_port(&mut self) {
        let mut of_slow = bare(mac(4, 1), mac(3, 1));
        of_slow.bytes.resize(1400, 0x5a);
        let flood = line(&self.site.hosts[3], "eth0");
        let bytes = [&of_slow.header[..], &of_slow.bytes].concat();
        for _ in 0..100 {
            // What does not fit into its sender's own queue is no matter.
            let _ = rustix::io::write(&flood, &bytes);
        }
        self.run(4, &[]);
    }

    /// Has the kernel forward from one host's address to another one's.
    fn warm_up(&mut self, from: usize, to: usize) {
        // The other one's address is learned.
        self.run(to, &[bare(mac(to, 0), [0xff; 6])]);
        if let Some(switch) = &self.switch {
            let frame = bare(mac(from, 0), mac(to, 0));
            until_by_kernel(switch, &format!("p{from}"), || _ = self.send(from, &frame));
        }
        self.run(from, &[]);
    }
}

/// A frame without content, but for the number of the step that it ends.
fn bare(from: [u8; 6], to: [u8; 6]) -> Frame {
    let bytes = [&to[..], &from, &MARKER.to_be_bytes(), &[0; 46]].concat();
    Frame { what: String::new(), header: [0; VNET_HEADER_LEN], bytes, in_tunnel: false }
}

fn wait_for(fd: &OwnedFd, flags: PollFlags) {
    let timeout = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    poll(&mut [PollFd::new(fd, flags)], Some(&timeout)).expect("polled");
}

/// A socket that sends on an interface, with virtio-net headers.
fn line(namespace: &Namespace, interface: &str) -> OwnedFd {
    let open = || {
        let ifindex = interface_index(interface).expect("there");
        open_socket(&SocketConfig { ifindex, fanout_group: None, mark: 0 }).expect("a packet socket")
    };
    namespace.run(open).expect("entered")
}

fn end_of(site: &Site, host: usize, config: Config, quiet: &str) -> End {
    let namespace = &site.hosts[host - 1];
    let tap = namespace.run(|| Tap::make("c0", 1).expect("a TAP interface")).expect("entered");
    TapHandle::of(&tap).expect("a handle").set_carrier(true).expect("set");
    let (mtu, peer) = (config.mtu_of(host), tunnel_from(host));
    let [own, of_peer] = [mac(host, 0), mac(peer, 0)].map(|it| Mac(it).to_string());
    let checksums_of_line = if config.ports == Ports::Xdp {
        "ethtool -K eth0 tx off txvlan off tx-vlan-stag-hw-insert off gro on > /dev/null\n"
    } else {
        ""
    };
    let checksums = if config.tunnel_checksums { "udpcsum" } else { "noudpcsum" };
    // What is beyond the third host's interface is not taken from it.
    let action = if host == 3 && config.third != Third::Host { "mirror" } else { "redirect" };
    sh(
        site,
        namespace,
        &format!(
            "{quiet}\
             ip link set eth0 address {own} mtu {mtu}\n\
             ip neigh replace 10.8.0.{peer} lladdr {of_peer} dev eth0 nud permanent\n\
             ip link add vx0 type vxlan id 7 dstport 4789 local 10.8.0.{host} remote 10.8.0.{peer} dev eth0 nolearning {checksums}\n\
             ip link set vx0 mtu {} up\n\
             {checksums_of_line}\
             ip link set c0 txqueuelen 10000 up\n\
             ethtool -K c0 tx off tso off gso off tx-udp-segmentation off > /dev/null\n\
             tc qdisc add dev eth0 clsact\n\
             tc filter add dev eth0 ingress protocol all prio 1 u32 match u32 0 0 at -12 action mirred egress {action} dev c0\n",
            mtu - 50
        ),
    );
    let seen = tap.queues.into_iter().next().expect("a queue");
    End { line: line(namespace, "eth0"), tunnel: line(namespace, "vx0"), seen }
}

/// Moves the fourth host behind the third one, which is a bridge.
fn bridge_on(site: &Site) {
    let there = &site.hosts[2];
    move_link(&site.rig.server, "p4", there);
    sh(site, there, &bridge_of(&["eth0", "p4"]));
}

/// Makes the third host a bridge into a shaper with a long queue.
fn slow_down(site: &Site) {
    let there = &site.hosts[2];
    sh(
        site,
        there,
        "ip link add shaped type veth peer name beyond\n\
         ip link set beyond up\n\
         tc qdisc add dev shaped root tbf rate 64kbit burst 16k limit 1g\n",
    );
    sh(site, there, &bridge_of(&["eth0", "shaped"]));
}

/// Makes a bridge that looks into no packets, neither by a firewall nor for members of groups.
fn bridge_of(ports: &[&str]) -> String {
    format!(
        "ip link add br0 type bridge mcast_snooping 0\n\
         for it in /proc/sys/net/bridge/bridge-nf-call-*; do echo 0 > $it; done\n\
         for port in {}; do ip link set $port master br0 up; done\n\
         ip link set br0 up\n",
        ports.join(" ")
    )
}

/// A frame by which the switch finds out whether two of its ports are joined outside.
fn is_probe(frame: &[u8]) -> bool {
    frame.len() == 60 && frame[14..].starts_with(b"twinpath switch: two of my ports may be a loop")
}

/// Whether a frame is longer than the MTU allows, by as little as a bridge does not mind: it has room for a tag in any frame, behind
/// an outer one.
fn is_a_little_longer(frame: &[u8], mtu: usize) -> bool {
    let tag = if frame[12..14] == [0x81, 0] { 4 } else { 0 };
    (mtu + 14 + tag + 1..=mtu + 22).contains(&frame.len())
}

/// Takes the number out of the IP header of a tunnel's datagram, or a fragment of it, if the header's checksum is right: each host
/// counts them for itself.
fn without_id(frame: &mut [u8]) {
    let is_hosts = frame.len() >= 34 && frame[12..15] == [8, 0, 0x45] && frame[26..29] == [10, 8, 0];
    if is_hosts && Sum::ZERO.bytes(&frame[14..34]).fold() == 0xffff {
        frame[18..20].fill(0);
        frame[24..26].fill(0);
    }
}

/// What a host sends in a step.
struct Step {
    from: usize,
    frames: Vec<Frame>,
}

impl Step {
    fn draw(random: &mut Rng, config: &Config) -> Self {
        let from = random.usize(1..=HOSTS);
        let frames = (0..random.usize(1..=config.frames_of_a_step()))
            .map(|_| Self::frame(random, config, from))
            .collect();
        Self { from, frames }
    }

    fn frame(random: &mut Rng, config: &Config, from: usize) -> Frame {
        let other = 1 + (from - 1 + random.usize(1..HOSTS)) % HOSTS;
        let source = match random.u32(0..24) {
            0 => [1, 0, 0x5e, 0, 0, 7],
            1 => [0xff; 6],
            2 => [0; 6],
            3 => address_of_port(from),
            4..6 => mac(from, 1),
            // What the slow host claims to be goes into its queue, and is charged to its sender.
            6..10 if config.they_lie && !(config.third == Third::Slow && from == 3) => {
                mac(other, random.u8(0..2))
            }
            _ => mac(from, 0),
        };
        let to = match random.u32(0..32) {
            0..3 => [0xff; 6],
            3 => [1, 0, 0x5e, 1, 2, random.u8(0..3)],
            4 => [0x33, 0x33, 0, 0, 0, random.u8(0..3)],
            5 => [3, 0, 0, 0, 0, random.u8(0..3)],
            6 | 7 => [2, 0x5f, 0, 0, 0, random.u8(0..3)],
            8 | 9 => {
                let [a, b, c, d, e, _] = BPDU;
                // The last ones are not reserved.
                [a, b, c, d, e, random.u8(0..0x24)]
            }
            10 => [0; 6],
            11 => mac(from, random.u8(0..2)),
            12..18 => mac(other, 1),
            _ => mac(other, 0),
        };
        // Of what the slow port gets nothing is taken, so its sender could soon send no more.
        let to_slow = config.third == Third::Slow && (to[0] & 1 == 1 || to[4] == 3 || to[1] == 0x5f);
        let mtu = config.mtu_of(from).min(if to_slow { 1500 } else { 65_535 });
        let mtu_min = config.mtu_of_second.min(mtu);
        // Where drivers have programs, super-frames are cut by their sender, and the ring in front of a program has few places.
        let super_frames = !to_slow && config.ports != Ports::Xdp;
        let bounds = Bounds { mtu, mtu_min, super_frames, tunnels: !to_slow };
        frame(random, to, source, bounds)
    }
}

/// How what a host has received differs.
fn difference(kernels: &[Vec<u8>], ours: &[Vec<u8>]) -> String {
    let mut text = format!("{} and {} frames", kernels.len(), ours.len());
    let head = |frame: Option<&Vec<u8>>| {
        let Some(frame) = frame else { return "none".to_owned() };
        let hex: String = frame.iter().take(90).map(|byte| format!("{byte:02x}")).collect();
        format!("{} bytes {hex}", frame.len())
    };
    let at = kernels.iter().zip(ours).position(|(one, other)| one != other);
    let at = at.unwrap_or_else(|| kernels.len().min(ours.len()));
    let (one, other) = (kernels.get(at), ours.get(at));
    let _ = write!(text, "; number {at}:\n    the bridge's {}\n    ours         {}", head(one), head(other));
    if let (Some(one), Some(other)) = (one, other) {
        let byte = one.iter().zip(other).position(|(one, other)| one != other);
        let _ = write!(text, "\n    from byte {byte:?} on");
    }
    text
}

/// Has two hosts talk until the kernel forwards what they say.
fn both_by_kernel(config: &Config, sides: [&mut Side; 2]) {
    // Two that are in one namespace.
    let pairs = if config.is_apart { [(1, 3), (3, 1)] } else { [(1, 2), (2, 1)] };
    for side in sides {
        pairs.into_iter().for_each(|(from, to)| side.warm_up(from, to));
    }
}

/// Waits until a host of either side receives something, at most so long.
fn wait_for_any(sides: [&Side; 2], wait: Duration) {
    let ends = sides.into_iter().flat_map(|side| &side.ends);
    let mut fds: Vec<_> = ends.map(|end| PollFd::new(&end.seen, PollFlags::IN)).collect();
    let wait = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
    // Interrupted by a signal, it is asked again.
    let _ = poll(&mut fds, Some(&wait));
}

/// Runs so many steps of a seed, or as many as there is time for; returns the numbers of steps and of frames that hosts have received.
fn run_seed(seed: u64, steps: usize, end: Option<Instant>) -> (usize, usize) {
    let mut random = Rng::with_seed(seed);
    let config = Config::draw(&mut random);
    let (mut kernels, mut ours) = std::thread::scope(|scope| {
        let kernels = scope.spawn(|| Side::new(config, false));
        // The switch ends with the thread that has started it.
        let ours = Side::new(config, true);
        (kernels.join().expect("no panic"), ours)
    });
    if config.by_kernel {
        both_by_kernel(&config, [&mut kernels, &mut ours]);
    }
    let (mut received, mut done) = (0, 0);
    for number in 0..steps {
        if number >= STEPS_LEAST && end.is_some_and(|end| Instant::now() >= end) {
            break;
        }
        done += 1;
        let step = Step::draw(&mut random, &config);
        if config.third == Third::Slow && number % 8 == 0 {
            for side in [&mut kernels, &mut ours] {
                side.fill_the_slow_port();
            }
        }
        let [mut bridges, mut switchs] =
            [&mut kernels, &mut ours].map(|side| side.run(step.from, &step.frames));
        // The kernel may have had another CPU do some of it, behind the frame that ends the step.
        let ended = Instant::now();
        while bridges != switchs && ended.elapsed() < LATE {
            wait_for_any([&kernels, &ours], LATE.saturating_sub(ended.elapsed()));
            kernels.take_late(&mut bridges);
            ours.take_late(&mut switchs);
        }
        received += bridges.received.iter().map(Vec::len).sum::<usize>();
        assert!(
            bridges.cut_off.is_empty(),
            "seed {seed}, step {number}: a frame to all did not come by the bridge"
        );
        if bridges == switchs {
            continue;
        }
        let mut text = format!("seed {seed}, {config:?}, step {number}: host {} sends\n", step.from);
        for (frame, refused) in step.frames.iter().zip(bridges.refused.iter().zip(&switchs.refused)) {
            let hex: String = frame.bytes.iter().take(18).map(|byte| format!("{byte:02x}")).collect();
            let _ = writeln!(text, "  {hex} {} {refused:?}", frame.what);
        }
        for (host, (one, other)) in bridges.received.iter().zip(&switchs.received).enumerate() {
            if one != other {
                let _ = writeln!(text, "  host {} received {}", host + 1, difference(one, other));
            }
        }
        for (of, seen) in [("the bridge", &bridges), ("the switch", &switchs)] {
            if !seen.cut_off.is_empty() {
                let _ = writeln!(
                    text,
                    "  a frame to all, the last one, did not come by {of} to {:?}",
                    seen.cut_off
                );
            }
        }
        let drops = ours.switch.as_ref().map(|switch| switch.show("drops"));
        panic!("{text}  dropped by the switch: {}", drops.unwrap_or_default());
    }
    if config.by_kernel && end.is_none() {
        let ports = ours.switch.as_ref().map(|switch| switch.show("ports")).unwrap_or_default();
        let by_kernel = |port: &Value| port["kernel_in"].as_u64().unwrap_or(0);
        let frames: u64 = ports.as_array().expect("a list").iter().map(by_kernel).sum();
        println!("seed {seed}: {frames} frames forwarded by the kernel");
    }
    (done, received)
}

/// `TWINPATH_SEED=N` runs that seed alone, `TWINPATH_SEED=N-M` those.
#[test]
fn hosts_at_a_switch_see_what_hosts_at_a_bridge_see() {
    if !root_or_skip() {
        return;
    }
    let seeds = std::env::var("TWINPATH_SEED").ok();
    let bounds = seeds.as_deref().map(|seeds| {
        let (first, last) = seeds.split_once('-').unwrap_or((seeds, seeds));
        [first, last].map(|seed| seed.parse::<u64>().expect("a number"))
    });
    let end = bounds.is_none().then(|| Instant::now() + few_or_all(TIME[0], TIME[1]));
    let all = if bounds.is_some() { STEPS[1] } else { few_or_all(STEPS[0], STEPS[1]) };
    let [first, last] = bounds.unwrap_or([0, u64::MAX]);
    let (mut steps, mut received, mut seeds) = (0, 0, 0);
    for seed in first..=last {
        let (done, seen) = run_seed(seed, all, end);
        (steps, received, seeds) = (steps + done, received + seen, seeds + 1);
        if end.is_some_and(|end| Instant::now() >= end) {
            break;
        }
    }
    assert!(received > steps, "{received} frames of {steps} steps");
    println!("{seeds} seeds, {steps} steps, {received} frames received");
}
