//! The messages between a program and the owner of an interface: one each per record of a SOCK_SEQPACKET connection, in the machine's
//! byte order. What comes from a program may be anything.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use twinpath_attach::{LeasedOn, Loan};
use twinpath_time::Duration;

/// At the start of every message.
const MAGIC: u32 = 0x7470_736f;
/// Changes with any change of a message.
const VERSION: u32 = 3;
/// Bytes of the name of an interface, the zero at its end included (IFNAMSIZ).
const NAME_LEN: usize = 16;

/// Bytes of a request.
pub const REQUEST_LEN: usize = 32;
/// Maximum bytes of an answer.
pub const ANSWER_MAX: usize = 8192;
/// Descriptors that come with [`Answer::Lent`]: the states of the rings, and their slots.
pub const MEMORY_FDS: usize = 2;
/// Maximum bytes of a reason.
const REASON_MAX: usize = 512;
/// After a refusal the owner does not listen to a program for this time: one that asks without end takes little of its time. A program
/// that shows a socket meanwhile would have it held for as long.
pub const REFUSED_PAUSE: Duration = Duration::from_millis(10);
/// Maximum number of addresses of an interface.
const ADDRESSES_MAX: usize = 256;

const LEND: u32 = 1;
const END: u32 = 2;
const LENT: u32 = 3;
const REFUSED: u32 = 4;
const OPEN: u32 = 5;
const OPENED: u32 = 6;
const KNOWN: u32 = 7;
const HAND_OVER: u32 = 8;
const END_HANDING_OVER: u32 = 9;
const SEEN: u32 = 10;

/// What a program shows to an owner that was started for it and its children alone.
pub type Token = [u8; TOKEN_LEN];
/// Bytes of a [`Token`].
pub const TOKEN_LEN: usize = NAME_LEN;

/// What a program asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// The first message to an owner that serves one program and its children. There is no answer.
    Known {
        /// What that program was told at its start.
        token: Token,
    },
    /// Rings for the program. Loading programs into the kernel takes the owner some 100 ms. It has no socket of the
    /// program during that time, as one that the program closes would keep its port for as long.
    Open {
        /// Repeated in the answer.
        request: u32,
        /// The interface, in the program's network namespace.
        interface: String,
    },
    /// A lease for the socket whose descriptor comes with the message. The owner holds the socket until the first answer.
    Lend {
        /// Repeated in the answer.
        request: u32,
        /// The interface, in the program's network namespace.
        interface: String,
    },
    /// The socket with this ring was closed, or is to be the kernel's alone. There is no answer.
    End {
        /// As in [`Answer::Lent`].
        ring: u32,
        /// Others may have the socket: they get what is in the ring, from the kernel. The program reads the ring no more.
        hands_over: bool,
    },
    /// What is in this ring goes to the kernel's socket. The program reads nothing of it meanwhile. The answer is that the ring is
    /// empty, and closed.
    HandOver {
        /// As in [`Answer::Lent`].
        ring: u32,
    },
}

/// What the owner answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The program has rings: it may ask for leases. After [`Request::Lend`]: it had none any more, and shows the socket again.
    Opened {
        /// Of the request.
        request: u32,
    },
    /// The owner has closed the descriptor of the socket, which may have a lease in some ms: another answer follows. From
    /// now on the port is free as soon as the program closes its own.
    Seen {
        /// Of the request.
        request: u32,
    },
    /// The socket has a lease. The memory of the program's rings comes with the message.
    Lent {
        /// Of the request.
        request: u32,
        /// Names the ring on this connection.
        ring: u32,
        /// The lease.
        loan: Loan,
    },
    /// It has none.
    Refused {
        /// Of the request; 0 before any.
        request: u32,
        /// Why: one sentence.
        why: String,
    },
}

/// A message that is none of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadMessage {
    /// It is of another version of the program.
    #[error(
        "the other side speaks another version of this protocol: use the same version of twinpath on both sides"
    )]
    Version,
    /// It has no meaning.
    #[error("the other side has sent what is no message")]
    Meaning,
}

/// Writes numbers one after the other.
struct Writer<'a> {
    bytes: &'a mut [u8],
    len: usize,
}

impl Writer<'_> {
    fn put(&mut self, part: &[u8]) {
        // Every message fits into the buffers that callers pass: their sizes are sums of constants.
        if let Some(room) = self.bytes.get_mut(self.len..self.len + part.len()) {
            room.copy_from_slice(part);
            self.len += part.len();
        }
    }

    fn numbers<const N: usize>(&mut self, numbers: [u32; N]) {
        numbers.iter().for_each(|number| self.put(&number.to_ne_bytes()));
    }
}

