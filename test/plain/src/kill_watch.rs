//! Measures how long a `kill -9` interrupts service: from the signal until the kernel has answered every flow again.
//!
//! Every probe repeats its request. A *claimed* port is back with the kernel at the first ICMP "port unreachable":
//! only the kernel sends that, once the dead program's socket is closed and its claim is gone. The other probes are
//! served by other programs over kernel sockets: they count from the first answer to a request that was sent after
//! the signal. A TCP connection is kept from one kill to the next: a reset is an error.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use twinpath_socket_load::SocketError;
use twinpath_sys::clock;
use twinpath_time::{Duration, Instant};

/// Pause between two requests of a probe.
pub(crate) const PERIOD: Duration = Duration::from_micros(200);
/// Every probe must be answered within this time, both before and after the kill.
pub const DEADLINE: Duration = Duration::from_secs(5);
pub(crate) const REQUEST_LEN: usize = 8;

/// The servers that the probes ask.
#[derive(Clone, Debug)]
pub struct KillWatchConfig {
    /// UDP ports that the program to be killed claims; no other program may hold them.
    pub claimed: Vec<SocketAddr>,
    /// A plain UDP echo server on the same interface.
    pub udp: SocketAddr,
    /// A plain TCP echo server on the same interface.
    pub tcp: SocketAddr,
}

/// The probes. Their sockets belong to the network namespace in which they were opened.
#[derive(Debug)]
pub struct KillWatch {
    claimed: Vec<Probe>,
    udp: Probe,
    tcp: TcpProbe,
}

/// The result of one kill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Felt {
    /// Per flow, by name: the time from the signal until the kernel answered it.
    pub flows: Vec<(String, Duration)>,
}

impl Felt {
    /// The longest of these times.
    #[must_use]
    pub fn worst(&self) -> Duration {
        self.flows.iter().map(|flow| flow.1).max().unwrap_or_default()
    }
}

/// Why a kill could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum KillWatchError {
    /// A socket could not be opened or used.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// A flow was not answered in time.
    #[error("{flow}: no answer within {DEADLINE:?} {when} the kill")]
    Silent {
        /// Name of the flow.
        flow: String,
        /// `before` or `after`.
        when: &'static str,
    },
    /// The TCP connection broke.
    #[error("{flow}: the connection broke: {source}")]
    Broken {
        /// Name of the flow.
        flow: String,
        /// The socket's error.
        source: io::Error,
    },
    /// There is no such process.
    #[error("cannot kill process {pid}: {source}")]
    Kill {
        /// The process ID.
        pid: u32,
        /// From `kill(2)`.
        source: io::Error,
    },
}

/// A UDP flow.
#[derive(Debug)]
pub(crate) struct Probe {
    pub(crate) name: String,
    pub(crate) socket: UdpSocket,
    /// Number of the last request; numbers only increase.
    pub(crate) asked: u64,
}

/// The result of asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    Nothing,
    /// The answer to this request.
    Answer(u64),
    /// ICMP: nobody holds the port.
    Refused,
}

impl Probe {
    pub(crate) fn open(kind: &str, target: SocketAddr) -> Result<Self, SocketError> {
        let any: IpAddr = if target.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() };
        let address = SocketAddr::new(any, 0);
        let connect = |source| SocketError::Connect { target, source };
        let socket = UdpSocket::bind(address).map_err(|source| SocketError::Bind { address, source })?;
        socket.connect(target).map_err(connect)?;
        socket.set_nonblocking(true).map_err(connect)?;
        Ok(Self { name: format!("{kind} {target}"), socket, asked: 0 })
    }

    /// Sends the next request. The socket may report the result of an earlier one here.
    pub(crate) fn ask(&mut self) -> Heard {
        self.asked += 1;
        match self.socket.send(&self.asked.to_be_bytes()) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => Heard::Refused,
            // The send queue is full or there is no route at the moment: the next request follows soon.
            _ => Heard::Nothing,
        }
    }

    pub(crate) fn hear(&self) -> Heard {
        let mut answer = [0; REQUEST_LEN];
        match self.socket.recv(&mut answer) {
            Ok(REQUEST_LEN) => Heard::Answer(u64::from_be_bytes(answer)),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => Heard::Refused,
            _ => Heard::Nothing,
        }
    }
}

