//! A service of counters: `add NAME` adds one and answers with the count, over UDP and TCP.
//!
//! `cargo run -- eth0` serves it on an interface; `cargo test` tests it, without root.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use twinpath::{Answer, Datagram, Error, Instant, Output, Reason, Service};

/// The most names: peers choose them, so their number has a limit.
const NAMES_MAX: usize = 1000;

/// All workers count together.
#[derive(Clone, Default)]
struct Counters(Arc<Mutex<HashMap<Vec<u8>, u64>>>);

impl Counters {
    fn answer(&self, request: &[u8]) -> Result<String, Reason> {
        let name = request.strip_prefix(b"add ").ok_or(Reason::ProtocolError)?;
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.len() >= NAMES_MAX && !counts.contains_key(name) {
            return Err(Reason::ServiceRefused);
        }
        let count = counts.entry(name.to_vec()).or_default();
        *count += 1;
        Ok(format!("{count}\n"))
    }
}

impl Service for Counters {
    type Connection = ();

    fn datagram(&mut self, datagram: &mut Datagram<'_>) -> Answer {
        match self.answer(datagram.request().trim_ascii_end()) {
            Ok(count) => datagram.answer(count.as_bytes()),
            Err(reason) => Answer::Drop(reason),
        }
    }

    fn accept(&mut self, _now: Instant, _peer: SocketAddr) -> Result<(), Reason> {
        Ok(())
    }

    fn stream(&mut self, _now: Instant, _: &mut (), input: &[u8], output: &mut Output<'_>) -> usize {
        let Some(end) = input.iter().position(|byte| *byte == b'\n') else { return 0 };
        // Without room for a reply, the line is passed again once there is.
        if output.room() < 32 {
            return 0;
        }
        match self.answer(input[..end].trim_ascii_end()) {
            Ok(count) => assert!(output.write(count.as_bytes()), "there is room"),
            Err(reason) => output.refuse(reason),
        }
        end + 1
    }
}

fn main() -> Result<(), Error> {
    let interface = std::env::args().nth(1).unwrap_or("lo".to_owned());
    twinpath::serve(Counters::default()).named("counters").on(&interface).udp(7070).tcp(7070).run()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use twinpath::test::{Network, Simulation};
    use twinpath::{Closed, Duration, Path};

    use super::*;

    #[test]
    fn names_are_counted_over_all_transports() {
        let mut simulation = Simulation::new(Counters::default());
        let peer = simulation.new_peer();
        assert_eq!(simulation.ask(peer, b"add one"), [b"1\n"]);
        assert!(simulation.ask(peer, b"nonsense").is_empty());
        assert_eq!(simulation.dropped(Reason::ProtocolError), 1);
        let client = simulation.connect(peer).expect("it accepts all");
        simulation.write(client, b"add one\nadd two\n");
        simulation.settle();
        assert_eq!(simulation.read(client), b"2\n1\n");
    }

    #[test]
    fn lines_may_come_in_pieces_and_nonsense_ends_the_connection() {
        let slow = Network { segment_bytes: 1, delay_min: Duration::from_millis(3), ..Network::default() };
        let mut simulation = Simulation::on(slow, Counters::default());
        let peer = simulation.new_peer();
        let client = simulation.connect(peer).expect("it accepts all");
        simulation.write(client, b"add a\nwhat?\nadd b\n");
        simulation.settle();
        assert_eq!(simulation.read(client), b"1\n");
        simulation.finish(client);
        simulation.settle();
        assert_eq!(simulation.closed(client), Some(Closed::For(Reason::ProtocolError)));
    }

    #[test]
    fn it_serves_on_real_sockets() -> Result<(), Box<dyn std::error::Error>> {
        let running = twinpath::serve(Counters::default()).on("lo").path(Path::Kernel).tcp(0).spawn()?;
        let mut client = TcpStream::connect(("127.0.0.1", running.tcp_port().expect("it was asked for")))?;
        client.write_all(b"add one\nadd one\n")?;
        let mut reply = [0; 4];
        client.read_exact(&mut reply)?;
        assert_eq!(&reply, b"1\n2\n");
        drop(client);
        running.drain(std::time::Duration::from_secs(10))?;
        Ok(())
    }
}