/// Reads what a [`Writer`] has written.
struct Reader<'a> {
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    /// After the magic and the version: the kind, and the number after it.
    fn begin(bytes: &'a [u8]) -> Result<(Self, u32, u32), BadMessage> {
        let mut reader = Self { bytes };
        let [magic, version, kind, number] = reader.numbers()?;
        match (magic, version) {
            (MAGIC, VERSION) => Ok((reader, kind, number)),
            (MAGIC, _) => Err(BadMessage::Version),
            _ => Err(BadMessage::Meaning),
        }
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], BadMessage> {
        let (part, rest) = self.bytes.split_at_checked(len).ok_or(BadMessage::Meaning)?;
        self.bytes = rest;
        Ok(part)
    }

    fn numbers<const N: usize>(&mut self) -> Result<[u32; N], BadMessage> {
        let mut numbers = [0; N];
        for number in &mut numbers {
            let part = self.take(4)?.first_chunk().ok_or(BadMessage::Meaning)?;
            *number = u32::from_ne_bytes(*part);
        }
        Ok(numbers)
    }

    fn text(bytes: &[u8]) -> Result<String, BadMessage> {
        std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| BadMessage::Meaning)
    }
}

impl Request {
    /// The bytes of the message. A name that is too long is cut: there is no such interface.
    #[must_use]
    pub fn encode(&self) -> [u8; REQUEST_LEN] {
        let name = |interface: &str| {
            let mut name = [0; NAME_LEN];
            let len = interface.len().min(NAME_LEN);
            name[..len].copy_from_slice(&interface.as_bytes()[..len]);
            name
        };
        match self {
            Self::Known { token } => encode_request(KNOWN, 0, token),
            Self::Open { request, interface } => encode_request(OPEN, *request, &name(interface)),
            Self::Lend { request, interface } => encode_request(LEND, *request, &name(interface)),
            Self::End { ring, hands_over } => Self::end(*ring, *hands_over),
            Self::HandOver { ring } => Self::hand_over(*ring),
        }
    }

    /// The bytes of [`Request::End`]. It allocates nothing.
    #[must_use]
    pub fn end(ring: u32, hands_over: bool) -> [u8; REQUEST_LEN] {
        encode_request(if hands_over { END_HANDING_OVER } else { END }, ring, &[0; NAME_LEN])
    }

    /// The bytes of [`Request::HandOver`]. It allocates nothing.
    #[must_use]
    pub fn hand_over(ring: u32) -> [u8; REQUEST_LEN] {
        encode_request(HAND_OVER, ring, &[0; NAME_LEN])
    }

    /// The meaning of a message.
    ///
    /// # Errors
    /// [`BadMessage`]
    pub fn decode(bytes: &[u8]) -> Result<Self, BadMessage> {
        let (mut reader, kind, number) = Reader::begin(bytes)?;
        let name = reader.take(NAME_LEN)?;
        let interface = || {
            let len = name.iter().position(|byte| *byte == 0).unwrap_or(NAME_LEN);
            Reader::text(&name[..len])
        };
        match kind {
            KNOWN => Ok(Self::Known { token: *name.first_chunk().ok_or(BadMessage::Meaning)? }),
            OPEN => Ok(Self::Open { request: number, interface: interface()? }),
            LEND => Ok(Self::Lend { request: number, interface: interface()? }),
            END | END_HANDING_OVER => Ok(Self::End { ring: number, hands_over: kind == END_HANDING_OVER }),
            HAND_OVER => Ok(Self::HandOver { ring: number }),
            _ => Err(BadMessage::Meaning),
        }
    }
}

fn encode_request(kind: u32, number: u32, name: &[u8; NAME_LEN]) -> [u8; REQUEST_LEN] {
    let mut bytes = [0; REQUEST_LEN];
    let mut writer = Writer { bytes: &mut bytes, len: 0 };
    writer.numbers([MAGIC, VERSION, kind, number]);
    writer.put(name);
    bytes
}

