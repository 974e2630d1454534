//! The bare RPC server over UDP: the echo server, but for what it writes over a request.

use twinpath_socket_load::{Reply, UdpServer};

use crate::rpc_null::REPLY;

/// To an ONC RPC call, whatever it asks, what is due to a NULL call.
#[derive(Clone, Copy, Debug)]
pub struct Null;

impl Reply for Null {
    const BYTES: Option<usize> = Some(REPLY.len());

    /// The xid stays where it is.
    #[inline]
    fn write(buffer: &mut [u8]) {
        buffer[4..REPLY.len()].copy_from_slice(&REPLY[4..]);
    }
}

/// The bare RPC server.
pub type UdpNull = UdpServer<Null>;
