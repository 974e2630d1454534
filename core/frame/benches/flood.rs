//! Measures what sharing a packet saves when it leaves by 2, 3 or 8 ports: both sides in one run, alternating.
//!
//! `cargo bench -p twinpath-frame --bench flood` prints the medians. A port is a ring of slots into which the packet is
//! copied, as a memory port does it; "frames alone" leaves that out.

use std::hint::black_box;
use std::time::Instant;

use twinpath_frame::{Frame, Pool};

const ROUNDS: usize = 41;

/// The rings of the ports: each copy goes to the next slot, so that rings are larger than the caches.
struct Rings {
    memory: Vec<u8>,
    slot_bytes: usize,
    next: usize,
}

impl Rings {
    fn new(slot_bytes: usize) -> Self {
        let slots = (64 << 20) / slot_bytes;
        Self { memory: vec![1; slots * slot_bytes], slot_bytes, next: 0 }
    }

    fn put(&mut self, packet: &Frame) {
        let mut at = self.next;
        for piece in packet.pieces(0..usize::MAX) {
            self.memory[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        }
        self.next = (self.next + self.slot_bytes) % self.memory.len();
    }
}

/// Sends `count` packets by `TWINS` + 1 ports, and returns nanoseconds per packet.
fn flood<const TWINS: usize>(
    pool: &mut Pool,
    bytes: &[u8],
    count: u32,
    is_shared: bool,
    mut rings: Option<&mut Rings>,
) -> f64 {
    let began = Instant::now();
    for _ in 0..count {
        let mut packet = pool.copy_of([bytes]).expect("frames are free");
        let twins: [Frame; TWINS] = std::array::from_fn(|_| {
            let twin = if is_shared { pool.share(&mut packet) } else { pool.duplicate(&packet) };
            twin.expect("frames are free")
        });
        if let Some(rings) = &mut rings {
            twins.iter().chain([&packet]).for_each(|leaves| rings.put(leaves));
        }
        twins.into_iter().chain([packet]).for_each(|frame| pool.release(black_box(frame)));
    }
    began.elapsed().as_nanos() as f64 / f64::from(count)
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn compare<const TWINS: usize>(pool: &mut Pool) {
    for (len, count) in [
        (64, 4_000),
        (128, 4_000),
        (256, 4_000),
        (512, 4_000),
        (768, 4_000),
        (1_024, 2_000),
        (1_514, 2_000),
        (9_014, 500),
        (65_000, 60),
    ] {
        let bytes = vec![7; len];
        let mut rings = Rings::new(len.next_multiple_of(64));
        for is_sent in [false, true] {
            let mut figures = [Vec::new(), Vec::new()];
            for round in 0..2 * ROUNDS {
                let is_shared = round % 2 == 1;
                let rings = is_sent.then_some(&mut rings);
                figures[usize::from(is_shared)].push(flood::<TWINS>(pool, &bytes, count, is_shared, rings));
            }
            let [copied, shared] = figures.map(median);
            let what = if is_sent { "sent into rings" } else { "frames alone" };
            let ports = TWINS + 1;
            let ratio = copied / shared;
            println!("{ports} ports, {len:6} bytes, {what:15}: {copied:9.0} {shared:9.0} {ratio:6.2}");
        }
    }
}

fn main() {
    let mut pool = Pool::new(1024).expect("memory");
    println!("ns per packet: copied, shared, copied / shared (medians of {ROUNDS})");
    compare::<1>(&mut pool);
    compare::<2>(&mut pool);
    compare::<7>(&mut pool);
}
