//! A program's end of its connection to an owner.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, socket_with};
use twinpath_sys::fork::InheritedFd;
use twinpath_sys::{clock, fd_passing};
use twinpath_time::{Duration, Instant};

use crate::message::{ANSWER_MAX, Answer, BadMessage, MEMORY_FDS, REQUEST_LEN, Request};

/// How long an owner may take to answer. It waits for the kernel several times, each time for as long as every CPU needs to have
/// passed a quiet state, which takes seconds on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);
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
    /// Connects to the owner that listens there.
    ///
    /// # Errors
    /// [`OwnerError::Connect`]
    pub(crate) fn open(path: &Path) -> Result<Self, OwnerError> {
        let opened = Self::connected(path);
        let socket = opened.map_err(|error| OwnerError::Connect { path: path.to_owned(), error })?;
        let (has_ended, asked) = (AtomicBool::new(false), AtomicU64::new(0));
        Ok(Self { socket: InheritedFd::new(socket), path: path.to_owned(), has_ended, asked })
    }

    fn connected(path: &Path) -> io::Result<OwnedFd> {
        use std::hash::{BuildHasher as _, RandomState};
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        // By its name the library in an unmodified program knows a descriptor of its own. The kernel draws the keys of such a state.
        let number = RandomState::new().hash_one(std::process::id());
        bind(&socket, &SocketAddrUnix::new_abstract_name(format!("twinpath-{number:016x}").as_bytes())?)?;
        match connect(&socket, &SocketAddrUnix::new(path)?) {
            // More programs than may wait at a time.
            Err(Errno::AGAIN) => Err(io::Error::other("too many programs ask it at once")),
            connected => Ok(connected.map(|()| socket)?),
        }
    }

    /// The owner's socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn talk(&self, error: impl Into<io::Error>) -> OwnerError {
        OwnerError::Talk { path: self.path.clone(), error: error.into() }
    }

    /// Asks for a lease, and waits for the answer to that request.
    pub(crate) fn ask(
        &self,
        request: u32,
        interface: &str,
        socket: BorrowedFd<'_>,
    ) -> Result<(Answer, Vec<OwnedFd>), OwnerError> {
        let message = Request::Lend { request, interface: interface.to_owned() }.encode();
        let sent = self.socket.get().and_then(|connection| fd_passing::send(connection, &message, &[socket]));
        sent.map_err(|error| self.talk(error))?;
        let deadline = clock::now() + PATIENCE;
        loop {
            let (answer, fds) = self.receive(deadline)?;
            match &answer {
                // An answer that came too late.
                Answer::Lent { request: other, ring, .. } if *other != request => {
                    let _ = self.end(*ring, false);
                }
                Answer::Refused { request: other, .. } if *other != request && *other != 0 => {}
                Answer::Lent { .. } if fds.len() != MEMORY_FDS => {
                    return Err(OwnerError::Message { path: self.path.clone(), error: BadMessage::Meaning });
                }
                _ => return Ok((answer, fds)),
            }
        }
    }

    fn receive(&self, deadline: Instant) -> Result<(Answer, Vec<OwnedFd>), OwnerError> {
        let mut bytes = vec![0; ANSWER_MAX];
        loop {
            match self.socket.get().and_then(|connection| fd_passing::receive(connection, &mut bytes)) {
                Ok(received) if received.len == 0 => {
                    return Err(self.talk(io::Error::from(io::ErrorKind::UnexpectedEof)));
                }
                Ok(received) => {
                    let answer = Answer::decode(&bytes[..received.len]);
                    let answer =
                        answer.map_err(|error| OwnerError::Message { path: self.path.clone(), error });
                    return answer.map(|answer| (answer, received.fds));
                }
                Err(Errno::AGAIN) => self.wait(deadline)?,
                Err(Errno::INTR) => {}
                Err(error) => return Err(self.talk(error)),
            }
        }
    }

    fn wait(&self, deadline: Instant) -> Result<(), OwnerError> {
        let left = deadline.nanos_since(clock::now());
        if left == 0 {
            return Err(self.talk(io::Error::from(io::ErrorKind::TimedOut)));
        }
        let left = Timespec { tv_sec: (left / 1_000_000_000) as i64, tv_nsec: (left % 1_000_000_000) as i64 };
        let socket = self.socket.get().map_err(|error| self.talk(error))?;
        match poll(&mut [PollFd::from_borrowed_fd(socket, PollFlags::IN)], Some(&left)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(self.talk(error)),
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

    /// Whether the owner is gone, as far as that has been asked within the last millisecond. It neither allocates nor waits.
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
