//! Connections of the fast path that move to the kernel, some of them in each turn.

use twinpath_inspect::FastTcpCounters;
use twinpath_service::Service;
use twinpath_tcp::{Segment, Tuple, Verdict};
use twinpath_time::{Duration, Instant};
use twinpath_wire::{ChecksumTrust, tcp_frame};
use twinpath_worker::Io;

use super::fast::{NO_PORT, out};
use super::{ServeEngine, ServeEvent};
use crate::fast_tcp::{
    Budget, EngineConnection, EngineListener, FIRST_MOVED_TOKEN, FastCall, FastTcp, Moves, User,
};
use crate::kernel_tcp::Socket;
use crate::streams::Change;

/// By then a peer has an answer to its SYN, unless that was lost. RFC 6298 has it repeat its SYN after a second at the
/// earliest.
const ROUND_TRIP_MAX: Duration = Duration::from_millis(900);

impl<S: Service> ServeEngine<S> {
    /// Lets sockets of the kernel go on with all connections, from the next run on: the path to their peers is about to end.
    /// What cannot go on is reset. Tuples are released with the next [`Self::settle_claims`], so that the kernel gets what
    /// peers send after that. The engine [keeps its ports](twinpath_worker::Engine::keeps_ports) until all is done.
    pub(super) fn leave_fast(&mut self, now: Instant, io: &mut Io<'_, ServeEvent>) {
        // Those that wait to be accepted go on, too.
        self.serve_fast(now, NO_PORT, io);
        let Some(fast) = self.fast.as_deref_mut() else { return };
        fast.leave_records(now);
        fast.spoke_at = now;
        fast.move_all();
    }

    /// Headers of a segment that has reached the kernel's listener, as the path to its peer has ended. If it completes a
    /// handshake, the connection goes on in the kernel.
    pub(crate) fn take_leaked(&mut self, now: Instant, frame: &[u8], io: &mut Io<'_, ServeEvent>) {
        let Ok(found) = tcp_frame::parse(frame, ChecksumTrust::Trusted) else { return };
        let tuple = Tuple::new(found.destination, found.source);
        let Self { fast, egress, counters, .. } = self;
        let Some(fast) = fast.as_deref_mut() else { return };
        let FastTcp { server, beside, has_left, spoke_at, .. } = &mut *fast;
        let listener = server.listener();
        if !*has_left || !listener.tcp().is_half_open(&tuple) {
            return;
        }
        counters.fast_tcp.fast_segments_in.add(1);
        let verdict = if found.segment.flags().opens() {
            // If it may have crossed an answer, that completes the handshake.
            let is_left = now.since(*spoke_at) >= ROUND_TRIP_MAX
                && listener.tcp_mut().leave_half_open(&tuple, found.segment.sequence());
            if is_left { Verdict::Declined } else { Verdict::Answered }
        } else {
            let segment = Segment::new(&found.segment, found.congestion, 0);
            let mut sink = out(now, NO_PORT, egress, beside, &counters.fast_tcp, io);
            listener.segment(now, &tuple, &segment, &mut sink)
        };
        if verdict == Verdict::Declined {
            fast.decline(now, tuple);
            counters.fast_tcp.fast_declined.add(1);
        }
        self.serve_fast(now, NO_PORT, io);
        if let (Verdict::Taken(_), Some(fast)) = (verdict, self.fast.as_deref_mut()) {
            fast.move_late();
        }
    }

    /// Answers again the SYNs whose tuples the programs know as half-open.
    pub(super) fn answer_again(&mut self, now: Instant, io: &mut Io<'_, ServeEvent>) {
        let Self { fast, egress, counters, ports, .. } = self;
        let Some(FastTcp { server, beside, records, has_left, spoke_at, .. }) = fast.as_deref_mut() else {
            return;
        };
        if *has_left && !ports.is_empty() {
            *spoke_at = now;
        }
        let mut sink = out(now, NO_PORT, egress, beside, &counters.fast_tcp, io);
        records.answer(now, server.listener().tcp_mut(), &mut sink);
    }

    /// Closes all remaining connections, from the next run on; the kernel delivers what they have sent, if it can go on with
    /// them.
    pub(super) fn cut_fast(&mut self) {
        if let Some(fast) = self.fast.as_deref_mut() {
            fast.moves = Some(Moves::of(User::None, fast.server.numbers()));
            fast.kept.end();
        }
    }

