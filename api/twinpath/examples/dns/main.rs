//! An authoritative DNS server for one zone file, over UDP and TCP: `cargo run --example dns eth0 example.org.zone 53`
//!
//! Answers are kept: the same query, with any ID, is answered again without this program until the zone is read anew. A
//! line `reload` on standard input does that; a file with mistakes is reported, and the former zone stays.
//!
//! It has what an authoritative server needs: EDNS (RFC 6891), negative answers (RFC 2308), CNAME, delegations, and
//! truncation. It has no wildcards, DNSSEC, zone transfers or updates; wildcards in a file are refused.
mod answer;
mod zone;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use twinpath::{
    Answer, Datagram, HOLD_MAX, Instant, Keep, KeptReplies, Output, Reason, Reflex, Service, Shape,
};

use crate::answer::{Answered, Transport, answer};
use crate::zone::Zone;

/// The reply has the query's ID (RFC 1035, 4.1.1); every other byte of the query matters, its name's case included.
const BY_ID: Shape = Shape::EXACT.copying(0, 2, 0);

/// The name of all that answers are made from.
const ZONE: u64 = 0;

/// The longest answer over TCP, with its length in front (RFC 1035, 4.2.2).
const TCP_ANSWER_MAX: usize = 2 + 65_535;

/// Every worker has a clone; all clones share the zone.
#[derive(Clone)]
struct Dns {
    zone: Arc<RwLock<Arc<Zone>>>,
    kept: KeptReplies,
    reply: Vec<u8>,
}

impl Dns {
    fn answer(&mut self, query: &[u8], transport: Transport) -> Answered {
        let zone = Arc::clone(&self.zone.read().unwrap_or_else(PoisonError::into_inner));
        answer(&zone, query, transport, &mut self.reply)
    }

    /// Reads the file again for each line `reload` of standard input.
    fn reload_on_request(&self, file: &Path) {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            match Zone::load(file) {
                _ if line.trim() != "reload" => eprintln!("{line}: the only request is: reload"),
                Err(wrong) => eprintln!("the former zone stays: {wrong}"),
                Ok(zone) => {
                    *self.zone.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(zone);
                    // After the change, and before anybody is told of it.
                    self.kept.withdraw(ZONE);
                    println!("reloaded {}", file.display());
                }
            }
        }
    }
}

impl Service for Dns {
    type Connection = ();

    fn datagram(&mut self, datagram: &mut Datagram<'_>) -> Answer {
        // Before the zone is read.
        let version = datagram.version_of(ZONE);
        match self.answer(datagram.request(), Transport::Udp) {
            Answered::ByZone => {
                datagram.answer_and_keep(&self.reply, &Keep { shape: &BY_ID, version, hold: HOLD_MAX })
            }
            Answered::Refused => datagram.answer(&self.reply),
            Answered::Not => Answer::Drop(Reason::ProtocolError),
        }
    }

    fn reflex(&self) -> Reflex {
        Reflex::Kept(self.kept.clone())
    }

    /// A reply is marked as one (RFC 1035, 4.1.1), and a reply is never answered.
    fn may_loop(&self) -> bool {
        false
    }

    fn accept(&mut self, _now: Instant, _peer: SocketAddr) -> Result<(), Reason> {
        Ok(())
    }

    fn stream(&mut self, _now: Instant, _: &mut (), input: &[u8], output: &mut Output<'_>) -> usize {
        let Some((len, rest)) = input.split_first_chunk() else { return 0 };
        let Some(query) = rest.get(..usize::from(u16::from_be_bytes(*len))) else { return 0 };
        if output.room() < TCP_ANSWER_MAX {
            return 0; // The query comes again when there is room.
        }
        if self.answer(query, Transport::Tcp) == Answered::Not {
            output.refuse(Reason::ProtocolError);
            return 0;
        }
        let reply_len = self.reply.len() as u16;
        let written = output.write(&reply_len.to_be_bytes()) && output.write(&self.reply);
        if written { len.len() + query.len() } else { 0 }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(interface), Some(file)) = (arguments.next(), arguments.next()) else {
        return Err("usage: dns INTERFACE ZONE-FILE [PORT]".into());
    };
    let file = PathBuf::from(file);
    let port = arguments.next().map_or(Ok(53), |port| port.parse())?;
    let zone = Arc::new(RwLock::new(Arc::new(Zone::load(&file)?)));
    let dns = Dns { zone, kept: KeptReplies::new(&[BY_ID]), reply: Vec::new() };
    let reloading = dns.clone();
    std::thread::spawn(move || reloading.reload_on_request(&file));
    Ok(twinpath::serve(dns).named("dns").on(&interface).udp(port).tcp(port).run()?)
}
