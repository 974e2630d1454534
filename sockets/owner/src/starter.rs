//! Starts the owners of one program (`twinpath run`): for each interface, when the first process of that program connects. It waits for
//! connections and for the end of the program and its descendants, and for nothing else.

use std::fs;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::Child;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_passcred;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, getpeername, listen,
    socket_with, socketpair,
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use twinpath_sys::fd_passing;

use twinpath_leases::lending::{CLIENT_NAME, Started};

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
    // Connections inherit it from their listener (unix_sock_inherit_flags, net/unix/af_unix.c): an owner has to know
    // who has sent what came before it got the connection.
    set_socket_passcred(&socket, true)?;
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

/// A process of the program that still lives. A process that begins meanwhile is a child of one that is found, or of
/// one that ended after it began. So the processes are searched twice.
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

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use rustix::net::connect;

    use super::*;
    use twinpath_leases::lending::message::TOKEN_LEN;

    const PATIENCE: Duration = Duration::from_secs(30);

    /// A process of the program, by its end of a connection.
    fn connected(to: &Started, interface: &str) -> OwnedFd {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        let name = format!("{CLIENT_NAME}{:x}-{number}/{interface}", std::process::id());
        bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap()).unwrap();
        connect(&socket, &SocketAddrUnix::new_abstract_name(to.name.as_bytes()).unwrap()).unwrap();
        socket
    }

    #[test]
    fn one_owner_is_started_for_each_interface_and_all_ends_with_the_program() {
        let started =
            Started { name: format!("twinpath-test-{}", std::process::id()), token: [7; TOKEN_LEN] };
        let listener = listening(&started).unwrap();
        let mut program = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let first = program.id();
        let (tell, told) = mpsc::channel();
        let starter = thread::spawn(move || {
            let family =
                Family { first, variable: (twinpath_leases::rules::OWNER_VARIABLE, "nobody has it") };
            let start = |interface: &str, gets: OwnedFd| {
                tell.send((interface.to_owned(), gets)).unwrap();
                Command::new("cat").stdin(Stdio::piped()).spawn()
            };
            run(&listener, &family, start)
        });
        let _connections = ["if0", "if1", "if0"].map(|interface| connected(&started, interface));
        let owners = [told.recv_timeout(PATIENCE).unwrap(), told.recv_timeout(PATIENCE).unwrap()];
        assert_eq!([&owners[0].0, &owners[1].0], ["if0", "if1"]);
        // Both connections of the first interface are passed to its owner.
        for _ in 0..2 {
            let received = fd_passing::receive(&owners[0].1, &mut [0; 8]).unwrap();
            assert_eq!((received.len, received.fds.len()), (1, 1));
        }
        drop(program.stdin.take());
        program.wait().unwrap();
        starter.join().unwrap().unwrap();
        // The socket that passes connections is closed: so the owner hears that no program comes any more.
        assert!(told.recv().is_err());
        assert_eq!(fd_passing::receive(&owners[0].1, &mut [0; 8]).unwrap().len, 0);
    }

    #[test]
    fn what_is_no_name_of_an_interface_starts_nothing() {
        let started =
            Started { name: format!("twinpath-names-{}", std::process::id()), token: [7; TOKEN_LEN] };
        let listener = listening(&started).unwrap();
        for name in ["", "-x", "a/b"] {
            let _connection = connected(&started, name);
            let accepted = accept_with(&listener, SocketFlags::CLOEXEC).unwrap();
            assert_eq!(interface_of(&accepted), None, "{name}");
        }
    }
}
