//! What control tells a worker: a mailbox, and behind it what waits until the worker has read.
//!
//! Nothing that control says is lost. While the mailbox is full, commands wait here in their order, and a command that
//! makes an earlier one meaningless takes its place: so what waits is bounded by the state it describes, however long a
//! worker does not read. [`Outbox::flush`] is called again every [`RETRY_INTERVAL`] while something waits, and not otherwise.

use std::collections::VecDeque;

use twinpath_inspect::Counter;
use twinpath_time::Duration;
use twinpath_worker::Command;
use twinpath_worker::mailbox::Sender;

/// How soon a full mailbox is tried again. A worker reads all of its mailbox in one turn, so one that is alive has
/// room within microseconds.
pub const RETRY_INTERVAL: Duration = Duration::from_millis(1);

/// Commands that may wait before those that describe peers are replaced by one that says that nothing is known of any peer.
/// That is above what the book of peers can hold, so only a worker that is stuck for minutes gets there.
const WAITING_MAX: usize = 8192;

/// A command for an engine, as far as an outbox has to know it.
pub trait EngineCommand: Sized {
    /// Whether `earlier`, which has not been read, means nothing once this command follows it.
    fn voids(&self, earlier: &Self) -> bool;

    /// A command that voids as many others as possible, and after which the engine asks for what it lost.
    fn ask_again() -> Option<Self>;
}

/// Control's end of the mailbox to one worker.
pub(crate) struct Outbox<C> {
    mailbox: Sender<Command<C>>,
    waiting: VecDeque<Command<C>>,
    /// Commands that found the mailbox full and had to wait.
    pub(crate) delayed: Counter,
}

impl<C: EngineCommand + Send> Outbox<C> {
    pub(crate) const fn new(mailbox: Sender<Command<C>>) -> Self {
        Self { mailbox, waiting: VecDeque::new(), delayed: Counter::new() }
    }

    /// Tells the worker, now or as soon as its mailbox has room.
    pub(crate) fn tell(&mut self, command: Command<C>) {
        if !self.flush() {
            return self.wait(command);
        }
        if let Err(command) = self.mailbox.send(command) {
            self.wait(command);
        }
    }

    /// Says what waits, as far as the mailbox has room. Says whether nothing waits any more.
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
        self.delayed.add(1);
        if let Command::Untap(id) = command
            && let Some(at) =
                self.waiting.iter().position(|it| matches!(it, Command::Tap(tap) if tap.id == id))
        {
            // The worker never saw the tap.
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
        | (Command::SetGoal(_), Command::SetGoal(_)) => true,
        (Command::LinkChanged { ifindex, .. }, Command::LinkChanged { ifindex: earlier, .. }) => {
            ifindex == earlier
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;
