//! Passes a connection's input to the service, and sends the service's output.

use twinpath_stream::{Broken, Lent, Transport};
use twinpath_time::Instant;

use super::{Connection, Fault, Progress, Stage};
use crate::connections::host::Host;
use crate::connections::turn::{Scratch, Turn, output};
use crate::{Next, Output, Service};

impl<C> Connection<C> {
    /// Passes the unread input to the service while it uses some, sends its output, and tells it of the resulting
    /// room.
    #[inline]
    pub(super) fn serve<H>(
        &mut self,
        transport: &mut impl Transport,
        turn: &mut Turn<'_, H>,
    ) -> Result<Progress, Fault>
    where
        H: Host<Service: Service<Connection = C>>,
    {
        let (mut progress, written_before) = (Progress::default(), turn.written);
        let mut unfinished;
        loop {
            let (now, state, limits) = (turn.now, &mut self.state, turn.limits);
            let Lent { received, room } = transport.lend(limits.bytes);
            let rest = &received[progress.used..];
            let mut output = output(room, turn.filled, turn.scratch, turn.host, limits, self.held.as_deref());
            let took = turn.host.call("stream", |service| service.stream(now, state, rest, &mut output))?;
            let took = took.min(rest.len());
            let (next, wake_at) = (output.next(), output.wakes_at());
            unfinished = output.is_unfinished();
            turn.filled = output.filled();
            self.heed_wake(wake_at);
            progress.used += took;
            self.wrote |= turn.output_len() > 0;
            if !turn.scratch.later.is_empty() {
                self.give_input(transport, turn, &mut progress, took);
            }
            progress.when_room = self.defer(transport, turn)?;
            if next != Next::Keep {
                self.heed(next);
                break;
            }
            if progress.used == self.unread || progress.when_room || self.is_full() {
                break;
            }
            if took > 0 {
                continue;
            }
            if !self.wrote || self.is_held_back() {
                break;
            }
            // It waits for more input or for room; room can be made immediately.
            self.send(transport, turn)?;
            self.tell_of_room(transport, turn, &mut progress)?;
            if progress.again || progress.when_room || self.is_full() || !self.still_answers() {
                break;
            }
        }
        self.send(transport, turn)?;
        if !progress.again && !progress.when_room {
            self.tell_of_room(transport, turn, &mut progress)?;
        }
        let partial = unfinished || progress.used < self.unread;
        let has_used = progress.used + progress.given > 0;
        let completed = turn.written != written_before || (has_used && !unfinished);
        self.is_new &= partial && !completed;
        if !partial {
            self.asked = Instant::NEVER;
        } else if self.asked == Instant::NEVER || completed {
            self.asked = turn.now;
        }
        transport.consume(progress.used);
        self.unread -= progress.used;
        if matches!(self.stage, Stage::Ending(_)) {
            self.drop_unread(transport);
        }
        Ok(progress)
    }

    /// Gives work its parts of the input, of which the service has just used `took` bytes. The part that ends where these
    /// end is the transport's to move or to copy.
    #[cold]
    fn give_input<H: Host>(
        &mut self,
        transport: &mut impl Transport,
        turn: &mut Turn<'_, H>,
        progress: &mut Progress,
        took: usize,
    ) {
        let begin = progress.used - took;
        let last = turn.scratch.later.take_last(took);
        turn.scratch.later.give(transport.received().get(begin..).unwrap_or_default());
        if let Some((mut last, part)) = last {
            last.work.give(transport.take(begin + part.start, progress.used));
            turn.scratch.later.jobs.push(last);
            self.unread -= progress.used;
            progress.given += std::mem::take(&mut progress.used);
        }
    }

    /// Tells the service that its output has been sent, until it writes nothing more, or the connection's
    /// share of the turn is used up.
    #[inline]
    pub(super) fn tell_of_room<H>(
        &mut self,
        transport: &mut impl Transport,
        turn: &mut Turn<'_, H>,
        progress: &mut Progress,
    ) -> Result<(), Fault>
    where
        H: Host<Service: Service<Connection = C>>,
    {
        while self.wrote && self.still_answers() && !self.is_full() && !self.is_held_back() {
            if turn.is_over() {
                progress.again = true;
                break;
            }
            let (now, state, limits) = (turn.now, &mut self.state, turn.limits);
            let room = transport.reserve(limits.bytes);
            let mut output = output(room, turn.filled, turn.scratch, turn.host, limits, self.held.as_deref());
            turn.host.call("writable", |service| service.writable(now, state, &mut output))?;
            let (next, wake_at) = (output.next(), output.wakes_at());
            turn.filled = output.filled();
            self.heed_wake(wake_at);
            self.wrote = turn.output_len() > 0;
            if self.wrote && self.asked != Instant::NEVER {
                self.asked = turn.now;
            }
            if self.defer(transport, turn)? {
                // The service is called again when there is room for the work.
                (self.wrote, progress.when_room) = (true, true);
            }
            self.heed(next);
            self.send(transport, turn)?;
            if progress.when_room {
                break;
            }
        }
        Ok(self.send_ready(transport, turn)?)
    }

