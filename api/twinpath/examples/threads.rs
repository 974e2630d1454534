//! Threads with sockets that have a fast path: `cargo run --example threads eth0`. Two threads have one
//! socket each on UDP port 7011, and the kernel spreads the peers between them (SO_REUSEPORT). Three
//! threads share one socket on port 7012. Each answers a datagram with its own name. The program ends when
//! its standard input does.
use std::io::{self, Read as _};
use std::net::{Ipv6Addr, SocketAddrV6};

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with, sockopt};
use twinpath::UdpSocket;

/// Answers for ever. Several threads may call it with one socket: one uses the fast path, the others wait
/// in the kernel.
fn answer(name: &str, socket: &UdpSocket) -> io::Result<()> {
    let mut buffer = [0; 2048];
    loop {
        match socket.recv_from(&mut buffer) {
            // An unreachable peer is no reason to end.
            Ok((_, from)) => drop(socket.send_to(name.as_bytes(), from)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn start(name: String, socket: UdpSocket) {
    std::thread::spawn(move || answer(&name, &socket).inspect_err(|error| eprintln!("{name}: {error}")));
}

/// A socket in the SO_REUSEPORT group of a port.
fn in_group(port: u16) -> io::Result<std::net::UdpSocket> {
    let socket = socket_with(AddressFamily::INET6, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    bind(&socket, &SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0))?;
    Ok(socket.into())
}

fn main() -> io::Result<()> {
    let interface = std::env::args().nth(1).unwrap_or("lo".to_owned());
    // All are bound before the first one is used: a peer keeps its socket as long as the group stays
    // unchanged.
    let group = [in_group(7011)?, in_group(7011)?];
    for (number, socket) in group.into_iter().enumerate() {
        let socket = UdpSocket::from(socket).on(&interface);
        println!("socket {number} by the {}", socket.path());
        start(format!("own-{number}"), socket);
    }
    let shared = UdpSocket::bind("[::]:7012")?.on(&interface);
    println!("shared socket by the {}", shared.path());
    for number in 0..3 {
        start(format!("shared-{number}"), shared.try_clone()?);
    }
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
