//! Discard (RFC 863): every byte is read and dropped.
//!
//! One feature goes beyond the RFC: a sender of datagrams can ask what has arrived ([`stream`]). Only
//! datagrams that begin with the mark of such a stream are counted. Only a question is answered, and the
//! answer is as long as the question.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::stream::{self, Arrived, Message};
use crate::{Answer, Datagram, Duration, Instant, Output, Reason, Service, ServiceCounters};
use crate::{SessionLimits, Sessions, WhenFull};

/// Maximum number of streams counted at a time, per worker. At the limit, the one that has been silent for
/// longest is dropped.
const LIMITS: SessionLimits =
    SessionLimits { sessions: 256, idle: Duration::from_secs(60), when_full: WhenFull::DropOldest };

/// The discarding service.
pub struct Discard {
    streams: Sessions<Stream>,
    counters: Arc<ServiceCounters>,
}

/// A stream of a peer.
struct Stream {
    session: u64,
    first: Instant,
    arrived: Arrived,
}

impl Default for Discard {
    fn default() -> Self {
        Self { streams: Sessions::new(LIMITS), counters: Arc::default() }
    }
}

impl Clone for Discard {
    /// A clone for another worker, which has counted nothing.
    fn clone(&self) -> Self {
        Self { streams: self.streams.clone(), counters: Arc::default() }
    }
}

impl Discard {
    fn count(&mut self, now: Instant, peer: SocketAddr, session: u64, sequence: u64, len: usize) {
        let new = || Stream { session, first: now, arrived: Arrived::default() };
        let opened = self.streams.len();
        // There is always room, because the oldest one is replaced.
        let Ok(stream) = self.streams.at(now, peer, new) else { return };
        if stream.session != session {
            *stream = new();
        }
        let arrived = &mut stream.arrived;
        arrived.out_of_order += u64::from(arrived.datagrams > 0 && sequence < arrived.highest);
        arrived.highest = arrived.highest.max(sequence);
        arrived.datagrams += 1;
        arrived.bytes += len as u64;
        arrived.elapsed = now.since(stream.first);
        if arrived.datagrams == 1 || opened != self.streams.len() {
            self.streams.publish(&self.counters);
        }
    }

    /// The counts of a stream; zero if it is not known.
    fn arrived(&mut self, peer: SocketAddr, session: u64) -> Arrived {
        let known = self.streams.get(peer).filter(|stream| stream.session == session);
        known.map(|stream| stream.arrived).unwrap_or_default()
    }
}

impl Service for Discard {
    type Connection = ();

    #[inline]
    fn datagram(&mut self, datagram: &mut Datagram<'_>) -> Answer {
        match stream::read(datagram.request()) {
            Some((session, Message::Data { sequence })) => {
                let len = datagram.request().len();
                self.count(datagram.now(), datagram.peer(), session, sequence, len);
                Answer::Nothing
            }
            Some((session, Message::Question { number })) => {
                let arrived = self.arrived(datagram.peer(), session);
                self.counters.answered.add(1);
                datagram.answer(&stream::answer(session, number, &arrived))
            }
            Some((_, Message::Answer { .. })) | None => Answer::Nothing,
        }
    }

    fn accept(&mut self, _now: Instant, _peer: SocketAddr) -> Result<(), Reason> {
        Ok(())
    }

    #[inline]
    fn stream(&mut self, _now: Instant, (): &mut (), input: &[u8], _output: &mut Output<'_>) -> usize {
        input.len()
    }

    fn counters(&self) -> Option<Arc<ServiceCounters>> {
        Some(Arc::clone(&self.counters))
    }

