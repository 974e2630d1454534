//! Applications in processes of their own: this test binary again, told by a variable what to be.

use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_setfl, fstat};
use rustix::io::pwrite;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use twinpath_inspect::Reason;
use twinpath_port::{PortCounters, PortId};
use twinpath_shm::{Application, MAGIC, Offer, OfferError, VERSION};
use twinpath_sys::child::{Placement, place};
use twinpath_sys::fd_passing;

use crate::rig::wait_for;

const ROLE: &str = "TWINPATH_TEST_SHM_PEER";

/// What the application does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// Sends back what comes; sleeps in between.
    Sleeping,
    /// The same, without sleeping.
    Spinning,
    /// Nonsense into every byte of the memory; its descriptors are misused too.
    NonsenseEverywhere,
    /// Moves its positions as it should, and writes nonsense into the slots meanwhile.
    NonsenseInSlots,
    /// Nothing.
    Mute,
}

const KINDS: [Kind; 5] =
    [Kind::Sleeping, Kind::Spinning, Kind::NonsenseEverywhere, Kind::NonsenseInSlots, Kind::Mute];

/// An application, and what the owner knows of it.
pub(crate) struct Peer {
    pub(crate) id: PortId,
    counters: Arc<PortCounters>,
    connection: OwnedFd,
    process: Child,
}

impl Peer {
    pub(crate) fn start(
        kind: Kind,
        seed: u64,
        id: PortId,
        counters: Arc<PortCounters>,
        offer: &Offer,
    ) -> Self {
        let flags = SocketFlags::CLOEXEC;
        let (connection, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a pair");
        let mut command = Command::new(std::env::current_exe().expect("this binary"));
        command.args(["--exact", "peer::application", "--nocapture", "--test-threads=1"]);
        command.env(ROLE, format!("{} {seed}", kind as usize));
        command.stdin(Stdio::from(theirs)).stdout(Stdio::piped());
        place(&mut command, Placement::default()).expect("placed");
        let mut process = command.spawn().expect("started");
        while let Err(refused) = offer.answer(&connection) {
            assert!(matches!(refused, OfferError::Silent), "{refused}");
            wait_for(&connection);
        }
        // Whatever the test harness prints goes before it.
        let mut output = process.stdout.take().expect("piped");
        let mut said = Vec::new();
        while !said.ends_with(b"serving\n") {
            let mut byte = [0];
            output.read_exact(&mut byte).expect("it serves");
            said.push(byte[0]);
        }
        Self { id, counters, connection, process }
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill().expect("it lived");
        self.process.wait().expect("it is gone");
    }

    /// Whether control learns of the end. Not at once: a process that another test is just starting has a copy of the other
    /// end until it runs its program.
    pub(crate) fn hangs_up(&self) -> bool {
        let patience = Timespec { tv_sec: 20, tv_nsec: 0 };
        let mut fds = [PollFd::new(&self.connection, PollFlags::IN)];
        poll(&mut fds, Some(&patience)).expect("poll");
        fds[0].revents().contains(PollFlags::HUP)
    }

    pub(crate) fn drops(&self, reason: Reason) -> u64 {
        self.counters.drops.get(reason)
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What the processes run. As a test of this one it does nothing.
#[test]
fn application() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let (kind, seed) = role.split_once(' ').expect("kind and seed");
    let kind = KINDS[kind.parse::<usize>().expect("a kind")];
    let seed: u64 = seed.parse().expect("a seed");
    let connection = std::io::stdin().as_fd().try_clone_to_owned().expect("the connection");
    let serving = || {
        let mut output = std::io::stdout();
        output.write_all(b"serving\n").and_then(|()| output.flush()).expect("told");
    };
    match kind {
        Kind::Sleeping | Kind::Spinning => {
            let mut application = Application::over(connection).expect("connected");
            serving();
            loop {
                send_back(&mut application);
                if matches!(kind, Kind::Sleeping) {
                    application.wait(None).expect("waits");
                }
            }
        }
        Kind::NonsenseEverywhere | Kind::NonsenseInSlots => nonsense(&connection, kind, seed, serving),
        Kind::Mute => {
            let application = Application::over(connection).expect("connected");
            serving();
            // Nothing comes: the owner says no more on the connection.
            let _ = rustix::event::poll(&mut [], None);
            drop(application);
        }
    }
}

fn send_back(application: &mut Application) {
    let mut frame = [0; 2048];
    while let Some(packet) = application.receive(&mut frame) {
        let packet = packet.expect("the owner is sound");
        // A full ring means that the worker has yet to come: the test sends no more than it holds.
        let _ = application.send(&frame[..packet.len]);
        application.flush();
    }
}

fn nonsense(connection: &OwnedFd, kind: Kind, seed: u64, serving: impl FnOnce()) {
    let mut hello = [0; 16];
    hello[..8].copy_from_slice(&MAGIC.to_ne_bytes());
    hello[8..12].copy_from_slice(&VERSION.to_ne_bytes());
    fd_passing::send(connection, &hello, &[]).expect("said");
    let received = fd_passing::receive(connection, &mut [0; 16]).expect("answered");
    let [memory, waits_on, signals]: [OwnedFd; 3] = received.fds.try_into().expect("three descriptors");
    // A sound application over the same memory, from ourselves.
    let (near, far) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("a pair");
    fd_passing::send(&near, &hello, &[memory.as_fd(), waits_on.as_fd(), signals.as_fd()]).expect("sent");
    let mut application = Application::over(far).expect("connected");
    fcntl_setfl(&signals, OFlags::empty()).expect("blocking");
    serving();
    let len = fstat(&memory).expect("its size").st_size as u64;
    let ring = (len - 4096) / 2;
    let mut random = fastrand::Rng::with_seed(seed);
    loop {
        let mut nonsense = [0; 64];
        random.fill(&mut nonsense);
        let bytes = &nonsense[..random.usize(1..64)];
        match kind {
            Kind::NonsenseEverywhere => {
                // Every byte; and every other time the few that matter most.
                let words = [0, 128, 256, 384].map(|at| 4096 + at + ring * random.u64(..2));
                let at = if random.bool() { random.u64(..len - 64) } else { words[random.usize(..4)] };
                pwrite(&memory, bytes, at).expect("written");
                let _ = rustix::io::write(&signals, &random.u64(..1 << 20).to_ne_bytes());
            }
            _ => {
                // The slots of the ring that the owner reads.
                pwrite(&memory, bytes, 4096 + ring + random.u64(384..ring - 64)).expect("written");
                let _ = application.send(bytes);
                application.flush();
                let _ = application.receive(&mut [0; 64]);
            }
        }
    }
}
