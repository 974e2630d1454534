//! Tests instances that run beside the rest of a program: without privileges, several at a time.
#![allow(clippy::unwrap_used, reason = "a test says what it needs")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use twinpath::{
    Answer, Begin, Builder, ConnectionId, CounterId, Datagram, Echo, Error, HistogramId, Instant, Mode,
    Output, Path, Reason, ReasonId, SendHandle, Service, ServiceCounters,
};

const PATIENCE: Duration = Duration::from_secs(60);

/// Answers whole lines, in capitals.
#[derive(Clone)]
struct Louder;

impl Service for Louder {
    type Connection = ();

    fn datagram(&mut self, datagram: &mut Datagram<'_>) -> Answer {
        let louder = datagram.request().to_ascii_uppercase();
        datagram.answer(&louder)
    }

    fn accept(&mut self, _now: Instant, _peer: SocketAddr) -> Result<(), Reason> {
        Ok(())
    }

    fn stream(&mut self, _now: Instant, _: &mut (), input: &[u8], output: &mut Output<'_>) -> usize {
        let Some(end) = input.iter().position(|byte| *byte == b'\n') else { return 0 };
        if output.write(&input[..=end].to_ascii_uppercase()) { end + 1 } else { 0 }
    }
}

/// Serves through the kernel's sockets: the loopback interface of this host is not changed.
fn quiet(builder: Builder) -> Builder {
    builder.on("lo").path(Path::Kernel).mode(Mode::Interrupt)
}

fn ask(port: u16, request: &[u8]) -> Vec<u8> {
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.send_to(request, ("127.0.0.1", port)).unwrap();
    let mut reply = vec![0; 2048];
    let (len, _) = client.recv_from(&mut reply).unwrap();
    reply.truncate(len);
    reply
}

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn say(stream: &mut TcpStream, request: &[u8]) -> Vec<u8> {
    stream.write_all(request).unwrap();
    let mut reply = vec![0; request.len()];
    stream.read_exact(&mut reply).unwrap();
    reply
}

#[test]
fn ports_that_the_kernel_chose_are_told_and_served() {
    let running = quiet(twinpath::serve(Louder).named("louder").udp(0).tcp(0)).workers(2).spawn().unwrap();
    let (udp, tcp) = (running.udp_port().unwrap(), running.tcp_port().unwrap());
    assert!(udp != 0 && tcp != 0);
    assert_eq!(ask(udp, b"hello"), b"HELLO");
    let mut streams: Vec<_> = (0..8).map(|_| connect(tcp)).collect();
    for stream in &mut streams {
        assert_eq!(say(stream, b"good day\n"), b"GOOD DAY\n");
    }
    let report = running.report().unwrap();
    assert_eq!(report.instance.ports, [format!("udp/{udp}"), format!("tcp/{tcp}")]);
    assert_eq!((report.services[0].serve.kernel_requests, report.services[0].tcp.accepted), (1, 8));
    assert!(running.socket().exists());
    let socket = running.socket().to_owned();
    drop(streams);
    assert_eq!(running.drain(PATIENCE).unwrap().cut_off, 0);
    assert!(!socket.exists());
    assert!(TcpStream::connect(("127.0.0.1", tcp)).is_err());
}

#[test]
fn several_services_and_instances_are_in_one_process() {
    let two = |first: &str| {
        let services = twinpath::serve(Louder).named(first).udp(0).and(Echo).named("echo").udp(0).tcp(0);
        quiet(services).spawn().unwrap()
    };
    let instances = [two("louder"), two("still-louder")];
    for running in &instances {
        let [louder, echo] = running.services() else { panic!("{:?}", running.services()) };
        assert_eq!((louder.tcp, echo.service.as_str()), (None, "echo"));
        assert_eq!(ask(louder.udp.unwrap(), b"hello"), b"HELLO");
        assert_eq!(ask(echo.udp.unwrap(), b"hello"), b"hello");
        assert_eq!(say(&mut connect(echo.tcp.unwrap()), b"hello"), b"hello");
    }
    assert_ne!(instances[0].socket(), instances[1].socket());
    let [first, second] = instances;
    let port = second.udp_port().unwrap();
    first.drain(PATIENCE).unwrap();
    assert_eq!(ask(port, b"still there"), b"STILL THERE");
}

