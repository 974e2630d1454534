//! A standby: an instance that holds the very sockets of another one, and serves nothing on them until that one is stuck as a whole, or
//! gone.
//!
//! Nobody is asked whether the first instance lives: what is stuck does not answer, and what answers all the time keeps a host awake. The
//! kernel tells. A process that ends is told by its pidfd. A process that is stopped leaves what comes in the sockets: they become
//! readable, here as well, and only then it is looked at. If they are readable still after a while in which none of its threads
//! has run, it is stuck as a whole. So two idle instances cause no wake-up, and a busy one a few each time that something is left for so long.
//!
//! Stepping in and back, each datagram and each connection is taken from its socket by one of the two, once.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::sockopt::socket_peercred;
use rustix::process::{PidfdFlags, pidfd_open};
use tokio::io::AsyncReadExt as _;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::task::JoinError;
use tokio::time::{sleep, timeout};
use twinpath_command::Request;
use twinpath_host::readable;
use twinpath_report as report;
use twinpath_rpcbind::Registered;
use twinpath_serve::ServeCommand;
use twinpath_time::Duration;

use super::hand_over::{Held, Name};
use super::take_over::Inherited;
use super::{Asked, Instance, InstanceError};
use crate::waiting::{AT_ONCE, Waiting, is_something};

/// How often it is looked whether a first instance that was stuck goes on, while its place is taken: no longer than this are both there.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// How long a process whose threads are all stopped (SIGSTOP, a debugger) must stay so until its place is taken. A fast path has waited for
/// `worker.fail_open_ms` before anything comes to the sockets.
const STOPPED_PATIENCE: Duration = Duration::from_millis(20);

/// How long a process that ends takes from closing its sockets until it is gone: packet sockets take tens of milliseconds each.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// Instances that may stand by for one.
pub(super) const MOST: usize = 4;

/// What is found of the first instance.
#[derive(Debug)]
pub(super) enum First {
    /// Sockets are left readable, and none of its threads runs; or it is ending.
    Stuck,
    /// It goes on.
    Back,
    /// It has ended.
    Gone,
    /// It serves something else by now, or cannot be asked.
    Changed(String),
}

/// The instance that this one is a standby for.
pub(super) struct StandingBy {
    pid: u32,
    /// What is watched, until the watch begins.
    watch: Option<Watch>,
    /// Its place is taken.
    serves: bool,
    /// Times that it was.
    times: u64,
    /// Why this cannot go on.
    pub(super) failed: Option<String>,
}

impl StandingBy {
    /// Stands by for the instance that these sockets came from, which is looked at when something waits in them for `patience`; 0: never, so
    /// that only its end counts.
    ///
    /// # Errors
    /// Its process cannot be watched.
    pub(super) fn new(former: Inherited, held: &[Held], patience: Duration) -> io::Result<Self> {
        let (from, stream) = former.into_stream();
        let stream = stream.ok_or(io::ErrorKind::NotConnected)?;
        let pid = socket_peercred(&stream)?.pid;
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        let number = pid.as_raw_nonzero().get().unsigned_abs();
        let (mut names, mut sockets) = (Vec::new(), Vec::new());
        for (name, fd) in held.iter().flat_map(Held::sockets) {
            names.push(name);
            if name.is_served() {
                sockets.push(fd.try_clone_to_owned()?);
            }
        }
        let watch = Watch { pid: number, process, from, stream, names, sockets, patience };
        Ok(Self { pid: number, watch: Some(watch), serves: false, times: 0, failed: None })
    }

    /// For people.
    pub(super) fn sentence(&self) -> String {
        match self.serves {
            false => format!("standing by for pid {}", self.pid),
            true => format!("serving through the kernel in place of pid {}, which is stuck", self.pid),
        }
    }

    pub(super) const fn report(&self) -> report::StandingBy {
        report::StandingBy { pid: self.pid, serves: self.serves, times: self.times }
    }
}

impl Instance {
    /// Begins to watch the first instance, if it stands by for one.
    pub(super) fn watch_first(&mut self, ask: &mpsc::Sender<Asked>) {
        if let Some(watch) = self.standing_by.as_mut().and_then(|it| it.watch.take()) {
            let ask = ask.clone();
            tokio::spawn(async move {
                let end = watch.run(&ask).await.unwrap_or_else(|error| First::Changed(error.to_string()));
                // If the loop has ended, nobody needs to know.
                let _ = ask.send(Asked::First(end)).await;
            });
        }
    }

