//! The bare RPC server over UDP: the UDP echo server, with a reply written over each request.

use twinpath_socket_load::{Reply, UdpServer};

use crate::rpc_null::REPLY;

/// Writes the reply to a NULL call over any ONC RPC call.
#[derive(Clone, Copy, Debug)]
pub struct Null;

impl Reply for Null {
    const BYTES: Option<usize> = Some(REPLY.len());

    /// The xid stays in its place.
    #[inline]
    fn write(buffer: &mut [u8]) {
        buffer[4..REPLY.len()].copy_from_slice(&REPLY[4..]);
    }
}

/// The bare RPC server.
pub type UdpNull = UdpServer<Null>;