#[test]
fn a_drain_waits_for_what_is_asked_and_cuts_off_what_takes_too_long() {
    let begin = || quiet(twinpath::serve(Louder).tcp(0)).spawn().unwrap();
    let (running, patient) = (begin(), begin());
    let mut half = connect(running.tcp_port().unwrap());
    // The service has received this line, and waits for the rest of the second one.
    assert_eq!(say(&mut half, b"one\n"), b"ONE\n");
    half.write_all(b"tw").unwrap();
    let mut idle = connect(patient.tcp_port().unwrap());
    assert_eq!(say(&mut idle, b"one\n"), b"ONE\n");
    drop(idle);
    assert_eq!(patient.drain(PATIENCE).unwrap().cut_off, 0);
    drop(running);
    // Dropping it has closed the connection, after the answers that were ready.
    let mut rest = Vec::new();
    let _ = half.read_to_end(&mut rest);
    assert!(rest.is_empty(), "{rest:?}");
}

#[test]
fn a_file_is_read_again_and_what_the_program_has_set_stays() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("service.toml");
    std::fs::write(&file, "[interface]\nname = \"nosuch0\"\n[limits]\nidle_timeout_s = 7\n").unwrap();
    let running = quiet(twinpath::serve(Louder).file(&file).udp(0).tcp(0)).spawn().unwrap();
    let ports = running.services().to_vec();
    assert_eq!(running.reload().unwrap(), Vec::<String>::new());
    std::fs::write(&file, "[limits]\nidle_timeout_s = 8\n").unwrap();
    let changed = running.reload().unwrap();
    assert!(changed.len() == 1 && changed[0].contains("idle_timeout_s"), "{changed:?}");
    assert_eq!(ask(ports[0].udp.unwrap(), b"hello"), b"HELLO");
    assert_eq!(say(&mut connect(ports[0].tcp.unwrap()), b"hello\n"), b"HELLO\n");
    std::fs::write(&file, "[limits]\nidle_timeout_s = \"long\"\n").unwrap();
    let Err(Error::NotReloaded(why)) = running.reload() else { panic!("it is no number") };
    assert!(why.contains("service.toml:2: limits.idle_timeout_s"), "{why}");
    assert_eq!(running.services(), ports);
}

#[test]
fn what_cannot_start_says_why_and_leaves_nothing() {
    let held = UdpSocket::bind("[::]:0").unwrap();
    let port = held.local_addr().unwrap().port();
    let error = quiet(twinpath::serve(Louder).udp(port)).spawn().unwrap_err().to_string();
    assert!(error.contains(&format!("UDP port {port}")) || error.contains(&port.to_string()), "{error}");
    let error = twinpath::serve(Louder).udp(0).spawn().unwrap_err().to_string();
    assert!(error.contains("which interface?"), "{error}");
    let twice = quiet(twinpath::serve(Louder).named("a").udp(7).and(Louder).named("b").udp(7));
    let error = twice.spawn().unwrap_err().to_string();
    assert!(error.contains("served by `a` already"), "{error}");
    let unserved = quiet(twinpath::serve(Louder).named("a").udp(0).and(Louder).named("b"));
    let error = unserved.spawn().unwrap_err().to_string();
    assert!(error.contains("what is to be served by `b`?"), "{error}");
}

/// Greets each connection, tells the test its name and the handle of its worker, and sends a sign of life
/// every 50 ms.
#[derive(Clone)]
struct Greeter {
    tell: Sender<(SendHandle, ConnectionId)>,
    sender: Option<SendHandle>,
}

