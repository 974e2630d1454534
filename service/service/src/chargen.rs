//! Chargen (RFC 864), over TCP: sends lines of characters for as long as the peer reads.
//!
//! The UDP version of chargen, one datagram for each received one, is an amplifier for forged source
//! addresses. The configuration refuses it, and datagrams get no answer here.

use std::net::SocketAddr;

use crate::{Instant, Output, Reason, Service};

/// Characters per line, as RFC 864 recommends, plus the two bytes of the line end.
const LINE: usize = 74;
/// The printing characters of ASCII, the space included.
const CHARACTERS: usize = 95;
/// Bytes after which the pattern repeats: each line begins one character later than the one before.
const PERIOD: usize = LINE * CHARACTERS;

static PATTERN: [u8; PERIOD] = pattern();

const fn pattern() -> [u8; PERIOD] {
    let mut bytes = [0; PERIOD];
    let mut at = 0;
    while at < PERIOD {
        let (line, column) = (at / LINE, at % LINE);
        bytes[at] = match LINE - column {
            2 => b'\r',
            1 => b'\n',
            _ => b' ' + ((line + column) % CHARACTERS) as u8,
        };
        at += 1;
    }
    bytes
}

/// The service that sends characters.
#[derive(Clone, Copy, Debug, Default)]
pub struct Chargen;

impl Service for Chargen {
    /// The position of the peer's next byte in the pattern.
    type Connection = usize;

    fn accept(&mut self, _now: Instant, _peer: SocketAddr) -> Result<usize, Reason> {
        Ok(0)
    }

    fn opened(&mut self, _now: Instant, at: &mut usize, output: &mut Output<'_>) {
        fill(at, output);
    }

    /// Input from the peer is dropped.
    #[inline]
    fn stream(&mut self, _now: Instant, _: &mut usize, input: &[u8], _output: &mut Output<'_>) -> usize {
        input.len()
    }

    fn writable(&mut self, _now: Instant, at: &mut usize, output: &mut Output<'_>) {
        fill(at, output);
    }

    fn may_loop(&self) -> bool {
        false
    }
}

/// Writes as much of the pattern as there is room for.
fn fill(at: &mut usize, output: &mut Output<'_>) {
    while output.room() > 0 {
        let piece = &PATTERN[*at..][..(PERIOD - *at).min(output.room())];
        let written = output.write(piece);
        debug_assert!(written, "room was asked for");
        *at = (*at + piece.len()) % PERIOD;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first `count` bytes, by outputs of `room` bytes.
    fn sent(room: usize, count: usize) -> Vec<u8> {
        let (mut all, mut at) = (Vec::new(), 0);
        while all.len() < count {
            let mut bytes = Vec::new();
            let mut output = Output::new(&mut bytes, room);
            if all.is_empty() {
                Chargen.opened(Instant::ZERO, &mut at, &mut output);
            } else {
                Chargen.writable(Instant::ZERO, &mut at, &mut output);
            }
            assert_eq!(bytes.len(), room, "as much as there is room for");
            all.extend(bytes);
        }
        all.truncate(count);
        all
    }

    #[test]
    fn lines_are_those_of_the_rfc() {
        let text = String::from_utf8(sent(1 << 16, PERIOD + LINE)).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.iter().all(|line| line.len() == 72 && text.contains(&format!("{line}\r\n"))));
        assert!(lines[0].starts_with(" !\"#$%&'()*+,-./0123456789:;<=>?@ABC"), "{}", lines[0]);
        assert!(lines[0].ends_with("defg") && lines[1].starts_with("!\"#") && lines[1].ends_with("efgh"));
        assert_eq!((lines.len(), lines[95]), (96, lines[0]), "it repeats after 95 lines");
    }

    #[test]
    fn the_pattern_goes_on_where_the_room_ended() {
        for room in [1, 73, 74, 1000, PERIOD + 1] {
            assert_eq!(sent(room, 2 * PERIOD), sent(1 << 20, 2 * PERIOD), "{room}");
        }
    }

    #[test]
    fn what_the_peer_sends_is_dropped() {
        let (mut bytes, mut at) = (Vec::new(), 5);
        let mut output = Output::new(&mut bytes, 100);
        assert_eq!(Chargen.stream(Instant::ZERO, &mut at, b"abc", &mut output), 3);
        assert_eq!((bytes.len(), at), (0, 5));
    }
}
