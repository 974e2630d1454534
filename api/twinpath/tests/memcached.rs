//! The example of a memcached: its parser, its store, and its program over loopback.
#![allow(clippy::unwrap_used, reason = "a test says what it needs")]

#[path = "../examples/memcached/protocol.rs"]
mod protocol;
#[path = "../examples/memcached/store.rs"]
mod store;

use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::process::{Child, Command};
use std::time::Duration as Time;

use protocol::{Command as Asked, Parsed, parse};
use store::{Store, VALUE_MAX};
use twinpath::{Duration, Instant};
use twinpath_sys::Namespace;
use twinpath_sys::child::{Placement, place};
use twinpath_test_skip::root_or_skip;

const PORT: u16 = 11_211;
const PATIENCE: Time = Time::from_secs(20);

/// What became of some input, in words.
fn parsed(input: &[u8]) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match parse(input) {
        Parsed::Partial => "partial".to_owned(),
        Parsed::Broken => "broken".to_owned(),
        Parsed::Wrong { what, len } => format!("{} {len}", what.trim()),
        Parsed::Whole { command, len } => match command {
            Asked::Get { keys } => {
                assert_eq!(command.only_key().is_some(), keys.split(u8::is_ascii_whitespace).count() == 1);
                format!("get {:?} {len}", text(keys))
            }
            Asked::Set { key, flags, seconds, value, quiet } => {
                format!("set {} {flags} {seconds} {:?} {quiet} {len}", text(key), text(value))
            }
            Asked::Delete { key, quiet } => format!("delete {} {quiet} {len}", text(key)),
            Asked::FlushAll { quiet } => format!("flush_all {quiet} {len}"),
            Asked::Version => format!("version {len}"),
            Asked::Quit => format!("quit {len}"),
        },
    }
}

#[test]
fn commands_are_read_as_the_protocol_says() {
    let (long, most) = ("k".repeat(251), VALUE_MAX + 1);
    for (input, expected) in [
        ("get a\r\nget b\r\n", "get \"a\" 7"),
        ("get a  b\r\n", "get \"a  b\" 10"),
        ("get\r\n", "ERROR 5"),
        ("set k 7 60 3\r\nabc\r\n", "set k 7 60 \"abc\" false 19"),
        ("set k 7 -1 3 noreply\r\na\nc\r\nrest", "set k 7 -1 \"a\\nc\" true 27"),
        ("set k 7 60 3\r\nab", "partial"),
        ("set k 7 60 3\r\nabc\r", "partial"),
        ("set k 7 60 3\r\nabcd\r\n", "CLIENT_ERROR bad data chunk 19"),
        (
            "set k 7 9999999 3\r\nabc\r\n",
            "CLIENT_ERROR give an exptime of at most 30 days, in seconds from now 24",
        ),
        ("set k 7 60\r\n", "ERROR 12"),
        ("set k seven 60 3\r\nabc\r\n", "broken"),
        ("delete k\r\n", "delete k false 10"),
        ("delete k noreply\r\n", "delete k true 18"),
        ("delete\r\n", "CLIENT_ERROR bad command line format 8"),
        ("flush_all\r\n", "flush_all false 11"),
        ("version\r\n", "version 9"),
        ("quit\r\n", "quit 6"),
        ("\r\n", "ERROR 2"),
        ("VALUE a 0 1\r\n", "ERROR 13"),
        ("ge", "partial"),
    ] {
        assert_eq!(parsed(input.as_bytes()), expected, "{input:?}");
    }
    assert_eq!(parsed(format!("get {long}\r\n").as_bytes()), "CLIENT_ERROR bad command line format 257");
    assert_eq!(parsed(format!("set k 0 0 {most}\r\n").as_bytes()), "broken");
    assert_eq!(parsed(&[b'x'; 5000]), "broken");
}

#[test]
fn no_bytes_make_it_fail_and_a_part_is_no_other_command() {
    let whole = b"set key 1 0 5\r\nvalue\r\nget key other\r\ndelete key noreply\r\nflush_all\r\nversion\r\n";
    let mut random = fastrand::Rng::with_seed(18);
    for _ in 0..20_000 {
        let mut input = whole.to_vec();
        for _ in 0..random.usize(..4) {
            let at = random.usize(..input.len());
            input[at] = random.u8(..);
        }
        let mut rest = input.as_slice();
        while let Parsed::Whole { len, .. } | Parsed::Wrong { len, .. } = parse(rest) {
            let cut = random.usize(..len);
            assert!(
                len <= rest.len() && matches!(parse(&rest[..cut]), Parsed::Partial | Parsed::Wrong { .. })
            );
            rest = &rest[len..];
        }
    }
}

