//! A connection that is served through a ring: its bytes are brought, and its replies leave with the next submission.
//!
//! Only what cannot be told apart from outside is sent that way: all of a turn's replies of a connection that goes on as it
//! is. Whatever depends on how much the socket takes is sent at once, as without a ring.

use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use twinpath_service::Service;

use super::{After, CHUNK, Connection, GROW_MIN, Served, Stage, Turn, send_now};
use crate::counters::ServeCounters;
use crate::tcp::limits::TcpLimits;

/// Bytes that wait for a submission before it is made.
const SUBMIT_BYTES: usize = 1 << 20;
/// Connections that wait for one, at most.
const SUBMIT_SENDS: usize = 256;
/// Buffers for replies that are kept for the next ones however large they have become; more are kept if they are small.
const SPARES_LARGE: usize = 4;

/// What a ring has of a connection.
#[derive(Debug, Default)]
pub(crate) struct Link {
    /// Tells it from those that had its number before.
    generation: u32,
    /// A receive is armed.
    pub(super) armed: bool,
    /// The ring tells when the socket takes bytes again.
    pub(super) watched: bool,
    /// Its number stands in the outbox.
    queued: bool,
    /// Replies were submitted, and it is not known what became of them.
    sending: bool,
    /// Replies that wait for the next submission.
    outgoing: Vec<u8>,
}

impl Link {
    pub(super) const fn is_sending(&self) -> bool {
        self.sending
    }
}

/// Connections whose replies leave with the next submission.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    pub(crate) queued: Vec<u32>,
    bytes: usize,
    spares: Vec<Vec<u8>>,
}

impl Outbox {
    /// Whether it is time to submit.
    pub(crate) const fn is_full(&self) -> bool {
        self.bytes >= SUBMIT_BYTES || self.queued.len() >= SUBMIT_SENDS
    }

    /// What was queued is submitted from here on.
    pub(crate) const fn submitted(&mut self) {
        self.bytes = 0;
    }

    /// Takes a buffer back whose bytes have been sent.
    pub(crate) fn put_back(&mut self, mut spare: Vec<u8>) {
        if spare.capacity() <= CHUNK && self.spares.len() < SUBMIT_SENDS || self.spares.len() < SPARES_LARGE {
            spare.clear();
            self.spares.push(spare);
        }
    }
}

/// What a connection wants of its ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wants {
    /// To receive so many bytes at most.
    pub(crate) receive: Option<u32>,
    /// To be told when its socket takes bytes again.
    pub(crate) watch: bool,
}

impl<C> Connection<C> {
    /// Serves it through a ring from now on.
    pub(crate) fn with_link(mut self, generation: u32) -> Self {
        self.link = Some(Link { generation, ..Link::default() });
        self
    }

    /// The ring's part of it, if it is the one of that generation.
    pub(crate) fn generation(&self) -> Option<u32> {
        self.link.as_ref().map(|link| link.generation)
    }

    /// What is armed: a receive, a watch.
    pub(crate) fn armed(&self) -> (bool, bool) {
        self.link.as_ref().map_or((false, false), |link| (link.armed, link.watched))
    }

    /// Whether it needs nothing but what its armed receive brings.
    #[inline]
    pub(crate) fn is_at_rest(&self) -> bool {
        self.is_plain() && self.link.as_ref().is_some_and(|link| link.armed)
    }

    /// Its receive is no longer armed.
    pub(crate) const fn disarmed(&mut self) {
        if let Some(link) = &mut self.link {
            link.armed = false;
        }
    }

    /// Its socket takes bytes again, or has an error.
    pub(crate) const fn writable(&mut self) {
        if let Some(link) = &mut self.link {
            link.watched = false;
        }
    }

    /// What it wants that it does not have yet: it has it from now on.
    pub(crate) fn wants(&mut self, limits: &TcpLimits) -> Wants {
        let is_full = self.is_full();
        let room = match self.stage {
            Stage::Open if !is_full => {
                let unread = self.held.as_ref().map_or(0, |held| held.unread.len());
                (limits.connection_bytes as usize).saturating_sub(unread).min(CHUNK)
            }
            Stage::Lingering(_) => CHUNK,
            _ => 0,
        };
        let Some(link) = &mut self.link else { return Wants::default() };
        let receive = (room > 0 && !link.armed).then_some(room as u32);
        let watch = is_full && !link.sending && !link.watched;
        link.armed |= receive.is_some();
        link.watched |= watch;
        Wants { receive, watch }
    }

