//! The application's end of a shared-memory port, for another process. It can be used with an event loop, spinning,
//! or sleeping.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::time::Timespec;
use twinpath_frame::Checksum;
use twinpath_rings::slots::{Fault, Note, Refused, Slot, SlotConsumer, SlotProducer, TakeSlot, Taken};
use twinpath_sys::{EventFd, fd_passing};
use twinpath_time::{Duration, Instant};

use crate::offer::{MESSAGE_BYTES, VERSION, message, version_of};
use crate::region::{self, FRAME_LEN_MAX};

/// The tag of a slot's note: the VLAN's TCI in the low 16 bits, and these flags.
pub(crate) mod tag {
    pub(crate) const VLAN: u32 = 1 << 16;
    pub(crate) const CHECKSUM_PARTIAL: u32 = 1 << 17;
    pub(crate) const CHECKSUM_VERIFIED: u32 = 1 << 18;
}

/// How long the application waits for the owner's answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Why an application could not connect.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Nobody listens at the path.
    #[error("cannot connect to {path}: {source}; does the owner run, and does it listen there?")]
    Connect {
        /// Path of the socket.
        path: PathBuf,
        /// The kernel's error.
        source: Errno,
    },
    /// The connection failed.
    #[error("the connection to the owner of the shared memory failed ({step}: {source})")]
    Socket {
        /// The system call.
        step: &'static str,
        /// The kernel's error.
        source: Errno,
    },
    /// No answer came in time.
    #[error("the owner of the shared memory did not answer within 5 s: is it stopped?")]
    Silent,
    /// The owner closed the connection.
    #[error(
        "the owner of the shared memory closed the connection without an answer: it may be ending, or serve somebody else"
    )]
    Closed,
    /// The answer is not from the owner of a shared-memory port.
    #[error("what listens there is no owner of twinpath's shared memory: its answer is something else")]
    UnknownProtocol,
    /// The owner is of another release.
    #[error(
        "the owner speaks version {theirs} of shared-memory ports and this process version {VERSION}: use the same release of twinpath for both"
    )]
    Version {
        /// The owner's version.
        theirs: u32,
    },
    /// The answer came without all its descriptors.
    #[error(
        "the owner's answer came with {found} descriptors instead of 3: is the limit of open files (ulimit -n) reached?"
    )]
    Descriptors {
        /// Number of descriptors received.
        found: usize,
    },
    /// The memory has another layout.
    #[error(
        "the shared memory has another layout than version {VERSION}: use the same release of twinpath for both"
    )]
    Memory,
}

/// Metadata of a received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Length, bytes.
    pub len: usize,
    /// When the owner received it from its port (`CLOCK_MONOTONIC`).
    pub arrival: Instant,
    /// TCI of an 802.1Q tag that is not in the frame's bytes.
    pub vlan: Option<u16>,
    /// State of the transport checksum.
    pub checksum: Checksum,
}

impl Packet {
    #[inline(always)]
    const fn of(slot: &Slot) -> Self {
        let tag = slot.note.tag;
        let checksum = match (tag & tag::CHECKSUM_PARTIAL, tag & tag::CHECKSUM_VERIFIED) {
            (0, 0) => Checksum::Unverified,
            (0, _) => Checksum::Verified,
            _ => Checksum::Partial,
        };
        let vlan = if tag & tag::VLAN == 0 { None } else { Some(tag as u16) };
        Self { len: slot.len, arrival: Instant::from_nanos(slot.note.time_ns), vlan, checksum }
    }
}

/// Copies slots one after the other into the same memory.
struct CopyEach<'a, F> {
    into: &'a mut [u8],
    each: F,
    taken: usize,
}

impl<F: FnMut(Result<(Packet, &[u8]), Fault>)> TakeSlot for CopyEach<'_, F> {
    #[inline(always)]
    fn take(&mut self, slot: Result<Taken<'_>, Fault>) {
        self.taken += 1;
        (self.each)(slot.map(|slot| {
            let slot = slot.copy_into(self.into);
            (Packet::of(&slot), &self.into[..slot.len.min(self.into.len())])
        }));
    }
}

