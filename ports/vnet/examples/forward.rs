//! Measures passing frames on between two veth interfaces: frames a second, and CPU time per frame of the passing
//! thread and of the sending one, for frames of 64 bytes and super-frames of 64 KiB.
//!
//! `cargo run --release -p twinpath-vnet --example forward [IDLE]`, as root, with two CPUs. Compared are one packet
//! socket per interface with a system call for each frame ([`VnetPort`]), one queue for all ([`CarrierPort`]), alone and
//! beside `IDLE` ports (default 10) that have no frames, and AF_XDP behind a program in the driver ([`XdpPort`]), which cannot
//! carry super-frames. Each row is the median of five rounds, which alternate.

use std::error::Error;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration as Span;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::time::Timespec;
use twinpath_bpf::{Exclusive, Path, PortPrograms, Steering, TcAttach, Unserved, XdpMode};
use twinpath_claims::{Claim, Table};
use twinpath_frame::{Burst, Checksum, Frame, Gso, GsoKind, Pool};
use twinpath_packet::xdp::{CopyMode, XdpConfig, XdpPort};
use twinpath_port::{CarriedPort, Carrier, GsoKinds, PORTS_MAX, PortId, PortQueue, WaitSource};
use twinpath_sys::child::{Placement, place};
use twinpath_sys::packet_socket::interface_index;
use twinpath_sys::{Namespace, affinity, clock};
use twinpath_time::{Duration, Instant};
use twinpath_vnet::carrier::{CarrierConfig, CarrierPort, QUEUE_FRAMES, capabilities};
use twinpath_vnet::{SocketConfig, VnetPort, open_socket};
use twinpath_wire::Mac;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

const MARK: u32 = 0x7477_6967;
const ROUNDS: usize = 5;
const TIME: Span = Span::from_millis(500);
/// Frames that the sender passes to the kernel in one go.
const BURST: usize = 32;
/// For this long, the thread looks again before it sleeps, as a worker would under load.
const SPIN: Duration = Duration::from_micros(50);

fn ip(namespace: &Namespace, arguments: &str) -> Outcome<()> {
    let mut command = Command::new("ip");
    command.args(arguments.split(' '));
    place(&mut command, Placement { namespace: Some(namespace), ..Placement::default() })?;
    if command.status()?.success() { Ok(()) } else { Err(format!("ip {arguments}").into()) }
}

/// Of the hosts that frames go to, and come from.
const TO: [u8; 6] = [2, 0, 0, 0, 0, 9];
const FROM: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// For experiments (IEEE 802).
const ETHERTYPE: u16 = 0x88b5;

