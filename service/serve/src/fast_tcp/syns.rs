//! SYNs that wait until control has said how their answers leave.

use std::collections::VecDeque;
use std::net::IpAddr;

use twinpath_tcp::Tuple;
use twinpath_time::{Duration, Instant};

/// Maximum number of SYNs that wait.
const WAITING_MAX: usize = 256;

/// How long a SYN waits. Its peer sends it again after a second (RFC 6298 section 2).
const PATIENCE: Duration = Duration::from_millis(900);

/// The longest frame of a SYN without payload: Ethernet, IPv6, TCP with all options.
const FRAME_MAX: usize = twinpath_wire::tcp_frame::HEADER_LEN_MAX;

/// A SYN that waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitingSyn {
    pub(crate) tuple: Tuple,
    until: Instant,
    len: usize,
    bytes: [u8; FRAME_MAX],
}

impl WaitingSyn {
    pub(crate) fn frame(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The SYNs that wait, oldest first.
#[derive(Debug, Default)]
pub(crate) struct WaitingSyns(VecDeque<WaitingSyn>);

impl WaitingSyns {
    /// Lets a SYN wait, unless too many do. Returns whether it waits.
    pub(crate) fn add(&mut self, tuple: Tuple, frame: &[u8], now: Instant) -> bool {
        // Bytes after the packet are padding.
        let len = frame.len().min(FRAME_MAX);
        if self.0.len() >= WAITING_MAX {
            return false;
        }
        let mut bytes = [0; FRAME_MAX];
        bytes[..len].copy_from_slice(&frame[..len]);
        self.0.push_back(WaitingSyn { tuple, until: now + PATIENCE, len, bytes });
        true
    }

    /// Takes the next SYN of `peer`.
    pub(crate) fn take_of(&mut self, peer: IpAddr) -> Option<WaitingSyn> {
        let at = self.0.iter().position(|syn| syn.tuple.remote().ip() == peer)?;
        self.0.remove(at)
    }

    /// Takes all of them.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = Tuple> + '_ {
        self.0.drain(..).map(|syn| syn.tuple)
    }

    /// Whose they are.
    pub(crate) fn peers(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.0.iter().map(|syn| syn.tuple.remote().ip())
    }

    /// Takes the next SYN that has waited long enough.
    pub(crate) fn take_late(&mut self, now: Instant) -> Option<WaitingSyn> {
        self.0.front().is_some_and(|syn| syn.until <= now).then(|| self.0.pop_front())?
    }

    pub(crate) fn deadline(&self) -> Instant {
        self.0.front().map_or(Instant::NEVER, |syn| syn.until)
    }

    /// How many more may wait.
    pub(crate) fn room(&self) -> u32 {
        (WAITING_MAX - self.0.len()) as u32
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}
