//! The programs at both ends of a connection: what they write, how slowly they read, and how they end.

use twinpath_tcp::{ConnectionId, End, Ended, Events, Options, Stream, Tcp};
use twinpath_time::{Duration, Instant};

/// How a program ends its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ends {
    /// It writes all, says so, reads all, and closes.
    Whole,
    /// It says first that it writes nothing more once the peer has.
    AfterPeer,
    /// It closes as soon as all is written.
    Closes,
    /// It resets the connection once so many bytes are written.
    Aborts(u64),
}

/// What one end does.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) bytes: u64,
    pub(crate) write_max: u64,
    /// Bytes that it reads at a time, and how long it waits before it reads again.
    pub(crate) read_max: usize,
    pub(crate) read_every: Duration,
    /// Whether it reads where bytes arrive.
    pub(crate) reads_at_once: bool,
    /// It writes the second half only once all is silent, so that an idle connection is seen.
    pub(crate) rests: bool,
    /// Some of what it writes is urgent.
    pub(crate) urges: bool,
    pub(crate) ends: Ends,
    pub(crate) options: Options,
}

/// How it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It has closed the connection as it wanted.
    Closed,
    /// The connection ended before.
    Failed(Ended),
}

/// One end of a connection at work.
#[derive(Clone, Debug)]
pub(crate) struct Side {
    pub(crate) program: Program,
    /// Tells the bytes of one direction of one connection from those of others.
    pub(crate) salt: u64,
    pub(crate) id: Option<ConnectionId>,
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) rested: bool,
    said_end: bool,
    pub(crate) outcome: Option<Outcome>,
    /// When it reads again.
    pub(crate) reads_at: Instant,
}

/// The byte at a place of a direction.
pub(crate) fn byte(salt: u64, position: u64) -> u8 {
    (position.wrapping_add(salt).wrapping_mul(0x9e37_79b9) >> 13) as u8
}

impl Side {
    pub(crate) fn new(program: Program, salt: u64) -> Self {
        Self {
            program,
            salt,
            id: None,
            sent: 0,
            received: 0,
            rested: false,
            said_end: false,
            outcome: None,
            reads_at: Instant::NEVER,
        }
    }

    /// Checks bytes of the peer, and uses at most `most` of them. `peer_salt`: that of the other end.
    fn read(&mut self, stream: &mut Stream<'_>, most: usize, peer_salt: u64) -> usize {
        let mut left = most;
        loop {
            let received = stream.received();
            let count = received.len().min(left);
            for (index, found) in received[..count].iter().enumerate() {
                let place = self.received + index as u64;
                assert_eq!(*found, byte(peer_salt, place), "byte {place}");
            }
            let urgent = stream.urgent_bytes();
            stream.consume(count);
            assert_eq!(stream.urgent_bytes(), urgent.saturating_sub(count), "urgent bytes are read in line");
            self.received += count as u64;
            left -= count;
            if count == 0 {
                return most - left;
            }
        }
    }

    fn write(&mut self, stream: &mut Stream<'_>, random: &mut fastrand::Rng) {
        let all = self.program.bytes;
        let until = if self.program.rests && !self.rested { all / 2 } else { all };
        while self.sent < until && stream.may_write() {
            let count = (until - self.sent).min(random.u64(1..=self.program.write_max));
            let bytes: Vec<u8> = (self.sent..self.sent + count).map(|place| byte(self.salt, place)).collect();
            let end = if self.program.urges && count.is_multiple_of(2) { End::Urgent } else { End::Piece };
            let taken = if random.bool() {
                stream.write_as(&bytes, end)
            } else if let Some(room) = stream.reserve_exactly(bytes.len()) {
                room.copy_from_slice(&bytes);
                stream.commit_bytes(bytes.len());
                bytes.len()
            } else {
                0
            };
            self.sent += taken as u64;
            if taken < bytes.len() && stream.room() == 0 || taken == 0 {
                break;
            }
        }
    }

    /// Bytes have just arrived.
    pub(crate) fn arrive(&mut self, stream: &mut Stream<'_>, peer_salt: u64, random: &mut fastrand::Rng) {
        if self.program.reads_at_once && self.outcome.is_none() {
            self.read(stream, random.usize(..=self.program.read_max), peer_salt);
            self.write(stream, random);
        }
    }

    /// Does what can be done now. True if the connection is not this program's any more.
    pub(crate) fn work(
        &mut self,
        clock: Instant,
        now: Instant,
        tcp: &mut Tcp,
        peer_salt: u64,
        random: &mut fastrand::Rng,
    ) -> bool {
        let Some(id) = self.id.filter(|_| self.outcome.is_none()) else { return true };
        let ended = tcp.info(clock, id).expect("it was not closed").ended;
        let mut stream = tcp.stream(clock, id).expect("it was not closed");
        self.write(&mut stream, random);
        if now >= self.reads_at || self.reads_at == Instant::NEVER {
            let most = self.program.read_max;
            let read = self.read(&mut stream, most, peer_salt);
            let more = !stream.received().is_empty();
            let paced = !self.program.read_every.is_zero();
            self.reads_at = if more && read == most {
                now + self.program.read_every.max(Duration::from_nanos(1))
            } else if paced && read > 0 {
                now + self.program.read_every
            } else {
                Instant::NEVER
            };
        }
        let (whole, at_end) = (self.sent == self.program.bytes, stream.is_at_end());
        match self.program.ends {
            Ends::Aborts(after) if self.sent >= after => {
                tcp.abort(clock, id);
                return self.end(Outcome::Closed);
            }
            Ends::Closes if whole => {
                tcp.close(clock, id);
                return self.end(Outcome::Closed);
            }
            Ends::Whole | Ends::AfterPeer
                if whole && !self.said_end && (self.program.ends == Ends::Whole || at_end) =>
            {
                stream.end();
                self.said_end = true;
            }
            _ => {}
        }
        assert!(!at_end || stream.urgent_bytes() == 0, "nothing is left behind the end");
        if at_end && self.said_end {
            tcp.close(clock, id);
            return self.end(Outcome::Closed);
        }
        if let Some(why) = ended.filter(|why| *why != Ended::Finished) {
            // What has arrived is still read.
            let mut stream = tcp.stream(clock, id).expect("it was not closed");
            self.read(&mut stream, usize::MAX, peer_salt);
            tcp.close(clock, id);
            return self.end(Outcome::Failed(why));
        }
        false
    }

    fn end(&mut self, outcome: Outcome) -> bool {
        self.outcome = Some(outcome);
        self.reads_at = Instant::NEVER;
        true
    }

    /// Whether events ask for work.
    pub(crate) fn is_called_by(events: Events) -> bool {
        events.has(Events::CONNECTED | Events::READABLE | Events::WRITABLE | Events::ENDED)
    }
}
