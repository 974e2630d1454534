//! An engine against the kernel, in both roles, in real time: a TAP interface in a namespace of its own carries
//! frames between them, whole super-segments in both directions, and loses, delays and reorders some.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use twinpath_port::vnet_header;
use twinpath_sys::Namespace;
use twinpath_tcp::{Config, CongestionKind, Later, Options, Segment, Tuple};
use twinpath_test_rig::{PATIENCE, few_or_all, ip, quiet, root_or_skip};
use twinpath_time::{Duration, Instant};
use twinpath_vnet::{Tap, TapHandle};
use twinpath_wire::checksum::Sum;

use crate::host::{Host, Ledger};
use crate::network::{Arrival, Link, Network, Packet};
use crate::program::{Ends, Outcome, Program, Side, byte};

const OURS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
const THEIRS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 77, 2], [2, 0, 0, 0, 77, 1]];
const ETH_LEN: usize = 14;
const IP_LEN: usize = 20;
const HEAD_LEN: usize = vnet_header::LEN + ETH_LEN + IP_LEN;
const IPV4: [u8; 2] = [8, 0];
const TCP: u8 = 6;

/// The kernel's end: a namespace with one interface.
struct Kernel {
    namespace: Namespace,
    tap: OwnedFd,
}

impl Kernel {
    fn new() -> Self {
        let namespace = quiet();
        let mut tap = namespace.run(|| Tap::make("tap0", 1)).expect("entered").expect("a TAP interface");
        let mac = |mac: [u8; 6]| mac.map(|byte| format!("{byte:02x}")).join(":");
        ip(&namespace, &format!("link set tap0 address {} mtu 1500 up", mac(MACS[1])));
        TapHandle::of(&tap).and_then(|handle| Ok(handle.set_carrier(true)?)).expect("carrier");
        ip(&namespace, &format!("address add {THEIRS}/24 dev tap0"));
        ip(&namespace, &format!("neighbour replace {OURS} lladdr {} dev tap0 nud permanent", mac(MACS[0])));
        Self { namespace, tap: tap.queues.remove(0) }
    }

    /// The next segment from the kernel, with its congestion mark.
    fn read(&self, tuple: &Tuple) -> Option<Packet> {
        let mut frame = vec![0; 70_000];
        loop {
            let len = match rustix::io::read(&self.tap, frame.as_mut_slice()) {
                Ok(len) => len,
                Err(Errno::AGAIN) => return None,
                Err(error) => panic!("TAP: {error}"),
            };
            let found = &frame[..len];
            let ip = &found[(vnet_header::LEN + ETH_LEN).min(len)..];
            let is_tcp = len > HEAD_LEN && found[vnet_header::LEN + 12..][..2] == IPV4 && ip[9] == TCP;
            if !is_tcp {
                continue;
            }
            let ports = [tuple.remote_port().to_be_bytes(), tuple.local_port().to_be_bytes()].concat();
            if ip[usize::from(ip[0] & 15) * 4..][..4] != ports {
                // The kernel still speaks of a connection before.
                continue;
            }
            let ip_len = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
            let unit = if found[1] == 0 { 0 } else { u16::from_ne_bytes([found[4], found[5]]) };
            let bytes = ip[usize::from(ip[0] & 15) * 4..ip_len].to_vec();
            return Some(Packet {
                tuple: *tuple,
                bytes,
                unit,
                capable: ip[1] & 3 != 0,
                marked: ip[1] & 3 == 3,
            });
        }
    }

