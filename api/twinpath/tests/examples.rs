//! Runs the examples as a user would: in a network namespace, with requests over loopback.
#![allow(clippy::unwrap_used, reason = "a test says what it needs")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use twinpath::rpc::client::{Auth, Call, Refusal, Reply, handle_arguments};
use twinpath::rpc::record::{RecordLimits, RecordReader};
use twinpath_sys::Namespace;
use twinpath_test_rig::{PATIENCE, loopback, root_or_skip, within};

struct Example {
    namespace: Namespace,
    child: Child,
}

impl Example {
    fn start(name: &str) -> Self {
        let namespace = loopback();
        // Cargo builds a package's examples together with its tests, in a directory beside them.
        let tests = std::env::current_exe().unwrap();
        let program = tests.ancestors().nth(2).unwrap().join("examples").join(name);
        let mut example = Command::new(program);
        within(&namespace, example.stdin(Stdio::null()));
        let child = example.spawn().unwrap();
        Self { namespace, child }
    }

    fn connect(&self, port: u16) -> TcpStream {
        let begun = Instant::now();
        loop {
            match self.namespace.run(|| TcpStream::connect(("127.0.0.1", port))).unwrap() {
                Ok(stream) => return stream,
                Err(error) => assert!(begun.elapsed() < PATIENCE, "{error}"),
            }
            std::thread::yield_now();
        }
    }

    fn ask(&self, port: u16, lines: &str) -> Vec<String> {
        let mut stream = self.connect(port);
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(lines.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        BufReader::new(stream).lines().map(Result::unwrap).collect()
    }

    fn end(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_line_echo_echoes_lines() {
    if !root_or_skip() {
        return;
    }
    let example = Example::start("line_echo");
    assert_eq!(example.ask(7007, "one\ntwo\n\nthree\nno line"), ["one", "two", "", "three"]);
    example.end();
}

#[test]
fn the_store_stores_over_both_transports() {
    if !root_or_skip() {
        return;
    }
    let example = Example::start("key_value");
    assert_eq!(
        example.ask(4040, "get a\nset a 1\nget a\nwhat\nquit\nget a\n"),
        ["none", "stored", "value 1", "error: get KEY or set KEY VALUE, up to 1000 bytes", "bye"]
    );
    assert_eq!(example.ask(4040, &"what\n".repeat(50)).len(), 11, "enough mistakes end it");
    let socket = example.namespace.run(|| UdpSocket::bind("127.0.0.1:0")).unwrap().unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.send_to(b"get a", ("127.0.0.1", 4040)).unwrap();
    let mut buffer = [0; 64];
    let (len, _) = socket.recv_from(&mut buffer).unwrap();
    assert_eq!(&buffer[..len], b"value 1");
    example.end();
}

#[test]
fn the_lookup_looks_up_on_threads_of_its_pool_over_both_transports() {
    if !root_or_skip() {
        return;
    }
    let example = Example::start("lookup");
    let answers = example.ask(4041, "/proc/version\n/nowhere\n/\n");
    assert_eq!(
        answers[..2],
        ["/proc/version 0", "/nowhere: entity not found"],
        "in the order of the questions"
    );
    assert!(answers[2].starts_with("/ "), "{answers:?}");
    let socket = example.namespace.run(|| UdpSocket::bind("127.0.0.1:0")).unwrap().unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.send_to(b"/nowhere", ("127.0.0.1", 4041)).unwrap();
    let mut buffer = [0; 64];
    let (len, _) = socket.recv_from(&mut buffer).unwrap();
    assert_eq!(&buffer[..len], b"/nowhere: entity not found\n");
    example.end();
}

#[test]
fn the_rpc_program_answers_at_once_and_later() {
    if !root_or_skip() {
        return;
    }
    let example = Example::start("rpc_program");
    let mut stream = example.connect(7009);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let (auth, mut calls) = (Auth::none(), Vec::new());
    for (xid, procedure, name) in
        [(0, 1, "twelve bytes"), (1, 2, "/proc/self/comm"), (2, 2, "/nowhere"), (3, 3, "")]
    {
        let args = handle_arguments(name.as_bytes());
        Call { xid, program: 0x2000_0001, version: 1, procedure, auth: &auth, args: &args }
            .write_record(1, &mut calls);
    }
    stream.write_all(&calls).unwrap();
    let mut records = RecordReader::new(RecordLimits { record_bytes: 100, fragments: 1 });
    let (mut replies, mut buffer) = (BTreeMap::new(), [0; 256]);
    while replies.len() < 4 {
        let len = stream.read(&mut buffer).unwrap();
        assert!(len > 0, "closed after {replies:?}");
        let mut input = &buffer[..len];
        while let Some(record) = records.next(&mut input).unwrap() {
            let reply = Reply::parse(record).unwrap();
            replies.insert(reply.xid, reply.outcome.map(<[u8]>::to_vec));
        }
    }
    let number = |number: u32| Ok(number.to_be_bytes().to_vec());
    // The thread that reads its own name is not named like the program; the name has at most 15 bytes and a newline.
    let comm = replies.remove(&1).unwrap().unwrap();
    assert!(comm[..3] == [0; 3] && (2..=16).contains(&comm[3]), "{comm:?}");
    let expected = [(0, number(12)), (2, Err(Refusal::SystemError)), (3, Err(Refusal::ProcedureUnavailable))];
    assert_eq!(replies, BTreeMap::from(expected));
    example.end();
}

#[test]
fn an_impossible_configuration_is_refused_with_a_message() {
    #[derive(Clone)]
    struct Nothing;
    impl twinpath::Service for Nothing {
        type Connection = ();
        fn accept(&mut self, _: twinpath::Instant, _: std::net::SocketAddr) -> Result<(), twinpath::Reason> {
            Ok(())
        }
    }
    let said = |builder: twinpath::Builder| builder.run().unwrap_err().to_string();
    assert_eq!(
        said(twinpath::serve(Nothing).on("lo")),
        "what is to be served? Add udp(PORT), tcp(PORT) or ethertype(TYPE)"
    );
    assert!(said(twinpath::serve(Nothing).tcp(1)).contains("which interface?"));
    assert!(said(twinpath::serve(Nothing).tcp(1).on("nosuch0")).contains("there is no interface nosuch0"));
}

#[test]
fn an_example_that_cannot_start_prints_the_reason() {
    let program = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().join("examples/line_echo");
    let output = Command::new(program).arg("nosuch0").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("Error: there is no interface nosuch0; there is"), "{said}");
}
