//! Calls that read.

use crate::engine::Connection;
use crate::errno::{Answer, Errno};
use crate::world::socket::Phase;
use crate::world::{Step, World};

/// `SIOCINQ`, `SIOCOUTQ` and `SIOCOUTQNSD` of `linux/sockios.h`.
const SIOCINQ: u64 = libc::FIONREAD;
const SIOCOUTQ: u64 = libc::TIOCOUTQ;
const SIOCOUTQNSD: u64 = 0x894b;

/// What a read finds.
enum Found {
    /// A connection with bytes.
    Bytes(Connection),
    /// Nothing yet: it waits, or says so.
    Nothing,
    /// No more will come.
    End,
}

impl World {
    /// Reads into `into`, behind the `done` bytes that this call has read already.
    pub(crate) fn receive(
        &mut self,
        fd: i32,
        into: &mut [&mut [u8]],
        flags: i32,
        done: &mut usize,
    ) -> Step<Answer<usize>> {
        let len: usize = into.iter().map(|piece| piece.len()).sum();
        let found = match self.find(fd, flags) {
            Ok(found) => found,
            Err(_) if *done > 0 => return Step::Done(Ok(*done)),
            Err(errno) => return Step::Done(Err(errno)),
        };
        let is_peek = flags & libc::MSG_PEEK != 0;
        match found {
            Found::Bytes(connection) => {
                if is_peek {
                    *done = 0;
                }
                let count = self.copy(connection, into, *done);
                *done += count;
                if !is_peek {
                    self.consume(connection, count);
                }
                if *done >= self.enough(fd, len, flags) {
                    return Step::Done(Ok(*done));
                }
            }
            Found::End => return Step::Done(Ok(*done)),
            Found::Nothing => {}
        }
        self.wait_or_again(fd, flags, *done)
    }

    /// As [`Self::receive`], where the script gives no place: with `MSG_TRUNC` the bytes are dropped (`tcp(7)`).
    pub(crate) fn receive_nowhere(&mut self, fd: i32, flags: i32) -> Step<Answer<usize>> {
        match self.find(fd, flags) {
            Ok(Found::Bytes(connection)) if flags & libc::MSG_TRUNC != 0 => {
                let unread = self.view(connection).map_or(0, |it| it.unread);
                self.consume(connection, unread);
                Step::Done(Ok(unread))
            }
            Ok(Found::Bytes(_)) => Step::Done(Err(Errno::EFAULT)),
            Ok(Found::End) => Step::Done(Ok(0)),
            Ok(Found::Nothing) => self.wait_or_again(fd, flags, 0),
            Err(errno) => Step::Done(Err(errno)),
        }
    }

    /// The order of the checks is that of Linux's `tcp_recvmsg`.
    fn find(&mut self, fd: i32, flags: i32) -> Answer<Found> {
        if flags & libc::MSG_ERRQUEUE != 0 {
            self.socket_of(fd)?;
            return Err(Errno::EAGAIN);
        }
        if flags & libc::MSG_OOB != 0 {
            return Err(Errno::EINVAL);
        }
        let connection = match self.socket_of(fd)?.phase {
            Phase::New => {
                let socket = self.socket_of(fd)?;
                let error = socket.error.take();
                return Err(error.unwrap_or(Errno::ENOTCONN));
            }
            Phase::Listening(_) => return Err(Errno::ENOTCONN),
            Phase::Connecting(_) => return Ok(Found::Nothing),
            Phase::Connected(connection) => connection,
        };
        let view = self.view(connection);
        if view.is_some_and(|it| it.unread > 0) {
            return Ok(Found::Bytes(connection));
        }
        let socket = self.socket_of(fd)?;
        if view.is_some_and(|it| it.is_at_end()) {
            return Ok(Found::End);
        }
        if let Some(errno) = socket.error.take() {
            return Err(errno);
        }
        Ok(if socket.has_shut_reading || socket.is_over { Found::End } else { Found::Nothing })
    }

    fn copy(&mut self, connection: Connection, into: &mut [&mut [u8]], mut skip: usize) -> usize {
        let now_us = self.now_us();
        let engine = self.engine();
        let mut from = 0;
        for piece in into {
            let past = skip.min(piece.len());
            skip -= past;
            from += engine.peek(now_us, connection, from, &mut piece[past..]);
        }
        from
    }

    fn consume(&mut self, connection: Connection, count: usize) {
        let now_us = self.now_us();
        self.engine().consume(now_us, connection, count);
    }

    /// With how many bytes a read of `len` ends.
    fn enough(&mut self, fd: i32, len: usize, flags: i32) -> usize {
        if flags & libc::MSG_WAITALL != 0 {
            return len;
        }
        let low = self.socket_of(fd).ok().and_then(|it| it.value(libc::SOL_SOCKET, libc::SO_RCVLOWAT));
        low.and_then(|low| usize::try_from(low).ok()).unwrap_or(1).clamp(1, len.max(1)).min(len)
    }

    fn wait_or_again(&mut self, fd: i32, flags: i32, done: usize) -> Step<Answer<usize>> {
        let is_nonblocking = self.socket_of(fd).is_ok_and(|it| it.is_nonblocking);
        if is_nonblocking || flags & libc::MSG_DONTWAIT != 0 {
            return Step::Done(if done > 0 { Ok(done) } else { Err(Errno::EAGAIN) });
        }
        Step::Wait(None)
    }

    /// What `TCP_INQ` gives with each receive: bytes that are left, one if only the end is (`tcp_inq_hint` of Linux).
    pub(crate) fn unread_message(&mut self, fd: i32) -> Option<i32> {
        let socket = self.socket_of(fd).ok()?;
        socket.value(libc::SOL_TCP, libc::TCP_INQ).filter(|is_asked_for| *is_asked_for != 0)?;
        let connection = socket.connection()?;
        let view = self.view(connection)?;
        let at_end = i32::from(view.unread == 0 && view.is_at_end());
        Some(i32::try_from(view.unread).unwrap_or(i32::MAX) + at_end)
    }

    pub(crate) fn ioctl(&mut self, fd: i32, request: u64) -> Answer<i32> {
        let socket = self.socket_of(fd)?;
        if socket.is_listening() {
            return Err(Errno::EINVAL);
        }
        let connection = socket.connection();
        let view = connection.and_then(|it| self.view(it)).unwrap_or_default();
        let count = match request {
            SIOCINQ => view.unread,
            SIOCOUTQ => view.unacknowledged,
            SIOCOUTQNSD => view.unsent,
            _ => return Err(Errno::EINVAL),
        };
        Ok(i32::try_from(count).unwrap_or(i32::MAX))
    }
}
