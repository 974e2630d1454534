//! Executes commands and writes their replies.

use std::io::Write as _;

use twinpath::Instant;

use crate::calendar::Calendar;
use crate::protocol::{Command, next_word};
use crate::store::{NotCounted, Outcome, Store};
use crate::table::Item;

/// Room for any reply except that of a get.
pub(crate) const SHORT: usize = 128;

pub(crate) const END: &[u8] = b"END\r\n";

/// The store that commands are executed on, and the time.
#[derive(Clone, Copy)]
pub(crate) struct Turn<'a> {
    pub(crate) store: &'a Store,
    pub(crate) calendar: &'a Calendar,
    pub(crate) now: Instant,
}

/// Executes a command other than a get. Appends its reply, of at most [`SHORT`] bytes, if the client
/// expects one.
pub(crate) fn carry_out(turn: Turn<'_>, command: &Command<'_>, reply: &mut Vec<u8>) {
    let Turn { store, calendar, now } = turn;
    let (said, quiet) = match *command {
        Command::Get { .. } | Command::Quit => ("", true),
        Command::Store { when, key, flags, exptime, value, quiet } => {
            (stored(store.store(now, when, key, flags, calendar.until(now, exptime), value)), quiet)
        }
        Command::TooLarge { key, quiet, .. } => {
            // The client does not want the former value to stay, either.
            store.delete(now, key);
            ("SERVER_ERROR object too large for cache\r\n", quiet)
        }
        Command::Count { key, adds, delta, quiet } => match store.count(now, key, adds, delta) {
            Ok(number) => {
                if !quiet {
                    // Writing to a vector does not fail.
                    let _ = write!(reply, "{number}\r\n");
                }
                ("", quiet)
            }
            Err(NotCounted::NotFound) => ("NOT_FOUND\r\n", quiet),
            Err(NotCounted::NoNumber) => {
                ("CLIENT_ERROR cannot increment or decrement non-numeric value\r\n", quiet)
            }
        },
        Command::Touch { key, exptime, quiet } => {
            let touched = store.touch(now, key, calendar.until(now, exptime));
            (if touched { "TOUCHED\r\n" } else { "NOT_FOUND\r\n" }, quiet)
        }
        Command::Delete { key, quiet } => {
            (if store.delete(now, key) { "DELETED\r\n" } else { "NOT_FOUND\r\n" }, quiet)
        }
        Command::FlushAll { quiet } => {
            store.clear();
            ("OK\r\n", quiet)
        }
        Command::Verbosity { quiet } => ("OK\r\n", quiet),
        Command::Version => ("VERSION twinpath\r\n", false),
    };
    if !quiet {
        reply.extend_from_slice(said.as_bytes());
    }
}

const fn stored(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Stored => "STORED\r\n",
        Outcome::NotStored => "NOT_STORED\r\n",
        Outcome::Exists => "EXISTS\r\n",
        Outcome::NotFound => "NOT_FOUND\r\n",
    }
}

/// Appends as many values of `keys` as fit into `room` bytes, and the end mark. Returns until when this
/// reply is valid, and the keys that are left.
pub(crate) fn values<'k>(
    turn: Turn<'_>,
    mut keys: &'k [u8],
    with_cas: bool,
    room: usize,
    reply: &mut Vec<u8>,
) -> (Instant, &'k [u8]) {
    let (mut until, begin) = (Instant::NEVER, reply.len());
    let mut rest = keys;
    while let Some(key) = next_word(&mut rest) {
        if let Some(item) = turn.store.get(turn.now, key) {
            let before = reply.len();
            value(key, &item, with_cas, reply);
            if reply.len() - begin + END.len() > room {
                reply.truncate(before);
                return (until, keys);
            }
            until = until.min(item.until);
        }
        keys = rest;
    }
    reply.extend_from_slice(END);
    (until, b"")
}

fn value(key: &[u8], item: &Item, with_cas: bool, reply: &mut Vec<u8>) {
    let Item { flags, cas, value, .. } = item;
    reply.reserve(key.len() + value.len() + SHORT);
    reply.extend_from_slice(b"VALUE ");
    reply.extend_from_slice(key);
    // Writing to a vector does not fail.
    let _ = match with_cas {
        true => write!(reply, " {flags} {} {cas}\r\n", value.len()),
        false => write!(reply, " {flags} {}\r\n", value.len()),
    };
    reply.extend_from_slice(value);
    reply.extend_from_slice(b"\r\n");
}
