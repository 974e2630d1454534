//! Passes descriptors to another process over a UNIX socket (unix(7), SCM_RIGHTS).

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Most descriptors in one message.
pub const FDS_MAX: usize = 8;

/// Most descriptors that any process can put into one message (SCM_MAX_FD, include/net/scm.h).
const FDS_OF_UNKNOWN: usize = 253;

/// A received message.
#[derive(Debug)]
pub struct Received {
    /// Length in bytes; 0 when the peer has closed the socket.
    pub len: usize,
    /// The descriptors, close-on-exec.
    pub fds: Vec<OwnedFd>,
    /// Whether bytes or descriptors were cut off because there was no room for them.
    pub is_cut: bool,
}

/// Sends `bytes` together with `fds`, without waiting.
///
/// # Errors
/// EINVAL for more than [`FDS_MAX`]; else what `sendmsg(2)` returns.
pub fn send(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if fds.len() > FDS_MAX || !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::INVAL);
    }
    sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
    Ok(())
}

/// Receives one message into `into`, with its descriptors; waits for it if the socket blocks. Those for which there is no room,
/// beyond [`FDS_MAX`], are closed by the kernel.
///
/// # Errors
/// What `recvmsg(2)` returns.
pub fn receive(socket: impl AsFd, into: &mut [u8]) -> Result<Received, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    receive_with(socket, into, &mut space)
}

/// The same from a process that is not trusted: the caller gets every descriptor, and closes it where it may wait. The kernel
/// would close what there is no room for within this call, which takes as long as that process wants (a connection that
/// lingers, a file system of its own).
///
/// # Errors
/// What `recvmsg(2)` returns.
pub fn receive_from_unknown(socket: impl AsFd, into: &mut [u8]) -> Result<Received, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_OF_UNKNOWN))];
    receive_with(socket, into, &mut space)
}

fn receive_with(
    socket: impl AsFd,
    into: &mut [u8],
    space: &mut [MaybeUninit<u8>],
) -> Result<Received, Errno> {
    let mut control = RecvAncillaryBuffer::new(space);
    let message = recvmsg(socket, &mut [IoSliceMut::new(into)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut fds = Vec::new();
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = part {
            fds.extend(rights);
        }
    }
    let is_cut = message.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC);
    Ok(Received { len: message.bytes, fds, is_cut })
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::*;
    use crate::EventFd;

    #[test]
    fn descriptors_arrive_as_the_same_object() {
        let (near, far) = UnixDatagram::pair().unwrap();
        let event = EventFd::new().unwrap();
        send(&near, b"here", &[event.as_fd()]).unwrap();
        let mut bytes = [0; 8];
        let mut received = receive(&far, &mut bytes).unwrap();
        assert_eq!((received.len, received.fds.len(), received.is_cut), (4, 1, false));
        EventFd::from_fd(received.fds.remove(0)).signal();
        assert_eq!(event.drain(), 1);
    }

    #[test]
    fn truncation_is_reported() {
        let (near, far) = UnixDatagram::pair().unwrap();
        let event = EventFd::new().unwrap();
        assert_eq!(send(&near, b"x", &[event.as_fd(); FDS_MAX + 1]), Err(Errno::INVAL));
        send(&near, b"longer", &[]).unwrap();
        assert!(receive(&far, &mut [0; 2]).unwrap().is_cut);
    }

    #[test]
    fn nothing_that_an_unknown_process_sends_is_closed_by_the_kernel() {
        let (near, far) = UnixDatagram::pair().unwrap();
        let event = EventFd::new().unwrap();
        let most = [event.as_fd(); FDS_OF_UNKNOWN];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_OF_UNKNOWN))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&most)));
        sendmsg(&near, &[IoSlice::new(b"x")], &mut control, SendFlags::empty()).unwrap();
        let received = receive_from_unknown(&far, &mut [0; 2]).unwrap();
        assert_eq!((received.fds.len(), received.is_cut), (FDS_OF_UNKNOWN, false));
    }
}
