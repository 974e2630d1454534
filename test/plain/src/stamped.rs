//! Datagrams at a pace from one host to another, timed by the kernel: from its stamp when the frame is handed to the
//! sender's interface to its stamp when the receiver's interface has it. So what is measured is the time between the two
//! interfaces, and not when the thread that sends or the one that reads got a CPU.
#![allow(unsafe_code, reason = "rustix passes on no SCM_TIMESTAMPING")]

use std::ffi::{c_int, c_void};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;

use hdrhistogram::Histogram;
use rustix::event::{PollFd, PollFlags};
use rustix::thread::{ClockId, Timespec};
use twinpath_load::{Schedule, Summary};
use twinpath_socket_load::Stop;
use twinpath_sys::clock;
use twinpath_time::{Duration, Instant};

use crate::{Pace, PlainError};

/// Bytes of a datagram. It begins with its number.
const BYTES: usize = 64;
/// Room for a stamp (48 bytes) and an extended error (16 and an address), each with its header.
const CONTROL: usize = 256;

/// What has become of the datagrams.
#[derive(Debug)]
pub struct Stamped {
    /// Times under way, ns. A datagram that did not come counts with the time that it was waited for.
    pub under_way: Histogram<u64>,
    /// How late they were sent, ns; not part of the times under way.
    pub sent_late: Histogram<u64>,
    /// Datagrams sent.
    pub sent: u64,
    /// Those that did not come.
    pub lost: u64,
    /// Those that came, but were not timed, as a stamp is missing.
    pub unstamped: u64,
}

/// The sockets of both hosts, which are used for nothing else.
#[derive(Debug)]
pub struct StampedPair {
    from: UdpSocket,
    to: UdpSocket,
    target: SocketAddr,
}

impl StampedPair {
    /// Sends from `from` to `target`, where `to` listens.
    ///
    /// # Errors
    /// The kernel stamps nothing for such a socket.
    pub fn new(from: UdpSocket, to: UdpSocket, target: SocketAddr) -> Result<Self, PlainError> {
        ask_for(&to, libc::SOF_TIMESTAMPING_RX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE)?;
        Ok(Self { from, to, target })
    }