/// A TCP connection with at most one request outstanding.
#[derive(Debug)]
pub(crate) struct TcpProbe {
    pub(crate) name: String,
    pub(crate) stream: TcpStream,
    asked: u64,
    pub(crate) answered: u64,
    answer: Vec<u8>,
}

impl TcpProbe {
    pub(crate) fn open(target: SocketAddr) -> Result<Self, SocketError> {
        let connect = |source| SocketError::Connect { target, source };
        let stream = TcpStream::connect_timeout(&target, DEADLINE).map_err(connect)?;
        stream.set_nodelay(true).map_err(connect)?;
        stream.set_nonblocking(true).map_err(connect)?;
        Ok(Self { name: format!("tcp {target}"), stream, asked: 0, answered: 0, answer: Vec::new() })
    }

    /// Sends the next request if none is outstanding, and reads what has arrived.
    pub(crate) fn work(&mut self) -> Result<(), KillWatchError> {
        let broken = |source| KillWatchError::Broken { flow: self.name.clone(), source };
        if self.asked == self.answered {
            match self.stream.write(&(self.asked + 1).to_be_bytes()) {
                Ok(REQUEST_LEN) => self.asked += 1,
                Ok(_) => return Err(broken(ErrorKind::WriteZero.into())),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(broken(error)),
            }
        }
        let mut bytes = [0; REQUEST_LEN];
        match self.stream.read(&mut bytes[self.answer.len()..]) {
            Ok(0) => return Err(broken(ErrorKind::UnexpectedEof.into())),
            Ok(len) => self.answer.extend(&bytes[self.answer.len()..][..len]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(broken(error)),
        }
        if self.answer.len() == REQUEST_LEN {
            if self.answer != self.asked.to_be_bytes() {
                return Err(broken(io::Error::other("the answer is not the request")));
            }
            self.answer.clear();
            self.answered = self.asked;
        }
        Ok(())
    }
}

/// Number of the last request before the kill, per kind of probe.
struct Before {
    udp: u64,
    tcp: u64,
}

impl KillWatch {
    /// Opens every probe in the calling thread's network namespace.
    ///
    /// # Errors
    /// A socket, or the TCP connection.
    pub fn open(config: &KillWatchConfig) -> Result<Self, SocketError> {
        let claimed = config.claimed.iter().map(|target| Probe::open("claimed udp", *target));
        Ok(Self {
            claimed: claimed.collect::<Result<_, _>>()?,
            udp: Probe::open("udp", config.udp)?,
            tcp: TcpProbe::open(config.tcp)?,
        })
    }

    /// Asks until every flow is answered, kills process `pid`, and asks until the kernel has answered every flow.
    ///
    /// # Errors
    /// A flow that is not answered, a connection that breaks, no such process.
    pub fn kill(&mut self, pid: u32) -> Result<Felt, KillWatchError> {
        self.all_are_served()?;
        let before = Before { udp: self.udp.asked, tcp: self.tcp.asked };
        let number = Pid::from_raw(pid.cast_signed());
        let kill = |source: rustix::io::Errno| KillWatchError::Kill { pid, source: source.into() };
        kill_process(number.ok_or_else(|| kill(rustix::io::Errno::SRCH))?, Signal::KILL).map_err(kill)?;
        self.until_answered(&before, clock::now())
    }

