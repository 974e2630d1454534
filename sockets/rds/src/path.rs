//! A path: its connection, and how far it has come.

use std::collections::VecDeque;

use twinpath_time::{Duration, Instant};

use crate::queue::Queue;
use crate::values::ConnId;

/// The connection of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// There is none.
    Down,
    /// This host, which has the smaller address, connects.
    Connecting(ConnId),
    /// This host, which has the larger address, connects, so that the peer resets that and connects back.
    Calling(ConnId),
    /// Messages flow.
    Up(ConnId),
    /// It is read to its end, for a newer one waits.
    Ending(ConnId),
}

impl Link {
    pub(crate) fn conn(self) -> Option<ConnId> {
        match self {
            Self::Down => None,
            Self::Connecting(conn) | Self::Calling(conn) | Self::Up(conn) | Self::Ending(conn) => Some(conn),
        }
    }

    /// The word for reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Connecting(_) => "connecting",
            Self::Calling(_) => "calling",
            Self::Up(_) => "up",
            Self::Ending(_) => "ending",
        }
    }
}

#[derive(Debug)]
pub(crate) struct Path {
    pub(crate) link: Link,
    /// Newer connections, until the present one has ended: TCP may have acknowledged what they bring, so each is read.
    pub(crate) waiting: VecDeque<ConnId>,
    pub(crate) out: Queue,
    /// The place that the peer's next message has.
    pub(crate) next_in: u64,
    /// The life of the peer by which `next_in` counts.
    pub(crate) peer_generation: Option<u32>,
    /// The peer has said its life on this connection.
    pub(crate) has_said: bool,
    /// A message has come by this connection, and `next_in` counts from it.
    pub(crate) has_taken: bool,
    /// Messages of programs flow by this connection.
    pub(crate) has_flowed: bool,
    /// `next_in` is of a former life of the peer: what the next connection brings counts from 0.
    pub(crate) counts_anew: bool,
    /// The map of congested ports is to be sent.
    pub(crate) map_due: bool,
    /// What was waited for before the last attempt to connect; zero: there was none since messages flowed.
    pub(crate) waited: Duration,
    /// When something is due: the next attempt to connect, or a reset of a connection that does not end.
    pub(crate) due: Instant,
    /// Until then it is tried to connect although nothing is to be sent.
    pub(crate) tries_until: Instant,
    /// Connections that have ended after messages flowed.
    pub(crate) reconnects: u64,
}

impl Default for Path {
    fn default() -> Self {
        Self {
            link: Link::Down,
            waiting: VecDeque::new(),
            out: Queue::default(),
            next_in: 0,
            peer_generation: None,
            has_said: false,
            has_taken: false,
            has_flowed: false,
            counts_anew: false,
            map_due: false,
            waited: Duration::ZERO,
            due: Instant::NEVER,
            tries_until: Instant::ZERO,
            reconnects: 0,
        }
    }
}

impl Path {
    /// A connection begins.
    pub(crate) fn begin(&mut self) {
        (self.has_said, self.has_taken, self.has_flowed) = (false, false, false);
        if std::mem::take(&mut self.counts_anew) {
            self.next_in = 0;
        }
    }

    /// The peer says on this path's connection that it lives this life. Returns whether it is another one than before.
    pub(crate) fn hear(&mut self, generation: u32) -> bool {
        let is_other = self.peer_generation.is_some_and(|known| known != generation);
        // What this connection has brought already is of the present life.
        if is_other && !self.has_taken && !self.has_said {
            self.next_in = 0;
        }
        self.peer_generation = Some(generation);
        self.has_said = true;
        is_other
    }

    /// The peer has said on another path that it lives this life. This path's connection may be of the former one, and its
    /// last messages may still be read.
    pub(crate) fn hear_elsewhere(&mut self, generation: u32) {
        if self.has_said && self.link.conn().is_some()
            || self.peer_generation.is_none_or(|known| known == generation)
        {
            return;
        }
        match self.link {
            Link::Up(_) | Link::Ending(_) => self.counts_anew = true,
            _ => self.next_in = 0,
        }
        self.peer_generation = Some(generation);
    }
}
