//! The new instance's end of a take-over: it asks a running instance for its sockets, starts beside it, and
//! tells it when it serves itself.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use twinpath_lifecycle::Step;
use twinpath_observe::command::{self as command, Request};
use twinpath_sys::UdpSocket;
use twinpath_sys::tcp_listener::Group;

use crate::hold::HoldError;
use crate::hold::held::{Held, Name, Use};
use crate::plan::{Plan, ServicePlan};

/// How long the former instance may take for a step. It detaches programs and closes sockets, each after an RCU
/// grace period, which can take seconds on a busy machine; it serves meanwhile.
const STEP_PATIENCE: Duration = Duration::from_secs(60);

/// The answer to a request for the sockets while the instance is about to end.
pub const STOPPING: &str = "the instance is stopping";

/// The sockets of a former instance, and the connection to it. Empty if nothing is taken over.
#[derive(Default)]
pub struct Inherited {
    from: PathBuf,
    stream: Option<UnixStream>,
    sockets: Vec<(Name, OwnedFd)>,
}

impl Inherited {
    /// Asks the instance with this command socket for its sockets.
    ///
    /// # Errors
    ///
    /// [`HoldError::TakeOver`].
    fn ask(from: &Path) -> Result<Self, HoldError> {
        let failed = |why: String| HoldError::TakeOver { from: from.to_owned(), why };
        Self::ask_for(from, &Request::Sockets).map_err(failed)
    }

    /// Asks the instance with this command socket for its sockets, to be its standby.
    ///
    /// # Errors
    ///
    /// [`HoldError::StandBy`].
    fn ask_to_stand_by(from: &Path) -> Result<Self, HoldError> {
        let failed = |why: String| HoldError::StandBy { from: from.to_owned(), why };
        Self::ask_for(from, &Request::StandBy).map_err(failed)
    }

    fn ask_for(from: &Path, request: &Request) -> Result<Self, String> {
        let (stream, sockets) = Self::receive(from, request).map_err(|error| error.to_string())?;
        if sockets.is_empty() {
            return Err("it has no sockets to hand over".to_owned());
        }
        Ok(Self { from: from.to_owned(), stream: Some(stream), sockets })
    }

    /// Whether all sockets that a service needs are there.
    fn has_all(&self, service: &ServicePlan) -> bool {
        let has = |socket, address, port| {
            let wanted = Name { socket, address, port };
            self.sockets.iter().any(|(name, _)| *name == wanted)
        };
        let addresses: Vec<Option<IpAddr>> = match service.addresses.as_slice() {
            [] => vec![None],
            some => some.iter().copied().map(Some).collect(),
        };
        let ports = [(Use::Udp, service.udp), (Use::Tcp, service.tcp)];
        let ports = ports.into_iter().filter_map(|(socket, port)| Some((socket, port?)));
        let held =
            ports.flat_map(|(socket, port)| addresses.iter().map(move |address| (socket, *address, port)));
        held.into_iter().all(|(socket, address, port)| has(socket, address, port))
    }

    /// Whether the other instance serves something at this address under its name; for a flow also at all
    /// addresses.
    #[must_use]
    pub fn serves_at(&self, service: &ServicePlan, address: IpAddr) -> bool {
        let is_there = |at: Option<IpAddr>| at.map_or(!service.flows.is_empty(), |at| at == address);
        self.sockets.iter().any(|(name, _)| is_there(name.address))
    }

    /// The first socket that no service has taken.
    #[must_use]
    pub fn left(&self) -> Option<Name> {
        self.sockets.first().map(|(name, _)| *name)
    }

    /// The command socket of the other instance, and the connection to it.
    #[must_use]
    pub fn into_stream(self) -> (PathBuf, Option<UnixStream>) {
        (self.from, self.stream)
    }

