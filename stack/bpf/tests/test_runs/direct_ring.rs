//! Tests the direct ring with several CPUs that fill it, by concurrent test runs of the program.
#![allow(unsafe_code, reason = "the test plays a second producer in the memory of the ring")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use twinpath_bpf::{DIRECT_SLOTS, Path, Steering};
use twinpath_claims::corpus;
use twinpath_frame::Mapping;
use twinpath_rings::direct::{DirectRing, SLOT_LEN, STATE_LEN};

use crate::common::{direct_ring, filter, ingress, run};

const HEAD_AT: usize = 64;
/// The bit of the head that says that the ring is open.
const OPEN: u64 = 1 << 63;
const LEN_AT: usize = 8;
const BYTES_AT: usize = 16;
/// Offset of the payload in an IPv4 UDP frame.
const PAYLOAD_AT: usize = 42;

/// The packet path with a claimed port, and a frame to that port.
fn packet_path() -> (Steering, Vec<u8>) {
    let corpus = corpus::all().unwrap();
    let mut steering = Steering::load(Path::Packet).unwrap();
    steering.apply(&corpus.tables["basic"]).unwrap();
    let case = corpus.cases.iter().find(|case| case.name == "ipv4_udp_claimed").unwrap();
    (steering, case.frame.clone())
}

/// The same frame, long, with a payload of one repeated byte: a mixture of two frames is detected.
fn frame_of(frame: &[u8], number: u8) -> Vec<u8> {
    let mut frame = frame[..PAYLOAD_AT].to_vec();
    frame.resize(1400, number);
    let ip_len = (frame.len() - 14) as u16;
    frame[16..18].copy_from_slice(&ip_len.to_be_bytes());
    frame[38..40].copy_from_slice(&(ip_len - 20).to_be_bytes());
    frame
}

fn take(ring: &mut DirectRing) -> Option<u8> {
    ring.take(|frame| {
        let payload = &frame.bytes[PAYLOAD_AT..];
        assert!(payload.iter().all(|byte| *byte == payload[0]), "one slot was given to two producers");
        payload[0]
    })
}

#[test]
fn a_delayed_producer_keeps_its_slot_while_the_program_fills_the_rest() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let (steering, frame) = packet_path();
    let mut ring = direct_ring(&steering);
    let [state, slots] = steering.direct().unwrap();
    let state = Mapping::of_fd(state, STATE_LEN, 0).unwrap();
    let slots = Mapping::of_fd(slots, DIRECT_SLOTS as usize * SLOT_LEN, 0).unwrap();
    // SAFETY: the state is that long, and the place aligned to eight; a 64-bit atomic takes any bits.
    let head = unsafe { state.base().add(HEAD_AT).cast::<AtomicU64>().as_ref() };
    // In the second lap, so that the slots no longer hold the initial zeros.
    let before = DIRECT_SLOTS + 7;
    for _ in 0..before {
        run(ingress(&steering), &frame_of(&frame, 1), None, 1);
        assert_eq!(take(&mut ring), Some(1));
    }
    // The test takes the next slot as the program does on another CPU, and is held up.
    assert_eq!(head.fetch_add(1, Ordering::SeqCst) & !OPEN, u64::from(before));
    run(ingress(&steering), &frame_of(&frame, 2), None, 3 * DIRECT_SLOTS);
    assert!(!ring.look(), "the slot is not filled yet");
    assert_eq!(ring.lost(), 2 * DIRECT_SLOTS + 1);
    // It continues: the slot is still its own.
    // SAFETY: the slot lies in the mapping and belongs to this producer; the program no longer touches it.
    unsafe {
        let slot = slots.base().add(7 * SLOT_LEN);
        assert_eq!(slot.cast::<AtomicU64>().as_ref().load(Ordering::SeqCst), u64::from(DIRECT_SLOTS));
        let late = frame_of(&frame, 3);
        slot.add(LEN_AT).cast::<u32>().write(late.len() as u32);
        slot.add(BYTES_AT).copy_from_nonoverlapping(std::ptr::NonNull::from(&late[..]).cast(), late.len());
        slot.cast::<AtomicU64>().as_ref().swap(u64::from(DIRECT_SLOTS) + 1, Ordering::SeqCst);
    }
    let taken: Vec<_> = std::iter::from_fn(|| take(&mut ring)).collect();
    assert_eq!((taken.len(), taken[0]), (DIRECT_SLOTS as usize, 3));
    assert!(taken[1..].iter().all(|number| *number == 2));
    run(ingress(&steering), &frame_of(&frame, 4), None, 1);
    assert_eq!((take(&mut ring), take(&mut ring), ring.lost()), (Some(4), None, 0));
}

