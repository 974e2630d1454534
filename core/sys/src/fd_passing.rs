//! Passes descriptors to another process over a UNIX socket (unix(7), SCM_RIGHTS).
#![allow(
    unsafe_code,
    reason = "who has sent a message may be a process that nobody here sees, for which there is no safe type"
)]

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use crate::errno::last_errno;

/// Maximum number of descriptors in one message.
pub const FDS_MAX: usize = 8;

/// Maximum number of descriptors that any process can put into one message (SCM_MAX_FD, include/net/scm.h).
const FDS_OF_UNKNOWN: usize = 253;

/// Room for these, and for the sender's credentials.
const CONTROL_OF_UNKNOWN: usize = {
    let (fds, sender) = (FDS_OF_UNKNOWN * size_of::<libc::c_int>(), size_of::<libc::ucred>());
    // SAFETY: they take numbers.
    unsafe { libc::CMSG_SPACE(fds as u32) as usize + libc::CMSG_SPACE(sender as u32) as usize }
};

/// `SO_PASSRIGHTS` of asm-generic/socket.h, Linux 6.16.
const SO_PASSRIGHTS: libc::c_int = 83;

/// The kernel refuses descriptors that a peer passes to this UNIX socket from now on.
///
/// # Errors
/// What `setsockopt(2)` returns; ENOPROTOOPT before Linux 6.16.
pub fn refuse(socket: impl AsFd) -> Result<(), Errno> {
    let off: libc::c_int = 0;
    let len = size_of_val(&off) as libc::socklen_t;
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: the value lives across the call and is as long as said.
    let set =
        unsafe { libc::setsockopt(socket, libc::SOL_SOCKET, SO_PASSRIGHTS, (&raw const off).cast(), len) };
    if set == 0 { Ok(()) } else { Err(last_errno()) }
}

/// A received message.
#[derive(Debug)]
pub struct Received {
    /// Length in bytes; 0 when the peer has closed the socket.
    pub len: usize,
    /// The descriptors, close-on-exec.
    pub fds: Vec<OwnedFd>,
    /// Whether bytes or descriptors were truncated because there was no room for them.
    pub is_cut: bool,
    /// The process that sent it, if the socket was asked to report it (SO_PASSCRED); 0: a process outside this PID
    /// namespace.
    pub process: Option<i32>,
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

/// Receives one message into `into`, with its descriptors; waits for it if the socket blocks. The kernel closes
/// descriptors beyond [`FDS_MAX`], for which there is no room.
///
/// # Errors
/// What `recvmsg(2)` returns.
pub fn receive(socket: impl AsFd, into: &mut [u8]) -> Result<Received, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
    receive_with(socket, into, &mut space)
}

/// As [`receive`], from an untrusted process. The caller gets every descriptor, and closes each where it may wait.
/// If there were no room for a descriptor, the kernel would close it within this call, which takes as long as that
/// process wants (a connection that lingers, a file system of its own).
///
/// # Errors
/// What `recvmsg(2)` returns.
pub fn receive_from_unknown(socket: impl AsFd, into: &mut [u8]) -> Result<Received, Errno> {
    // Words, so that it is aligned.
    let mut control = [0u64; CONTROL_OF_UNKNOWN.div_ceil(8)];
    let mut piece = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    // SAFETY: all zeros are a valid value of it.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut piece, 1);
    (message.msg_control, message.msg_controllen) = (control.as_mut_ptr().cast(), size_of_val(&control));
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: the message describes one buffer of bytes, and one of control data, which live across the call.
    let got = unsafe { libc::recvmsg(socket, &raw mut message, libc::MSG_CMSG_CLOEXEC) };
    let len = usize::try_from(got).map_err(|_| last_errno())?;
    let (mut fds, mut process) = (Vec::new(), None);
    // SAFETY: the kernel has written whole parts into the control data, and has said how long they are.
    let mut part = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    while !part.is_null() {
        // SAFETY: as above; it takes numbers, and computes an address within the part.
        let (header, data, none) = unsafe { (part.read(), libc::CMSG_DATA(part), libc::CMSG_LEN(0)) };
        let data_len = header.cmsg_len.saturating_sub(none as usize);
        match (header.cmsg_level, header.cmsg_type) {
            (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
                for number in 0..data_len / size_of::<libc::c_int>() {
                    // SAFETY: the part has so many descriptors, which the kernel has just made for us.
                    fds.push(unsafe {
                        OwnedFd::from_raw_fd(data.cast::<libc::c_int>().add(number).read_unaligned())
                    });
                }
            }
            (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) if data_len >= size_of::<libc::ucred>() => {
                // SAFETY: the part is one such structure, of plain integers.
                process = Some(unsafe { data.cast::<libc::ucred>().read_unaligned() }.pid);
            }
            _ => {}
        }
        // SAFETY: as above.
        part = unsafe { libc::CMSG_NXTHDR(&raw const message, part) };
    }
    let is_cut = message.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0;
    Ok(Received { len, fds, is_cut, process })
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
    Ok(Received { len: message.bytes, fds, is_cut, process: None })
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
    fn of_an_unknown_process_it_is_known_which_one_has_sent() {
        let (near, far) = UnixDatagram::pair().unwrap();
        send(&near, b"x", &[]).unwrap();
        assert_eq!(receive_from_unknown(&far, &mut [0; 2]).unwrap().process, None, "nobody has asked");
        rustix::net::sockopt::set_socket_passcred(&far, true).unwrap();
        let event = EventFd::new().unwrap();
        send(&near, b"x", &[event.as_fd()]).unwrap();
        let child = crate::fork::fork(|| i32::from(send(&near, b"x", &[]).is_err())).unwrap();
        let number = child.pid().as_raw_pid();
        let own = receive_from_unknown(&far, &mut [0; 2]).unwrap();
        assert_eq!((own.process, own.fds.len()), (Some(std::process::id() as i32), 1));
        assert_eq!(child.wait().unwrap(), Some(0));
        let other = receive_from_unknown(&far, &mut [0; 2]).unwrap();
        assert_eq!(other.process, Some(number));
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