    /// Calls the service for a reason other than input, sends its output, and tells it of the resulting
    /// room.
    pub(super) fn call_aside<H>(
        &mut self,
        callback: &'static str,
        call: impl FnOnce(&mut H::Service, Instant, &mut C, &mut Output<'_>),
        transport: &mut impl Transport,
        turn: &mut Turn<'_, H>,
        progress: &mut Progress,
    ) -> Result<(), Fault>
    where
        H: Host<Service: Service<Connection = C>>,
    {
        let (now, state, limits) = (turn.now, &mut self.state, turn.limits);
        let room = transport.reserve(limits.bytes);
        let mut output = output(room, turn.filled, turn.scratch, turn.host, limits, self.held.as_deref());
        turn.host.call(callback, |service| call(service, now, state, &mut output))?;
        let (next, wake_at) = (output.next(), output.wakes_at());
        turn.filled = output.filled();
        self.heed_wake(wake_at);
        if turn.output_len() > 0 {
            // A peer that gets bytes counts as served; from now on it has the send time-out to take them.
            (self.wrote, self.is_new, self.touched) = (true, false, turn.now);
        }
        if self.defer(transport, turn)? {
            // `writable` is called when there is room for the work.
            (self.wrote, progress.when_room) = (true, true);
        }
        self.heed(next);
        self.send(transport, turn)?;
        if progress.when_room { Ok(()) } else { self.tell_of_room(transport, turn, progress) }
    }

    /// Hands over the service's work to the host, and first sends the output written before it. Returns
    /// whether work was refused for lack of room.
    #[inline]
    fn defer<H: Host>(
        &mut self,
        transport: &mut impl Transport,
        turn: &mut Turn<'_, H>,
    ) -> Result<bool, Broken> {
        if turn.host.room_for_work(0).is_none() { Ok(false) } else { self.hand_over(transport, turn) }
    }

    #[cold]
    fn hand_over<H: Host>(
        &mut self,
        transport: &mut impl Transport,
        turn: &mut Turn<'_, H>,
    ) -> Result<bool, Broken> {
        let refused = turn.scratch.later.is_refused();
        let has_work = !turn.scratch.later.is_empty();
        if has_work || self.is_held_back() {
            // What has to wait for a reply must not stay in the transport's room.
            let Scratch { beside, later } = &mut *turn.scratch;
            let room = transport.reserve(turn.limits.bytes);
            beside.splice(0..0, room[..std::mem::take(&mut turn.filled)].iter().copied());
            let held = self.held.get_or_insert_default();
            if has_work {
                held.deferred.hand_over(beside, later, turn.host);
            } else {
                held.deferred.hold_back(beside);
            }
        }
        if has_work {
            self.send(transport, turn)?;
        }
        Ok(refused)
    }

    /// Sends the service's output, and keeps the part that the transport does not take.
    #[inline]
    fn send<H: Host>(
        &mut self,
        transport: &mut impl Transport,
        turn: &mut Turn<'_, H>,
    ) -> Result<(), Broken> {
        let (filled, beside) = (std::mem::take(&mut turn.filled), turn.scratch.beside.len());
        if filled + beside == 0 {
            return Ok(());
        }
        let mut sent = if filled > 0 { transport.commit(filled)? } else { 0 };
        if beside > 0 && sent == filled {
            sent += transport.send(&turn.scratch.beside)?;
        }
        turn.count_written(filled + beside);
        self.was_sent(sent, turn);
        if sent < filled + beside {
            let in_room = if sent < filled { &transport.reserve(filled)[sent..filled] } else { &[] };
            let beside = &turn.scratch.beside[sent.saturating_sub(filled)..];
            self.held.get_or_insert_default().keep_unsent(in_room, beside);
        }
        turn.scratch.beside.clear();
        Ok(())
    }

    pub(super) fn send_unsent<H: Host>(
        &mut self,
        transport: &mut impl Transport,
        turn: &mut Turn<'_, H>,
    ) -> Result<(), Broken> {
        let Some(held) = self.held.as_mut().filter(|held| held.is_full()) else { return Ok(()) };
        let sent = held.send_unsent(transport)?;
        self.was_sent(sent, turn);
        Ok(())
    }

    /// Sends replies that have waited for the end of another one, if that is complete.
    #[inline]
    fn send_ready<H: Host>(
        &mut self,
        transport: &mut impl Transport,
        turn: &mut Turn<'_, H>,
    ) -> Result<(), Broken> {
        if self.held.is_none() || self.is_half_written() {
            return Ok(());
        }
        let Some(held) = self.held.as_mut().filter(|held| held.deferred.ready_bytes() > 0) else {
            return Ok(());
        };
        held.release_ready();
        self.send_unsent(transport, turn)
    }

    #[inline]
    fn was_sent<H: Host>(&mut self, sent: usize, turn: &mut Turn<'_, H>) {
        turn.count_sent(sent);
        if sent > 0 {
            self.touched = turn.now;
        }
    }
}
