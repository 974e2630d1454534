//! A port that sends more than the worker can pass on hardly delays the others, and takes no room from them.

use twinpath_frame::BURST_MAX;
use twinpath_inspect::Reason;

use super::frames::{Far, cables, tcp};
use super::*;

/// Frames that the worker gets in the next turn: the port of each.
fn turn(switch: &mut Switch) -> Vec<u16> {
    switch.receive();
    let ports = switch.waiting.frames().iter().map(|frame| frame.meta().port).collect();
    let Switch { waiting, pool, .. } = switch;
    waiting.release(usize::MAX, pool);
    ports
}

#[test]
fn a_port_that_floods_lets_others_take_their_turns() {
    if !can_run() {
        return;
    }
    let namespace = cables(2);
    let mut switch = Switch::new(&namespace, &["near0", "near1"], Unserved::Dropped, Duration::ZERO);
    let [mut flood, mut other] = ["far0", "far1"].map(|name| Far::new(&namespace, name));
    let mut send = |count: usize| (0..count).for_each(|_| flood.send(&tcp(60), |_| {}));
    other.send(&tcp(60), |_| {});
    send(200);
    other.send(&tcp(60), |_| {});
    // All of it waits already, behind a full burst.
    assert_eq!(turn(&mut switch).len(), BURST_MAX);
    let next = turn(&mut switch);
    let place = next.iter().position(|port| *port == 1);
    assert_eq!(place, Some(1), "the other port has the second turn, of {} frames: {next:?}", next.len());
    assert!(!switch.queue.arm(), "the worker must not sleep on frames that were read ahead");
    // The flood's own frames stay in order and none is lost, as its share has room for them.
    let mut frames = BURST_MAX + next.len();
    while switch.queue.look() {
        frames += turn(&mut switch).len();
    }
    assert_eq!((frames, switch.counters(0).drops.get(Reason::PortShare)), (202, 0));
    assert!(switch.queue.arm(), "nothing waits");
}

#[test]
fn a_port_beyond_its_share_loses_only_its_own_frames() {
    if !can_run() {
        return;
    }
    let namespace = cables(2);
    let mut switch = Switch::new(&namespace, &["near0", "near1"], Unserved::Dropped, Duration::ZERO);
    let [mut flood, mut other] = ["far0", "far1"].map(|name| Far::new(&namespace, name));
    let mut sent = [0, 0];
    let mut got = [0, 0];
    // Each turn the flood sends four times what a turn passes on, and the other port a frame.
    for _ in 0..30 {
        (0..128).for_each(|_| flood.send(&tcp(60), |_| {}));
        other.send(&tcp(60), |_| {});
        sent = [sent[0] + 128, sent[1] + 1];
        turn(&mut switch).iter().for_each(|port| got[usize::from(*port)] += 1);
    }
    while switch.queue.look() {
        turn(&mut switch).iter().for_each(|port| got[usize::from(*port)] += 1);
    }
    let dropped = [0, 1].map(|port| switch.counters(port).drops.get(Reason::PortShare));
    assert!(dropped[0] > 0, "{sent:?} {got:?}");
    assert_eq!([got[0] + dropped[0], got[1] + dropped[1]], sent, "every frame is passed on or counted");
    assert_eq!(dropped[1], 0);
    let Switch { queue, mut pool, .. } = switch;
    Box::new(queue).close().into_iter().for_each(|frame| pool.release(frame));
    assert_eq!(pool.free(), pool.frames(), "no frame is lost");
}
