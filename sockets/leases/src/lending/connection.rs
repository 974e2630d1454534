//! A program's end of its connection to an owner.

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, socket_with};
use rustix::process::{Resource, getrlimit};
use twinpath_sys::fork::InheritedFd;
use twinpath_sys::{clock, fd_passing};
use twinpath_time::{Duration, Instant};

use crate::lending::message::{ANSWER_MAX, Answer, BadMessage, MEMORY_FDS, REQUEST_LEN, Request};
use crate::lending::place::Place;

/// How long an owner may take to answer. It waits for the kernel several times, each time for as long as every CPU needs to have
/// passed a quiet state, which takes seconds on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// How long a thread waits for an answer before it looks whether another one has taken it up.
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// At the start of the abstract name that a program's end of a connection has.
pub const CLIENT_NAME: &str = "twinpath-";
/// A program gets the lowest numbers that are free for its own descriptors, and may have a table of as many.
const OUT_OF_THE_WAY: u64 = 1_000;
/// How often it is asked whether the connection still stands.
const ASK_EVERY: Duration = Duration::from_millis(1);

/// Why the owner gave nothing.
#[derive(Debug, thiserror::Error)]
pub enum OwnerError {
    /// Nobody listens there, or the program may not connect.
    #[error("no owner answers at {}: {error}; `twinpath sockets` starts one", path.display())]
    Connect {
        /// Its socket.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It did not answer.
    #[error("the owner at {} does not answer: {error}", path.display())]
    Talk {
        /// Its socket.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It answered something else.
    #[error("the owner at {}: {error}", path.display())]
    Message {
        /// Its socket.
        path: PathBuf,
        /// What.
        error: BadMessage,
    },
    /// It refused.
    #[error("{0} (says the owner of the interface)")]
    Refused(String),
    /// The memory of the ring.
    #[error("cannot map the ring of a lease: {0}; raise the limit of locked memory (ulimit -l) or of memory")]
    Memory(Errno),
}

/// The connection. As long as it stands, the owner serves this program.
#[derive(Debug)]
pub struct Connection {
    socket: InheritedFd,
    path: PathBuf,
    has_ended: AtomicBool,
    /// When it was last asked whether it stands, ns.
    asked: AtomicU64,
}

impl Connection {
    /// Connects to the owner that listens there. It waits for nothing.
    ///
    /// # Errors
    /// [`OwnerError::Connect`]
    pub(crate) fn open(at: &Place, interface: &str) -> Result<Self, OwnerError> {
        let opened = Self::connected(at, interface);
        let path = at.name();
        let socket = opened.map_err(|error| OwnerError::Connect { path: path.clone(), error })?;
        let (has_ended, asked) = (AtomicBool::new(false), AtomicU64::new(0));
        let connection = Self { socket: InheritedFd::new(socket), path, has_ended, asked };
        if let Place::Started(started) = at {
            connection.send(&Request::Known { token: started.token }, None)?;
        }
        Ok(connection)
    }

    fn connected(at: &Place, interface: &str) -> io::Result<OwnedFd> {
        use std::hash::{BuildHasher as _, RandomState};
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        let socket = out_of_the_way(socket);
        // The kernel draws the keys of such a state. The starter of owners reads the interface from the name.
        let number = RandomState::new().hash_one(std::process::id());
        let name = format!("{CLIENT_NAME}{number:016x}/{interface}");
        bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
        match connect(&socket, &at.address()?) {
            // More programs than may wait at a time.
            Err(Errno::AGAIN) => Err(io::Error::other("too many programs ask it at once")),
            connected => Ok(connected.map(|()| socket)?),
        }
    }

    /// Its descriptor, which the program knows nothing of.
    #[must_use]
    pub fn as_raw_fd(&self) -> i32 {
        self.socket.get().map_or(-1, |socket| socket.as_raw_fd())
    }

    /// The owner's socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn talk(&self, error: impl Into<io::Error>) -> OwnerError {
        OwnerError::Talk { path: self.path.clone(), error: error.into() }
    }

    /// Sends a request, with the socket that it is about. It does not wait.
    pub(crate) fn send(&self, request: &Request, socket: Option<BorrowedFd<'_>>) -> Result<(), OwnerError> {
        let send =
            |connection: BorrowedFd<'_>| fd_passing::send(connection, &request.encode(), socket.as_slice());
        self.socket.get().and_then(send).map_err(|error| self.talk(error))
    }

    /// The next answer; `None` if there is none yet. It does not wait.
    pub(crate) fn answer(&self) -> Result<Option<(Answer, Vec<OwnedFd>)>, OwnerError> {
        let mut bytes = vec![0; ANSWER_MAX];
        loop {
            match self.socket.get().and_then(|connection| fd_passing::receive(connection, &mut bytes)) {
                Ok(received) if received.len == 0 => {
                    return Err(self.talk(io::Error::from(io::ErrorKind::UnexpectedEof)));
                }
                Ok(received) => {
                    let answer = Answer::decode(&bytes[..received.len]);
                    let answer = answer.map_err(|error| self.misunderstood(error))?;
                    if matches!(answer, Answer::Lent { .. }) && received.fds.len() != MEMORY_FDS {
                        return Err(self.misunderstood(BadMessage::Meaning));
                    }
                    return Ok(Some((answer, received.fds)));
                }
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(error) => return Err(self.talk(error)),
            }
        }
    }

    fn misunderstood(&self, error: BadMessage) -> OwnerError {
        OwnerError::Message { path: self.path.clone(), error }
    }

    /// Waits until an answer may be there: another thread may take it up, so it does not wait for long. It allocates nothing.
    ///
    /// # Errors
    /// The connection is closed, or cannot be waited for.
    pub fn wait_for_answer(&self) -> Result<(), Errno> {
        self.poll(LOOK_AGAIN)
    }

    /// Waits until an answer may be there.
    pub(crate) fn wait(&self, deadline: Instant) -> Result<(), OwnerError> {
        let left = deadline.nanos_since(clock::now());
        if left == 0 {
            return Err(self.talk(io::Error::from(io::ErrorKind::TimedOut)));
        }
        self.poll(Duration::from_nanos(left)).map_err(|error| self.talk(error))
    }

    fn poll(&self, most: Duration) -> Result<(), Errno> {
        let most = Timespec { tv_sec: most.as_secs() as i64, tv_nsec: most.subsec_nanos().into() };
        match poll(&mut [PollFd::from_borrowed_fd(self.socket.get()?, PollFlags::IN)], Some(&most)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Says that the socket with this ring has no lease any more. `hands_over`: others get what is in the ring, from the kernel. It
    /// neither allocates nor waits.
    pub(crate) fn end(&self, ring: u32, hands_over: bool) -> io::Result<()> {
        let message: [u8; REQUEST_LEN] = Request::end(ring, hands_over);
        match self.socket.get().and_then(|connection| fd_passing::send(connection, &message, &[])) {
            // The owner is gone, and with it what it has given.
            Ok(()) | Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Asks the owner to hand over what is in the ring. It neither allocates nor waits. Returns whether the owner was told.
    pub(crate) fn hand_over(&self, ring: u32) -> bool {
        let request = Request::hand_over(ring);
        self.socket.get().and_then(|connection| fd_passing::send(connection, &request, &[])).is_ok()
    }

    /// In a child made by `fork`: it has no part in what its parent has been given. It neither allocates nor waits.
    pub fn close_in_child(&self) {
        self.socket.close_in_child();
    }

    /// Whether the owner is gone, by a check within the last millisecond. It neither allocates nor waits.
    #[must_use]
    pub fn has_ended(&self, now: Instant) -> bool {
        let asked = Instant::from_nanos(self.asked.load(Ordering::Relaxed));
        if !self.has_ended.load(Ordering::Relaxed) && now >= asked + ASK_EVERY {
            self.asked.store(now.as_nanos(), Ordering::Relaxed);
            const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
            let Ok(socket) = self.socket.get() else { return true };
            let mut asks = [PollFd::from_borrowed_fd(socket, PollFlags::RDHUP)];
            let ended = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
            if poll(&mut asks, Some(&NOW)).is_ok() && asks[0].revents().intersects(ended) {
                self.has_ended.store(true, Ordering::Relaxed);
            }
        }
        self.has_ended.load(Ordering::Relaxed)
    }
}

/// The same socket at a number that the program does not reach, if its limit allows one.
fn out_of_the_way(socket: OwnedFd) -> OwnedFd {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let lowest = OUT_OF_THE_WAY.min(limit.saturating_sub(8));
    fcntl_dupfd_cloexec(&socket, lowest as i32).unwrap_or(socket)
}
