//! What the engine needs of the kernel's programs: SYNs that they hand over, and the table of claimed tuples.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

/// What the programs hand over: frames from the Ethernet header to the last TCP option, without payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening<'a> {
    /// A SYN that may be answered; its checksum may be partial.
    Syn(&'a [u8]),
    /// A segment of a half-open connection that has reached the kernel's listener, which does not answer it. Its checksum is
    /// not to be looked at.
    Leaked(&'a [u8]),
}

/// Maximum number of ports without room that the programs know for a worker. With more, none has room.
pub const FULL_PORTS: usize = 24;

/// The connections of one worker as the kernel's programs know them.
///
/// A program takes a SYN to a port of ours from the kernel if there is room, enters its tuple, and hands the frame
/// over. From then on all segments of that tuple come to the worker's port, until [`Self::release`]. Called on the
/// worker's thread; no call blocks.
pub trait TcpClaims: Send {
    /// Readable while a SYN waits.
    fn fd(&self) -> BorrowedFd<'_>;

    /// Gives what waits. If that is very much, some of it is left for the next call.
    fn next_syns(&mut self, take: &mut dyn FnMut(Opening<'_>));

    /// How many SYNs the programs may still take; they count it down.
    fn room(&self) -> u32;

    /// Lets them take so many from now on; 0: none, so that the kernel serves.
    fn set_room(&mut self, room: u32);

    /// Lets them leave SYNs to these ports to the kernel, whatever the room is, in place of the former ones: their services
    /// have none. Up to [`FULL_PORTS`].
    fn set_full(&mut self, ports: &[u16]);

    /// The connection is over: what arrives for this tuple from now on is the kernel's.
    fn release(&mut self, local: SocketAddr, remote: SocketAddr);

    /// The connection will not be served here: the kernel gets what arrives for this tuple, so also the SYN that the
    /// peer sends again. The entry stays until [`Self::release`].
    fn decline(&mut self, local: SocketAddr, remote: SocketAddr);

    /// The connection is in TIME_WAIT, and there is no path to its peer any more: what arrives for this tuple is not answered
    /// until a SYN comes, which is the kernel's. The entry stays until [`Self::release`].
    fn end(&mut self, local: SocketAddr, remote: SocketAddr);

    /// The connection's handshake is under way, and there is no path to its peer any more: what reaches the kernel's listener
    /// comes as [`Opening::Leaked`].
    fn half_open(&mut self, local: SocketAddr, remote: SocketAddr);

    /// There is a path to the peer again: what was said by [`Self::half_open`] does not hold any more.
    fn reclaim(&mut self, local: SocketAddr, remote: SocketAddr);
}
