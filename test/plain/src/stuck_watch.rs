//! Measures a stopped worker as its clients see it: how long they are without answers, how long the fast path takes to
//! return once the worker runs again, and whether any request is answered twice.
//!
//! Every flow sends numbered requests all the time, so a second answer to a number is recognised. A flow's time starts
//! just before the worker is stopped. It ends with the first answer to a request sent after that. A TCP connection that is
//! opened after the stop is timed as well. Connections from before belong to the stopped worker and are not watched.

use std::io;
use std::net::SocketAddr;

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use twinpath_socket_load::SocketError;
use twinpath_sys::{StoppedThread, clock};
use twinpath_time::{Duration, Instant};

pub use crate::kill_watch::DEADLINE;
use crate::kill_watch::{Heard, KillWatchError, PERIOD, Probe, TcpProbe, until_due};

/// How long the worker stays stopped after every flow was answered, so that many requests are served in its place.
const HELD: Duration = Duration::from_millis(30);

/// After so long without an answer, none is expected any more.
const SILENCE: Duration = Duration::from_millis(300);

/// The server under test.
#[derive(Clone, Debug)]
pub struct StuckWatchConfig {
    /// UDP ports that the worker claims. Each entry gets a flow of its own.
    pub udp: Vec<SocketAddr>,
    /// The server's TCP port.
    pub tcp: SocketAddr,
}

/// The thread or process to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// One thread, as by a debugger.
    Thread(u32),
    /// A whole process, by SIGSTOP: a child of this one.
    Process(u32),
}

/// The times of one stop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Felt {
    /// From the stop until each flow had an answer, by the flow's name. [`DEADLINE`] means that it had none.
    pub flows: Vec<(String, Duration)>,
    /// From the end of the stop until the fast path has taken frames and each flow has had an answer to a later request.
    pub back: Duration,
}

impl Felt {
    /// The longest time of any flow.
    #[must_use]
    pub fn worst(&self) -> Duration {
        self.flows.iter().map(|flow| flow.1).max().unwrap_or_default()
    }
}

/// Totals over all stops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCounts {
    /// Datagrams sent, one request each.
    pub requests: u64,
    /// Requests without an answer.
    pub lost: u64,
    /// Answers to requests that had been answered before.
    pub twice: u64,
}

/// Why a stop could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum StuckWatchError {
    /// A socket.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// A TCP connection.
    #[error(transparent)]
    Tcp(#[from] KillWatchError),
    /// A flow was not answered in time although the worker ran.
    #[error("{0}: no answer within {DEADLINE:?} from a worker that runs")]
    Silent(String),
    /// The thread or process cannot be stopped.
    #[error("cannot stop {victim:?}: {source}")]
    Stop {
        /// Which one.
        victim: Victim,
        /// From `ptrace(2)` or `kill(2)`.
        source: io::Error,
    },
    /// The server did not report the frames that its fast path took.
    #[error("the server does not say how much its fast path has served: {0}")]
    Fast(io::Error),
}

/// The stopped thread or process; it runs again when this is dropped.
enum Stopped {
    Thread { _thread: StoppedThread },
    Process(Pid),
}

impl Stopped {
    fn stop(victim: Victim) -> io::Result<Self> {
        match victim {
            Victim::Thread(tid) => Ok(Self::Thread { _thread: StoppedThread::stop(tid)? }),
            Victim::Process(pid) => {
                let pid = Pid::from_raw(pid.cast_signed()).ok_or(io::ErrorKind::InvalidInput)?;
                kill_process(pid, Signal::STOP)?;
                let stopped = Self::Process(pid);
                // Until all of its threads have stopped: one that still runs could accept a connection and keep it.
                waitid(WaitId::Pid(pid), WaitIdOptions::STOPPED)?;
                Ok(stopped)
            }
        }
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        if let Self::Process(pid) = self {
            // It may have ended.
            let _ = kill_process(*pid, Signal::CONT);
        }
    }
}

/// A UDP flow, and how often each of its requests was answered.
#[derive(Debug)]
struct Flow {
    probe: Probe,
    answers: Vec<u8>,
}

impl Flow {
    fn open(target: SocketAddr) -> Result<Self, SocketError> {
        Ok(Self { probe: Probe::open("udp", target)?, answers: Vec::new() })
    }

    /// Reads all answers that have arrived. Returns the highest number among them.
    fn hear(&mut self) -> Option<u64> {
        let mut highest = None;
        while let Heard::Answer(number) = self.probe.hear() {
            let at = number as usize;
            // A number that was never sent is not an answer.
            if number <= self.probe.asked {
                self.answers.resize(self.answers.len().max(at + 1), 0);
                self.answers[at] = self.answers[at].saturating_add(1);
                highest = highest.max(Some(number));
            }
        }
        highest
    }
}

/// The flows. Their sockets belong to the network namespace they were opened in.
#[derive(Debug)]
pub struct StuckWatch {
    flows: Vec<Flow>,
    tcp: SocketAddr,
    due: Instant,
}

impl StuckWatch {
    /// Opens every flow in the calling thread's network namespace.
    ///
    /// # Errors
    /// A socket.
    pub fn open(config: &StuckWatchConfig) -> Result<Self, SocketError> {
        let flows = config.udp.iter().map(|target| Flow::open(*target)).collect::<Result<_, _>>()?;
        Ok(Self { flows, tcp: config.tcp, due: Instant::ZERO })
    }

