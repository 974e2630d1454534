//! Has the service answer what came, and sends what it writes.

use twinpath_service::{Next, Service};
use twinpath_time::Instant;

use super::{Connection, Fault, Served};
use crate::host::Host;
use crate::transport::{Broken, Transport};
use crate::turn::{Scratch, Turn, output};

impl<C> Connection<C> {
    /// Gives the service input for as long as it uses some, sends what it writes, and tells it of the room that this makes.
    #[inline]
    pub(super) fn serve<H>(
        &mut self,
        input: &[u8],
        transport: &mut impl Transport,
        turn: &mut Turn<'_, H>,
    ) -> Result<Served, Fault>
    where
        H: Host<Service: Service<Connection = C>>,
    {
        let (mut served, written_before) = (Served::default(), turn.written);
        let mut unfinished;
        loop {
            let rest = &input[served.used..];
            let (now, state) = (turn.now, &mut self.state);
            let mut output = output(turn.scratch, turn.host, turn.limits, self.held.as_deref());
            let took = turn.host.call("stream", |service| service.stream(now, state, rest, &mut output))?;
            let took = took.min(rest.len());
            let next = output.next();
            unfinished = output.is_unfinished();
            served.used += took;
            self.wrote |= !turn.scratch.output.is_empty();
            served.when_room = self.defer(transport, turn)?;
            if next != Next::Keep {
                self.heed(next);
                break;
            }
            if served.used == input.len() || served.when_room || self.is_full() {
                break;
            }
            if took > 0 {
                continue;
            }
            if !self.wrote || self.is_held_back() {
                break;
            }
            // It waits for more input or for more room: the latter it can have.
            self.send(transport, turn)?;
            self.tell_of_room(transport, turn, &mut served)?;
            if served.again || served.when_room || self.is_full() || !self.still_answers() {
                break;
            }
        }
        self.send(transport, turn)?;
        if !served.again && !served.when_room {
            self.tell_of_room(transport, turn, &mut served)?;
        }
        let partial = unfinished || served.used < input.len();
        if !partial {
            self.asked = Instant::NEVER;
        } else if self.asked == Instant::NEVER
            || turn.written != written_before
            || (served.used > 0 && !unfinished)
        {
            self.asked = turn.now;
        }
        Ok(served)
    }

    /// Tells the service that what it wrote has been sent, until it writes nothing more. The others get their turn in between.
    #[inline]
    pub(super) fn tell_of_room<H>(
        &mut self,
        transport: &mut impl Transport,
        turn: &mut Turn<'_, H>,
        served: &mut Served,
    ) -> Result<(), Fault>
    where
        H: Host<Service: Service<Connection = C>>,
    {
        while self.wrote && self.still_answers() && !self.is_full() && !self.is_held_back() {
            if turn.is_over() {
                served.again = true;
                break;
            }
            let (now, state) = (turn.now, &mut self.state);
            let mut output = output(turn.scratch, turn.host, turn.limits, self.held.as_deref());
            turn.host.call("writable", |service| service.writable(now, state, &mut output))?;
            let next = output.next();
            self.wrote = !turn.scratch.output.is_empty();
            if self.wrote && self.asked != Instant::NEVER {
                self.asked = turn.now;
            }
            if self.defer(transport, turn)? {
                // It is told once more when that has room.
                (self.wrote, served.when_room) = (true, true);
            }
            self.heed(next);
            self.send(transport, turn)?;
            if served.when_room {
                break;
            }
        }
        Ok(self.send_ready(transport, turn)?)
    }

    /// Hands over what the service wants done by others. What it wrote up to there is sent first. Says whether it wanted more done
    /// than there is room for.
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
        let Scratch { output, later, .. } = &mut *turn.scratch;
        let refused = later.is_refused();
        if !later.is_empty() {
            self.held.get_or_insert_default().deferred.hand_over(output, later, turn.host);
            self.send(transport, turn)?;
        } else if let Some(held) = &mut self.held {
            held.deferred.hold_back(output);
        }
        Ok(refused)
    }

    /// Sends what was written, and keeps what the transport does not take.
    #[inline]
    fn send<H: Host>(
        &mut self,
        transport: &mut impl Transport,
        turn: &mut Turn<'_, H>,
    ) -> Result<(), Broken> {
        let len = turn.scratch.output.len();
        if len == 0 {
            return Ok(());
        }
        let sent = transport.send(&turn.scratch.output)?;
        turn.count_written(len);
        self.was_sent(sent, turn);
        if sent < len {
            self.held.get_or_insert_default().keep_unsent(&turn.scratch.output[sent..]);
        }
        turn.scratch.output.clear();
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

    /// Sends replies that have waited for the end of another one, if that has come.
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
