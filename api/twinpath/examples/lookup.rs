//! A service that returns the size of a file by its name, one name per line over TCP or per datagram. A
//! look-up may wait for a disk, so threads of the pool do it. `cargo run --example lookup eth0`, or `cargo
//! run --example lookup -- --config lookup.toml`
use std::net::SocketAddr;
use twinpath::{Answer, Datagram, Error, Instant, Order, Output, Reason, Service};

/// Maximum length of a file name, bytes.
const NAME_MAX: usize = 1000;

#[derive(Clone)]
struct Lookup;

/// May block: only threads of the pool call it.
fn look(name: &[u8]) -> Vec<u8> {
    let name = String::from_utf8_lossy(name.trim_ascii()).into_owned();
    match std::fs::metadata(&name) {
        Ok(file) => format!("{name} {}\n", file.len()).into_bytes(),
        Err(error) => format!("{name}: {}\n", error.kind()).into_bytes(),
    }
}

impl Service for Lookup {
    type Connection = ();

    /// If the pool has no room, the datagram is dropped (`handlers_busy`): its sender repeats it.
    fn datagram(&mut self, datagram: &mut Datagram<'_>) -> Answer {
        let name = datagram.request().to_vec();
        datagram.later(move || look(&name))
    }

    fn accept(&mut self, _now: Instant, _peer: SocketAddr) -> Result<(), Reason> {
        Ok(())
    }

    fn stream(&mut self, _now: Instant, _: &mut (), input: &[u8], output: &mut Output<'_>) -> usize {
        let Some(end) = input.iter().position(|byte| *byte == b'\n') else {
            if input.len() > NAME_MAX {
                output.refuse(Reason::ProtocolError);
            }
            return 0;
        };
        if !output.may_defer() {
            return 0; // The line comes again when there is room.
        }
        // Answers leave in the order of the questions. With Order::AsDone they would leave as soon as they
        // are ready, which would work here because each answer names its file.
        let name = input[..end].to_vec();
        if output.later(Order::AsAsked, move || look(&name)) { end + 1 } else { 0 }
    }

    /// The service has work that may block, so threads are started for it, as configured by [pool].
    fn defers(&self) -> bool {
        true
    }
}

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let service = twinpath::serve(Lookup).named("lookup");
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["--config", file] => service.file(file).run(),
        [interface] => service.on(interface).tcp(4041).udp(4041).run(),
        _ => service.on("lo").tcp(4041).udp(4041).run(),
    }
}
