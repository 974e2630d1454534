//! A memcached over UDP and TCP: `cargo run --example memcached eth0 11211 64 fast` (interface, port, MiB of
//! values, path of TCP)
//!
//! It implements the text protocol's get, gets, set, add, replace, cas, delete, incr, decr, touch,
//! flush_all, verbosity, version and quit, with noreply, exptimes and flags, and values of up to 1 MiB.
//! When memory is full, values that have not been read for long are evicted (`table.rs`).
//!
//! - `protocol.rs` reads commands, and knows neither sockets nor values.
//! - `table.rs` holds values in bounded memory; `store.rs` applies commands to them; `calendar.rs` computes
//!   expiry times.
//! - `reply.rs` executes commands and writes replies; `udp.rs` handles memcached's UDP header.
//! - `service.rs` connects them to the library.
//!
//! The reply to a get of one key by datagram is kept if it takes one datagram (docs/reflex.md): the same
//! request, with any ID, is answered again without this program until the key changes, over either
//! transport, or expires.
mod calendar;
mod protocol;
mod reply;
mod service;
mod store;
mod table;
mod udp;

use service::{CONNECTION_BYTES, Memcached};
use twinpath::TcpPath;

/// MiB of values; memcached's default.
const MEMORY_MIB: usize = 64;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let interface = arguments.next().unwrap_or_else(|| "lo".to_owned());
    let port = arguments.next().map_or(Ok(11_211), |port| port.parse())?;
    let memory_mib = arguments.next().map_or(Ok(MEMORY_MIB), |mib| mib.parse())?;
    let tcp_path = arguments.next().map_or(Ok(TcpPath::Auto), |path| path.parse())?;
    twinpath::serve(Memcached::new(memory_mib << 20))
        .named("memcached")
        .on(&interface)
        .udp(port)
        .tcp(port)
        .tcp_path(tcp_path)
        .configure(|config| config.limits.connection_bytes = CONNECTION_BYTES)
        .run()?;
    Ok(())
}