    /// Gives the kernel a segment, whole, with its checksum left to it.
    fn write(&self, packet: &Packet) {
        let header_len = packet.bytes.len() - packet.view().payload().len();
        let mut frame = vec![0; vnet_header::LEN];
        frame[0] = 1;
        frame[6..8].copy_from_slice(&((ETH_LEN + IP_LEN) as u16).to_ne_bytes());
        frame[8..10].copy_from_slice(&16_u16.to_ne_bytes());
        if packet.unit > 0 && packet.bytes.len() - header_len > usize::from(packet.unit) {
            frame[1] = 1;
            let headers = (ETH_LEN + IP_LEN + header_len) as u16;
            frame[2..4].copy_from_slice(&headers.to_ne_bytes());
            frame[4..6].copy_from_slice(&packet.unit.to_ne_bytes());
        }
        frame.extend_from_slice(&MACS[1]);
        frame.extend_from_slice(&MACS[0]);
        frame.extend_from_slice(&IPV4);
        let len = ((IP_LEN + packet.bytes.len()) as u16).to_be_bytes();
        let ecn = if packet.marked { 3 } else { u8::from(packet.capable) * 2 };
        let mut ip = [0x45, ecn, len[0], len[1], 0, 0, 0x40, 0, 64, TCP, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        ip[12..16].copy_from_slice(&OURS.octets());
        ip[16..20].copy_from_slice(&THEIRS.octets());
        let checksum = Sum::ZERO.bytes(&ip).checksum();
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        frame.extend_from_slice(&ip);
        let at = frame.len();
        frame.extend_from_slice(&packet.bytes);
        let pseudo = Sum::ZERO.pseudo_ipv4(OURS, THEIRS, TCP, packet.bytes.len() as u16).fold();
        frame[at + 16..at + 18].copy_from_slice(&pseudo.to_be_bytes());
        let _ = rustix::io::write(&self.tap, &frame).expect("the kernel takes it");
    }
}

/// What the kernel's program does: writes and reads at once, and ends after both.
fn serve(stream: &TcpStream, salts: [u64; 2], bytes: [u64; 2]) {
    stream.set_read_timeout(Some(PATIENCE)).expect("a time");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut stream = stream;
            let mut sent = 0;
            while sent < bytes[1] {
                let chunk: Vec<u8> =
                    (sent..bytes[1].min(sent + 20_000)).map(|at| byte(salts[1], at)).collect();
                stream.write_all(&chunk).expect("written");
                sent += chunk.len() as u64;
            }
            stream.shutdown(Shutdown::Write).expect("ended");
        });
        let (mut stream, mut received, mut buffer) = (stream, 0, vec![0; 60_000]);
        loop {
            let len = stream.read(&mut buffer).expect("read");
            if len == 0 {
                break;
            }
            for (index, found) in buffer[..len].iter().enumerate() {
                let place = received + index as u64;
                assert_eq!(*found, byte(salts[0], place), "byte {place} of the engine");
            }
            received += len as u64;
        }
        assert_eq!(received, bytes[0], "all bytes of the engine");
    });
}

/// Engine and kernel in one run.
struct Tunnel<'a> {
    kernel: &'a Kernel,
    begun: std::time::Instant,
    host: Host,
    network: Network,
    ledger: Ledger,
    random: fastrand::Rng,
    side: Side,
    peer_salt: u64,
    tuple: Tuple,
    listener: Option<twinpath_tcp::ListenerId>,
    /// Segments that were several, from the engine and from the kernel.
    super_segments: [u64; 2],
}

impl Tunnel<'_> {
    fn now(&self) -> Instant {
        let since = u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Instant::from_nanos(1_000_000_000 + since)
    }

    /// Moves segments until the engine has no connection any more and the kernel's program has ended.
    fn pump(&mut self, kernel_is_done: &AtomicBool) {
        loop {
            let now = self.now();
            self.turn(now);
            let is_over = self.side.outcome.is_some() && kernel_is_done.load(Ordering::Relaxed);
            if is_over && self.host.tcp.count() == (0, 0, 0) {
                break;
            }
            assert!(
                self.begun.elapsed() < PATIENCE,
                "no end: {:?}",
                self.side.id.map(|id| self.host.tcp.debug(id))
            );
            let until = self.network.next().min(self.host.next()).min(now + Duration::from_millis(20));
            let wait = Timespec { tv_sec: 0, tv_nsec: until.nanos_since(now) as i64 };
            let _ = poll(&mut [PollFd::new(&self.kernel.tap.as_fd(), PollFlags::IN)], Some(&wait));
        }
    }

    fn turn(&mut self, now: Instant) {
        let theirs = Tuple::new(self.tuple.remote(), self.tuple.local());
        while let Some(packet) = self.kernel.read(&self.tuple) {
            self.super_segments[1] += u64::from(packet.unit > 0);
            self.ledger.hear(&theirs, &packet.view());
            self.network.send(now, 0, packet);
        }
        while let Some((to, arrival)) = self.network.take(now) {
            let Arrival::Segment(packet) = arrival else { continue };
            if to == 1 {
                self.super_segments[0] += u64::from(packet.unit > 0);
                self.kernel.write(&packet);
                continue;
            }
            let view = packet.view();
            let segment = Segment::new(&view, packet.marked, packet.unit);
            let Self { host, random, ledger, tuple, .. } = self;
            host.call(now, random, ledger, |tcp, clock, out| {
                tcp.segment(clock, tuple, &segment, &mut Later, out)
            });
        }
        if let Some(listener) = self.listener
            && self.side.id.is_none()
        {
            self.side.id = self.host.tcp.accept(listener);
        }
        while self.host.tcp.next_event().is_some() {}
        let salt = self.peer_salt;
        self.side.work(self.host.clock(now), now, &mut self.host.tcp, salt, &mut self.random);
        self.host.jump(now);
        let Self { host, random, ledger, .. } = self;
        host.call(now, random, ledger, |tcp, clock, out| tcp.advance(clock, 100, out));
        for packet in std::mem::take(&mut self.host.packets) {
            self.network.send(now, 1, packet);
        }
    }
}

