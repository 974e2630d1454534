//! Starts the owners of one program (`twinpath run`): for each interface, when the first process of that program connects. It waits for
//! connections and for the end of the program and its descendants, and for nothing else.

use std::fs;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::Child;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, getpeername, listen,
    socket_with, socketpair,
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use twinpath_lending::{CLIENT_NAME, Started};
use twinpath_sys::fd_passing;

/// Connections that may wait.
const BACKLOG: i32 = 64;

/// The library in programs, as it stands among the files that a process has mapped.
const LIBRARY: &str = "libtwinpath_preload";

/// The program that owners are started for.
#[derive(Clone, Debug)]
pub struct Family<'a> {
    /// The process that the program begins as.
    pub first: u32,
    /// The variable in the environment of its processes that names the starter, and its value.
    pub variable: (&'a str, &'a str),
}

/// An owner that was started.
struct Owner {
    interface: String,
    /// Connections are passed over it.
    passes: OwnedFd,
    child: Child,
}

/// The socket at which the processes of the program connect.
///
/// # Errors
/// What the system calls return.
pub fn listening(started: &Started) -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &SocketAddrUnix::new_abstract_name(started.name.as_bytes())?)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Starts owners until the program and all its descendants have ended. `start` starts one for an interface, which gets the connections
/// of its programs over the socket.
///
/// # Errors
/// What the system calls return; nobody is told, and the kernel serves the program.
pub fn run(
    listener: &OwnedFd,
    family: &Family<'_>,
    mut start: impl FnMut(&str, OwnedFd) -> io::Result<Child>,
) -> io::Result<()> {
    let mut owners: Vec<Owner> = Vec::new();
    let mut process = Pid::from_raw(family.first as i32).and_then(living);
    loop {
        let Some(waited) = process.take().or_else(|| another(family)) else { return Ok(()) };
        let mut waits = [PollFd::new(listener, PollFlags::IN), PollFd::new(&waited, PollFlags::IN)];
        match poll(&mut waits, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let [connects, ended] = [0, 1].map(|at: usize| !waits[at].revents().is_empty());
        if !ended {
            process = Some(waited);
        }
        owners.retain_mut(|owner| matches!(owner.child.try_wait(), Ok(None)));
        if connects
            && let Ok(connection) = accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
            && let Some(interface) = interface_of(&connection)
        {
            // If it cannot be passed on it is closed, and the kernel serves the program's sockets.
            let _ = pass(&mut owners, &interface, &connection, &mut start);
        }
    }
}

fn pass(
    owners: &mut Vec<Owner>,
    interface: &str,
    connection: &OwnedFd,
    start: &mut impl FnMut(&str, OwnedFd) -> io::Result<Child>,
) -> io::Result<()> {
    let known = owners.iter().position(|owner| owner.interface == interface);
    let at = match known {
        Some(at) => at,
        None => {
            let flags = SocketFlags::CLOEXEC;
            let (passes, gets) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
            let child = start(interface, gets)?;
            owners.push(Owner { interface: interface.to_owned(), passes, child });
            owners.len() - 1
        }
    };
    Ok(fd_passing::send(&owners[at].passes, b"+", &[connection.as_fd()])?)
}

/// The interface that a process of the program wants rings on: its end of the connection is named so.
fn interface_of(connection: &OwnedFd) -> Option<String> {
    let address = SocketAddrUnix::try_from(getpeername(connection).ok().flatten()?).ok()?;
    let name = std::str::from_utf8(address.abstract_name()?).ok()?;
    let (_, interface) = name.strip_prefix(CLIENT_NAME)?.split_once('/')?;
    let is_name = !interface.is_empty() && !interface.contains(['/', '\0']) && !interface.starts_with('-');
    is_name.then(|| interface.to_owned())
}

fn living(process: Pid) -> Option<OwnedFd> {
    pidfd_open(process, PidfdFlags::empty()).ok()
}

/// A process of the program that still lives. A process that begins meanwhile is a child of one that is found, or of one that ended after
/// it began: so it is looked twice.
fn another(family: &Family<'_>) -> Option<OwnedFd> {
    (0..2).find_map(|_| processes().find(|process| is_of(*process, family)).and_then(living))
}

fn processes() -> impl Iterator<Item = Pid> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw))
}

/// Whether a process has the library and was told of this starter. A program may overwrite its environment with a title: one of which
/// the variable cannot be read counts as well.
fn is_of(process: Pid, family: &Family<'_>) -> bool {
    let file =
        |name: &str| fs::read(format!("/proc/{}/{name}", process.as_raw_nonzero())).unwrap_or_default();
    let has = |bytes: &[u8], text: &str| bytes.windows(text.len()).any(|part| part == text.as_bytes());
    if !has(&file("maps"), LIBRARY) {
        return false;
    }
    let (variable, value) = family.variable;
    let environment = file("environ");
    has(&environment, &format!("{variable}={value}")) || !has(&environment, &format!("{variable}="))
}
