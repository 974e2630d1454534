//! The example of a memcached: its program over loopback, with real clients.
#![allow(clippy::unwrap_used, reason = "a test says what it needs")]

mod peers;

use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::process::{Child, Command};

use twinpath_sys::Namespace;
use twinpath_test_rig::{PATIENCE, loopback, root_or_skip, skip, within};

const PORT: u16 = 11_211;

/// The program, on loopback of a separate namespace.
struct Server {
    namespace: Namespace,
    child: Child,
}

impl Server {
    fn start() -> Self {
        let namespace = loopback();
        let tests = std::env::current_exe().unwrap();
        let mut program = Command::new(tests.ancestors().nth(2).unwrap().join("examples/memcached"));
        within(&namespace, program.arg("lo"));
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
    let long = "x".repeat(200_000);
    by_tcp(&format!("set long 0 0 200000\r\n{long}\r\n"), "STORED\r\n");
    by_udp("get long\r\n", "SERVER_ERROR too much for datagrams: ask over TCP\r\n");
    by_tcp("get long\r\n", &format!("VALUE long 0 200000\r\n{long}\r\nEND\r\n"));
    by_tcp("flush_all\r\nget long\r\nwhat\r\nversion\r\n", "OK\r\nEND\r\nERROR\r\nVERSION twinpath\r\n");
    by_udp("get long\r\n", "END\r\n");
    // Invalid commands, and commands in several datagrams, are not answered; the next request is.
    for (header, request) in
        [([0, 1, 0, 0, 0, 1, 0, 0], "END\r\n"), ([0, 1, 0, 0, 0, 2, 0, 0], "get key\r\n")]
    {
        socket.send_to(&[&header, request.as_bytes()].concat(), ("127.0.0.1", PORT)).unwrap();
    }
    by_udp("get key\r\n", "END\r\n");
}

#[test]
fn values_of_several_datagrams_come_whole() {
    if !root_or_skip() {
        return;
    }
    let server = Server::start();
    let mut stream = server.tcp();
    let value = (0..40_000_u32).map(|at| (at % 251) as u8).collect::<Vec<_>>();
    stream.write_all(&[&b"set long 0 0 40000\r\n"[..], &value, b"\r\n"].concat()).unwrap();
    let mut said = [0; 8];
    stream.read_exact(&mut said).unwrap();
    assert_eq!(&said, b"STORED\r\n");
    let socket = server.namespace.run(|| UdpSocket::bind("127.0.0.1:0")).unwrap().unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    for id in 0..20_u8 {
        socket
            .send_to(&[&[7, id, 0, 0, 0, 1, 0, 0], &b"get long\r\n"[..]].concat(), ("127.0.0.1", PORT))
            .unwrap();
        let mut parts = std::collections::BTreeMap::new();
        let mut buffer = [0; 2048];
        while parts.len() < 29 {
            let (len, _) = socket.recv_from(&mut buffer).unwrap();
            assert!(buffer[..2] == [7, id] && buffer[4..8] == [0, 29, 0, 0]);
            parts.insert(buffer[3], buffer[8..len].to_vec());
        }
        let reply = parts.into_values().collect::<Vec<_>>().concat();
        assert!(reply == [&b"VALUE long 0 40000\r\n"[..], &value, b"\r\nEND\r\n"].concat());
    }
}

#[test]
fn clients_of_libmemcached_understand_it() {
    if !root_or_skip() {
        return;
    }
    let (Some(capable), Some(_)) = (peers::find("memccapable"), peers::find("memccat")) else {
        skip("memccapable and memccat are not installed (apt-get install libmemcached-tools)");
        return;
    };
    let server = Server::start();
    drop(server.tcp());
    let run = |mut command: Command, arguments: &str| {
        within(&server.namespace, command.args(arguments.split(' ')));
        let output = command.output().unwrap();
        (
            output.status.success(),
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned(),
        )
    };
    let mut asked = 0;
    for test in [
        "version",
        "verbosity",
        "set",
        "set noreply",
        "get",
        "gets",
        "mget",
        "flush",
        "flush noreply",
        "add",
        "add noreply",
        "replace",
        "replace noreply",
        "cas",
        "cas noreply",
        "delete",
        "delete noreply",
        "incr",
        "incr noreply",
        "decr",
        "decr noreply",
    ] {
        let mut command = capable.command();
        command.arg("-T").arg(format!("ascii {test}"));
        let (passed, said) = run(command, &format!("-h 127.0.0.1 -p {PORT} -t 20"));
        assert!(passed && said.contains("[pass]") && !said.contains("[FAIL]"), "{test}: {said}");
        asked += 1;
    }
    assert_eq!(asked, 21);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key");
    std::fs::write(&file, "x".repeat(900_000)).unwrap();
    let servers = format!("--servers=127.0.0.1:{PORT}");
    let (copied, said) =
        run(peers::find("memccp").unwrap().command(), &format!("{servers} {}", file.display()));
    assert!(copied, "{said}");
    let (read, said) = run(peers::find("memccat").unwrap().command(), &format!("{servers} key"));
    assert!(read && said.trim_end() == "x".repeat(900_000), "{} bytes", said.len());
    let (removed, said) = run(peers::find("memcrm").unwrap().command(), &format!("{servers} key"));
    assert!(removed, "{said}");
    assert!(!run(peers::find("memcexist").unwrap().command(), &format!("{servers} key")).0);
}