    fn all_are_served(&mut self) -> Result<(), KillWatchError> {
        let start = clock::now();
        let (udp, tcp) = (self.udp.asked, self.tcp.answered);
        let claimed: Vec<u64> = self.claimed.iter().map(|probe| probe.asked).collect();
        let mut silent: Vec<bool> = vec![true; claimed.len()];
        let mut udp_silent = true;
        while udp_silent || self.tcp.answered == tcp || silent.contains(&true) {
            if clock::now().since(start) > DEADLINE {
                let of_claimed = self.claimed.iter().zip(&silent).find(|(_, silent)| **silent);
                let flow = match of_claimed {
                    Some((probe, _)) => probe.name.clone(),
                    None if udp_silent => self.udp.name.clone(),
                    None => self.tcp.name.clone(),
                };
                return Err(KillWatchError::Silent { flow, when: "before" });
            }
            // Answers and refusals that belong to an earlier kill do not count.
            for ((probe, from), silent) in self.claimed.iter_mut().zip(&claimed).zip(&mut silent) {
                probe.ask();
                *silent &= !matches!(probe.hear(), Heard::Answer(id) if id > *from);
            }
            self.udp.ask();
            udp_silent &= !matches!(self.udp.hear(), Heard::Answer(id) if id > udp);
            self.tcp.work()?;
            self.wait()?;
        }
        Ok(())
    }

    fn until_answered(&mut self, before: &Before, killed: Instant) -> Result<Felt, KillWatchError> {
        let mut claimed: Vec<Option<Duration>> = vec![None; self.claimed.len()];
        let (mut udp, mut tcp) = (None, None);
        let mut next = killed;
        while udp.is_none() || tcp.is_none() || claimed.contains(&None) {
            let now = clock::now();
            let due = now >= next;
            if due {
                next = now + PERIOD;
            }
            for (probe, felt) in self.claimed.iter_mut().zip(&mut claimed).filter(|(_, felt)| felt.is_none())
            {
                let heard = [if due { probe.ask() } else { Heard::Nothing }, probe.hear()];
                *felt = heard.contains(&Heard::Refused).then(|| clock::now().since(killed));
            }
            if udp.is_none() {
                if due {
                    self.udp.ask();
                }
                let answered = matches!(self.udp.hear(), Heard::Answer(id) if id > before.udp);
                udp = answered.then(|| clock::now().since(killed));
            }
            self.tcp.work()?;
            if tcp.is_none() && self.tcp.answered > before.tcp {
                tcp = Some(clock::now().since(killed));
            }
            if now.since(killed) > DEADLINE {
                let of_claimed = self.claimed.iter().zip(&claimed).find(|(_, felt)| felt.is_none());
                let flow = match of_claimed {
                    Some((probe, _)) => probe.name.clone(),
                    None if udp.is_none() => self.udp.name.clone(),
                    None => self.tcp.name.clone(),
                };
                return Err(KillWatchError::Silent { flow, when: "after" });
            }
            self.wait()?;
        }
        let names = self.claimed.iter().map(|probe| &probe.name).chain([&self.udp.name, &self.tcp.name]);
        let felt = claimed.into_iter().chain([udp, tcp]).map(Option::unwrap_or_default);
        Ok(Felt { flows: names.cloned().zip(felt).collect() })
    }

    /// Waits until an answer comes or the next request is due.
    fn wait(&self) -> Result<(), SocketError> {
        let fds = self
            .claimed
            .iter()
            .map(|probe| PollFd::new(&probe.socket, PollFlags::IN))
            .chain([
                PollFd::new(&self.udp.socket, PollFlags::IN),
                PollFd::new(&self.tcp.stream, PollFlags::IN),
            ])
            .collect();
        until_due(fds)
    }
}

/// Until something comes to one of these, or the next request is due.
pub(crate) fn until_due(mut fds: Vec<PollFd<'_>>) -> Result<(), SocketError> {
    let timeout = Timespec { tv_sec: 0, tv_nsec: PERIOD.subsec_nanos().into() };
    poll(&mut fds, Some(&timeout)).map(|_| ()).map_err(|error| SocketError::Poll(error.into()))
}
