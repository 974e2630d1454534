//! A learning switch over packet sockets in two shapes: one loop that does everything, or a packet thread beside a thread
//! for control. The system calls for a frame are the same in both.
#![allow(
    unsafe_code,
    reason = "rustix has neither recvmmsg nor sendmmsg; the kernel is handed arrays of pointers"
)]

use std::collections::HashMap;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::sync::{Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, read};
use rustix::net::{SocketFlags, SocketType};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use twinpath_socket_load::Stop;
use twinpath_sys::packet_socket::{self, Membership};
use twinpath_time::Duration;

use crate::PlainError;

/// Most frames per system call.
pub const FORWARD_BURST_MAX: usize = 64;
const FRAME_ROOM: usize = 2048;
/// The longest sleep, after which the stop is looked at.
const SLEEP_MAX: Duration = Duration::from_millis(100);
/// Addresses that control enters and removes in turn.
const CHANGED: u64 = 256;

/// Who does control's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// The one loop: before each sleep it lists all descriptors, and after it every handler runs, whatever is ready.
    OneLoop,
    /// A thread of its own; the packet thread waits for ports alone and serves those that are ready.
    TwoThreads,
}

/// What is forwarded, and how.
#[derive(Debug)]
pub struct Forwarding<'a> {
    /// The ports, of the calling thread's network namespace.
    pub ifindexes: &'a [u32],
    /// Who does control's work.
    pub shape: Shape,
    /// Frames per system call, 1 to [`FORWARD_BURST_MAX`].
    pub burst: usize,
    /// Changes of the table per second, each of which is logged.
    pub changes_per_s: u32,
    /// The log.
    pub log: File,
}

/// What was done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Forwarded {
    /// Frames received.
    pub frames: u64,
    /// System calls for frames, and to wait for them.
    pub packet_calls: u64,
    /// System calls of control's thread, or for changes and their log.
    pub control_calls: u64,
    /// Changes of the table.
    pub changes: u64,
}

/// On which port an address is.
type Table = Mutex<HashMap<[u8; 6], usize>>;

/// Forwards until told to stop. With [`Shape::TwoThreads`] the packets are served on the calling thread.
///
/// # Errors
/// Without CAP_NET_RAW, or if there is no such interface.
pub fn forward(forwarding: Forwarding<'_>, stop: &Stop) -> Result<Forwarded, PlainError> {
    let Forwarding { ifindexes, shape, burst, changes_per_s, log } = forwarding;
    let sockets = ifindexes.iter().map(|ifindex| open_port(*ifindex)).collect::<Result<Vec<_>, _>>()?;
    let table = Table::default();
    let mut ports = Ports::new(&sockets, burst, &table);
    let mut control = Control::new(changes_per_s, log, &table)?;
    std::thread::scope(|scope| match shape {
        Shape::OneLoop => {
            while !stop.is_requested() {
                wait(sockets.iter().chain([&control.timer]));
                ports.calls += 1;
                (0..sockets.len()).for_each(|port| ports.serve(port));
                control.run();
            }
        }
        Shape::TwoThreads => {
            let control = &mut control;
            scope.spawn(move || {
                while !stop.is_requested() {
                    wait([&control.timer].into_iter());
                    control.calls += 1;
                    control.run();
                }
            });
            while !stop.is_requested() {
                let ready = wait(sockets.iter());
                ports.calls += 1;
                (0..sockets.len()).filter(|port| ready >> port & 1 != 0).for_each(|port| ports.serve(port));
            }
        }
    });
    Ok(Forwarded {
        frames: ports.frames,
        packet_calls: ports.calls,
        control_calls: control.calls,
        changes: control.changes,
    })
}

fn open_port(ifindex: u32) -> Result<OwnedFd, PlainError> {
    let cannot = |source: packet_socket::PacketSocketError| PlainError::PacketSocket {
        ifindex,
        source: source.into(),
    };
    let socket = packet_socket::open(SocketType::RAW, SocketFlags::NONBLOCK).map_err(cannot)?;
    for (name, option) in [
        ("PACKET_QDISC_BYPASS", libc::PACKET_QDISC_BYPASS),
        ("PACKET_IGNORE_OUTGOING", libc::PACKET_IGNORE_OUTGOING),
    ] {
        packet_socket::set(&socket, name, option, 1).map_err(cannot)?;
    }
    packet_socket::bind(&socket, ifindex, libc::ETH_P_ALL as u16).map_err(cannot)?;
    packet_socket::add_membership(&socket, ifindex, Membership::Promiscuous).map_err(cannot)?;
    Ok(socket)
}

/// Sleeps until a descriptor is readable. Returns which of them are, as bits.
fn wait<'a>(descriptors: impl Iterator<Item = &'a OwnedFd>) -> u64 {
    let mut all: Vec<_> = descriptors.map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(SLEEP_MAX.subsec_nanos()) };
    // An error is a signal: nothing is ready then.
    let _ = poll(&mut all, Some(&timeout));
    all.iter().rev().fold(0, |ready, fd| ready << 1 | u64::from(!fd.revents().is_empty()))
}

/// The ports, and memory for a burst.
struct Ports<'a> {
    sockets: &'a [OwnedFd],
    table: &'a Table,
    buffers: Vec<[u8; FRAME_ROOM]>,
    frames: u64,
    calls: u64,
}