    /// Bytes came: answers them, or keeps them while it is not to be read.
    #[inline]
    pub(crate) fn came<S: Service<Connection = C>>(&mut self, input: &[u8], turn: &mut Turn<'_, S>) -> After {
        turn.counters.stream_bytes_in.add(input.len() as u64);
        let done = match self.stage {
            Stage::Open => {
                self.touched = turn.now;
                if self.held.is_none() && !self.is_full() {
                    self.answer(input, turn)
                } else {
                    self.keep(input, turn.limits);
                    self.go_on(turn)
                }
            }
            // Nobody reads what comes behind an end.
            Stage::PeerEnded | Stage::Stopping | Stage::Ending(_) | Stage::Lingering(_) => Ok(After::Keep),
        };
        done.unwrap_or_else(|_| After::Close(self.broken()))
    }

    /// No more bytes come: the peer has sent its last one, or the socket failed.
    pub(crate) fn came_to_end<S: Service<Connection = C>>(
        &mut self,
        why: Result<(), Errno>,
        turn: &mut Turn<'_, S>,
    ) -> After {
        match (why, self.stage) {
            (Err(_), _) => After::Close(self.broken()),
            (Ok(()), Stage::Lingering(why)) => After::Close(why),
            (Ok(()), Stage::PeerEnded | Stage::Stopping | Stage::Ending(_)) => After::Keep,
            (Ok(()), Stage::Open) => {
                self.stage = Stage::PeerEnded;
                self.go_on(turn).unwrap_or_else(|_| After::Close(self.broken()))
            }
        }
    }

    /// The common case, as `read_and_answer`.
    #[inline]
    fn answer<S: Service<Connection = C>>(
        &mut self,
        input: &[u8],
        turn: &mut Turn<'_, S>,
    ) -> Result<After, Errno> {
        self.begin(turn);
        let served = self.serve(input, turn);
        if let Ok(Served { used, .. }) = served
            && used < input.len()
            && !matches!(self.stage, Stage::Ending(_))
        {
            self.held.get_or_insert_default().unread = input[used..].to_vec();
        }
        let served = served?;
        if self.is_plain() { Ok(After::Keep) } else { self.settle(turn, &served) }
    }

    /// Adds to what is there already. The receive was armed for no more than there is room for.
    fn keep(&mut self, input: &[u8], limits: &TcpLimits) {
        let unread = &mut self.held.get_or_insert_default().unread;
        if unread.capacity() - unread.len() < input.len() {
            let room = (limits.connection_bytes as usize).saturating_sub(unread.len());
            unread.reserve_exact(unread.len().max(GROW_MIN).min(room).max(input.len()));
        }
        unread.extend_from_slice(input);
    }

    /// Begins a turn's replies: behind those of this turn that have not been submitted.
    #[inline]
    pub(super) fn begin<S>(&mut self, turn: &mut Turn<'_, S>) {
        turn.scratch.output.clear();
        if let Some(link) = &mut self.link
            && !link.outgoing.is_empty()
        {
            std::mem::swap(&mut link.outgoing, &mut turn.scratch.output);
        }
    }

    /// Sends what was written, with the next submission if it may be.
    #[inline]
    pub(super) fn leave<S>(&mut self, turn: &mut Turn<'_, S>) -> Result<(), Errno> {
        let waits = self.link.is_some()
            && self.stage == Stage::Open
            && turn.desk.is_none()
            && self.held.as_ref().is_none_or(|held| held.unsent.is_empty() && held.deferred.is_empty());
        if waits && self.queue(turn) { Ok(()) } else { self.send(turn) }
    }

    fn queue<S>(&mut self, turn: &mut Turn<'_, S>) -> bool {
        let (Some(link), Some(outbox)) = (&mut self.link, &mut turn.outbox) else { return false };
        let output = &mut turn.scratch.output;
        if output.is_empty() {
            return true;
        }
        if link.outgoing.capacity() == 0 {
            link.outgoing = outbox.spares.pop().unwrap_or_default();
        }
        outbox.bytes += output.len();
        std::mem::swap(output, &mut link.outgoing);
        if !std::mem::replace(&mut link.queued, true) {
            outbox.queued.push(turn.number);
        }
        true
    }

    /// What it has queued, to be submitted now.
    pub(crate) fn submit(&mut self) -> Option<Vec<u8>> {
        let link = self.link.as_mut()?;
        link.queued = false;
        link.sending = !link.outgoing.is_empty();
        link.sending.then(|| std::mem::take(&mut link.outgoing))
    }

