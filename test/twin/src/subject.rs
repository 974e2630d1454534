//! The subject as a process: built from its source, started plain or with the library, told what to do by the channels of its actors.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use rustix::net::{accept, bind, listen, recv, send, socket_with};
use rustix::process::{Pid, Signal, kill_process};
use twinpath_sys::Namespace;
use twinpath_sys::child::{Placement, place};

/// A program that is started has, up to its exec, a copy of every descriptor of this process: also of a socket that an
/// owner on another thread has just got and closes. So programs are started under the write lock, and calls in which a
/// lease is given are made under the read lock.
static STARTS: RwLock<()> = RwLock::new(());

/// No lease is given meanwhile.
pub(crate) fn starts() -> RwLockWriteGuard<'static, ()> {
    STARTS.write().unwrap_or_else(PoisonError::into_inner)
}

/// No program is started meanwhile.
pub(crate) fn lends() -> RwLockReadGuard<'static, ()> {
    STARTS.read().unwrap_or_else(PoisonError::into_inner)
}

/// Its threads and processes.
pub const ACTORS: usize = 8;

const SOURCES: [(&str, &str); 6] = [
    ("subject.c", include_str!("../subject/subject.c")),
    ("names.h", include_str!("../subject/names.h")),
    ("receive.h", include_str!("../subject/receive.h")),
    ("wait.h", include_str!("../subject/wait.h")),
    ("socket.h", include_str!("../subject/socket.h")),
    ("process.h", include_str!("../subject/process.h")),
];

/// Builds it in a folder.
///
/// # Errors
/// There is no compiler.
pub fn build(folder: &Path) -> Result<PathBuf> {
    for (name, text) in SOURCES {
        fs::write(folder.join(name), text)?;
    }
    let program = folder.join("subject");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-pthread"]);
    let _alone = starts();
    let output = compiler.arg(folder.join("subject.c")).arg("-o").arg(&program).output().context("cc")?;
    ensure!(output.status.success(), "cc: {}", String::from_utf8_lossy(&output.stderr));
    Ok(program)
}

#[derive(Debug)]
struct Actor {
    channel: OwnedFd,
    /// Its process and thread, once it has said so.
    who: Option<(u32, u32)>,
    /// It has been told something, and has not answered.
    is_busy: bool,
}

/// A running one.
#[derive(Debug)]
pub struct Subject {
    child: Child,
    actors: Vec<Actor>,
}

/// What an actor does that has not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// It sleeps in a call.
    Sleeps,
    /// It has run for this long in all.
    Runs(Duration),
    /// There is no such thread.
    Gone,
}

impl Subject {
    /// Starts the program in a namespace.
    ///
    /// # Errors
    /// What the system refuses.
    pub fn start(
        program: &Path,
        namespace: &Namespace,
        channel: &Path,
        environment: &[(&str, String)],
    ) -> Result<Self> {
        let _ = fs::remove_file(channel);
        let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        bind(&listener, &SocketAddrUnix::new(channel)?)?;
        listen(&listener, ACTORS as i32)?;
        let mut command = Command::new(program);
        command.arg(channel).stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(Stdio::null());
        for (name, value) in environment {
            command.env(name, value);
        }
        place(&mut command, Placement { namespace: Some(namespace), ..Placement::default() })?;
        let child = {
            let _alone = starts();
            command.spawn()?
        };
        let mut actors = Vec::new();
        for number in 0..ACTORS as u32 {
            ensure!(is_readable(&listener, Duration::from_secs(20))?, "the subject does not connect");
            let channel = accept(&listener)?;
            rustix::io::fcntl_setfd(&channel, rustix::io::FdFlags::CLOEXEC)?;
            let mut said = [0; 4];
            recv(&channel, &mut said[..], RecvFlags::empty())?;
            ensure!(u32::from_ne_bytes(said) == number, "the channels are in another order");
            actors.push(Actor { channel, who: None, is_busy: number == 0 });
        }
        let mut subject = Self { child, actors };
        ensure!(subject.answer(0, Duration::from_secs(20))?.is_some(), "the subject says nothing");
        Ok(subject)
    }

    /// Whether an actor is there, and has nothing to do.
    #[must_use]
    pub fn is_idle(&self, actor: usize) -> bool {
        self.actors[actor].who.is_some() && !self.actors[actor].is_busy
    }

    /// Whether it has been told something, and has not answered.
    #[must_use]
    pub fn is_busy(&self, actor: usize) -> bool {
        self.actors[actor].is_busy
    }

    /// Process and thread of an actor.
    #[must_use]
    pub fn who(&self, actor: usize) -> Option<(u32, u32)> {
        self.actors[actor].who
    }

    /// Tells an actor what to do. One that has ended says so by its answer.
    pub fn tell(&mut self, actor: usize, line: &str) {
        let _ = send(&self.actors[actor].channel, line.as_bytes(), SendFlags::NOSIGNAL);
        self.actors[actor].is_busy = true;
    }

    /// What an actor says within a time, `waits` if that is nothing, or `died`.
    ///
    /// # Errors
    /// Of the system.
    pub fn answer_or_state(&mut self, actor: usize, within: Duration) -> Result<String> {
        let deadline = Instant::now() + within;
        while Instant::now() < deadline {
            if let Some(answer) = self.answer(actor, Duration::from_millis(20))? {
                return Ok(answer);
            }
            // It may have answered just before.
            if self.doing(actor) == Doing::Gone && !self.has_answer(actor, Duration::ZERO)? {
                return Ok("died".to_owned());
            }
        }
        Ok("waits".to_owned())
    }

