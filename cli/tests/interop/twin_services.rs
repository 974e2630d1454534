//! The twin of services: `serve echo` and a bare kernel server, each in a network of its own. Both networks go through the same
//! seeded changes (routes, addresses, neighbours, MTUs, source checks, links), and after each the same requests come, from and to
//! every address. What a client sees must be the same: the kernel is right by definition.

use std::any::Any;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd as _;
use std::process::Command;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use twinpath_sys::{EventFd, Namespace};

use crate::rig::{CLIENT, CLIENT_V6, PORT, Rig, SERVER, SERVER_V6, name_of, udp_in};
use crate::root_or_skip;

/// Both sides have so long to agree after a change. The kernel's own server has some of what it asks for after a second, and on a
/// machine that others load both have it later.
const AGREE: Duration = Duration::from_secs(30);
/// Replies of one round of requests come within this time after the last one.
const QUIET: Duration = Duration::from_millis(60);
/// Changes of a seed.
const STEPS: usize = 12;
/// Seeds begin until then.
const TIME: Duration = Duration::from_secs(15);

/// Who asks, and who is asked: the addresses of both links, one of the server's loopback interface, one of the client's behind a
/// route, and those that come and go.
const SOURCES: [&str; 4] = [CLIENT, "10.8.0.1", "10.9.0.1", CLIENT_V6];
const TARGETS: [&str; 7] = [SERVER, "10.7.0.5", "10.8.0.2", "10.8.0.5", "10.10.0.1", SERVER_V6, "fd07::5"];
const SIZES: [usize; 3] = [16, 1400, 3000];

/// A kernel's server, until dropped.
pub(crate) struct Plain {
    stop: Arc<EventFd>,
    thread: Option<JoinHandle<()>>,
}

impl Plain {
    /// A server as anybody writes it: it answers from the address that was asked.
    pub(crate) fn serve(rig: &Rig) -> Self {
        let socket = rig.server.run(|| twinpath_sys::UdpSocket::bind(PORT)).unwrap().unwrap();
        let stop = Arc::new(EventFd::new().unwrap());
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut buffer = vec![0; 65_536];
            loop {
                let mut both = [
                    PollFd::new(&socket, PollFlags::IN),
                    PollFd::from_borrowed_fd(stopped.as_fd(), PollFlags::IN),
                ];
                poll(&mut both, None).unwrap();
                if !both[1].revents().is_empty() {
                    return;
                }
                while let Ok(request) = socket.receive(&mut buffer) {
                    // Nothing to be done about one that cannot leave.
                    let _ = socket.send(&buffer[..request.len], request.peer, request.local);
                }
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        self.stop.signal();
        drop(self.thread.take().map(JoinHandle::join));
    }
}

/// A network with one of the servers.
struct Side {
    rig: Rig,
    /// The server, until dropped.
    _serving: Box<dyn Any + Send>,
    clients: Vec<(&'static str, UdpSocket)>,
    /// Requests that were sent.
    asked: u32,
}

/// What became of each request: who answered.
type Seen = BTreeMap<(&'static str, &'static str, usize), Option<IpAddr>>;

impl Side {
    fn new(serve: impl FnOnce(&Rig) -> Box<dyn Any + Send>) -> Self {
        let rig = Rig::new();
        second_link(&rig);
        rig.unlimited_icmp();
        let clients = SOURCES.map(|source| {
            let socket = udp_in(&rig.client, SocketAddr::new(source.parse().unwrap(), 0));
            socket.set_nonblocking(true).unwrap();
            (source, socket)
        });
        let serving = serve(&rig);
        Self { rig, _serving: serving, clients: clients.into(), asked: 0 }
    }

    /// Asks from everywhere to everywhere.
    fn ask(&mut self) -> Seen {
        let mut seen = Seen::new();
        let mut by_number = BTreeMap::new();
        for (source, socket) in &self.clients {
            let is_v6 = source.contains(':');
            for target in TARGETS.into_iter().filter(|target| target.contains(':') == is_v6) {
                for size in SIZES {
                    self.asked += 1;
                    let mut request = vec![7; size];
                    request[..4].copy_from_slice(&self.asked.to_be_bytes());
                    by_number.insert(self.asked, (*source, target, size));
                    seen.insert((*source, target, size), None);
                    // A source without a way sends nothing, on both sides.
                    let _ = socket.send_to(&request, (target.parse::<IpAddr>().unwrap(), PORT));
                }
            }
        }
        let mut buffer = vec![0; 65_536];
        loop {
            let mut fds: Vec<_> =
                self.clients.iter().map(|(_, socket)| PollFd::new(socket, PollFlags::IN)).collect();
            let quiet = Timespec { tv_sec: 0, tv_nsec: QUIET.as_nanos() as i64 };
            if poll(&mut fds, Some(&quiet)).unwrap_or(0) == 0 {
                return seen;
            }
            for (_, socket) in &self.clients {
                // An error of a former request is no answer.
                while let Ok((len, from)) = socket.recv_from(&mut buffer) {
                    let number = u32::from_be_bytes(buffer[..4].try_into().unwrap());
                    if let Some(of) = by_number.get(&number) {
                        assert_eq!(len, of.2, "all of it comes back");
                        seen.insert(*of, Some(from.ip()));
                    }
                }
            }
        }
    }

