//! A program chooses the path of its service's TCP connections.
#![allow(clippy::unwrap_used, reason = "a test says what it needs")]

use std::io::{Read, Write};
use std::net::TcpStream;

use twinpath::{Echo, Path, TcpPath};
use twinpath_sys::Namespace;
use twinpath_test_rig::{End, PATIENCE, pair, root_or_skip, until};

const SERVER: &str = "10.7.0.2";
const PORT: u16 = 7019;
const CONNECTIONS: u64 = 3;

#[test]
fn connections_are_on_the_path_that_the_program_chose() {
    if !root_or_skip() {
        return;
    }
    let (client, server) = (Namespace::new().unwrap(), Namespace::new().unwrap());
    pair(End::new(&client, "vc", &["10.7.0.1/24"]), End::new(&server, "vs", &["10.7.0.2/24"]));
    for (chosen, wanted) in [(None, 0), (Some(TcpPath::Kernel), 0), (Some(TcpPath::Fast), CONNECTIONS)] {
        // Beside load a worker may have no CPU for so long that it counts as stuck, and the kernel gets a connection.
        until("all are on that path", || accepted(&client, &server, chosen) == (CONNECTIONS, wanted));
    }
}

/// How many connections an instance has accepted, and how many of them on the fast path.
fn accepted(client: &Namespace, server: &Namespace, chosen: Option<TcpPath>) -> (u64, u64) {
    let mut serve = twinpath::serve(Echo).on("vs").path(Path::Packet).tcp(PORT);
    if let Some(chosen) = chosen {
        serve = serve.tcp_path(chosen);
    }
    let running = server.run(|| serve.spawn()).unwrap().unwrap();
    for _ in 0..CONNECTIONS {
        let mut stream = client.run(|| TcpStream::connect((SERVER, PORT))).unwrap().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(b"hello").unwrap();
        let mut heard = [0; 5];
        stream.read_exact(&mut heard).unwrap();
        assert_eq!(&heard, b"hello");
    }
    let report = running.report().unwrap();
    let service = &report.services[0];
    println!("{chosen:?}: {:?}", service.claims);
    let accepted = (service.tcp.accepted, service.fast_tcp.fast_accepted);
    running.drain(PATIENCE).unwrap();
    accepted
}
