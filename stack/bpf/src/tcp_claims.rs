//! A worker's end of the connections of TCP that it has ([`TcpFlows`](crate::TcpFlows)).

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use aya::maps::{HashMap, MapData, RingBuf};
use twinpath_wire::checksum::Sum;
use twinpath_wire::flow_key::address_bytes;
use twinpath_wire::{Protocol, eth, tcp_frame};

use crate::SteerError;
use crate::layout::family;
use crate::layouts::{
    FULL_PORTS, FlowKeyBytes, TCP_DECLINED, TCP_ENDED, TCP_HALF_OPEN, TcpFlow, syn, tcp_room,
};
use crate::mapped::Mapped;
use crate::maps::{gone, wrote};

/// Maximum number of leaked segments that are handed over in one call.
const LEAKS_MAX: u32 = 256;

/// What the programs hand over: frames from the MAC header to the last TCP option, without payload or padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening<'a> {
    /// A SYN that the worker may answer.
    Syn(&'a [u8]),
    /// A segment of a [half-open](TcpClaims::half_open) connection that has reached the kernel's listener, which does not
    /// answer it. Payload and FIN are left out: the peer sends them again. Nobody has verified its checksum of TCP.
    Leaked(&'a [u8]),
}

/// What a worker needs to have connections: the SYNs that the programs have left to it, the room that it offers, and the
/// tuples. A tuple becomes the worker's with its SYN, and stays so until the worker releases or declines it. Meanwhile the
/// kernel gets none of its segments, and never answers one. All methods are called on the worker's thread; none blocks.
pub struct TcpClaims {
    queue: u16,
    flows: RefCell<HashMap<MapData, FlowKeyBytes, TcpFlow>>,
    syns: RingBuf<MapData>,
    rooms: Arc<Mapped>,
    /// The word of the programs, when all SYNs before it had been read.
    taken_back: u64,
}

impl std::fmt::Debug for TcpClaims {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TcpClaims")
            .field("queue", &self.queue)
            .field("room", &self.room())
            .finish_non_exhaustive()
    }
}

impl TcpClaims {
    pub(crate) const fn new(
        queue: u16,
        flows: HashMap<MapData, FlowKeyBytes, TcpFlow>,
        syns: RingBuf<MapData>,
        rooms: Arc<Mapped>,
    ) -> Self {
        Self { queue, flows: RefCell::new(flows), syns, rooms, taken_back: 0 }
    }

