//! The commands from control to one worker: a bounded mailbox, and a queue of commands for which it has no
//! room.
//!
//! No command is lost but hints. While the mailbox is full, hints are dropped, the other commands wait in their
//! order, and a command that supersedes an earlier one replaces it. So the queue is bounded by the state that it describes, even if a worker never
//! reads. While something waits, [`Outbox::flush`] is called every [`RETRY_INTERVAL`].

use std::collections::VecDeque;

use twinpath_inspect::Counter;
use twinpath_time::Duration;
use twinpath_worker::mailbox::Sender;
use twinpath_worker::{Command, EngineCommand};

/// How soon a full mailbox is tried again. A worker reads its whole mailbox in one turn, so normally there is
/// room within microseconds.
pub const RETRY_INTERVAL: Duration = Duration::from_millis(1);

/// Maximum number of waiting commands. Beyond that, all commands about peers are replaced by one that makes
/// the worker forget all peers. The book of peers cannot hold that many, so the limit is reached only if a
/// worker is stuck for minutes.
const WAITING_MAX: usize = 8192;

/// Control's end of the mailbox to one worker, with the commands that wait.
pub(crate) struct Outbox<C> {
    mailbox: Sender<Command<C>>,
    waiting: VecDeque<Command<C>>,
    /// Commands that had to wait because the mailbox was full.
    pub(crate) delayed: Counter,
}

impl<C: EngineCommand + Send> Outbox<C> {
    pub(crate) const fn new(mailbox: Sender<Command<C>>) -> Self {
        Self { mailbox, waiting: VecDeque::new(), delayed: Counter::new() }
    }

    /// Sends a command, now or as soon as the mailbox has room. A hint is dropped if there is none now: strangers cause
    /// hints, so they may neither fill the queue nor delay what waits.
    pub(crate) fn tell(&mut self, command: Command<C>) {
        if !self.flush() {
            return self.wait(command);
        }
        if let Err(command) = self.mailbox.send(command) {
            self.wait(command);
        }
    }

    /// Sends waiting commands while the mailbox has room. Returns whether none waits any more.
    pub(crate) fn flush(&mut self) -> bool {
        while let Some(command) = self.waiting.pop_front() {
            if let Err(command) = self.mailbox.send(command) {
                self.waiting.push_front(command);
                return false;
            }
        }
        true
    }

    fn wait(&mut self, command: Command<C>) {
        if matches!(&command, Command::Engine(command) if command.is_hint()) {
            return;
        }
        self.delayed.add(1);
        if let Command::Untap(id) = command
            && let Some(at) =
                self.waiting.iter().position(|it| matches!(it, Command::Tap(tap) if tap.id == id))
        {
            // The worker has not got the tap yet.
            self.waiting.remove(at);
            return;
        }
        self.waiting.retain(|earlier| !voids(&command, earlier));
        if self.waiting.len() >= WAITING_MAX
            && let Some(again) = C::ask_again()
        {
            self.waiting
                .retain(|earlier| !matches!(earlier, Command::Engine(earlier) if again.voids(earlier)));
            self.waiting.push_back(Command::Engine(again));
        }
        self.waiting.push_back(command);
    }
}

fn voids<C: EngineCommand>(command: &Command<C>, earlier: &Command<C>) -> bool {
    match (command, earlier) {
        (Command::Engine(command), Command::Engine(earlier)) => command.voids(earlier),
        (Command::SetMode(_), Command::SetMode(_))
        | (Command::SetMachine(..), Command::SetMachine(..))
        | (Command::TimeTurns(_), Command::TimeTurns(_))
        | (Command::SetGoal(_), Command::SetGoal(_)) => true,
        (Command::LinkChanged { ifindex, .. }, Command::LinkChanged { ifindex: earlier, .. }) => {
            ifindex == earlier
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;
