//! The plain kernel peers of labs and tests: servers and measurements over ordinary sockets, as well tuned as ordinary
//! sockets allow.
//!
//! Every lab compares twinpath with these and with [`twinpath_socket_load`], so they were written first and reviewed,
//! and change no more. They use nothing that needs privileges, and nothing of twinpath's own data path.
//! `docs/measuring.md` says how each was tuned and what was tried and rejected. The product is not built with this
//! crate. [`FileRing`] is no peer: an example of the library reads files by it, beside its sockets.

mod busy_poll;
mod error;
mod file_ring;
pub mod fragments;
mod frame_source;
pub mod kill_watch;
mod paced_wake;
mod packet_reflect;
mod pingpong;
mod rpc_null;
mod stamped;
pub mod stuck_watch;
mod tc_ingress;
mod tc_mirror;
mod tc_redirect;
mod tcp_echo;
mod tcp_holder;
mod tcp_null;
mod udp_null;
mod xdp_frames;
mod xdp_redirect;

pub use busy_poll::BusyPollEcho;
pub use error::PlainError;
pub use file_ring::FileRing;
pub use frame_source::{BATCH_MAX, FRAME_BYTES, Frame, Sending, Sent, bare_frame, send_frames};
pub use paced_wake::{Pace, paced_wake};
pub use packet_reflect::PacketReflect;
pub use pingpong::eventfd_pingpong;
pub use rpc_null::{LAST_FRAGMENT, null_call};
pub use stamped::{Stamped, StampedPair};
pub use tc_mirror::TcMirror;
pub use tc_redirect::TcRedirect;
pub use tcp_echo::TcpEcho;
pub use tcp_holder::{Held, Holding, tcp_hold};
pub use tcp_null::TcpNull;
pub use udp_null::{Null, UdpNull};
pub use xdp_frames::{XdpSink, XdpSource, datagram_frame};
pub use xdp_redirect::XdpRedirect;

#[cfg(test)]
mod tests;