    /// Readable while a SYN waits. To find out by reading, call [`Self::next_syns`], which costs two loads if there is none.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.syns.as_fd()
    }

    /// Calls `take` with what waits, up to some leaked segments: no room bounds these. The lengths of a SYN are valid. A virtual device may have left its checksum of TCP to
    /// hardware, or it is wrong; those of other devices are right ([`Features::verifies_syns`](crate::Features)). It has neither an MD5 nor an AO
    /// option. SYNs that waited while the programs found this worker stuck, and gave some of them to the kernel, are
    /// lost.
    pub fn next_syns(&mut self, take: &mut dyn FnMut(Opening<'_>)) {
        let (mut changed, mut leaks) = (None, 0);
        while leaks < LEAKS_MAX {
            let Some(mut record) = self.next_record() else {
                self.taken_back = changed.unwrap_or(self.taken_back);
                return;
            };
            if record[syn::LEAKED_AT..syn::LEAKED_AT + 4] != [0; 4] {
                leaks += 1;
                if let Some(frame) = leaked(&mut record) {
                    take(Opening::Leaked(frame));
                }
                continue;
            }
            // The programs write nothing else.
            let Some(frame) = frame_of(&record) else { continue };
            // A program says first that it takes a SYN back, and then looks whether it was read.
            fence(Ordering::SeqCst);
            let taken_back = self.word_at(tcp_room::TAKEN_BACK_AT);
            if taken_back == self.taken_back {
                take(Opening::Syn(frame));
                continue;
            }
            // Some of those that waited are the kernel's now. The peers of the others send theirs again.
            changed = Some(taken_back);
            if let Some((remote, local)) = tcp_frame::ends(frame) {
                // It fails only if the map is gone.
                let _ = self.release(local, remote);
            }
        }
        // More waits, perhaps some of what the programs have taken back.
    }

    /// The next record, of which the ring is then free.
    fn next_record(&mut self) -> Option<[u8; syn::LEN]> {
        let record = self.syns.next()?;
        let mut copied = [0; syn::LEN];
        copied.iter_mut().zip(record.iter()).for_each(|(to, from)| *to = *from);
        Some(copied)
    }

    /// How many more SYNs the programs will leave to this worker.
    #[must_use]
    pub fn room(&self) -> u32 {
        // A program takes one off before it looks, and gives it back.
        u32::try_from(self.word_at(tcp_room::ROOM_AT) as i64).unwrap_or(0)
    }

    /// The programs may leave this many SYNs to this worker from now on, beside those that wait; 0: the kernel gets all.
    /// A program that runs at the same time may still take one more.
    pub fn set_room(&self, room: u32) {
        self.rooms.store(self.place(tcp_room::ROOM_AT), room.into());
    }

    /// The kernel gets the SYNs to these ports from now on, whatever the room is: their services have none. They replace the
    /// former ones; there may be [`FULL_PORTS`].
    pub fn set_full(&self, ports: &[u16]) {
        debug_assert!(ports.len() <= FULL_PORTS, "the others would be taken");
        let mut full = [0; 2 * FULL_PORTS];
        let (places, _) = full.as_chunks_mut::<2>();
        places.iter_mut().zip(ports).for_each(|(place, port)| *place = port.to_be_bytes());
        for (at, word) in (tcp_room::FULL_AT..).step_by(8).zip(full.as_chunks::<8>().0) {
            self.rooms.store(self.place(at), u64::from_ne_bytes(*word));
        }
    }

    /// The connection is over, after TIME_WAIT: the next segment with its tuple is like any other.
    ///
    /// # Errors
    /// [`SteerError::Map`]: what the kernel returns. It is no error if the tuple is not there.
    pub fn release(&self, local: SocketAddr, remote: SocketAddr) -> Result<(), SteerError> {
        gone(self.flows.borrow_mut().remove(&key_of(local, remote)), "tcp_flows")
    }

    /// The worker does not serve this connection: the kernel gets its segments, the next SYN too, until it is
    /// [released](Self::release). A SYN that is sent again would otherwise be left to the worker once more.
    ///
    /// # Errors
    /// [`SteerError::Map`].
    pub fn decline(&self, local: SocketAddr, remote: SocketAddr) -> Result<(), SteerError> {
        self.set(local, remote, TCP_DECLINED)
    }

    /// The connection is in TIME_WAIT, and the worker is about to have no path to its peer: until a SYN begins another one,
    /// which is the kernel's, its segments are not answered. To be [released](Self::release) at the end of TIME_WAIT.
    ///
    /// # Errors
    /// [`SteerError::Map`].
    pub fn end(&self, local: SocketAddr, remote: SocketAddr) -> Result<(), SteerError> {
        self.set(local, remote, TCP_DECLINED | TCP_ENDED)
    }

    /// The handshake of the connection is under way, and the worker is about to have no path to its peer: what reaches the
    /// kernel's listener is [handed over](Opening::Leaked).
    ///
    /// # Errors
    /// [`SteerError::Map`].
    pub fn half_open(&self, local: SocketAddr, remote: SocketAddr) -> Result<(), SteerError> {
        self.set(local, remote, TCP_HALF_OPEN)
    }

    /// A connection that the worker opens itself, before its first SYN leaves.
    ///
    /// # Errors
    /// [`SteerError::Map`]: there is no room for it.
    pub fn insert(&self, local: SocketAddr, remote: SocketAddr) -> Result<(), SteerError> {
        self.set(local, remote, 0)
    }

    fn set(&self, local: SocketAddr, remote: SocketAddr, flags: u32) -> Result<(), SteerError> {
        let flow = TcpFlow { queue: self.queue, flags, ..TcpFlow::default() };
        self.flows.borrow_mut().insert(key_of(local, remote), flow, 0).map_err(wrote("tcp_flows"))
    }

    fn place(&self, at: usize) -> usize {
        (usize::from(self.queue) * tcp_room::LEN + at) / 8
    }

    /// A word that the programs share with this worker.
    fn word_at(&self, at: usize) -> u64 {
        self.rooms.word(self.place(at)).map_or(0, |word| word.load(Ordering::Relaxed))
    }
}

/// The frame in a record of the ring.
fn frame_of(record: &[u8]) -> Option<&[u8]> {
    let len = u32::from_ne_bytes(*record.get(syn::LEN_AT..)?.first_chunk()?);
    record.get(syn::BYTES_AT..)?.get(..len as usize)
}

