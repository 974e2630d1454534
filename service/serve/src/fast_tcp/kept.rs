//! Connections that wait for our address or a route, which have gone with the interface: no socket can go on with them before.
//!
//! No timer looks for these: control says when addresses or routes have changed. An address that is back is tried at once. After
//! other changes, all that wait are tried, after a pause that grows while it is in vain: a router may change its routes all
//! the time. In one pass, an address that is missing is tried once, however many connections have it.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;

use rustix::io::Errno;
use twinpath_sys::tcp_repair::is_without_way;
use twinpath_time::{Duration, Instant};

/// How long nothing is tried after a pass, unless an address is back.
const PAUSE_MIN: Duration = Duration::from_secs(5);
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// What waits.
#[derive(Debug)]
pub(crate) struct Kept {
    /// What cannot move waits. Otherwise it is reset.
    pub(crate) is_on: bool,
    /// The server's connections that wait, and those that it is done with: as far as the pass has looked.
    connections: u32,
    orphans: u32,
    /// Our addresses that are not here.
    missing: BTreeSet<IpAddr>,
    is_passing: bool,
    /// Since the pass has begun, routes have changed, or an address is back that was missing in it.
    has_changed: bool,
    is_due: bool,
    pause: Duration,
    /// The pause ends.
    not_before: Instant,
    /// When the next pass begins.
    retry_at: Instant,
}

impl Default for Kept {
    fn default() -> Self {
        Self {
            is_on: false,
            connections: 0,
            orphans: 0,
            missing: BTreeSet::new(),
            is_passing: false,
            has_changed: false,
            is_due: false,
            pause: PAUSE_MIN,
            not_before: Instant::ZERO,
            retry_at: Instant::NEVER,
        }
    }
}

impl Kept {
    /// All connections are to be looked at.
    pub(crate) fn begin_pass(&mut self) {
        (self.connections, self.orphans) = (0, 0);
        self.missing.clear();
        (self.is_passing, self.has_changed, self.is_due) = (true, false, false);
        self.retry_at = Instant::NEVER;
    }

    /// All were looked at; `has_moved`: some have gone on.
    pub(crate) fn end_pass(&mut self, now: Instant, has_moved: bool) {
        self.is_passing = false;
        // The first pass after the interface has gone is no attempt in vain.
        let is_first = self.not_before == Instant::ZERO;
        self.pause = if has_moved || is_first { PAUSE_MIN } else { PAUSE_MAX.min(self.pause + self.pause) };
        self.not_before = now + self.pause;
        self.retry_at = match (self.waits(), self.is_due, self.has_changed) {
            (true, true, _) => now,
            (true, false, true) => self.not_before,
            _ => Instant::NEVER,
        };
    }

    /// Whether a connection waits, which could not move for this reason. `local`: its own address; `is_orphan`: the server is
    /// done with it.
    pub(crate) fn keeps(&mut self, local: IpAddr, error: &io::Error, is_orphan: bool) -> bool {
        let keeps = self.is_on && is_without_way(error);
        if keeps {
            if error.raw_os_error() == Some(Errno::ADDRNOTAVAIL.raw_os_error()) {
                self.missing.insert(local);
            }
            self.count(is_orphan);
        }
        keeps
    }

    /// Whether a connection waits as its own address is known to be missing: it need not be tried.
    pub(crate) fn lacks(&mut self, local: IpAddr, is_orphan: bool) -> bool {
        let lacks = self.is_on && self.missing.contains(&local);
        if lacks {
            self.count(is_orphan);
        }
        lacks
    }

    const fn count(&mut self, is_orphan: bool) {
        if is_orphan {
            self.orphans += 1;
        } else {
            self.connections += 1;
        }
    }

    /// Our addresses are these now, sorted.
    pub(crate) fn addresses_changed(&mut self, now: Instant, addresses: &[IpAddr]) {
        if self.missing.iter().any(|missing| addresses.binary_search(missing).is_ok()) {
            self.pause = PAUSE_MIN;
            self.is_due = true;
            if !self.is_passing && self.waits() {
                self.retry_at = now;
            }
        }
    }

