//! A worker with a port to another process, while that process is killed, lies, sleeps or does nothing.

mod peer;
mod rig;

use twinpath_frame::leaked;
use twinpath_inspect::Reason;
use twinpath_worker::idle::Mode;

use self::peer::Kind;
use self::rig::{DIRECT, Rig, SHARED};

#[test]
fn an_application_answers_whichever_side_sleeps() {
    for mode in Mode::ALL {
        let mut rig = Rig::new(mode);
        for kind in [Kind::Sleeping, Kind::Spinning] {
            let peer = rig.attach(kind, 0);
            assert_eq!(rig.exchange(SHARED, 200), 200, "{mode}, {kind:?}");
            rig.detach(peer);
        }
        rig.finish();
    }
}

/// Killed in the middle of traffic, at another point each time: nothing is lost to the worker, its other port does not
/// notice, and the next application is served.
#[test]
fn a_killed_application_takes_nothing_with_it() {
    let mut rig = Rig::new(Mode::Interrupt);
    let mut random = fastrand::Rng::with_seed(4);
    for round in 0..25 {
        let kind = if round % 2 == 0 { Kind::Sleeping } else { Kind::Spinning };
        let mut peer = rig.attach(kind, 0);
        assert_eq!(rig.exchange(SHARED, 1 + random.u32(..40)), rig.asked());
        rig.offer(SHARED, random.u32(..120));
        peer.kill();
        // What was under way may still come; what is sent now fills the ring, and is then dropped with a count.
        rig.offer(SHARED, 50);
        assert_eq!(rig.exchange(DIRECT, 20), 20, "round {round}");
        assert!(peer.hangs_up(), "control learns of it");
        rig.detach(peer);
        rig.offer(SHARED, 5);
        assert_eq!(rig.exchange(DIRECT, 5), 5, "round {round}");
    }
    rig.finish();
}

/// Writes seeded random values into every byte that it can reach, without a pause, while frames go in both directions.
#[test]
fn an_application_that_writes_nonsense_everywhere_breaks_its_own_port_only() {
    let mut rig = Rig::new(Mode::Adaptive);
    for seed in 0..12 {
        let kind = if seed % 2 == 0 { Kind::NonsenseEverywhere } else { Kind::NonsenseInSlots };
        let mut peer = rig.attach(kind, seed);
        let faults = rig.until("a fault is counted", |rig| {
            rig.offer(SHARED, 8);
            assert_eq!(rig.exchange(DIRECT, 8), 8, "seed {seed}");
            Some(peer.drops(Reason::PeerFault)).filter(|faults| *faults > 0)
        });
        assert!(faults > 0);
        for _ in 0..50 {
            rig.offer(SHARED, 16);
            assert_eq!(rig.exchange(DIRECT, 16), 16, "seed {seed}");
        }
        peer.kill();
        rig.detach(peer);
    }
    let peer = rig.attach(Kind::Sleeping, 0);
    assert_eq!(rig.exchange(SHARED, 50), 50, "a sound one is served after all of them");
    rig.detach(peer);
    rig.finish();
}

#[test]
fn an_application_that_never_reads_costs_its_own_frames_only() {
    let mut rig = Rig::new(Mode::Interrupt);
    let peer = rig.attach(Kind::Mute, 0);
    rig.offer(SHARED, 3 * rig::SLOTS);
    assert_eq!(rig.exchange(DIRECT, 50), 50);
    assert_eq!(peer.drops(Reason::PortFull), u64::from(2 * rig::SLOTS));
    rig.detach(peer);
    rig.finish();
    assert_eq!(leaked(), 0);
}