    /// Duplicate descriptors of this instance's own sockets.
    ///
    /// # Errors
    ///
    /// There is no descriptor left.
    pub fn own<'a>(held: impl IntoIterator<Item = &'a Held>) -> std::io::Result<Self> {
        let sockets = held.into_iter().flat_map(Held::sockets);
        let sockets: std::io::Result<_> =
            sockets.map(|(name, fd)| Ok((name, fd.try_clone_to_owned()?))).collect();
        Ok(Self { sockets: sockets?, ..Self::default() })
    }

    /// Asks an instance for its sockets; returns the connection, and the descriptors with their names.
    ///
    /// # Errors
    ///
    /// `InvalidData` with the instance's sentence if it refuses; any other kind if it cannot be asked.
    pub fn receive(from: &Path, request: &Request) -> std::io::Result<(UnixStream, Vec<(Name, OwnedFd)>)> {
        let (stream, names, fds) = command::receive(from, request, |names: &Vec<Name>| names.len())?;
        Ok((stream, names.into_iter().zip(fds).collect()))
    }

    /// Takes the UDP socket of this address and port, if there is one.
    pub(crate) fn udp(&mut self, address: Option<IpAddr>, port: u16) -> Option<UdpSocket> {
        let fd = self.take(Use::Udp, address, port).pop()?;
        Some(UdpSocket::inherited(fd, address, port))
    }

    /// Takes the listeners of this address and port, if there are any.
    pub(crate) fn tcp(&mut self, address: Option<IpAddr>, port: u16) -> Option<Group> {
        let listeners = self.take(Use::Tcp, address, port);
        let guard = self.take(Use::Guard, address, port).pop();
        (!listeners.is_empty()).then_some(Group { listeners, guard })
    }

    fn take(&mut self, socket: Use, address: Option<IpAddr>, port: u16) -> Vec<OwnedFd> {
        let wanted = Name { socket, address, port };
        let is = |(name, _): &mut (Name, OwnedFd)| *name == wanted;
        self.sockets.extract_if(.., is).map(|(_, fd)| fd).collect()
    }

    /// Whether there is a former instance.
    #[must_use]
    pub const fn is_some(&self) -> bool {
        self.stream.is_some()
    }

    /// Whether the former instance still waits for this one: it has said nothing since its last answer.
    ///
    /// # Errors
    ///
    /// [`HoldError::TakeOver`]: it has given this one up.
    pub fn confirm(&self) -> Result<(), HoldError> {
        let Some(stream) = self.stream.as_ref() else { return Ok(()) };
        let is_silent = poll(&mut [PollFd::new(stream, PollFlags::IN)], Some(&Timespec::default())) == Ok(0);
        if is_silent { Ok(()) } else { self.read_answer(stream, Ok(())).map(|_| ()) }
    }

    /// Tells the former instance that a step is reached, and waits for its answer. At [`Step::Aside`] it detaches
    /// its programs, and continues to serve through the kernel's sockets. At [`Step::Serving`] it accepts nothing
    /// more, and drains then. Returns whether it has answered, or has ended; if not, it may hear of the step
    /// later. Does nothing without a former instance.
    ///
    /// # Errors
    ///
    /// [`HoldError::TakeOver`]; the former instance continues to serve.
    pub fn say(&self, step: Step) -> Result<bool, HoldError> {
        let Some(mut stream) = self.stream.as_ref() else { return Ok(true) };
        let failed = |why: String| HoldError::TakeOver { from: self.from.clone(), why };
        let mut line = serde_json::to_vec(&step).map_err(|error| failed(error.to_string()))?;
        line.push(b'\n');
        // If the former instance has given up on us, its last message says so: it is read below.
        let said = stream.write_all(&line);
        self.read_answer(stream, said)
    }

    /// The take-over is over: closes the sockets that no service has taken and, if the former instance has answered,
    /// the connection. If it has not, it may go on, and must not take this instance for ended.
    pub fn over(&mut self, has_answered: bool) {
        self.sockets.clear();
        self.stream.take_if(|_| has_answered);
    }

    /// Reads an answer of the former instance to what was `said`.
    fn read_answer(&self, stream: &UnixStream, said: std::io::Result<()>) -> Result<bool, HoldError> {
        let failed = |why: String| HoldError::TakeOver { from: self.from.clone(), why };
        let mut answer = Vec::new();
        stream.set_read_timeout(Some(STEP_PATIENCE)).map_err(|error| failed(error.to_string()))?;
        let read = BufReader::new(stream).read_until(b'\n', &mut answer);
        match read {
            // The former instance has ended by itself, so only we have the sockets.
            Ok(0) => {
                tracing::warn!("the instance at {} has ended before it was taken over", self.from.display());
                Ok(true)
            }
            Ok(_) => match command::interpret(&self.from, &answer) {
                Ok(_) => Ok(true),
                Err(error) => Err(failed(error.to_string())),
            },
            Err(error) if said.is_err() => {
                tracing::warn!("the instance at {} has ended: {error}", self.from.display());
                Ok(true)
            }
            Err(error) => {
                tracing::warn!("the instance at {} does not answer: {error}", self.from.display());
                Ok(false)
            }
        }
    }
}

/// The sockets of the instance that the plan takes over from, or is a standby for; empty if it does
/// neither.
///
/// # Errors
///
/// [`HoldError::TakeOver`], [`HoldError::StandBy`].
pub fn former_of(plan: &Plan) -> Result<Inherited, HoldError> {
    match (&plan.stand_by, &plan.take_over) {
        (Some(first), _) => {
            let former = Inherited::ask_to_stand_by(first)?;
            let missing = plan.services.iter().find(|service| !former.has_all(service));
            match (missing, plan.ethertype()) {
                (Some(service), _) => {
                    let why =
                        format!("it does not serve all ports of `{}`: give both the same", service.name);
                    Err(HoldError::StandBy { from: first.clone(), why })
                }
                (None, Some(ethertype)) => {
                    let why = format!(
                        "frames of EtherType {ethertype:#06x} have no socket that two instances could hold: serve them by an instance \
                         of their own"
                    );
                    Err(HoldError::StandBy { from: first.clone(), why })
                }
                (None, None) => Ok(former),
            }
        }
        (None, Some(former)) => Inherited::ask(former),
        (None, None) => Ok(Inherited::default()),
    }
}