    /// A connection that had no way, or no address that is in a table, may have one.
    pub(crate) fn routes_changed(&mut self, now: Instant) {
        if self.is_passing {
            self.has_changed = true;
        } else if self.waits() {
            self.retry_at = self.retry_at.min(self.not_before.max(now));
        }
    }

    /// There is a path again, or no connection is to wait any more.
    pub(crate) fn end(&mut self) {
        *self = Self::default();
    }

    pub(crate) const fn deadline(&self) -> Instant {
        self.retry_at
    }

    /// How many of the server's connections wait.
    pub(crate) const fn connections(&self) -> u32 {
        self.connections
    }

    const fn waits(&self) -> bool {
        self.connections + self.orphans > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Instant = Instant::from_nanos(1 << 40);
    const SECOND: Duration = Duration::from_secs(1);

    fn ip(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    /// A pass in which connections of these addresses are found missing, and others without a route.
    fn pass(kept: &mut Kept, now: Instant, missing: &[u8], strays: &[u8]) {
        let not_here = io::Error::from(Errno::ADDRNOTAVAIL);
        kept.begin_pass();
        for last in missing {
            assert!(kept.lacks(ip(*last), false) || kept.keeps(ip(*last), &not_here, false));
        }
        for last in strays {
            assert!(!kept.lacks(ip(*last), false) && kept.keeps(ip(*last), &Errno::NETUNREACH.into(), false));
        }
        kept.end_pass(now, false);
    }

    #[test]
    fn nothing_is_tried_by_time_and_an_address_is_tried_once_in_a_pass() {
        let mut kept = Kept { is_on: true, ..Kept::default() };
        pass(&mut kept, START, &[1, 1, 2], &[9]);
        assert_eq!((kept.deadline(), kept.connections()), (Instant::NEVER, 4));
        assert!(kept.lacks(ip(1), false) && !kept.lacks(ip(9), false));
        assert!(!kept.keeps(ip(3), &Errno::NOMEM.into(), false), "that is another reason");
        kept.end();
        assert!(!kept.keeps(ip(1), &Errno::ADDRNOTAVAIL.into(), false), "a path is back");
    }

    #[test]
    fn an_address_that_is_back_is_tried_at_once_and_other_changes_after_a_pause_that_grows() {
        let mut kept = Kept { is_on: true, ..Kept::default() };
        pass(&mut kept, START, &[1], &[9]);
        kept.addresses_changed(START + SECOND, &[ip(3)]);
        assert_eq!(kept.deadline(), Instant::NEVER, "nobody waits for that one");
        let mut now = START + SECOND;
        for pause_s in [5, 10, 20, 40, 60, 60] {
            kept.routes_changed(now);
            let due = kept.deadline();
            assert!(due >= now && due <= now + Duration::from_secs(pause_s), "{pause_s}");
            now = due;
            pass(&mut kept, now, &[1], &[9]);
            assert_eq!(kept.deadline(), Instant::NEVER);
        }
        kept.routes_changed(now);
        assert_eq!(kept.deadline(), now + PAUSE_MAX);
        kept.addresses_changed(now + SECOND, &[ip(1), ip(3)]);
        assert_eq!(kept.deadline(), now + SECOND);
        kept.begin_pass();
        kept.end_pass(now + SECOND, true);
        kept.routes_changed(now + SECOND);
        assert_eq!(kept.deadline(), Instant::NEVER, "none waits any more");
    }

    #[test]
    fn what_changes_during_a_pass_is_not_overlooked() {
        let mut kept = Kept { is_on: true, ..Kept::default() };
        kept.begin_pass();
        assert!(kept.keeps(ip(1), &Errno::ADDRNOTAVAIL.into(), true));
        kept.addresses_changed(START, &[ip(1)]);
        assert_eq!(kept.deadline(), Instant::NEVER, "the pass goes on");
        kept.end_pass(START, false);
        assert_eq!(kept.deadline(), START);
        kept.begin_pass();
        kept.routes_changed(START);
        assert!(kept.keeps(ip(9), &Errno::NETUNREACH.into(), false));
        kept.end_pass(START, false);
        assert_eq!(kept.deadline(), START + PAUSE_MIN + PAUSE_MIN);
    }
}