impl<'a> Ports<'a> {
    fn new(sockets: &'a [OwnedFd], burst: usize, table: &'a Table) -> Self {
        let buffers = vec![[0; FRAME_ROOM]; burst.clamp(1, FORWARD_BURST_MAX)];
        Self { sockets, table, buffers, frames: 0, calls: 0 }
    }

    /// Receives one burst of a port and passes it on.
    fn serve(&mut self, port: usize) {
        self.calls += 1;
        let lens = receive(&self.sockets[port], &mut self.buffers);
        self.frames += lens.len() as u64;
        let to: Vec<Option<usize>> = {
            let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
            self.buffers.iter().zip(&lens).map(|(frame, _)| learn(&mut table, port, frame)).collect()
        };
        // Frames that follow each other to the same port leave by one call.
        let mut at = 0;
        while let Some(out) = to.get(at) {
            let count = to[at..].iter().take_while(|next| *next == out).count();
            let frames: Vec<&[u8]> =
                (at..at + count).map(|number| &self.buffers[number][..lens[number]]).collect();
            for (number, socket) in self.sockets.iter().enumerate() {
                if number != port && out.is_none_or(|out| out == number) {
                    self.calls += 1;
                    send(socket, &frames);
                }
            }
            at += count;
        }
    }
}

/// Learns where a frame comes from. Returns the port that it leaves by; `None`: by all others.
fn learn(table: &mut HashMap<[u8; 6], usize>, port: usize, frame: &[u8; FRAME_ROOM]) -> Option<usize> {
    let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = *frame;
    if table.get(&[g, h, i, j, k, l]) != Some(&port) {
        table.insert([g, h, i, j, k, l], port);
    }
    table.get(&[a, b, c, d, e, f]).copied()
}

/// Takes the frames that are there, as many as there are buffers. Returns their lengths.
fn receive(socket: &OwnedFd, buffers: &mut [[u8; FRAME_ROOM]]) -> Vec<usize> {
    let mut vectors: Vec<_> = buffers
        .iter_mut()
        .map(|buffer| libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() })
        .collect();
    let mut headers = headers(&mut vectors);
    let count = headers.len() as u32;
    // SAFETY: each header refers to one vector, and it to one buffer of that length; all live across the call.
    let result = unsafe {
        libc::recvmmsg(socket.as_raw_fd(), headers.as_mut_ptr(), count, libc::MSG_DONTWAIT, ptr::null_mut())
    };
    let received = usize::try_from(result).unwrap_or(0);
    headers[..received].iter().map(|header| header.msg_len as usize).collect()
}

/// Sends frames; those that the interface has no room for are lost, as on any link.
fn send(socket: &OwnedFd, frames: &[&[u8]]) {
    let mut vectors: Vec<_> = frames
        .iter()
        .map(|frame| libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() })
        .collect();
    let mut headers = headers(&mut vectors);
    // SAFETY: each header refers to one vector, and it to one frame, which the kernel only reads; all live across the call.
    unsafe {
        libc::sendmmsg(socket.as_raw_fd(), headers.as_mut_ptr(), headers.len() as u32, libc::MSG_DONTWAIT)
    };
}

/// A message for each vector.
fn headers(vectors: &mut [libc::iovec]) -> Vec<libc::mmsghdr> {
    let header = |vector: &mut libc::iovec| {
        // SAFETY: all zeroes is a value of this plain C struct (null pointers, no name, no control data).
        let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
        header.msg_hdr.msg_iov = ptr::from_mut(vector);
        header.msg_hdr.msg_iovlen = 1;
        header
    };
    vectors.iter_mut().map(header).collect()
}

/// Control's work: changes of the table at a given pace, each with a line in the log.
struct Control<'a> {
    timer: OwnedFd,
    table: &'a Table,
    log: File,
    changes: u64,
    calls: u64,
}

impl<'a> Control<'a> {
    fn new(changes_per_s: u32, log: File, table: &'a Table) -> Result<Self, PlainError> {
        let timer = || {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
            let every = Timespec { tv_sec: 0, tv_nsec: 1_000_000_000 / i64::from(changes_per_s.max(2)) };
            let spec = Itimerspec { it_interval: every, it_value: every };
            timerfd_settime(&timer, TimerfdTimerFlags::empty(), &spec)?;
            Ok(timer)
        };
        let timer = timer().map_err(|errno: Errno| PlainError::Timer(errno.into()))?;
        Ok(Self { timer, table, log, changes: 0, calls: 0 })
    }

    /// Makes the changes that are due, if any.
    fn run(&mut self) {
        let mut due = [0; 8];
        self.calls += 1;
        if read(&self.timer, &mut due).is_err() {
            return;
        }
        for _ in 0..u64::from_ne_bytes(due) {
            let number = self.changes % CHANGED;
            let mac = [2, 0x74, 0x70, 4, 0, number as u8];
            let enters = (self.changes / CHANGED).is_multiple_of(2);
            let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
            if enters {
                table.insert(mac, 0)
            } else {
                table.remove(&mac)
            };
            let count = table.len();
            drop(table);
            self.changes += 1;
            self.calls += 1;
            // A log that cannot be written is not what is measured.
            let _ =
                writeln!(self.log, "change {}: {mac:02x?} enters: {enters}, {count} addresses", self.changes);
        }
    }
}