const INTERVAL: Duration = Duration::from_millis(50);

impl Service for Greeter {
    type Connection = ();

    fn start(&mut self, _now: Instant, begin: &Begin) {
        self.sender.clone_from(&begin.sender);
    }

    fn accept(&mut self, _now: Instant, _peer: SocketAddr) -> Result<(), Reason> {
        Ok(())
    }

    fn opened(&mut self, now: Instant, _: &mut (), output: &mut Output<'_>) {
        assert!(output.write(b"hello\n"));
        output.wake_at(now + INTERVAL);
        let sender = self.sender.clone().expect("it sends later");
        self.tell.send((sender, output.connection())).expect("the test listens");
    }

    fn woken(&mut self, now: Instant, _: &mut (), output: &mut Output<'_>) {
        assert!(output.write(b"alive\n"));
        output.wake_at(now + INTERVAL);
    }

    fn sends_later(&self) -> bool {
        true
    }
}

#[test]
fn connections_are_greeted_woken_and_written_to_from_other_threads() {
    let (tell, told) = channel();
    let service = Greeter { tell, sender: None };
    let running = quiet(twinpath::serve(service).tcp(0)).workers(2).spawn().unwrap();
    let port = running.tcp_port().unwrap();
    let mut clients: Vec<_> = (0..6).map(|_| connect(port)).collect();
    for (sender, connection) in told.iter().take(clients.len()) {
        std::thread::spawn(move || sender.send_on(connection, b"from afar\n").unwrap()).join().unwrap();
    }
    for client in &mut clients {
        let mut heard = String::new();
        while !(heard.contains("from afar\n") && heard.matches("alive\n").count() >= 2) {
            let mut bytes = [0; 256];
            let len = client.read(&mut bytes).unwrap();
            assert!(len > 0, "{heard}");
            heard.push_str(std::str::from_utf8(&bytes[..len]).unwrap());
        }
        assert!(heard.starts_with("hello\n"), "{heard}");
        assert_eq!(heard.matches("from afar\n").count(), 1);
    }
    drop(clients);
    running.drain(PATIENCE).unwrap();
}

/// Counts requests, and refuses some.
struct Counting {
    counters: Arc<ServiceCounters>,
    asked: CounterId,
    took: HistogramId,
    empty: ReasonId,
    longest: Arc<AtomicUsize>,
}

impl Counting {
    fn new(longest: &Arc<AtomicUsize>) -> Self {
        let mut counters = ServiceCounters::default();
        let asked = counters.own.counter("asked", "Datagrams that were not empty.");
        let took = counters.own.histogram("took", "How long an answer took.");
        let empty = counters.own.reason("empty_or_long", "The datagram was empty or too long.");
        Self { counters: Arc::new(counters), asked, took, empty, longest: Arc::clone(longest) }
    }
}

/// Each worker's clone has counters of its own.
impl Clone for Counting {
    fn clone(&self) -> Self {
        Self::new(&self.longest)
    }
}

impl Service for Counting {
    type Connection = ();

    fn start(&mut self, _now: Instant, begin: &Begin) {
        assert!(begin.worker < 2 && begin.sender.is_none());
    }

    fn datagram(&mut self, datagram: &mut Datagram<'_>) -> Answer {
        let own = &self.counters.own;
        if (1..=self.longest.load(Ordering::Relaxed)).contains(&datagram.request().len()) {
            own[self.asked].add(1);
            own[self.took].record(1000, 1);
            return datagram.echo();
        }
        Answer::Drop(own.refuse(self.empty))
    }

    fn accept(&mut self, _now: Instant, _peer: SocketAddr) -> Result<(), Reason> {
        Ok(())
    }

    fn counters(&self) -> Option<Arc<ServiceCounters>> {
        Some(Arc::clone(&self.counters))
    }
}

#[derive(serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Section {
    longest: usize,
}