    /// Does what follows from what was found of the first instance.
    pub(super) async fn first_is(&mut self, first: First) {
        let Some(standing_by) = &mut self.standing_by else { return };
        let pid = standing_by.pid;
        match first {
            First::Stuck if !standing_by.serves => {
                (standing_by.serves, standing_by.times) = (true, standing_by.times + 1);
                tracing::warn!(
                    "pid {pid} leaves what comes, and none of its threads runs: serving in its place"
                );
                self.tell_all(ServeCommand::Begin);
            }
            First::Back if standing_by.serves => {
                standing_by.serves = false;
                tracing::info!("pid {pid} goes on: standing by for it again");
                self.tell_all(ServeCommand::StepBack);
            }
            First::Stuck | First::Back => {}
            First::Gone => {
                tracing::warn!(
                    "pid {pid}, which this instance stood by for, has ended: this one serves from now on"
                );
                self.standing_by = None;
                "the instance that it stood by for has ended".clone_into(&mut self.interface.choice.why);
                self.tell_all(ServeCommand::Begin);
                self.interface.attach_due = self.interface.ifindex.is_some();
                let wanted: Vec<_> =
                    self.plan.services.iter().flat_map(|service| service.rpcbind.iter().copied()).collect();
                self.registered = Registered::set(&wanted).await;
            }
            First::Changed(why) => standing_by.failed = Some(why),
        }
        if let Some(standing_by) = &self.standing_by {
            self.interface.choice.why = standing_by.sentence();
        }
    }

    /// Why it cannot stand by any longer.
    pub(super) fn cannot_stand_by(&mut self) -> Option<InstanceError> {
        let why = self.standing_by.as_mut()?.failed.take()?;
        Some(InstanceError::StandBy { from: self.plan.stand_by.clone().unwrap_or_default(), why })
    }

    fn tell_all(&mut self, command: ServeCommand) {
        for worker in &mut self.workers {
            worker.tell_services(command.clone());
        }
    }

    /// Another instance wants to stand by for this one: it gets the sockets, and hears by the end of the connection that they are others
    /// by now, or that this one ends.
    pub(super) fn give_to_stand_by(&mut self, stream: StdStream) {
        let is_open =
            |stream: &StdStream| poll(&mut [PollFd::new(stream, PollFlags::RDHUP)], Some(&AT_ONCE)) == Ok(0);
        self.stood_by.retain(is_open);
        let why = match (&self.standing_by, &self.drain) {
            (Some(other), _) => Some(format!("it is {} itself: name that one", other.sentence())),
            (_, Some(_)) => Some(ENDING.to_owned()),
            _ if self.stood_by.len() >= MOST => Some(format!("{MOST} instances stand by for it already")),
            _ => None,
        };
        if self.refuse_or_send_sockets(&stream, why) {
            tracing::info!("another instance stands by for this one");
            self.stood_by.push(stream);
        }
    }
}

/// What an instance says that is about to end.
const ENDING: &str = "the instance is stopping";

/// The first instance, from outside.
struct Watch {
    pid: u32,
    process: OwnedFd,
    from: PathBuf,
    /// Open as long as the first one has the sockets that we know.
    stream: StdStream,
    names: Vec<Name>,
    /// Those in which something may wait.
    sockets: Vec<OwnedFd>,
    patience: Duration,
}

impl Watch {
    /// Tells what is found, until it has ended or changed.
    async fn run(self, ask: &mpsc::Sender<Asked>) -> io::Result<First> {
        let process = readable(self.process.try_clone()?)?;
        let mut stream = UnixStream::from_std(nonblocking(self.stream.try_clone()?)?)?;
        let waiting = Waiting::new(&self.sockets)?;
        if self.progress().is_none() {
            tracing::warn!(
                "what the threads of pid {} do cannot be seen in /proc: this instance serves when that one has ended, and not before",
                self.pid
            );
        }
        loop {
            let mut byte = [0; 1];
            tokio::select! {
                // Whatever it says, it is the end that counts.
                _ = stream.read(&mut byte) => {}
                stuck = self.until_stuck(&waiting) => {
                    let stopped = stuck?;
                    if ask.send(Asked::First(First::Stuck)).await.is_err() {
                        return Ok(First::Back);
                    }
                    tokio::select! {
                        _ = process.readable() => return Ok(First::Gone),
                        () = self.until_moves(&stopped) => {}
                    }
                    if ask.send(Asked::First(First::Back)).await.is_err() {
                        return Ok(First::Back);
                    }
                    continue;
                }
            }
            // Its sockets are closed, or others: until that is known, what waits is served here as well.
            let _ = ask.send(Asked::First(First::Stuck)).await;
            loop {
                if timeout(END_PATIENCE, process.readable()).await.is_ok() {
                    return Ok(First::Gone);
                }
                match self.ask_again().await {
                    Ok(Again::Same(again)) => {
                        stream = UnixStream::from_std(nonblocking(again)?)?;
                        break;
                    }
                    Ok(Again::Refused(why)) => return Ok(First::Changed(why)),
                    // It is about to end, or says nothing.
                    Ok(Again::Later) | Err(_) => {}
                }
            }
            let _ = ask.send(Asked::First(First::Back)).await;
        }
    }

