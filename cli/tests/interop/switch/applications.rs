//! Tests of processes at a memory port that are killed at any moment, or write what they like into the shared memory.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use fastrand::Rng;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use twinpath_shm::{Application, MAGIC, VERSION};
use twinpath_sys::{EventFd, fd_passing};
use twinpath_test_rig::few_or_all;

use super::ports::undisturbed;
use super::{Site, terminate};
use crate::rig::{Server, until};
use crate::root_or_skip;

/// Where the application connects, for the process that is one.
const CONNECTS_TO: &str = "TWINPATH_TEST_KILLED_AT";
/// Whether it keeps to the rules of the ring.
const IS_HOSTILE: &str = "TWINPATH_TEST_IS_HOSTILE";

/// After so many killed processes the switch has all that it needs.
const SETTLED: u32 = 100;
/// By how much its memory may differ then, KiB: what an allocator keeps, and no region of a ring, of 1 MiB and more.
const NOISE_KIB: u64 = 1024;

/// A broadcast frame.
fn frame() -> Vec<u8> {
    [&[0xff; 6][..], &[2, 0, 0, 0, 0, 0xab, 0x88, 0xb5], &[0; 46]].concat()
}

/// Not a test but the process of an application: it says when it is connected, and sends until it is killed.
#[test]
fn an_application_until_it_is_killed() {
    let Some(path) = std::env::var_os(CONNECTS_TO) else { return };
    let path = Path::new(&path);
    if std::env::var_os(IS_HOSTILE).is_some() {
        return write_at_random(path);
    }
    // The port of the one before may not be free yet.
    let mut port = loop {
        if let Ok(port) = Application::connect(path) {
            break port;
        }
    };
    say_so();
    let mut into = [0; 2048];
    loop {
        let _ = port.send(&frame());
        port.flush();
        while port.receive(&mut into).is_some() {}
    }
}

fn say_so() {
    std::io::stdout().write_all(b"\nconnected\n").expect("written");
    std::io::stdout().flush().expect("written");
}

/// Takes the memory as an application does, and then writes into any of its words, and signals the owner.
fn write_at_random(path: &Path) {
    let (memory, signals) = loop {
        if let Some(end) = memory_of(path) {
            break end;
        }
    };
    say_so();
    let len = memory.metadata().expect("a length").len();
    let mut random = Rng::new();
    loop {
        // The words in front, which both sides read all the time, more often than the slots.
        let place = if random.bool() { random.u64(..4096) } else { random.u64(..len) } & !7;
        let value = if random.bool() { random.u64(..) } else { random.u64(..4096) };
        let _ = memory.write_at(&value.to_ne_bytes(), place);
        signals.signal();
    }
}

/// The memory of a port, and the descriptor that wakes its owner; `None` if it is not to be had now.
fn memory_of(path: &Path) -> Option<(File, EventFd)> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).ok()?;
    connect(&socket, &SocketAddrUnix::new(path).ok()?).ok()?;
    let message = [&MAGIC.to_ne_bytes()[..], &VERSION.to_ne_bytes(), &[0; 4]].concat();
    fd_passing::send(&socket, &message, &[]).ok()?;
    let received = fd_passing::receive(&socket, &mut [0; 64]).ok()?;
    let [memory, _, signals]: [OwnedFd; 3] = received.fds.try_into().ok()?;
    // Its end would hang up the port.
    std::mem::forget(socket);
    Some((File::from(memory), EventFd::from_fd(signals)))
}

/// Starts one, and waits until it is connected.
fn connected(path: &str, is_hostile: bool) -> Child {
    let own = std::env::current_exe().expect("this program");
    let name = "switch::applications::an_application_until_it_is_killed";
    let mut command = Command::new(own);
    command.args([name, "--exact", "--nocapture"]).env(CONNECTS_TO, path);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    if is_hostile {
        command.env(IS_HOSTILE, "yes");
    }
    let mut child = command.spawn().expect("it runs");
    let (mut said, mut byte) = (Vec::new(), [0]);
    let stdout = child.stdout.as_mut().expect("piped");
    while !said.ends_with(b"connected\n") {
        stdout.read_exact(&mut byte).expect("it says when it is connected");
        said.push(byte[0]);
    }
    child
}

fn kill(mut child: Child) {
    child.kill().expect("it runs");
    child.wait().expect("it ends");
}

/// Open descriptors, and memory in use, KiB.
fn used(switch: &Server) -> (usize, u64) {
    let process = format!("/proc/{}", switch.pid().as_raw_nonzero());
    let descriptors = std::fs::read_dir(format!("{process}/fd")).expect("it runs").count();
    let status = std::fs::read_to_string(format!("{process}/status")).expect("it runs");
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let resident = resident.and_then(|line| line.split_whitespace().next()?.parse().ok());
    (descriptors, resident.expect("a figure"))
}

#[test]
fn hundreds_of_applications_are_killed_and_the_switch_keeps_nothing_of_them() {
    if !root_or_skip() {
        return;
    }
    let site = Site::new(2);
    let switch = site.switch(&["sw0", "--port", "p1", "--port", "p2", "--port", "memory:app1"]);
    let path = site.rig.directory.path().join("ports/sw0-app1").display().to_string();
    let is_free = || super::port(&switch, "memory:app1")["link"] == "waiting";
    let mut random = Rng::with_seed(15);
    let mut settled = (0, 0);
    // What is kept of each shows after the first that follow; a moment of the loop that matters is hit more often by more.
    for number in 0..few_or_all(3 * SETTLED, 10 * SETTLED) {
        let application = connected(&path, false);
        // Anywhere in its loop.
        (0..random.u32(..2000)).for_each(|_| std::hint::spin_loop());
        kill(application);
        if number % SETTLED == 0 {
            site.passes(1, 2);
        }
        if number == SETTLED {
            until("the port waits for the next one", is_free);
            settled = used(&switch);
        }
    }
    until("the port waits for the next one", is_free);
    // One that is being closed may still be counted for a moment.
    until("no descriptor is left of them", || used(&switch).0 <= settled.0);
    let (_, resident) = used(&switch);
    assert!(resident <= settled.1 + NOISE_KIB, "{} KiB, and {resident} KiB in the end", settled.1);
    assert_eq!(switch.drops("peer_fault"), 0, "one that dies breaks no rule");
    site.passes(1, 2);
    assert_eq!(terminate(switch), Some(0));
}

#[test]
fn an_application_that_writes_at_random_breaks_its_own_port_only() {
    if !root_or_skip() {
        return;
    }
    let site = Site::new(2);
    let switch = site.switch(&["sw0", "--port", "p1", "--port", "p2", "--port", "memory:app1"]);
    let path = site.rig.directory.path().join("ports/sw0-app1").display().to_string();
    undisturbed(&site, 1, 2, || {
        for _ in 0..20 {
            let application = connected(&path, true);
            until("its port is found broken", || switch.drops("peer_fault") > 0);
            kill(application);
        }
        // The next one gets memory that nobody has written to.
        let application = connected(&path, false);
        let before = switch.drops("peer_fault");
        until("its frames are carried", || super::figure(&switch, "memory:app1", "frames_in") > 1000);
        assert_eq!(switch.drops("peer_fault"), before);
        kill(application);
    });
    assert_eq!(terminate(switch), Some(0));
}