#[test]
fn values_end_with_their_time_and_the_store_is_bounded() {
    let (store, second) = (Store::default(), Duration::from_secs(1));
    let now = Instant::ZERO + second;
    assert!(store.set(now, b"for ever", 1, 0, b"a") && store.set(now, b"a second", 2, 1, b"b"));
    assert!(store.set(now, b"never", 3, -1, b"c"));
    let found = |now, key: &[u8]| store.get(now, key).map(|item| (item.flags, item.value.to_vec()));
    assert_eq!(found(now, b"for ever"), Some((1, b"a".to_vec())));
    assert_eq!(found(now, b"a second"), Some((2, b"b".to_vec())));
    assert_eq!(found(now + second, b"a second"), None);
    assert_eq!(found(now, b"never"), None);
    assert!(!store.delete(now, b"never") && store.delete(now, b"for ever"));
    let value = vec![0; VALUE_MAX];
    let stored = (0..10_000_u32).take_while(|key| store.set(now, &key.to_be_bytes(), 0, 1, &value)).count();
    assert!((4000..5000).contains(&stored), "{stored}");
    assert!(store.set(now + second, b"one more", 0, 0, &value), "the others are over");
    store.clear();
    assert!(store.get(now, b"one more").is_none());
}

/// The program, on loopback of its own namespace.
struct Server {
    namespace: Namespace,
    child: Child,
}

impl Server {
    fn start() -> Self {
        let namespace = Namespace::new().unwrap();
        let mut up = Command::new("ip");
        place(up.args(["link", "set", "lo", "up"]), within(&namespace)).unwrap();
        assert!(up.status().unwrap().success());
        let tests = std::env::current_exe().unwrap();
        let mut program = Command::new(tests.ancestors().nth(2).unwrap().join("examples/memcached"));
        place(program.arg("lo"), within(&namespace)).unwrap();
        Self { child: program.spawn().unwrap(), namespace }
    }

    fn tcp(&self) -> TcpStream {
        let begun = std::time::Instant::now();
        loop {
            match self.namespace.run(|| TcpStream::connect(("127.0.0.1", PORT))).unwrap() {
                Ok(stream) => {
                    stream.set_read_timeout(Some(PATIENCE)).unwrap();
                    return stream;
                }
                Err(error) => assert!(begun.elapsed() < PATIENCE, "{error}"),
            }
            std::thread::yield_now();
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn within(namespace: &Namespace) -> Placement<'_> {
    Placement { namespace: Some(namespace), ..Placement::default() }
}

#[test]
fn what_is_set_over_one_transport_is_got_over_the_other() {
    if !root_or_skip() {
        return;
    }
    let server = Server::start();
    let mut stream = server.tcp();
    let mut by_tcp = |request: &str, expected: &str| {
        stream.write_all(request.as_bytes()).unwrap();
        let mut said = vec![0; expected.len()];
        stream.read_exact(&mut said).unwrap();
        assert_eq!(String::from_utf8_lossy(&said), expected, "{request:?}");
    };
    let socket = server.namespace.run(|| UdpSocket::bind("127.0.0.1:0")).unwrap().unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut number = 0_u16;
    let mut by_udp = |request: &str, expected: &str| {
        number += 1;
        let header = [&number.to_be_bytes()[..], &[0, 0, 0, 1, 0, 0]].concat();
        socket.send_to(&[&header, request.as_bytes()].concat(), ("127.0.0.1", PORT)).unwrap();
        let mut reply = vec![0; 65_536];
        let (len, _) = socket.recv_from(&mut reply).unwrap();
        assert_eq!(reply[..8], header);
        assert_eq!(String::from_utf8_lossy(&reply[8..len]), expected, "{request:?}");
    };
    for round in 0..20 {
        by_udp("get key\r\n", "END\r\n");
        by_tcp(&format!("set key {round} 0 5\r\nvalue\r\n"), "STORED\r\n");
        by_udp("get key\r\n", &format!("VALUE key {round} 5\r\nvalue\r\nEND\r\n"));
        by_udp("set key 0 0 2\r\nme\r\n", "STORED\r\n");
        by_udp("get key\r\n", "VALUE key 0 2\r\nme\r\nEND\r\n");
        by_tcp("get key none key\r\n", "VALUE key 0 2\r\nme\r\nVALUE key 0 2\r\nme\r\nEND\r\n");
        by_tcp("delete key\r\n", "DELETED\r\n");
        by_udp("delete key\r\n", "NOT_FOUND\r\n");
    }
    let long = "x".repeat(20_000);
    by_tcp(&format!("set long 0 0 20000\r\n{long}\r\n"), "STORED\r\n");
    by_udp("get long\r\n", &format!("VALUE long 0 20000\r\n{long}\r\nEND\r\n"));
    by_tcp("flush_all\r\nget long\r\nwhat\r\nversion\r\n", "OK\r\nEND\r\nERROR\r\nVERSION twinpath\r\n");
    by_udp("get long\r\n", "END\r\n");
    // What is no command, or takes several datagrams, has no answer; the next request has.
    for (header, request) in
        [([0, 1, 0, 0, 0, 1, 0, 0], "END\r\n"), ([0, 1, 0, 0, 0, 2, 0, 0], "get key\r\n")]
    {
        socket.send_to(&[&header, request.as_bytes()].concat(), ("127.0.0.1", PORT)).unwrap();
    }
    by_udp("get key\r\n", "END\r\n");
}
