//! Polls instances repeatedly, and keeps their last reports. An instance that ends is reported, and expected to return.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use twinpath_observe::command::{CommandError, Request, Topic, ask, find_instances, run_directories};
use twinpath_observe::report::Report;

use super::rates::{Rates, rates};

/// The result of one poll.
#[derive(Clone, Debug, Default)]
pub(crate) struct Look {
    /// Instances that answered.
    pub(crate) instances: Vec<Rates>,
    /// Notes: a sentence each.
    pub(crate) notes: Vec<String>,
}

/// The instances that are polled.
pub(crate) struct Followed {
    /// The instance named by the user.
    named: Option<PathBuf>,
    known: Vec<Known>,
}

struct Known {
    socket: PathBuf,
    report: Report,
    alive: bool,
}

impl Followed {
    pub(crate) const fn new(named: Option<PathBuf>) -> Self {
        Self { named, known: Vec::new() }
    }

    /// Polls every instance; blocks until all have answered.
    pub(crate) fn look(&mut self) -> anyhow::Result<Look> {
        let mut look = Look::default();
        let sockets = match &self.named {
            Some(socket) => vec![socket.clone()],
            None => {
                let found = find_instances(&run_directories()).context("cannot look for instances")?;
                let theirs = found.closed_to_us.iter();
                look.notes
                    .extend(theirs.map(|path| format!("{} is another user's: ask as root", path.display())));
                found.running
            }
        };
        self.known.iter_mut().for_each(|known| known.alive = false);
        for socket in sockets {
            match report(&socket) {
                Ok(report) => look.instances.push(self.remember(socket, report)),
                // It has just ended, which is noted below if it was known.
                Err(CommandError::Connect { .. })
                    if self.known.iter().any(|known| known.socket == socket) => {}
                Err(error) => look.notes.push(error.to_string()),
            }
        }
        self.forget_replaced();
        look.notes.extend(self.known.iter().filter(|known| !known.alive).map(gone));
        if look.instances.is_empty() && look.notes.is_empty() {
            look.notes.push("no instance is running: waiting for one".to_owned());
        }
        Ok(look)
    }

    fn remember(&mut self, socket: PathBuf, report: Report) -> Rates {
        let Some(known) = self.known.iter_mut().find(|known| known.socket == socket) else {
            let rates = rates(&Report::default(), &report);
            self.known.push(Known { socket, report, alive: true });
            return rates;
        };
        known.alive = true;
        let rates = rates(&known.report, &report);
        known.report = report;
        rates
    }

    /// Forgets an ended instance when another one serves the same on the same interface.
    fn forget_replaced(&mut self) {
        let what = |known: &Known| {
            let interface = known.report.interfaces.first().map(|interface| interface.name.clone());
            (known.report.instance.kind.clone(), known.report.instance.ports.clone(), interface)
        };
        let alive: Vec<_> = self.known.iter().filter(|known| known.alive).map(what).collect();
        self.known.retain(|known| known.alive || !alive.contains(&what(known)));
    }
}

fn gone(known: &Known) -> String {
    let instance = &known.report.instance;
    format!(
        "{} on {} (pid {}) is gone: waiting for it to come back",
        instance.kind,
        instance.ports.join(" and "),
        instance.pid
    )
}

fn report(socket: &Path) -> Result<Report, CommandError> {
    let answer = ask(socket, &Request::Show(Topic::All))?;
    serde_json::from_value(answer).map_err(|error| {
        let refusal = format!("the instance at {} is another version: {error}", socket.display());
        CommandError::Refused(refusal)
    })
}
