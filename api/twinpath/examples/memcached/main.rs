//! A subset of memcached over UDP and TCP (get, set, delete, flush_all, version): `cargo run --example memcached eth0 11211`
//!
//! The reply to a get of one key by datagram may be kept (docs/reflex.md; no instance keeps any yet): then the same
//! request, with any ID, is answered again without this program until that key is set or deleted, over either
//! transport, or its time is over.
mod protocol;
mod store;

use std::net::SocketAddr;
use std::sync::Arc;

use twinpath::{
    Answer, Datagram, HOLD_MAX, Instant, Keep, KeptReplies, Output, Reason, Reflex, Service, Shape,
};

use crate::protocol::{Command, Parsed, parse};
use crate::store::{Item, Store, VALUE_MAX};

/// The header of a datagram: the client's ID, number of the datagram, number of datagrams, reserved; two bytes each.
const HEADER_LEN: usize = 8;

/// The reply has the ID of the request; every other byte matters.
const BY_ID: Shape = Shape::EXACT.copying(0, 2, 0);

/// Room for a reply over TCP with as many values as one request can ask for.
const REPLY_ROOM: usize = 2 * VALUE_MAX;

/// Every worker has a clone; all clones share the store.
#[derive(Clone)]
struct Memcached {
    store: Arc<Store>,
    kept: KeptReplies,
    reply: Vec<u8>,
}

impl Memcached {
    /// Carries out a command, and appends its reply, if it has one. Returns until when the reply to a get holds.
    fn run(&mut self, now: Instant, command: &Command<'_>) -> Instant {
        let Self { store, kept, reply } = self;
        let mut until = Instant::NEVER;
        // What is changed is withdrawn before the reply says so.
        let (said, quiet) = match command {
            Command::Get { keys } => {
                for key in keys.split(u8::is_ascii_whitespace).filter(|key| !key.is_empty()) {
                    let Some(Item { flags, value, until: own }) = store.get(now, key) else { continue };
                    until = until.min(own);
                    reply.extend_from_slice(b"VALUE ");
                    reply.extend_from_slice(key);
                    reply.extend_from_slice(format!(" {flags} {}\r\n", value.len()).as_bytes());
                    reply.extend_from_slice(&value);
                    reply.extend_from_slice(b"\r\n");
                }
                ("END\r\n", false)
            }
            Command::Set { key, flags, seconds, value, quiet } => {
                let stored = store.set(now, key, *flags, *seconds, value);
                kept.withdraw(*key);
                (if stored { "STORED\r\n" } else { "SERVER_ERROR out of memory storing object\r\n" }, *quiet)
            }
            Command::Delete { key, quiet } => {
                let deleted = store.delete(now, key);
                kept.withdraw(*key);
                (if deleted { "DELETED\r\n" } else { "NOT_FOUND\r\n" }, *quiet)
            }
            Command::FlushAll { quiet } => {
                store.clear();
                kept.withdraw_all();
                ("OK\r\n", *quiet)
            }
            Command::Version => ("VERSION twinpath\r\n", false),
            Command::Quit => ("", true),
        };
        if !quiet {
            reply.extend_from_slice(said.as_bytes());
        }
        until
    }
}

impl Service for Memcached {
    type Connection = ();

    fn datagram(&mut self, datagram: &mut Datagram<'_>) -> Answer {
        let now = datagram.now();
        let Some((header, request)) = datagram.request().split_at_checked(HEADER_LEN) else {
            return Answer::Drop(Reason::ProtocolError);
        };
        // A request takes one datagram, and is a command: no reply is one, so two servers never answer each other.
        let (Parsed::Whole { command, len }, [0, 0, 0, 1]) = (parse(request), &header[2..6]) else {
            return Answer::Drop(Reason::ProtocolError);
        };
        if len < request.len() {
            return Answer::Drop(Reason::ProtocolError);
        }
        let key = command.only_key();
        // Before the value is read.
        let version = key.map(|key| datagram.version_of(key));
        self.reply.clear();
        self.reply.extend_from_slice(&[header[0], header[1], 0, 0, 0, 1, 0, 0]);
        let until = self.run(now, &command);
        match version {
            // Nobody waits for a reply.
            _ if self.reply.len() == HEADER_LEN => Answer::Nothing,
            Some(version) => {
                let hold = until.since(now).min(HOLD_MAX);
                datagram.answer_and_keep(&self.reply, &Keep { shape: &BY_ID, version, hold })
            }
            None => datagram.answer(&self.reply),
        }
    }

    fn reflex(&self) -> Reflex {
        Reflex::Kept(self.kept.clone())
    }

    fn may_loop(&self) -> bool {
        false
    }

    fn accept(&mut self, _now: Instant, _peer: SocketAddr) -> Result<(), Reason> {
        Ok(())
    }

    fn stream(&mut self, now: Instant, _: &mut (), input: &[u8], output: &mut Output<'_>) -> usize {
        let (command, len) = match parse(input) {
            Parsed::Partial => return 0,
            _ if output.room() < REPLY_ROOM => return 0, // The command comes again when there is room.
            Parsed::Whole { command: Command::Quit, len } => {
                output.end();
                return len;
            }
            Parsed::Wrong { what, len } => return if output.write(what.as_bytes()) { len } else { 0 },
            Parsed::Broken => {
                output.refuse(Reason::ProtocolError);
                return 0;
            }
            Parsed::Whole { command, len } => (command, len),
        };
        self.reply.clear();
        self.run(now, &command);
        if self.reply.len() > output.room() {
            self.reply.clear();
            self.reply.extend_from_slice(b"SERVER_ERROR too many values: ask for them one by one\r\n");
        }
        if output.write(&self.reply) { len } else { 0 }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let interface = arguments.next().unwrap_or_else(|| "lo".to_owned());
    let port = arguments.next().map_or(Ok(11_211), |port| port.parse())?;
    let service = Memcached { store: Arc::default(), kept: KeptReplies::new(&[BY_ID]), reply: Vec::new() };
    Ok(twinpath::serve(service).named("memcached").on(&interface).udp(port).tcp(port).run()?)
}
