//! Calls that make, connect and end sockets.

use core::net::SocketAddr;

use crate::address;
use crate::descriptor;
use crate::errno::{Answer, Errno};
use crate::world::socket::{Phase, Socket};
use crate::world::{Step, World, shown};

impl World {
    pub(crate) fn socket(&mut self, family: i32, kind: i32, protocol: i32) -> Answer<i32> {
        if !matches!(family, libc::AF_INET | libc::AF_INET6) {
            return Err(Errno::EAFNOSUPPORT);
        }
        let is_stream = kind & 0xff == libc::SOCK_STREAM;
        if !is_stream || !matches!(protocol, 0 | libc::IPPROTO_TCP) {
            return Err(Errno::EPROTONOSUPPORT);
        }
        self.engine();
        let mut socket = Socket::new(family);
        socket.is_nonblocking = kind & libc::SOCK_NONBLOCK != 0;
        let fd = descriptor::open()?;
        self.sockets.insert(fd, socket);
        Ok(fd)
    }

    pub(crate) fn bind(&mut self, fd: i32, local: SocketAddr) -> Answer<i32> {
        let socket = self.socket_of(fd)?;
        if socket.local.is_some() || socket.phase != Phase::New {
            return Err(Errno::EINVAL);
        }
        socket.local = Some(local);
        if local.port() == 0 {
            let port = self.take_port();
            self.socket_of(fd)?.local = Some(SocketAddr::new(local.ip(), port));
        }
        Ok(0)
    }

    pub(crate) fn listen(&mut self, fd: i32, backlog: i32) -> Answer<i32> {
        let options = self.engine_options(fd)?;
        let socket = self.socket_of(fd)?;
        let local = socket.local.ok_or(Errno::EDESTADDRREQ)?;
        match socket.phase {
            Phase::New => {}
            Phase::Listening(_) => return Ok(0),
            Phase::Connecting(_) | Phase::Connected(_) => return Err(Errno::EINVAL),
        }
        let backlog = u32::try_from(backlog).unwrap_or(u32::MAX).min(4096);
        let listener = self.engine().listen(local, backlog, options);
        self.socket_of(fd)?.phase = Phase::Listening(listener);
        Ok(0)
    }

    pub(crate) fn accept(&mut self, fd: i32) -> Step<Answer<(i32, SocketAddr)>> {
        let (listener, is_nonblocking) = match self.socket_of(fd) {
            Ok(Socket { phase: Phase::Listening(listener), is_nonblocking, .. }) => {
                (*listener, *is_nonblocking)
            }
            Ok(_) => return Step::Done(Err(Errno::EINVAL)),
            Err(errno) => return Step::Done(Err(errno)),
        };
        match self.engine().accept(listener) {
            Some((connection, tuple)) => Step::Done(self.accepted(fd, connection, &tuple)),
            None if is_nonblocking => Step::Done(Err(Errno::EAGAIN)),
            None => Step::Wait(None),
        }
    }

    fn accepted(
        &mut self,
        listener: i32,
        connection: crate::engine::Connection,
        tuple: &twinpath_tcp::Tuple,
    ) -> Answer<(i32, SocketAddr)> {
        let fd = descriptor::open()?;
        let socket = self.socket_of(listener)?.accepted(connection, tuple.local(), tuple.remote());
        let peer = shown(&socket, socket.remote).ok_or(Errno::ECONNABORTED)?;
        self.sockets.insert(fd, socket);
        self.owners.insert(connection, fd);
        self.adopt(connection);
        Ok((fd, peer))
    }

    /// `began`: whether this call has begun the connection that it waits for.
    pub(crate) fn connect(&mut self, fd: i32, to: &[u8], began: &mut bool) -> Step<Answer<i32>> {
        let found = if *began { self.await_connection(fd) } else { self.begin(fd, to, began) };
        match found {
            Ok(true) => Step::Done(Ok(0)),
            Ok(false) => Step::Wait(None),
            Err(errno) => Step::Done(Err(errno)),
        }
    }

    /// A call of `connect` begins: true if it is done.
    fn begin(&mut self, fd: i32, to: &[u8], began: &mut bool) -> Answer<bool> {
        let family = address::family(to)?;
        let socket = self.socket_of(fd)?;
        if family == libc::AF_UNSPEC {
            return self.disconnect(fd);
        }
        match socket.phase {
            Phase::Listening(_) => return Err(Errno::EISCONN),
            Phase::Connecting(_) => return Err(Errno::EALREADY),
            Phase::Connected(_) if socket.is_over => {
                if let Some(errno) = socket.error.take() {
                    return Err(errno);
                }
                return Err(Errno::EISCONN);
            }
            Phase::Connected(_) => {
                return if core::mem::take(&mut socket.is_unreported) {
                    Ok(true)
                } else {
                    Err(Errno::EISCONN)
                };
            }
            Phase::New => {}
        }
        if let Some(errno) = socket.error.take() {
            return Err(errno);
        }
        let is_nonblocking = socket.is_nonblocking;
        self.open_to(fd, address::from_c(to)?)?;
        if is_nonblocking {
            return Err(Errno::EINPROGRESS);
        }
        *began = true;
        Ok(false)
    }

