//! The test rig: two namespaces joined by a veth pair, and our program in them.
//!
//! Nothing has to be cleaned up: the namespaces live as long as the test's descriptors, and children end with the
//! thread that started them.

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::process::{ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;
use tempfile::TempDir;
use twinpath_sys::{Namespace, PacketSocket};
use twinpath_test_rig::{End, command, few_or_all, pair, run, start, until_within, within};
pub(crate) use twinpath_test_rig::{Lateness, PATIENCE, Started, ip, kill, move_link, name_of, until};
use twinpath_wire::Mac;

pub(crate) const CLIENT: &str = "10.7.0.1";
pub(crate) const SERVER: &str = "10.7.0.2";
pub(crate) const CLIENT_V6: &str = "fd07::1";
pub(crate) const SERVER_V6: &str = "fd07::2";
pub(crate) const PORT: u16 = 7007;

/// How long a program may take to be ready: it may load programs that the kernel refuses, one after the other.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// Options for each fast path; the second word is how its name in `show` begins.
pub(crate) const PACKET: &[&str] = &["--path", "packet"];
pub(crate) const CLSACT: &[&str] = &["--path", "packet", "--attach", "clsact"];
pub(crate) const XDP: &[&str] = &["--path", "xdp"];
pub(crate) const SETUPS: [&[&str]; 3] = [PACKET, CLSACT, XDP];

/// For services and bridges whose test says nothing else. What waits for a worker that is stuck is dropped once another request comes, and
/// the kernel gets new connections meanwhile. Beside load a worker may have no CPU for longer than the default. No test waits for
/// so long.
const NEVER_STUCK: [&str; 2] = ["--fail-open-ms", "60000"];

/// The longest datagram over IPv4.
pub(crate) const DATAGRAM_MAX: usize = 65_507;

/// The lengths of datagrams that a test goes through: all of them in full. Otherwise all that one frame or two hold, and every
/// seventh beyond: as no fragment is a multiple of seven long, these end at each place of one.
pub(crate) fn lengths() -> impl Iterator<Item = usize> {
    const TWO_FRAMES: usize = 3000;
    let step = few_or_all(7, 1);
    (0..TWO_FRAMES).chain((TWO_FRAMES..DATAGRAM_MAX).step_by(step)).chain([DATAGRAM_MAX])
}

pub(crate) struct Rig {
    pub(crate) client: Namespace,
    pub(crate) server: Namespace,
    pub(crate) directory: TempDir,
    /// Whether workers answer all that comes by the fast path.
    pub(crate) by_workers: bool,
}

/// A running `twinpath serve`.
pub(crate) struct Server {
    pub(crate) child: Started,
    pub(crate) socket: PathBuf,
    /// Its ready line.
    pub(crate) ready: Value,
    /// Its output on standard error so far.
    said: Arc<Mutex<String>>,
    stdout: BufReader<ChildStdout>,
}

/// The output of a program that has ended.
pub(crate) struct Finished {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Rig {
    pub(crate) fn new() -> Self {
        let client = Namespace::new().expect("a namespace");
        let server = Namespace::new().expect("a namespace");
        let directory = tempfile::tempdir().expect("a directory");
        let rig = Self { client, server, directory, by_workers: false };
        // An address that becomes usable a second after the link is up makes the instance learn its peers again, in the
        // middle of a test that counts frames on the fast path.
        for namespace in [&rig.client, &rig.server] {
            let settle_at_once = || std::fs::write("/proc/sys/net/ipv6/conf/default/accept_dad", "0");
            namespace.run(settle_at_once).expect("entered").expect("IPv6 addresses settle at once");
        }
        rig.join("vs", &[(CLIENT, 24), (CLIENT_V6, 64)], &[(SERVER, 24), (SERVER_V6, 64)]);
        rig
    }

    /// For tests that are about workers, or count what they answer: our program has no reflexes.
    pub(crate) fn of_workers() -> Self {
        Self { by_workers: true, ..Self::new() }
    }

    /// Makes a veth pair, `vc` in the client's namespace and `name` in the server's, with addresses, up.
    pub(crate) fn join(&self, name: &str, client: &[(&str, u8)], server: &[(&str, u8)]) {
        let text = |addresses: &[(&str, u8)]| {
            addresses.iter().map(|(address, prefix)| format!("{address}/{prefix}")).collect::<Vec<_>>()
        };
        let (client, server) = (text(client), text(server));
        let [client, server] =
            [&client, &server].map(|all| all.iter().map(String::as_str).collect::<Vec<_>>());
        let end = |namespace, name, addresses| End {
            with: "numrxqueues 4 numtxqueues 4",
            ..End::new(namespace, name, addresses)
        };
        pair(end(&self.client, "vc", &client), end(&self.server, name, &server));
    }

    /// The output of `tc` in the server's namespace.
    pub(crate) fn tc_server(&self, arguments: &[&str]) -> String {
        run(&self.server, "tc", arguments)
    }

    pub(crate) fn ip_server(&self, arguments: &[&str]) {
        ip(&self.server, arguments);
    }

    /// A link of the server's namespace, from iproute2's JSON; null if there is none.
    pub(crate) fn link_server(&self, name: &str) -> Value {
        link_json(&self.server, name)
    }

    pub(crate) fn link_client(&self, name: &str) -> Value {
        link_json(&self.client, name)
    }

    pub(crate) fn ip_client(&self, arguments: &[&str]) {
        ip(&self.client, arguments);
    }

    /// Disables the server kernel's limit on answers for closed ports.
    pub(crate) fn unlimited_icmp(&self) {
        let limits = ["/proc/sys/net/ipv4/icmp_ratelimit", "/proc/sys/net/ipv6/icmp/ratelimit"];
        let write = || limits.iter().try_for_each(|limit| std::fs::write(limit, "0"));
        self.server.run(write).expect("entered").expect("written");
    }

    /// Lets programs on the server's host serve at addresses that it does not have yet.
    pub(crate) fn allow_absent_addresses(&self) {
        let allow = || std::fs::write("/proc/sys/net/ipv4/ip_nonlocal_bind", "1");
        self.server.run(allow).expect("entered").expect("written");
    }

    pub(crate) fn run(&self, namespace: &Namespace, program: &str, arguments: &[&str]) -> Started {
        start(namespace, program, arguments)
    }

    /// Runs our program to its end.
    pub(crate) fn twinpath(&self, namespace: &Namespace, arguments: &[&str]) -> Finished {
        let mut command = Command::new(env!("CARGO_BIN_EXE_twinpath"));
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        within(namespace, &mut command);
        let output = command.output().expect("twinpath runs");
        Finished {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Starts an echo server on `vs` and waits until it serves.
    pub(crate) fn serve(&self, arguments: &[&str]) -> Server {
        self.try_serve(arguments)
            .unwrap_or_else(|stderr| panic!("serve {arguments:?} did not start: {stderr}"))
    }

    /// Starts an echo server; if it ends instead, returns its output on standard error.
    pub(crate) fn try_serve(&self, arguments: &[&str]) -> Result<Server, String> {
        let port = PORT.to_string();
        // A bench sends at full speed from one source, so the limit for that is off.
        let base = ["echo", "--on", "vs", "--udp", &port, "--tcp", &port, "--reply-rate", "0"];
        self.try_start(&[&base, arguments].concat())
    }

    /// Starts any service, named with all its arguments.
    pub(crate) fn start(&self, arguments: &[&str]) -> Server {
        self.try_start(arguments)
            .unwrap_or_else(|stderr| panic!("serve {arguments:?} did not start: {stderr}"))
    }

    /// The same with more in its environment.
    pub(crate) fn start_with_env(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Server {
        self.launch_with_env(&[&["serve"], arguments].concat(), environment)
    }

    /// Starts our program with a command that prints a ready line, and with additional environment variables.
    pub(crate) fn launch_with_env(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Server {
        let mut command = Command::new(env!("CARGO_BIN_EXE_twinpath"));
        command.args(arguments).envs(environment.iter().copied());
        self.launch(command, &self.server).unwrap_or_else(|stderr| panic!("it did not start: {stderr}"))
    }

    /// Starts any service; if it ends instead, returns its output on standard error.
    pub(crate) fn try_start(&self, arguments: &[&str]) -> Result<Server, String> {
        self.try_launch(&[&["serve"], arguments].concat())
    }

    /// Starts our program with a command that prints a ready line; if it ends instead, returns its output on standard
    /// error.
    pub(crate) fn try_launch(&self, arguments: &[&str]) -> Result<Server, String> {
        self.try_launch_in(&self.server, arguments)
    }

    /// The same in either namespace.
    pub(crate) fn try_launch_in(&self, namespace: &Namespace, arguments: &[&str]) -> Result<Server, String> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_twinpath"));
        command.args(arguments);
        self.launch(command, namespace)
    }

    /// Runs a command that ends in our program with one that prints a ready line, in either namespace.
    pub(crate) fn launch(&self, mut command: Command, namespace: &Namespace) -> Result<Server, String> {
        let is = |command: &Command, what| command.get_args().next().is_some_and(|word| word == what);
        let is_serve = is(&command, "serve");
        if self.by_workers && is_serve {
            command.args(["--reflex", "off"]);
        }
        if (is_serve || is(&command, "bridge")) && command.get_args().all(|word| word != NEVER_STUCK[0]) {
            command.args(NEVER_STUCK);
        }
        let number = std::fs::read_dir(self.directory.path()).expect("readable").count();
        let socket = self.directory.path().join(format!("{number}.sock"));
        command.arg("--socket").arg(&socket);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        within(namespace, &mut command);
        let mut child = Started::new(&mut command);
        // Read by a thread of its own from the beginning: a program that says much before it is ready, such as why the kernel
        // refuses another one, must not wait for a reader that waits for it.
        let stderr = BufReader::new(child.stderr.take().expect("piped"));
        let said = Arc::<Mutex<String>>::default();
        let saying = Arc::clone(&said);
        let reader = std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                saying.lock().expect("no panic holds it").push_str(&line);
            }
        });
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        let text = || said.lock().expect("no panic holds it").clone();
        if !becomes_readable(stdout.get_ref(), READY_WITHIN) {
            panic!("{command:?} was not ready within {READY_WITHIN:?}; it said: {}", text());
        }
        let mut line = String::new();
        stdout.read_line(&mut line).expect("readable");
        let Some(ready) = line.strip_prefix("ready ") else {
            assert!(!child.wait().expect("ended").success(), "it ended without serving");
            reader.join().expect("it does not panic");
            return Err(text());
        };
        let ready = serde_json::from_str(ready).expect("JSON");
        Ok(Server { child, socket, ready, said, stdout })
    }

    /// A bench over kernel sockets, from the client's namespace; its report.
    pub(crate) fn bench(&self, target: &str, arguments: &[&str]) -> Value {
        let finished =
            self.twinpath(&self.client, &[&["bench", "echo", target, "--json"], arguments].concat());
        assert_eq!(finished.code, Some(0), "bench {target} {arguments:?}: {}", finished.stderr);
        serde_json::from_str(&finished.stdout).expect("JSON")
    }

    /// An ordinary packet socket of the client, for frames of one type.
    pub(crate) fn client_frames(&self, ethertype: u16) -> PacketSocket {
        let (ifindex, _) = link(&self.client, "vc");
        let open = || PacketSocket::open(ifindex, ethertype);
        self.client.run(open).expect("entered").expect("a packet socket")
    }

    /// The link-layer addresses of client and server.
    pub(crate) fn macs(&self) -> ([u8; 6], [u8; 6]) {
        (link(&self.client, "vc").1, link(&self.server, "vs").1)
    }

    /// A UDP socket of a client, bound to its address.
    pub(crate) fn client_udp(&self, local: &str, port: u16) -> UdpSocket {
        let local: IpAddr = local.parse().expect("an address");
        udp_in(&self.client, SocketAddr::new(local, port))
    }

    pub(crate) fn server_udp(&self, local: &str, port: u16) -> UdpSocket {
        let local: IpAddr = local.parse().expect("an address");
        udp_in(&self.server, SocketAddr::new(local, port))
    }
}

impl Server {
    /// A part of its report.
    pub(crate) fn show(&self, topic: &str) -> Value {
        let answer = self.answer(topic);
        answer.get(topic).cloned().unwrap_or(answer)
    }

    /// The same with what comes along with it. It is what `twinpath show --json` prints, without a process for each look.
    pub(crate) fn answer(&self, topic: &str) -> Value {
        let request = serde_json::from_value(serde_json::json!({ "show": topic })).expect("a topic");
        let answer = twinpath_observe::command::ask(&self.socket, &request);
        answer.unwrap_or_else(|error| panic!("show {topic}: {error}"))
    }

    /// A part of its report as text, for what a failed test says; the error if there is no answer.
    pub(crate) fn try_show(&self, topic: &str) -> String {
        let request = serde_json::from_value(serde_json::json!({ "show": topic })).expect("a topic");
        match twinpath_observe::command::ask(&self.socket, &request) {
            Ok(answer) => answer.to_string(),
            Err(error) => error.to_string(),
        }
    }

    pub(crate) fn path(&self) -> String {
        self.show("interfaces")[0]["path"].as_str().expect("a path").to_owned()
    }

    /// How often something was dropped for this reason, in all places.
    pub(crate) fn drops(&self, reason: &str) -> u64 {
        let drops = self.show("drops");
        let drops = drops.as_array().expect("a list");
        drops.iter().filter(|drop| drop["reason"] == reason).filter_map(|drop| drop["count"].as_u64()).sum()
    }

    /// What it says to people at its start, behind the ready line; once.
    pub(crate) fn started(&mut self) -> String {
        let mut said = String::new();
        while !said.contains("ask with: twinpath show") {
            assert!(self.stdout.read_line(&mut said).expect("readable") > 0, "it ended: {said}");
        }
        said
    }

    /// Waits until these words appear on standard error.
    pub(crate) fn wait_until_said(&self, words: &str) {
        let is_said = || self.said.lock().expect("no panic holds it").contains(words);
        until_within(3 * PATIENCE, &format!("'{words}' said"), is_said);
    }

    /// The claim of the service with this prefix.
    pub(crate) fn claim(&self, begins: &str) -> Value {
        let services = self.show("services");
        let claims = services[0]["claims"].as_array().expect("a list");
        let found = claims
            .iter()
            .find(|claim| claim["claim"].as_str().is_some_and(|claim| claim.starts_with(begins)));
        found.unwrap_or_else(|| panic!("no claim {begins}: {claims:?}")).clone()
    }

    /// One figure of worker 0.
    pub(crate) fn worker(&self, figure: &str) -> u64 {
        self.show("workers")[0][figure].as_u64().unwrap_or_else(|| panic!("no figure {figure}"))
    }

    pub(crate) fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child)
    }

    /// Interrupts it as Ctrl-C does; returns its exit code.
    pub(crate) fn interrupt(mut self) -> Option<i32> {
        rustix::process::kill_process(self.pid(), rustix::process::Signal::INT).expect("it runs");
        self.child.wait().expect("it ends").code()
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }
}