/// A short frame that no protocol takes, or a long TCP packet over IPv4 to nobody here.
fn packet(len: usize) -> Vec<u8> {
    let mut bytes = [TO, FROM].concat();
    if len < 1_514 {
        bytes.extend(ETHERTYPE.to_be_bytes());
        bytes.resize(len, 7);
        return bytes;
    }
    bytes.extend([0x08, 0x00, 0x45, 0]);
    bytes.extend(((len - 14) as u16).to_be_bytes());
    bytes.extend([0, 0, 0x40, 0, 64, 6, 0x26, 0xb0, 10, 0, 0, 1, 10, 0, 0, 2]);
    bytes.extend([0, 80, 1, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    bytes.resize(len, 7);
    bytes
}

/// The packet as one frame or a chain.
fn frame(pool: &mut Pool, bytes: &[u8]) -> Outcome<Frame> {
    let mut chain = None;
    for part in bytes.chunks(1_792).rev() {
        let mut frame = pool.take().ok_or("the pool is empty")?;
        frame.copy_from(part)?;
        frame.meta_mut().next = chain;
        chain = Some(frame);
    }
    let mut frame = chain.ok_or("a frame has bytes")?;
    let meta = frame.meta_mut();
    if bytes.len() > 1_514 {
        meta.gso = Gso { kind: GsoKind::TcpV4, ecn: false, size: 1_448 };
        (meta.checksum, meta.checksum_start, meta.checksum_offset) = (Checksum::Partial, 34, 16);
        meta.headers_len = 54;
    }
    Ok(frame)
}

fn port(number: u16, name: &str) -> Outcome<CarriedPort> {
    let ifindex = interface_index(name)?;
    Ok(CarriedPort {
        port: number,
        ifindex,
        capabilities: capabilities(GsoKinds::ALL),
        bypass_qdisc: true,
        spares: Vec::new(),
        counters: Arc::default(),
    })
}

fn carrier() -> CarrierConfig<'static> {
    let id = PortId { port: PORTS_MAX as u16, queue: 0 };
    CarrierConfig { id, ring_slots: 512, ports_max: PORTS_MAX, fanout_group: None, mark: MARK }
}

/// Sends through far0 until told to stop. Returns the frames and the CPU time.
fn generate(len: usize, stop: &AtomicBool) -> Outcome<(u64, Duration)> {
    affinity::pin_current_thread(0)?;
    let mut queue =
        CarrierPort::open(&CarrierConfig { ring_slots: 32, ..carrier() }, |_| Ok::<_, String>(()))?;
    queue.add(port(0, "far0")?).map_err(|_| "it is not carried")?;
    let (bytes, mut pool) = (packet(len), Pool::new(BURST as u32 * 40)?);
    let began = clock::thread_cpu_time();
    let mut burst = Burst::new();
    while !stop.load(Ordering::Relaxed) {
        while burst.len() < BURST {
            let frame = frame(&mut pool, &bytes)?;
            burst.push(frame).map_err(|_| "it has room")?;
        }
        queue.transmit(&mut pool, &mut burst);
    }
    let sent = queue.ports().get(0).map_or(0, |port| port.counters.frames_out.get());
    Ok((sent, clock::thread_cpu_time() - began))
}

/// The component that passes frames on, and keeps the kernel's own stack from getting them.
enum Way {
    Sockets { ports: Box<[VnetPort; 2]>, _withheld: Box<[Exclusive; 2]> },
    Carrier { queue: Box<CarrierPort>, _programs: Box<PortPrograms> },
    Xdp { ports: Box<[XdpPort; 2]>, _program: Box<Steering> },
}

impl Way {
    fn sockets() -> Outcome<Self> {
        let open = |name: &str| {
            let ifindex = interface_index(name)?;
            let config = SocketConfig { ifindex, fanout_group: None, mark: MARK };
            let mut withheld = Exclusive::load(MARK, 1, Duration::ZERO)?;
            withheld.hold(ifindex, TcAttach::here())?;
            let port = VnetPort::socket(PortId::default(), ifindex, open_socket(&config)?);
            Ok::<_, Box<dyn Error + Send + Sync>>((port, withheld))
        };
        let ((a, held_a), (b, held_b)) = (open("near0")?, open("near1")?);
        Ok(Self::Sockets { ports: Box::new([a, b]), _withheld: Box::new([held_a, held_b]) })
    }

    fn carrier(idle: usize) -> Outcome<Self> {
        let mut programs = PortPrograms::load(MARK, 1, Duration::ZERO, 0)?;
        let mut queue = CarrierPort::open(&carrier(), |socket| programs.attach_socket_filter(0, socket))?;
        for number in 0..2 {
            let port = port(number, &format!("near{number}"))?;
            programs.hold(port.ifindex, Unserved::Dropped, TcAttach::here())?;
            queue.add(port).map_err(|_| "it is not carried")?;
        }
        // No interface is needed for a port that has no frames: for the queue it is an entry of a table.
        for number in 0..idle as u16 {
            let (capabilities, counters) = (capabilities(GsoKinds::ALL), Arc::default());
            let port = CarriedPort {
                port: 2 + number,
                ifindex: 100_000 + u32::from(number),
                capabilities,
                bypass_qdisc: true,
                spares: Vec::new(),
                counters,
            };
            queue.add(port).map_err(|_| "it is not carried")?;
        }
        Ok(Self::Carrier { queue: Box::new(queue), _programs: Box::new(programs) })
    }

    /// The program takes the short frames; others go to the kernel.
    fn xdp(pool: &Pool) -> Outcome<Self> {
        let open = |number: u16, receives| {
            let id = PortId { port: number, queue: 0 };
            let ifindex = interface_index(&format!("near{number}"))?;
            let (ring_frames, copy_mode) = (512, CopyMode::Copy);
            let config = XdpConfig { id, ifindex, ring_frames, receives, copy_mode, virtual_device: true };
            Ok::<_, Box<dyn Error + Send + Sync>>((XdpPort::open(&config, None, pool.region())?, ifindex))
        };
        let ((from, ifindex), (to, _)) = (open(0, true)?, open(1, false)?);
        let mut table = Table::new(Mac(TO), 1_514)?;
        table.add_claim(Claim::ethertype(ETHERTYPE))?;
        let mut program = Steering::load(Path::Xdp)?;
        program.apply(&table)?;
        program.set_queue(0, from.fd().ok_or("it has a descriptor")?)?;
        program.attach_xdp(ifindex, XdpMode::Native)?;
        Ok(Self::Xdp { ports: Box::new([from, to]), _program: Box::new(program) })
    }

    fn prepare(&mut self, pool: &mut Pool) {
        match self {
            Self::Sockets { ports, .. } => ports.iter_mut().for_each(|port| port.prepare(pool)),
            Self::Carrier { queue, .. } => queue.prepare(pool),
            Self::Xdp { ports, .. } => ports[0].prepare(pool),
        }
    }

    /// Passes on what has come on the first port; the number of frames.
    fn turn(&mut self, now: Instant, pool: &mut Pool, burst: &mut Burst) -> usize {
        match self {
            Self::Sockets { ports, .. } => {
                let [from, to] = &mut **ports;
                from.receive(now, pool, burst);
                let frames = burst.len();
                to.transmit(pool, burst);
                to.receive(now, pool, burst);
                burst.release(usize::MAX, pool);
                frames
            }
            Self::Carrier { queue, .. } => {
                queue.receive(now, pool, burst);
                let frames = burst.len();
                burst.frames_mut().iter_mut().for_each(|frame| frame.meta_mut().port ^= 1);
                queue.transmit(pool, burst);
                frames
            }
            Self::Xdp { ports, .. } => {
                let [from, to] = &mut **ports;
                from.receive(now, pool, burst);
                let frames = burst.len();
                to.transmit(pool, burst);
                to.flush(pool);
                frames
            }
        }
    }

    fn sleep(&self) -> Outcome<()> {
        let source: &dyn WaitSource = match self {
            Self::Sockets { ports, .. } => &ports[0],
            Self::Carrier { queue, .. } => &**queue,
            Self::Xdp { ports, .. } => &ports[0],
        };
        let fd = source.fd().ok_or("it has a descriptor")?;
        let timeout = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
        poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&timeout))?;
        Ok(())
    }
}