    /// It answers only questions, and an answer is never a question.
    fn may_loop(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::{HEADER_LEN, QUESTION_LEN};

    fn peer(port: u16) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 1], port))
    }

    /// The service's reply to these bytes from a peer.
    fn tell(discard: &mut Discard, now_ns: u64, port: u16, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut buffer = bytes.to_vec();
        buffer.resize(2048, 0);
        let now = Instant::from_nanos(now_ns);
        let mut datagram = Datagram::new(now, peer(port), peer(9), &mut buffer, bytes.len());
        match discard.datagram(&mut datagram) {
            Answer::Nothing => None,
            Answer::Reply { len } => Some(buffer[..len].to_vec()),
            other => panic!("{other:?}"),
        }
    }

    fn send(discard: &mut Discard, now_ns: u64, port: u16, session: u64, sequence: u64) {
        let mut data = [0; HEADER_LEN + 8];
        stream::write_data(&mut data, session, sequence);
        assert_eq!(tell(discard, now_ns, port, &data), None);
    }

    fn ask(discard: &mut Discard, port: u16, session: u64) -> Arrived {
        let reply =
            tell(discard, 1_000, port, &stream::question(session, 4)).expect("a question is answered");
        assert_eq!(reply.len(), QUESTION_LEN, "never longer than the question");
        let Some((told, Message::Answer { number: 4, arrived })) = stream::read(&reply) else {
            panic!("no answer: {reply:?}")
        };
        assert_eq!(told, session);
        assert_eq!(tell(discard, 1_000, port, &reply), None, "an answer is not answered");
        arrived
    }

    #[test]
    fn what_has_arrived_is_told_to_the_sender_that_asks() {
        let mut discard = Discard::default();
        for (now_ns, sequence) in [(100, 0), (200, 2), (300, 1), (450, 5)] {
            send(&mut discard, now_ns, 1, 7, sequence);
        }
        send(&mut discard, 460, 2, 7, 0);
        assert_eq!(tell(&mut discard, 470, 1, b"anything else"), None);
        let arrived = Arrived {
            datagrams: 4,
            bytes: 160,
            highest: 5,
            out_of_order: 1,
            elapsed: Duration::from_nanos(350),
        };
        assert_eq!(ask(&mut discard, 1, 7), arrived);
        assert_eq!(ask(&mut discard, 2, 7).datagrams, 1, "each peer has its own");
        assert_eq!(ask(&mut discard, 1, 8), Arrived::default(), "another session is unknown");
        send(&mut discard, 500, 1, 8, 0);
        assert_eq!(
            ask(&mut discard, 1, 8).datagrams,
            1,
            "a peer's new session takes the place of its former one"
        );
        let counters = discard.counters().expect("some");
        assert_eq!((counters.sessions_opened.get(), counters.answered.get()), (2, 4));
        assert_eq!(ask(&mut discard.clone(), 1, 8), Arrived::default(), "each worker counts for itself");
    }

    #[test]
    fn a_flood_of_senders_displaces_the_silent_and_not_those_that_send() {
        let mut discard = Discard::default();
        for port in 1..=1000 {
            send(&mut discard, u64::from(port), port, 1, 0);
            send(&mut discard, u64::from(port), 2000, 1, u64::from(port));
        }
        assert_eq!(discard.streams.len(), LIMITS.sessions as usize);
        assert_eq!(ask(&mut discard, 2000, 1).datagrams, 1000);
        assert_eq!(ask(&mut discard, 1, 1).datagrams, 0);
    }

    #[test]
    fn nothing_that_arrives_is_amplified() {
        let mut discard = Discard::default();
        for seed in 0..2000 {
            let mut random = seed;
            let mut bytes: Vec<u8> = stream::question(seed, 1)[..(seed % 73) as usize].to_vec();
            for byte in bytes.iter_mut().skip(15) {
                random = u64::wrapping_mul(random + 1, 6_364_136_223_846_793_005);
                *byte = (random >> 60) as u8;
            }
            let reply = tell(&mut discard, seed, 1, &bytes);
            assert!(reply.is_none_or(|reply| reply.len() <= bytes.len()), "{bytes:?}");
        }
    }

    #[test]
    fn a_stream_is_used_up_and_has_no_answer() {
        let mut bytes = Vec::new();
        let mut output = Output::new(&mut bytes, 4);
        let used = Discard::default().stream(Instant::ZERO, &mut (), b"abcdef", &mut output);
        assert_eq!((used, bytes.len()), (6, 0));
    }
}