/// Whether a pipe has something to read, or its end, within a time.
fn becomes_readable(pipe: &ChildStdout, within: Duration) -> bool {
    let within = Timespec::try_from(within).expect("a short time");
    poll(&mut [PollFd::new(pipe, PollFlags::IN)], Some(&within)).expect("polled") > 0
}

pub(crate) fn udp_in(namespace: &Namespace, local: SocketAddr) -> UdpSocket {
    let begun = Instant::now();
    let socket = loop {
        match namespace.run(|| UdpSocket::bind(local)).expect("entered") {
            Ok(socket) => break socket,
            // The former listener may live for a moment in a process that another test is starting.
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse && begun.elapsed() < PATIENCE => {}
            Err(error) => panic!("{local}: {error}"),
        }
    };
    socket.set_read_timeout(Some(PATIENCE)).expect("set");
    socket
}

/// Makes the namespace ask for its neighbours' link-layer addresses again.
///
/// `ip neigh flush` fails if, each of the ten times that it looks, traffic has made a new entry. What was there before is
/// gone all the same. It fails otherwise (255) if the kernel has removed an entry between its look and its request.
pub(crate) fn forget_neighbours(namespace: &Namespace, interface: &str) {
    until("all neighbours were forgotten", || {
        let mut command = command(namespace, "ip");
        command.args(["neigh", "flush", "dev", interface]).stdout(Stdio::null());
        let status = command.status().expect("iproute2 is installed");
        status.code().is_some_and(|code| code <= 1)
    });
}