/// A bad way, if the seed says so.
fn link(random: &mut fastrand::Rng) -> Link {
    let delay = Duration::from_micros(random.u64(20..5_000));
    let bad = random.bool();
    Link {
        delay,
        loss: if bad { random.f64() * 0.03 } else { 0.0 },
        duplicate: if bad { random.f64() * 0.02 } else { 0.0 },
        late: delay * 2,
        late_share: if bad { random.f64() * 0.1 } else { 0.0 },
        ..Link::default()
    }
}

fn program(random: &mut fastrand::Rng) -> Program {
    Program {
        bytes: random.u64(0..2_000_000),
        write_max: random.u64(1_000..100_000),
        read_max: usize::MAX / 2,
        read_every: Duration::ZERO,
        reads_at_once: false,
        rests: false,
        // Linux takes the last urgent byte out of the stream, unless a program says SO_OOBINLINE.
        urges: false,
        ends: Ends::Whole,
        options: Options { no_delay: random.bool(), ..Options::default() },
    }
}

fn against_kernel(kernel: &Kernel, seed: u64) -> [u64; 2] {
    let mut random = fastrand::Rng::with_seed(seed);
    let config = Config {
        timestamps: random.u8(..4) > 0,
        sack: random.u8(..4) > 0,
        congestion: CongestionKind::Cubic,
        time_wait_time: Duration::from_millis(1),
        fin_wait_time: Duration::from_secs(1),
        ..Config::default()
    };
    let mut host = Host::new(config, seed);
    if random.u8(..4) == 0 {
        host.jumps.push((Instant::from_nanos(1_020_000_000), Duration::from_millis(random.u64(1..500))));
    }
    let program = program(&mut random);
    let (salts, bytes) = ([random.u64(..), random.u64(..)], [program.bytes, random.u64(0..2_000_000)]);
    let (connects, port) = (random.bool(), 10_000 + (seed % 20_000) as u16);
    let mut side = Side::new(program, salts[0]);
    let (mut listener, mut kernels) = (None, None);
    let ours = SocketAddr::from((OURS, if connects { port } else { 80 }));
    let theirs = SocketAddr::from((THEIRS, if connects { 80 } else { port }));
    if connects {
        kernels =
            Some(kernel.namespace.run(|| TcpListener::bind(theirs)).expect("entered").expect("a listener"));
        let options = side.program.options;
        side.id = host.tcp.connect(Instant::from_nanos(1_000_000_000), ours, theirs, options).ok();
    } else {
        listener = Some(host.tcp.listen(ours, 4, Options::default()));
    }
    let mut network = Network::new(random.fork(), [link(&mut random), link(&mut random)]);
    network.keeps_whole = random.u8(..4) > 0;
    let mut tunnel = Tunnel {
        kernel,
        begun: std::time::Instant::now(),
        host,
        network,
        ledger: Ledger::new(),
        random,
        side,
        peer_salt: salts[1],
        tuple: Tuple::new(ours, theirs),
        listener,
        super_segments: [0; 2],
    };
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let connect = || match &kernels {
                Some(listener) => listener.accept().map(|(stream, _)| stream),
                None => connect_from(theirs, ours),
            };
            let stream = kernel.namespace.run(connect).expect("entered").expect("a connection");
            serve(&stream, salts, bytes);
            done.store(true, Ordering::Relaxed);
        });
        tunnel.pump(&done);
    });
    assert_eq!(tunnel.side.outcome, Some(Outcome::Closed), "seed {seed}");
    assert_eq!(tunnel.side.received, bytes[1], "seed {seed}");
    assert_eq!(tunnel.host.tcp.memory(), 0, "seed {seed}");
    tunnel.super_segments
}

/// A connection of the kernel from a given port.
fn connect_from(from: SocketAddr, to: SocketAddr) -> std::io::Result<TcpStream> {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    rustix::net::sockopt::set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &from)?;
    connect(&socket, &to)?;
    Ok(TcpStream::from(socket))
}

#[test]
fn an_engine_and_the_kernel_bring_each_other_every_byte() {
    if !root_or_skip() {
        return;
    }
    let kernel = Kernel::new();
    let mut sums = [0; 2];
    for seed in crate::seeds(few_or_all(10, 300)) {
        let found = against_kernel(&kernel, seed);
        sums = [sums[0] + found[0], sums[1] + found[1]];
    }
    assert!(sums.iter().all(|count| *count > 0), "super-segments in both directions: {sums:?}");
}
