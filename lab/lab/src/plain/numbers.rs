//! Numbered datagrams, and processes that hold leases on the sockets that they are for, one after the other: each gives its leases
//! back and takes them again, forks, and dies with what is left in its rings. What has come is kept in memory that
//! outlives it.

use std::fs::File;
use std::net::{SocketAddr, UdpSocket as KernelSocket};
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use rustix::event::{Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::{Deserialize, Serialize};
use serde_json::json;
use twinpath_clients::measure::print;
use twinpath_leases::sockets::{Poll, SocketPath, UdpSocket};
use twinpath_socket_load::Stop;
use twinpath_sys::affinity;
use twinpath_sys::fork::fork;
use twinpath_worker::idle::Mode;

/// Two of them send to the first socket, and one to the second.
const SENDERS: usize = 3;
const SOCKETS: usize = 2;
/// Sent and not yet received, of each sender: any buffer has room for all.
const WINDOW: u32 = 4;
/// Every so often a datagram comes in fragments.
const FRAGMENTED: u32 = 397;
const FRAGMENTED_LEN: usize = 4000;
/// A sender that is not answered for so long goes on: what it has sent was in the ring of a process that has died.
const PATIENCE: Duration = Duration::from_millis(50);
/// The number that ends a sender's, until it is answered.
const END: u32 = u32::MAX;
const END_ATTEMPTS: u32 = 400;
/// After so long without a datagram nothing comes any more.
const SILENCE: Duration = Duration::from_secs(1);
/// Datagrams after which a process dies.
const LIVES: std::ops::Range<u64> = 2_000..12_000;
/// Bytes of the text of what has come.
const TEXT_LEN: usize = 1024;

/// What has come from a sender.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
struct Sender {
    /// The number after the highest that has come, and which of the 64 before it have.
    next: u32,
    seen: u64,
    /// A process has died since its last datagram.
    bereaved: bool,
}

/// What has come, and what has not come as it should.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
struct Tally {
    senders: [Sender; SENDERS],
    lost: u64,
    doubled: u64,
    reordered: u64,
    foreign: u64,
    /// In the ring of a process that has died.
    unread: u64,
    received: u64,
    by_ring: u64,
    by_kernel: u64,
    holders: u64,
}

impl Tally {
    fn came(&mut self, sender: usize, socket: usize, number: u32) {
        self.foreign += u64::from(socket != usize::from(sender == SENDERS - 1));
        self.received += 1;
        let Some(sender) = self.senders.get_mut(sender) else { return };
        if number < sender.next {
            let back = sender.next - 1 - number;
            let bit = 1u64.checked_shl(back).unwrap_or(0);
            if sender.seen & bit != 0 || bit == 0 {
                self.doubled += 1;
            } else {
                sender.seen |= bit;
                self.reordered += 1;
                // It was taken for lost when a later one came.
                self.lost = self.lost.saturating_sub(1);
            }
            return;
        }
        let gap = number - sender.next;
        if sender.bereaved && gap <= WINDOW {
            self.unread += u64::from(gap);
        } else {
            self.lost += u64::from(gap);
        }
        sender.seen = sender.seen.checked_shl(gap + 1).unwrap_or(0) | 1;
        (sender.next, sender.bereaved) = (number + 1, false);
    }
}

#[derive(clap::Args)]
pub(crate) struct ServerArgs {
    #[command(flatten)]
    server: super::Server,
    /// The interface whose fast path the sockets have. The second one is bound to the next port
    #[arg(long)]
    on: String,
    /// Determines when what happens
    #[arg(long, default_value_t)]
    seed: u64,
}

pub(crate) fn serve(args: &ServerArgs) -> anyhow::Result<()> {
    let listen = args.server.listen;
    let second = SocketAddr::new(listen.ip(), listen.port() + 1);
    let sockets = [KernelSocket::bind(listen)?, KernelSocket::bind(second)?];
    let tally = File::from(memfd_create("tally", MemfdFlags::CLOEXEC)?);
    write(&tally, &Tally::default())?;
    super::serve(listen, |stop| {
        hold_in_turns(&sockets, &tally, args, stop)?;
        Ok(serde_json::to_value(read(&tally)?)?)
    })
}

/// A process at a time, until nothing comes any more.
fn hold_in_turns(
    sockets: &[KernelSocket; SOCKETS],
    tally: &File,
    args: &ServerArgs,
    stop: &Stop,
) -> anyhow::Result<()> {
    let mut random = fastrand::Rng::with_seed(args.seed);
    while !stop.is_requested() {
        let seed = random.u64(..);
        let child = fork(|| match hold(sockets, tally, &args.on, seed) {
            Ok(true) => 0,
            Ok(false) => 2,
            Err(error) => {
                eprintln!("a process that holds leases: {error:#}");
                1
            }
        })?;
        match child.wait()? {
            Some(0) => {}
            Some(2) => break,
            other => bail!("a process that holds leases ended with {other:?}"),
        }
    }
    while !stop.is_requested() {
        let tick = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
        let _ = poll(&mut [], Some(&tick));
    }
    Ok(())
}

/// Receives until its life is over. `false` if nothing comes any more.
fn hold(kernel: &[KernelSocket; SOCKETS], kept: &File, on: &str, seed: u64) -> anyhow::Result<bool> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let mut random = fastrand::Rng::with_seed(seed);
    let mut poll = Poll::new()?;
    let mut sockets = Vec::new();
    for (token, socket) in (0..).zip(kernel) {
        let socket = UdpSocket::from(socket.try_clone()?).on(on);
        ensure!(matches!(socket.path(), SocketPath::Fast { .. }), "{}", socket.path());
        socket.set_nonblocking(true)?;
        poll.add_socket(&socket, token)?;
        sockets.push(socket);
    }
    let mut tally = read(kept)?;
    tally.senders.iter_mut().for_each(|sender| sender.bereaved = true);
    tally.holders += 1;
    let before = (tally.by_ring, tally.by_kernel);
    let (mut left, mut heard, mut buffer) = (random.u64(LIVES), Instant::now(), vec![0; 2 * FRAGMENTED_LEN]);
    loop {
        disturb(&mut random, &mut poll, &sockets)?;
        let events = match poll.wait(Some(PATIENCE)) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            events => events?.to_vec(),
        };
        if events.is_empty() && heard.elapsed() > SILENCE {
            return Ok(false);
        }
        for event in events {
            let at = event.token as usize;
            // Several in one go, or one.
            for _ in 0..random.u32(1..4) {
                let Ok((len, from)) = sockets[at].recv_from(&mut buffer) else { break };
                heard = Instant::now();
                ensure!(len >= 5, "a datagram of {len} bytes from {from}");
                let [a, b, c, d, sender, ..] = buffer[..] else { bail!("the buffer is short") };
                let number = u32::from_ne_bytes([a, b, c, d]);
                if number == END {
                    sockets[at].send_to(&serde_json::to_vec(&tally)?, from)?;
                    continue;
                }
                tally.came(sender.into(), at, number);
                let counts = sockets.iter().map(UdpSocket::counts);
                (tally.by_ring, tally.by_kernel) = counts.fold(before, |(ring, kernel), counts| {
                    (ring + counts.by_ring, kernel + counts.by_kernel)
                });
                // Before it is answered: a process that dies has told nobody of what it has not kept.
                write(kept, &tally)?;
                sockets[at].send_to(&(number + 1).to_ne_bytes(), from)?;
                left -= 1;
                if left == 0 {
                    return Ok(true);
                }
            }
        }
    }
}