    /// The SYN to `remote`.
    pub(crate) fn open_to(&mut self, fd: i32, remote: SocketAddr) -> Answer<()> {
        let options = self.engine_options(fd)?;
        let bound = self.socket_of(fd)?.local;
        let ip = bound.map(|it| it.ip()).filter(|ip| !ip.is_unspecified());
        let ip = ip.unwrap_or_else(|| self.local_towards(remote.ip()));
        let port = bound.map_or_else(|| self.take_port(), |it| it.port());
        let local = SocketAddr::new(ip, port);
        let now_us = self.now_us();
        let connection = self.engine().connect(now_us, local, remote, options)?;
        self.owners.insert(connection, fd);
        let socket = self.socket_of(fd)?;
        socket.phase = Phase::Connecting(connection);
        socket.local = Some(local);
        socket.remote = Some(remote);
        socket.is_unreported = true;
        (socket.is_over, socket.has_shut_reading, socket.has_shut_writing) = (false, false, false);
        Ok(())
    }

    fn await_connection(&mut self, fd: i32) -> Answer<bool> {
        let socket = self.socket_of(fd)?;
        match socket.phase {
            Phase::Connecting(_) => Ok(false),
            Phase::Connected(_) if !socket.is_over => {
                socket.is_unreported = false;
                Ok(true)
            }
            _ => Err(socket.error.take().unwrap_or(Errno::ECONNABORTED)),
        }
    }

    /// `connect` to no family undoes a connection.
    fn disconnect(&mut self, fd: i32) -> Answer<bool> {
        let now_us = self.now_us();
        let socket = self.socket_of(fd)?;
        let phase = core::mem::replace(&mut socket.phase, Phase::New);
        (socket.error, socket.remote, socket.is_over) = (None, None, false);
        (socket.has_shut_reading, socket.has_shut_writing) = (false, false);
        match phase {
            Phase::Connecting(connection) | Phase::Connected(connection) => {
                self.owners.remove(&connection);
                self.engine().abort(now_us, connection);
            }
            Phase::Listening(listener) => self.engine().unlisten(now_us, listener),
            Phase::New => {}
        }
        Ok(true)
    }

    pub(crate) fn close(&mut self, fd: i32) -> Answer<i32> {
        descriptor::close(fd);
        for epoll in self.epolls.values_mut() {
            epoll.forget(fd);
        }
        if self.epolls.remove(&fd).is_some() || self.pipes.remove(&fd).is_some() {
            return Ok(0);
        }
        let now_us = self.now_us();
        let socket = self.sockets.remove(&fd).ok_or(Errno::EBADF)?;
        match socket.phase {
            Phase::Listening(listener) => self.engine().unlisten(now_us, listener),
            Phase::Connecting(connection) | Phase::Connected(connection) => {
                self.owners.remove(&connection);
                if let (Some(local), Some(remote)) = (socket.local, socket.remote) {
                    self.closed.insert(twinpath_tcp::Tuple::new(local, remote), socket.marks());
                }
                let aborts = self.profile.aborts_with_unread();
                let unread = self.view(connection).map_or(0, |it| it.unread);
                let engine = self.engine();
                // RFC 2525 section 2.17: what was sent and not read is lost, and the peer has to know.
                if socket.linger == (1, 0) || (unread > 0 && aborts) {
                    engine.abort(now_us, connection);
                } else {
                    engine.consume(now_us, connection, unread);
                    engine.close(now_us, connection);
                }
            }
            Phase::New => {}
        }
        Ok(0)
    }

    pub(crate) fn shutdown(&mut self, fd: i32, how: i32) -> Answer<i32> {
        let now_us = self.now_us();
        let socket = self.socket_of(fd)?;
        if !matches!(how, libc::SHUT_RD | libc::SHUT_WR | libc::SHUT_RDWR) {
            return Err(Errno::EINVAL);
        }
        let connection = match socket.phase {
            Phase::New => return Err(Errno::ENOTCONN),
            _ if socket.is_over => return Err(Errno::ENOTCONN),
            Phase::Listening(listener) => {
                if how != libc::SHUT_WR {
                    socket.phase = Phase::New;
                    self.engine().unlisten(now_us, listener);
                }
                return Ok(0);
            }
            Phase::Connecting(_) => return self.disconnect(fd).map(|_| 0),
            Phase::Connected(connection) => connection,
        };
        socket.has_shut_reading |= how != libc::SHUT_WR;
        if how != libc::SHUT_RD && !core::mem::replace(&mut socket.has_shut_writing, true) {
            self.engine().finish(now_us, connection);
        }
        Ok(0)
    }

    pub(crate) fn fcntl(&mut self, fd: i32, command: i32, value: i32) -> Answer<i32> {
        let socket = self.socket_of(fd)?;
        match command {
            libc::F_GETFL => Ok(libc::O_RDWR | if socket.is_nonblocking { libc::O_NONBLOCK } else { 0 }),
            libc::F_SETFL => {
                socket.is_nonblocking = value & libc::O_NONBLOCK != 0;
                Ok(0)
            }
            libc::F_GETFD | libc::F_SETFD => Ok(0),
            _ => Err(Errno::EINVAL),
        }
    }
}
