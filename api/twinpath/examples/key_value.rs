//! A key-value store: `get KEY`, `set KEY VALUE`, `quit`, each a line over TCP or a datagram: `cargo run --example key_value eth0`
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};
use twinpath::{Answer, Datagram, Error, Instant, Output, Reason, Service};

/// Maximum number of keys in the store, and of mistakes on a connection.
const KEYS_MAX: usize = 100_000;
const MISTAKES_MAX: u32 = 10;

/// Every worker has a clone; all clones share the map.
#[derive(Clone, Default)]
struct Store {
    values: Arc<RwLock<HashMap<String, String>>>,
}

impl Store {
    /// The answer to a line, or an error message.
    fn answer(&self, line: &[u8]) -> Result<String, &'static str> {
        let line = std::str::from_utf8(line).map_err(|_| "error: not text")?;
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["get", key] => {
                let values = self.values.read().unwrap_or_else(PoisonError::into_inner);
                Ok(values.get(key).map_or("none".to_owned(), |value| format!("value {value}")))
            }
            ["set", key, value] if key.len() + value.len() <= 1000 => {
                let mut values = self.values.write().unwrap_or_else(PoisonError::into_inner);
                if values.len() >= KEYS_MAX && !values.contains_key(key) {
                    return Err("error: full");
                }
                values.insert(key.to_owned(), value.to_owned());
                Ok("stored".to_owned())
            }
            _ => Err("error: get KEY or set KEY VALUE, up to 1000 bytes"),
        }
    }
}

impl Service for Store {
    /// Mistakes made so far.
    type Connection = u32;

    fn datagram(&mut self, datagram: &mut Datagram<'_>) -> Answer {
        let answer = self.answer(datagram.request()).unwrap_or_else(str::to_owned);
        datagram.answer(answer.as_bytes())
    }

    fn accept(&mut self, _now: Instant, _peer: SocketAddr) -> Result<u32, Reason> {
        Ok(0)
    }

    fn stream(&mut self, _now: Instant, mistakes: &mut u32, input: &[u8], output: &mut Output<'_>) -> usize {
        let Some(end) = input.iter().position(|byte| *byte == b'\n') else { return 0 };
        if output.room() < 2048 {
            return 0; // The line comes again when there is room.
        }
        let answer = match input[..end].trim_ascii() {
            b"quit" => {
                output.end();
                "bye".to_owned()
            }
            line => self.answer(line).unwrap_or_else(|wrong| {
                *mistakes += 1;
                wrong.to_owned()
            }),
        };
        if *mistakes > MISTAKES_MAX {
            output.refuse(Reason::ProtocolError);
        }
        if output.write(format!("{answer}\n").as_bytes()) { end + 1 } else { 0 }
    }
}

fn main() -> Result<(), Error> {
    let interface = std::env::args().nth(1).unwrap_or("lo".to_owned());
    twinpath::serve(Store::default()).named("key-value").on(&interface).tcp(4040).udp(4040).run()
}