/// What an application does by which leases are given back, kept and lapse.
fn disturb(random: &mut fastrand::Rng, poll: &mut Poll, sockets: &[UdpSocket]) -> anyhow::Result<()> {
    match random.u32(..2000) {
        0..8 => poll.set_mode(Mode::Interrupt),
        8..24 => poll.set_mode(Mode::Poll),
        24..40 => poll.set_mode(Mode::Adaptive),
        // It is busy with something else, for longer than a lease lasts or not.
        40..60 => {
            let until = Instant::now() + Duration::from_micros(random.u64(..3000));
            while Instant::now() < until {
                std::hint::spin_loop();
            }
        }
        // A child has all of it, looks, and ends.
        60..62 => {
            let child = fork(|| {
                let seen: u64 = sockets.iter().map(|socket| socket.counts().by_ring).sum();
                i32::from(seen != 0)
            })?;
            ensure!(child.wait()? == Some(0), "a child had its parent's lease");
        }
        _ => {}
    }
    Ok(())
}

fn write(file: &File, tally: &Tally) -> anyhow::Result<()> {
    let mut text = serde_json::to_vec(tally)?;
    ensure!(text.len() <= TEXT_LEN, "what has come takes {} bytes", text.len());
    text.resize(TEXT_LEN, b' ');
    Ok(file.write_all_at(&text, 0)?)
}

