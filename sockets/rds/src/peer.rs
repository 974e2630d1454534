//! A peer: its paths, and its congested ports.

use std::collections::VecDeque;

use twinpath_rds_wire::{CongestionMap, PATHS_MAX};

use crate::path::{Link, Path};
use crate::values::{Outgoing, Pair, Position};

#[derive(Debug, Default)]
pub(crate) struct Peer {
    /// As many as were ever used.
    pub(crate) paths: Vec<Path>,
    /// How many are used; 0: not known yet.
    pub(crate) count: u16,
    /// The low bits of the peer's ports are the path.
    pub(crate) port_path: bool,
    pub(crate) congested: CongestionMap,
    /// Messages that wait until it is known how many paths there are.
    pub(crate) held: VecDeque<Outgoing>,
    pub(crate) held_bytes: usize,
    /// The number of the last event that concerned it.
    pub(crate) used: u64,
}

impl Peer {
    pub(crate) fn path(&mut self, number: u16) -> &mut Path {
        let number = usize::from(number.min(PATHS_MAX - 1));
        if self.paths.len() <= number {
            self.paths.resize_with(number + 1, Path::default);
        }
        &mut self.paths[number]
    }

    /// Messages and bytes that are not acknowledged.
    pub(crate) fn queued(&self) -> (usize, usize) {
        let paths = self
            .paths
            .iter()
            .fold((0, 0), |(messages, bytes), path| (messages + path.out.len(), bytes + path.out.bytes()));
        (paths.0 + self.held.len(), paths.1 + self.held_bytes)
    }

    /// Whether nothing would be lost without it but places.
    pub(crate) fn is_idle(&self) -> bool {
        self.held.is_empty()
            && self
                .paths
                .iter()
                .all(|path| path.link == Link::Down && path.waiting.is_empty() && path.out.is_empty())
    }

    pub(crate) fn position(&self, number: u16) -> Position {
        let Some(path) = self.paths.get(usize::from(number)) else { return Position::default() };
        Position {
            next_out: path.out.next(),
            next_in: path.next_in,
            peer_generation: path.peer_generation,
            paths: self.count,
            port_path: self.port_path,
        }
    }

    /// The path that an accepted connection from this port is for, of `max` at most; `None`: none is free.
    pub(crate) fn path_of(&mut self, port: u16, max: u16) -> Option<u16> {
        if max == 1 {
            return Some(0);
        }
        if self.port_path {
            return Some(port % PATHS_MAX).filter(|&path| path < max);
        }
        let count = self.count.clamp(1, max);
        if count == 1 {
            return Some(0);
        }
        // Linux before 2026 opens them in their order.
        (0..count).find(|&path| matches!(self.path(path).link, Link::Down | Link::Calling(_)))
    }
}

/// What is known of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerView<'a> {
    /// Both addresses.
    pub pair: Pair,
    /// Its congested ports.
    pub congested: &'a CongestionMap,
    /// Messages that wait until it is known how many paths there are.
    pub held: usize,
    /// Its paths, by number.
    pub paths: Vec<PathView>,
}

/// What is known of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathView {
    /// `down`, `connecting`, `calling`, `up` or `ending`.
    pub link: &'static str,
    /// How far it has come.
    pub position: Position,
    /// Messages that TCP has not acknowledged, with answers to pings.
    pub queued: usize,
    /// Bytes of programs' messages among them.
    pub queued_bytes: usize,
    /// Connections that have ended after messages flowed.
    pub reconnects: u64,
}

impl Peer {
    pub(crate) fn view(&self, pair: Pair) -> PeerView<'_> {
        let view = |(number, path): (usize, &Path)| PathView {
            link: path.link.name(),
            position: self.position(number as u16),
            queued: path.out.len(),
            queued_bytes: path.out.bytes(),
            reconnects: path.reconnects,
        };
        let paths = self.paths.iter().enumerate().map(view).collect();
        PeerView { pair, congested: &self.congested, held: self.held.len(), paths }
    }
}
