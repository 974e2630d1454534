//! The datagrams of a measured stream, written and read by its sender (`twinpath bench stream`) and by
//! [`Discard`](crate::Discard).
//!
//! All numbers are big-endian. Every datagram begins with 32 bytes:
//!
//! | bytes | |
//! |---|---|
//! | 0 to 14 | `twinpath stream` |
//! | 15 | 1: data, 2: question, 3: answer |
//! | 16 to 23 | session: chosen by the sender, the same for all its datagrams |
//! | 24 to 31 | data: sequence number, from 0; question and answer: number of the question |
//!
//! Data datagrams are padded to the stream's size with any bytes. A question and its answer have 40 more
//! bytes. In the answer they count what has arrived of the session: datagrams, bytes, highest sequence
//! number, datagrams that arrived after one with a higher sequence number, ns from the first to the last.
//! In a question they are ignored. They make the question as long as its answer, so that the service is no
//! amplifier. An answer is never answered.

use twinpath_time::Duration;

/// The first bytes of every datagram of a stream.
const MARK: &[u8; 15] = b"twinpath stream";
/// Bytes of mark, kind, session and number: the minimum size of a data datagram.
pub const HEADER_LEN: usize = 32;
/// Bytes of a question, and of an answer.
pub const QUESTION_LEN: usize = HEADER_LEN + 5 * 8;

const DATA: u8 = 1;
const QUESTION: u8 = 2;
const ANSWER: u8 = 3;

/// A datagram of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// Is counted, and has no answer.
    Data {
        /// Sequence number, from 0.
        sequence: u64,
    },
    /// Asks what has arrived.
    Question {
        /// Its number, which the answer repeats.
        number: u64,
    },
    /// Says what has arrived.
    Answer {
        /// The number of the question.
        number: u64,
        /// What has arrived.
        arrived: Arrived,
    },
}

/// What has arrived of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrived {
    /// Datagrams, duplicates included.
    pub datagrams: u64,
    /// Payload bytes.
    pub bytes: u64,
    /// The highest sequence number.
    pub highest: u64,
    /// Datagrams that arrived after one with a higher sequence number.
    pub out_of_order: u64,
    /// From the first to the last.
    pub elapsed: Duration,
}

/// Parses a datagram: its session, and its contents. `None` if it is not a datagram of a stream, or is
/// truncated.
#[inline]
#[must_use]
pub fn read(datagram: &[u8]) -> Option<(u64, Message)> {
    let (mark, rest) = datagram.split_first_chunk::<15>()?;
    if mark != MARK {
        return None;
    }
    let (kind, rest) = rest.split_first()?;
    let (session, rest) = word(rest)?;
    let (number, rest) = word(rest)?;
    let message = match *kind {
        DATA => Message::Data { sequence: number },
        QUESTION if datagram.len() >= QUESTION_LEN => Message::Question { number },
        ANSWER => Message::Answer { number, arrived: arrived(rest)? },
        _ => return None,
    };
    Some((session, message))
}

fn arrived(bytes: &[u8]) -> Option<Arrived> {
    let (datagrams, rest) = word(bytes)?;
    let (bytes, rest) = word(rest)?;
    let (highest, rest) = word(rest)?;
    let (out_of_order, rest) = word(rest)?;
    let (elapsed_ns, _) = word(rest)?;
    Some(Arrived { datagrams, bytes, highest, out_of_order, elapsed: Duration::from_nanos(elapsed_ns) })
}

#[inline]
fn word(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (word, rest) = bytes.split_first_chunk()?;
    Some((u64::from_be_bytes(*word), rest))
}

/// Writes the header of a data datagram.
///
/// # Panics
/// If `datagram` is shorter than [`HEADER_LEN`].
#[inline]
pub fn write_data(datagram: &mut [u8], session: u64, sequence: u64) {
    header(datagram, DATA, session, sequence);
}

/// A question.
#[must_use]
pub fn question(session: u64, number: u64) -> [u8; QUESTION_LEN] {
    let mut datagram = [0; QUESTION_LEN];
    header(&mut datagram, QUESTION, session, number);
    datagram
}

/// The answer to a question.
#[must_use]
pub fn answer(session: u64, number: u64, arrived: &Arrived) -> [u8; QUESTION_LEN] {
    let mut datagram = [0; QUESTION_LEN];
    header(&mut datagram, ANSWER, session, number);
    let elapsed_ns = u64::try_from(arrived.elapsed.as_nanos()).unwrap_or(u64::MAX);
    let words = [arrived.datagrams, arrived.bytes, arrived.highest, arrived.out_of_order, elapsed_ns];
    for (place, word) in datagram[HEADER_LEN..].chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_be_bytes());
    }
    datagram
}

#[inline]
fn header(datagram: &mut [u8], kind: u8, session: u64, number: u64) {
    let header = &mut datagram[..HEADER_LEN];
    header[..15].copy_from_slice(MARK);
    header[15] = kind;
    header[16..24].copy_from_slice(&session.to_be_bytes());
    header[24..].copy_from_slice(&number.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARRIVED: Arrived = Arrived {
        datagrams: 3,
        bytes: 300,
        highest: 7,
        out_of_order: 1,
        elapsed: Duration::from_nanos(1 << 40),
    };

    #[test]
    fn what_is_written_is_read() {
        let mut data = [9; 40];
        write_data(&mut data, 5, 6);
        assert_eq!(read(&data), Some((5, Message::Data { sequence: 6 })));
        assert_eq!(data[HEADER_LEN..], [9; 8], "the rest is the sender's");
        assert_eq!(read(&question(5, 7)), Some((5, Message::Question { number: 7 })));
        let whole = answer(5, 8, &ARRIVED);
        assert_eq!(read(&whole), Some((5, Message::Answer { number: 8, arrived: ARRIVED })));
    }

    #[test]
    fn what_is_cut_off_or_foreign_is_nothing() {
        for whole in [question(5, 7), answer(5, 7, &ARRIVED)] {
            assert!((0..whole.len()).all(|len| read(&whole[..len]).is_none()));
        }
        let mut data = [0; HEADER_LEN];
        write_data(&mut data, 1, 2);
        assert!((0..data.len()).all(|len| read(&data[..len]).is_none()));
        for (at, byte) in [(0, b'T'), (14, 0), (15, 0), (15, 4)] {
            let mut other = data;
            other[at] = byte;
            assert_eq!(read(&other), None, "{at}");
        }
    }
}