/// Passes frames on until told to stop. Returns their number and the CPU time.
fn forward(mut way: Way, mut pool: Pool, stop: &AtomicBool) -> Outcome<(u64, Duration)> {
    affinity::pin_current_thread(1)?;
    way.prepare(&mut pool);
    let mut burst = Burst::new();
    let (mut frames, mut busy, began) = (0, clock::now(), clock::thread_cpu_time());
    while !stop.load(Ordering::Relaxed) {
        let now = clock::now();
        let passed = way.turn(now, &mut pool, &mut burst);
        frames += passed as u64;
        if passed > 0 {
            busy = now;
        } else if now.since(busy) > SPIN {
            way.sleep()?;
        }
    }
    let cpu = clock::thread_cpu_time() - began;
    match way {
        Way::Sockets { ports, .. } => {
            ports.into_iter().flat_map(|port| Box::new(port).close()).for_each(|frame| pool.release(frame));
        }
        Way::Carrier { queue, .. } => queue.close().into_iter().for_each(|frame| pool.release(frame)),
        Way::Xdp { ports, .. } => {
            ports.into_iter().flat_map(|port| Box::new(port).close()).for_each(|frame| pool.release(frame));
        }
    }
    Ok((frames, cpu))
}

/// Frames a second sent and passed on, and CPU time per frame of both threads, ns.
fn measure(
    namespace: &Namespace,
    len: usize,
    way: impl FnOnce(&Pool) -> Outcome<Way> + Send,
) -> Outcome<[f64; 4]> {
    let stop = AtomicBool::new(false);
    namespace.run(|| {
        let pool = Pool::new(4 * QUEUE_FRAMES)?;
        let way = way(&pool)?;
        std::thread::scope(|scope| {
            let forwarder = scope.spawn(|| forward(way, pool, &stop));
            let generator = scope.spawn(|| generate(len, &stop));
            poll(&mut [], Some(&TIME.try_into()?))?;
            stop.store(true, Ordering::Relaxed);
            let (sent, sender_cpu) = generator.join().map_err(|_| "a panic")??;
            let (frames, cpu) = forwarder.join().map_err(|_| "a panic")??;
            let per = |cpu: Duration, frames: u64| cpu.as_nanos() as f64 / frames.max(1) as f64;
            let rate = |frames: u64| frames as f64 / TIME.as_secs_f64();
            Ok([rate(sent), rate(frames), per(sender_cpu, sent), per(cpu, frames)])
        })
    })?
}

fn main() -> Outcome<()> {
    let idle = std::env::args().nth(1).map_or(Ok(10), |idle| idle.parse::<usize>())?;
    let namespace = Namespace::new()?;
    namespace.run(|| std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1"))??;
    for number in 0..2 {
        ip(&namespace, &format!("link add far{number} type veth peer name near{number}"))?;
        ip(&namespace, &format!("link set far{number} up"))?;
        ip(&namespace, &format!("link set near{number} up"))?;
    }
    println!(
        "{:34} {:>6} {:>10} {:>10} {:>10} {:>10}",
        "", "bytes", "sent/s", "passed/s", "ns sender", "ns worker"
    );
    for len in [64, 65_000] {
        let mut rows = [const { Vec::new() }; 4];
        for _ in 0..ROUNDS {
            rows[0].push(measure(&namespace, len, |_| Way::sockets())?);
            rows[1].push(measure(&namespace, len, |_| Way::carrier(0))?);
            rows[2].push(measure(&namespace, len, |_| Way::carrier(idle))?);
            if len < 1_514 {
                rows[3].push(measure(&namespace, len, Way::xdp)?);
            }
        }
        let beside = format!("one queue, beside {idle} idle ports");
        let names = ["a socket per interface", "one queue for all", &beside, "AF_XDP, copy, in the driver"];
        for (name, mut row) in names.into_iter().zip(rows).filter(|(_, row)| !row.is_empty()) {
            row.sort_by(|a, b| a[1].total_cmp(&b[1]));
            let [sent, passed, sender, worker] = row[ROUNDS / 2];
            println!("{name:34} {len:6} {sent:10.0} {passed:10.0} {sender:10.0} {worker:10.0}");
        }
    }
    Ok(())
}
