//! A new instance asks a running one for its sockets, starts beside it, and has it drain once it serves itself.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use twinpath_command::{self as command, CommandError, PATIENCE, Request};
use twinpath_plan::{Plan, ServicePlan};
use twinpath_sys::tcp_listener::Group;
use twinpath_sys::{UdpSocket, fd_passing};

use crate::HoldError;
use crate::held::{Held, Name, Use};

/// How long the former instance may take for a step: programs and sockets come off after RCU grace periods of the kernel, which on a
/// busy machine take seconds each. It serves meanwhile.
const STEP_PATIENCE: Duration = Duration::from_secs(60);

/// The answer of an instance that is about to end to one that wants its sockets.
pub const STOPPING: &str = "the instance is stopping";

/// What a new instance says once it has the sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Step {
    /// The programs are to come off: it is about to attach its own.
    Aside,
    /// It serves.
    Serving,
}

/// Sockets of the instance that was there before, and the connection to it; neither, if nothing is taken over.
#[derive(Default)]
pub struct Inherited {
    from: PathBuf,
    stream: Option<UnixStream>,
    sockets: Vec<(Name, OwnedFd)>,
}

impl Inherited {
    /// Asks the instance whose command socket that is.
    ///
    /// # Errors
    /// [`HoldError::TakeOver`].
    fn ask(from: &Path) -> Result<Self, HoldError> {
        let failed = |why: String| HoldError::TakeOver { from: from.to_owned(), why };
        Self::ask_for(from, &Request::Sockets).map_err(failed)
    }

    /// Asks the instance whose command socket that is for its sockets, which it keeps.
    ///
    /// # Errors
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

    /// Whether all that a service holds is among its sockets.
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

    /// The first socket that nobody has taken.
    #[must_use]
    pub fn left(&self) -> Option<Name> {
        self.sockets.first().map(|(name, _)| *name)
    }

    /// Where the other instance is asked, and the connection to it.
    #[must_use]
    pub fn into_stream(self) -> (PathBuf, Option<UnixStream>) {
        (self.from, self.stream)
    }

    /// Further descriptors of sockets that this instance has itself.
    ///
    /// # Errors
    /// There is no descriptor left.
    pub fn own<'a>(held: impl IntoIterator<Item = &'a Held>) -> std::io::Result<Self> {
        let sockets = held.into_iter().flat_map(Held::sockets);
        let sockets: std::io::Result<_> =
            sockets.map(|(name, fd)| Ok((name, fd.try_clone_to_owned()?))).collect();
        Ok(Self { sockets: sockets?, ..Self::default() })
    }

    /// The names of the sockets of the instance that is asked there, with descriptors of them, and the connection to it.
    ///
    /// # Errors
    /// `InvalidData` with its own sentence if it says no; anything else if it cannot be asked.
    pub fn receive(from: &Path, request: &Request) -> std::io::Result<(UnixStream, Vec<(Name, OwnedFd)>)> {
        // Nothing is taken from anybody but root and this user.
        let mut stream = command::connect(from).map_err(std::io::Error::other)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut request = serde_json::to_vec(request)?;
        request.push(b'\n');
        stream.write_all(&request)?;
        // A byte at a time: what comes behind the line has descriptors with it, and must not be read ahead.
        let mut line = Vec::new();
        let mut one_by_one = BufReader::with_capacity(1, &stream);
        one_by_one.read_until(b'\n', &mut line)?;
        let invalid = |why: String| std::io::Error::new(std::io::ErrorKind::InvalidData, why);
        let value = command::interpret(from, &line).map_err(|error| match error {
            CommandError::Refused(why) => invalid(why),
            error => std::io::Error::other(error),
        })?;
        let names: Vec<Name> = serde_json::from_value(value)?;
        let mut fds = Vec::new();
        while fds.len() < names.len() {
            let received = fd_passing::receive(&stream, &mut [0; 1])?;
            if received.len == 0 || received.is_cut {
                return Err(std::io::Error::other(format!("{} of {} sockets came", fds.len(), names.len())));
            }
            fds.extend(received.fds);
        }
        Ok((stream, names.into_iter().zip(fds).collect()))
    }

    /// The UDP socket there, if there is one.
    pub(crate) fn udp(&mut self, address: Option<IpAddr>, port: u16) -> Option<UdpSocket> {
        let fd = self.take(Use::Udp, address, port).pop()?;
        Some(UdpSocket::inherited(fd, address, port))
    }

    /// The listeners there, if there are any.
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

    /// Has the former instance take its programs off; it serves on through the kernel's sockets. Without one there is nothing to
    /// do.
    ///
    /// # Errors
    /// [`HoldError::TakeOver`].
    pub fn aside(&self) -> Result<(), HoldError> {
        self.say(Step::Aside)
    }

    /// Says that we serve: from here on the former instance drains. Without one there is nothing to do.
    ///
    /// # Errors
    /// [`HoldError::TakeOver`]: it goes on serving itself.
    pub fn serving(self) -> Result<(), HoldError> {
        self.say(Step::Serving)
    }

    fn say(&self, step: Step) -> Result<(), HoldError> {
        let Some(mut stream) = self.stream.as_ref() else { return Ok(()) };
        let failed = |why: String| HoldError::TakeOver { from: self.from.clone(), why };
        let mut line = serde_json::to_vec(&step).map_err(|error| failed(error.to_string()))?;
        line.push(b'\n');
        // If it has given us up, it has said so: that is still to be read.
        let said = stream.write_all(&line);
        let mut answer = Vec::new();
        stream.set_read_timeout(Some(STEP_PATIENCE)).map_err(|error| failed(error.to_string()))?;
        let read = BufReader::new(stream).read_until(b'\n', &mut answer);
        match read {
            // It has ended by itself: nobody but us has the sockets.
            Ok(0) => {
                tracing::warn!("the instance at {} has ended before it was taken over", self.from.display());
                Ok(())
            }
            Ok(_) => match command::interpret(&self.from, &answer) {
                Ok(_) => Ok(()),
                Err(error) => Err(failed(error.to_string())),
            },
            Err(error) if said.is_err() => {
                tracing::warn!("the instance at {} has ended: {error}", self.from.display());
                Ok(())
            }
            Err(error) => Err(failed(format!("it does not answer: {error}"))),
        }
    }
}

/// The sockets of the instance that this plan is to take over from, or to stand by for; none, if it is to do neither.
///
/// # Errors
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
