//! A service that sends every line back: `cargo run --example line_echo eth0`
use std::net::SocketAddr;
use twinpath::{Error, Instant, Output, Reason, Service};

#[derive(Clone)]
struct LineEcho;

impl Service for LineEcho {
    type Connection = ();

    fn accept(&mut self, _now: Instant, _peer: SocketAddr) -> Result<(), Reason> {
        Ok(())
    }

    fn stream(&mut self, _now: Instant, _: &mut (), input: &[u8], output: &mut Output<'_>) -> usize {
        let Some(end) = input.iter().position(|byte| *byte == b'\n') else { return 0 };
        if output.write(&input[..=end]) { end + 1 } else { 0 }
    }
}

fn main() -> Result<(), Error> {
    let interface = std::env::args().nth(1).unwrap_or("lo".to_owned());
    twinpath::serve(LineEcho).named("line-echo").on(&interface).tcp(7007).run()
}
