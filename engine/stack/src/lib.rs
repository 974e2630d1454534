//! The stack: what a claimed frame means, and how a reply is made into one.
//!
//! - [`admit`]: which datagrams a service may see at all.
//! - [`udp`]: frames to datagrams and back.
//! - [`egress`]: where a reply leaves.
//! - [`reply_limit`]: how often one source is answered, so that no two services can be set on each other.
//!
//! ARP, neighbour discovery, ICMP, fragments, routing and everything unclaimed are the kernel's: there is no code for
//! them here, and no table that is not a copy of the kernel's. Nothing here reads a clock, owns an fd or allocates per
//! packet.

pub mod admit;
pub mod egress;
pub mod reply_limit;
pub mod udp;
