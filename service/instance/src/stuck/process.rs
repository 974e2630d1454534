//! Detects that another process, the first instance, is stuck as a whole or has ended.
//!
//! The process is not polled: a stuck one would not answer, and regular answers would keep a host awake.
//! Instead the kernel reports both. A pidfd reports the end of the process. If the process is stopped, its
//! sockets stay readable, for the standby as well, and only then does the standby check the process. If the
//! sockets are still readable after a time in which none of the process's threads has run, the process is
//! stuck as a whole. So two idle instances cause no wake-ups, and a busy one causes a few each time that
//! requests wait that long.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::{Deserialize, Serialize};
use twinpath_observe::command::Request;
use twinpath_sys::event_loop::channel::Sender;
use twinpath_sys::event_loop::{Line, Lines, Watched, on_a_thread, sleep, timeout};
use twinpath_sys::race;
use twinpath_sys::socket_kind::peer;
use twinpath_time::Duration;

use crate::hold::{Held, Inherited, Name, STOPPING};
use crate::stuck::waiting::{Waiting, is_something};

/// The interval at which a standby that serves in place of a stuck first instance checks whether that one
/// continues. Both serve for no longer than this.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// How long all threads of a process must have been stopped (SIGSTOP, a debugger) until the standby takes
/// its place. Packets that reach the sockets of a stopped fast path have waited for `worker.fail_open_ms`
/// already.
const STOPPED_PATIENCE: Duration = Duration::from_millis(20);

/// How long a process may take to end after it has closed its sockets: closing a packet socket takes tens of
/// milliseconds.
const END_PATIENCE: Duration = Duration::from_secs(2);

/// Longest message of a first instance, in bytes. It names a few processes.
const MESSAGE_MAX: usize = 4096;

/// A change of the first instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum First {
    /// It leaves its sockets readable and none of its threads runs, or it is about to end.
    Stuck,
    /// It serves again.
    Back,
    /// It has ended, and nobody has its sockets but its standbys.
    Gone,
    /// It has ended, and another instance serves in its place.
    Succeeded,
    /// It serves other sockets now, or cannot be asked.
    Changed(String),
}

/// A message of the first instance to its standbys, in one line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToStandby {
    /// Who has the sockets, too.
    Others {
        /// The processes of all its standbys. If it ends, the one with the lowest number serves.
        pids: Vec<u32>,
        /// Whether a new instance is about to take over. It goes on if this one ends.
        taker: bool,
    },
    /// The sockets may have changed.
    AskAgain,
}

/// What a standby knows of others that have the sockets.
#[derive(Default)]
struct Others {
    /// The processes of standbys that come before this one.
    before: BTreeMap<u32, OwnedFd>,
    /// Whether a new instance is about to take over.
    taker: bool,
    /// Whether all this may be old.
    is_outdated: bool,
}

impl Others {
    /// Takes a message of the first instance in.
    fn learn(&mut self, line: &[u8]) {
        match serde_json::from_slice(line) {
            Ok(ToStandby::Others { pids, taker }) => {
                self.taker = taker;
                for pid in pids.into_iter().filter(|pid| *pid < std::process::id()) {
                    let process = i32::try_from(pid).ok().and_then(Pid::from_raw);
                    let process = process.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
                    // One that has ended already does not serve.
                    if let Some(process) = process {
                        self.before.entry(pid).or_insert(process);
                    }
                }
            }
            Ok(ToStandby::AskAgain) => self.is_outdated = true,
            // A later version may say more.
            Err(_) => {}
        }
    }

    /// Takes in what the first instance has said before its end.
    async fn read_rest(&mut self, messages: &mut Messages) {
        while let Ok(Some(line)) = timeout(LOOK_INTERVAL, next_message(messages)).await {
            self.learn(&line);
        }
    }

    /// What the end of the first instance means.
    fn gone(&self) -> First {
        let is_alive = |process: &OwnedFd| !is_something([process]);
        if self.is_outdated {
            First::Changed("it has ended after a reload: start this one again".to_owned())
        } else if self.taker || self.before.values().any(is_alive) {
            First::Succeeded
        } else {
            First::Gone
        }
    }
}

/// The lines of the first instance.
type Messages = Lines<UnixStream>;

fn messages(stream: UnixStream) -> io::Result<Messages> {
    Ok(Lines::new(Watched::readable(nonblocking(stream)?)?))
}

