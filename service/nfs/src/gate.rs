//! How many calls threads have yet to answer, and how much memory these take, per export: a file system that does not
//! answer must not take the room of others. One worker has it.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use twinpath_rpc::{Arrival, Transport};
use twinpath_time::{Duration, Instant};

/// An export that has finished no call for this long, and has no room, is one that does not answer.
const STALLED: Duration = Duration::from_secs(1);
/// Peers of an export that are remembered, before those without calls are forgotten.
const PEERS_KEPT: usize = 256;

/// Maximum numbers of calls that wait for threads, and of the bytes of their arguments and longest results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Of one export.
    pub export: u32,
    /// Of one export for one connection or UDP peer.
    pub peer: u32,
    /// Of one export by datagrams: anybody may send them from many ports.
    pub datagrams: u32,
    /// Bytes of one export. Peers that have some already leave half of them to those that have none.
    pub export_bytes: u64,
    /// Bytes of one export for one connection or UDP peer: several of the longest calls, so that each has room.
    pub peer_bytes: u64,
}

/// What calls take.
#[derive(Debug, Default)]
struct Taken {
    calls: AtomicU32,
    bytes: AtomicU64,
}

impl Taken {
    /// The calls and their bytes. Relaxed here and below: what a thread ends now is seen by the next call.
    fn now(&self) -> (u32, u64) {
        (self.calls.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed))
    }

    fn add(&self, bytes: u64) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn end(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The calls of one export that are carried out, as threads count them.
#[derive(Debug, Default)]
struct Progress {
    in_flight: Taken,
    /// Those of them that came by datagrams.
    datagrams: AtomicU32,
    finished: AtomicU64,
}

#[derive(Debug)]
struct Lane {
    progress: Arc<Progress>,
    /// How many were finished when that was last new, and the time.
    seen: u64,
    seen_at: Instant,
    peers: HashMap<SocketAddr, Arc<Taken>>,
}

/// The gate of one worker.
#[derive(Debug)]
pub(crate) struct Gate {
    bounds: Bounds,
    lanes: Vec<Lane>,
}

/// Whether a call may wait for a thread.
#[derive(Debug)]
pub(crate) enum Admission {
    /// It may, and counts until this is dropped.
    Admitted(Pass),
    /// There are too many. Some will be finished soon.
    Full,
    /// There are too many, and their file system does not answer.
    Stalled,
}

/// A call that was admitted.
#[derive(Debug)]
pub(crate) struct Pass {
    progress: Arc<Progress>,
    peer: Arc<Taken>,
    transport: Transport,
    bytes: u64,
}

impl Gate {
    /// A gate for as many exports as there are lanes.
    pub(crate) fn new(bounds: Bounds, lanes: usize) -> Self {
        let lane =
            |_| Lane { progress: Arc::default(), seen: 0, seen_at: Instant::ZERO, peers: HashMap::new() };
        Self { bounds, lanes: (0..lanes).map(lane).collect() }
    }

    /// The same bounds, for another worker.
    pub(crate) fn for_worker(&self) -> Self {
        Self::new(self.bounds, self.lanes.len())
    }

    /// Admits a call that takes so many bytes to the export of this lane. A lane that is not there admits nothing.
    pub(crate) fn admit(&mut self, lane: u32, arrival: &Arrival, bytes: u64) -> Admission {
        let Arrival { now, peer, transport } = *arrival;
        let Some(lane) = self.lanes.get_mut(lane as usize) else { return Admission::Full };
        // Relaxed: a thread that finishes now is seen by the next call.
        let finished = lane.progress.finished.load(Ordering::Relaxed);
        let (in_flight, in_flight_bytes) = lane.progress.in_flight.now();
        if finished != lane.seen || in_flight == 0 {
            (lane.seen, lane.seen_at) = (finished, now);
        }
        if lane.peers.len() > PEERS_KEPT {
            lane.peers.retain(|_, taken| taken.now().0 > 0);
        }
        let of_peer = lane.peers.entry(peer).or_default();
        let (peer_calls, peer_bytes) = of_peer.now();
        let Bounds { export, peer: peer_most, datagrams, export_bytes, peer_bytes: peer_bytes_most } =
            self.bounds;
        let fits = match transport {
            Transport::Datagram => lane.progress.datagrams.load(Ordering::Relaxed) < datagrams,
            Transport::Stream => true,
        };
        let bytes_most = if peer_bytes > 0 { export_bytes / 2 } else { export_bytes };
        let has_memory = in_flight_bytes + bytes <= bytes_most && peer_bytes + bytes <= peer_bytes_most;
        if fits && has_memory && in_flight < export && peer_calls < peer_most {
            lane.progress.in_flight.add(bytes);
            lane.progress.datagrams.fetch_add(u32::from(transport == Transport::Datagram), Ordering::Relaxed);
            of_peer.add(bytes);
            let (progress, peer) = (Arc::clone(&lane.progress), Arc::clone(of_peer));
            return Admission::Admitted(Pass { progress, peer, transport, bytes });
        }
        if now.since(lane.seen_at) >= STALLED { Admission::Stalled } else { Admission::Full }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.peer.end(self.bytes);
        self.progress.in_flight.end(self.bytes);
        let is_datagram = self.transport == Transport::Datagram;
        self.progress.datagrams.fetch_sub(u32::from(is_datagram), Ordering::Relaxed);
        self.progress.finished.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls without bounds of memory.
    const CALLS: Bounds =
        Bounds { export: 9, peer: 9, datagrams: 9, export_bytes: u64::MAX, peer_bytes: u64::MAX };

    fn peer(number: u8) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, number], 700))
    }

    fn at_ms(ms: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(ms)
    }

    fn by_stream(peer: SocketAddr, now: Instant) -> Arrival {
        Arrival { now, peer, transport: Transport::Stream }
    }

    fn by_datagram(peer: SocketAddr, now: Instant) -> Arrival {
        Arrival { transport: Transport::Datagram, ..by_stream(peer, now) }
    }

    fn admitted(admission: Admission) -> Pass {
        match admission {
            Admission::Admitted(pass) => pass,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_export_that_does_not_answer_takes_no_more_than_its_room() {
        let mut gate = Gate::new(Bounds { export: 3, peer: 2, datagrams: 3, ..CALLS }, 2);
        let now = at_ms(10_000);
        let first = admitted(gate.admit(0, &by_stream(peer(1), now), 0));
        let _second = admitted(gate.admit(0, &by_stream(peer(1), now), 0));
        assert!(matches!(gate.admit(0, &by_stream(peer(1), now), 0), Admission::Full), "of this peer");
        let _third = admitted(gate.admit(0, &by_stream(peer(2), now), 0));
        assert!(matches!(gate.admit(0, &by_stream(peer(3), now), 0), Admission::Full), "of the export");
        assert!(matches!(gate.admit(0, &by_stream(peer(3), at_ms(10_999)), 0), Admission::Full));
        assert!(matches!(gate.admit(0, &by_stream(peer(3), at_ms(11_000)), 0), Admission::Stalled));
        admitted(gate.admit(1, &by_stream(peer(1), at_ms(11_000)), 0));
        drop(first);
        let _fourth = admitted(gate.admit(0, &by_stream(peer(3), at_ms(11_001)), 0));
        assert!(
            matches!(gate.admit(0, &by_stream(peer(3), at_ms(12_000)), 0), Admission::Full),
            "one was finished"
        );
        assert!(matches!(gate.admit(0, &by_stream(peer(3), at_ms(12_001)), 0), Admission::Stalled));
        assert!(
            matches!(gate.admit(2, &by_stream(peer(1), now), 0), Admission::Full),
            "there is no such lane"
        );
    }

    #[test]
    fn datagrams_leave_room_for_connections_and_for_other_exports() {
        let mut gate = Gate::new(Bounds { export: 4, peer: 4, datagrams: 2, ..CALLS }, 2);
        let now = at_ms(10_000);
        let first = admitted(gate.admit(0, &by_datagram(peer(1), now), 0));
        let _second = admitted(gate.admit(0, &by_datagram(peer(2), now), 0));
        assert!(matches!(gate.admit(0, &by_datagram(peer(3), now), 0), Admission::Full));
        let _other = admitted(gate.admit(1, &by_datagram(peer(3), now), 0));
        let _third = admitted(gate.admit(0, &by_stream(peer(3), now), 0));
        drop(first);
        let _fourth = admitted(gate.admit(0, &by_datagram(peer(3), now), 0));
        assert!(matches!(gate.admit(0, &by_datagram(peer(3), at_ms(11_000)), 0), Admission::Stalled));
    }

    #[test]
    fn peers_without_calls_are_forgotten() {
        let mut gate = Gate::new(Bounds { export: 9, peer: 1, datagrams: 9, ..CALLS }, 1);
        let kept = admitted(gate.admit(0, &by_stream(peer(1), Instant::ZERO), 0));
        for port in 0..2000 {
            drop(admitted(gate.admit(
                0,
                &by_stream(SocketAddr::from(([192, 0, 2, 2], port)), Instant::ZERO),
                0,
            )));
        }
        assert!(gate.lanes[0].peers.len() <= PEERS_KEPT + 1);
        assert!(
            matches!(gate.admit(0, &by_stream(peer(1), Instant::ZERO), 0), Admission::Full),
            "this one has a call"
        );
        drop(kept);
    }

    #[test]
    fn the_memory_that_calls_may_take_is_bounded_for_each_peer_and_in_all() {
        let mut gate = Gate::new(Bounds { export_bytes: 100, peer_bytes: 40, ..CALLS }, 2);
        let now = at_ms(10_000);
        let mut admit = |number, bytes| gate.admit(0, &by_stream(peer(number), now), bytes);
        let first = admitted(admit(1, 30));
        assert!(matches!(admit(1, 11), Admission::Full), "of this peer");
        let _small = admitted(admit(1, 10));
        // Half of it is for peers that have none.
        let _second = admitted(admit(2, 10));
        assert!(matches!(admit(2, 1), Admission::Full), "of those that have some");
        let _third = admitted(admit(3, 40));
        assert!(matches!(admit(4, 11), Admission::Full), "of all");
        let _fourth = admitted(admit(4, 10));
        drop(first);
        let _fifth = admitted(admit(5, 30));
        assert!(
            matches!(gate.admit(0, &by_stream(peer(1), at_ms(10_999)), 40), Admission::Full),
            "of those that have some"
        );
        admitted(gate.admit(1, &by_stream(peer(1), now), 40));
    }
}
