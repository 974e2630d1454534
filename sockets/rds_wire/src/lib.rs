//! Reliable Datagram Sockets as TCP carries them: headers, their extensions, and maps of congested ports.
//!
//! A connection carries messages, each a [`Header`] of 48 bytes and its payload. All numbers are big-endian, but the
//! bits of a [`CongestionMap`]. Source: `net/rds` of Linux, of which two forms are spoken: up to 2025 one extension
//! in a message, since 2026 several.

mod congestion;
mod extension;
mod header;

pub use congestion::{CongestionMap, MAP_LEN};
pub use extension::{EXTENSIONS_LEN, Extension, Extensions, Handshake};
pub use header::{Flags, HEADER_LEN, Header, HeaderError, Kind, PAYLOAD_MAX, PROBE_PORT};

/// The TCP port at which a host takes connections.
pub const TCP_PORT: u16 = 16_385;
/// Maximum number of paths, which are connections, between two hosts.
pub const PATHS_MAX: u16 = 8;