    /// Moves as many connections as a turn may. Returns whether there may be some to be moved.
    pub(super) fn move_some(&mut self, now: Instant, io: &mut Io<'_, ServeEvent>) -> bool {
        let Some(mut moves) = self.fast.as_deref_mut().and_then(|fast| fast.moves.take()) else {
            return false;
        };
        let mut budget = Budget::OF_A_TURN;
        while !moves.numbers.is_empty() && budget.looks() {
            self.move_one(now, &mut moves, &mut budget, io);
            moves.numbers.start += 1;
        }
        let counters = &self.counters.fast_tcp;
        let Some(fast) = self.fast.as_deref_mut() else { return false };
        let is_over = moves.numbers.is_empty() && leave_orphans(now, fast, &mut moves, &mut budget, counters);
        if !is_over {
            fast.moves = Some(moves);
        } else if fast.has_left && moves.user == User::Server {
            fast.kept.end_pass(now, moves.has_moved);
            if moves.again || moves.left > fast.kept.connections() {
                fast.move_all();
            }
        } else if moves.user == User::None
            && let Some((fast, call)) = self.fast(now, io)
        {
            fast.server.cut(call);
            fast.cut(now);
        }
        if let Some(fast) = self.fast.as_deref() {
            self.counters.fast_tcp.fast_kept.set(fast.kept_now().into());
        }
        true
    }

    /// Moves the next connection, if it is on the fast path. Without a user it is closed.
    fn move_one(
        &mut self,
        now: Instant,
        moves: &mut Moves,
        budget: &mut Budget,
        io: &mut Io<'_, ServeEvent>,
    ) {
        let (number, user) = (moves.numbers.start, moves.user);
        let Self { fast, counters, service, handlers, .. } = self;
        let Some(fast) = fast.as_deref_mut() else { return };
        let counted = &counters.fast_tcp;
        let FastTcp { server, kept, output_max, ifindex, .. } = fast;
        let link = (*output_max, *ifindex);
        let is_watched = |socket: &Socket| {
            user == User::None || io.fds.watch_edges(socket, FIRST_MOVED_TOKEN + number).is_ok()
        };
        let change = |listener: &mut EngineListener, connection: &mut EngineConnection| {
            let Some(local) = listener.local_of(connection) else { return Change::None };
            if kept.lacks(local, false) {
                return Change::None;
            }
            match listener.move_to_kernel(now, connection, user, link) {
                Ok(None) => return Change::None,
                Ok(Some((socket, bytes))) if is_watched(socket) => {
                    budget.took(bytes);
                    counted.fast_moved.add(1);
                    moves.has_moved = true;
                    return Change::Moved;
                }
                Err(error) if kept.keeps(local, &error, false) => {
                    budget.took(0);
                    return Change::None;
                }
                Ok(Some(_)) | Err(_) => {}
            }
            budget.took(0);
            listener.reset(now, connection);
            counted.fast_not_moved.add(1);
            Change::Lost
        };
        let (drops, handlers, counters) = (io.fds.drops(), handlers.as_mut(), &counters.fast_connections);
        let mut call = FastCall { now, service, counters, drops, io: &(), handlers };
        server.change_stream(number, change, &mut call);
        if user == User::None && server.cut_one(number, &mut call) {
            budget.closed();
        }
    }
}

/// Lets the kernel deliver what the server is done with, as far as the budget goes, and counts what it is not done with.
/// Returns whether all were looked at.
fn leave_orphans<C: Send>(
    now: Instant,
    fast: &mut FastTcp<C>,
    moves: &mut Moves,
    budget: &mut Budget,
    counters: &FastTcpCounters,
) -> bool {
    let FastTcp { server, kept, ifindex, .. } = fast;
    let listener = server.listener();
    while moves.index < listener.tcp().indices() {
        if !budget.looks() {
            return false;
        }
        let index = moves.index;
        moves.index += 1;
        moves.left += u32::from(listener.may_move(now, index));
        let Some(local) = listener.local_of_orphan(index) else { continue };
        if kept.lacks(local, true) {
            continue;
        }
        let mut is_kept = false;
        let keep = |error: &std::io::Error| {
            is_kept = kept.keeps(local, error, true);
            is_kept
        };
        let bytes = match listener.leave_orphan(now, index, *ifindex, keep) {
            Ok(None) => continue,
            Ok(Some(bytes)) => {
                moves.has_moved = true;
                counters.fast_moved.add(1);
                bytes
            }
            Err(_) if is_kept => 0,
            Err(_) => {
                counters.fast_not_moved.add(1);
                0
            }
        };
        budget.took(bytes);
    }
    true
}
