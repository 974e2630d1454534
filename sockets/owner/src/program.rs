//! A program that is connected.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::net::sockopt::{set_socket_passcred, set_socket_send_buffer_size};
use rustix::net::{Shutdown, shutdown};
use rustix::process::{PidfdFlags, pidfd_open};
use twinpath_attach::{LeasedInterface, SOCKETS_MAX};
use twinpath_sys::event_loop::{Watched, sleep};
use twinpath_sys::socket_kind::{Peer, peer};
use twinpath_sys::{clock, fd_passing, race};
use twinpath_time::{Duration, Instant};

use twinpath_host::aside;
use twinpath_leases::lending::message::{Answer, REFUSED_PAUSE, REQUEST_LEN, Request, Token};

/// A program keeps the memory of its rings for this time after its last lease has ended, as it makes the next lease
/// faster.
const UNUSED: Duration = Duration::from_secs(2);

/// A socket of a program that has a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ring {
    /// Its name on the connection.
    pub(crate) ring: u32,
    /// The lease's number on the interface; `None` if a former owner has given it.
    pub(crate) number: Option<u32>,
    /// The address that the socket is bound to.
    pub(crate) local: SocketAddr,
}

/// What came from a program.
pub(crate) enum Heard {
    Said(Request, Vec<OwnedFd>),
    /// Nothing more, for now.
    Nothing,
    /// It has ended, or closed the connection.
    Gone,
    /// Something that is not a message: why.
    Fault(String),
}

pub(crate) struct Program {
    /// No other program of this owner has it.
    pub(crate) number: u64,
    /// The process, as this one sees it; 0 if it does not.
    pub(crate) pid: i32,
    pub(crate) user: u32,
    /// The name that the process has at present, which it may choose.
    pub(crate) name: String,
    /// When it connected, or said something last.
    pub(crate) heard_at: Instant,
    /// What it has to show before anything else.
    pub(crate) shows: Option<Token>,
    /// It is not heard before.
    deaf_until: Instant,
    /// `None` once it is being closed.
    connection: Option<Watched<OwnedFd>>,
    /// Tells that the process has ended: another one may have the connection as well, if it was forked.
    alive: Option<Watched<OwnedFd>>,
    /// Its number on the interface, where its rings are; `None` before it has asked for one.
    pub(crate) process: Option<u32>,
    /// Frames that were put into rings of that number before.
    pub(crate) put_before: u64,
    /// Frames that were put into its rings when it had other numbers.
    pub(crate) put_earlier: u64,
    /// When it got that number, or gave its last ring back.
    pub(crate) unused_since: Instant,
    pub(crate) rings: Vec<Ring>,
    /// The ring of lease 0: those below it are of former owners, or of numbers that it had before.
    pub(crate) first_ring: u32,
    /// What former owners have given.
    former: Vec<Former>,
}

/// Keeps attached what a former owner has given to a program.
pub(crate) struct Former {
    /// The ring of its lease 0.
    pub(crate) first_ring: u32,
    pub(crate) links: Vec<OwnedFd>,
}

/// The same, to be passed on.
pub(crate) struct PassedLinks<'a> {
    pub(crate) first_ring: u32,
    pub(crate) links: Vec<BorrowedFd<'a>>,
}

impl Former {
    fn pass(&self) -> PassedLinks<'_> {
        PassedLinks { first_ring: self.first_ring, links: self.links.iter().map(OwnedFd::as_fd).collect() }
    }

    const fn has_given(&self, ring: &Ring) -> bool {
        ring.number.is_none() && ring.ring.wrapping_sub(self.first_ring) < SOCKETS_MAX
    }
}

impl Program {
    pub(crate) fn new(number: u64, connection: OwnedFd) -> io::Result<Self> {
        let Peer { process, user } = peer(&connection)?;
        let pid = process.map_or(0, |process| process.as_raw_nonzero().get());
        // Room for a few answers: the descriptors in those that a program does not read count for this process's user (unix(7)).
        set_socket_send_buffer_size(&connection, 0)?;
        // A child has the connection as well, but no part in it.
        set_socket_passcred(&connection, true)?;
        let alive = process.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let alive = alive.and_then(|process| Watched::readable(process).ok());
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        // It may be anything, and is shown on terminals.
        let name = name.trim_end().replace(|letter: char| letter.is_control(), "?");
        let connection = Some(Watched::readable(connection)?);
        let (process, rings, first_ring, former) = (None, Vec::new(), 0, Vec::new());
        let (heard_at, deaf_until) = (clock::now(), Instant::ZERO);
        Ok(Self {
            number,
            pid,
            user,
            name,
            heard_at,
            shows: None,
            deaf_until,
            connection,
            alive,
            process,
            put_before: 0,
            put_earlier: 0,
            unused_since: Instant::ZERO,
            rings,
            first_ring,
            former,
        })
    }