/// Index and link-layer address of an interface.
pub(crate) fn link(namespace: &Namespace, name: &str) -> (u32, [u8; 6]) {
    let links: Value =
        serde_json::from_str(&ip(namespace, &["-json", "link", "show", "dev", name])).expect("JSON");
    let mac: Mac = links[0]["address"].as_str().expect("an address").parse().expect("a MAC address");
    (links[0]["ifindex"].as_u64().expect("an index") as u32, mac.0)
}

/// A link, from iproute2's JSON; null if there is none.
pub(crate) fn link_json(namespace: &Namespace, name: &str) -> Value {
    let mut command = command(namespace, "ip");
    let output =
        command.args(["-json", "link", "show", "dev", name]).output().expect("iproute2 is installed");
    let links: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    links[0].clone()
}

/// Receives. A socket with a timeout is not waited for further once a process was frozen and goes on (signal(7)).
pub(crate) fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> std::io::Result<(usize, SocketAddr)> {
    loop {
        match socket.recv_from(buffer) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            received => return received,
        }
    }
}

/// One request and its answer.
pub(crate) fn ask(socket: &UdpSocket, target: &str, port: u16, payload: &[u8]) -> Vec<u8> {
    let target: IpAddr = target.parse().expect("an address");
    socket.send_to(payload, (target, port)).expect("sent");
    let mut buffer = vec![0; 65_536];
    let (len, from) = receive(socket, &mut buffer).expect("an answer in time");
    assert_eq!(from, SocketAddr::new(target, port), "answered by whom it was sent to");
    buffer.truncate(len);
    buffer
}

/// Whether an answer comes within a tenth of a second, for requests that must not be answered.
pub(crate) fn answered(socket: &UdpSocket, target: &str, payload: &[u8]) -> bool {
    let target: IpAddr = target.parse().expect("an address");
    socket.set_read_timeout(Some(Duration::from_millis(100))).expect("set");
    socket.send_to(payload, (target, PORT)).expect("sent");
    let answered = socket.recv_from(&mut [0; 65_536]).is_ok();
    socket.set_read_timeout(Some(PATIENCE)).expect("set");
    answered
}
