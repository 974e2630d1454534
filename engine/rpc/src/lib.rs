//! ONC RPC version 2 (RFC 5531) and the programs served with it, as values.
//!
//! Bytes in, bytes out: nothing here owns a socket or reads a clock, and what a peer sends never causes a panic or an
//! allocation that the peer can size. Headers are read by hand, without a copy; every number and type of the protocols is
//! that of `nfs3_types` (`docs/decisions/0005-types-of-rpc-and-nfs.md` says why).

pub mod auth;
pub mod client;
pub mod record;
pub mod xdr;

pub use nfs3_types;
