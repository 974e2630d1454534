//! A list of connections, which control asks for: a worker finds some of them in each turn.

use std::net::SocketAddr;
use std::os::fd::AsFd;

use rustix::net::{SocketAddrAny, getpeername, getsockname};
use twinpath_claims::Prefix;
use twinpath_sys::tcp_info::tcp_info;
use twinpath_tcp::Info;

/// Maximum number of places in tables that are looked at in one turn, whether there is a connection or not.
const LOOKS_PER_TURN: u32 = 1024;

/// Maximum number of sockets that the kernel is asked about in one turn, each by up to three system calls.
const SOCKETS_PER_TURN: u32 = 32;

/// Why the kernel has a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhyKernel {
    /// The service has no connections on the fast path.
    #[default]
    NotAsked,
    /// It began while there was no fast path.
    NoPath,
    /// It began while there was no room for another one on the fast path.
    NoRoom,
    /// The programs have left its SYN to the kernel, or the worker has declined it.
    Syn,
    /// It was on the fast path, which ended.
    Moved,
}

/// Where the bytes of a connection go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListedPath {
    /// On the fast path.
    Fast,
    /// A socket of the kernel.
    Kernel(WhyKernel),
}

/// Which connections are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListFilter {
    /// Only those of these peers.
    pub peer: Option<Prefix>,
    /// Only those with this port at either end.
    pub port: Option<u16>,
    /// Only those on the fast path, or only the others.
    pub is_fast: Option<bool>,
}

impl ListFilter {
    fn wants_path(&self, is_fast: bool) -> bool {
        self.is_fast.is_none_or(|wanted| wanted == is_fast)
    }

    fn wants(&self, local: SocketAddr, remote: SocketAddr) -> bool {
        let is_of = |prefix: Prefix| prefix.contains(remote.ip());
        self.peer.is_none_or(is_of)
            && self.port.is_none_or(|port| [local.port(), remote.port()].contains(&port))
    }
}

/// A connection in a list. Its figures are those of Linux's `struct tcp_info`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The part of the worker that is its service.
    pub part: usize,
    /// This end.
    pub local: SocketAddr,
    /// The peer.
    pub remote: SocketAddr,
    /// Where its bytes go.
    pub path: ListedPath,
    /// `tcpi_state`.
    pub state: u8,
    /// `tcpi_rtt`.
    pub rtt_us: u32,
    /// `tcpi_snd_cwnd`, segments.
    pub cwnd: u32,
    /// `tcpi_snd_mss`, bytes.
    pub mss: u32,
    /// `tcpi_unacked`, segments.
    pub unacked: u32,
    /// `tcpi_total_retrans`, segments.
    pub retransmitted: u32,
    /// `tcpi_bytes_acked`.
    pub bytes_acked: u64,
    /// `tcpi_bytes_received`.
    pub bytes_received: u64,
}

/// A list that is being made.
#[derive(Debug)]
pub struct Listing {
    /// Identifies the answer.
    pub number: u32,
    /// Which connections are listed.
    pub filter: ListFilter,
    /// What was found so far. Control has made room for all: a worker allocates nothing.
    pub found: Vec<Listed>,
    /// There are more than there is room for.
    pub has_more: bool,
    /// The part of the worker that is looked at.
    pub(crate) part: usize,
    /// Which tables of the part are done: the engine's connections, those that have moved, those of the kernel's listeners.
    table: usize,
    /// The next place of the table.
    place: u32,
    looks: u32,
    sockets: u32,
}

impl Listing {
    /// A list of up to `most` connections.
    #[must_use]
    pub fn new(number: u32, filter: ListFilter, most: usize) -> Self {
        let found = Vec::with_capacity(most);
        Self { number, filter, found, has_more: false, part: 0, table: 0, place: 0, looks: 0, sockets: 0 }
    }

    /// A turn of the worker may look at some more.
    pub(crate) const fn begin_turn(&mut self) {
        (self.looks, self.sockets) = (LOOKS_PER_TURN, SOCKETS_PER_TURN);
    }

    /// Whether this turn may look further, and there is room for what it finds.
    pub(crate) const fn goes_on(&self) -> bool {
        self.looks > 0 && self.sockets > 0 && !self.has_more
    }

    /// The next part follows.
    pub(crate) const fn next_part(&mut self) {
        (self.part, self.table, self.place) = (self.part + 1, 0, 0);
    }