    /// Stops a worker of the server, or all of it, until every flow has had an answer and a little longer. Then lets it
    /// run, and waits until the fast path serves again. All flows send requests meanwhile. `fast` returns the number of
    /// frames that the fast path has taken so far.
    ///
    /// # Errors
    /// [`StuckWatchError`]. What was stopped runs again in any case.
    pub fn stop(
        &mut self,
        victim: Victim,
        mut fast: impl FnMut() -> io::Result<u64>,
    ) -> Result<Felt, StuckWatchError> {
        let taken = fast().map_err(StuckWatchError::Fast)?;
        self.until_fast(taken, &mut fast)?;
        let stopped_at = clock::now();
        let stopped = Stopped::stop(victim).map_err(|source| StuckWatchError::Stop { victim, source })?;
        let flows = self.until_answered(stopped_at)?;
        let held = clock::now() + HELD;
        while clock::now() < held {
            self.round(None)?;
        }
        // A process that is stopped as a whole answers nothing.
        let before = match victim {
            Victim::Thread(_) => Some(fast().map_err(StuckWatchError::Fast)?),
            Victim::Process(_) => None,
        };
        drop(stopped);
        let taken = before.map_or_else(|| fast().map_err(StuckWatchError::Fast), Ok)?;
        let back = self.until_fast(taken, &mut fast)?;
        Ok(Felt { flows, back })
    }

    /// The totals, once no more answers arrive.
    ///
    /// # Errors
    /// Waiting.
    pub fn end(mut self) -> Result<RequestCounts, StuckWatchError> {
        let mut last = clock::now();
        while clock::now().since(last) < SILENCE {
            self.wait(None)?;
            if self.flows.iter_mut().filter_map(Flow::hear).count() > 0 {
                last = clock::now();
            }
        }
        let mut asked = RequestCounts::default();
        for flow in &self.flows {
            let answered = flow.answers.iter().filter(|answers| **answers > 0).count() as u64;
            asked.requests += flow.probe.asked;
            asked.lost += flow.probe.asked - answered;
            asked.twice +=
                flow.answers.iter().map(|answers| u64::from(answers.saturating_sub(1))).sum::<u64>();
        }
        Ok(asked)
    }

    /// Sends requests if they are due, and reads answers. Returns the highest number that was answered, per flow.
    fn round(&mut self, tcp: Option<&TcpProbe>) -> Result<Vec<Option<u64>>, SocketError> {
        let now = clock::now();
        if now >= self.due {
            self.due = now + PERIOD;
            for flow in &mut self.flows {
                flow.probe.ask();
            }
        }
        let heard = self.flows.iter_mut().map(Flow::hear).collect();
        self.wait(tcp)?;
        Ok(heard)
    }

    fn wait(&self, tcp: Option<&TcpProbe>) -> Result<(), SocketError> {
        let udp = self.flows.iter().map(|flow| PollFd::new(&flow.probe.socket, PollFlags::IN));
        until_due(udp.chain(tcp.map(|tcp| PollFd::new(&tcp.stream, PollFlags::IN))).collect())
    }

    /// Waits until every flow and a new TCP connection have an answer. Returns the times since `stopped`.
    fn until_answered(&mut self, stopped: Instant) -> Result<Vec<(String, Duration)>, StuckWatchError> {
        let before: Vec<u64> = self.flows.iter().map(|flow| flow.probe.asked).collect();
        let mut felt: Vec<Option<Duration>> = vec![None; self.flows.len()];
        let mut tcp = TcpProbe::open(self.tcp)?;
        let mut tcp_felt = None;
        while (felt.contains(&None) || tcp_felt.is_none()) && clock::now().since(stopped) < DEADLINE {
            tcp.work()?;
            if tcp_felt.is_none() && tcp.answered > 0 {
                tcp_felt = Some(clock::now().since(stopped));
            }
            let heard = self.round(Some(&tcp))?;
            for ((felt, heard), before) in felt.iter_mut().zip(heard).zip(&before) {
                if felt.is_none() && heard.is_some_and(|number| number > *before) {
                    *felt = Some(clock::now().since(stopped));
                }
            }
        }
        let udp = self.flows.iter().zip(felt).map(|(flow, felt)| (&flow.probe.name, felt));
        let flows = udp.chain([(&tcp.name, tcp_felt)]);
        Ok(flows.map(|(name, felt)| (name.clone(), felt.unwrap_or(DEADLINE))).collect())
    }

    /// Waits until the fast path has taken more than `taken` frames and every flow has an answer to a request sent from now
    /// on. Returns the time that took.
    fn until_fast(
        &mut self,
        taken: u64,
        fast: &mut impl FnMut() -> io::Result<u64>,
    ) -> Result<Duration, StuckWatchError> {
        let begun = clock::now();
        let before: Vec<u64> = self.flows.iter().map(|flow| flow.probe.asked).collect();
        let mut answered = vec![false; before.len()];
        loop {
            let heard = self.round(None)?;
            for ((answered, heard), before) in answered.iter_mut().zip(heard).zip(&before) {
                *answered |= heard.is_some_and(|number| number > *before);
            }
            let is_fast = !answered.contains(&false) && fast().map_err(StuckWatchError::Fast)? > taken;
            if is_fast {
                return Ok(clock::now().since(begun));
            }
            if clock::now().since(begun) > DEADLINE {
                let silent = self.flows.iter().zip(&answered).find(|(_, answered)| !**answered);
                let name = silent.map_or("the fast path", |(flow, _)| flow.probe.name.as_str());
                return Err(StuckWatchError::Silent(name.to_owned()));
            }
        }
    }
}