fn read(file: &File) -> anyhow::Result<Tally> {
    let mut text = [0; TEXT_LEN];
    file.read_exact_at(&mut text, 0)?;
    serde_json::from_slice(&text).context("cannot read what has come")
}

#[derive(clap::Args)]
pub(crate) struct ClientArgs {
    /// Where the first socket is
    target: SocketAddr,
    /// Datagrams of each sender
    #[arg(long, default_value_t = 20_000)]
    count: u32,
}

pub(crate) fn send(args: &ClientArgs) -> anyhow::Result<()> {
    let cpus = affinity::allowed_cpus()?;
    let tallies: Vec<anyhow::Result<Tally>> = std::thread::scope(|scope| {
        let senders: Vec<_> = (0..SENDERS)
            .map(|sender| {
                let cpu = cpus[sender % cpus.len()];
                scope.spawn(move || {
                    // What a sender sends from two CPUs may change its order in the kernel.
                    affinity::pin_current_thread(cpu)?;
                    send_numbers(args, sender)
                })
            })
            .collect();
        senders
            .into_iter()
            .map(|sender| sender.join().unwrap_or_else(|_| bail!("a sender panicked")))
            .collect()
    });
    let mut last = Tally::default();
    for tally in tallies {
        let tally = tally?;
        if tally.received >= last.received {
            last = tally;
        }
    }
    // What a sender was the last to send has no later one that shows that it was lost.
    for sender in last.senders {
        let gap = u64::from(args.count.saturating_sub(sender.next));
        *(if sender.bereaved && gap <= u64::from(WINDOW) { &mut last.unread } else { &mut last.lost }) += gap;
    }
    Ok(print(json!({
        "wrong": last.lost + last.doubled + last.reordered + last.foreign,
        "lost": last.lost, "doubled": last.doubled, "reordered": last.reordered, "foreign": last.foreign,
        "unread_of_dead": last.unread, "received": last.received, "by_ring": last.by_ring, "by_kernel": last.by_kernel,
        "holders": last.holders,
    }))?)
}

fn send_numbers(args: &ClientArgs, sender: usize) -> anyhow::Result<Tally> {
    let port = args.target.port() + u16::from(sender == SENDERS - 1);
    let socket = KernelSocket::bind("0.0.0.0:0")?;
    socket.connect(SocketAddr::new(args.target.ip(), port))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let (mut datagram, mut answer, mut acknowledged) = (vec![0; FRAGMENTED_LEN], vec![0; 2 * TEXT_LEN], 0);
    datagram[4] = sender as u8;
    for number in 0..args.count {
        datagram[..4].copy_from_slice(&number.to_ne_bytes());
        let len = if number % FRAGMENTED == FRAGMENTED - 1 { FRAGMENTED_LEN } else { 64 };
        socket.send(&datagram[..len])?;
        while number + 1 - acknowledged >= WINDOW {
            match socket.recv(&mut answer) {
                Ok(4) => {
                    let next = u32::from_ne_bytes([answer[0], answer[1], answer[2], answer[3]]);
                    acknowledged = next.max(acknowledged).min(number + 1);
                }
                Ok(len) => bail!("an answer of {len} bytes"),
                Err(_) => acknowledged = number + 1,
            }
        }
    }
    datagram[..4].copy_from_slice(&END.to_ne_bytes());
    for _ in 0..END_ATTEMPTS {
        socket.send(&datagram[..64])?;
        while let Ok(len) = socket.recv(&mut answer) {
            if len > 4 {
                return serde_json::from_slice(&answer[..len]).context("cannot read the last answer");
            }
        }
    }
    bail!("the last datagram was not answered")
}