impl Answer {
    /// The bytes of the message. A reason that is too long is cut.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; ANSWER_MAX];
        let mut writer = Writer { bytes: &mut bytes, len: 0 };
        match self {
            Self::Opened { request } => writer.numbers([MAGIC, VERSION, OPENED, *request]),
            Self::Seen { request } => writer.numbers([MAGIC, VERSION, SEEN, *request]),
            Self::Lent { request, ring, loan } => {
                writer.numbers([MAGIC, VERSION, LENT, *request]);
                let count = loan.on.own.len().min(ADDRESSES_MAX);
                let partial = u32::from(loan.on.partial_checksums);
                writer.numbers([
                    *ring,
                    loan.number,
                    loan.capacity,
                    partial,
                    loan.on.ifindex,
                    loan.on.mtu,
                    count as u32,
                ]);
                for address in loan.on.own.iter().take(count) {
                    match address {
                        IpAddr::V4(v4) => writer.put(&v4.to_ipv6_mapped().octets()),
                        IpAddr::V6(v6) => writer.put(&v6.octets()),
                    }
                }
            }
            Self::Refused { request, why } => {
                writer.numbers([MAGIC, VERSION, REFUSED, *request]);
                let ends = why.char_indices().map(|(at, letter)| at + letter.len_utf8());
                let len = ends.take_while(|end| *end <= REASON_MAX).last().unwrap_or(0);
                writer.put(&why.as_bytes()[..len]);
            }
        }
        let len = writer.len;
        bytes.truncate(len);
        bytes
    }

    /// The meaning of a message.
    ///
    /// # Errors
    /// [`BadMessage`]
    pub fn decode(bytes: &[u8]) -> Result<Self, BadMessage> {
        let (mut reader, kind, request) = Reader::begin(bytes)?;
        match kind {
            OPENED => Ok(Self::Opened { request }),
            SEEN => Ok(Self::Seen { request }),
            LENT => {
                let [ring, number, capacity, partial, ifindex, mtu, count] = reader.numbers()?;
                let mut own = Vec::new();
                for _ in 0..(count as usize).min(ADDRESSES_MAX) {
                    let octets: [u8; 16] = *reader.take(16)?.first_chunk().ok_or(BadMessage::Meaning)?;
                    let v6 = Ipv6Addr::from(octets);
                    let v4: Option<Ipv4Addr> = v6.to_ipv4_mapped();
                    own.push(v4.map_or(IpAddr::V6(v6), IpAddr::V4));
                }
                let on = LeasedOn { partial_checksums: partial != 0, own, ifindex, mtu };
                Ok(Self::Lent { request, ring, loan: Loan { number, capacity, on } })
            }
            REFUSED => Ok(Self::Refused { request, why: Reader::text(reader.bytes)? }),
            _ => Err(BadMessage::Meaning),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for request in [
            Request::Known { token: *b"sixteen bytes ok" },
            Request::Open { request: 6, interface: "eth0".to_owned() },
            Request::Lend { request: 7, interface: "a-long-name-0123".to_owned() },
            Request::End { ring: 9, hands_over: false },
            Request::End { ring: 9, hands_over: true },
            Request::HandOver { ring: 9 },
        ] {
            assert_eq!(Request::decode(&request.encode()), Ok(request));
        }
        let own = ["192.0.2.1", "2001:db8::1"].map(|address| address.parse().expect("an address")).to_vec();
        let on = LeasedOn { partial_checksums: true, own, ifindex: 5, mtu: 1500 };
        let loan = Loan { number: 3, capacity: 16, on };
        for answer in [
            Answer::Opened { request: 5 },
            Answer::Seen { request: 6 },
            Answer::Lent { request: 1, ring: 2, loan },
            Answer::Refused { request: 3, why: "its reason — in words".to_owned() },
        ] {
            assert_eq!(Answer::decode(&answer.encode()), Ok(answer));
        }
        let long = Answer::Refused { request: 3, why: "—".repeat(REASON_MAX) };
        assert!(
            matches!(Answer::decode(&long.encode()), Ok(Answer::Refused { why, .. }) if why.len() <= REASON_MAX)
        );
    }

    #[test]
    fn anything_else_is_refused() {
        let good = Request::End { ring: 9, hands_over: false }.encode();
        for len in 0..REQUEST_LEN {
            assert_eq!(Request::decode(&good[..len]), Err(BadMessage::Meaning), "{len}");
        }
        let mut other = good;
        other[4] ^= 8;
        assert_eq!(Request::decode(&other), Err(BadMessage::Version));
        let mut random = [0u8; 64];
        let mut state = 1u64;
        for _ in 0..10_000 {
            for byte in &mut random[8..] {
                // xorshift64
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                *byte = state as u8;
            }
            random[..8].copy_from_slice(&good[..8]);
            let _ = (Request::decode(&random), Answer::decode(&random));
        }
    }
}
