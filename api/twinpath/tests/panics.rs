//! Tests a service that panics: its connection is closed or its datagram dropped, and nothing else happens.
//! A thread that dies ends the process. While one hangs, other clients are served.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what it needs, and its service panics")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::Path as FilePath;
use std::process::{Child, Command, Stdio};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant as StdInstant};

use twinpath::{Answer, Datagram, Instant, Output, Path, Reason, Service};
use twinpath_sys::Namespace;
use twinpath_test_rig::{End, PATIENCE, pair, root_or_skip, within};

const SERVER: &str = "10.7.0.2";
const PORT: u16 = 7007;

/// Echoes lines and datagrams. `hang` does not return before another request says `release`. `panic`
/// panics. `die` panics in a way that cannot be caught: the panic's payload panics when it is dropped.
#[derive(Clone)]
struct Panics;

struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("nobody can drop this");
    }
}

static RELEASED: Mutex<bool> = Mutex::new(false);
static RELEASE: Condvar = Condvar::new();

fn obey(request: &[u8]) {
    match request {
        b"hang" => drop(RELEASE.wait_while(RELEASED.lock().unwrap(), |released| !*released)),
        b"release" => {
            *RELEASED.lock().unwrap() = true;
            RELEASE.notify_all();
        }
        b"panic" | b"panic\n" => panic!("asked to"),
        b"die" => std::panic::panic_any(Bomb),
        _ => {}
    }
}

impl Service for Panics {
    type Connection = ();

    fn datagram(&mut self, datagram: &mut Datagram<'_>) -> Answer {
        obey(datagram.request());
        datagram.echo()
    }

    fn accept(&mut self, _now: Instant, _peer: SocketAddr) -> Result<(), Reason> {
        Ok(())
    }

    fn stream(&mut self, _now: Instant, _: &mut (), input: &[u8], output: &mut Output<'_>) -> usize {
        let Some(end) = input.iter().position(|byte| *byte == b'\n') else { return 0 };
        obey(&input[..=end]);
        if output.write(&input[..=end]) { end + 1 } else { 0 }
    }
}

/// The server of the other test, which starts this program again to run it. On its own it tests nothing.
#[test]
fn serves() {
    let Ok(socket) = std::env::var("PANICS_SOCKET") else { return };
    let path = std::env::var("PANICS_PATH").unwrap().parse::<Path>().unwrap();
    twinpath::serve(Panics).on("vs").udp(PORT).tcp(PORT).path(path).socket(socket).run().unwrap();
}

struct Rig {
    client: Namespace,
    server: Namespace,
    child: Child,
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Rig {
    fn start(path: &str, socket: &FilePath) -> Self {
        let (client, server) = (Namespace::new().unwrap(), Namespace::new().unwrap());
        pair(End::new(&client, "vc", &["10.7.0.1/24"]), End::new(&server, "vs", &[&format!("{SERVER}/24")]));
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["serves", "--exact", "--nocapture"]);
        child.env("PANICS_SOCKET", socket).env("PANICS_PATH", path).stderr(Stdio::piped());
        within(&server, child.stdin(Stdio::null()));
        let child = child.spawn().unwrap();
        Self { client, server, child }
    }

    fn connect(&self) -> TcpStream {
        let begun = StdInstant::now();
        loop {
            match self.client.run(|| TcpStream::connect((SERVER, PORT))).unwrap() {
                Ok(stream) => {
                    stream.set_read_timeout(Some(PATIENCE)).unwrap();
                    return stream;
                }
                Err(error) => assert!(begun.elapsed() < PATIENCE, "{error}"),
            }
            std::thread::yield_now();
        }
    }

    fn udp(&self) -> UdpSocket {
        let socket = self.client.run(|| UdpSocket::bind(("10.7.0.1", 0))).unwrap().unwrap();
        socket.connect((SERVER, PORT)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    }
}

fn echoes(stream: &mut TcpStream) {
    stream.write_all(b"line\n").unwrap();
    let mut heard = [0; 5];
    stream.read_exact(&mut heard).expect("an echo in time");
    assert_eq!(&heard, b"line\n");
}

fn is_closed(stream: &mut TcpStream) -> bool {
    !matches!(stream.read(&mut [0; 16]), Ok(1..))
}

/// The instance's report on a topic.
fn show(socket: &FilePath, topic: &str) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.write_all(format!("{{\"show\":\"{topic}\"}}\n").as_bytes()).unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line
}

