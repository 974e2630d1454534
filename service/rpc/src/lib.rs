//! ONC RPC version 2 (RFC 5531) and the programs served with it, as values.
//!
//! Nothing here owns a socket or reads a clock. A peer's bytes never cause a panic, or an allocation whose
//! size the peer can choose. Headers are decoded by hand, without a copy. All numbers and types of the
//! protocols come from `nfs3_types` (`docs/decisions/0005-types-of-rpc-and-nfs.md` says why).
//!
//! A [`Server`] checks calls and passes them to [`Program`]s; [`RpcService`] connects it to sockets and
//! ports. The client side is [`client`].

pub mod auth;
pub mod call;
pub mod client;
mod duplicates;
pub mod mount3;
pub mod nfs3;
mod program;
pub mod record;
mod refusal;
mod server;
mod service;
pub mod xdr;

pub use duplicates::{DuplicateLimits, Duplicates};
pub use nfs3_types;
pub use program::{Arrival, Handled, Keepable, Program, Request, Results, Transport, Work};
pub use refusal::Refusal;
pub use server::{Deferred, Outcome, Server, TableError};
pub use service::{RpcConnection, RpcService};