/// Frames of one test run.
const FRAMES: u32 = 100;
const PRODUCERS: usize = 4;
/// Frames that each producer must get into the ring.
const ENOUGH: u32 = 3_000;
/// How often the ring is closed.
const TIMES: u32 = 20_000;
const PATIENCE: Duration = Duration::from_secs(60);

/// Four threads run the filter while the worker closes and opens the ring hundreds of times. Each frame is in the
/// ring once, was left to the socket, or was counted as lost, and nothing enters a ring that is closed and drained.
#[test]
fn a_ring_that_is_closed_and_opened_under_load_takes_each_frame_once() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let (steering, frame) = packet_path();
    let mut ring = direct_ring(&steering);
    let (over, left, begun) = (AtomicBool::new(false), AtomicBool::new(false), Instant::now());
    let (mut taken, mut closed) = (0, 0);
    let (sent, to_socket): (u32, u32) = std::thread::scope(|scope| {
        let producers = [0, 1, 2, 3].map(|number| {
            let frame = frame_of(&frame, number);
            // The production filter reads from the start of the data, which in a test run is the IP header.
            let (frame, steering, over, left) = ([&frame[..14], &frame].concat(), &steering, &over, &left);
            scope.spawn(move || {
                let (mut sent, mut to_socket) = (0, 0);
                while !over.load(Ordering::SeqCst) {
                    sent += 1;
                    let is_left = run(filter(steering), &frame, None, 1).return_value != 0;
                    to_socket += u32::from(is_left);
                    left.fetch_or(is_left, Ordering::Relaxed);
                }
                (sent, to_socket)
            })
        });
        // On a busy machine the producers may not have run at all by then.
        let is_enough = |closed, taken| closed >= TIMES && taken > 0 && left.load(Ordering::Relaxed);
        while !is_enough(closed, taken) && begun.elapsed() < PATIENCE {
            if !ring.is_open() {
                assert!(!ring.look(), "a frame came after the ring was drained");
                ring.open();
            }
            for _ in 0..64 {
                taken += u32::from(take(&mut ring).is_some());
            }
            ring.close();
            closed += 1;
            while !ring.is_drained() {
                taken += u32::from(take(&mut ring).is_some());
            }
        }
        over.store(true, Ordering::SeqCst);
        let producers = producers.into_iter().map(|producer| producer.join().unwrap());
        producers.fold((0, 0), |sum, each| (sum.0 + each.0, sum.1 + each.1))
    });
    let lost = ring.lost();
    println!("{sent} frames: {taken} by the ring, {to_socket} left to the socket, {lost} lost");
    assert!(closed >= TIMES && taken > 0 && to_socket > 0);
    assert_eq!(taken + to_socket + lost, sent);
}

#[test]
fn frames_of_several_cpus_come_whole_and_once_or_are_counted() {
    if !twinpath_test_rig::root_or_skip() {
        return;
    }
    let (steering, frame) = packet_path();
    let mut ring = direct_ring(&steering);
    let (over, begun) = (AtomicBool::new(false), Instant::now());
    let mut taken = [0; PRODUCERS];
    let sent: u32 = std::thread::scope(|scope| {
        let producers = [0, 1, 2, 3].map(|number| {
            let (frame, steering, over) = (frame_of(&frame, number), &steering, &over);
            scope.spawn(move || {
                let mut sent = 0;
                while !over.load(Ordering::SeqCst) {
                    run(ingress(steering), &frame, None, FRAMES);
                    sent += FRAMES;
                }
                sent
            })
        });
        while taken.iter().any(|taken| *taken < ENOUGH) && begun.elapsed() < PATIENCE {
            match take(&mut ring) {
                Some(number) => taken[usize::from(number)] += 1,
                None => std::thread::yield_now(),
            }
        }
        over.store(true, Ordering::SeqCst);
        producers.into_iter().map(|producer| producer.join().unwrap()).sum()
    });
    while let Some(number) = take(&mut ring) {
        taken[usize::from(number)] += 1;
    }
    let lost = ring.lost();
    println!("{taken:?} taken, {lost} counted as lost");
    assert!(taken.iter().all(|taken| *taken >= ENOUGH), "the ring got stuck: {taken:?}");
    assert_eq!(taken.iter().sum::<u32>() + lost, sent);
    run(ingress(&steering), &frame_of(&frame, 9), None, 1);
    assert_eq!((take(&mut ring), take(&mut ring)), (Some(9), None));
}