/// The next line; `None` once the connection has ended, or sends what is no line.
async fn next_message(messages: &mut Messages) -> Option<Vec<u8>> {
    match messages.next(MESSAGE_MAX).await {
        Ok(Line::Whole(line) | Line::End(line)) if !line.is_empty() => Some(line),
        Ok(_) | Err(_) => None,
    }
}

/// A watch over the first instance, by another process.
pub struct FirstWatch {
    pid: u32,
    process: OwnedFd,
    from: PathBuf,
    /// Open for as long as the first instance has the sockets that we know.
    stream: UnixStream,
    names: Vec<Name>,
    /// The sockets in which something may wait.
    sockets: Vec<OwnedFd>,
    patience: Duration,
}

impl FirstWatch {
    /// Watches the process of the instance that these sockets came from, as soon as something has waited in
    /// them for `patience`; with 0, watches only for its end.
    ///
    /// # Errors
    /// Its process cannot be watched.
    pub fn new(former: Inherited, held: &[Held], patience: Duration) -> io::Result<Self> {
        let (from, stream) = former.into_stream();
        let stream = stream.ok_or(io::ErrorKind::NotConnected)?;
        let peer = peer(&stream)?;
        let (process, pid) = peer.process.zip(peer.pid()).ok_or(io::ErrorKind::NotFound)?;
        let process = pidfd_open(process, PidfdFlags::empty())?;
        let (mut names, mut sockets) = (Vec::new(), Vec::new());
        for (name, fd) in held.iter().flat_map(Held::sockets) {
            names.push(name);
            if name.is_served() {
                sockets.push(fd.try_clone_to_owned()?);
            }
        }
        Ok(Self { pid, process, from, stream, names, sockets, patience })
    }

    /// The process.
    #[must_use]
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// Sends each change of the first instance, until it has ended or its sockets have changed, which is sent
    /// last. Ends early if the receiver is gone.
    pub async fn run<T: From<First>>(self, tell: &Sender<T>) {
        let end = self.follow(tell).await.unwrap_or_else(|error| First::Changed(error.to_string()));
        let _ = tell.send(end.into()).await;
    }

    /// Sends all changes but the last one, and returns that one.
    async fn follow<T: From<First>>(self, tell: &Sender<T>) -> io::Result<First> {
        let process = Watched::readable(self.process.try_clone()?)?;
        let mut messages = messages(self.stream.try_clone()?)?;
        let mut others = Others::default();
        let waiting = Waiting::new(&self.sockets)?;
        if self.progress().is_none() {
            tracing::warn!(
                "what the threads of pid {} do cannot be seen in /proc: this instance serves when that one has ended, and not before",
                self.pid
            );
        }
        loop {
            let heard = race!(async { Ok(Heard::Message(next_message(&mut messages).await)) }, async {
                self.until_stuck(&waiting).await.map(Heard::Stuck)
            },);
            match heard? {
                Heard::Message(Some(line)) => {
                    others.learn(&line);
                    continue;
                }
                Heard::Message(None) => {}
                Heard::Stuck(stopped) => {
                    if tell.send(First::Stuck.into()).await.is_err() {
                        return Ok(First::Back);
                    }
                    let ended = async {
                        process.until_readable().await;
                        true
                    };
                    let moves = async {
                        self.until_moves(&stopped).await;
                        false
                    };
                    if race!(ended, moves) {
                        others.read_rest(&mut messages).await;
                        return Ok(others.gone());
                    }
                    if tell.send(First::Back.into()).await.is_err() {
                        return Ok(First::Back);
                    }
                    continue;
                }
            }
            // Its sockets are closed or replaced. Until we know which, what waits is served here as well.
            let _ = tell.send(First::Stuck.into()).await;
            loop {
                // After a reload it goes on.
                let patience = if others.is_outdated { LOOK_INTERVAL } else { END_PATIENCE };
                if timeout(patience, process.until_readable()).await.is_ok() {
                    return Ok(others.gone());
                }
                match self.ask_again().await {
                    Ok(Again::Same(again)) => {
                        messages = self::messages(again)?;
                        others.is_outdated = false;
                        break;
                    }
                    Ok(Again::Refused(why)) => return Ok(First::Changed(why)),
                    // It is about to end, or does not answer.
                    Ok(Again::Later) | Err(_) => sleep(LOOK_INTERVAL).await,
                }
            }
            let _ = tell.send(First::Back.into()).await;
        }
    }

