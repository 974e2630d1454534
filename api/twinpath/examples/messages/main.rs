//! An application's own protocol over UDP: reliable, ordered messages with their own header (`protocol.rs`,
//! which knows neither sockets nor clocks), and the loop that drives it, over both paths.
//!
//! `cargo run --example messages serve eth0` answers each message with itself in capitals, at UDP port 7009.
//! `cargo run --example messages send eth0 192.0.2.1:7009` sends the lines of standard input and prints the answers.
mod protocol;

use std::collections::HashMap;
use std::io::{self, BufRead as _, ErrorKind};
use std::net::SocketAddr;
use std::time::{Duration, Instant as Time};

use protocol::{Connection, HEADER_LEN, MESSAGE_MAX};
use twinpath::{Instant, UdpSocket};

/// Maximum number of peers known at a time. A new one replaces the one that has been silent for longest.
const PEERS_MAX: usize = 1024;
/// How long the loop waits if nothing is due.
const LONG: Duration = Duration::from_secs(3600);

/// The socket, and the time for the protocol.
struct Network {
    socket: UdpSocket,
    begun: Time,
    datagram: Vec<u8>,
    buffer: Vec<u8>,
}

impl Network {
    fn new(address: &str, interface: &str) -> io::Result<Self> {
        let socket = UdpSocket::bind(address)?.on(interface);
        println!("UDP by the {}", socket.path());
        // One byte more than allowed, so that a datagram that is too long is noticed.
        let buffer = vec![0; HEADER_LEN + MESSAGE_MAX + 1];
        Ok(Self { socket, begun: Time::now(), datagram: Vec::new(), buffer })
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(self.begun.elapsed().as_nanos() as u64)
    }

    /// Sends what is due to a peer.
    fn send(&mut self, connection: &mut Connection, to: SocketAddr) {
        while connection.transmit(self.now(), &mut self.datagram) {
            // A datagram that cannot be sent now is retransmitted like a lost one.
            let _ = self.socket.send_to(&self.datagram, to);
        }
    }

    /// Waits for a datagram until the time at which a connection has something to send.
    fn receive(&mut self, until: Option<Instant>) -> io::Result<Option<(usize, SocketAddr)>> {
        let wait = until.map_or(LONG, |until| Duration::from_nanos(until.nanos_since(self.now())));
        // Zero would mean no time-out.
        self.socket.set_read_timeout(Some(wait.max(Duration::from_micros(1))))?;
        match self.socket.recv_from(&mut self.buffer) {
            Ok(read) => Ok(Some(read)),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn serve(mut network: Network) -> io::Result<()> {
    let mut peers: HashMap<SocketAddr, (Instant, Connection)> = HashMap::new();
    loop {
        let due = peers.values().filter_map(|(_, connection)| connection.deadline()).min();
        let received = network.receive(due)?;
        let now = network.now();
        if let Some((len, from)) = received {
            if peers.len() >= PEERS_MAX && !peers.contains_key(&from) {
                let oldest = peers.iter().min_by_key(|(_, (heard, _))| *heard).map(|(peer, _)| *peer);
                oldest.and_then(|peer| peers.remove(&peer));
            }
            let (heard, connection) = peers.entry(from).or_default();
            *heard = now;
            // What is refused is not answered.
            let _ = connection.receive(&network.buffer[..len]);
            // As many as can be answered. The rest wait here, and then at the peer.
            while connection.has_room()
                && let Some(message) = connection.next()
            {
                let _ = connection.send(now, &message.to_ascii_uppercase());
            }
            network.send(connection, from);
        }
        let is_due = |connection: &Connection| connection.deadline().is_some_and(|due| due <= now);
        for (peer, (_, connection)) in peers.iter_mut().filter(|(_, (_, connection))| is_due(connection)) {
            network.send(connection, *peer);
        }
        peers.retain(|_, (_, connection)| !connection.is_lost());
    }
}

fn send(mut network: Network, to: SocketAddr) -> io::Result<()> {
    let mut connection = Connection::default();
    let mut lines = io::stdin().lock().lines();
    let mut awaited = 0u64;
    loop {
        // As many lines as the window allows; the rest of the input waits.
        while connection.has_room()
            && let Some(line) = lines.next().transpose()?
        {
            if !connection.send(network.now(), line.as_bytes()) {
                return Err(io::Error::new(
                    ErrorKind::InvalidInput,
                    "a line is longer than a message can be",
                ));
            }
            awaited += 1;
        }
        network.send(&mut connection, to);
        if awaited == 0 && connection.is_quiet() {
            return Ok(());
        }
        if connection.is_lost() {
            return Err(io::Error::new(ErrorKind::TimedOut, format!("{to} does not answer")));
        }
        let received = network.receive(connection.deadline())?;
        if let Some((len, _)) = received.filter(|(_, from)| *from == to) {
            let _ = connection.receive(&network.buffer[..len]);
            while let Some(message) = connection.next() {
                awaited -= 1;
                println!("{}", String::from_utf8_lossy(&message));
            }
        }
    }
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["serve", interface] => serve(Network::new("0.0.0.0:7009", interface)?),
        ["send", interface, to] => {
            let to = to.parse().map_err(|error| io::Error::new(ErrorKind::InvalidInput, error))?;
            send(Network::new("0.0.0.0:0", interface)?, to)
        }
        _ => Err(io::Error::new(
            ErrorKind::InvalidInput,
            "say serve INTERFACE, or send INTERFACE ADDRESS:PORT",
        )),
    }
}