    /// One that a former owner has served.
    pub(crate) fn inherited(
        number: u64,
        connection: OwnedFd,
        former: Vec<Former>,
        rings: Vec<Ring>,
        first_ring: u32,
    ) -> io::Result<Self> {
        let mut program = Self::new(number, connection)?;
        (program.former, program.rings, program.first_ring) = (former, rings, first_ring);
        program.forget_former();
        Ok(program)
    }

    /// What another owner needs to serve it: its connection, and the links of all owners that have given it something.
    /// `None` if it has something that cannot be passed.
    pub(crate) fn pass<'a>(
        &'a self,
        interface: Option<&'a LeasedInterface>,
    ) -> Option<(BorrowedFd<'a>, Vec<PassedLinks<'a>>)> {
        let mut links: Vec<_> = self.former.iter().map(Former::pass).collect();
        // What none of its sockets has a lease of ends with this process.
        if let Some(interface) = interface.filter(|_| self.has_own_rings()) {
            links.push(PassedLinks { first_ring: self.first_ring, links: interface.links()? });
        }
        Some((self.connection.as_ref()?.get_ref().as_fd(), links))
    }

    /// What former owners have given is detached as soon as no program has a ring of it left. Each former owner has a
    /// program of its own in the kernel, which every frame passes.
    pub(crate) fn forget_former(&mut self) {
        let rings = &self.rings;
        self.former.retain(|former| rings.iter().any(|ring| former.has_given(ring)));
    }

    /// Its request was refused: what it says next is heard a little later.
    pub(crate) fn refused(&mut self) {
        self.deaf_until = clock::now() + REFUSED_PAUSE;
    }

    /// The first ring that this owner has not given.
    pub(crate) fn rings_after(&self) -> u32 {
        self.first_ring + if self.process.is_some() { SOCKETS_MAX } else { 0 }
    }

    /// Waits until it says something, or ends.
    pub(crate) async fn stirs(&self) {
        let said = async {
            let deaf = self.deaf_until.since(clock::now());
            if !deaf.is_zero() {
                sleep(deaf).await;
            }
            match &self.connection {
                Some(connection) => connection.until_readable().await,
                None => std::future::pending().await,
            }
        };
        let ended = async {
            match &self.alive {
                Some(process) => process.until_readable().await,
                None => std::future::pending().await,
            }
        };
        race!(said, ended);
    }

    /// What it says next.
    pub(crate) fn hear(&self) -> Heard {
        if self.alive.as_ref().is_some_and(has_ended) {
            return Heard::Gone;
        }
        let Some(connection) = &self.connection else { return Heard::Gone };
        let mut bytes = [0; REQUEST_LEN];
        let receive = |connection: &OwnedFd| Ok(fd_passing::receive_from_unknown(connection, &mut bytes)?);
        let received = match connection.try_read(receive) {
            Ok(received) => received,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Heard::Nothing,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Heard::Nothing,
            Err(_) => return Heard::Gone,
        };
        if received.len == 0 && received.fds.is_empty() {
            return Heard::Gone;
        }
        if received.process.is_some_and(|process| process != self.pid) {
            aside::close(received.fds);
            return Heard::Nothing;
        }
        match Request::decode(&bytes[..received.len]) {
            Ok(request) if !received.is_cut => Heard::Said(request, received.fds),
            Ok(_) => {
                aside::close(received.fds);
                Heard::Fault("it sent more than a message holds".to_owned())
            }
            Err(error) => {
                aside::close(received.fds);
                Heard::Fault(error.to_string())
            }
        }
    }

    /// Sends an answer. Returns whether it could be sent: a program that reads nothing has no use for more.
    pub(crate) fn answer(&self, answer: &Answer, descriptors: &[BorrowedFd<'_>]) -> bool {
        let Some(connection) = &self.connection else { return false };
        fd_passing::send(connection.get_ref(), &answer.encode(), descriptors).is_ok()
    }

    /// Shuts the connection down, so that the program hears immediately that it is no longer served; its descriptor is
    /// closed later. This holds in all processes that have the connection, so it must not be called for a program that
    /// a new owner has.
    pub(crate) fn hang_up(&self) {
        if let Some(connection) = &self.connection {
            let _ = shutdown(connection.get_ref(), Shutdown::Both);
        }
    }

    /// When its number is taken from it, as no socket of it has a lease; `None` if one has, or it has no number.
    pub(crate) fn gives_number_back_at(&self) -> Option<Instant> {
        (self.process.is_some() && !self.has_own_rings()).then(|| self.unused_since + UNUSED)
    }

    /// Whether a socket of it has a lease that this owner has given.
    pub(crate) fn has_own_rings(&self) -> bool {
        self.rings.iter().any(|ring| ring.number.is_some())
    }

    /// Sockets with a lease.
    pub(crate) fn socket_count(&self) -> usize {
        self.rings.len()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take().map(Watched::into_inner) else { return };
        // Unread messages of the program may hold descriptors, which are closed with the connection.
        aside::close(vec![connection]);
    }
}

fn has_ended(process: &Watched<OwnedFd>) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::from_borrowed_fd(process.get_ref().as_fd(), PollFlags::IN)], Some(&NOW)) == Ok(1)
}