    /// The next place of table `table`, which has `end` of them, if this turn may look at it. With none left, the next table
    /// follows.
    pub(crate) fn next_place(&mut self, table: usize, end: u32) -> Option<u32> {
        if self.table != table || !self.goes_on() {
            return None;
        }
        self.looks -= 1;
        let place = self.place;
        if place >= end {
            (self.table, self.place) = (table + 1, 0);
            return None;
        }
        self.place += 1;
        Some(place)
    }

    /// Whether table `table` and those before it are done.
    pub(crate) const fn is_past(&self, table: usize) -> bool {
        self.table > table
    }

    /// Adds a connection of the engine's, if it is one of those that are asked for.
    pub(crate) fn add_fast(
        &mut self,
        (local, remote): (SocketAddr, SocketAddr),
        info: impl FnOnce() -> Option<Info>,
    ) {
        if !self.filter.wants_path(true) || !self.filter.wants(local, remote) {
            return;
        }
        let Some(info) = info() else { return };
        self.add(Listed {
            part: self.part,
            local,
            remote,
            path: ListedPath::Fast,
            state: info.state as u8,
            rtt_us: info.srtt_us,
            cwnd: info.cwnd,
            mss: info.mss.into(),
            unacked: info.unacked,
            retransmitted: info.retransmitted,
            bytes_acked: info.bytes_acked,
            bytes_received: info.bytes_received,
        });
    }

    /// Adds a connection of a kernel socket, if it is one of those that are asked for.
    pub(crate) fn add_socket(&mut self, socket: impl AsFd, why: WhyKernel) {
        if !self.filter.wants_path(false) {
            return;
        }
        self.sockets -= 1;
        let of = |address: Option<SocketAddrAny>| {
            let address = SocketAddr::try_from(address?).ok()?;
            Some(SocketAddr::new(address.ip().to_canonical(), address.port()))
        };
        let (peer, own) = (getpeername(&socket).ok().flatten(), getsockname(&socket).ok());
        let (Some(remote), Some(local)) = (of(peer), of(own)) else {
            // Its peer has reset it.
            return;
        };
        if !self.filter.wants(local, remote) {
            return;
        }
        let Ok(info) = tcp_info(&socket) else { return };
        self.add(Listed {
            part: self.part,
            local,
            remote,
            path: ListedPath::Kernel(why),
            state: info.state,
            rtt_us: info.rtt.as_micros() as u32,
            cwnd: info.window,
            mss: info.segment_bytes,
            unacked: info.unacked,
            retransmitted: info.retransmits as u32,
            bytes_acked: info.bytes_acked,
            bytes_received: info.bytes_received,
        });
    }

    fn add(&mut self, listed: Listed) {
        if self.found.len() < self.found.capacity() {
            self.found.push(listed);
        } else {
            self.has_more = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_looks_at_some_places_and_a_full_list_is_complete() {
        let mut listing = Listing::new(0, ListFilter::default(), 2);
        let (mut turns, mut looks) = (0, 0);
        while !listing.is_past(0) {
            listing.begin_turn();
            assert!(listing.goes_on());
            turns += 1;
            while listing.next_place(0, 100_000).is_some() {
                looks += 1;
            }
        }
        assert_eq!((turns, looks), (98, 100_000));
        let end = |port| SocketAddr::from(([10, 0, 0, 1], port));
        for (peer, has_more) in [(1, false), (2, false), (3, true)] {
            let listed = Listed {
                part: 0,
                local: end(7),
                remote: end(peer),
                path: ListedPath::Fast,
                state: 1,
                rtt_us: 0,
                cwnd: 0,
                mss: 0,
                unacked: 0,
                retransmitted: 0,
                bytes_acked: 0,
                bytes_received: 0,
            };
            listing.add(listed);
            assert_eq!((listing.has_more, listing.goes_on()), (has_more, !has_more));
        }
    }

    #[test]
    fn a_filter_asks_for_peers_a_port_at_either_end_and_a_path() {
        let end = |port| SocketAddr::from(([10, 0, 0, 1], port));
        let of = |text: &str| ListFilter { peer: Some(text.parse().unwrap()), ..ListFilter::default() };
        assert_eq!(["10.0.0.0/8", "11.0.0.0/8"].map(|text| of(text).wants(end(7), end(4000))), [true, false]);
        let at = |port| ListFilter { port: Some(port), ..ListFilter::default() };
        assert_eq!([7, 4000, 8].map(|port| at(port).wants(end(7), end(4000))), [true, true, false]);
        let on = |is_fast| ListFilter { is_fast, ..ListFilter::default() };
        assert_eq!(
            [None, Some(true), Some(false)].map(|fast| on(fast).wants_path(true)),
            [true, true, false]
        );
    }
}
