//! Sends requests to the kernel by rtnetlink, one after the other.

use std::io;
use std::os::fd::OwnedFd;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NetlinkBuffer, NetlinkHeader, NetlinkMessage,
    NetlinkPayload, parse_i32,
};
use netlink_packet_route::RouteNetlinkMessage;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};

/// Largest answer about one link, bytes; with hundreds of virtual functions it is long.
const ANSWER_MAX: usize = 256 * 1024;

/// A netlink socket. It belongs to the network namespace in which it was opened, on whatever thread it is used later.
#[derive(Debug)]
pub(crate) struct Netlink(OwnedFd);

/// One message of an answer: its type and the bytes after its header.
pub(crate) struct Answer {
    pub(crate) kind: u16,
    pub(crate) payload: Vec<u8>,
}

impl Netlink {
    pub(crate) fn open() -> io::Result<Self> {
        // Protocol 0 is NETLINK_ROUTE.
        Ok(Self(socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?))
    }

    /// Sends a request and reads all of the kernel's answer.
    pub(crate) fn ask(&self, message: RouteNetlinkMessage, flags: u16) -> io::Result<Vec<Answer>> {
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | NLM_F_ACK | flags;
        let mut question = NetlinkMessage::new(header, NetlinkPayload::from(message));
        question.finalize();
        let mut bytes = vec![0; question.buffer_len()];
        question.serialize(&mut bytes);
        send(&self.0, &bytes, SendFlags::empty())?;
        let mut buffer = vec![0; ANSWER_MAX];
        let mut answers = Vec::new();
        loop {
            // The kernel answers within the send, and continues a long answer within each receive: this never waits.
            let (len, _) = recv(&self.0, &mut buffer[..], RecvFlags::DONTWAIT)?;
            if let Some(end) = take_apart(&buffer[..len], &mut answers) {
                return end.map(|()| answers);
            }
        }
    }
}

/// Adds the messages in `bytes` to the answers; returns the result once the answer is complete.
fn take_apart(mut bytes: &[u8], answers: &mut Vec<Answer>) -> Option<io::Result<()>> {
    while let Ok(message) = NetlinkBuffer::new_checked(bytes) {
        let (kind, payload) = (message.message_type(), message.payload());
        if matches!(kind, NLMSG_ERROR | NLMSG_DONE) {
            let code = payload.get(..4).and_then(|code| parse_i32(code).ok()).unwrap_or(0);
            return Some(if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-code)) });
        }
        answers.push(Answer { kind, payload: payload.to_vec() });
        // Each message begins at a multiple of four bytes.
        let len = (message.length() as usize).next_multiple_of(4);
        bytes = bytes.get(len..).unwrap_or_default();
    }
    None
}

/// Whether the kernel's error is this one.
pub(crate) fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}