/// The frame in a record of a segment that has leaked: with its headers made right for what is there of it.
fn leaked(record: &mut [u8; syn::LEN]) -> Option<&[u8]> {
    const IP_AT: usize = eth::HEADER_LEN;
    const FLAGS_AT: usize = 13;
    const FIN: u8 = 1;
    let len = frame_of(record)?.len();
    let frame = &mut record[syn::BYTES_AT..syn::BYTES_AT + len];
    let is_ipv4 = frame.get(12..IP_AT)? == [8, 0];
    let tcp_at = IP_AT + if is_ipv4 { 20 } else { 40 };
    let tcp_len = frame.len().checked_sub(tcp_at).filter(|len| *len >= 20)? as u16;
    if is_ipv4 {
        // Options, and what a fragment had, were for the kernel.
        frame[IP_AT] = 0x45;
        frame[IP_AT + 2..IP_AT + 4].copy_from_slice(&(tcp_len + 20).to_be_bytes());
        frame[IP_AT + 6..IP_AT + 8].fill(0);
        frame[IP_AT + 9] = Protocol::Tcp.number();
        frame[IP_AT + 10..IP_AT + 12].fill(0);
        let checksum = Sum::ZERO.bytes(&frame[IP_AT..tcp_at]).checksum();
        frame[IP_AT + 10..IP_AT + 12].copy_from_slice(&checksum.to_be_bytes());
    } else {
        frame[IP_AT + 4..IP_AT + 6].copy_from_slice(&tcp_len.to_be_bytes());
        frame[IP_AT + 6] = Protocol::Tcp.number();
    }
    frame[tcp_at + FLAGS_AT] &= !FIN;
    Some(frame)
}

/// The key in the map of tuples. Two IPv4 addresses that are mapped into IPv6, as a socket for both has them, are IPv4 ones.
/// If one of them is of IPv6, so are both.
pub(crate) fn key_of(local: SocketAddr, remote: SocketAddr) -> FlowKeyBytes {
    let ends = [remote, local].map(|end| end.ip().to_canonical());
    let of_ipv6 = |address: IpAddr| match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().into(),
        v6 @ IpAddr::V6(_) => v6,
    };
    let is_ipv6 = ends.iter().any(IpAddr::is_ipv6);
    let [source, destination] = if is_ipv6 { ends.map(of_ipv6) } else { ends };
    FlowKeyBytes {
        family: family(destination),
        protocol: Protocol::Tcp.number(),
        vlan: 0,
        source_port: remote.port().to_be_bytes(),
        destination_port: local.port().to_be_bytes(),
        source: address_bytes(source),
        destination: address_bytes(destination),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_goes_to_the_thread_of_its_worker() {
        const fn is_send<T: Send>() {}
        is_send::<TcpClaims>();
    }

    #[test]
    fn a_record_is_a_length_and_a_frame_of_that_length() {
        let mut record = [7; 128];
        for (len, found) in [(0, Some(0)), (54, Some(54)), (120, Some(120)), (121, None), (u32::MAX, None)] {
            record[..4].copy_from_slice(&u32::to_ne_bytes(len));
            assert_eq!(frame_of(&record).map(<[u8]>::len), found, "{len}");
        }
        assert_eq!(frame_of(&record[..3]), None);
    }

    #[test]
    fn a_mapped_address_is_an_ipv4_one() {
        let key = |local: &str, remote: &str| key_of(local.parse().unwrap(), remote.parse().unwrap());
        let v4 = key("10.0.0.2:7", "10.0.0.1:4000");
        assert_eq!(v4, key("[::ffff:10.0.0.2]:7", "[::ffff:10.0.0.1]:4000"));
        assert_eq!((v4.family, v4.destination_port, &v4.source[..4]), (4, [0, 7], &[10, 0, 0, 1][..]));
        assert_eq!(key("[fd00::2]:7", "[fd00::1]:4000").family, 6);
        // Not on a wire, but the key is what the packet says.
        for remote in ["[::ffff:10.0.0.1]:4000", "10.0.0.1:4000"] {
            let mixed = key("[fd00::2]:7", remote);
            assert_eq!((mixed.family, &mixed.source[10..]), (6, &[255, 255, 10, 0, 0, 1][..]));
        }
    }
}
