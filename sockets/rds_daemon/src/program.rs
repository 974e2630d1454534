//! Sockets of programs.

use std::collections::{BTreeSet, VecDeque};
use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, sendmsg, sockopt};
use twinpath_rds_memory::{Entry, Messages, State};
use twinpath_rds_socket::message::{HEAD_LEN, Head, Kind};
use twinpath_sys::fd_passing;

/// Bytes of payload that may wait for a program, and that may be unacknowledged (net.core.rmem_default of Linux).
pub(crate) const LIMIT: usize = 212_992;
/// What each message that waits takes besides its payload.
const OF_EACH: usize = HEAD_LEN + 64;
/// What may come beyond for a congested port, until its peers know.
const ON_ITS_WAY: usize = 4 << 20;

/// A message that a program wants to send, and that stays staged as there is no room to keep it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Staged {
    pub(crate) to: SocketAddr,
    /// Bytes of payload.
    pub(crate) len: usize,
}

/// A socket of a program.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) socket: OwnedFd,
    pub(crate) user: u32,
    pub(crate) pid: Option<u32>,
    pub(crate) local: Option<(IpAddr, u16)>,
    pub(crate) to: Option<SocketAddr>,
    /// Its messages that are not acknowledged.
    pub(crate) messages: Messages,
    /// The next one. Nothing more is read before it is kept.
    pub(crate) held: Option<Staged>,
    /// Kept messages whose receiver is congested, or whose peer has as many as may be, in their order. Those to other receivers
    /// go past them.
    parked: VecDeque<Entry>,
    /// Their receivers.
    parked_to: BTreeSet<SocketAddr>,
    /// Bytes of payload that are kept.
    pub(crate) unacknowledged: usize,
    pub(crate) send_max: usize,
    pub(crate) receive_max: usize,
    /// Messages that found no room in its socket.
    backlog: VecDeque<Vec<u8>>,
    backlog_bytes: usize,
    /// Its end is closed.
    pub(crate) has_ended: bool,
    /// The kernel refuses descriptors that it passes: closing them could take as long as it wants.
    pub(crate) refuses_rights: bool,
    /// Its end is closed, but not all that it has sent is read.
    pub(crate) is_hung_up: bool,
    /// For what its socket is waited for; `None`: it is not.
    pub(crate) watched: Option<rustix::event::epoll::EventFlags>,
    pub(crate) sent: u64,
    pub(crate) received: u64,
}

/// What became of a message for a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Put {
    Yes,
    /// It waits in the backlog: the port is congested.
    Later,
    Full,
    Gone,
}

impl Program {
    pub(crate) fn new(socket: OwnedFd, user: u32, pid: Option<u32>, messages: Messages) -> Self {
        let refuses_rights = fd_passing::refuse(&socket).is_ok();
        // The host may allow less.
        let _ = sockopt::set_socket_send_buffer_size(&socket, LIMIT);
        Self {
            messages,
            socket,
            user,
            pid,
            local: None,
            to: None,
            held: None,
            parked: VecDeque::new(),
            parked_to: BTreeSet::new(),
            unacknowledged: 0,
            send_max: LIMIT,
            receive_max: LIMIT,
            backlog: VecDeque::new(),
            backlog_bytes: 0,
            has_ended: false,
            refuses_rights,
            is_hung_up: false,
            watched: None,
            sent: 0,
            received: 0,
        }
    }

    /// The socket of a program that a former daemon has served.
    pub(crate) fn former(socket: OwnedFd, user: u32, pid: Option<u32>, messages: Messages) -> Self {
        let state = messages.state();
        let mut program = Self::new(socket, user, pid, messages);
        program.local = state.local.map(|local| (local.ip(), local.port()));
        program.to = state.to;
        let [send_max, receive_max] = state.limits;
        if send_max > 0 {
            program.send_max = send_max as usize;
        }
        if receive_max > 0 {
            program.set_receive_max(receive_max as usize);
        }
        program
    }

    /// Notes for the next daemon what is known of the socket.
    pub(crate) fn note(&self) {
        self.messages.set_state(&State {
            local: self.local.map(|(address, port)| SocketAddr::new(address, port)),
            to: self.to,
            limits: [self.send_max as u32, self.receive_max as u32],
        });
    }