    /// Waits until something has waited for so long without any of its threads having run; what they had done by then.
    async fn until_stuck(&self, waiting: &Waiting) -> io::Result<Progress> {
        if self.patience == Duration::ZERO {
            std::future::pending::<()>().await;
        }
        loop {
            waiting.arm(&self.sockets)?;
            waiting.something().await?;
            let mut before = self.progress();
            loop {
                // The kernel says of a stopped thread that it is: a process that is merely kept from its CPU looks otherwise.
                let is_stopped = before.as_ref().is_some_and(Progress::is_stopped);
                sleep(if is_stopped { self.patience.min(STOPPED_PATIENCE) } else { self.patience }).await;
                if !is_something(&self.sockets) {
                    break;
                }
                let now = self.progress();
                match (before, now) {
                    (Some(before), Some(now)) if before == now => return Ok(now),
                    (_, now) => before = now,
                }
            }
        }
    }

    /// Waits until one of its threads has run.
    async fn until_moves(&self, stopped: &Progress) {
        while self.progress().as_ref() == Some(stopped) {
            sleep(LOOK_INTERVAL).await;
        }
    }

    /// What each of its threads has run so far; `None`: that cannot be seen.
    fn progress(&self) -> Option<Progress> {
        let mut threads = BTreeMap::new();
        for thread in fs::read_dir(format!("/proc/{}/task", self.pid)).ok()? {
            let thread = thread.ok()?.path();
            // Time run and times run (Documentation/scheduler/sched-stats.rst); ticks, where the kernel does not count that.
            let run = fs::read_to_string(thread.join("schedstat")).ok().filter(|run| !run.starts_with("0 "));
            let stat = fs::read_to_string(thread.join("stat")).unwrap_or_default();
            let is_stopped = is_stopped(&stat);
            // It has just ended: that is progress.
            threads.insert(thread, Run { ran: run.unwrap_or(stat), is_stopped });
        }
        Some(Progress { threads })
    }

    /// Asks for the sockets again.
    async fn ask_again(&self) -> Result<Again, JoinError> {
        let (from, names) = (self.from.clone(), self.names.clone());
        tokio::task::spawn_blocking(move || again(&from, &names)).await
    }
}

/// How far the threads of a process have come, as the kernel tells it.
#[derive(Debug, PartialEq, Eq)]
struct Progress {
    threads: BTreeMap<PathBuf, Run>,
}

/// How far one thread has come.
#[derive(Debug, PartialEq, Eq)]
struct Run {
    /// Time run and times run.
    ran: String,
    /// By a signal, or a debugger.
    is_stopped: bool,
}

impl Progress {
    /// Whether every thread is stopped.
    fn is_stopped(&self) -> bool {
        !self.threads.is_empty() && self.threads.values().all(|thread| thread.is_stopped)
    }
}

/// Whether a thread is stopped, by its state in the third field of `stat` (proc_pid_stat(5)). The second one is a name,
/// which may hold anything.
fn is_stopped(stat: &str) -> bool {
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    matches!(state, Some('T' | 't'))
}

/// What the first instance says when it is asked again.
enum Again {
    /// It has the same sockets.
    Same(StdStream),
    /// It has others, or does not want this.
    Refused(String),
    /// It is to be asked later.
    Later,
}

fn again(from: &Path, names: &[Name]) -> Again {
    match Inherited::receive(from, &Request::StandBy) {
        Ok((stream, sockets)) => {
            let is_same =
                sockets.len() == names.len() && sockets.iter().all(|(name, _)| names.contains(name));
            if is_same {
                return Again::Same(stream);
            }
            Again::Refused(
                "it serves other ports by now: start this one again with the configuration of that one"
                    .to_owned(),
            )
        }
        // It says so.
        Err(error) if error.kind() == io::ErrorKind::InvalidData && !error.to_string().contains(ENDING) => {
            Again::Refused(error.to_string())
        }
        Err(_) => Again::Later,
    }
}

fn nonblocking(stream: StdStream) -> io::Result<StdStream> {
    stream.set_nonblocking(true)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_stopped_if_every_thread_of_it_is() {
        let of = |stats: &[&str]| {
            let threads = stats.iter().enumerate().map(|(at, stat)| {
                (PathBuf::from(at.to_string()), Run { ran: String::new(), is_stopped: is_stopped(stat) })
            });
            Progress { threads: threads.collect() }.is_stopped()
        };
        assert!(of(&["7 (worker-0) T 1 7", "8 (a) S (b) t 1 7"]));
        assert!(!of(&["7 (worker-0) T 1 7", "8 (a) T (b) S 1 7"]));
        assert!(!of(&["7 (worker-0) T 1 7", ""]), "one has just ended");
        assert!(!of(&[]));
    }
}
