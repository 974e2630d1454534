//! Passes all programs of a running owner to a new one, which goes on where it was: their connections, and the links that keep the
//! kernel's programs attached. Nothing is detached, so programs notice nothing, and nothing is lost.
//!
//! While a new owner has them, this one reads nothing of programs: what they ask waits in their connections. It ends when the new one
//! says that it serves. If that closes the connection instead, this one goes on.

use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use twinpath_observe::command::{self as command, Request};
use twinpath_sys::event_loop::Watched;
use twinpath_sys::fd_passing::{self, FDS_MAX};

use crate::program::{self, Program, Ring};
use crate::{Owner, OwnerError};
use twinpath_host::Door;

/// What the new owner says when it serves.
const SERVING: &[u8] = b"serving\n";

/// What is passed beside descriptors. The descriptors follow in this order: the listening socket, and for each program its
/// connection and its links.
#[derive(Serialize, Deserialize)]
struct Passed {
    interface: String,
    listen: PathBuf,
    programs: Vec<PassedProgram>,
}

#[derive(Serialize, Deserialize)]
struct PassedProgram {
    /// For each owner that has given something: the ring of its lease 0, and the number of its links.
    links: Vec<(u32, usize)>,
    rings: Vec<(u32, SocketAddr)>,
    next_ring: u32,
}

impl Passed {
    fn descriptors(&self) -> usize {
        let of_program = |program: &PassedProgram| {
            let links = program.links.iter().map(|(_, links)| *links);
            links.fold(1, usize::saturating_add)
        };
        self.programs.iter().map(of_program).fold(1, usize::saturating_add)
    }
}

/// The new owner that has got the programs.
pub(crate) struct Taker {
    stream: UnixStream,
    speaks: Watched<OwnedFd>,
}

impl Taker {
    /// Waits until it says something, or ends.
    pub(crate) async fn speaks(&self) {
        self.speaks.until_readable().await
    }
}

/// The former owner, until this one serves.
pub(crate) struct Former {
    stream: UnixStream,
    pub(crate) door: Door,
    pub(crate) programs: Vec<Program>,
}

impl Owner {
    /// Answers another owner that asks for the programs.
    pub(crate) fn hand_over(&mut self, stream: UnixStream) {
        if let Err(why) = self.pass_all(&stream) {
            tracing::warn!("the programs are not handed over: {why}");
            let _ = (&stream).write_all(&command::refusal(&why));
            return;
        }
        let speaks = stream.try_clone().and_then(|stream| Watched::readable(stream.into()));
        match speaks {
            Ok(speaks) => self.taker = Some(Taker { stream, speaks }),
            Err(error) => tracing::warn!("cannot hand over: {error}"),
        }
    }

    fn pass_all(&self, stream: &UnixStream) -> Result<(), String> {
        if self.taker.is_some() {
            return Err("another owner is taking over already".to_owned());
        }
        let mut descriptors = vec![self.door.as_fd()];
        let mut programs = Vec::new();
        for program in &self.programs {
            let (connection, links) = program.pass(self.leased.as_ref()).ok_or(
                "this kernel has no BPF links at tc (Linux 6.6): what programs have ends with this process; restart it, and they run by the \
                 kernel",
            )?;
            let rings = program.rings.iter().map(|ring| (ring.ring, ring.local)).collect();
            let counts = links.iter().map(|of| (of.first_ring, of.links.len())).collect();
            programs.push(PassedProgram { links: counts, rings, next_ring: program.rings_after() });
            descriptors.push(connection);
            descriptors.extend(links.into_iter().flat_map(|of| of.links));
        }
        let (interface, listen) = (self.plan.interface.clone(), self.door.path().to_owned());
        let passed = serde_json::to_value(Passed { interface, listen, programs })
            .map_err(|error| error.to_string())?;
        let send = |some: &[BorrowedFd<'_>]| fd_passing::send(stream, b"+", some).map_err(io::Error::from);
        (&mut &*stream)
            .write_all(&command::answer_line(passed))
            .and_then(|()| descriptors.chunks(FDS_MAX).try_for_each(send))
            .map_err(|error| error.to_string())
    }

    /// The new owner has said something, or ended. Returns whether this one goes on.
    pub(crate) fn taker_spoke(&mut self) -> bool {
        let Some(mut taker) = self.taker.take() else { return true };
        let mut said = [0; SERVING.len()];
        // It says all of it at once.
        let read = taker.stream.set_nonblocking(true).and_then(|()| taker.stream.read(&mut said));
        if read.is_ok_and(|len| len == SERVING.len()) && said == *SERVING {
            tracing::info!("another owner has taken over");
            self.door.leave();
            return false;
        }
        tracing::warn!("the owner that was to take over does not serve: this one goes on");
        true
    }
}

/// The programs of the owner with this command socket.
pub(crate) fn take_over(from: &Path, interface: &str) -> Result<Former, OwnerError> {
    let failed = |why: String| OwnerError::TakeOver { from: from.to_owned(), why };
    let received = command::receive(from, &Request::Sockets, Passed::descriptors);
    let (stream, passed, descriptors) = received.map_err(|error| failed(error.to_string()))?;
    if passed.interface != interface {
        return Err(failed(format!("it owns {}, not {interface}", passed.interface)));
    }
    let mut descriptors = descriptors.into_iter();
    let mut next = || descriptors.next().ok_or_else(|| failed("descriptors are missing".to_owned()));
    let door = Door::inherited(&passed.listen, next()?).map_err(OwnerError::Door)?;
    let mut programs = Vec::new();
    for (number, of) in (0..).zip(passed.programs) {
        let connection = next()?;
        let mut former = Vec::new();
        for (first_ring, count) in of.links {
            let links = (0..count).map(|_| next()).collect::<Result<_, _>>()?;
            former.push(program::Former { first_ring, links });
        }
        let rings = of.rings.into_iter().map(|(ring, local)| Ring { ring, number: None, local }).collect();
        let program = Program::inherited(number, connection, former, rings, of.next_ring);
        programs.push(program.map_err(OwnerError::Control)?);
    }
    Ok(Former { stream, door, programs })
}

impl Former {
    /// Says that this owner serves: the former one ends.
    pub(crate) fn ends(stream: &UnixStream) -> io::Result<()> {
        (&mut &*stream).write_all(SERVING)
    }

    /// The connection to the former owner, the door, and the programs.
    pub(crate) fn into_parts(self) -> (UnixStream, Door, Vec<Program>) {
        (self.stream, self.door, self.programs)
    }
}
