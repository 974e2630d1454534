//! The UDP/IP stack of the fast path: from claimed frames to datagrams, and from replies to frames.
//!
//! - [`served`]: the ports, flows and EtherType of a service, and the senders that it serves.
//! - [`admit`]: which datagrams a service may receive.
//! - [`udp`]: frames to datagrams and back.
//! - [`egress`]: the interface and the next hop through which a reply leaves.
//! - [`reply_limit`]: the rate of replies to one source, so that two services cannot answer each other for ever.
//!
//! ARP, neighbour discovery, ICMP, fragments, routing and everything unclaimed are left to the kernel: there is no
//! code for them here, and every table is a copy of the kernel's. Nothing here reads a clock, owns an fd or
//! allocates per packet.

pub mod admit;
pub mod egress;
pub mod reply_limit;
pub mod served;
pub mod udp;
