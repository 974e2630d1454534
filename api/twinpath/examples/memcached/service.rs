//! The service: commands in datagrams and on connections.

use std::net::SocketAddr;
use std::sync::Arc;

use twinpath::{
    Answer, Begin, Datagram, HOLD_MAX, Instant, Keep, KeptReplies, Output, Reason, Reflex, Service, Shape,
};

use crate::calendar::Calendar;
use crate::protocol::{Command, ERROR, GET_LINE_MAX, Parsed, parse};
use crate::reply::{END, SHORT, Turn, carry_out, values};
use crate::store::{Store, VALUE_MAX};
use crate::udp::{self, HEADER_LEN};

/// The reply has the ID of the request; every other byte matters.
pub(crate) const BY_ID: Shape = Shape::EXACT.copying(0, 2, 0);

/// The buffer size of a connection in each direction (`limits.connection_bytes`): fits the longest command,
/// and the reply to a get of the longest value.
pub(crate) const CONNECTION_BYTES: u32 = (VALUE_MAX + GET_LINE_MAX + 4096) as u32;

/// Every worker has a clone; all clones share the store.
#[derive(Clone)]
pub(crate) struct Memcached {
    store: Arc<Store>,
    calendar: Calendar,
    reply: Vec<u8>,
}

/// The state of a connection between calls.
#[derive(Default)]
pub(crate) struct Connection {
    /// Bytes of an oversized value that are still to be skipped.
    skip: usize,
    /// The remaining keys of a get whose reply did not fit into the output.
    rest: Vec<u8>,
    with_cas: bool,
}

impl Memcached {
    /// A service with a store of at most this many bytes.
    pub(crate) fn new(bytes_max: usize) -> Self {
        let store = Arc::new(Store::new(bytes_max, KeptReplies::new(&[BY_ID])));
        Self { store, calendar: Calendar::of_system(Instant::ZERO), reply: Vec::new() }
    }

    /// Skips the bytes of an oversized value in the input.
    fn skip(connection: &mut Connection, input: &[u8], output: &mut Output<'_>) -> usize {
        let skipped = connection.skip.min(input.len());
        connection.skip -= skipped;
        if connection.skip > 0 {
            output.unfinished();
        }
        skipped
    }

    /// Answers a get with as many values as there is room for.
    fn get(&self, now: Instant, connection: &mut Connection, keys: &[u8], output: &mut Output<'_>) {
        let turn = Turn { store: &self.store, calendar: &self.calendar, now };
        let (room, with_cas) = (output.room(), connection.with_cas);
        let mut rest: &[u8] = b"";
        // `values` writes no more than the room.
        let _ = output.write_with(|reply| (_, rest) = values(turn, keys, with_cas, room, reply));
        connection.rest = rest.to_vec();
    }
}

impl Service for Memcached {
    type Connection = Connection;

    fn start(&mut self, now: Instant, _begin: &Begin) {
        self.calendar = Calendar::of_system(now);
    }

    fn datagram(&mut self, datagram: &mut Datagram<'_>) -> Answer {
        let now = datagram.now();
        let Some((id, request)) = udp::unframe(datagram.request()) else {
            return Answer::Drop(Reason::ProtocolError);
        };
        let request_len = request.len();
        let turn = Turn { store: &self.store, calendar: &self.calendar, now };
        let reply = &mut self.reply;
        reply.clear();
        reply.extend_from_slice(&udp::header(id, 0, 1));
        let command = match parse(request) {
            Parsed::Whole { command, len } if len == request_len => command,
            // An unknown command is not answered here: a reply looks like one, so two servers would answer
            // each other.
            Parsed::Wrong { what, len } if len == request_len && what != ERROR => {
                reply.extend_from_slice(what.as_bytes());
                return if what.is_empty() { Answer::Nothing } else { datagram.answer(reply) };
            }
            _ => return Answer::Drop(Reason::ProtocolError),
        };
        // Before the value is read.
        let version = command.only_key().map(|key| datagram.version_of(key));
        let until = match command {
            Command::Get { keys, with_cas } => {
                let (until, rest) = values(turn, keys, with_cas, udp::REPLY_MAX, reply);
                if !rest.is_empty() {
                    reply.truncate(HEADER_LEN);
                    reply.extend_from_slice(b"SERVER_ERROR too much for datagrams: ask over TCP\r\n");
                    return datagram.answer(reply);
                }
                until
            }
            command => {
                carry_out(turn, &command, reply);
                Instant::NEVER
            }
        };
        match version {
            // Nobody waits for a reply.
            _ if reply.len() == HEADER_LEN => Answer::Nothing,
            _ if !udp::is_one(reply) => udp::answer_by_several(datagram, id, &reply[HEADER_LEN..]),
            Some(version) => {
                let hold = until.since(now).min(HOLD_MAX);
                datagram.answer_and_keep(reply, &Keep { shape: &BY_ID, version, hold })
            }
            None => datagram.answer(reply),
        }
    }

    fn reflex(&self) -> Reflex {
        Reflex::Kept(self.store.kept().clone())
    }

    fn may_loop(&self) -> bool {
        false
    }

    fn accept(&mut self, _now: Instant, _peer: SocketAddr) -> Result<Connection, Reason> {
        Ok(Connection::default())
    }

    fn stream(
        &mut self,
        now: Instant,
        connection: &mut Connection,
        input: &[u8],
        output: &mut Output<'_>,
    ) -> usize {
        if connection.skip > 0 {
            return Self::skip(connection, input, output);
        }
        // Input that cannot be answered yet is passed again when there is room.
        if !connection.rest.is_empty() || output.room() < SHORT {
            return 0;
        }
        let (command, len) = match parse(input) {
            Parsed::Whole { command, len } => (command, len),
            Parsed::Wrong { what, len } => return if output.write(what.as_bytes()) { len } else { 0 },
            Parsed::Partial => return 0,
            Parsed::Broken => {
                output.refuse(Reason::ProtocolError);
                return 0;
            }
        };
        match command {
            Command::Quit => output.end(),
            Command::Get { keys, with_cas } => {
                connection.with_cas = with_cas;
                self.get(now, connection, keys, output);
            }
            command => {
                if let Command::TooLarge { bytes, .. } = command {
                    connection.skip = bytes;
                }
                let turn = Turn { store: &self.store, calendar: &self.calendar, now };
                // There is room for any of these.
                let _ = output.write_with(|reply| carry_out(turn, &command, reply));
            }
        }
        len
    }

    fn writable(&mut self, now: Instant, connection: &mut Connection, output: &mut Output<'_>) {
        if !connection.rest.is_empty() {
            let keys = std::mem::take(&mut connection.rest);
            self.get(now, connection, &keys, output);
        }
    }
}

const _: () = assert!(CONNECTION_BYTES as usize > VALUE_MAX + 2 * SHORT + 250 + END.len());
