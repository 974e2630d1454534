//! The sockets that an instance holds, by name, and how they are passed to another process.

use std::io::Write as _;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use rustix::io::{Errno, fcntl_dupfd_cloexec};
use serde::{Deserialize, Serialize};
use twinpath_observe::command;
use twinpath_sys::UdpSocket;
use twinpath_sys::fd_passing::{self, FDS_MAX};
use twinpath_sys::tcp_listener::Group;

use crate::plan::ServicePlan;

/// The kernel's sockets of a service, before they are given to workers.
pub struct KernelSockets {
    /// The UDP sockets, one per address and port.
    pub udp: Arc<[UdpSocket]>,
    /// The TCP listeners, per address and port one for each worker.
    pub listeners: Vec<(Option<IpAddr>, u16, Group)>,
}

impl KernelSockets {
    /// The plan of their service, with the ports that the kernel has chosen where it left the choice to it
    /// (port 0).
    #[must_use]
    pub fn name_ports(&self, plan: ServicePlan) -> ServicePlan {
        let udp = self.udp.first().filter(|_| plan.udp == Some(0)).map(UdpSocket::port);
        let tcp = self.listeners.first().filter(|_| plan.tcp == Some(0)).map(|(_, chosen, _)| *chosen);
        ServicePlan { udp: udp.or(plan.udp), tcp: tcp.or(plan.tcp), ..plan }
    }
}

/// The use of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Use {
    /// Datagrams.
    Udp,
    /// Listening for connections.
    Tcp,
    /// Keeps others from joining the listeners.
    Guard,
}

/// The name of a socket, as one instance gives it to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Name {
    /// Its use.
    pub socket: Use,
    /// The own address that it is bound to; `None`: all.
    pub address: Option<IpAddr>,
    /// Its port, host order.
    pub port: u16,
}

impl Name {
    /// Whether something can wait in the socket.
    #[must_use]
    pub fn is_served(self) -> bool {
        self.socket != Use::Guard
    }
}

/// The sockets of one service, as duplicate descriptors that control keeps for passing them to another
/// instance.
pub struct Held {
    /// The part of the workers that serves them.
    pub part: usize,
    udp: Arc<[UdpSocket]>,
    /// The TCP listeners, and the sockets that keep other programs from joining their groups.
    others: Vec<(Name, OwnedFd)>,
}

impl Held {
    /// The sockets for a stand-in: the UDP sockets, and duplicate descriptors of all listeners.
    ///
    /// # Errors
    ///
    /// There is no descriptor left.
    pub fn for_stand_in(&self) -> Result<(Arc<[UdpSocket]>, Vec<OwnedFd>), Errno> {
        let listeners = self.others.iter().filter(|(name, _)| name.socket == Use::Tcp);
        let listeners: Result<_, _> = listeners.map(|(_, fd)| fcntl_dupfd_cloexec(fd, 0)).collect();
        Ok((Arc::clone(&self.udp), listeners?))
    }

    /// The sockets of several services, which become the parts from 0 on.
    ///
    /// # Errors
    ///
    /// There is no descriptor left.
    pub fn of_all(sockets: &[KernelSockets]) -> std::io::Result<Vec<Self>> {
        sockets.iter().enumerate().map(|(part, sockets)| Self::of(part, sockets)).collect()
    }

    /// Keeps a duplicate descriptor of each socket.
    ///
    /// # Errors
    ///
    /// There is no descriptor left.
    pub fn of(part: usize, sockets: &KernelSockets) -> std::io::Result<Self> {
        let mut others = Vec::new();
        for (address, port, Group { listeners, guard }) in &sockets.listeners {
            if listeners.len() > 1 && guard.is_none() {
                tracing::warn!(
                    "another program of this user that asks for SO_REUSEPORT could take TCP connections: keeping it off needs \
                     CAP_NET_ADMIN"
                );
            }
            let name = |socket| Name { socket, address: *address, port: *port };
            for listener in listeners {
                others.push((name(Use::Tcp), listener.try_clone()?));
            }
            if let Some(guard) = guard {
                others.push((name(Use::Guard), guard.try_clone()?));
            }
        }
        Ok(Self { part, udp: Arc::clone(&sockets.udp), others })
    }

    /// Closes its descriptors of all sockets.
    pub fn let_go(&mut self) {
        self.udp = [].into();
        self.others.clear();
    }

    /// All sockets with their names.
    pub fn sockets(&self) -> impl Iterator<Item = (Name, BorrowedFd<'_>)> {
        let udp = self.udp.iter().map(|socket| {
            let name = Name { socket: Use::Udp, address: socket.address(), port: socket.port() };
            (name, socket.as_fd())
        });
        udp.chain(self.others.iter().map(|(name, fd)| (*name, fd.as_fd())))
    }
}

/// Sends the names of all sockets in one line, and then the descriptors. If `why_not` is set, sends only
/// that refusal. Returns whether the sockets were sent.
pub fn send(mut stream: &UnixStream, held: &[Held], why_not: Option<String>) -> bool {
    if let Some(why) = why_not {
        let _ = stream.write_all(&command::refusal(&why));
        return false;
    }
    let (names, fds): (Vec<Name>, Vec<BorrowedFd<'_>>) = held.iter().flat_map(Held::sockets).unzip();
    let Ok(names) = serde_json::to_value(&names) else { return false };
    let sent = stream.write_all(&command::answer_line(names));
    let rest = |()| fds.chunks(FDS_MAX).try_for_each(|some| Ok(fd_passing::send(stream, b"+", some)?));
    match sent.and_then(rest) {
        Ok(()) => !fds.is_empty(),
        Err(error) => {
            tracing::warn!("cannot hand over the sockets: {error}");
            false
        }
    }
}
