//! The header of a message.

use crate::congestion::MAP_LEN;
use crate::extension::{EXTENSIONS_LEN, Extensions};

/// Bytes of a header.
pub const HEADER_LEN: usize = 48;
/// Maximum number of bytes of a payload.
pub const PAYLOAD_MAX: usize = 1 << 20;
/// The port from which a host asks another one for its handshake, and to which the answer goes.
pub const PROBE_PORT: u16 = 1;

/// The flags of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u8);

impl Flags {
    /// The payload is a map of congested ports.
    pub const CONGESTION_MAP: Self = Self(1);
    /// The sender asks for an acknowledgement. TCP acknowledges in any case.
    pub const ACK_REQUIRED: Self = Self(2);
    /// It was sent before, by a connection that has ended.
    pub const RETRANSMITTED: Self = Self(4);

    /// Whether all flags of `other` are set.
    #[must_use]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// A header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The place of the message among those of its path. A map of congested ports has none.
    pub sequence: u64,
    /// Unused over TCP.
    pub ack: u64,
    /// Bytes of payload.
    pub len: u32,
    /// The sender's port; 0: the message answers a ping.
    pub source: u16,
    /// The receiver's port; 0: the message is a ping.
    pub destination: u16,
    /// Flags.
    pub flags: Flags,
    /// Unused over TCP.
    pub credit: u8,
    /// Unused over TCP.
    pub checksum: u16,
    /// Extensions, as they came.
    pub extensions: Extensions,
}

/// What a message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Says which ports of its sender are congested.
    CongestionMap,
    /// Asks a host for its [`Handshake`](crate::Handshake), and tells the sender's.
    Probe,
    /// Answers a probe.
    ProbeAnswer,
    /// A program's ping: it is answered to the source port.
    Ping,
    /// A ping that cannot be answered, because it has no source port.
    Nothing,
    /// A message of a program.
    Data,
}

/// Why a header is refused: the connection cannot go on, because the next header cannot be found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// The payload is longer than [`PAYLOAD_MAX`].
    #[error("a payload of {0} bytes")]
    TooLong(u32),
    /// A map of congested ports has another length than 8192 bytes.
    #[error("a congestion map of {0} bytes")]
    MapLength(u32),
}

impl Header {
    /// Reads a header.
    ///
    /// # Errors
    /// [`HeaderError`].
    pub fn parse(bytes: &[u8; HEADER_LEN]) -> Result<Self, HeaderError> {
        let mut extensions = [0; EXTENSIONS_LEN];
        extensions.copy_from_slice(&bytes[32..]);
        let header = Self {
            sequence: u64::from_be_bytes(piece(bytes, 0)),
            ack: u64::from_be_bytes(piece(bytes, 8)),
            len: u32::from_be_bytes(piece(bytes, 16)),
            source: u16::from_be_bytes(piece(bytes, 20)),
            destination: u16::from_be_bytes(piece(bytes, 22)),
            flags: Flags(bytes[24]),
            credit: bytes[25],
            checksum: u16::from_be_bytes(piece(bytes, 30)),
            extensions: Extensions::new(extensions),
        };
        if header.len as usize > PAYLOAD_MAX {
            return Err(HeaderError::TooLong(header.len));
        }
        if header.kind() == Kind::CongestionMap && header.len as usize != MAP_LEN {
            return Err(HeaderError::MapLength(header.len));
        }
        Ok(header)
    }

    /// The bytes of the header.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[..8].copy_from_slice(&self.sequence.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.ack.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.len.to_be_bytes());
        bytes[20..22].copy_from_slice(&self.source.to_be_bytes());
        bytes[22..24].copy_from_slice(&self.destination.to_be_bytes());
        (bytes[24], bytes[25]) = (self.flags.0, self.credit);
        bytes[30..32].copy_from_slice(&self.checksum.to_be_bytes());
        bytes[32..].copy_from_slice(self.extensions.as_bytes());
        bytes
    }

    /// What the message is for.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match (self.source, self.destination) {
            _ if self.flags == Flags::CONGESTION_MAP => Kind::CongestionMap,
            (0, 0) => Kind::Nothing,
            (PROBE_PORT, 0) => Kind::Probe,
            (_, 0) => Kind::Ping,
            (0, PROBE_PORT) => Kind::ProbeAnswer,
            _ => Kind::Data,
        }
    }
}

/// `N` bytes from `at` on.
fn piece<const N: usize>(bytes: &[u8; HEADER_LEN], at: usize) -> [u8; N] {
    let mut piece = [0; N];
    piece.copy_from_slice(&bytes[at..at + N]);
    piece
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Handshake;

    /// A message of 5 bytes, as Linux writes it.
    const MESSAGE: [u8; HEADER_LEN] = [
        0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0x10, 0x00, 0x0f, 0xa0, 4, 0, 0, 0, 0, 0,
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];

    #[test]
    fn a_message_is_read_and_written() {
        let header = Header::parse(&MESSAGE).unwrap();
        assert_eq!((header.sequence, header.len, header.source, header.destination), (7, 5, 4096, 4000));
        assert_eq!((header.flags, header.kind()), (Flags::RETRANSMITTED, Kind::Data));
        assert_eq!(header.to_bytes(), MESSAGE);
    }

    #[test]
    fn both_forms_of_a_probe_are_read() {
        let (mut old, mut new) = ([0; HEADER_LEN], [0; HEADER_LEN]);
        old[7] = 1;
        old[21] = 1;
        old[32..35].copy_from_slice(&[5, 0, 8]);
        new[..35].copy_from_slice(&old[..35]);
        new[35..42].copy_from_slice(&[6, 0x11, 0x22, 0x33, 0x44, 8, 0]);
        let read = |bytes| {
            let header = Header::parse(bytes).unwrap();
            assert_eq!(header.kind(), Kind::Probe);
            header.extensions.handshake()
        };
        let handshake = Handshake { paths: Some(8), generation: None, port_path: None };
        assert_eq!(read(&old), handshake);
        let handshake = Handshake { paths: Some(8), generation: Some(0x1122_3344), port_path: Some(0) };
        assert_eq!(read(&new), handshake);
        let header =
            Header { sequence: 1, source: 1, extensions: handshake.extensions(), ..Header::default() };
        assert_eq!(header.to_bytes(), new);
    }

    #[test]
    fn lengths_that_cannot_be_are_refused() {
        let mut bytes = MESSAGE;
        bytes[16..20].copy_from_slice(&0x0010_0001_u32.to_be_bytes());
        assert_eq!(Header::parse(&bytes), Err(HeaderError::TooLong(0x0010_0001)));
        bytes[16..20].copy_from_slice(&8191_u32.to_be_bytes());
        bytes[24] = 1;
        assert_eq!(Header::parse(&bytes), Err(HeaderError::MapLength(8191)));
        bytes[24] = 5;
        assert_eq!(Header::parse(&bytes).map(|header| header.kind()), Ok(Kind::Data), "not a map alone");
    }
}
