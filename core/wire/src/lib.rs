//! Parsing and writing of Ethernet, IP, UDP, TCP and VXLAN headers: checked views over received bytes, and headers written
//! from a description.
//!
//! Every protocol has up to two types. A *view* borrows received bytes; building it checks the lengths once, after
//! which no accessor can fail or panic. A *repr* holds only what may legally be sent, and `emit`s it. The packet path
//! uses [`udp_frame`] and [`tcp_frame`], which do Ethernet, IP and the transport in one pass.
//!
//! Never here: decisions about which frames are claimed (`stack/claims`), sockets, clocks, allocation.

pub mod checksum;
pub mod coalesce;
mod error;
pub mod eth;
pub mod filter;
pub mod flow_key;
pub mod ipv4;
pub mod ipv6;
mod mac;
pub mod offload;
pub mod tcp;
pub mod tcp_frame;
mod too_big;
pub mod udp;
pub mod udp_frame;
pub mod udp_template;
pub mod vxlan;

pub use checksum::{ChecksumFound, ChecksumTrust};
pub use error::{EmitError, ParseError};
pub use eth::{EtherType, EtherTypeError, Tag};
pub use flow_key::{FlowKey, Protocol};
pub use mac::{Mac, MacError};
pub use too_big::TooBig;

/// The big-endian number in two bytes.
#[inline]
const fn be16(high: u8, low: u8) -> u16 {
    u16::from_be_bytes([high, low])
}