    /// Sends it without the ring; says how much the socket took.
    pub(crate) fn send_directly(&self, bytes: &[u8]) -> Result<usize, Errno> {
        send(&self.fd, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
    }

    /// What was submitted has been sent as far as the socket took it; keeps the rest. Says whether there is one.
    pub(crate) fn submitted(
        &mut self,
        bytes: &[u8],
        taken: Result<usize, Errno>,
        counters: &ServeCounters,
    ) -> Result<bool, Errno> {
        if let Some(link) = &mut self.link {
            link.sending = false;
        }
        let taken = match taken {
            Ok(taken) => taken,
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Err(error) => return Err(error),
        };
        counters.stream_bytes_out.add(taken as u64);
        let rest = &bytes[taken..];
        if !rest.is_empty() {
            let held = self.held.get_or_insert_default();
            (held.unsent, held.sent, held.was_full) = (rest.to_vec(), 0, true);
        }
        Ok(!rest.is_empty())
    }

    /// Before it is closed: what it has queued leaves as far as the socket takes it.
    pub(crate) fn send_last(&mut self, counters: &ServeCounters) {
        if let Some(link) = &mut self.link
            && !link.outgoing.is_empty()
        {
            // Whatever becomes of it, nobody is left who could do more.
            let _ = send_now(&self.fd, &link.outgoing, counters);
            link.outgoing = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::os::fd::OwnedFd;

    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use twinpath_inspect::Reason;
    use twinpath_service::{Closed, Output};
    use twinpath_time::Instant;

    use super::*;
    use crate::tcp::connection::Scratch;

    struct Echo;

    impl Service for Echo {
        type Connection = ();

        fn accept(&mut self, _: Instant, _: SocketAddr) -> Result<(), Reason> {
            Ok(())
        }

        fn stream(&mut self, _: Instant, _: &mut (), input: &[u8], output: &mut Output<'_>) -> usize {
            if output.write(input) { input.len() } else { 0 }
        }

        fn close(&mut self, (): (), _: Closed) {}
    }

    /// A connection whose reply was submitted; what becomes of that is not known when `meanwhile` happens. What it does once it is.
    fn after_sending(
        meanwhile: impl FnOnce(&mut Connection<()>, &mut Turn<'_, Echo>),
    ) -> (bool, After, Wants) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (ours, _theirs): (OwnedFd, OwnedFd) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("a pair");
        let (limits, counters) = (TcpLimits::default(), ServeCounters::default());
        let mut connection = Connection::new(Instant::ZERO, ours, ()).with_link(1);
        let first = connection.wants(&limits);
        assert!(first.receive.is_some() && connection.is_at_rest());
        let mut turn = Turn {
            now: Instant::ZERO,
            service: &mut Echo,
            counters: &counters,
            limits: &limits,
            scratch: &mut Scratch::new(&limits),
            desk: None,
            number: 0,
            outbox: Some(&mut Outbox::default()),
        };
        assert_eq!(connection.came(b"x", &mut turn), After::Keep);
        let bytes = connection.submit().expect("queued");
        meanwhile(&mut connection, &mut turn);
        assert_eq!(connection.submitted(&bytes, Ok(1), &counters), Ok(false));
        let at_rest = connection.is_at_rest();
        (at_rest, connection.work(&mut turn), connection.wants(&limits))
    }

    #[test]
    fn what_happens_while_a_reply_is_on_its_way_is_seen_to_after_it() {
        let (at_rest, after, wants) = after_sending(|_, _| ());
        assert_eq!((at_rest, after, wants), (true, After::Keep, Wants::default()));

        let (at_rest, after, _) = after_sending(|connection, turn| {
            connection.disarmed();
            assert_eq!(connection.came_to_end(Ok(()), turn), After::Keep);
        });
        assert_eq!((at_rest, after), (false, After::Close(Closed::Ended)));

        let (at_rest, after, _) = after_sending(|connection, turn| {
            connection.stop();
            assert_eq!(connection.work(turn), After::Keep);
        });
        assert_eq!((at_rest, after), (false, After::Again), "it lingers");

        // As without a free buffer.
        let (at_rest, after, wants) = after_sending(|connection, turn| {
            connection.disarmed();
            assert_eq!(connection.wants(turn.limits), Wants::default());
        });
        assert_eq!((at_rest, after), (false, After::Keep));
        assert!(wants.receive.is_some());
    }
}