impl Default for Section {
    fn default() -> Self {
        Self { longest: 5 }
    }
}

#[test]
fn a_service_has_metrics_and_a_section_of_the_file_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("service.toml");
    std::fs::write(&file, "[service]\nudp = 7\n").unwrap();
    let longest = Arc::new(AtomicUsize::new(0));
    let of_file = Arc::clone(&longest);
    let builder = twinpath::serve(Counting::new(&longest))
        .file(&file)
        .section(move |section: Section| of_file.store(section.longest, Ordering::Relaxed));
    let running = quiet(builder.udp(0).metrics("127.0.0.1:0".parse().unwrap())).spawn().unwrap();
    let port = running.udp_port().unwrap();
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.send_to(b"too long", ("127.0.0.1", port)).unwrap();
    assert_eq!(ask(port, b"hello"), b"hello");
    let own = |name: &str| {
        let report = running.report().unwrap();
        report.services[0].own.iter().find(|own| own.name == name).map(|own| own.count)
    };
    assert_eq!((own("asked"), own("took"), own("empty_or_long")), (Some(1), Some(1), Some(1)));
    let drops = running.report().unwrap().drops;
    let counted = |reason: &str| drops.iter().find(|drop| drop.reason == reason).map(|drop| drop.count);
    assert_eq!((counted("empty_or_long"), counted("service_refused")), (Some(1), Some(1)));

    std::fs::write(&file, "[program]\nlongest = 8\n[service]\nudp = 7\n").unwrap();
    running.reload().unwrap();
    assert_eq!(ask(port, b"too long"), b"too long");
    std::fs::write(&file, "[service]\nudp = 7\n[program]\nlongest = \"much\"\n").unwrap();
    let why = running.reload().unwrap_err().to_string();
    assert!(why.contains("service.toml:4: program.longest"), "{why}");
    assert_eq!(longest.load(Ordering::Relaxed), 8);

    let mut scraper = TcpStream::connect(running.metrics().unwrap()).unwrap();
    scraper.set_read_timeout(Some(PATIENCE)).unwrap();
    scraper.write_all(b"GET /metrics HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    scraper.read_to_string(&mut text).unwrap();
    let row = "twinpath_service_own_total{service=\"service\",metric=\"asked\"} 2";
    assert!(text.contains(row), "{text}");
}

/// Hangs in the datagram `hang` until the test releases it.
#[derive(Clone)]
struct Hangs(Arc<(Mutex<bool>, Condvar)>);

impl Service for Hangs {
    type Connection = ();

    fn datagram(&mut self, datagram: &mut Datagram<'_>) -> Answer {
        if datagram.request() == b"hang" {
            let (released, release) = &*self.0;
            drop(release.wait_while(released.lock().unwrap(), |released| !*released).unwrap());
        }
        datagram.echo()
    }

    fn accept(&mut self, _now: Instant, _peer: SocketAddr) -> Result<(), Reason> {
        Ok(())
    }
}

/// An instance with one hanging worker, and the means to release it.
fn hanging() -> (twinpath::Running, Arc<(Mutex<bool>, Condvar)>) {
    let release = Arc::new((Mutex::new(false), Condvar::new()));
    let services = twinpath::serve(Echo).named("echo").udp(0).and(Hangs(Arc::clone(&release))).named("hangs");
    let running = quiet(services.udp(0)).spawn().unwrap();
    let port = running.services()[1].udp.unwrap();
    assert_eq!(ask(port, b"hello"), b"hello");
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    client.send_to(b"hang", ("127.0.0.1", port)).unwrap();
    let deadline = std::time::Instant::now() + PATIENCE;
    while running.report().unwrap().services[1].serve.kernel_requests < 2 {
        assert!(std::time::Instant::now() < deadline);
        std::thread::yield_now();
    }
    (running, release)
}