/// How often the service has panicked, according to the instance's report.
fn failed(socket: &FilePath) -> u64 {
    let line = show(socket, "drops");
    let Some(at) = line.find("handler_failed") else { return 0 };
    // {"count":2,"place":"worker 0","reason":"handler_failed"}
    let count = line[..at].rsplit("\"count\":").next().unwrap();
    count.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap()
}

#[test]
fn a_panic_closes_its_connection_and_a_dead_thread_ends_the_process_and_its_claims() {
    if !root_or_skip() {
        return;
    }
    for path in ["kernel", "packet"] {
        let directory = std::env::temp_dir().join(format!("panics-{}-{path}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let socket = directory.join("sock");
        let mut rig = Rig::start(path, &socket);
        let [mut stays, mut panics] = [(); 2].map(|()| rig.connect());
        let udp = rig.udp();
        let mut buffer = [0; 16];
        for round in 1..=3 {
            echoes(&mut stays);
            panics.write_all(b"panic\n").unwrap();
            assert!(is_closed(&mut panics), "{path}");
            udp.send(b"panic").unwrap();
            udp.send(b"datagram").unwrap();
            let len = udp.recv(&mut buffer).expect("an echo in time");
            assert_eq!(&buffer[..len], b"datagram", "{path}");
            echoes(&mut stays);
            assert_eq!(failed(&socket), 2 * round, "{path}");
            panics = rig.connect();
            echoes(&mut panics);
        }
        udp.send(b"die").unwrap();
        assert_eq!(rig.child.wait().unwrap().code(), Some(70), "{path}");
        let mut said = String::new();
        rig.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        let expected = "twinpath: thread worker-0 panicked: `nobody can drop this` at ";
        assert!(said.contains(expected) && said.contains("exit code 70"), "{said}");
        assert_eq!(said.matches("asked to").count(), 0, "one that is caught is not printed: {said}");
        assert!(is_closed(&mut stays) && is_closed(&mut panics), "{path}");
        // No claim is left: another socket can bind the port, and receives its datagrams.
        let plain = rig.server.run(|| UdpSocket::bind((SERVER, PORT))).unwrap().unwrap();
        plain.set_read_timeout(Some(PATIENCE)).unwrap();
        let last = b"to any listener";
        udp.send(last).ok();
        udp.send(last).unwrap();
        assert_eq!(plain.recv(&mut buffer).expect("it is not taken"), last.len(), "{path}");
        std::fs::remove_dir_all(&directory).unwrap();
    }
}

/// Repeats a request until it is answered. Answers to further copies of requests `before` may come late.
fn ask_until_answered(socket: &UdpSocket, request: &[u8], before: &[&[u8]]) {
    socket.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    let begun = StdInstant::now();
    let mut buffer = [0; 16];
    loop {
        socket.send(request).unwrap();
        if let Ok(len) = socket.recv(&mut buffer) {
            let answer = &buffer[..len];
            if answer == request {
                return;
            }
            assert!(before.contains(&answer), "{answer:?}");
        }
        assert!(begun.elapsed() < PATIENCE, "nobody answers");
    }
}

#[test]
fn while_a_call_hangs_others_are_served_and_its_late_answer_is_dropped() {
    if !root_or_skip() {
        return;
    }
    let directory = std::env::temp_dir().join(format!("hangs-{}", std::process::id()));
    std::fs::create_dir(&directory).unwrap();
    let socket = directory.join("sock");
    let mut rig = Rig::start("packet", &socket);
    let mut stays = rig.connect();
    echoes(&mut stays);
    let [hung, other] = [rig.udp(), rig.udp()];
    // The claims are in force once a request has arrived over the fast path.
    let begun = StdInstant::now();
    while show(&socket, "workers").contains("\"frames_in\":0") {
        ask_until_answered(&other, b"warm", &[]);
        assert!(begun.elapsed() < PATIENCE, "nothing is claimed");
    }
    hung.send(b"hang").unwrap();
    ask_until_answered(&other, b"through the ker", &[b"warm"]);
    echoes(&mut rig.connect());
    ask_until_answered(&other, b"release", &[b"warm", b"through the ker"]);
    echoes(&mut stays);
    // The answer to the dropped request would have arrived before this one's.
    ask_until_answered(&hung, b"later", &[]);
    drop(stays);
    rustix::process::kill_process(rustix::process::Pid::from_child(&rig.child), rustix::process::Signal::INT)
        .unwrap();
    assert!(rig.child.wait().unwrap().success());
    std::fs::remove_dir_all(&directory).unwrap();
}
