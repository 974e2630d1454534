//! What tests of programs share: a virtual link between two network namespaces, and a peer that sends everything back.

use std::net::UdpSocket;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use twinpath_sys::Namespace;
use twinpath_test_rig::{End, pair};

/// Longer than anything takes that comes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Longer than any program of the tests runs.
const LIMIT: Duration = Duration::from_secs(300);

/// Runs a command that must succeed.
pub(crate) fn run(command: &mut Command) {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
}

/// What a command says, which has to end within [`LIMIT`].
pub(crate) fn output_of(command: &mut Command) -> Output {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let id = child.id().to_string();
    let (ended, end) = mpsc::channel();
    let waits = std::thread::spawn(move || {
        let _ = ended.send(child.wait_with_output());
    });
    let output = end.recv_timeout(LIMIT).unwrap_or_else(|_| {
        // What it was doing is in the message of the test that fails.
        let stack = std::fs::read_to_string(format!("/proc/{id}/stack")).unwrap_or_default();
        let _ = Command::new("kill").args(["-KILL", &id]).status();
        panic!("{command:?} has not ended within {LIMIT:?}: {stack}");
    });
    waits.join().unwrap();
    output.unwrap()
}

/// Two namespaces: the program's, with `10.9.0.1` on `in0`, and the peer's, with `10.9.0.2`.
pub(crate) struct Link {
    pub(crate) ours: Namespace,
    pub(crate) peers: Namespace,
}

impl Link {
    pub(crate) fn new() -> Self {
        let [ours, peers] = [(); 2].map(|()| Namespace::new().unwrap());
        // The peer is told to stop by itself, so its loopback interface is up, too.
        pair(End::new(&ours, "in0", &["10.9.0.1/24"]), End::new(&peers, "out0", &["10.9.0.2/24"]));
        Self { ours, peers }
    }

    pub(crate) fn within<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        twinpath_test_rig::within(&self.ours, command)
    }
}

/// Sends everything back until it is dropped.
pub(crate) struct Echo {
    stop: UdpSocket,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Echo {
    pub(crate) fn new(link: &Link) -> Self {
        let socket = link.peers.run(|| UdpSocket::bind("10.9.0.2:9000").unwrap()).unwrap();
        let stop = socket.try_clone().unwrap();
        let thread = std::thread::spawn(move || {
            let mut buffer = [0; 2048];
            while let Ok((len, from)) = socket.recv_from(&mut buffer) {
                if from == socket.local_addr().unwrap() {
                    return;
                }
                // The program may have closed its socket.
                let _ = socket.send_to(&buffer[..len], from);
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        let address = self.stop.local_addr().unwrap();
        let _ = self.stop.send_to(b"stop", address);
        let _ = self.thread.take().unwrap().join();
    }
}
