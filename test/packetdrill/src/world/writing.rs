//! Calls that write.

use twinpath_tcp::End;

use crate::address;
use crate::engine::Connection;
use crate::errno::{Answer, Errno};
use crate::profile::Profile;
use crate::world::socket::Phase;
use crate::world::{Step, World};

impl World {
    /// Sends `bytes`, behind the `done` ones that this call has sent already.
    pub(crate) fn send(
        &mut self,
        fd: i32,
        bytes: &[u8],
        flags: i32,
        done: &mut usize,
        has_waited: &mut bool,
    ) -> Step<Answer<usize>> {
        let connection = match self.sending(fd) {
            Ok(Some(connection)) => connection,
            Ok(None) => return self.wait_to_send(fd, flags, *done),
            Err(_) if *done > 0 => return Step::Done(Ok(*done)),
            Err(errno) => return Step::Done(Err(errno)),
        };
        let end = match flags {
            _ if flags & libc::MSG_OOB != 0 => End::Urgent,
            _ if flags & libc::MSG_EOR != 0 => End::Record,
            _ if flags & libc::MSG_MORE != 0 => End::More,
            _ => End::Piece,
        };
        // Who has waited for room goes on when there is enough of it.
        if *has_waited && !self.is_writable(fd, connection) {
            return Step::Wait(None);
        }
        while *done < bytes.len() {
            let now_us = self.now_us();
            let piece = self.piece(fd, connection).min(bytes.len() - *done);
            let is_whole = piece > 0 && self.profile == Profile::Linux;
            // Of a full buffer, the engine refuses a byte, and notes that it was asked for.
            let is_full = self.view(connection).is_some_and(|it| it.unacknowledged >= self.send_buffer(fd));
            let next = &bytes[*done..*done + piece.max(usize::from(is_full))];
            // What fills a segment of Linux's before the write has ended ends nothing.
            let is_last = self.profile == Profile::FreeBsd || *done + next.len() == bytes.len();
            let end = if is_last { end } else { End::More };
            let count = self.engine().send(now_us, connection, next, end, is_whole);
            *done += count;
            if count == 0 {
                *has_waited = true;
                return self.wait_to_send(fd, flags, *done);
            }
            self.settle();
        }
        Step::Done(Ok(*done))
    }

    /// How much of a write is taken at once. Linux takes what makes a segment that leaves as one, if the buffer is not
    /// yet full and not too much is unsent (`tcp_sendmsg`): the last piece may go beyond either. One that was begun is
    /// filled in any case.
    fn piece(&mut self, fd: i32, connection: Connection) -> usize {
        if self.profile == Profile::FreeBsd {
            return usize::MAX;
        }
        let (buffer, low) = (self.send_buffer(fd), self.unsent_low(fd));
        let view = self.view(connection).unwrap_or_default();
        // Linux's `tcp_bound_to_half_wnd` and `tcp_xmit_size_goal`.
        let half = if view.peak_window > 536 { view.peak_window / 2 } else { view.peak_window };
        let mss = view.mss.max(1) as usize;
        let goal = (half.min(65_160) / mss * mss).max(mss);
        match view.unsent % goal {
            0 if view.unacknowledged >= buffer || view.unsent >= low as usize => 0,
            0 => goal,
            begun => goal - begun,
        }
    }

    /// The connection to send on; `None` while there is none yet. The order of the checks is that of Linux's
    /// `tcp_sendmsg`.
    fn sending(&mut self, fd: i32) -> Answer<Option<Connection>> {
        let closed = self.profile.not_connected();
        let socket = self.socket_of(fd)?;
        match socket.phase {
            Phase::Connecting(_) => Ok(None),
            Phase::Connected(connection) => {
                if socket.is_over || socket.has_shut_writing {
                    return Err(socket.error.take().unwrap_or(Errno::EPIPE));
                }
                if let Some(errno) = socket.error.take() {
                    return Err(errno);
                }
                Ok(Some(connection))
            }
            Phase::New | Phase::Listening(_) => Err(socket.error.take().unwrap_or(closed)),
        }
    }

    fn wait_to_send(&mut self, fd: i32, flags: i32, done: usize) -> Step<Answer<usize>> {
        let is_nonblocking = self.socket_of(fd).is_ok_and(|it| it.is_nonblocking);
        if is_nonblocking || flags & libc::MSG_DONTWAIT != 0 {
            return Step::Done(if done > 0 { Ok(done) } else { Err(Errno::EAGAIN) });
        }
        Step::Wait(None)
    }

    /// `sendto` on a stream: an address only with `MSG_FASTOPEN`, and then the connection is opened without a cookie, as
    /// RFC 7413 section 4.1.3 has it for a host that has none.
    pub(crate) fn check_send_to(&mut self, fd: i32, flags: i32, to: &[u8]) -> Answer<()> {
        let phase = self.socket_of(fd)?.phase;
        if flags & libc::MSG_FASTOPEN == 0 {
            return Ok(());
        }
        match phase {
            Phase::New => {
                self.open_to(fd, address::from_c(to)?)?;
                if self.socket_of(fd)?.is_nonblocking { Err(Errno::EINPROGRESS) } else { Ok(()) }
            }
            Phase::Connecting(_) => Err(Errno::EALREADY),
            Phase::Connected(_) | Phase::Listening(_) => Err(Errno::EISCONN),
        }
    }
}