    /// Sends one datagram, and says whether one came with a stamp within `patience`. The kernel begins to stamp some time
    /// after it was asked to, when a thread of its own gets a CPU.
    ///
    /// # Errors
    /// One of sending or receiving.
    pub fn try_once(&self, patience: Duration) -> Result<bool, PlainError> {
        self.from.send_to(&[0], self.target).map_err(PlainError::Stamps)?;
        let deadline = clock::now() + patience;
        while wait(&self.to, deadline) {
            if receive(&self.to, 0)?.is_some_and(|message| message.stamp_ns.is_some()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Sends at `pace` from the calling thread, which sleeps in between, and waits for the last ones until `patience` has
    /// passed. Stops early when `stop` is requested.
    ///
    /// # Errors
    /// An impossible pace, or an error of sending or receiving.
    pub fn run(&self, pace: &Pace, patience: Duration, stop: &Stop) -> Result<Stamped, PlainError> {
        let sent_stamps = libc::SOF_TIMESTAMPING_TX_SOFTWARE
            | libc::SOF_TIMESTAMPING_OPT_ID
            | libc::SOF_TIMESTAMPING_OPT_TSONLY
            | libc::SOF_TIMESTAMPING_SOFTWARE;
        // Off first, so that the kernel numbers from 0 again.
        ask_for(&self.from, 0)?;
        ask_for(&self.from, sent_stamps)?;
        run(self, pace, patience, stop)
    }
}

fn run(pair: &StampedPair, pace: &Pace, patience: Duration, stop: &Stop) -> Result<Stamped, PlainError> {
    let started = clock::now();
    let (measured_from, until) = (started + pace.warmup, started + pace.warmup + pace.length);
    let mut schedule = Schedule::new(pace.arrivals, pace.rate_per_s, pace.seed, started)?;
    let mut run = Run { pair, sent: Vec::new(), first_counted: 0, came: 0 };
    let mut sent_late = Summary::empty().histogram;
    while schedule.due() < until && !stop.is_requested() {
        let due = schedule.due();
        schedule.advance();
        sleep_until(due);
        if due < measured_from {
            run.first_counted = run.sent.len() + 1;
        } else {
            sent_late.saturating_record(clock::now().nanos_since(due));
        }
        run.send()?;
        run.read()?;
    }
    let deadline = clock::now() + patience;
    while !run.is_complete() && !stop.is_requested() && wait(&pair.to, deadline) {
        run.read()?;
    }
    Ok(run.result(patience, sent_late))
}

/// Stamps of one datagram, ns since 1970.
#[derive(Clone, Copy, Debug, Default)]
struct Stamps {
    left: Option<u64>,
    /// Set once it has come, with its stamp.
    came: Option<Option<u64>>,
}

struct Run<'a> {
    pair: &'a StampedPair,
    sent: Vec<Stamps>,
    first_counted: usize,
    came: usize,
}

impl Run<'_> {
    fn send(&mut self) -> Result<(), PlainError> {
        let mut bytes = [0; BYTES];
        bytes[..8].copy_from_slice(&(self.sent.len() as u64).to_be_bytes());
        self.sent.push(Stamps::default());
        self.pair.from.send_to(&bytes, self.pair.target).map(drop).map_err(PlainError::Stamps)
    }

    /// Reads the stamps that are there.
    fn read(&mut self) -> Result<(), PlainError> {
        while let Some(message) = receive(&self.pair.from, libc::MSG_ERRQUEUE)? {
            if let (Some(at), Some(stamp)) = (message.number_sent, message.stamp_ns)
                && let Some(stamps) = self.sent.get_mut(at as usize)
            {
                stamps.left = Some(stamp);
            }
        }
        while let Some(message) = receive(&self.pair.to, 0)? {
            let number = message.bytes.first_chunk().map(|bytes| u64::from_be_bytes(*bytes));
            if let Some(stamps) = number.and_then(|number| self.sent.get_mut(number as usize))
                && stamps.came.is_none()
            {
                stamps.came = Some(message.stamp_ns);
                self.came += 1;
            }
        }
        Ok(())
    }

    fn is_complete(&self) -> bool {
        self.came == self.sent.len()
    }

    fn result(&self, patience: Duration, sent_late: Histogram<u64>) -> Stamped {
        let mut under_way = Summary::empty().histogram;
        let counted = self.sent.get(self.first_counted..).unwrap_or_default();
        let (mut lost, mut unstamped) = (0, 0);
        for stamps in counted {
            match (stamps.left, stamps.came) {
                (_, None) => {
                    lost += 1;
                    under_way.saturating_record(patience.as_nanos() as u64);
                }
                (Some(left), Some(Some(came))) => under_way.saturating_record(came.saturating_sub(left)),
                _ => unstamped += 1,
            }
        }
        Stamped { under_way, sent_late, sent: counted.len() as u64, lost, unstamped }
    }
}

/// Waits for a datagram; `false` if the deadline comes first.
fn wait(socket: &UdpSocket, deadline: Instant) -> bool {
    let left = Duration::from_nanos(deadline.nanos_since(clock::now()));
    let mut readable = [PollFd::new(socket, PollFlags::IN)];
    // A signal ends the wait, and then the caller looks whether to stop.
    left > Duration::ZERO
        && rustix::event::poll(&mut readable, Some(&timespec(left))).is_ok_and(|count| count > 0)
}

fn ask_for(socket: &UdpSocket, flags: libc::c_uint) -> Result<(), PlainError> {
    // SAFETY: the option is an unsigned int, which lives across the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_TIMESTAMPING,
            (&raw const flags).cast::<c_void>(),
            size_of_val(&flags) as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(PlainError::Stamps(io::Error::last_os_error())) }
}

/// A datagram, or the news of one that was sent.
struct Received {
    bytes: [u8; BYTES],
    stamp_ns: Option<u64>,
    /// The number of the datagram that was sent.
    number_sent: Option<u32>,
}