    /// Waits until something has waited for `patience` while none of its threads ran. Returns their
    /// progress by then.
    async fn until_stuck(&self, waiting: &Waiting) -> io::Result<Progress> {
        if self.patience == Duration::ZERO {
            std::future::pending::<()>().await;
        }
        loop {
            waiting.arm(&self.sockets)?;
            waiting.something().await?;
            let mut before = self.progress();
            loop {
                // Distinguishes a stopped thread from one that is merely not scheduled.
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

    /// The progress of each of its threads; `None` if that cannot be read.
    fn progress(&self) -> Option<Progress> {
        let mut threads = BTreeMap::new();
        for thread in fs::read_dir(format!("/proc/{}/task", self.pid)).ok()? {
            let thread = thread.ok()?.path();
            // Time run and number of runs (Documentation/scheduler/sched-stats.rst), or ticks if the kernel
            // does not count these.
            let run = fs::read_to_string(thread.join("schedstat")).ok().filter(|run| !run.starts_with("0 "));
            let stat = fs::read_to_string(thread.join("stat")).unwrap_or_default();
            let is_stopped = is_stopped(&stat);
            // The thread has just ended, which counts as progress.
            threads.insert(thread, Run { ran: run.unwrap_or(stat), is_stopped });
        }
        Some(Progress { threads })
    }

    /// Asks for the sockets again.
    async fn ask_again(&self) -> io::Result<Again> {
        let (from, names) = (self.from.clone(), self.names.clone());
        on_a_thread("ask-again", move || again(&from, &names)).await
    }
}

/// An event of the first instance.
enum Heard {
    /// It has sent a message; `None`: the connection has ended.
    Message(Option<Vec<u8>>),
    /// It is stuck since its threads had this progress.
    Stuck(Progress),
}

/// The progress of a process's threads, according to the kernel.
#[derive(Debug, PartialEq, Eq)]
struct Progress {
    threads: BTreeMap<PathBuf, Run>,
}

/// The progress of one thread.
#[derive(Debug, PartialEq, Eq)]
struct Run {
    /// Time run and times run.
    ran: String,
    /// Whether it is stopped by a signal or a debugger.
    is_stopped: bool,
}

impl Progress {
    /// Whether every thread is stopped.
    fn is_stopped(&self) -> bool {
        !self.threads.is_empty() && self.threads.values().all(|thread| thread.is_stopped)
    }
}

/// Whether a thread is stopped, by its state in the third field of `stat` (proc_pid_stat(5)). The second
/// field is a name, which may contain anything.
fn is_stopped(stat: &str) -> bool {
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    matches!(state, Some('T' | 't'))
}

/// The answer of the first instance when it is asked again for its sockets.
enum Again {
    /// It has the same sockets.
    Same(UnixStream),
    /// It has other sockets, or refuses.
    Refused(String),
    /// It cannot answer now; ask later.
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
        // The first instance gave this reason itself.
        Err(error) if error.kind() == io::ErrorKind::InvalidData && !error.to_string().contains(STOPPING) => {
            Again::Refused(error.to_string())
        }
        Err(_) => Again::Later,
    }
}

fn nonblocking(stream: UnixStream) -> io::Result<UnixStream> {
    stream.set_nonblocking(true)?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_the_end_of_the_first_instance_one_of_the_others_serves() {
        let mut others = Others::default();
        assert_eq!(others.gone(), First::Gone);
        let say = |pids: &[u32], taker| {
            serde_json::to_vec(&ToStandby::Others { pids: pids.to_vec(), taker }).expect("it is text")
        };
        let own = std::process::id();
        others.learn(&say(&[own, own + 1], false));
        assert_eq!(others.gone(), First::Gone, "this one comes before the other");
        others.learn(&say(&[own], true));
        assert_eq!(others.gone(), First::Succeeded, "a new instance goes on");
        others.learn(&say(&[1, own], false));
        assert_eq!(others.gone(), First::Succeeded, "another standby comes before this one, and lives");
        others.learn(b"{\"more\":7}");
        others.learn(b"\"ask-again\"");
        assert!(matches!(others.gone(), First::Changed(_)));
    }

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