    /// Neighbours, routes and addresses of both ends, for one who looks for the cause of a difference.
    fn state(&self) -> String {
        let of = |namespace: &Namespace| {
            let show = "ip neigh; ip rule; ip route; ip -6 route; ip -o address";
            let output = namespace.run(|| Command::new("sh").args(["-c", show]).output()).unwrap().unwrap();
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        format!("client:\n{}server:\n{}", of(&self.rig.client), of(&self.rig.server))
    }

    fn change(&self, change: &Change) {
        let namespace = if change.at_client { &self.rig.client } else { &self.rig.server };
        let run = |line: &str| {
            // Some are refused by both, such as to remove what is not there.
            let _ = self.rig.run(namespace, "sh", &["-c", &format!("{line} 2> /dev/null")]).wait();
        };
        for line in &change.lines {
            let words: Vec<&str> = line.split(' ').collect();
            match words.split_first() {
                Some((&"set", [path, value])) => {
                    let write = || std::fs::write(format!("/proc/sys/net/{path}"), value);
                    namespace.run(write).unwrap().unwrap();
                }
                Some((&"ip", _)) => run(line),
                _ => panic!("no such change: {line}"),
            }
        }
    }
}

/// A second link, `vd` of the client and `vt` of the server, addresses behind the client, and one of the server's loopback
/// interface.
fn second_link(rig: &Rig) {
    let there = name_of(&rig.server);
    rig.ip_client(&["link", "add", "vd", "type", "veth", "peer", "name", "vt", "netns", &there]);
    rig.ip_client(&["address", "add", "10.8.0.1/24", "dev", "vd"]);
    rig.ip_server(&["address", "add", "10.8.0.2/24", "dev", "vt"]);
    // The client asks for a neighbour in the name of the first datagram that waits for it. A server that checks sources strictly
    // does not answer if that is the other link's address, so it would be luck which of the servers is reached.
    let announce = || std::fs::write("/proc/sys/net/ipv4/conf/all/arp_announce", "2");
    rig.client.run(announce).unwrap().unwrap();
    rig.ip_client(&["link", "set", "vd", "up"]);
    rig.ip_server(&["link", "set", "vt", "up"]);
    rig.ip_client(&["address", "add", "10.9.0.1/32", "dev", "lo"]);
    rig.ip_server(&["address", "add", "10.10.0.1/32", "dev", "lo"]);
    rig.ip_client(&["route", "add", "10.10.0.0/24", "via", SERVER]);
    rig.ip_server(&["route", "add", "10.9.0.0/24", "via", CLIENT]);
}

/// A change of both networks.
#[derive(Debug)]
struct Change {
    at_client: bool,
    lines: Vec<String>,
}

fn change(random: &mut fastrand::Rng) -> Change {
    let at_server = |lines: &[&str]| Change {
        at_client: false,
        lines: lines.iter().map(|line| (*line).to_owned()).collect(),
    };
    let at_client = |lines: &[&str]| Change { at_client: true, ..at_server(lines) };
    let add = if random.bool() { "add" } else { "del" };
    match random.u32(0..26) {
        0 => at_server(&["ip route replace 10.9.0.0/24 via 10.7.0.1"]),
        1 => at_server(&["ip route replace 10.9.0.0/24 via 10.8.0.1"]),
        2 => at_server(&["ip route replace unreachable 10.9.0.0/24"]),
        3 => at_server(&["ip route del 10.9.0.0/24"]),
        4 => at_server(&[&format!("ip address {add} 10.7.0.5/24 dev vs")]),
        5 => at_server(&[&format!("ip address {add} 10.8.0.5/24 dev vt")]),
        6 => at_server(&[&format!("ip address {add} 10.10.0.1/32 dev lo")]),
        7 => at_server(&[&format!("ip address {add} fd07::5/64 dev vs nodad")]),
        8 => {
            let (all, one) = (random.u32(0..3), random.u32(0..3));
            at_server(&[
                &format!("set ipv4/conf/all/rp_filter {all}"),
                &format!("set ipv4/conf/vs/rp_filter {one}"),
            ])
        }
        9 => at_server(&["ip neigh flush dev vs"]),
        10 => at_server(&[&format!("ip route replace 10.7.0.1 dev vs mtu lock {}", random.u32(600..1500))]),
        11 => at_server(&["ip route del 10.7.0.1 dev vs"]),
        12 => at_server(&[
            "ip link set vs down",
            "ip link set vs up",
            &format!("ip address add {SERVER_V6}/64 dev vs nodad"),
        ]),
        13 => at_client(&[&format!(
            "ip route {} 10.8.0.2 via 10.7.0.2 dev vc",
            if add == "add" { "replace" } else { "del" }
        )]),
        14 => at_client(&[&format!(
            "ip route {} 10.7.0.2 via 10.8.0.2 dev vd",
            if add == "add" { "replace" } else { "del" }
        )]),
        15 => at_server(&["ip route replace 10.9.0.0/24 nexthop via 10.7.0.1 nexthop via 10.8.0.1"]),
        16 => at_server(&[
            "ip route replace default via 10.8.0.1 table 100",
            &format!("ip rule {add} from 10.7.0.2 lookup 100"),
        ]),
        17 => at_server(&["ip neigh replace 10.7.0.1 lladdr 02:00:00:00:00:99 dev vs nud reachable"]),
        18 => at_server(&["ip link set vt down", "ip link set vt up"]),
        19 => at_server(&[&format!("set ipv4/ip_forward {}", random.u32(0..2))]),
        20 => at_server(&[&format!("ip link set vs mtu {}", random.u32(1280..1501))]),
        21 => at_server(&[
            "ip neigh change 10.7.0.1 dev vs nud stale",
            "ip neigh change fd07::1 dev vs nud stale",
        ]),
        22 => at_server(&[
            "ip neigh change 10.7.0.1 dev vs nud failed",
            "ip neigh change fd07::1 dev vs nud failed",
        ]),
        23 => at_client(&["ip neigh change 10.7.0.2 dev vc nud failed"]),
        24 => at_client(&[
            "ip link set vc down",
            "ip link set vc up",
            &format!("ip address add {CLIENT_V6}/64 dev vc nodad"),
            "ip route replace 10.10.0.0/24 via 10.7.0.2",
        ]),
        _ => at_client(&[&format!("ip link set vc address 02:00:00:00:01:{:02x}", random.u8(1..))]),
    }
}

fn run_seed(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let by_workers = random.bool();
    let mut sides = [
        Side::new(|rig| Box::new(Plain::serve(rig))),
        Side::new(|rig| {
            let reflex = if by_workers { "off" } else { "auto" };
            Box::new(rig.serve(&["--reflex", reflex, "--path", "packet"]))
        }),
    ];
    let mut changes: Vec<Change> = Vec::new();
    for step in 0..=STEPS {
        if step > 0 {
            let change = change(&mut random);
            sides.iter().for_each(|side| side.change(&change));
            changes.push(change);
        }
        let begun = Instant::now();
        loop {
            let [plain, ours] = &mut sides;
            let (plain, ours) = std::thread::scope(|scope| {
                let plain = scope.spawn(|| plain.ask());
                let ours = ours.ask();
                (plain.join().unwrap(), ours)
            });
            if plain == ours {
                let answered = plain.values().flatten().count();
                assert!(step > 0 || answered > 20, "{answered} answers before anything has changed");
                break;
            }
            let differ: Vec<_> = plain
                .iter()
                .filter(|(request, answer)| ours[*request] != **answer)
                .map(|(request, answer)| {
                    format!("{request:?}: the kernel's {answer:?}, ours {:?}", ours[request])
                })
                .collect();
            assert!(
                begun.elapsed() < AGREE,
                "seed {seed} (by workers: {by_workers}), after {changes:#?}:\n{}\n== the kernel's\n{}== ours\n{}",
                differ.join("\n"),
                sides[0].state(),
                sides[1].state(),
            );
        }
    }
}

/// `TWINPATH_SEED=N` runs that seed alone.
#[test]
fn a_service_answers_as_the_kernels_server_does_through_every_change_of_the_network() {
    if !root_or_skip() {
        return;
    }
    if let Ok(seed) = std::env::var("TWINPATH_SEED") {
        return run_seed(seed.parse().expect("a number"));
    }
    let (begun, mut seeds) = (Instant::now(), 0);
    while begun.elapsed() < TIME {
        run_seed(seeds);
        seeds += 1;
    }
    println!("{seeds} seeds of {STEPS} changes each");
}
