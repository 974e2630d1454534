//! Extensions of a header: each a type of one byte, and its value, whose length the type implies.

use crate::PATHS_MAX;

/// Bytes for all extensions of a message.
pub const EXTENSIONS_LEN: usize = 16;

const VERSION: u8 = 1;
const RDMA: u8 = 2;
const RDMA_DESTINATION: u8 = 3;
const RDMA_BYTES: u8 = 4;
const PATHS: u8 = 5;
const GENERATION: u8 = 6;
const CAPABILITIES: u8 = 7;
const PORT_PATH: u8 = 8;
const CHECKSUM: u8 = 9;

/// An extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extension {
    /// Maximum number of paths (NPATHS).
    Paths(u16),
    /// The number of the sender's life (GEN_NUM): another one each time it starts.
    Generation(u32),
    /// The low bits of the TCP source port are the path (SPORT_IDX). Linux writes 0 and ignores the value.
    PortPath(u8),
    /// Another one, which does not concern TCP. `len`: bytes of its value.
    Other {
        /// Its type.
        number: u8,
        /// Bytes of its value.
        len: usize,
    },
}

/// The extensions of a header, as they are on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extensions([u8; EXTENSIONS_LEN]);

impl Extensions {
    /// Those in `bytes`.
    #[must_use]
    pub const fn new(bytes: [u8; EXTENSIONS_LEN]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; EXTENSIONS_LEN] {
        &self.0
    }

    /// Reads them one by one. It ends at the first byte 0, and at a type whose length is unknown: what follows that
    /// cannot be found.
    pub fn iter(&self) -> impl Iterator<Item = Extension> + '_ {
        let mut rest = &self.0[..];
        std::iter::from_fn(move || {
            let (&number, after) = rest.split_first()?;
            let value = after.get(..value_len(number)?)?;
            rest = &after[value.len()..];
            Some(match (number, value) {
                (PATHS, &[high, low]) => Extension::Paths(u16::from_be_bytes([high, low])),
                (GENERATION, &[a, b, c, d]) => Extension::Generation(u32::from_be_bytes([a, b, c, d])),
                (PORT_PATH, &[path]) => Extension::PortPath(path),
                _ => Extension::Other { number, len: value.len() },
            })
        })
    }

    /// What a probe or its answer says. Of several equal extensions the last one counts, as for Linux.
    #[must_use]
    pub fn handshake(&self) -> Handshake {
        let mut handshake = Handshake::default();
        for extension in self.iter() {
            match extension {
                Extension::Paths(paths) => handshake.paths = Some(paths.clamp(1, PATHS_MAX)),
                // For Linux, 0 is no generation.
                Extension::Generation(generation) => {
                    handshake.generation = Some(generation).filter(|&g| g != 0)
                }
                Extension::PortPath(path) => handshake.port_path = Some(path),
                Extension::Other { .. } => {}
            }
        }
        handshake
    }
}

/// Bytes of a value.
const fn value_len(number: u8) -> Option<usize> {
    Some(match number {
        VERSION | RDMA | GENERATION | CAPABILITIES => 4,
        RDMA_DESTINATION | RDMA_BYTES | CHECKSUM => 8,
        PATHS => 2,
        PORT_PATH => 1,
        _ => return None,
    })
}

/// What two hosts tell each other of themselves. Linux before 2026 tells the number of paths alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handshake {
    /// Maximum number of paths, 1 to [`PATHS_MAX`]; `None`: one.
    pub paths: Option<u16>,
    /// The number of the host's life, not 0.
    pub generation: Option<u32>,
    /// The low bits of the TCP source port are the path; the value is the sender's own.
    pub port_path: Option<u8>,
}

impl Handshake {
    /// The extensions, in the order in which Linux writes them.
    #[must_use]
    pub fn extensions(&self) -> Extensions {
        let mut bytes = [0; EXTENSIONS_LEN];
        let mut at = 0;
        let mut add = |number: u8, value: &[u8]| {
            bytes[at] = number;
            bytes[at + 1..][..value.len()].copy_from_slice(value);
            at += 1 + value.len();
        };
        // 3, 5 and 2 bytes: there is room.
        self.paths.into_iter().for_each(|paths| add(PATHS, &paths.to_be_bytes()));
        self.generation.into_iter().for_each(|generation| add(GENERATION, &generation.to_be_bytes()));
        self.port_path.into_iter().for_each(|path| add(PORT_PATH, &[path]));
        Extensions(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extension_that_is_cut_or_unknown_ends_them() {
        let mut bytes = [0; EXTENSIONS_LEN];
        bytes[..5].copy_from_slice(&[PATHS, 0, 2, 99, PATHS]);
        let extensions = Extensions::new(bytes);
        assert_eq!(extensions.iter().collect::<Vec<_>>(), [Extension::Paths(2)]);
        bytes = [PORT_PATH; EXTENSIONS_LEN];
        bytes[14] = GENERATION;
        assert_eq!(Extensions::new(bytes).iter().count(), 7, "the generation has one byte");
    }

    #[test]
    fn values_of_other_extensions_are_passed_over() {
        let mut bytes = [0; EXTENSIONS_LEN];
        (bytes[0], bytes[9], bytes[14]) = (CHECKSUM, CAPABILITIES, PORT_PATH);
        let others = [Extension::Other { number: 9, len: 8 }, Extension::Other { number: 7, len: 4 }];
        let expected = [others[0], others[1], Extension::PortPath(0)];
        assert_eq!(Extensions::new(bytes).iter().collect::<Vec<_>>(), expected);
    }
}
