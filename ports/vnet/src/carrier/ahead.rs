//! Frames read ahead of their turn, so that a port that sends more than the worker can pass on hardly delays the
//! others.
//!
//! The ring is one queue for all ports. While the worker keeps up, that is fair: frames leave in the order in which
//! they came. If it does not keep up, a frame would have to wait for everything that a busier port has put into the
//! ring, or be lost because the ring is full. In that case the worker empties the ring each turn, keeps the frames
//! by port, and serves the ports in turns.

use std::collections::VecDeque;

use twinpath_frame::Frame;
use twinpath_port::PORTS_MAX;

/// Maximum number of chunks that are kept, of all ports together: 2 MiB.
pub(crate) const CHUNKS_MAX: usize = 1024;

/// Maximum number of chunks of one port: half of that, so that others find room whatever one port sends.
pub(crate) const PORT_CHUNKS_MAX: usize = CHUNKS_MAX / 2;

/// No index in the list of kept frames.
const NONE: u16 = u16::MAX;

const _: () = assert!(CHUNKS_MAX < NONE as usize);

/// The frames of one port, oldest first, as indexes in the list of kept frames.
#[derive(Clone, Copy, Debug)]
struct Line {
    first: u16,
    last: u16,
    chunks: u16,
}

#[derive(Debug)]
struct Kept {
    frame: Option<Frame>,
    chunks: u16,
    /// The next frame of the port, or the next free entry.
    next: u16,
}

/// Frames that wait, by port. All memory is allocated at the start.
#[derive(Debug)]
pub(crate) struct Ahead {
    kept: Box<[Kept]>,
    free: u16,
    lines: Box<[Line]>,
    /// Ports with frames, in the order of their turns.
    turns: VecDeque<u16>,
    chunks: usize,
}

impl Ahead {
    pub(crate) fn new() -> Self {
        let kept = (0..CHUNKS_MAX as u16).map(|at| Kept { frame: None, chunks: 0, next: at + 1 });
        let mut kept: Box<[_]> = kept.collect();
        kept[CHUNKS_MAX - 1].next = NONE;
        let empty = Line { first: NONE, last: NONE, chunks: 0 };
        Self {
            kept,
            free: 0,
            lines: vec![empty; PORTS_MAX].into_boxed_slice(),
            turns: VecDeque::with_capacity(CHUNKS_MAX),
            chunks: 0,
        }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.chunks == 0
    }

    /// Whether `chunks` more chunks may be kept, of any port.
    pub(crate) const fn has_room(&self, chunks: usize) -> bool {
        self.chunks + chunks <= CHUNKS_MAX
    }

    /// Whether a port has already used its share of the kept chunks.
    pub(crate) fn has_share(&self, port: u16) -> bool {
        self.lines.get(usize::from(port)).is_none_or(|line| usize::from(line.chunks) >= PORT_CHUNKS_MAX)
    }

    /// Keeps a frame of `chunks` chunks, after the port's others. Returns it if there is no room.
    pub(crate) fn push(&mut self, frame: Frame, chunks: usize) -> Result<(), Frame> {
        let port = frame.meta().port;
        let (place, count) = (usize::from(self.free), chunks as u16);
        if !self.has_room(chunks) {
            return Err(frame);
        }
        let Some(line) = self.lines.get_mut(usize::from(port)) else { return Err(frame) };
        // Each frame has a chunk, so there is a free entry while there is room for chunks.
        let Some(kept) = self.kept.get_mut(place) else { return Err(frame) };
        self.free = std::mem::replace(kept, Kept { frame: Some(frame), chunks: count, next: NONE }).next;
        let former = std::mem::replace(&mut line.last, place as u16);
        line.chunks += count;
        self.chunks += chunks;
        if former == NONE {
            line.first = place as u16;
            self.turns.push_back(port);
        } else {
            self.kept[usize::from(former)].next = place as u16;
        }
        Ok(())
    }

    /// The oldest frame of the port whose turn it is.
    pub(crate) fn pop(&mut self) -> Option<Frame> {
        let port = self.turns.pop_front()?;
        let line = &mut self.lines[usize::from(port)];
        let place = line.first;
        let free = Kept { frame: None, chunks: 0, next: self.free };
        let Kept { frame, chunks, next } = std::mem::replace(&mut self.kept[usize::from(place)], free);
        self.free = place;
        line.first = next;
        line.chunks -= chunks;
        self.chunks -= usize::from(chunks);
        if next == NONE {
            line.last = NONE;
        } else {
            self.turns.push_back(port);
        }
        frame
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, VecDeque};

    use twinpath_frame::Pool;

    use super::*;

    #[test]
    fn ports_take_turns_and_each_keeps_its_order() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut pool = Pool::new(CHUNKS_MAX as u32 + 8).expect("pool");
        let (mut ahead, mut model) = (Ahead::new(), BTreeMap::<u16, VecDeque<u32>>::new());
        let mut turns = VecDeque::new();
        for _ in 0..50_000 {
            if random.u8(..100) < 60 {
                let port = [0, 1, 2, 4094][random.usize(..4)];
                let Some(mut frame) = pool.take() else { continue };
                (frame.meta_mut().port, frame.meta_mut().checksum_start) = (port, 0);
                let index = frame.index();
                let fits = model.values().map(VecDeque::len).sum::<usize>() < CHUNKS_MAX;
                assert_eq!(ahead.has_room(1), fits);
                match ahead.push(frame, 1) {
                    Ok(()) => {
                        assert!(fits);
                        let line = model.entry(port).or_default();
                        if line.is_empty() {
                            turns.push_back(port);
                        }
                        line.push_back(index);
                    }
                    Err(frame) => {
                        assert!(!fits);
                        pool.release(frame);
                    }
                }
                let share = model.get(&port).map_or(0, VecDeque::len) >= PORT_CHUNKS_MAX;
                assert_eq!(ahead.has_share(port), share);
            } else {
                let expected = turns.pop_front().map(|port| {
                    let line = model.get_mut(&port).expect("it has frames");
                    let index = line.pop_front().expect("it has frames");
                    if !line.is_empty() {
                        turns.push_back(port);
                    }
                    (port, index)
                });
                let got = ahead.pop();
                assert_eq!(got.as_ref().map(|frame| (frame.meta().port, frame.index())), expected);
                got.into_iter().for_each(|frame| pool.release(frame));
            }
        }
        std::iter::from_fn(|| ahead.pop()).for_each(|frame| pool.release(frame));
        assert!(ahead.is_empty());
        assert_eq!(pool.free(), pool.frames());
    }

    #[test]
    fn long_packets_count_by_their_chunks() {
        let mut pool = Pool::new(8).expect("pool");
        let mut ahead = Ahead::new();
        let mut push = |ahead: &mut Ahead, chunks| {
            let frame = pool.take().expect("free");
            ahead.push(frame, chunks).map_err(|frame| pool.release(frame))
        };
        assert!(push(&mut ahead, PORT_CHUNKS_MAX).is_ok() && ahead.has_share(0) && !ahead.has_share(1));
        assert!(push(&mut ahead, PORT_CHUNKS_MAX - 1).is_ok() && ahead.has_room(1) && !ahead.has_room(2));
        assert!(push(&mut ahead, 2).is_err() && push(&mut ahead, 1).is_ok() && push(&mut ahead, 1).is_err());
        std::iter::from_fn(|| ahead.pop()).for_each(|frame| pool.release(frame));
        assert_eq!(pool.free(), pool.frames());
    }
}