    /// An actor that another one is about to start answers once, unasked.
    pub fn expect(&mut self, actor: usize) {
        self.actors[actor].is_busy = true;
    }

    /// What an actor says within a time; `None`: nothing.
    ///
    /// # Errors
    /// Of the system.
    pub fn answer(&mut self, number: usize, within: Duration) -> Result<Option<String>> {
        let actor = &mut self.actors[number];
        if !is_readable(&actor.channel, within)? {
            return Ok(None);
        }
        let mut bytes = [0; 16384];
        let got = match recv(&actor.channel, &mut bytes[..], RecvFlags::empty()) {
            Ok((got, _)) => got,
            Err(rustix::io::Errno::CONNRESET) => 0,
            Err(error) => return Err(error.into()),
        };
        actor.is_busy = false;
        let text = String::from_utf8_lossy(&bytes[..got]).into_owned();
        if got == 0 {
            return Ok(Some("ended".to_owned()));
        }
        let field = |name: &str| {
            text.split(' ').find_map(|word| word.strip_prefix(name)).and_then(|number| number.parse().ok())
        };
        if let (Some(pid), Some(tid)) = (field("~pid="), field("~tid=")) {
            actor.who = Some((pid, tid));
        }
        Ok(Some(text))
    }

    /// Whether an actor says something within a time.
    ///
    /// # Errors
    /// Of the system.
    pub fn has_answer(&self, actor: usize, within: Duration) -> Result<bool> {
        is_readable(&self.actors[actor].channel, within)
    }

    /// What an actor is doing that has not answered.
    #[must_use]
    pub fn doing(&self, actor: usize) -> Doing {
        // One that has not said who it is has just been started.
        let Some((pid, tid)) = self.actors[actor].who else { return Doing::Runs(Duration::ZERO) };
        let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/task/{tid}/{name}"));
        let Ok(stat) = read("stat") else { return Doing::Gone };
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        match state {
            // Asleep with an answer on its way, it waits for what to do next, which is seen by reading the answer.
            Some('S') => Doing::Sleeps,
            Some('Z' | 'X') | None => Doing::Gone,
            _ => {
                let ran = read("schedstat").ok().and_then(|text| text.split(' ').next()?.parse().ok());
                Doing::Runs(Duration::from_nanos(ran.unwrap_or(0)))
            }
        }
    }

    /// Waits until a thread that is in no call has run the handlers of its signals: of what is sent to its socket next, it
    /// is by chance otherwise whether a handler receives it.
    ///
    /// # Errors
    /// It does not.
    pub fn await_handler(&self, actor: usize, within: Duration) -> Result<()> {
        let Some((pid, tid)) = self.actors[actor].who else { return Ok(()) };
        if self.is_busy(actor) && !self.has_answer(actor, Duration::ZERO)? {
            return Ok(());
        }
        let deadline = Instant::now() + within;
        loop {
            let Ok(status) = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")) else {
                return Ok(());
            };
            let has = |line: &str| status.lines().any(|of| of.starts_with(line));
            if has("State:\tZ") || has("State:\tS") && has("SigPnd:\t0000000000000000") {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "a signal is not handled");
            std::thread::yield_now();
        }
    }

    /// Ends it: every process that has said who it is. Returns how the first one ended.
    ///
    /// # Errors
    /// Of the system.
    pub fn end(mut self) -> Result<Option<ExitStatus>> {
        let own = self.child.id();
        if self.is_idle(0) {
            self.tell(0, "exit");
            let deadline = Instant::now() + Duration::from_secs(10);
            // Its channels live on in its children, so it is asked.
            while self.child.try_wait()?.is_none() && Instant::now() < deadline {
                let ended = rustix::process::pidfd_open(pid_of(own)?, rustix::process::PidfdFlags::empty())?;
                is_readable(&ended, Duration::from_secs(10))?;
            }
        }
        for actor in &self.actors {
            if let Some((pid, _)) = actor.who.filter(|(pid, _)| *pid != own) {
                kill(pid_of(pid)?)?;
            }
        }
        let status = self.child.try_wait()?;
        if status.is_none() {
            self.child.kill()?;
            self.child.wait()?;
        }
        Ok(status)
    }
}

/// Kills a process, and waits until it has ended: the ports of its sockets are free then.
fn kill(process: Pid) -> Result<()> {
    // Without one it has ended before.
    let Ok(ended) = rustix::process::pidfd_open(process, rustix::process::PidfdFlags::empty()) else {
        return Ok(());
    };
    let _ = kill_process(process, Signal::KILL);
    ensure!(is_readable(&ended, Duration::from_secs(10))?, "a process does not end");
    Ok(())
}

fn pid_of(pid: u32) -> Result<Pid> {
    Pid::from_raw(pid as i32).context("a process")
}

fn is_readable(fd: &OwnedFd, within: Duration) -> Result<bool> {
    let mut waited = [PollFd::new(fd, PollFlags::IN)];
    let timeout = Timespec { tv_sec: within.as_secs() as i64, tv_nsec: i64::from(within.subsec_nanos()) };
    loop {
        match poll(&mut waited, Some(&timeout)) {
            Ok(ready) => return Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