/// Why [`Application::wait`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// There may be frames.
    Frames,
    /// The owner has closed its end; frames it sent before may still be there.
    OwnerGone,
    /// The time-out passed, or a signal came.
    Timeout,
}

/// One application's end of a port.
#[derive(Debug)]
pub struct Application {
    from_owner: SlotConsumer,
    to_owner: SlotProducer,
    /// An epoll set of the owner's eventfd, which only the owner holds, and the connection.
    waits_on: OwnedFd,
    signals: EventFd,
    /// When one side closes it, the other one notices.
    _connection: OwnedFd,
    unflushed: bool,
}

impl Application {
    /// Connects to the owner that listens at `path`.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect(path: &Path) -> Result<Self, ConnectError> {
        let failed = |source| ConnectError::Connect { path: path.to_owned(), source };
        let address = SocketAddrUnix::new(path).map_err(failed)?;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let socket = socket.map_err(failed)?;
        connect(&socket, &address).map_err(failed)?;
        Self::over(socket)
    }

    /// As [`Self::connect`], over a connection made by the caller (SOCK_SEQPACKET, blocking).
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn over(connection: OwnedFd) -> Result<Self, ConnectError> {
        let socket = |step| move |source| ConnectError::Socket { step, source };
        set_socket_timeout(&connection, Timeout::Recv, Some(ANSWER_TIMEOUT)).map_err(socket("setsockopt"))?;
        match fd_passing::send(&connection, &message(VERSION), &[]) {
            Ok(()) => {}
            // Closed as soon as it was accepted.
            Err(Errno::CONNRESET | Errno::PIPE) => return Err(ConnectError::Closed),
            Err(source) => return Err(socket("sendmsg")(source)),
        }
        let mut answer = [0; MESSAGE_BYTES + 1];
        let received = match fd_passing::receive(&connection, &mut answer) {
            Ok(received) => received,
            Err(Errno::AGAIN) => return Err(ConnectError::Silent),
            Err(Errno::CONNRESET | Errno::PIPE) => return Err(ConnectError::Closed),
            Err(source) => return Err(ConnectError::Socket { step: "recvmsg", source }),
        };
        if received.len == 0 {
            return Err(ConnectError::Closed);
        }
        let theirs = version_of(&answer[..received.len]).ok_or(ConnectError::UnknownProtocol)?;
        if theirs != VERSION {
            return Err(ConnectError::Version { theirs });
        }
        let found = received.fds.len();
        let [memfd, waits_on, signals]: [OwnedFd; 3] =
            received.fds.try_into().map_err(|_| ConnectError::Descriptors { found })?;
        let ends = region::application_ends(&memfd).map_err(socket("mapping the memory"))?;
        let (from_owner, to_owner) = ends.ok_or(ConnectError::Memory)?;
        // With the connection in the set, one descriptor reports both frames and the owner's end.
        let flags = EventFlags::RDHUP;
        epoll::add(&waits_on, &connection, EventData::new_u64(1), flags).map_err(socket("epoll_ctl"))?;
        let signals = EventFd::from_fd(signals);
        Ok(Self { from_owner, to_owner, waits_on, signals, _connection: connection, unflushed: false })
    }

    /// Takes the oldest frame into `into`; a longer frame is truncated. After a frame of less than 60 bytes, bytes
    /// up to there may change.
    ///
    /// # Errors
    /// [`Fault`]: the owner violated the ring's protocol, or another process wrote into the memory.
    // See `SlotConsumer::pop_into`.
    #[inline(always)]
    pub fn receive(&mut self, into: &mut [u8]) -> Option<Result<Packet, Fault>> {
        Some(self.from_owner.pop_into(into)?.map(|slot| Packet::of(&slot)))
    }

    /// Takes up to `most` of the oldest frames, as [`Self::receive`] takes one: copies each into `into`, and calls
    /// `each` with its metadata and the copied bytes. Returns how many were taken, including those that broke the
    /// protocol; 0: there are none. Cheaper per frame if there are several.
    #[inline(always)]
    pub fn receive_each<F>(&mut self, most: usize, into: &mut [u8], each: F) -> usize
    where
        F: FnMut(Result<(Packet, &[u8]), Fault>),
    {
        let mut copy = CopyEach { into, each, taken: 0 };
        self.from_owner.pop_each(most, &mut copy);
        copy.taken
    }

    /// Sends a frame of at most [`frame_len_max`](Self::frame_len_max) bytes. Call [`Self::flush`] after the last one
    /// of a burst: the owner may not see it before.
    ///
    /// # Errors
    /// [`Refused`]: full, if the owner's worker has not read the ring yet; try again later.
    #[inline]
    pub fn send(&mut self, frame: &[u8]) -> Result<(), Refused> {
        self.send_each([frame]).1.map_or(Ok(()), Err)
    }

    /// Sends frames as [`Self::send`] does, until one is refused. Returns how many were sent, and why the next one
    /// was not. Faster for several frames, especially if `frames` stores nothing meanwhile.
    #[inline]
    pub fn send_each<'a>(&mut self, frames: impl IntoIterator<Item = &'a [u8]>) -> (usize, Option<Refused>) {
        let note = |frame: &[u8]| Note { original_len: frame.len() as u32, ..Note::default() };
        let packets = frames.into_iter().map(|frame| (note(frame), frame));
        let (sent, refused) = self.to_owner.push_each(packets);
        self.unflushed |= sent > 0;
        (sent, refused)
    }

    /// Makes sent frames visible to the owner, and wakes its worker if that sleeps.
    #[inline]
    pub fn flush(&mut self) {
        if std::mem::take(&mut self.unflushed) && self.to_owner.publish() {
            self.signals.signal();
        }
    }

    /// Largest frame that can be sent or received, bytes.
    #[must_use]
    pub const fn frame_len_max(&self) -> usize {
        FRAME_LEN_MAX as usize
    }

    /// Whether a frame is waiting. Cheap: no system call.
    #[inline]
    #[must_use]
    pub fn look(&self) -> bool {
        self.from_owner.look()
    }

    /// To be called before an event loop sleeps on [`Self::fd`]: from now on frames make it readable.
    /// [Look](Self::look) again afterwards.
    pub fn arm(&mut self) {
        self.from_owner.arm();
    }

    /// To be called after the sleep. Returns whether the owner has closed its end.
    ///
    /// # Errors
    /// What `epoll_wait(2)` returns.
    pub fn disarm(&mut self) -> Result<bool, Errno> {
        Ok(self.sleep(Some(Duration::ZERO))? == Woken::OwnerGone)
    }

    /// Sleeps until there are frames, the owner closes its end, or `timeout` has passed.
    ///
    /// # Errors
    /// What `epoll_wait(2)` returns.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<Woken, Errno> {
        self.arm();
        if self.look() {
            self.from_owner.disarm();
            return Ok(Woken::Frames);
        }
        self.sleep(timeout)
    }

    fn sleep(&mut self, timeout: Option<Duration>) -> Result<Woken, Errno> {
        let timeout = timeout.map(|time| Timespec {
            tv_sec: time.as_secs().cast_signed(),
            tv_nsec: i64::from(time.subsec_nanos()),
        });
        let mut events = [const { MaybeUninit::<epoll::Event>::uninit() }; 2];
        let outcome = epoll::wait(&self.waits_on, &mut events, timeout.as_ref());
        self.from_owner.disarm();
        let ready = match outcome {
            Ok((ready, _)) => ready,
            Err(Errno::INTR) => return Ok(Woken::Timeout),
            Err(error) => return Err(error),
        };
        // Copied out: the struct is packed on x86-64.
        let is_connection = |event: &epoll::Event| {
            let data = event.data;
            data.u64() == 1
        };
        Ok(match ready {
            [] => Woken::Timeout,
            ready if ready.iter().any(is_connection) => Woken::OwnerGone,
            _ => Woken::Frames,
        })
    }

    /// The descriptor for an event loop: readable when frames come after [`Self::arm`], and when the owner closes its
    /// end. Level-triggered, until [`Self::disarm`].
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.waits_on.as_fd()
    }
}
