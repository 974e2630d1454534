//! Connections of the engine that go on in sockets of the kernel, as the path to their peers ends.

use std::io;
use std::net::SocketAddr;
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
