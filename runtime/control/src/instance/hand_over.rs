//! A new instance takes a service over from a running one without anybody noticing: it is given the very sockets, so nothing that
//! waits in them is lost and nobody is refused meanwhile. Then the former is told to drain: it takes its programs off, answers what
//! it has accepted, and ends.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use twinpath_service::Service;
use twinpath_sys::UdpSocket;
use twinpath_sys::fd_passing::{self, FDS_MAX};
use twinpath_sys::tcp_listener::Group;

use super::{Instance, InstanceError};
use crate::choose::Path as ChosenPath;
use crate::command::{self, Drain, PATIENCE, Request};

/// What a socket is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Use {
    Udp,
    Tcp,
    /// Keeps others from joining the listeners.
    Guard,
}

/// A socket, as one instance tells another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Name {
    socket: Use,
    address: Option<IpAddr>,
    port: u16,
}

/// Sockets that workers hold, kept to be given to another instance.
#[derive(Default)]
pub(super) struct Kept {
    udp: Arc<[UdpSocket]>,
    others: Vec<(Name, OwnedFd)>,
}

impl Kept {
    /// Keeps a second descriptor of each.
    ///
    /// # Errors
    /// There is no descriptor left.
    pub(super) fn of(
        udp: &Arc<[UdpSocket]>,
        groups: &[(Option<IpAddr>, u16, Group)],
    ) -> std::io::Result<Self> {
        let mut others = Vec::new();
        for (address, port, Group { listeners, guard }) in groups {
            let name = |socket| Name { socket, address: *address, port: *port };
            for listener in listeners {
                others.push((name(Use::Tcp), listener.try_clone()?));
            }
            if let Some(guard) = guard {
                others.push((name(Use::Guard), guard.try_clone()?));
            }
        }
        Ok(Self { udp: Arc::clone(udp), others })
    }

    fn sockets(&self) -> Vec<(Name, BorrowedFd<'_>)> {
        let udp = self.udp.iter().map(|socket| {
            let name = Name { socket: Use::Udp, address: socket.address(), port: socket.port() };
            (name, socket.as_fd())
        });
        udp.chain(self.others.iter().map(|(name, fd)| (*name, fd.as_fd()))).collect()
    }
}

impl<S: Service + 'static> Instance<S> {
    /// Somebody else serves from here on.
    pub(super) fn hand_over(&mut self) {
        if let Some(ifindex) = self.interface.ifindex {
            self.detach(ifindex);
            self.interface.frame_claim = None;
            self.interface.choice.path = ChosenPath::Kernel;
            "another instance has taken over".clone_into(&mut self.interface.choice.why);
        }
        self.begin_to_drain(true, self.plan.drain);
    }

    /// Another instance wants our sockets: their names in a line, then they themselves. Who has gone gets none.
    pub(super) fn give_sockets(&self, mut stream: UnixStream) {
        let (names, fds): (Vec<Name>, Vec<BorrowedFd<'_>>) = self.kept.sockets().into_iter().unzip();
        let Ok(names) = serde_json::to_value(&names) else { return };
        let sent = stream.write_all(&command::answer_line(names));
        let rest = |()| fds.chunks(FDS_MAX).try_for_each(|some| Ok(fd_passing::send(&stream, b"+", some)?));
        if let Err(error) = sent.and_then(rest) {
            tracing::warn!("cannot hand over the sockets: {error}");
        }
    }
}

/// Sockets of the instance that was there before.
#[derive(Default)]
pub(super) struct Inherited {
    from: PathBuf,
    sockets: Vec<(Name, OwnedFd)>,
}

impl Inherited {
    /// Asks the instance whose command socket that is.
    ///
    /// # Errors
    /// [`InstanceError::TakeOver`].
    pub(super) fn ask(from: &Path) -> Result<Self, InstanceError> {
        let failed = |why: String| InstanceError::TakeOver { from: from.to_owned(), why };
        let sockets = Self::receive(from).map_err(|error| failed(error.to_string()))?;
        if sockets.is_empty() {
            return Err(failed("it has no sockets to hand over".to_owned()));
        }
        Ok(Self { from: from.to_owned(), sockets })
    }

    fn receive(from: &Path) -> std::io::Result<Vec<(Name, OwnedFd)>> {
        let mut stream = UnixStream::connect(from)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut request = serde_json::to_vec(&Request::Sockets)?;
        request.push(b'\n');
        stream.write_all(&request)?;
        // A byte at a time: what comes behind the line has descriptors with it, and must not be read ahead.
        let mut line = Vec::new();
        let mut one_by_one = BufReader::with_capacity(1, &stream);
        one_by_one.read_until(b'\n', &mut line)?;
        let invalid = |why: String| std::io::Error::new(std::io::ErrorKind::InvalidData, why);
        let value = command::interpret(from, &line).map_err(|error| invalid(error.to_string()))?;
        let names: Vec<Name> = serde_json::from_value(value)?;
        let mut fds = Vec::new();
        while fds.len() < names.len() {
            let received = fd_passing::receive(&stream, &mut [0; 1])?;
            if received.len == 0 || received.is_cut {
                return Err(invalid(format!("{} of {} sockets came", fds.len(), names.len())));
            }
            fds.extend(received.fds);
        }
        Ok(names.into_iter().zip(fds).collect())
    }

    /// The UDP socket there, if there is one.
    pub(super) fn udp(&mut self, address: Option<IpAddr>, port: u16) -> Option<UdpSocket> {
        let fd = self.take(Use::Udp, address, port).pop()?;
        Some(UdpSocket::inherited(fd, address, port))
    }

    /// The listeners there, if there are any.
    pub(super) fn tcp(&mut self, address: Option<IpAddr>, port: u16) -> Option<Group> {
        let listeners = self.take(Use::Tcp, address, port);
        let guard = self.take(Use::Guard, address, port).pop();
        (!listeners.is_empty()).then_some(Group { listeners, guard })
    }

    fn take(&mut self, socket: Use, address: Option<IpAddr>, port: u16) -> Vec<OwnedFd> {
        let wanted = Name { socket, address, port };
        let is = |(name, _): &mut (Name, OwnedFd)| *name == wanted;
        self.sockets.extract_if(.., is).map(|(_, fd)| fd).collect()
    }

    /// Has the former instance take its programs off and drain: from here on we serve. Without one there is nothing to do.
    ///
    /// # Errors
    /// [`InstanceError::TakeOver`].
    pub(super) fn go(self) -> Result<(), InstanceError> {
        if self.from.as_os_str().is_empty() {
            return Ok(());
        }
        match command::ask(&self.from, &Request::Drain(Drain { handed_over: true, ..Drain::default() })) {
            Ok(_) => Ok(()),
            Err(error) => Err(InstanceError::TakeOver { from: self.from, why: error.to_string() }),
        }
    }
}
