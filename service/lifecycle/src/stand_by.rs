//! A standby: it holds the sockets of the first instance, and serves them only while that one is stuck as a whole, or
//! once it has ended.

use crate::action::{Action, Refusal};
use crate::event::First;
use crate::{Lifecycle, Phase};

/// Maximum number of standbys of one instance.
pub const STANDBYS_MAX: usize = 4;

/// The state of a standby.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StandBy {
    /// Whether it serves in place of the first instance.
    pub serves: bool,
    /// How often it has done so.
    pub times: u64,
}

impl Lifecycle {
    pub(crate) fn stand_by(&mut self, actions: &mut Vec<Action>) {
        self.phase = Phase::StandingBy(StandBy { serves: false, times: 0 });
        actions.push(Action::WatchFirst);
    }

    pub(crate) fn first_is(&mut self, first: First, actions: &mut Vec<Action>) {
        // A standby that drains leaves everything to the first instance.
        let Phase::StandingBy(StandBy { serves, times }) = self.phase else { return };
        match first {
            First::Stuck if !serves => {
                self.phase = Phase::StandingBy(StandBy { serves: true, times: times + 1 });
                actions.push(Action::ServeSockets(true));
            }
            First::Back if serves => {
                self.phase = Phase::StandingBy(StandBy { serves: false, times });
                actions.push(Action::ServeSockets(false));
            }
            First::Stuck | First::Back => {}
            First::Gone => {
                self.phase = Phase::Serving(None);
                self.fast.due = self.fast.present;
                actions.extend([Action::ServeSockets(true), Action::Register, Action::WatchSockets]);
            }
            First::Succeeded | First::Changed => self.end(false, actions),
        }
    }

    /// Answers another instance that wants to be a standby of this one.
    pub(crate) fn standby_asked(&self, others: usize, actions: &mut Vec<Action>) {
        match &self.phase {
            Phase::Serving(_) if others < STANDBYS_MAX => actions.push(Action::GiveStandby),
            Phase::Serving(_) => actions.push(Action::RefuseStandby(Refusal::TooManyStandbys)),
            _ => actions.push(Action::RefuseStandby(self.refusal())),
        }
    }
}
