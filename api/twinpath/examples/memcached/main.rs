//! A memcached over UDP and TCP: `cargo run --example memcached eth0 11211 64` (interface, port, MiB of values)
//!
//! It has the text protocol's get, gets, set, add, replace, cas, delete, incr, decr, touch, flush_all, verbosity, version
//! and quit, with noreply, exptimes and flags, and values of up to 1 MiB. If memory is full, values make room that were
//! not read for long (`table.rs`).
//!
//! - `protocol.rs` reads commands, and knows neither sockets nor values.
//! - `table.rs` holds values in bounded memory; `store.rs` is what commands change; `calendar.rs` says when values are
//!   over.
//! - `reply.rs` carries commands out; `udp.rs` knows datagrams.
//! - `service.rs` connects them to the library.
//!
//! A get of one key by datagram whose reply takes one datagram is kept (docs/reflex.md): the same request, with any ID,
//! is answered again without this program until that key changes, over either transport, or its time is over.
mod calendar;
mod protocol;
mod reply;
mod service;
mod store;
mod table;
mod udp;

use service::{CONNECTION_BYTES, Memcached};

/// MiB of values, as memcached has them by default.
const MEMORY_MIB: usize = 64;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let interface = arguments.next().unwrap_or_else(|| "lo".to_owned());
    let port = arguments.next().map_or(Ok(11_211), |port| port.parse())?;
    let memory_mib = arguments.next().map_or(Ok(MEMORY_MIB), |mib| mib.parse())?;
    twinpath::serve(Memcached::new(memory_mib << 20))
        .named("memcached")
        .on(&interface)
        .udp(port)
        .tcp(port)
        .configure(|config| config.limits.connection_bytes = CONNECTION_BYTES)
        .run()?;
    Ok(())
}
