//! An authoritative DNS server for one zone file, over UDP and TCP: `cargo run --example dns eth0 example.org.zone 53`
//!
//! It implements what an authoritative server needs: zone files (RFC 1035, 5; RFC 3597), EDNS (RFC 6891),
//! negative answers (RFC 2308), CNAME, wildcards (RFC 4592), delegations, truncation, and several queries
//! on one connection (RFC 7766). A query for all types is answered with one of them (RFC 8482). DNSSEC,
//! DNAME, zone transfers and updates are not implemented.
//!
//! - `zone.rs` reads the file, and holds the records by name.
//! - `find.rs` finds the records of a name and a type.
//! - `answer.rs` reads queries and writes replies; neither of these knows sockets.
//! - `service.rs` connects them to the library.
//!
//! Answers are kept (docs/reflex.md): the same query, with any ID, is answered again without this program
//! until the zone is reloaded. SIGHUP reloads it. A file with mistakes is reported, and the former zone
//! stays.
mod answer;
mod find;
mod service;
mod zone;

use std::path::{Path, PathBuf};

use tokio::runtime::Builder;
use tokio::signal::unix::{Signal, SignalKind, signal};

use service::Dns;
use zone::Zone;

/// Reads the file again at each signal.
async fn reload(mut asked: Signal, dns: Dns, file: &Path) {
    while asked.recv().await.is_some() {
        match Zone::load(file) {
            Err(wrong) => eprintln!("the former zone stays: {wrong}"),
            Ok(zone) => {
                dns.replace(zone);
                println!("reloaded {}", file.display());
            }
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(interface), Some(file)) = (arguments.next(), arguments.next()) else {
        return Err("usage: dns INTERFACE ZONE-FILE [PORT]".into());
    };
    let file = PathBuf::from(file);
    let port = arguments.next().map_or(Ok(53), |port| port.parse())?;
    let dns = Dns::new(Zone::load(&file)?);
    let reloading = dns.clone();
    // From here on a separate thread waits for signals.
    let signals = Builder::new_current_thread().enable_io().build()?;
    let asked = signals.block_on(async { signal(SignalKind::hangup()) })?;
    std::thread::spawn(move || signals.block_on(reload(asked, reloading, &file)));
    Ok(twinpath::serve(dns).named("dns").on(&interface).udp(port).tcp(port).run()?)
}
