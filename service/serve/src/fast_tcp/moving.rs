//! Connections of the engine that go on in sockets of the kernel, as the path to their peers ends. Each takes some tens of
//! system calls, and there may be very many: a turn of the worker moves some of them.

use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::OwnedFd;

use twinpath_sys::tcp_repair::{Established, Fin, RepairWindow, restore};
use twinpath_tcp::Snapshot;

use crate::kernel_tcp::{Former, Socket};

/// Who has the socket of a connection that moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum User {
    /// The server.
    Server,
    /// Nobody: the kernel delivers what is to be sent.
    None,
}

/// Maximum number of connections that move in one turn: about a millisecond, in which the worker does nothing else.
const MOVES_PER_TURN: u32 = 16;

/// After so many bytes of connections that move, the others wait for the next turn.
const BYTES_PER_TURN: usize = 1 << 20;

/// Maximum number of places in tables that are looked at in one turn, whether there is a connection or not.
const LOOKS_PER_TURN: u32 = 4096;

/// What is left to be moved, of all connections that there were when it began.
#[derive(Clone, Debug)]
pub(crate) struct Moves {
    pub(crate) user: User,
    /// The numbers of the server's connections. They come first.
    pub(crate) numbers: Range<u32>,
    /// The next index of the engine's connections: some of them, the server is done with.
    pub(crate) index: u32,
    /// Some have begun since: all are to be looked at again.
    pub(crate) again: bool,
    /// How many there are, of those that were looked at, which the server has, or will have once it has accepted them.
    pub(crate) left: u32,
    /// Some have gone on in sockets.
    pub(crate) has_moved: bool,
}

impl Moves {
    /// All of the server's connections, whose numbers are below `numbers`, and those that it is done with.
    pub(crate) const fn of(user: User, numbers: u32) -> Self {
        Self { user, numbers: 0..numbers, index: 0, again: false, left: 0, has_moved: false }
    }
}

/// What a turn may still move.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    connections: u32,
    bytes: usize,
    looks: u32,
}

impl Budget {
    pub(crate) const OF_A_TURN: Self =
        Self { connections: MOVES_PER_TURN, bytes: BYTES_PER_TURN, looks: LOOKS_PER_TURN };

    /// Whether another place of a table may be looked at.
    pub(crate) const fn looks(&mut self) -> bool {
        let is_left = self.connections > 0 && self.bytes > 0 && self.looks > 0;
        self.looks = self.looks.saturating_sub(1);
        is_left
    }

    /// A connection was closed, which had moved before, or has just done so.
    pub(crate) const fn closed(&mut self) {
        self.looks = self.looks.saturating_sub(LOOKS_PER_TURN / 64);
    }

    /// A connection has moved with so many bytes, or could not.
    pub(crate) const fn took(&mut self, bytes: usize) {
        self.connections = self.connections.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

/// The bytes that move with a connection.
pub(super) const fn len_of(snapshot: &Snapshot<'_>) -> usize {
    snapshot.unacknowledged.len() + snapshot.unsent.len() + snapshot.received.len()
}

/// A socket of the kernel that goes on with a connection. `ifindex`: the link of addresses that need one.
///
/// # Errors
/// What the kernel returns; nothing was sent then.
pub(super) fn to_socket(snapshot: &Snapshot<'_>, user: User, ifindex: u32) -> io::Result<Socket> {
    let fd = to_kernel(snapshot, user, ifindex)?;
    let (unread, arrived) = snapshot.received.split_at(snapshot.lent);
    let former = Former {
        unread: unread.to_vec(),
        arrived: arrived.to_vec(),
        is_ended: snapshot.is_ended,
        sent: snapshot.acknowledged + (snapshot.unacknowledged.len() + snapshot.unsent.len()) as u64,
        is_finished: snapshot.is_finished,
    };
    Ok(Socket::going_on(fd, former))
}

fn to_kernel(snapshot: &Snapshot<'_>, user: User, ifindex: u32) -> io::Result<OwnedFd> {
    let windows = &snapshot.windows;
    restore(&Established {
        local: with_scope(snapshot.tuple.local(), ifindex),
        remote: with_scope(snapshot.tuple.remote(), ifindex),
        mss: snapshot.mss,
        scales: snapshot.scales.unwrap_or((0, 0)),
        sack: snapshot.sack,
        timestamp: snapshot.timestamp,
        send_number: snapshot.send_number.0,
        unacknowledged: snapshot.unacknowledged,
        unsent: snapshot.unsent,
        fin: match (snapshot.is_finished, snapshot.fin_sent) {
            (false, _) => Fin::None,
            (true, false) => Fin::Unsent,
            (true, true) => Fin::Sent,
        },
        receive_number: snapshot.receive_number.0,
        is_ended: snapshot.is_ended,
        is_orphan: user == User::None,
        windows: RepairWindow {
            snd_wl1: windows.snd_wl1.0,
            snd_wnd: windows.snd_wnd,
            max_window: windows.max_window,
            rcv_wnd: windows.rcv_wnd,
            rcv_wup: windows.rcv_wup.0,
        },
        no_delay: snapshot.options.no_delay,
    })
}

/// An address with the link, if the address alone is ambiguous.
pub(crate) fn with_scope(address: SocketAddr, ifindex: u32) -> SocketAddr {
    match address {
        SocketAddr::V6(mut v6) if v6.ip().is_unicast_link_local() => {
            v6.set_scope_id(ifindex);
            SocketAddr::V6(v6)
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_ends_by_connections_by_bytes_or_by_places_without_one() {
        let of_turn = |bytes: Option<usize>| {
            let (mut budget, mut looks) = (Budget::OF_A_TURN, 0);
            while budget.looks() {
                looks += 1;
                bytes.into_iter().for_each(|bytes| budget.took(bytes));
            }
            looks
        };
        assert_eq!((of_turn(None), of_turn(Some(0))), (4096, 16));
        assert_eq!((of_turn(Some(100_000)), of_turn(Some(1 << 30))), (11, 1));
    }
}
