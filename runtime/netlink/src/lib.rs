//! Single requests to the kernel over netlink, and their answers; [`generic`] adds the families of generic netlink.
//!
//! Requests are synchronous: the kernel answers while it handles the send, so no call here waits for anything but the
//! kernel itself.

pub mod generic;

use std::io;

use netlink_packet_core::{NLM_F_ACK, NLM_F_REQUEST};
use netlink_sys::{Socket, SocketAddr};

/// Length of `struct nlmsghdr`, bytes.
const HEADER_LEN: usize = 16;

// linux/netlink.h
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;

/// Most datagrams of one answer, each with several messages.
const DATAGRAMS_MAX: usize = 4096;

/// A netlink socket for requests.
#[derive(Debug)]
pub struct Netlink(Socket);

impl Netlink {
    /// Opens a socket of a protocol (`NETLINK_*`) in the calling thread's network namespace.
    ///
    /// # Errors
    /// `EPROTONOSUPPORT`: the kernel does not have this protocol.
    pub fn connect(protocol: isize) -> io::Result<Self> {
        let mut socket = Socket::new(protocol)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Self(socket))
    }

    /// Sends one request of type `kind`, and passes type and body of each message of the answer to `each`. `flags` are
    /// added to `NLM_F_REQUEST`; `NLM_F_DUMP` asks for a list.
    ///
    /// # Errors
    /// The kernel refuses the request, or its answer does not end.
    pub fn request(
        &self,
        kind: u16,
        flags: u16,
        body: &[u8],
        mut each: impl FnMut(u16, &[u8]),
    ) -> io::Result<()> {
        let len = (HEADER_LEN + body.len()) as u32;
        // The acknowledgement shows where the answer ends.
        let flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        let header = [&len.to_ne_bytes()[..], &kind.to_ne_bytes(), &flags.to_ne_bytes(), &[0; 8]].concat();
        self.0.send(&[&header[..], body].concat(), 0)?;
        for _ in 0..DATAGRAMS_MAX {
            let (datagram, _) = self.0.recv_from_full()?;
            let mut rest = &datagram[..];
            while let Some((kind, body, next)) = message(rest) {
                match kind {
                    // Code 0 is the acknowledgement; a list ends with a code as well.
                    NLMSG_ERROR | NLMSG_DONE => {
                        let code = body.first_chunk().map_or(0, |code| i32::from_ne_bytes(*code));
                        return if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-code)) };
                    }
                    _ => each(kind, body),
                }
                rest = next;
            }
        }
        Err(io::Error::other("the kernel's answer does not end"))
    }
}

/// The first message of a datagram: its type, its body, and the bytes after it.
fn message(bytes: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let len = u32::from_ne_bytes(*bytes.first_chunk()?) as usize;
    let kind = u16::from_ne_bytes(*bytes.get(4..)?.first_chunk()?);
    let body = bytes.get(HEADER_LEN..len)?;
    Some((kind, body, bytes.get(len.next_multiple_of(4)..).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_with_a_wrong_length_are_not_read() {
        let mut bytes = vec![0; 20];
        for len in [0u32, 15, 21, u32::MAX] {
            bytes[..4].copy_from_slice(&len.to_ne_bytes());
            assert_eq!(message(&bytes), None);
        }
    }
}