#[test]
fn a_callback_that_hangs_holds_neither_a_drain_nor_a_drop() {
    let (running, release) = hanging();
    let Err(Error::LeftBehind(who)) = running.drain(Duration::from_millis(50)) else { panic!("one hangs") };
    assert!(who.len() == 1 && who[0].contains("worker 0") && who[0].contains("`hangs`"), "{who:?}");
    *release.0.lock().unwrap() = true;
    release.1.notify_all();
    let (running, release) = hanging();
    drop(running);
    *release.0.lock().unwrap() = true;
    release.1.notify_all();
}

#[test]
fn a_handle_ends_an_instance_from_another_thread_and_the_earliest_time_counts() {
    let running = quiet(twinpath::serve(Louder).tcp(0)).spawn().unwrap();
    let mut half = connect(running.tcp_port().unwrap());
    assert_eq!(say(&mut half, b"one\n"), b"ONE\n");
    // An open request keeps the drain waiting.
    half.write_all(b"tw").unwrap();
    let stop = running.stop_handle();
    stop.stop(Duration::MAX);
    let shorter = stop.clone();
    std::thread::spawn(move || shorter.stop(Duration::from_millis(20))).join().unwrap();
    running.join().unwrap();
    stop.stop(Duration::ZERO);
}

#[test]
fn run_works_within_a_runtime_and_is_ended_by_a_handle() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let builder = quiet(twinpath::serve(Louder).udp(0)).socket(directory.path().join("run"));
    let stop = builder.stop_handle();
    runtime
        .block_on(async move {
            builder.run_and_tell(|ready| {
                let port = ready.report.instance.ports[0].strip_prefix("udp/").unwrap().parse().unwrap();
                assert_eq!(ask(port, b"hello"), b"HELLO");
                stop.stop(Duration::ZERO);
            })
        })
        .unwrap();
}

/// Runs in a separate process, because the environment belongs to the whole process. On its own it tests
/// nothing.
#[test]
fn reloads_beside_a_notify_socket() {
    let Some(file) = std::env::var_os("SPAWN_RELOADS") else { return };
    let running = quiet(twinpath::serve(Louder).file(file).udp(0)).spawn().unwrap();
    assert_eq!(running.reload().unwrap(), Vec::<String>::new());
    running.drain(PATIENCE).unwrap();
}

#[test]
fn the_service_manager_hears_nothing_of_an_instance_beside_a_program() {
    let directory = tempfile::tempdir().unwrap();
    let (file, heard) = (directory.path().join("service.toml"), directory.path().join("notify"));
    std::fs::write(&file, "[limits]\nidle_timeout_s = 7\n").unwrap();
    let manager = std::os::unix::net::UnixDatagram::bind(&heard).unwrap();
    let mut child = std::process::Command::new(std::env::current_exe().unwrap());
    child.args(["reloads_beside_a_notify_socket", "--exact"]);
    let status = child.env("SPAWN_RELOADS", &file).env("NOTIFY_SOCKET", &heard).output().unwrap().status;
    assert!(status.success());
    manager.set_nonblocking(true).unwrap();
    let said = manager.recv(&mut [0; 256]);
    assert_eq!(said.unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn the_kernel_chooses_again_if_its_port_is_taken_at_a_further_address() {
    // Most ports that the kernel may choose for the first address are taken at the second one.
    let taken: Vec<_> =
        (32768..60999).filter_map(|port| UdpSocket::bind(("127.0.0.3", port)).ok()).take(9000).collect();
    let (first, second) = (std::net::Ipv4Addr::new(127, 0, 0, 2), std::net::Ipv4Addr::new(127, 0, 0, 3));
    for _ in 0..4 {
        let services = twinpath::serve(Louder).address(first.into()).address(second.into()).udp(0);
        let running = quiet(services).spawn().unwrap();
        let port = running.udp_port().unwrap();
        assert!(!taken.iter().any(|socket| socket.local_addr().unwrap().port() == port));
    }
}