/// Aligned as the headers in it must be.
#[repr(C, align(8))]
struct Control([u8; CONTROL]);

/// Receives without waiting; `None` if there is nothing.
fn receive(socket: &UdpSocket, flags: c_int) -> Result<Option<Received>, PlainError> {
    let mut received = Received { bytes: [0; BYTES], stamp_ns: None, number_sent: None };
    let mut control = Control([0; CONTROL]);
    let mut vector = libc::iovec { iov_base: received.bytes.as_mut_ptr().cast(), iov_len: BYTES };
    // SAFETY: all zeroes is a value of this plain C struct (null pointers, no name, no control data).
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut vector;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = CONTROL;
    // SAFETY: the message refers to `received.bytes` and `control` with their lengths, which live across the call.
    let result = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags | libc::MSG_DONTWAIT) };
    if result < 0 {
        let error = io::Error::last_os_error();
        return match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
            _ => Err(PlainError::Stamps(error)),
        };
    }
    // SAFETY: the kernel has filled in the control data and its length.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    while !header.is_null() {
        // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR return headers inside the control data only.
        let (level, kind) = unsafe { ((*header).cmsg_level, (*header).cmsg_type) };
        if (level, kind) == (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING) {
            // SAFETY: such a message holds three timespecs, of which the first is the kernel's own stamp.
            let stamp = unsafe { libc::CMSG_DATA(header).cast::<libc::timespec>().read_unaligned() };
            received.stamp_ns = Some(stamp.tv_sec as u64 * 1_000_000_000 + stamp.tv_nsec as u64);
        } else if level == libc::IPPROTO_IP && kind == libc::IP_RECVERR {
            // SAFETY: such a message begins with this struct.
            let error = unsafe { libc::CMSG_DATA(header).cast::<libc::sock_extended_err>().read_unaligned() };
            received.number_sent =
                (error.ee_origin == libc::SO_EE_ORIGIN_TIMESTAMPING).then_some(error.ee_data);
        }
        // SAFETY: as above.
        header = unsafe { libc::CMSG_NXTHDR(&raw const message, header) };
    }
    Ok(Some(received))
}

/// Sleeps by the kernel's timer. A signal may end it sooner.
fn sleep_until(due: Instant) {
    let left = Duration::from_nanos(due.nanos_since(clock::now()));
    if left > Duration::ZERO {
        // EINTR: the datagram leaves early.
        let _ = rustix::thread::clock_nanosleep_relative(ClockId::Monotonic, &timespec(left));
    }
}

fn timespec(time: Duration) -> Timespec {
    Timespec { tv_sec: time.as_secs().cast_signed(), tv_nsec: time.subsec_nanos().into() }
}

#[cfg(test)]
mod tests {
    use twinpath_load::Arrivals;

    use super::*;

    #[test]
    fn each_datagram_is_timed_once_and_a_lost_one_counts_as_waited_for() {
        let socket = || UdpSocket::bind("127.0.0.1:0").unwrap();
        let pace = Pace {
            rate_per_s: 2_000.0,
            arrivals: Arrivals::Even,
            seed: 1,
            warmup: Duration::from_millis(5),
            length: Duration::from_millis(50),
        };
        let patience = Duration::from_millis(20);
        let to = socket();
        let target = to.local_addr().unwrap();
        let pair = StampedPair::new(socket(), to, target).unwrap();
        let deadline = clock::now() + Duration::from_secs(10);
        while !pair.try_once(patience).unwrap() {
            assert!(clock::now() < deadline, "no datagram has a stamp");
        }
        let all = pair.run(&pace, Duration::from_secs(5), &Stop::new()).unwrap();
        assert_eq!((all.sent, all.lost, all.unstamped), (100, 0, 0));
        assert_eq!((all.under_way.len(), all.sent_late.len()), (100, 100));
        let elsewhere = StampedPair::new(socket(), socket(), target).unwrap();
        let none = elsewhere.run(&pace, patience, &Stop::new()).unwrap();
        assert_eq!((none.lost, none.under_way.len()), (100, 100));
        assert!(none.under_way.min() >= 19_000_000);
    }
}
