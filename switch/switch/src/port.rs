//! One port: what it is on, and whether that is there.

use twinpath_attach::mirror::table::Link;
use twinpath_config::{PortName, SwitchPort};

use crate::homes::HomeAt;
use crate::kinds::{About, Carried, Kind};
use crate::openflow_control::Counts;

/// Whether a port carries frames.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It does.
    Attached,
    /// What it is on is not there.
    Gone,
    /// It is there, and cannot be used.
    Refused(String),
}

/// A port.
pub(super) struct Port {
    pub(super) name: PortName,
    pub(super) config: SwitchPort,
    /// Its number in snapshots and frames.
    pub(super) number: u16,
    pub(super) home: HomeAt,
    pub(super) state: State,
    /// The interface, while attached or closing.
    pub(super) ifindex: u32,
    /// What it is on, with what it holds for that.
    pub(super) on: Box<dyn Kind>,
    /// The first worker that has its queues, if it has queues of its own; all workers carry interfaces.
    pub(super) worker: usize,
    /// Queues of its own that workers were given when it was attached, or workers that were given its interface.
    pub(super) given: usize,
    /// Workers that have yet to give it back. It cannot be attached again before.
    pub(super) leaving: usize,
    /// It is no longer configured, and goes when its queues have come back.
    pub(super) removed: bool,
    /// What queues that it had before have counted.
    pub(super) before: Counts,
}

impl Port {
    /// Whether it is on that interface now.
    pub(super) fn is_on(&self, home: HomeAt, ifindex: u32) -> bool {
        self.is_attached() && self.ifindex == ifindex && ifindex != 0 && self.home == home
    }

    /// Whether frames may be sent to it.
    pub(super) fn is_attached(&self) -> bool {
        self.state == State::Attached
    }

    /// Whether it may be attached: it is wanted, and no worker has anything of it.
    pub(super) const fn is_free(&self) -> bool {
        self.leaving == 0 && !self.removed
    }

    /// Its interface, if the queues of its network namespace carry it now.
    pub(super) fn carried(&self) -> Option<&Carried> {
        self.on.carried().filter(|_| self.is_attached())
    }

    /// Whether its interface is set down; `None`: it is on no interface, or is not attached.
    pub(super) fn is_down(&self, link: &Link) -> Option<bool> {
        self.carried().map(|carried| carried.is_down(link))
    }

    /// The snapshot that all workers must have before its interface is theirs, if it waits for one.
    pub(super) fn joins_with(&self) -> Option<u64> {
        self.on.carried()?.joins_with
    }

    /// Its state in a word; `link` is that of its interface.
    pub(super) fn link(&self, link: Option<&'static str>) -> &'static str {
        match (&self.state, link) {
            (State::Attached, _) if self.ifindex == 0 => "up",
            (State::Attached, Some(state)) => state,
            // A TAP interface of ours that was moved to another namespace.
            (State::Attached, None) => "elsewhere",
            (State::Gone, _) => self.on.absent(),
            (State::Refused(_), _) => "refused",
        }
    }

    /// A sentence about what it is on.
    pub(super) fn why(&self, switch: &str) -> String {
        match &self.state {
            State::Refused(why) => why.clone(),
            State::Attached | State::Gone => {
                self.on.why(&About { config: &self.config, switch, is_attached: self.is_attached() })
            }
        }
    }
}
