//! Applications with a loop of their own: echo servers on a socket of the library, and on the kernel's in its place.

use std::io::{ErrorKind, PipeReader, PipeWriter, pipe};
use std::mem::MaybeUninit;
use std::net::UdpSocket as KernelSocket;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use anyhow::{bail, ensure};
use rustix::event::epoll;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use serde_json::json;
use twinpath_leases::sockets::{Access, Interest, Poll, SendBy, SocketPath, UdpSocket};
use twinpath_socket_load::Stop;
use twinpath_time::Duration;

/// How often a loop looks whether it is to end.
const HEED_EVERY: Duration = Duration::from_millis(100);
/// Of the datagrams that came, so many must have come by the ring if the server spins.
const BY_RING_MIN: f64 = 0.99;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    server: super::Server,
    /// The interface whose fast path the socket has; without it, the socket is the kernel's
    #[arg(long)]
    on: Option<String>,
    /// The ring comes from the owner of the interface that listens there, and this thread gives up root before it asks
    #[arg(long, value_name = "PATH", requires = "on")]
    owner: Option<PathBuf>,
    /// Wait for the socket, a pipe and a timer together
    #[arg(long)]
    loops: bool,
    /// Send as frames
    #[arg(long)]
    frames: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let Args { server, on, owner, loops, frames } = args;
    let sending = if *frames { SendBy::Frames } else { SendBy::Kernel };
    let kernel = KernelSocket::bind(server.listen)?;
    let address = kernel.local_addr()?;
    match (on, loops) {
        (None, false) => bail!("without --on and without --loops this is plain udp-echo"),
        (None, true) => super::serve(address, |stop| kernel_loop(&kernel, stop)),
        (Some(on), loops) => {
            let access = match owner {
                Some(owner) => {
                    become_nobody()?;
                    Access::Owner(owner.clone())
                }
                None => Access::Own,
            };
            let socket = UdpSocket::from(kernel).on_by(on, &access);
            ensure!(matches!(socket.path(), SocketPath::Fast { .. }), "{}", socket.path());
            socket.set_mode(server.mode);
            socket.set_sending(sending);
            super::serve(address, |stop| {
                let answered = if *loops { own_loop(&socket, server, stop)? } else { echo(&socket, stop)? };
                let counts = socket.counts();
                let by_ring = counts.by_ring as f64 / (counts.by_ring + counts.by_kernel).max(1) as f64;
                ensure!(
                    *loops || by_ring >= BY_RING_MIN,
                    "only {by_ring:.3} of the datagrams came by the ring: {counts:?}"
                );
                Ok(json!({ "answered": answered, "by_ring": counts.by_ring, "by_kernel": counts.by_kernel }))
            })
        }
    }
}

/// The calling thread has no rights from now on.
fn become_nobody() -> anyhow::Result<()> {
    const NOBODY: u32 = 65_534;
    let user = rustix::fs::Uid::from_raw(NOBODY);
    Ok(rustix::thread::set_thread_res_uid(user, user, user)?)
}

/// Calls that block.
fn echo(socket: &UdpSocket, stop: &Stop) -> anyhow::Result<u64> {
    socket.set_read_timeout(Some(HEED_EVERY))?;
    let (mut buffer, mut answered) = ([0; 2048], 0);
    while !stop.is_requested() {
        match socket.recv_from(&mut buffer) {
            Ok((len, from)) => {
                socket.send_to(&buffer[..len], from)?;
                answered += 1;
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(answered)
}

/// A pipe that nobody writes to, and a timer that says when to look whether to end.
struct Others {
    pipe: PipeReader,
    _writer: PipeWriter,
    timer: OwnedFd,
}

impl Others {
    fn new() -> anyhow::Result<Self> {
        let (pipe, _writer) = pipe()?;
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC)?;
        let every = Timespec { tv_sec: 0, tv_nsec: HEED_EVERY.as_nanos() as i64 };
        let setting = Itimerspec { it_interval: every, it_value: every };
        timerfd_settime(&timer, TimerfdTimerFlags::empty(), &setting)?;
        Ok(Self { pipe, _writer, timer })
    }

    fn tick(&self) -> anyhow::Result<()> {
        rustix::io::read(&self.timer, &mut [0; 8][..])?;
        Ok(())
    }
}

const SOCKET: u64 = 0;
const PIPE: u64 = 1;
const TIMER: u64 = 2;

/// The loop with the library's socket.
fn own_loop(socket: &UdpSocket, server: &super::Server, stop: &Stop) -> anyhow::Result<u64> {
    socket.set_nonblocking(true)?;
    let (others, mut poll) = (Others::new()?, Poll::new()?);
    poll.set_mode(server.mode);
    poll.add_socket(socket, SOCKET)?;
    poll.add(&others.pipe, PIPE, Interest::Readable)?;
    poll.add(&others.timer, TIMER, Interest::Readable)?;
    let (mut buffer, mut answered) = ([0; 2048], 0);
    while !stop.is_requested() {
        let mut ready = [false; 3];
        match poll.wait(None) {
            Ok(events) => events.iter().for_each(|event| ready[event.token as usize] = true),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error.into()),
        }
        if ready[SOCKET as usize]
            && let Ok((len, from)) = socket.recv_from(&mut buffer)
        {
            socket.send_to(&buffer[..len], from)?;
            answered += 1;
        }
        if ready[TIMER as usize] {
            others.tick()?;
        }
    }
    Ok(answered)
}

/// The same loop with the kernel's.
fn kernel_loop(socket: &KernelSocket, stop: &Stop) -> anyhow::Result<serde_json::Value> {
    socket.set_nonblocking(true)?;
    let (others, set) = (Others::new()?, epoll::create(epoll::CreateFlags::CLOEXEC)?);
    let add = |descriptor: &dyn AsFd, token| {
        epoll::add(&set, descriptor.as_fd(), epoll::EventData::new_u64(token), epoll::EventFlags::IN)
    };
    add(socket, SOCKET)?;
    add(&others.pipe, PIPE)?;
    add(&others.timer, TIMER)?;
    let (mut buffer, mut answered) = ([0; 2048], 0u64);
    while !stop.is_requested() {
        let mut room = [const { MaybeUninit::<epoll::Event>::uninit() }; 3];
        let Ok((events, _)) = epoll::wait(&set, &mut room, None) else { continue };
        for event in events {
            // Copied out: the struct is packed on x86-64.
            let data = event.data;
            match data.u64() {
                SOCKET => {
                    if let Ok((len, from)) = socket.recv_from(&mut buffer) {
                        socket.send_to(&buffer[..len], from)?;
                        answered += 1;
                    }
                }
                TIMER => others.tick()?,
                _ => {}
            }
        }
    }
    Ok(json!({ "answered": answered }))
}