    /// Whether nothing of it is left to do.
    pub(crate) fn is_over(&self) -> bool {
        self.has_ended && self.held.is_none() && self.messages.is_empty()
    }

    /// Whether a message to the same receiver waits.
    pub(crate) fn has_parked(&self, to: SocketAddr) -> bool {
        self.parked_to.contains(&to)
    }

    /// Whether any waits.
    pub(crate) fn parks(&self) -> bool {
        !self.parked.is_empty()
    }

    /// A message waits, behind those that do.
    pub(crate) fn park(&mut self, entry: Entry) {
        self.parked_to.insert(self.messages.to(entry));
        self.parked.push_back(entry);
    }

    /// Those that waited, in their order.
    pub(crate) fn take_parked(&mut self) -> VecDeque<Entry> {
        self.parked_to.clear();
        std::mem::take(&mut self.parked)
    }

    /// A message is done with.
    pub(crate) fn release(&mut self, entry: Entry) {
        self.unacknowledged -= self.messages.payload(entry).len();
        self.messages.release(entry);
    }

    /// Whether it may send more.
    pub(crate) fn may_send(&self) -> bool {
        self.held.is_none() && self.unacknowledged < self.send_max
    }

    pub(crate) fn is_congested(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// Bytes that wait here.
    pub(crate) fn backlog_bytes(&self) -> usize {
        self.backlog_bytes
    }

    pub(crate) fn set_receive_max(&mut self, bytes: usize) {
        let _ = sockopt::set_socket_send_buffer_size(&self.socket, bytes.max(2048));
        // The kernel doubles what is asked for, to keep its own part of it.
        let allowed = sockopt::socket_send_buffer_size(&self.socket).map_or(LIMIT, |granted| granted / 2);
        self.receive_max = bytes.clamp(2048, allowed.max(2048));
    }

    /// Hands it a message.
    pub(crate) fn put(&mut self, from: SocketAddr, payload: &[u8]) -> Put {
        let head = Head { port: from.port(), address: from.ip(), ..Head::new(Kind::Message) }.to_bytes();
        if self.backlog.is_empty() {
            match self.tell(&head, payload) {
                Ok(()) => {
                    self.received += 1;
                    return Put::Yes;
                }
                Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM) => {}
                Err(Errno::MSGSIZE) => return Put::Full,
                Err(_) => return Put::Gone,
            }
        }
        let bytes = payload.len() + OF_EACH;
        if self.backlog_bytes + bytes > 2 * self.receive_max + ON_ITS_WAY {
            return Put::Full;
        }
        self.backlog_bytes += bytes;
        self.backlog.push_back([&head, payload].concat());
        Put::Later
    }

    /// Hands it what waits, as far as there is room. Returns whether nothing waits any more.
    pub(crate) fn catch_up(&mut self) -> bool {
        while let Some(message) = self.backlog.front() {
            match self.tell(message, &[]) {
                Ok(()) => {
                    self.received += 1;
                    self.backlog_bytes -= message.len() - HEAD_LEN + OF_EACH;
                    self.backlog.pop_front();
                }
                Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM) => return false,
                // Its end is closed.
                Err(_) => self.backlog.clear(),
            }
        }
        self.backlog_bytes = 0;
        true
    }

    /// Sends it a head with a payload. One that is longer than the socket's buffer raises that, where the daemon may.
    pub(crate) fn tell(&self, head: &[u8], payload: &[u8]) -> Result<(), Errno> {
        let parts = [IoSlice::new(head), IoSlice::new(payload)];
        let send = || {
            let mut control = SendAncillaryBuffer::default();
            sendmsg(&self.socket, &parts, &mut control, SendFlags::DONTWAIT | SendFlags::NOSIGNAL).map(drop)
        };
        match send() {
            Err(Errno::MSGSIZE) => {
                let enough = head.len() + payload.len() + 4096;
                sockopt::set_socket_send_buffer_size_force(&self.socket, enough)
                    .map_err(|_| Errno::MSGSIZE)?;
                send()
            }
            sent => sent,
        }
    }
}
